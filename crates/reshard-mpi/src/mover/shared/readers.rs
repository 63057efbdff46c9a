//! Sources that are lent: their owner's run has ended, and others still read them.

use super::super::word::SharedMemory;
use super::super::{Backoff, named};
use super::progress::{Milestone, ProgressBoard};
use crate::shm::NodeMemory;
use reshard_plan::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The ranks that read a rank's source, and how far they are.
pub struct Readers<M = NodeMemory> {
    board: Arc<ProgressBoard<M>>,
    /// This rank is not among them.
    ranks: Vec<usize>,
    limit: Option<Duration>,
    oversubscribed: bool,
    /// The run this rank has begun last, for itself.
    run: AtomicU64,
    /// The last run in which nobody writes to this rank's destinations any more.
    ended: AtomicU64,
}

impl<M: SharedMemory> Readers<M> {
    pub fn new(
        board: Arc<ProgressBoard<M>>,
        ranks: Vec<usize>,
        limit: Option<Duration>,
        oversubscribed: bool,
    ) -> Self {
        Self { board, ranks, limit, oversubscribed, run: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// The run this rank has begun last, perhaps not yet for the others to see.
    pub fn run(&self) -> u64 {
        self.run.load(Ordering::Relaxed)
    }

    pub fn begin(&self, run: u64) {
        self.run.store(run, Ordering::Relaxed);
    }

    /// Those that are not through with a run.
    pub fn behind(&self, run: u64) -> impl Iterator<Item = usize> {
        self.board.behind(&self.ranks, Milestone::Received, run)
    }

    /// They are through with a run.
    pub fn are_through(&self, run: u64) -> bool {
        self.behind(run).next().is_none()
    }

    /// Waits until they are through with a run; not longer than the engine waits for anything. If it is in vain, the source is
    /// taken back: who reads it later than this finds that out.
    pub fn wait(&self, run: u64) -> Result<()> {
        let waited = self.wait_for(run);
        if waited.is_err() {
            self.board.take_back(run);
        }
        waited
    }

    fn wait_for(&self, run: u64) -> Result<()> {
        let mut backoff = Backoff::lent(self.limit, self.oversubscribed);
        loop {
            let mut late = self.behind(run).peekable();
            if late.peek().is_none() {
                return Ok(());
            }
            backoff.wait(|| named(late))?;
        }
    }

    /// A run is over for this rank: nobody writes to its destinations any more. Of a run that failed with a rank stuck in the
    /// middle of copying to them this is never said.
    pub fn end(&self, run: u64) {
        self.ended.store(run, Ordering::Relaxed);
    }

    /// Whether a run is over.
    pub fn has_ended(&self, run: u64) -> bool {
        self.ended.load(Ordering::Relaxed) >= run
    }
}
