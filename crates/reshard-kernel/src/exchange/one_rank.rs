//! One rank's side of messages between processes: letters are packed into the caller's memory and unpacked from it.
//!
//! The twin of [`super::slots`], where all ranks are threads. Here a rank sees its own parts alone, and how a letter gets
//! to the other side is somebody else's business.

use super::messages::{Message, MessageSet};
use super::pack::{Cursor, Fragment, LocalWork, Packer};
use crate::copy::Scratch;
use crate::memory::Buffers;
use reshard_plan::Plan;
use std::sync::Arc;

/// What one rank packs, unpacks and keeps.
pub struct RankPacker {
    plan: Arc<Plan>,
    cargo: MessageSet,
    /// This rank's number among the cargo's, if it is one of them.
    number: Option<usize>,
    worker: Scratch,
    letter: usize,
    alone: LocalWork,
}

impl RankPacker {
    /// The share of `rank`, in letters of at most `letter` bytes; longer if an element is. Each group of arrays shares its
    /// messages.
    pub fn new(plan: Arc<Plan>, groups: &[Vec<usize>], rank: u64, letter: usize) -> Self {
        let cargo = MessageSet::of_rank(Arc::clone(&plan), groups, rank);
        let number = cargo.ranks().binary_search(&rank).ok();
        let worker = match number {
            Some(number) => Scratch::new(cargo.level, cargo.routes_of(number)),
            None => Scratch::new(cargo.level, std::iter::empty()),
        };
        let made = Self { plan, cargo, number, worker, letter: 0, alone: LocalWork::default() };
        made.with_letters(letter)
    }

    /// The same with letters of another length.
    #[must_use]
    pub fn with_letters(self, letter: usize) -> Self {
        Self { letter: letter.max(self.longest_elem() as usize), ..self }
    }

    /// The messages of the plan that it sends and receives.
    pub fn cargo(&self) -> &MessageSet {
        &self.cargo
    }

    /// Bytes of the longest letter.
    pub fn letter(&self) -> usize {
        self.letter
    }

    /// Bytes of the longest element that travels: a letter has room for it.
    pub fn longest_elem(&self) -> u64 {
        self.cargo.messages().iter().map(Message::longest_elem).max().unwrap_or(0)
    }

    /// Bytes of memory the kernels need.
    pub fn scratch_bytes(&self) -> u64 {
        self.number.map_or(0, |number| self.cargo.worker_bytes(number))
    }

    /// The ranks a parcel goes from and to, and which group of arrays it belongs to.
    pub fn ends(&self, parcel: &Fragment) -> (u64, u64, usize) {
        let Message { from, to, group, .. } = self.cargo.messages()[parcel.message];
        (self.cargo.ranks()[from], self.cargo.ranks()[to], group)
    }

    /// Bytes of a parcel.
    pub fn bytes(&self, parcel: &Fragment) -> u64 {
        self.cargo.messages()[parcel.message].bytes(&parcel.positions)
    }

    /// Begins a run: nothing has been done on its own yet.
    ///
    /// # Panics
    /// If the data is another plan's.
    pub fn begin(&mut self, data: &Buffers<'_>) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        self.alone = LocalWork::default();
    }

    /// The beginning of a parcel; its end, if nothing of it travels.
    ///
    /// # Panics
    /// If the data is another plan's, or there is no such message.
    pub fn open(&self, data: &Buffers<'_>, parcel: &Fragment) -> Cursor {
        self.hands(data).open(parcel)
    }

    /// In how many letters a parcel travels.
    ///
    /// # Panics
    /// If the data is another plan's, or the parcel is no part of a message.
    pub fn letters(&self, data: &Buffers<'_>, parcel: &Fragment) -> usize {
        self.hands(data).letters(parcel)
    }

    /// Packs the next letter of one of this rank's own parcels: as much as there is room for. Returns its bytes.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, the parcel is another rank's or no part of its message,
    /// or there is no room for an element.
    pub fn pack(
        &mut self,
        data: &Buffers<'_>,
        parcel: &Fragment,
        cursor: &mut Cursor,
        to: &mut [u8],
    ) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        assert_eq!(
            Some(self.cargo.messages()[parcel.message].from),
            self.number,
            "a rank sends its own messages"
        );
        self.check_room(parcel, to.len());
        let hands = Packer { cargo: &self.cargo, data, chunk: to.len() };
        // SAFETY: there is room, borrowed alone. The worker was made for all routes of this rank, the message's sender.
        unsafe { hands.pack(parcel, cursor, to.as_mut_ptr(), &mut self.worker) }
    }

    /// Unpacks the next letter of a parcel this rank receives, which was packed into as many bytes, or whole. Returns its
    /// bytes, which may be fewer than were given.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, the parcel is another rank's or no part of its message,
    /// or the letter is shorter than an element.
    pub fn unpack(
        &mut self,
        data: &mut Buffers<'_>,
        parcel: &Fragment,
        cursor: &mut Cursor,
        from: &[u8],
    ) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        assert_eq!(
            Some(self.cargo.messages()[parcel.message].to),
            self.number,
            "a rank receives its own messages"
        );
        self.check_room(parcel, from.len());
        let hands = Packer { cargo: &self.cargo, data, chunk: from.len() };
        // SAFETY: the letter is borrowed, and so is the data, mutably: nobody else writes there. The worker was made for all
        // routes of this rank, the message's receiver.
        unsafe { hands.unpack(parcel, cursor, from.as_ptr(), &mut self.worker) }
    }

    fn check_room(&self, parcel: &Fragment, bytes: usize) {
        let needed = self.cargo.messages()[parcel.message].longest_elem();
        assert!(bytes as u64 >= needed, "a letter of {bytes} bytes has no room for an element of {needed}");
    }

    /// Does the next piece of what this rank does on its own; false if all is done.
    ///
    /// # Panics
    /// If the data is another plan's, or this rank's parts were not entered.
    pub fn work_alone(&mut self, data: &mut Buffers<'_>) -> bool {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Some(number) = self.number else { return false };
        let hands = Packer { cargo: &self.cargo, data, chunk: self.letter };
        // SAFETY: the data is borrowed mutably. The worker was made for all routes of this rank.
        unsafe { hands.work_alone(number, &mut self.alone, &mut self.worker, || ()) }
    }

    fn hands<'a>(&'a self, data: &'a Buffers<'a>) -> Packer<'a> {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        Packer { cargo: &self.cargo, data, chunk: self.letter }
    }
}
