//! The slot pool: the memory in which fragments are in flight between threads.
//!
//! The compiler cannot see that ranks which share all this memory never access the same bytes. It follows from two rules,
//! both enforced by the types here. Destinations are written only through a [`RankHandle`](super::RankHandle), of which a
//! rank has one at a time, and only to that rank's own parts. A slot belongs to whoever the [`Mailbox`] gave it to, and a
//! handle that takes a slot passes it on before it does anything else. The rest (who sends what when, and the progress of
//! each range) is decided elsewhere; a mistake there moves wrong bytes, but never accesses bytes that belong to somebody
//! else.

use super::messages::{Message, MessageSet};
use crate::copy::Scratch;
use crate::sync::mailbox::Mailbox;
use crate::sync::{Mutex, lock};
use reshard_plan::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The messages of a plan, with slots, mailbox and scratch to send them any number of times.
pub struct SlotPool {
    pub(crate) message_set: MessageSet,
    pub(crate) mailbox: Mailbox,
    slots: usize,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// For each rank that sends anything, its index among the senders.
    sender_index: Vec<Option<usize>>,
    senders: usize,
    arena: Option<Arena>,
    pub(crate) scratch: Vec<Mutex<Option<Scratch>>>,
}

impl SlotPool {
    /// Makes a pool with `slots` slots of `slot_bytes` bytes for each sender. A slot must have room for any one element.
    pub fn new(message_set: MessageSet, slots: usize, slot_bytes: usize) -> Self {
        let room = |message: &Message| message.max_elem_bytes() <= slot_bytes as u64;
        assert!(slots > 0 && message_set.messages().iter().all(room), "a slot has room for an element");
        let endpoints: Vec<(usize, usize)> = message_set.messages().iter().map(|m| (m.from, m.to)).collect();
        let ranks = message_set.ranks().len();
        let mut sender_index = vec![None; ranks];
        let mut senders = 0;
        for &(from, _) in &endpoints {
            if sender_index[from].is_none() {
                sender_index[from] = Some(senders);
                senders += 1;
            }
        }
        let scratch = (0..ranks).map(|_| Mutex::new(None)).collect();
        let mailbox = Mailbox::new(ranks, slots, &endpoints);
        Self { message_set, mailbox, slots, slot_bytes, sender_index, senders, arena: None, scratch }
    }

    /// Returns the messages.
    pub fn message_set(&self) -> &MessageSet {
        &self.message_set
    }

    /// Returns the bytes allocated at the first run, and kept.
    pub fn scratch_bytes(&self) -> u64 {
        let scratch: u64 = (0..self.scratch.len()).map(|rank| self.message_set.scratch_bytes(rank)).sum();
        self.arena_bytes() as u64 + scratch
    }

    fn arena_bytes(&self) -> usize {
        self.senders * self.slots * self.slot_bytes
    }

    /// Prepares a run: resets the mailbox. Allocates memory the first time.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if self.arena.is_none() {
            self.arena = Some(Arena::new(self.arena_bytes())?);
        }
        for (rank, scratch) in self.scratch.iter().enumerate() {
            lock(scratch).get_or_insert_with(|| {
                Scratch::new(self.message_set.level, self.message_set.routes_of(rank))
            });
        }
        self.mailbox.reset();
        Ok(())
    }

    /// Returns the address of a sender's slot.
    pub(crate) fn slot(&self, sender: usize, slot: u32) -> *mut u8 {
        let (index, arena) = self.sender_index[sender].zip(self.arena.as_ref()).expect("senders have slots");
        arena.slot(index * self.slots + slot as usize, self.slot_bytes)
    }
}

/// The memory of all slots.
struct Arena {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, like a boxed slice.
unsafe impl Send for Arena {}
// SAFETY: it only gives out addresses; whoever uses one proves that it may.
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

    /// Returns the address of a slot of `slot_bytes` bytes.
    fn slot(&self, number: usize, slot_bytes: usize) -> *mut u8 {
        let at = number * slot_bytes;
        assert!(at + slot_bytes <= self.layout.size(), "slot {number} of {slot_bytes} bytes");
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
