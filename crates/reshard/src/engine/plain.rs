//! A plain copy with a thread pool: the baseline that every redistribution is measured against.

use reshard_kernel::plain_copy;
use reshard_kernel::pool::ThreadPool;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::Mutex;

/// Copies contiguous bytes with a thread pool; each thread copies one contiguous part.
pub struct PlainCopy {
    pool: ThreadPool,
}

impl PlainCopy {
    /// Makes a pool of `threads` threads, including the caller's.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = ThreadPool::new(threads.max(1)).map_err(|error| {
            Error::new(ErrorKind::Memory, format!("{threads} threads could not be started: {error}"))
        })?;
        Ok(Self { pool })
    }

    /// Copies all bytes, with `memcpy` or with non-temporal stores.
    pub fn run(&mut self, from: &[u8], to: &mut [u8], non_temporal: bool) -> Result<()> {
        if from.len() != to.len() {
            let message = format!("{} bytes were to be copied into {}; give as many", from.len(), to.len());
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let part = from.len().div_ceil(self.pool.workers()).next_multiple_of(64).max(64);
        let parts: Vec<_> =
            to.chunks_mut(part).zip(from.chunks(part)).map(|pair| Mutex::new(Some(pair))).collect();
        let job = |worker: usize| {
            let taken = parts.get(worker).and_then(|part| part.lock().ok()?.take());
            if let Some((to, from)) = taken {
                plain_copy(to, from, non_temporal);
            }
        };
        self.pool.run(&job).map_err(|panicked| Error::new(ErrorKind::Failed, panicked.to_string()))
    }
}
