//! A monitor: a value with its mutex and condition variable in one type, so that no change can forget to notify.

use super::{Condvar, Mutex, get_mut, lock, thread, wait};

/// Number of times a waiter yields before it blocks. Another thread may make the condition true meanwhile, and then nobody
/// blocks and nobody has to be woken, which costs more. Four yields made exchanges of 16 and 100 ranks on two cores twice as
/// fast; more gained nothing. Loom schedules the other threads anyway.
const YIELDS: usize = if cfg!(all(test, loom)) { 0 } else { 4 };

/// A value under a mutex that threads can wait for.
pub struct Monitor<T> {
    inner: Mutex<Inner<T>>,
    condvar: Condvar,
}

struct Inner<T> {
    value: T,
    /// Number of blocked threads: if it is 0, a change saves the system call of a notification.
    sleepers: usize,
}

impl<T> Monitor<T> {
    pub fn new(value: T) -> Self {
        Self { inner: Mutex::new(Inner { value, sleepers: 0 }), condvar: Condvar::new() }
    }

    /// Calls `use_value` with the value, under the lock. Must not make changes that somebody waits for.
    pub fn with<R>(&self, use_value: impl FnOnce(&mut T) -> R) -> R {
        use_value(&mut lock(&self.inner).value)
    }

    /// Changes the value, and wakes all waiters if `change` returns true.
    pub fn update(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut inner = lock(&self.inner);
        let notify = change(&mut inner.value) && inner.sleepers > 0;
        // Unlock first: the woken threads take this lock.
        drop(inner);
        if notify {
            self.condvar.notify_all();
        }
    }

    /// Blocks until `found` returns a result for the value, and returns that result.
    pub fn wait_until<R>(&self, found: impl Fn(&T) -> Option<R>) -> R {
        let mut inner = lock(&self.inner);
        let mut yields = YIELDS;
        loop {
            if let Some(result) = found(&inner.value) {
                return result;
            }
            if yields > 0 {
                yields -= 1;
                drop(inner);
                thread::yield_now();
                inner = lock(&self.inner);
            } else {
                inner.sleepers += 1;
                inner = wait(&self.condvar, inner);
                inner.sleepers -= 1;
            }
        }
    }

    /// Returns the value without locking, through an exclusive reference.
    pub fn get_mut(&mut self) -> &mut T {
        &mut get_mut(&mut self.inner).value
    }
}
