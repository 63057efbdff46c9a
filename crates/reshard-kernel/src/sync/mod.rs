//! Threads that wait for each other, all of them through the names in this file, so that every way in which they can
//! overtake one another can be tried.
//!
//! The names are the standard library's. In tests built with `--cfg loom` they are loom's, which runs a test once for
//! each order in which its threads can reach their locks and atomics, and sees a deadlock or a stale read in any of
//! them. Nothing here uses `std::sync::Barrier`: a thread that panicked never arrives there, and the others wait for
//! ever.

pub mod mailbox;
mod monitor;

#[cfg(not(all(test, loom)))]
pub use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(all(test, loom))]
pub use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;

/// Locks, also after a panic elsewhere. What our locks guard is whole at every point where a panic could start, so a
/// poisoned lock tells nothing that the engines do not learn by other ways.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a lock guards, for the only one who can reach it.
pub fn unshared<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until woken (or for no reason: ask again why you slept).
pub fn sleep<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
pub(crate) mod patience {
    //! A lost wake-up makes threads wait for ever. A test must fail instead.

    use std::sync::mpsc;
    use std::time::Duration;

    /// Runs `test` on a thread of its own; fails if it has not ended after a time far beyond any scheduling delay.
    pub(crate) fn within_a_minute(test: impl FnOnce() + Send + 'static) {
        let (ended, end) = mpsc::channel();
        let runner = std::thread::spawn(move || {
            test();
            ended.send(()).ok();
        });
        match end.recv_timeout(Duration::from_secs(60)) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("somebody waits for ever"),
            _ => runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }
}

#[cfg(all(test, loom))]
pub(crate) mod models {
    //! How thoroughly loom tries a test: in every interleaving where those take seconds. Where they take longer, in all
    //! those with a few preemptions: how often a thread is interrupted where it could have gone on. Waiting does not
    //! count, and nearly all mistakes need no more than two or three.

    use loom::model::Builder;

    pub(crate) fn every_interleaving(test: impl Fn() + Sync + Send + 'static) {
        Builder::new().check(test);
    }

    pub(crate) fn with_preemptions(at_most: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(at_most);
        builder.check(test);
    }
}
