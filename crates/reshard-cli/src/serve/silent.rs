//! The connections that have not sent a request yet, the oldest first: each holds a place, and others may need it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Connections by number, in the order in which they came.
#[derive(Default)]
pub struct Silent {
    numbers: AtomicU64,
    waiting: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Silent {
    /// The number of the next connection.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a connection that has just come. The runtime has one thread, so its task has not run yet.
    pub fn add(&self, number: u64, task: AbortHandle) {
        self.lock().insert(number, task);
    }

    /// Removes a connection that has sent a request or has ended.
    pub fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Ends the connection that has been silent for the longest time, if there is one.
    pub fn end_oldest(&self) {
        if let Some((_, task)) = self.lock().pop_first() {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
