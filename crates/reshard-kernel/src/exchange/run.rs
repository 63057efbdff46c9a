//! Where a rank does its share of a run between threads: packs into slots, unpacks from slots, copies what it keeps.
//!
//! [`super::slots`] says why no two ranks touch the same bytes; the proofs are here.

use super::messages::Message;
use super::pack::{Cursor, Fragment, LocalWork, Packer};
use super::slots::SlotPool;
use crate::copy::Scratch;
use crate::memory::Buffers;
use crate::sync::mailbox::{Failed, SlotHandle};
use crate::sync::{MutexGuard, lock};
use reshard_plan::Result;

/// A run. Nobody else reaches the messages or the data while it lasts.
pub struct Exchange<'a> {
    freight: &'a SlotPool,
    data: &'a Buffers<'a>,
}

impl<'r> Exchange<'r> {
    /// Begins a run. Takes memory the first time.
    pub fn begin(freight: &'r mut SlotPool, data: &'r mut Buffers<'_>) -> Result<Self> {
        assert!(data.belongs_to(&freight.cargo.plan), "the data was entered for this plan");
        freight.prepare()?;
        Ok(Self { freight, data })
    }
    /// The beginning of a parcel: its end, if nothing of it travels.
    pub fn open(&self, parcel: &Fragment) -> Cursor {
        self.hands().open(parcel)
    }

    fn hands(&self) -> Packer<'_> {
        Packer { cargo: &self.freight.cargo, data: self.data, chunk: self.freight.chunk }
    }

    /// The place from which a rank does its share. There is one at a time: the next has to wait for it.
    pub fn station(&self, rank: usize) -> RankHandle<'_> {
        RankHandle::new(self, rank, lock(&self.freight.workers[rank]))
    }

    /// See [`Mailbox::news`](crate::sync::mailbox::Mailbox::news).
    pub fn news(&self, rank: usize) -> u64 {
        self.freight.post.news(rank)
    }

    /// See [`Mailbox::wait`](crate::sync::mailbox::Mailbox::wait).
    pub fn wait(&self, rank: usize, seen: u64) -> std::result::Result<(), Failed> {
        self.freight.post.wait(rank, seen)
    }

    /// A barrier: returns when every rank has come here as often as this one.
    pub fn meet(&self, rank: usize) -> std::result::Result<(), Failed> {
        let steps = self.freight.post.arrive(rank);
        self.freight.post.wait_all(steps)
    }

    /// See [`Mailbox::fail`](crate::sync::mailbox::Mailbox::fail).
    pub fn fail(&self, rank: usize) {
        self.freight.post.fail(rank);
    }

    /// See [`Mailbox::failed`](crate::sync::mailbox::Mailbox::failed).
    pub fn failed(&self) -> Option<usize> {
        self.freight.post.failed()
    }
}

/// The only place from which a rank's destinations are written.
pub struct RankHandle<'a> {
    round: &'a Exchange<'a>,
    rank: usize,
    worker: MutexGuard<'a, Option<Scratch>>,
    alone: LocalWork,
}

impl<'a> RankHandle<'a> {
    fn new(round: &'a Exchange<'a>, rank: usize, worker: MutexGuard<'a, Option<Scratch>>) -> Self {
        Self { round, rank, worker, alone: LocalWork::default() }
    }

    /// Packs the next letter of a parcel and sends it, if a slot is free; `begin` is called once that is known.
    pub fn pack(&mut self, parcel: &Fragment, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, .. } = self;
        let post = &round.freight.post;
        assert_eq!(
            round.freight.cargo.messages()[parcel.message].from,
            *rank,
            "a rank sends its own messages"
        );
        let Some(slot) = post.take_slot(*rank) else { return false };
        begin();
        let worker = worker.as_mut().expect("a run has workers");
        // SAFETY: a slot has `chunk` bytes and is ours: the post gave it out, and it goes back to the post below. The rank's
        // worker was made for all its routes.
        let bytes = unsafe { round.hands().pack(parcel, cursor, round.freight.slot(*rank, slot), worker) };
        post.send(parcel.message, SlotHandle { slot, bytes: bytes as u64 });
        true
    }

    /// Unpacks the next letter of a parcel, if one has arrived; `begin` is called once that is known.
    pub fn unpack(&mut self, parcel: &Fragment, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, .. } = self;
        let post = &round.freight.post;
        let Message { from, to, .. } = round.freight.cargo.messages()[parcel.message];
        assert_eq!(to, *rank, "a rank receives its own messages");
        let Some(SlotHandle { slot, bytes }) = post.receive(parcel.message) else { return false };
        begin();
        let worker = worker.as_mut().expect("a run has workers");
        // SAFETY: the post has given the slot to us, and it goes back below; nobody writes there meanwhile. Whoever writes to
        // this rank's parts has this station, which is borrowed. The rank's worker was made for all its routes.
        let unpacked =
            unsafe { round.hands().unpack(parcel, cursor, round.freight.slot(from, slot), worker) };
        assert_eq!(unpacked as u64, bytes, "letters are cut alike on both sides");
        post.give_back(parcel.message, slot);
        true
    }

    /// Does the next piece of what this rank does on its own; false if all is done. `begin` is called before there is more.
    pub fn work_alone(&mut self, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, alone } = self;
        let worker = worker.as_mut().expect("a run has workers");
        // SAFETY: whoever writes to this rank's parts has this station, which is borrowed. Its worker was made for all its
        // routes.
        unsafe { round.hands().work_alone(*rank, alone, worker, begin) }
    }
}
