//! A duplicate of a communicator, cached as an attribute of its parent.
//!
//! A library must not send on its host's communicator: tags would collide. Duplicating it is collective and takes time and
//! scarce context numbers, so it is done once, and the duplicate is cached as an attribute of the parent, which MPI
//! deletes with it. The world is never freed. But the standard promises that `MPI_Finalize` first of all deletes the
//! attributes of `MPI_COMM_SELF`, while MPI still works: an attribute of ours there, under a key of its own, frees the
//! duplicate of the world, and records that MPI ends. Under the key of duplicates a duplicate of `MPI_COMM_SELF` would replace it.
//!
//! Duplicating waits for all ranks, so it is begun without blocking, and tested until the timeout. A duplicate that is
//! pending then is kept, too: a later call goes on waiting for it, and a late rank finds the others.

use super::calls::{CallTable, Calls, Handle, call, each, name};
use super::comm::Comm;
use super::library::{Keys, Mpi};
use super::request::Request;
use super::wait::all_complete_within;
use crate::abi::{Raw, SUCCESS};
use reshard_plan::{Error, ErrorKind, Result};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The value of our attribute.
enum AttributeValue {
    /// On a communicator: its duplicate, perhaps pending.
    Duplicate(Arc<Mutex<DuplicateState>>),
    /// On `MPI_COMM_SELF`: deleted when MPI ends.
    FinalizeHook(&'static Mpi),
}

/// A duplicate, or how far it is.
enum DuplicateState {
    Made(Arc<dyn Any + Send + Sync>),
    Pending(PendingDuplicate),
    /// MPI failed to make it.
    Failed(Error),
}

/// A duplicate that MPI is making.
struct PendingDuplicate {
    request: Request,
    /// Where MPI writes the handle on completion. Leaked if that never happens.
    place: *mut u64,
}

// SAFETY: the place is on the heap, and only the owner of this value reads it.
unsafe impl Send for PendingDuplicate {}

impl PendingDuplicate {
    fn begin(comm: &Comm) -> Result<Self> {
        let mpi = comm.mpi();
        let place: *mut u64 = Box::leak(Box::new(0));
        let _guard = mpi.enter()?;
        let (code, raw) = each!(mpi, calls => {
            let mut request = Handle::of(0);
            // SAFETY: the handle is valid; there is room for a handle of either kind, for as long as it takes.
            let code = unsafe { (calls.comm_idup)(Handle::of(comm.raw), place.cast(), &raw mut request) };
            (code, Handle::raw(request))
        });
        mpi.check(name::comm_idup, code)?;
        Ok(Self { request: Request::new(mpi, raw, false), place })
    }

    /// The duplicate; none on timeout. An error leaves the request in flight if it cannot be waited for now, as by a thread that
    /// may not call MPI.
    fn within(&mut self, mpi: &'static Mpi, time: Option<Duration>) -> Result<Option<Comm>> {
        fn handle<H: Handle>(_: &Calls<H>, place: *const u64) -> Raw {
            // SAFETY: the call that was waited for wrote a handle of this kind there.
            unsafe { place.cast::<H>().read() }.raw()
        }
        if !all_complete_within(std::slice::from_mut(&mut self.request), time)? {
            return Ok(None);
        }
        let raw = each!(mpi, calls => handle(calls, self.place));
        // SAFETY: leaked in `begin`, and no longer known to the library.
        drop(unsafe { Box::from_raw(self.place) });
        Comm::made(mpi, raw).map(Some)
    }
}

impl Comm {
    /// Makes an uncached duplicate; fails on timeout. Collective.
    pub(crate) fn duplicate(&self, time: Option<Duration>) -> Result<Comm> {
        PendingDuplicate::begin(self)?.within(self.mpi(), time)?.ok_or_else(|| timed_out(time))
    }

    /// The cached duplicate of this communicator, wrapped by `make`: made once, then always the same, wherever the handle
    /// comes from. Collective the first time.
    pub(crate) fn cached_duplicate<T: Any + Send + Sync>(
        &self,
        time: Option<Duration>,
        make: impl FnOnce(Comm) -> T,
    ) -> Result<Arc<T>> {
        let mpi = self.mpi();
        let key = mpi.keys()?.duplicate;
        mpi.free_retired();
        // One thread at a time: else two would both find none, and the second would replace the first one's.
        let lookup = mpi.duplicate_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match self.cached(key)? {
            Some(kept) => kept,
            None => {
                let duplicate = DuplicateState::Pending(PendingDuplicate::begin(self)?);
                let kept = Arc::new(Mutex::new(duplicate));
                set_attribute(mpi, self.raw, key, AttributeValue::Duplicate(Arc::clone(&kept)))?;
                kept
            }
        };
        drop(lookup);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let DuplicateState::Pending(pending) = &mut *kept {
            *kept = match pending.within(mpi, time) {
                Ok(Some(comm)) => DuplicateState::Made(Arc::new(make(comm))),
                Ok(None) => return Err(timed_out(time)),
                Err(error) if pending.request.received().is_none() => return Err(error),
                Err(error) => DuplicateState::Failed(error),
            };
        }
        match &*kept {
            DuplicateState::Failed(error) => Err(error.clone()),
            DuplicateState::Made(made) => Arc::clone(made).downcast().map_err(|_| {
                Error::new(ErrorKind::External, "another kind of duplicate is cached on this communicator")
            }),
            DuplicateState::Pending(_) => Err(timed_out(time)),
        }
    }

    /// The duplicate cached on this communicator, if there is one.
    fn cached(&self, key: c_int) -> Result<Option<Arc<Mutex<DuplicateState>>>> {
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
        // SAFETY: only `set_attribute` sets values under this key, each a leaked box; `deleted` has not freed it, as it is
        // still there.
        match unsafe { &*value.cast::<AttributeValue>() } {
            AttributeValue::Duplicate(duplicate) => Ok(Some(Arc::clone(duplicate))),
            AttributeValue::FinalizeHook(_) => Ok(None),
        }
    }
}

/// The error of a timeout; MPI does not say which rank is missing.
fn timed_out(time: Option<Duration>) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "waited {:.1} s for the other ranks to call this for the first time on this communicator: at least one has exited, is \
             stuck, or never made the call; call this on all ranks of the communicator, or allow more time; nothing was moved",
            time.unwrap_or_default().as_secs_f64()
        ),
    )
}

/// Sets our attribute on a communicator.
fn set_attribute(mpi: &'static Mpi, comm: usize, key: c_int, value: AttributeValue) -> Result<()> {
    let value = Box::into_raw(Box::new(value));
    // SAFETY: handle and key are valid; the box lives until `deleted` takes it back.
    unsafe { call!(mpi, comm_set_attr(Handle::of(comm), key, value.cast())) }.inspect_err(|_| {
        // SAFETY: the library did not take it.
        drop(unsafe { Box::from_raw(value) });
    })
}

impl Mpi {
    /// The keys of our attributes, made the first time.
    pub(super) fn keys(&'static self) -> Result<Keys> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = *keys {
            return Ok(keys);
        }
        let made = Keys { duplicate: self.create_key()?, end: self.create_key()? };
        *keys = Some(made);
        drop(keys);
        set_attribute(self, self.abi.handles.comm_self, made.end, AttributeValue::FinalizeHook(self))?;
        Ok(made)
    }

    fn create_key(&self) -> Result<c_int> {
        let _guard = self.enter()?;
        let (mut key, none) = (0, std::ptr::null_mut());
        // SAFETY: the functions have the types the library calls them with.
        let code = match &self.calls {
            CallTable::Integers(calls) => unsafe {
                (calls.comm_create_keyval)(copied::<c_int>, deleted::<c_int>, &raw mut key, none)
            },
            // SAFETY: likewise.
            CallTable::Pointers(calls) => unsafe {
                (calls.comm_create_keyval)(copied::<*mut c_void>, deleted::<*mut c_void>, &raw mut key, none)
            },
        };
        self.check(name::comm_create_keyval, code).map(|()| key)
    }

    /// Has something done when MPI ends, while it still works. It must not panic.
    pub fn at_end(&'static self, act: fn()) -> Result<()> {
        // With the keys comes what notices the end.
        self.keys()?;
        self.at_end.lock().unwrap_or_else(PoisonError::into_inner).push(act);
        Ok(())
    }

    /// Deletes the duplicate cached on a communicator, if there is one.
    pub(super) fn delete_duplicate(&self, comm: &Comm) -> Result<()> {
        let keys = *self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.map(|keys| keys.duplicate) {
            // SAFETY: handle and key are valid, and there is a value, which `deleted` takes.
            Some(key) if comm.cached(key)?.is_some() => unsafe {
                call!(self, comm_delete_attr(Handle::of(comm.raw), key))
            },
            _ => Ok(()),
        }
    }
}

/// Attribute copy function: a duplicate of the parent does not inherit the attribute.
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

/// Attribute delete function: frees the value.
unsafe extern "C" fn deleted<H>(_: H, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `set_attribute` made it, and the library deletes each value once.
    match *unsafe { Box::from_raw(value.cast::<AttributeValue>()) } {
        // Frees the duplicate, unless an engine still holds it.
        AttributeValue::Duplicate(duplicate) => drop(duplicate),
        AttributeValue::FinalizeHook(mpi) => {
            let at_end = std::mem::take(&mut *mpi.at_end.lock().unwrap_or_else(PoisonError::into_inner));
            at_end.into_iter().for_each(|act| act());
            mpi.free_last_retired();
            mpi.is_ending.store(true, Ordering::Relaxed);
            // SAFETY: MPI is about to end, but has not: the world is still there.
            if let Ok(world) = unsafe { Comm::borrowed(mpi, mpi.abi.handles.comm_world) } {
                let _ = mpi.delete_duplicate(&world);
            }
            mpi.note_end();
        }
    }
    SUCCESS
}
