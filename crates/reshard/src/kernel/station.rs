//! Where a rank does its share of a run between threads: packs into slots, unpacks from slots, copies what it keeps.
//!
//! [`super::freight`] says why no two ranks touch the same bytes; the proofs are here.

use super::Worker;
use super::cargo::Message;
use super::freight::Round;
use super::hands::{Alone, Cursor, Parcel};
use crate::sync::MutexGuard;
use crate::sync::post::Letter;

/// The only place from which a rank's destinations are written.
pub struct Station<'a> {
    round: &'a Round<'a>,
    rank: usize,
    worker: MutexGuard<'a, Option<Worker>>,
    alone: Alone,
}

impl<'a> Station<'a> {
    pub(super) fn new(round: &'a Round<'a>, rank: usize, worker: MutexGuard<'a, Option<Worker>>) -> Self {
        Self { round, rank, worker, alone: Alone::default() }
    }

    /// Packs the next letter of a parcel and sends it, if a slot is free; `begin` is called once that is known.
    pub fn pack(&mut self, parcel: &Parcel, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
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
        let bytes = unsafe { round.hands().pack(parcel, cursor, round.slot(*rank, slot), worker) };
        post.send(parcel.message, Letter { slot, bytes: bytes as u64 });
        true
    }

    /// Unpacks the next letter of a parcel, if one has arrived; `begin` is called once that is known.
    pub fn unpack(&mut self, parcel: &Parcel, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, .. } = self;
        let post = &round.freight.post;
        let Message { from, to, .. } = round.freight.cargo.messages()[parcel.message];
        assert_eq!(to, *rank, "a rank receives its own messages");
        let Some(Letter { slot, bytes }) = post.receive(parcel.message) else { return false };
        begin();
        let worker = worker.as_mut().expect("a run has workers");
        // SAFETY: the post has given the slot to us, and it goes back below; nobody writes there meanwhile. Whoever writes to
        // this rank's parts has this station, which is borrowed. The rank's worker was made for all its routes.
        let unpacked = unsafe { round.hands().unpack(parcel, cursor, round.slot(from, slot), worker) };
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
