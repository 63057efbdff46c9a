//! Duplicates that nobody uses any more, until they can be freed.
//!
//! MPI gives the context of a freed communicator to a new one, perhaps the host's, which then finds messages that were on their way: in Open
//! MPI one from a rank that the new communicator does not have ends the process. Ranks free at different times, and a rank that has
//! nothing to wait for does not receive the failure notices of others. So ranks sum up how many notices were sent, without waiting for
//! each other, and each frees the duplicate when it has received all of others. Where a rank keeps its own for ever, so do the others.

use super::collective::Reduce;
use super::comm::Comm;
use super::library::{Mpi, Pending};
use super::request::Request;
use reshard_plan::Result;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the end of MPI waits for other ranks, which come to it sooner or later.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A duplicate that waits for messages with a tag.
struct Retired {
    comm: Arc<Comm>,
    tag: u32,
    /// Messages that this rank need not receive, as they are its own, and those it has received.
    counted: u64,
    request: Request,
    /// Where MPI writes the number of messages to each rank. Leaked if it never does.
    sent: *mut [u64],
}

// SAFETY: the memory is on the heap, and only the owner of this value reads it.
unsafe impl Send for Retired {}

impl Pending for Retired {
    /// Receives what has come. Returns whether all has.
    fn is_over(&mut self) -> Result<bool> {
        if self.request.test()?.is_none() {
            return Ok(false);
        }
        // SAFETY: MPI has written it, and it is freed below only, with the value.
        let sent = unsafe { &*self.sent }.first().copied().unwrap_or_default();
        while self.counted < sent {
            let Some((from, bytes)) = self.comm.iprobe(None, self.tag)? else { return Ok(false) };
            // Leaked until it has come, which a probe promises.
            let message: *mut [u8] = Box::leak(vec![0; bytes].into_boxed_slice());
            // SAFETY: nobody else knows the memory.
            let mut request = unsafe { self.comm.irecv(message.cast(), bytes, from, self.tag)? };
            while request.test()?.is_none() {}
            // SAFETY: leaked above, and no longer known to the library.
            drop(unsafe { Box::from_raw(message) });
            self.counted += 1;
        }
        // SAFETY: leaked when the reduction began, which is over.
        drop(unsafe { Box::from_raw(self.sent) });
        Ok(true)
    }

    fn give_up(&mut self) {
        self.comm.leak();
    }
}

/// Frees a duplicate, which nothing more is sent on by this rank, when all that others have sent with `tag` has come. Does not wait.
pub(crate) fn retire(comm: &Arc<Comm>, tag: u32, sent: u64, received: u64) {
    let mpi = comm.mpi();
    // At the end of MPI no other communicator is made.
    if comm.size() == 1 || comm.is_leaked() || mpi.is_ending.load(Ordering::Relaxed) {
        return;
    }
    match comm.begin_all_reduce(&[sent], Reduce::Sum) {
        Ok((request, all)) => {
            let (comm, counted) = (Arc::clone(comm), sent + received);
            let retired = Retired { comm, tag, counted, request, sent: all };
            mpi.retired.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(retired));
        }
        // Not on this thread, or never again.
        Err(_) => comm.leak(),
    }
    mpi.free_retired();
}

impl Mpi {
    /// Frees the duplicates that can be, before MPI ends: it may complain about reductions in flight. Where a rank keeps its own they stay so.
    pub(super) fn free_last_retired(&self) {
        let begin = Instant::now();
        while self.free_retired() && begin.elapsed() < LAST_WAIT {
            std::thread::yield_now();
        }
    }

    /// Frees the duplicates that can be. Returns whether there are others.
    pub(super) fn free_retired(&self) -> bool {
        // Taken out: freeing one may retire another.
        let mut retired = std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner));
        retired.retain_mut(|one| match one.is_over() {
            Ok(over) => !over,
            Err(_) => {
                one.give_up();
                false
            }
        });
        let mut all = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        all.append(&mut retired);
        !all.is_empty()
    }
}
