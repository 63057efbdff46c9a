//! Double buffering between two ranks of a node: an SPSC queue of two fixed buffers, one filled while the other is emptied.
//!
//! Two monotonic counters say who may touch a buffer: the sender's *filled* and the receiver's *emptied*. Beside the first
//! stands for each buffer the fingerprint of the call in which it was filled.

use super::super::word::{OrderingSite, SharedMemory, Word};
use std::sync::atomic::Ordering;

/// Buffers of a pair of ranks: one is filled while the other is emptied.
pub const BUFFERS_PER_PAIR: usize = 2;

/// Bytes of the counters before the buffers: each counter on a cache line of its own, to avoid false sharing.
pub const HEADER_BYTES: usize = 2 * LINE;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Offset in bytes of the counter of filled buffers.
const FILLED: usize = 0;
/// Offset in bytes of the call fingerprints, one for each buffer.
const CALLS: usize = 8;
/// Offset in bytes of the counter of emptied buffers.
const EMPTIED: usize = LINE;

/// One side of a double buffer.
#[derive(Clone, Copy)]
pub struct DoubleBuffer {
    /// The rank in whose segment counters and buffers lie.
    pub sender: usize,
    /// Offset of the counters in bytes.
    pub at: usize,
    /// Buffers this side has filled, or emptied, in all runs.
    count: u64,
}

impl DoubleBuffer {
    pub fn new(sender: usize, at: usize) -> Self {
        Self { sender, at, count: 0 }
    }

    /// Index of the buffer that this side fills or empties next.
    pub fn number(&self) -> usize {
        (self.count % BUFFERS_PER_PAIR as u64) as usize
    }

    /// For the receiver: the call fingerprint of the next buffer, if it is filled.
    pub fn filled<M: SharedMemory>(&self, memory: &M) -> Option<u64> {
        let filled =
            memory.word(self.sender, self.at + FILLED).load(OrderingSite::DoubleBufferSeesFilled.order());
        (filled > self.count).then(|| self.call(memory).load(Ordering::Relaxed))
    }

    /// For the receiver: publishes that it has emptied the buffer.
    pub fn pop<M: SharedMemory>(&mut self, memory: &M) {
        self.count += 1;
        let emptied = memory.word(self.sender, self.at + EMPTIED);
        emptied.store(self.count, OrderingSite::DoubleBufferEmpties.order());
    }

    /// For the sender: true if there is a buffer to fill.
    pub fn is_free<M: SharedMemory>(&self, memory: &M) -> bool {
        let emptied =
            memory.word(self.sender, self.at + EMPTIED).load(OrderingSite::DoubleBufferSeesEmptied.order());
        self.count < emptied + BUFFERS_PER_PAIR as u64
    }

    /// For the sender: publishes that it has filled the buffer, in a call with this fingerprint.
    pub fn push<M: SharedMemory>(&mut self, memory: &M, call: u64) {
        self.call(memory).store(call, Ordering::Relaxed);
        self.count += 1;
        let filled = memory.word(self.sender, self.at + FILLED);
        filled.store(self.count, OrderingSite::DoubleBufferFills.order());
    }

    fn call<'m, M: SharedMemory>(&self, memory: &'m M) -> &'m M::Word {
        memory.word(self.sender, self.at + CALLS + self.number() * size_of::<u64>())
    }
}
