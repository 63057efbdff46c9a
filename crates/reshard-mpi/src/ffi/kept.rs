//! A duplicate of a communicator, kept on its parent.
//!
//! A library must not send on its host's communicator: tags would meet. Duplicating it is collective and takes time and
//! scarce numbers, so it is done once, and the duplicate is kept as an attribute of the parent, which MPI deletes with it.
//! For the world the standard names no such moment. But it promises that `MPI_Finalize` first of all deletes the attributes of
//! `MPI_COMM_SELF`, while everything still works: one of ours there takes the duplicate of the world with it, and tells us that
//! MPI ends.
//!
//! Duplicating waits for all ranks, so it is begun, and looked at until the time is over. What is still under way then is kept,
//! too: whoever asks again goes on waiting for it, and a rank that comes late finds the others.

use super::calls::{Calls, Either, Handle, call, each, name};
use super::comm::Comm;
use super::library::Mpi;
use super::request::Request;
use super::wait::wait;
use crate::abi::{Raw, SUCCESS};
use reshard_plan::{Error, ErrorKind, Result};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What is kept under our key.
enum Kept {
    /// On a communicator: its duplicate, or what will be one.
    Duplicate(Arc<Mutex<Duplicate>>),
    /// On `MPI_COMM_SELF`: a reminder that MPI ends.
    End(&'static Mpi),
}

enum Duplicate {
    Made(Arc<dyn Any + Send + Sync>),
    UnderWay(Duplicating),
    /// It could not be made, for this reason.
    Failed(Error),
}

/// A duplicate that is being made.
struct Duplicating {
    request: Request,
    /// Where MPI writes the handle when it is done. Leaked if that never happens.
    place: *mut u64,
}

// SAFETY: the place is on the heap, and only whoever has the value reads it.
unsafe impl Send for Duplicating {}

impl Duplicating {
    fn begin(comm: &Comm) -> Result<Self> {
        let mpi = comm.mpi();
        let place: *mut u64 = Box::leak(Box::new(0));
        let _turn = mpi.turn()?;
        let (code, raw) = each!(mpi, calls => {
            let mut request = Handle::of(0);
            // SAFETY: the handle is valid; there is room for a handle of either kind, for as long as it takes.
            let code = unsafe { (calls.comm_idup)(Handle::of(comm.raw), place.cast(), &raw mut request) };
            (code, Handle::raw(request))
        });
        mpi.check(name::comm_idup, code)?;
        Ok(Self { request: Request::new(mpi, raw, false), place })
    }

    /// The duplicate, if it is made in time; nothing if it is not.
    fn within(&mut self, mpi: &'static Mpi, time: Option<Duration>) -> Result<Option<Comm>> {
        fn handle<H: Handle>(_: &Calls<H>, place: *const u64) -> Raw {
            // SAFETY: the call that was waited for wrote a handle of this kind there.
            unsafe { place.cast::<H>().read() }.raw()
        }
        let waited = wait(std::slice::from_mut(&mut self.request), time);
        if self.request.received().is_none() {
            // An error that ended nothing is the end of the time.
            return Ok(None);
        }
        waited?;
        let raw = each!(mpi, calls => handle(calls, self.place));
        // SAFETY: leaked in `begin`, and no longer known to the library.
        drop(unsafe { Box::from_raw(self.place) });
        Comm::made(mpi, raw).map(Some)
    }
}

impl Comm {
    /// A duplicate, of its own; fails if not all ranks have asked for it in time. Collective.
    pub(crate) fn duplicate(&self, time: Option<Duration>) -> Result<Comm> {
        Duplicating::begin(self)?.within(self.mpi(), time)?.ok_or_else(|| never_called(time))
    }

    /// What `make` makes of a duplicate of this communicator: made once, then always the same, wherever the handle comes from.
    /// Collective the first time.
    pub(crate) fn kept_duplicate<T: Any + Send + Sync>(
        &self,
        time: Option<Duration>,
        make: impl FnOnce(Comm) -> T,
    ) -> Result<Arc<T>> {
        let mpi = self.mpi();
        let key = mpi.key()?;
        // One thread at a time: two would both find nothing, and the second would replace what the first keeps.
        let keeping = mpi.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match self.kept(key)? {
            Some(kept) => kept,
            None => {
                let duplicate = Duplicate::UnderWay(Duplicating::begin(self)?);
                let kept = Arc::new(Mutex::new(duplicate));
                keep(mpi, self.raw, key, Kept::Duplicate(Arc::clone(&kept)))?;
                kept
            }
        };
        drop(keeping);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Duplicate::UnderWay(duplicating) = &mut *kept {
            *kept = match duplicating.within(mpi, time) {
                Ok(Some(comm)) => Duplicate::Made(Arc::new(make(comm))),
                Ok(None) => return Err(never_called(time)),
                Err(error) => Duplicate::Failed(error),
            };
        }
        match &*kept {
            Duplicate::Failed(error) => Err(error.clone()),
            Duplicate::Made(made) => Arc::clone(made).downcast().map_err(|_| {
                Error::new(ErrorKind::Mpi, "another kind of duplicate is kept on this communicator")
            }),
            Duplicate::UnderWay(_) => Err(never_called(time)),
        }
    }

    /// What is kept on this communicator.
    fn kept(&self, key: c_int) -> Result<Option<Arc<Mutex<Duplicate>>>> {
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
            Kept::Duplicate(duplicate) => Ok(Some(Arc::clone(duplicate))),
            Kept::End(_) => Ok(None),
        }
    }
}

/// MPI does not say who is missing.
fn never_called(time: Option<Duration>) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "waited {:.1} s for the other ranks to call this for the first time on this communicator: at least one has exited, is \
             stuck, or never made the call; call this on all ranks of the communicator, or allow more time; nothing was moved",
            time.unwrap_or_default().as_secs_f64()
        ),
    )
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
    /// The key for kept duplicates, made the first time.
    pub(super) fn key(&'static self) -> Result<c_int> {
        let mut keyval = self.keyval.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = *keyval {
            return Ok(key);
        }
        let turn = self.turn()?;
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
        drop((keyval, turn));
        keep(self, self.abi.handles.comm_self, key, Kept::End(self))?;
        Ok(key)
    }

    /// Lets go of the duplicate that is kept on a communicator, if there is one.
    pub(super) fn forget_duplicate(&self, comm: &Comm) -> Result<()> {
        let key = *self.keyval.lock().unwrap_or_else(PoisonError::into_inner);
        match key {
            // SAFETY: handle and key are valid, and there is a value, which `deleted` takes.
            Some(key) if comm.kept(key)?.is_some() => unsafe {
                call!(self, comm_delete_attr(Handle::of(comm.raw), key))
            },
            _ => Ok(()),
        }
    }
}

/// A duplicate of the parent does not inherit what is kept on it.
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
        Kept::Duplicate(duplicate) => drop(duplicate),
        Kept::End(mpi) => {
            // SAFETY: MPI is about to end, but has not: the world is still there.
            if let Ok(world) = unsafe { Comm::borrowed(mpi, mpi.abi.handles.comm_world) } {
                let _ = mpi.forget_duplicate(&world);
            }
            mpi.note_end();
        }
    }
    SUCCESS
}
