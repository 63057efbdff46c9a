//! What a rank does with messages, however they are sent: packs fragments, unpacks them, does its local copies.
//!
//! Between threads ([`super::run`]) and between processes ([`super::one_rank`]) messages are cut into fragments and packed in
//! the same way; only the transport of a fragment differs.

use super::messages::{MessageSegment, MessageSet, cut_at_rows};
use crate::copy::{CopyJob, CopyMode, Scratch, copy};
use crate::memory::Buffers;
use crate::route::{CopyRange, Route};
use std::ops::Range;

/// Local work is cut into pieces of about this many bytes, so that a rank can look for fragments in between.
const LOCAL_STEP_BYTES: u64 = 1 << 18;

/// Some positions of a message, of all its arrays, that are sent in one step of the schedule, in one or more fragments.
#[derive(Clone, Debug)]
pub struct MessageRange {
    /// Index of the message.
    pub message: usize,
    /// The positions.
    pub positions: Range<u64>,
}

/// Progress within a range. Sender and receiver have one each, and both advance in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    segment: usize,
    at: u64,
    finished: bool,
}

impl Cursor {
    /// True if no fragment is left.
    pub fn finished(&self) -> bool {
        self.finished
    }
}

/// Progress of a rank's local work: it copies what it sends itself, and scales destinations whose source is not read.
#[derive(Default)]
pub(crate) struct LocalWork {
    kept: usize,
    arrival: usize,
    segment: usize,
    at: u64,
}

/// The messages and the memory of a run.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub message_set: &'a MessageSet,
    pub data: &'a Buffers<'a>,
    /// Bytes of a fragment at most.
    pub fragment_bytes: usize,
}

impl Packer<'_> {
    /// Returns a cursor at the start of a range; at its end, if no array of the message depends on its source.
    pub fn open(&self, range: &MessageRange) -> Cursor {
        let mut cursor = Cursor { segment: 0, at: range.positions.start, finished: false };
        self.skip(range, &mut cursor);
        cursor
    }

    /// Skips arrays of which nothing is sent, because their scaling ignores the source.
    fn skip(&self, range: &MessageRange, cursor: &mut Cursor) {
        let segments = &self.message_set.messages()[range.message].segments;
        while segments.get(cursor.segment).is_some_and(|segment| self.ignores(segment.array)) {
            cursor.segment += 1;
        }
        cursor.finished = cursor.segment >= segments.len() || range.positions.is_empty();
    }

    fn ignores(&self, array: usize) -> bool {
        self.data.scaling(array).is_some_and(|scaling| scaling.ignores_source)
    }

    /// Advances the cursor past the next fragment, and calls `piece(segment, positions, byte offset in the fragment)` for
    /// each of its pieces. Returns the bytes of the fragment.
    fn next_fragment(
        &self,
        range: &MessageRange,
        cursor: &mut Cursor,
        mut piece: impl FnMut(&MessageSegment, Range<u64>, usize),
    ) -> usize {
        let message = &self.message_set.messages()[range.message];
        let mut bytes = 0;
        while !cursor.finished {
            let segment = &message.segments[cursor.segment];
            let last = range.positions.end;
            assert!(cursor.at < last && last <= segment.positions, "a range is part of its message");
            let room = (self.fragment_bytes - bytes) as u64 / segment.elem;
            if room == 0 {
                break;
            }
            let all = last - cursor.at <= room;
            let end = if all { last } else { cut_at_rows(cursor.at, cursor.at + room, segment.row) };
            piece(segment, cursor.at..end, bytes);
            bytes += ((end - cursor.at) * segment.elem) as usize;
            if !all {
                cursor.at = end;
                break;
            }
            (cursor.segment, cursor.at) = (cursor.segment + 1, range.positions.start);
            self.skip(range, cursor);
        }
        bytes
    }

    /// Returns the number of fragments of a range.
    pub fn fragment_count(&self, range: &MessageRange) -> usize {
        let mut cursor = self.open(range);
        let mut fragments = 0;
        while !cursor.finished {
            self.next_fragment(range, &mut cursor, |_, _, _| ());
            fragments += 1;
        }
        fragments
    }

    /// Advances the cursor past the next fragment. Returns its bytes.
    pub fn skip_fragment(&self, range: &MessageRange, cursor: &mut Cursor) -> usize {
        self.next_fragment(range, cursor, |_, _, _| ())
    }

    /// Packs the next fragment of a range. Returns its bytes.
    ///
    /// # Safety
    /// `to` has `fragment_bytes` writable bytes that nobody else accesses. The scratch was made for all routes of the
    /// message's sender.
    pub unsafe fn pack(
        &self,
        range: &MessageRange,
        cursor: &mut Cursor,
        to: *mut u8,
        scratch: &mut Scratch,
    ) -> usize {
        self.next_fragment(range, cursor, |segment, range, offset| {
            let source = self.data.sources(segment.array)[segment.source];
            assert!(!source.is_null(), "the source was entered");
            let base = first_position(to.wrapping_add(offset), &range, segment.elem);
            let mode = CopyMode {
                prefetch_reads: segment.large,
                prefetch_writes: segment.large,
                ..CopyMode::default()
            };
            // SAFETY: the source is this plan's, whole, and only read while the run lasts. The message is dense, so
            // positions `range` take the bytes from `offset` on, which end within `fragment_bytes`: `next_fragment` ensures
            // both. The rest is the caller's contract.
            unsafe { copy(job(&segment.pack, mode, &[source], &[base], range), scratch) };
        })
    }

    /// Unpacks the next fragment of a range. Returns its bytes.
    ///
    /// # Safety
    /// `from` has that fragment, `fragment_bytes` readable bytes that nobody writes to. Nobody else writes to the parts of
    /// the message's receiver. The scratch was made for all its routes.
    pub unsafe fn unpack(
        &self,
        range: &MessageRange,
        cursor: &mut Cursor,
        from: *const u8,
        scratch: &mut Scratch,
    ) -> usize {
        self.next_fragment(range, cursor, |segment, range, offset| {
            let target = self.data.targets(segment.array)[segment.target];
            assert!(!target.is_null(), "the destination was entered");
            let base =
                first_position(from.wrapping_add(offset).cast_mut(), &range, segment.elem).cast_const();
            let scaling = self.data.scaling(segment.array);
            let mode = CopyMode { non_temporal: segment.non_temporal, scaling, ..CopyMode::default() };
            // SAFETY: positions `range` are the bytes from `offset` on; no others are read, as the message is contiguous along the
            // fast axis: it is no transpose. The destination is this plan's, whole, and a part of the receiver. A scaling was made for the array's type. The rest is the caller's contract.
            unsafe { copy(job(&segment.unpack, mode, &[base], &[target], range), scratch) };
        })
    }

    /// Does the next piece of a rank's local work; false if all is done. `begin` is called before a piece is copied.
    ///
    /// # Safety
    /// Nobody else writes to the parts of this rank. The scratch was made for all its routes.
    pub unsafe fn copy_local(
        &self,
        rank: usize,
        local: &mut LocalWork,
        scratch: &mut Scratch,
        begin: impl FnOnce(),
    ) -> bool {
        let MessageSet { local_moves, arrivals, .. } = self.message_set;
        if let Some(kept) = local_moves[rank].get(local.kept) {
            begin();
            let (positions, row) = (kept.route.positions(), kept.route.positions() / kept.route.rows());
            let range = local.next_piece(positions, row, kept.route.row_bytes() / row);
            local.kept += usize::from(local.at == 0);
            let scaling = self.data.scaling(kept.array);
            let mode = CopyMode {
                non_temporal: kept.non_temporal,
                prefetch_reads: kept.non_temporal,
                scaling,
                ..CopyMode::default()
            };
            let from = self.data.sources(kept.array)[kept.source];
            let to = self.data.targets(kept.array)[kept.target];
            assert!(!from.is_null() && !to.is_null(), "both parts were entered");
            // SAFETY: both parts are this plan's, whole, the destination is one of this rank's. A scaling was made for the
            // array's type. The rest is the caller's contract.
            unsafe { copy(job(&kept.route, mode, &[from], &[to], range), scratch) };
            return true;
        }
        while let Some(&message) = arrivals[rank].get(local.arrival) {
            let Some(segment) = self.message_set.messages()[message].segments.get(local.segment) else {
                (local.arrival, local.segment) = (local.arrival + 1, 0);
                continue;
            };
            if !self.ignores(segment.array) {
                local.segment += 1;
                continue;
            }
            begin();
            let range = local.next_piece(segment.positions, segment.row, segment.elem);
            local.segment += usize::from(local.at == 0);
            let mode = CopyMode { scaling: self.data.scaling(segment.array), ..CopyMode::default() };
            let to = self.data.targets(segment.array)[segment.target];
            assert!(!to.is_null(), "the destination was entered");
            // SAFETY: nothing is read, so any source address is valid. The rest as for the local move above.
            unsafe { copy(job(&segment.unpack, mode, &[std::ptr::null()], &[to], range), scratch) };
            return true;
        }
        false
    }
}

/// Returns a job that copies some positions of a route.
fn job<'a>(
    route: &'a Route,
    mode: CopyMode<'a>,
    from: &'a [*const u8],
    to: &'a [*mut u8],
    range: Range<u64>,
) -> CopyJob<'a> {
    CopyJob { route, mode, from, to, range: CopyRange::Positions(range) }
}

impl LocalWork {
    /// Returns the next of `positions` positions. `at` is 0 again when none is left.
    fn next_piece(&mut self, positions: u64, row: u64, elem: u64) -> Range<u64> {
        let begin = self.at;
        let some = (LOCAL_STEP_BYTES / elem).max(1);
        let all = positions - begin <= some;
        let end = if all { positions } else { cut_at_rows(begin, begin + some, row) };
        self.at = if all { 0 } else { end };
        begin..end
    }
}

/// Returns the address of position 0 if the first position of `range` is at `place`. It may lie outside of all memory:
/// kernels add offsets that lead back to `place` or beyond, with wrapping arithmetic as here.
fn first_position(place: *mut u8, range: &Range<u64>, elem: u64) -> *mut u8 {
    place.wrapping_sub((range.start * elem) as usize)
}
