//! Whose turn it is: boxes that stay where they are, filled by one rank and emptied by another, in turn.
//!
//! Two numbers that only grow say who may touch a box: the sender has *filled* so many, the receiver has *emptied* so many.
//! Beside the first stands for each box the number of the call it was filled in.

use super::super::word::{OrderingSite, SharedMemory, Word};
use std::sync::atomic::Ordering;

/// Boxes of a sender and a receiver: one is filled while the other is emptied.
pub const BOXES: usize = 2;

/// Bytes of the numbers: each on a cache line of its own.
pub const HEAD: usize = 2 * LINE;

const LINE: usize = 64;

/// Where they are.
const FILLED: usize = 0;
const CALLS: usize = 8;
const EMPTIED: usize = LINE;

/// One side of it.
#[derive(Clone, Copy)]
pub struct DoubleBuffer {
    /// In whose memory the numbers lie, and where.
    pub sender: usize,
    pub at: usize,
    /// Boxes this side has filled, or emptied, in all runs.
    count: u64,
}

impl DoubleBuffer {
    pub fn new(sender: usize, at: usize) -> Self {
        Self { sender, at, count: 0 }
    }

    /// The box that is filled or emptied next.
    pub fn number(&self) -> usize {
        (self.count % BOXES as u64) as usize
    }

    /// For the receiver: whether there is a box to empty, and the call it was filled in.
    pub fn filled<M: SharedMemory>(&self, memory: &M) -> Option<u64> {
        let filled = memory.word(self.sender, self.at + FILLED).load(OrderingSite::TurnSeesFilled.order());
        (filled > self.count).then(|| self.call(memory).load(Ordering::Relaxed))
    }

    /// For the receiver: it has emptied the box.
    pub fn give_back<M: SharedMemory>(&mut self, memory: &M) {
        self.count += 1;
        memory.word(self.sender, self.at + EMPTIED).store(self.count, OrderingSite::TurnEmpties.order());
    }

    /// For the sender: whether there is a box to fill.
    pub fn is_free<M: SharedMemory>(&self, memory: &M) -> bool {
        let emptied = memory.word(self.sender, self.at + EMPTIED).load(OrderingSite::TurnSeesEmptied.order());
        self.count < emptied + BOXES as u64
    }

    /// For the sender: it has filled the box.
    pub fn pass<M: SharedMemory>(&mut self, memory: &M, call: u64) {
        self.call(memory).store(call, Ordering::Relaxed);
        self.count += 1;
        memory.word(self.sender, self.at + FILLED).store(self.count, OrderingSite::TurnFills.order());
    }

    fn call<'m, M: SharedMemory>(&self, memory: &'m M) -> &'m M::Word {
        memory.word(self.sender, self.at + CALLS + self.number() * size_of::<u64>())
    }
}
