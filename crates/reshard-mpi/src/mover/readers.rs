//! Sources that are lent: their owner's run has ended, and others still read them.

use super::board::{Board, Note};
use super::word::Memory;
use super::{Patience, named};
use crate::shared::Neighbours;
use reshard_plan::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The ranks that read a rank's source, and how far they are.
pub struct Readers<M = Neighbours> {
    board: Arc<Board<M>>,
    /// This rank is not among them.
    ranks: Vec<usize>,
    limit: Option<Duration>,
    crowded: bool,
    /// The run this rank has begun last, for itself.
    run: AtomicU64,
    /// Somebody may write to this rank's destination for ever.
    lost: AtomicBool,
    /// What stands for the arrays that move in the next run.
    arrays: AtomicU64,
}

impl<M: Memory> Readers<M> {
    pub fn new(board: Arc<Board<M>>, ranks: Vec<usize>, limit: Option<Duration>, crowded: bool) -> Self {
        let (run, lost, arrays) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        Self { board, ranks, limit, crowded, run, lost, arrays }
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
        self.board.behind(&self.ranks, Note::Received, run)
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
        let mut patience = Patience::lent(self.limit, self.crowded);
        loop {
            let mut late = self.behind(run).peekable();
            if late.peek().is_none() {
                return Ok(());
            }
            patience.wait(|| named(late))?;
        }
    }

    /// A rank that copies to this one's destination did not come back.
    pub fn lose_destination(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether that was so in the last run.
    pub fn take_lost_destination(&self) -> bool {
        self.lost.swap(false, Ordering::Relaxed)
    }

    /// The next run moves these arrays.
    pub fn set_arrays(&self, number: u64) {
        self.arrays.store(number, Ordering::Relaxed);
    }

    pub fn arrays(&self) -> u64 {
        self.arrays.load(Ordering::Relaxed)
    }
}
