//! Synchronisation between threads. All of it goes through the names in this file, so that loom can try every interleaving.
//!
//! The names are the standard library's. In tests built with `--cfg loom` they are loom's, which runs a test once for
//! each order in which its threads can reach their locks and atomics, and finds a deadlock or a stale read in any of
//! them. Nothing here uses `std::sync::Barrier`: a thread that panicked never arrives there, and the others would wait
//! forever.

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

/// Locks a mutex, also if it is poisoned. The data our locks guard is consistent at every point where a panic could start,
/// and engines learn of panics in other ways, so poisoning adds nothing.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the value of a mutex without locking, through an exclusive reference.
pub fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable. Wake-ups may be spurious: check the condition again.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
pub(crate) mod timeout {
    //! A timeout for tests: a lost wake-up makes threads wait forever, and a test must fail instead.

    use std::sync::mpsc;
    use std::time::Duration;

    /// Runs `test` on a thread of its own; fails if it has not ended after a time far beyond any scheduling delay.
    pub(crate) fn within_minutes(test: impl FnOnce() + Send + 'static) {
        let (ended, end) = mpsc::channel();
        let runner = std::thread::spawn(move || {
            test();
            ended.send(()).ok();
        });
        match end.recv_timeout(Duration::from_secs(1200)) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits forever"),
            _ => runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }
}

#[cfg(all(test, loom))]
pub(crate) mod models {
    //! How thoroughly loom tries a test: in every interleaving if that takes seconds. If it takes longer, in all
    //! interleavings with a few preemptions (a thread is interrupted although it could continue). Blocking is no preemption,
    //! and nearly all bugs need no more than two or three.

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
