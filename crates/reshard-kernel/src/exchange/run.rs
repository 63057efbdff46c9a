//! One rank's side of an exchange between threads: packs into slots, unpacks from slots, does its local copies.
//!
//! [`super::slots`] says why no two ranks access the same bytes; the safety arguments are here.

use super::messages::Message;
use super::pack::{Cursor, LocalWork, MessageRange, Packer};
use super::slots::SlotPool;
use crate::copy::Scratch;
use crate::memory::Buffers;
use crate::sync::mailbox::{Failed, SlotHandle};
use crate::sync::{MutexGuard, lock};
use reshard_plan::Result;

/// A running exchange. It borrows the messages and the data exclusively.
pub struct Exchange<'a> {
    slots: &'a SlotPool,
    data: &'a Buffers<'a>,
}

impl<'r> Exchange<'r> {
    /// Begins an exchange. Allocates memory the first time.
    pub fn begin(slots: &'r mut SlotPool, data: &'r mut Buffers<'_>) -> Result<Self> {
        assert!(data.belongs_to(&slots.message_set.plan), "the data was entered for this plan");
        slots.prepare()?;
        Ok(Self { slots, data })
    }
    /// Returns a cursor at the start of a range; at its end, if nothing of it is sent.
    pub fn open(&self, range: &MessageRange) -> Cursor {
        self.packer().open(range)
    }

    fn packer(&self) -> Packer<'_> {
        Packer {
            message_set: &self.slots.message_set,
            data: self.data,
            fragment_bytes: self.slots.slot_bytes,
        }
    }

    /// Returns the handle through which a rank does its work. There is one at a time: a second call waits for the first
    /// handle.
    pub fn handle(&self, rank: usize) -> RankHandle<'_> {
        RankHandle::new(self, rank, lock(&self.slots.scratch[rank]))
    }

    /// See [`Mailbox::event_count`](crate::sync::mailbox::Mailbox::event_count).
    pub fn event_count(&self, rank: usize) -> u64 {
        self.slots.mailbox.event_count(rank)
    }

    /// See [`Mailbox::wait`](crate::sync::mailbox::Mailbox::wait).
    pub fn wait(&self, rank: usize, seen: u64) -> std::result::Result<(), Failed> {
        self.slots.mailbox.wait(rank, seen)
    }

    /// A barrier: returns when every rank has called it as often as this one.
    pub fn barrier(&self, rank: usize) -> std::result::Result<(), Failed> {
        let steps = self.slots.mailbox.arrive(rank);
        self.slots.mailbox.wait_all(steps)
    }

    /// See [`Mailbox::fail`](crate::sync::mailbox::Mailbox::fail).
    pub fn fail(&self, rank: usize) {
        self.slots.mailbox.fail(rank);
    }

    /// See [`Mailbox::failed`](crate::sync::mailbox::Mailbox::failed).
    pub fn failed(&self) -> Option<usize> {
        self.slots.mailbox.failed()
    }
}

/// The only handle through which a rank's destinations are written.
pub struct RankHandle<'a> {
    exchange: &'a Exchange<'a>,
    rank: usize,
    scratch: MutexGuard<'a, Option<Scratch>>,
    local: LocalWork,
}

impl<'a> RankHandle<'a> {
    fn new(exchange: &'a Exchange<'a>, rank: usize, scratch: MutexGuard<'a, Option<Scratch>>) -> Self {
        Self { exchange, rank, scratch, local: LocalWork::default() }
    }

    /// Packs the next fragment of a range and sends it, if a slot is free; `begin` is called before the packing.
    pub fn pack(&mut self, range: &MessageRange, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { exchange, rank, scratch, .. } = self;
        let mailbox = &exchange.slots.mailbox;
        assert_eq!(
            exchange.slots.message_set.messages()[range.message].from,
            *rank,
            "a rank sends its own messages"
        );
        let Some(slot) = mailbox.take_slot(*rank) else { return false };
        begin();
        let scratch = scratch.as_mut().expect("a run has scratch memory");
        // SAFETY: a slot has `slot_bytes` bytes and is ours: the mailbox gave it to us, and it goes back to the mailbox
        // below. The rank's scratch was made for all its routes.
        let bytes =
            unsafe { exchange.packer().pack(range, cursor, exchange.slots.slot(*rank, slot), scratch) };
        mailbox.send(range.message, SlotHandle { slot, bytes: bytes as u64 });
        true
    }

    /// Unpacks the next fragment of a range, if one has arrived; `begin` is called before the unpacking.
    pub fn unpack(&mut self, range: &MessageRange, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { exchange, rank, scratch, .. } = self;
        let mailbox = &exchange.slots.mailbox;
        let Message { from, to, .. } = exchange.slots.message_set.messages()[range.message];
        assert_eq!(to, *rank, "a rank receives its own messages");
        let Some(SlotHandle { slot, bytes }) = mailbox.receive(range.message) else { return false };
        begin();
        let scratch = scratch.as_mut().expect("a run has scratch memory");
        // SAFETY: the mailbox gave the slot to us, and it goes back below; nobody writes there meanwhile. Whoever writes to
        // this rank's parts has this handle, which is borrowed. The rank's scratch was made for all its routes.
        let unpacked =
            unsafe { exchange.packer().unpack(range, cursor, exchange.slots.slot(from, slot), scratch) };
        assert_eq!(unpacked as u64, bytes, "both sides cut fragments the same way");
        mailbox.release_slot(range.message, slot);
        true
    }

    /// Does the next piece of this rank's local work; false if all is done. `begin` is called before a piece is copied.
    pub fn copy_local(&mut self, begin: impl FnOnce()) -> bool {
        let Self { exchange, rank, scratch, local } = self;
        let scratch = scratch.as_mut().expect("a run has scratch memory");
        // SAFETY: whoever writes to this rank's parts has this handle, which is borrowed. Its scratch was made for all its
        // routes.
        unsafe { exchange.packer().copy_local(*rank, local, scratch, begin) }
    }
}
