//! SPSC ring buffers of buffer handles: how a staging buffer gets from one rank of a node to another, and which one.
//!
//! A ring leads from a sender to a receiver. It has two entries, used in turn, and each entry holds the handle of a
//! staging buffer: any one that is large enough, in the segment of any rank. The sender may exchange the buffer of a free
//! entry and pack into another one; the receiver may exchange the buffer that it has emptied and return another one. So
//! each rank keeps a few [`WarmBuffers`]: it packs into the one it emptied last, whose cache lines its own processor
//! holds, and returns one that it has not touched for long. If every buffer stayed in its ring, a sender would have to
//! fetch each cache line from the processor that read it last.

use super::super::word::{OrderingSite, SharedMemory, Word};
use crate::shm::NodeMemory;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Bytes of a cache line: counters of different ranks are this far apart to avoid false sharing.
pub const LINE: usize = 64;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A staging buffer: the rank in whose segment it lies, its offset there, and its length, both in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferHandle {
    pub rank: usize,
    pub at: usize,
    pub bytes: usize,
}

impl BufferHandle {
    /// Words of a handle in an entry.
    const WORDS: usize = 3;

    /// The address of the buffer in this process.
    pub fn first(&self, memory: &NodeMemory) -> *mut u8 {
        memory.place(self.rank, self.at, self.bytes)
    }
}

/// The most entries of a ring, and those of a pair: one buffer is packed while the other is assembled.
pub const BUFFERS_PER_PAIR: usize = 2;

/// Offset in bytes of the word in which a receiver publishes how far it has emptied the buffers of all its rings.
const EMPTIED: usize = 0;

/// A ring from one rank to another. Its header, in the sender's segment, has a monotonic counter of the buffers filled,
/// and the entries: the handle of a buffer, and the fingerprint of the call in which it was filled.
#[derive(Clone, Copy)]
pub struct BufferRing {
    /// The rank in whose segment the header lies.
    pub sender: usize,
    /// Offset of the header in bytes.
    pub at: usize,
    /// The peer: for the sender the receiver, for the receiver the sender.
    pub peer: usize,
    /// Bytes of the smallest buffer that is large enough.
    pub min_bytes: usize,
    /// The number of entries.
    pub entries: usize,
}

/// Words of an entry: a handle and a call fingerprint.
const ENTRY_WORDS: usize = BufferHandle::WORDS + 1;
/// Index of the call fingerprint in an entry.
const CALL: usize = BufferHandle::WORDS;

impl BufferRing {
    /// Bytes of the header of a ring with this many entries.
    pub fn header_bytes(entries: usize) -> usize {
        (WORD + entries * ENTRY_WORDS * WORD).next_multiple_of(LINE)
    }

    /// Puts the first buffer into an entry, before any run.
    pub fn init_entry<M: SharedMemory>(&self, memory: &M, entry: u64, buffer: BufferHandle) {
        self.put(memory, entry, buffer);
    }

    /// The entry that is used after `used` uses of the ring.
    fn entry(&self, used: u64) -> usize {
        (used % self.entries as u64) as usize
    }

    /// The monotonic counter of buffers filled, in all runs.
    fn filled<'m, M: SharedMemory>(&self, memory: &'m M) -> &'m M::Word {
        memory.word(self.sender, self.at)
    }

    /// The buffer in the entry used after `used` uses. Relaxed: the counters say whose entry it is, and order these
    /// accesses.
    fn get<M: SharedMemory>(&self, memory: &M, used: u64) -> BufferHandle {
        let word = |number| self.word(memory, used, number).load(Ordering::Relaxed) as usize;
        BufferHandle { rank: word(0), at: word(1), bytes: word(2) }
    }

    /// Puts a buffer into the entry used after `used` uses.
    fn put<M: SharedMemory>(&self, memory: &M, used: u64, buffer: BufferHandle) {
        for (number, word) in [buffer.rank, buffer.at, buffer.bytes].into_iter().enumerate() {
            self.word(memory, used, number).store(word as u64, Ordering::Relaxed);
        }
    }

    fn word<'m, M: SharedMemory>(&self, memory: &'m M, used: u64, number: usize) -> &'m M::Word {
        let entry = self.at + WORD + self.entry(used) * ENTRY_WORDS * WORD;
        memory.word(self.sender, entry + number * WORD)
    }
}

/// The sender's side of a ring.
pub struct Producer {
    pub ring: BufferRing,
    /// Buffers filled, in all runs.
    filled: u64,
    /// For each entry, the count of the receiver from which on it is free.
    free_at: [u64; BUFFERS_PER_PAIR],
}

impl Producer {
    pub fn new(ring: BufferRing) -> Self {
        Self { ring, filled: 0, free_at: [0; BUFFERS_PER_PAIR] }
    }

    /// True if there is a buffer to fill: the receiver has emptied it.
    pub fn is_free<M: SharedMemory>(&self, memory: &M) -> bool {
        let emptied = memory.word(self.ring.peer, EMPTIED).load(OrderingSite::RingSeesEmptied.order());
        emptied >= self.free_at[self.ring.entry(self.filled)]
    }

    /// Chooses the buffer to fill and puts it into the entry. The entry must be free.
    pub fn choose<M: SharedMemory>(&self, memory: &M, warm: &mut WarmBuffers) -> BufferHandle {
        let buffer = warm.take_for_packing(self.ring.get(memory, self.filled), self.ring.min_bytes);
        self.ring.put(memory, self.filled, buffer);
        buffer
    }

    /// Publishes the filled buffer, with the fingerprint of its call. Its entry is free again when the receiver's count
    /// reaches `free_at`.
    pub fn push<M: SharedMemory>(&mut self, memory: &M, call: u64, free_at: u64) {
        self.ring.word(memory, self.filled, CALL).store(call, Ordering::Relaxed);
        self.free_at[self.ring.entry(self.filled)] = free_at;
        self.filled += 1;
        self.ring.filled(memory).store(self.filled, OrderingSite::RingFills.order());
    }
}

/// The receiver's side of a ring.
pub struct Consumer {
    pub ring: BufferRing,
    /// Buffers emptied, in all runs.
    emptied: u64,
}

impl Consumer {
    pub fn new(ring: BufferRing) -> Self {
        Self { ring, emptied: 0 }
    }

    /// True if there is a filled buffer.
    pub fn is_filled<M: SharedMemory>(&self, memory: &M) -> bool {
        self.ring.filled(memory).load(OrderingSite::RingSeesFilled.order()) > self.emptied
    }

    /// The filled buffer.
    pub fn peek<M: SharedMemory>(&self, memory: &M) -> BufferHandle {
        self.ring.get(memory, self.emptied)
    }

    /// The fingerprint of the call in which the buffer was filled.
    pub fn call<M: SharedMemory>(&self, memory: &M) -> u64 {
        self.ring.word(memory, self.emptied, CALL).load(Ordering::Relaxed)
    }

    /// Returns the emptied buffer, or a colder one in its place. [`publish_emptied`] makes the sender see that.
    pub fn pop<M: SharedMemory>(&mut self, memory: &M, warm: &mut WarmBuffers) {
        self.ring.put(memory, self.emptied, warm.swap_emptied(self.peek(memory), self.ring.min_bytes));
        self.emptied += 1;
    }
}

/// Publishes to all senders how far this rank has emptied their buffers.
pub fn publish_emptied<M: SharedMemory>(memory: &M, count: u64) {
    memory.word(memory.rank(), EMPTIED).store(count, OrderingSite::RingEmpties.order());
}

/// The spare buffers of a rank, always equally many, ordered by last use: the one it emptied last is the last.
pub struct WarmBuffers {
    buffers: VecDeque<BufferHandle>,
}

impl WarmBuffers {
    pub fn new(buffers: impl ExactSizeIterator<Item = BufferHandle>) -> Self {
        // Exchanges keep the number: no allocation later.
        Self { buffers: buffers.collect() }
    }

    /// Exchanges a buffer that came back for the warmest one of at least `min_bytes`, to pack into: the one emptied last.
    pub fn take_for_packing(&mut self, returned: BufferHandle, min_bytes: usize) -> BufferHandle {
        let last = self.buffers.iter().rposition(|buffer| buffer.bytes >= min_bytes);
        let Some(last) = last.and_then(|last| self.buffers.remove(last)) else { return returned };
        self.buffers.push_front(returned);
        last
    }

    /// Exchanges an emptied buffer for the coldest one of at least `min_bytes`, to return: the one not touched for longest.
    pub fn swap_emptied(&mut self, emptied: BufferHandle, min_bytes: usize) -> BufferHandle {
        let first = self.buffers.iter().position(|buffer| buffer.bytes >= min_bytes);
        let Some(first) = first.and_then(|first| self.buffers.remove(first)) else { return emptied };
        self.buffers.push_back(emptied);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(at: usize, bytes: usize) -> BufferHandle {
        BufferHandle { rank: 0, at, bytes }
    }

    #[test]
    fn the_buffer_emptied_last_is_filled_next() {
        let mut warm = WarmBuffers::new([buffer(0, 8), buffer(1, 8)].into_iter());
        assert_eq!(warm.swap_emptied(buffer(2, 8), 8), buffer(0, 8), "not touched for longest");
        assert_eq!(warm.swap_emptied(buffer(3, 8), 8), buffer(1, 8));
        assert_eq!(warm.take_for_packing(buffer(4, 8), 8), buffer(3, 8), "emptied last");
        assert_eq!(warm.take_for_packing(buffer(5, 8), 8), buffer(2, 8));
        assert_eq!(warm.swap_emptied(buffer(6, 8), 8), buffer(5, 8), "came back, and was not touched");
    }

    #[test]
    fn no_buffer_is_too_small_for_its_ring() {
        let mut warm = WarmBuffers::new([buffer(0, 8), buffer(1, 16), buffer(2, 8)].into_iter());
        assert_eq!(warm.take_for_packing(buffer(3, 32), 16), buffer(1, 16));
        assert_eq!(warm.take_for_packing(buffer(4, 64), 64), buffer(4, 64), "no spare one is large enough");
        assert_eq!(warm.swap_emptied(buffer(5, 16), 16), buffer(3, 32));
        assert_eq!(warm.swap_emptied(buffer(6, 64), 64), buffer(6, 64));
    }

    #[test]
    fn without_spare_buffers_every_buffer_stays_in_its_ring() {
        let mut warm = WarmBuffers::new([].into_iter());
        assert_eq!(warm.take_for_packing(buffer(0, 8), 8), buffer(0, 8));
        assert_eq!(warm.swap_emptied(buffer(1, 8), 8), buffer(1, 8));
    }
}
