//! Sources that are lent: their owner's run has ended, and others still read them.

use super::board::{Board, Note};
use super::{Patience, named};
use reshard_plan::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// The ranks that read a rank's source, and how far they are.
pub struct Readers {
    board: Arc<Board>,
    /// This rank is not among them.
    ranks: Vec<usize>,
    limit: Option<Duration>,
    crowded: bool,
    /// Somebody may write to this rank's destination for ever.
    lost: AtomicBool,
    /// What stands for the arrays that move in the next run.
    arrays: AtomicU64,
}

impl Readers {
    pub fn new(board: Arc<Board>, ranks: Vec<usize>, limit: Option<Duration>, crowded: bool) -> Self {
        Self { board, ranks, limit, crowded, lost: AtomicBool::new(false), arrays: AtomicU64::new(0) }
    }

    /// The run this rank has begun last.
    pub fn run(&self) -> u64 {
        self.board.read(self.board.rank(), Note::Begun)
    }

    /// They are through with a run.
    pub fn are_through(&self, run: u64) -> bool {
        self.board.behind(&self.ranks, Note::Received, run).next().is_none()
    }

    /// Waits until they are through with a run; not longer than the engine waits for anything. If it is in vain, the source is
    /// taken back: who reads it later than this finds that out.
    pub fn wait(&self, run: u64) -> Result<()> {
        let waited = self.wait_for(run);
        if waited.is_err() {
            self.board.write(Note::TakenBack, run);
            // Before anything is written to the source.
            fence(Ordering::SeqCst);
        }
        waited
    }

    fn wait_for(&self, run: u64) -> Result<()> {
        let mut patience = Patience::lent(self.limit, self.crowded);
        loop {
            let mut late = self.board.behind(&self.ranks, Note::Received, run).peekable();
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
