//! Messages on their way: the memory they travel in, and how they are cut into letters.
//!
//! The compiler cannot see that ranks which share all this memory never touch the same of it. It follows from two rules,
//! both kept by the types here. Destinations are written through a [`RankHandle`](super::RankHandle) alone, of which a rank has one at a time, and
//! only to that rank's own parts. A slot belongs to whoever the [`Mailbox`] gave it to, and a station that takes one hands it
//! on before it does anything else. The rest (who sends what when, how far it has got) is decided elsewhere; a mistake there
//! moves wrong bytes, and never ones that are somebody else's.

use super::messages::{Message, MessageSet};
use crate::copy::Scratch;
use crate::sync::mailbox::Mailbox;
use crate::sync::{Mutex, lock};
use reshard_plan::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Messages, and all that is needed to send them again and again.
pub struct SlotPool {
    pub(crate) cargo: MessageSet,
    pub(crate) post: Mailbox,
    slots: usize,
    /// Bytes of a slot.
    pub(crate) chunk: usize,
    /// For each rank, where among the senders its slots lie, if it sends anything.
    berths: Vec<Option<usize>>,
    senders: usize,
    arena: Option<Arena>,
    pub(crate) workers: Vec<Mutex<Option<Scratch>>>,
}

impl SlotPool {
    /// With so many slots of so many bytes for each rank that sends. A slot must have room for any one element.
    pub fn new(cargo: MessageSet, slots: usize, chunk: usize) -> Self {
        let room = |message: &Message| message.longest_elem() <= chunk as u64;
        assert!(slots > 0 && cargo.messages().iter().all(room), "a slot has room for an element");
        let ends: Vec<(usize, usize)> = cargo.messages().iter().map(|m| (m.from, m.to)).collect();
        let ranks = cargo.ranks().len();
        let mut berths = vec![None; ranks];
        let mut senders = 0;
        for &(from, _) in &ends {
            if berths[from].is_none() {
                berths[from] = Some(senders);
                senders += 1;
            }
        }
        let workers = (0..ranks).map(|_| Mutex::new(None)).collect();
        let post = Mailbox::new(ranks, slots, &ends);
        Self { cargo, post, slots, chunk, berths, senders, arena: None, workers }
    }

    /// What travels.
    pub fn cargo(&self) -> &MessageSet {
        &self.cargo
    }

    /// Bytes taken at the first run, and kept.
    pub fn scratch_bytes(&self) -> u64 {
        let workers: u64 = (0..self.workers.len()).map(|rank| self.cargo.worker_bytes(rank)).sum();
        self.arena_bytes() as u64 + workers
    }

    fn arena_bytes(&self) -> usize {
        self.senders * self.slots * self.chunk
    }

    /// Ready for a run: everything is as if nothing had ever been sent. Takes memory the first time.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if self.arena.is_none() {
            self.arena = Some(Arena::new(self.arena_bytes())?);
        }
        for (rank, worker) in self.workers.iter().enumerate() {
            lock(worker).get_or_insert_with(|| Scratch::new(self.cargo.level, self.cargo.routes_of(rank)));
        }
        self.post.reset();
        Ok(())
    }

    /// Where a sender's slot lies.
    pub(crate) fn slot(&self, sender: usize, slot: u32) -> *mut u8 {
        let (berth, arena) = self.berths[sender].zip(self.arena.as_ref()).expect("senders have slots");
        arena.slot(berth * self.slots + slot as usize, self.chunk)
    }
}

/// Memory for all slots.
struct Arena {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, like a boxed slice.
unsafe impl Send for Arena {}
// SAFETY: it only gives out addresses; who may use them is for those who do to prove.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(bytes: usize) -> Result<Self> {
        let refused =
            || Error::new(ErrorKind::Memory, format!("{bytes} bytes for messages do not fit in memory"));
        let layout = Layout::from_size_align(bytes, 64).map_err(|_| refused())?;
        if bytes == 0 {
            return Ok(Self { first: NonNull::dangling(), layout });
        }
        // SAFETY: the layout has at least one byte.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self { first, layout })
    }

    /// Where `chunk` bytes begin.
    fn slot(&self, number: usize, chunk: usize) -> *mut u8 {
        let at = number * chunk;
        assert!(at + chunk <= self.layout.size(), "slot {number} of {chunk} bytes");
        self.first.as_ptr().wrapping_add(at)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.first.as_ptr(), self.layout) }
        }
    }
}
