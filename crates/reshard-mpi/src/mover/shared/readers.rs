//! The ranks that still read a source after its owner's run has ended.
//!
//! A run ends for a rank when it has received everything; its own source may still be read then. Whoever wants to write to
//! the source waits for its readers first. If they do not finish in time the owner revokes the source.

use super::super::word::SharedMemory;
use super::super::{Backoff, rank_list};
use super::progress::{Milestone, ProgressBoard};
use crate::shm::NodeMemory;
use reshard_plan::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The ranks that read this rank's source, and which run each has received.
pub struct Readers<M = NodeMemory> {
    board: Arc<ProgressBoard<M>>,
    /// The reading ranks, without this one.
    ranks: Vec<usize>,
    /// The longest wait for a reader.
    limit: Option<Duration>,
    oversubscribed: bool,
    /// The last run this rank has begun, perhaps not yet published.
    run: AtomicU64,
    /// The last run whose destinations on this rank nobody writes to any more.
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

    /// The last run this rank has begun, perhaps not yet published.
    pub fn run(&self) -> u64 {
        self.run.load(Ordering::Relaxed)
    }

    /// Records that this rank begins `run`.
    pub fn begin(&self, run: u64) {
        self.run.store(run, Ordering::Relaxed);
    }

    /// The readers that have not yet received everything of `run`.
    pub fn behind(&self, run: u64) -> impl Iterator<Item = usize> {
        self.board.behind(&self.ranks, Milestone::Received, run)
    }

    /// True if all readers have received everything of `run`.
    pub fn are_done(&self, run: u64) -> bool {
        self.behind(run).next().is_none()
    }

    /// Waits until all readers have received everything of `run`, at most as long as the engine waits for anything. On
    /// timeout the source is revoked: a rank that reads it later gets an error.
    pub fn wait(&self, run: u64) -> Result<()> {
        let waited = self.poll_until_done(run);
        if waited.is_err() {
            self.board.revoke(run);
        }
        waited
    }

    fn poll_until_done(&self, run: u64) -> Result<()> {
        let mut backoff = Backoff::for_readers(self.limit, self.oversubscribed);
        loop {
            let mut late = self.behind(run).peekable();
            if late.peek().is_none() {
                return Ok(());
            }
            backoff.wait(|| rank_list(late))?;
        }
    }

    /// Records that `run` has ended on this rank: nobody writes to its destinations any more. Never called for a run that
    /// failed while another rank was stuck copying to them.
    pub fn end(&self, run: u64) {
        self.ended.store(run, Ordering::Relaxed);
    }

    /// True if `run` has ended on this rank.
    pub fn has_ended(&self, run: u64) -> bool {
        self.ended.load(Ordering::Relaxed) >= run
    }
}
