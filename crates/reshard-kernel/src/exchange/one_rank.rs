//! One rank's side of messages between processes: fragments are packed into the caller's memory and unpacked from it.
//!
//! The counterpart of [`super::slots`], where all ranks are threads. Here a rank sees only its own parts, and an engine
//! carries the fragments to the other side.

use super::messages::{Message, MessageSet};
use super::pack::{Cursor, LocalWork, MessageRange, Packer};
use crate::copy::Scratch;
use crate::memory::Buffers;
use crate::simd::Level;
use reshard_plan::Plan;
use std::sync::Arc;

/// Packs, unpacks and copies everything of one rank.
pub struct RankPacker {
    plan: Arc<Plan>,
    message_set: MessageSet,
    /// This rank's index in the message set, if it belongs to the plan.
    number: Option<usize>,
    scratch: Scratch,
    fragment_bytes: usize,
    local: LocalWork,
}

impl RankPacker {
    /// Prepares the messages of `rank`, in fragments of at most `fragment_bytes` bytes, or one element if that is larger.
    /// The arrays of a group share their messages. Fragments are the same at every instruction set level.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn new(
        plan: Arc<Plan>,
        groups: &[Vec<usize>],
        rank: u64,
        fragment_bytes: usize,
        level: Level,
    ) -> Self {
        let message_set = MessageSet::of_rank(Arc::clone(&plan), groups, rank, level);
        let number = message_set.ranks().binary_search(&rank).ok();
        let scratch = match number {
            Some(number) => Scratch::new(message_set.level, message_set.routes_of(number)),
            None => Scratch::new(message_set.level, std::iter::empty()),
        };
        let made =
            Self { plan, message_set, number, scratch, fragment_bytes: 0, local: LocalWork::default() };
        made.with_fragment_bytes(fragment_bytes)
    }

    /// Returns the packer with fragments of at most `fragment_bytes` bytes, or one element if that is larger.
    #[must_use]
    pub fn with_fragment_bytes(self, fragment_bytes: usize) -> Self {
        Self { fragment_bytes: fragment_bytes.max(self.max_elem_bytes() as usize), ..self }
    }

    /// Returns the messages that this rank sends and receives.
    pub fn message_set(&self) -> &MessageSet {
        &self.message_set
    }

    /// Returns the bytes of a fragment at most.
    pub fn fragment_bytes(&self) -> usize {
        self.fragment_bytes
    }

    /// Returns the bytes of the largest element that is sent: a fragment has room for it.
    pub fn max_elem_bytes(&self) -> u64 {
        self.message_set.messages().iter().map(Message::max_elem_bytes).max().unwrap_or(0)
    }

    /// Returns the bytes of scratch memory.
    pub fn scratch_bytes(&self) -> u64 {
        self.number.map_or(0, |number| self.message_set.scratch_bytes(number))
    }

    /// Returns the sender and the receiver of a range, and its group of arrays.
    pub fn ends(&self, range: &MessageRange) -> (u64, u64, usize) {
        let Message { from, to, group, .. } = self.message_set.messages()[range.message];
        (self.message_set.ranks()[from], self.message_set.ranks()[to], group)
    }

    /// Returns the bytes of a range.
    pub fn bytes(&self, range: &MessageRange) -> u64 {
        self.message_set.messages()[range.message].bytes(&range.positions)
    }

    /// Begins a run: no local work has been done yet.
    ///
    /// # Panics
    /// If the data was entered for another plan.
    pub fn begin(&mut self, data: &Buffers<'_>) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        self.local = LocalWork::default();
    }

    /// Returns a cursor at the start of a range; at its end, if nothing of it is sent.
    ///
    /// # Panics
    /// If the data was entered for another plan, or there is no such message.
    pub fn open(&self, data: &Buffers<'_>, range: &MessageRange) -> Cursor {
        self.packer(data).open(range)
    }

    /// Returns the number of fragments of a range.
    ///
    /// # Panics
    /// If the data was entered for another plan, or the range is no part of a message.
    pub fn fragment_count(&self, data: &Buffers<'_>, range: &MessageRange) -> usize {
        self.packer(data).fragment_count(range)
    }

    /// Packs the next fragment of a range this rank sends: as much as fits into `to`. Returns its bytes.
    ///
    /// # Panics
    /// If the data was entered for another plan, this rank's part was not entered, the range is another rank's or no part of
    /// its message, or `to` has no room for an element.
    pub fn pack(
        &mut self,
        data: &Buffers<'_>,
        range: &MessageRange,
        cursor: &mut Cursor,
        to: &mut [u8],
    ) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        assert_eq!(
            Some(self.message_set.messages()[range.message].from),
            self.number,
            "a rank sends its own messages"
        );
        self.check_room(range, to.len());
        let packer = Packer { message_set: &self.message_set, data, fragment_bytes: to.len() };
        // SAFETY: there is room, borrowed exclusively. The scratch was made for all routes of this rank, the message's
        // sender.
        unsafe { packer.pack(range, cursor, to.as_mut_ptr(), &mut self.scratch) }
    }

    /// Unpacks the next fragment of a range this rank receives. `from` has the length it was packed with, or holds the whole
    /// range. Returns the bytes of the fragment, which may be fewer than were given.
    ///
    /// # Panics
    /// If the data was entered for another plan, this rank's part was not entered, the range is another rank's or no part of
    /// its message, or the fragment is shorter than an element.
    pub fn unpack(
        &mut self,
        data: &mut Buffers<'_>,
        range: &MessageRange,
        cursor: &mut Cursor,
        from: &[u8],
    ) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        assert_eq!(
            Some(self.message_set.messages()[range.message].to),
            self.number,
            "a rank receives its own messages"
        );
        self.check_room(range, from.len());
        let packer = Packer { message_set: &self.message_set, data, fragment_bytes: from.len() };
        // SAFETY: the fragment is borrowed, and the data is borrowed mutably: nobody else writes there. The scratch was made
        // for all routes of this rank, the message's receiver.
        unsafe { packer.unpack(range, cursor, from.as_ptr(), &mut self.scratch) }
    }

    /// Advances past the next fragment of a range this rank receives, if it has `bytes` bytes, and writes nothing. Returns the bytes that
    /// [`unpack`](Self::unpack) would take of it.
    ///
    /// # Panics
    /// If the data was entered for another plan, the range is no part of its message, or the fragment is shorter than an element.
    pub fn skip(&self, data: &Buffers<'_>, range: &MessageRange, cursor: &mut Cursor, bytes: usize) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        self.check_room(range, bytes);
        let packer = Packer { message_set: &self.message_set, data, fragment_bytes: bytes };
        packer.skip_fragment(range, cursor)
    }

    fn check_room(&self, range: &MessageRange, bytes: usize) {
        let needed = self.message_set.messages()[range.message].max_elem_bytes();
        assert!(bytes as u64 >= needed, "a fragment of {bytes} bytes has no room for an element of {needed}");
    }

    /// Does the next piece of this rank's local work; false if all is done.
    ///
    /// # Panics
    /// If the data was entered for another plan, or this rank's parts were not entered.
    pub fn copy_local(&mut self, data: &mut Buffers<'_>) -> bool {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Some(number) = self.number else { return false };
        let packer = Packer { message_set: &self.message_set, data, fragment_bytes: self.fragment_bytes };
        // SAFETY: the data is borrowed mutably. The scratch was made for all routes of this rank.
        unsafe { packer.copy_local(number, &mut self.local, &mut self.scratch, || ()) }
    }

    fn packer<'a>(&'a self, data: &'a Buffers<'a>) -> Packer<'a> {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        Packer { message_set: &self.message_set, data, fragment_bytes: self.fragment_bytes }
    }
}
