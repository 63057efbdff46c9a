//! A plain copy with a crew of threads: what every redistribution is measured against.

use reshard_kernel::plain_copy;
use reshard_kernel::pool::ThreadPool;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::Mutex;

/// Copies bytes with as many threads as an engine has, each its contiguous share.
pub struct PlainCopy {
    crew: ThreadPool,
}

impl PlainCopy {
    /// With so many threads, the caller's included.
    pub fn new(threads: usize) -> Result<Self> {
        let crew = ThreadPool::new(threads.max(1)).map_err(|error| {
            Error::new(ErrorKind::Memory, format!("{threads} threads could not be started: {error}"))
        })?;
        Ok(Self { crew })
    }

    /// Copies, by `memcpy` or with streaming stores.
    pub fn run(&mut self, from: &[u8], to: &mut [u8], streams: bool) -> Result<()> {
        if from.len() != to.len() {
            let message = format!("{} bytes were to be copied into {}; give as many", from.len(), to.len());
            return Err(Error::new(ErrorKind::Mismatch, message));
        }
        let share = from.len().div_ceil(self.crew.workers()).next_multiple_of(64).max(64);
        let shares: Vec<_> =
            to.chunks_mut(share).zip(from.chunks(share)).map(|pair| Mutex::new(Some(pair))).collect();
        let job = |worker: usize| {
            let taken = shares.get(worker).and_then(|share| share.lock().ok()?.take());
            if let Some((to, from)) = taken {
                plain_copy(to, from, streams);
            }
        };
        self.crew.run(&job).map_err(|panicked| Error::new(ErrorKind::Failed, panicked.to_string()))
    }
}
