//! The private duplicate of a communicator, kept on its parent.
//!
//! A library must not send on its host's communicator: tags would meet. Duplicating it is collective and takes time and
//! scarce numbers, so it is done once, and the duplicate is kept as an attribute of the parent, which MPI deletes with it.
//! For the world the standard names no such moment. But it promises that `MPI_Finalize` first of all deletes the attributes of
//! `MPI_COMM_SELF`, while everything still works: one of ours there takes the duplicate of the world with it.

use super::calls::{Either, Handle, call, name};
use super::comm::Comm;
use super::library::Mpi;
use crate::abi::SUCCESS;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// What is kept under our key.
enum Kept {
    /// On a communicator: its private duplicate.
    Duplicate(Arc<Comm>),
    /// On `MPI_COMM_SELF`: a reminder that MPI ends.
    End(&'static Mpi),
}

impl Comm {
    /// The private duplicate of this communicator: made once, then always the same, wherever the handle comes from. Its errors
    /// are returned. Collective the first time. After a rank has waited in vain on it, it is refused.
    ///
    /// One limit is MPICH's: an error that shows only when a request is tested, such as a message longer than its place, goes
    /// to the error handler of the world, which is the host's where the host began MPI.
    ///
    /// The parent keeps it until the parent is freed or MPI ends. A clone that lives longer keeps it alive, but not beyond
    /// the end of MPI.
    pub fn private(&self) -> Result<Arc<Comm>> {
        let mpi = self.mpi();
        let key = mpi.key()?;
        if let Some(kept) = self.kept(key)? {
            return match kept.poisoned() {
                None => Ok(kept),
                Some(why) => Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "nothing more can be moved between these ranks since an earlier failure ({why}); see what became of the                          others, and use another communicator"
                    ),
                )),
            };
        }
        // SAFETY: the handle is valid.
        let raw = unsafe { call!(mpi, comm_dup(Handle::of(self.raw)) -> handle)? };
        let private = Arc::new(Comm::made(mpi, raw)?);
        keep(mpi, self.raw, key, Kept::Duplicate(Arc::clone(&private)))?;
        Ok(private)
    }

    fn kept(&self, key: c_int) -> Result<Option<Arc<Comm>>> {
        let mut value: *mut c_void = std::ptr::null_mut();
        let mut flag: c_int = 0;
        // SAFETY: the handle is valid; the call writes one pointer to `value`.
        unsafe {
            call!(
                self.mpi(),
                comm_get_attr(Handle::of(self.raw), key, (&raw mut value).cast(), &raw mut flag)
            )?;
        }
        if flag == 0 || value.is_null() {
            return Ok(None);
        }
        // SAFETY: only `keep` sets values under this key, each a leaked box; `deleted` has not had it, as it is still there.
        match unsafe { &*value.cast::<Kept>() } {
            Kept::Duplicate(private) => Ok(Some(Arc::clone(private))),
            Kept::End(_) => Ok(None),
        }
    }
}

fn keep(mpi: &'static Mpi, comm: usize, key: c_int, value: Kept) -> Result<()> {
    let value = Box::into_raw(Box::new(value));
    // SAFETY: handle and key are valid; the box lives until `deleted` takes it back.
    unsafe { call!(mpi, comm_set_attr(Handle::of(comm), key, value.cast())) }.inspect_err(|_| {
        // SAFETY: the library did not take it.
        drop(unsafe { Box::from_raw(value) });
    })
}

impl Mpi {
    /// The key for private duplicates, made the first time.
    fn key(&'static self) -> Result<c_int> {
        let mut keyval = self.keyval.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(key) = *keyval {
            return Ok(key);
        }
        self.may_call()?;
        let (mut key, none) = (0, std::ptr::null_mut());
        // SAFETY: the functions have the types the library calls them with.
        let code = match &self.calls {
            Either::Integers(calls) => unsafe {
                (calls.comm_create_keyval)(copied::<c_int>, deleted::<c_int>, &raw mut key, none)
            },
            // SAFETY: likewise.
            Either::Pointers(calls) => unsafe {
                (calls.comm_create_keyval)(copied::<*mut c_void>, deleted::<*mut c_void>, &raw mut key, none)
            },
        };
        self.check(name::comm_create_keyval, code)?;
        *keyval = Some(key);
        drop(keyval);
        keep(self, self.abi.handles.comm_self, key, Kept::End(self))?;
        Ok(key)
    }

    /// Lets go of the private duplicate of a communicator, if it has one.
    pub(super) fn forget_private(&self, comm: &Comm) -> Result<()> {
        let key = *self.keyval.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match key {
            // SAFETY: handle and key are valid, and there is a value, which `deleted` takes.
            Some(key) if comm.kept(key)?.is_some() => unsafe {
                call!(self, comm_delete_attr(Handle::of(comm.raw), key))
            },
            _ => Ok(()),
        }
    }
}

/// A duplicate of the parent does not inherit its private duplicate.
unsafe extern "C" fn copied<H>(
    _: H,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the library passes a place for the answer.
    unsafe { flag.write(0) };
    SUCCESS
}

unsafe extern "C" fn deleted<H>(_: H, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `keep` made it, and the library deletes each value once.
    match *unsafe { Box::from_raw(value.cast::<Kept>()) } {
        // Frees the duplicate, unless somebody still has it.
        Kept::Duplicate(private) => drop(private),
        Kept::End(mpi) => {
            // SAFETY: MPI is about to end, but has not: the world is still there.
            if let Ok(world) = unsafe { Comm::borrowed(mpi, mpi.abi.handles.comm_world) } {
                let _ = mpi.forget_private(&world);
            }
        }
    }
    SUCCESS
}
