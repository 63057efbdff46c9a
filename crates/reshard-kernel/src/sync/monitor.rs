//! A value that threads change and wait for: a lock and a bell in one, so that nobody can forget to ring.

use super::{Condvar, Mutex, lock, sleep, thread, unshared};

/// How often to let others run before going to sleep. They may bring what is waited for, and then nobody sleeps and
/// nobody has to be woken, which costs more. Four of them made exchanges of 16 and 100 ranks on two processors twice as
/// fast; more gained nothing. Loom runs the others anyway.
const YIELDS: usize = if cfg!(all(test, loom)) { 0 } else { 4 };

/// A value under a lock, with those who wait for it.
pub struct Monitor<T> {
    inner: Mutex<Inner<T>>,
    bell: Condvar,
}

struct Inner<T> {
    value: T,
    /// How many threads sleep by the bell: who rings for nobody pays for a system call.
    sleepers: usize,
}

impl<T> Monitor<T> {
    pub fn new(value: T) -> Self {
        Self { inner: Mutex::new(Inner { value, sleepers: 0 }), bell: Condvar::new() }
    }

    /// The value for a moment. Changes that somebody waits for are not made here.
    pub fn hold<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        use_it(&mut lock(&self.inner).value)
    }

    /// Changes the value, and wakes all who wait for it if the change says so.
    pub fn change(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut inner = lock(&self.inner);
        let ring = change(&mut inner.value) && inner.sleepers > 0;
        // Who wakes up wants this lock.
        drop(inner);
        if ring {
            self.bell.notify_all();
        }
    }

    /// What `found` finds in the value; sleeps while it finds nothing.
    pub fn wait_until<R>(&self, found: impl Fn(&T) -> Option<R>) -> R {
        let mut inner = lock(&self.inner);
        let mut yields = YIELDS;
        loop {
            if let Some(answer) = found(&inner.value) {
                return answer;
            }
            if yields > 0 {
                yields -= 1;
                drop(inner);
                thread::yield_now();
                inner = lock(&self.inner);
            } else {
                inner.sleepers += 1;
                inner = sleep(&self.bell, inner);
                inner.sleepers -= 1;
            }
        }
    }

    /// The value, for the only one who can reach it.
    pub fn get_mut(&mut self) -> &mut T {
        &mut unshared(&mut self.inner).value
    }
}
