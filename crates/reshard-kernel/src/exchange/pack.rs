//! What a rank does with messages, wherever they travel: packs letters, unpacks them, copies what it keeps.
//!
//! Between threads ([`super::run`]) and between processes ([`super::one_rank`]) messages are cut into letters and filled
//! alike; only how a letter gets to the other side differs.

use super::messages::{MessageSegment, MessageSet, cut_at_rows};
use crate::copy::{CopyJob, CopyMode, Scratch, copy};
use crate::memory::Buffers;
use crate::route::{CopyRange, Route};
use std::ops::Range;

/// What a rank copies on its own is cut into pieces of about so many bytes, to look for letters in between.
const PIECE: u64 = 1 << 18;

/// Some positions of a message, of all its arrays, that travel in one step.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The number of the message.
    pub message: usize,
    /// Which positions.
    pub positions: Range<u64>,
}

/// How far a parcel has got. Sender and receiver have one each, and both move alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    section: usize,
    at: u64,
    finished: bool,
}

impl Cursor {
    /// Nothing is left.
    pub fn finished(&self) -> bool {
        self.finished
    }
}

/// What a rank does on its own, and how far it has got: copies what it keeps, and scales what would have travelled.
#[derive(Default)]
pub(crate) struct LocalWork {
    kept: usize,
    arrival: usize,
    section: usize,
    at: u64,
}

/// The messages and the memory of a run.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub cargo: &'a MessageSet,
    pub data: &'a Buffers<'a>,
    /// Bytes of the longest letter.
    pub chunk: usize,
}

impl Packer<'_> {
    /// The beginning of a parcel; its end, if all its arrays are scaled to something that does not depend on the source.
    pub fn open(&self, parcel: &Fragment) -> Cursor {
        let mut cursor = Cursor { section: 0, at: parcel.positions.start, finished: false };
        self.skip(parcel, &mut cursor);
        cursor
    }

    /// Past arrays of which nothing travels.
    fn skip(&self, parcel: &Fragment, cursor: &mut Cursor) {
        let sections = &self.cargo.messages()[parcel.message].sections;
        while sections.get(cursor.section).is_some_and(|section| self.ignores(section.array)) {
            cursor.section += 1;
        }
        cursor.finished = cursor.section >= sections.len() || parcel.positions.is_empty();
    }

    fn ignores(&self, array: usize) -> bool {
        self.data.scaling(array).is_some_and(|scaling| scaling.ignores_source)
    }

    /// Moves the cursor past what the next letter carries, as pieces: a section, its positions, and the byte of the letter at
    /// which they begin. Returns the bytes of the letter.
    fn letter(
        &self,
        parcel: &Fragment,
        cursor: &mut Cursor,
        mut piece: impl FnMut(&MessageSegment, Range<u64>, usize),
    ) -> usize {
        let message = &self.cargo.messages()[parcel.message];
        let mut bytes = 0;
        while !cursor.finished {
            let section = &message.sections[cursor.section];
            let last = parcel.positions.end;
            assert!(cursor.at < last && last <= section.positions, "a parcel is part of its message");
            let room = (self.chunk - bytes) as u64 / section.elem;
            if room == 0 {
                break;
            }
            let all = last - cursor.at <= room;
            let end = if all { last } else { cut_at_rows(cursor.at, cursor.at + room, section.row) };
            piece(section, cursor.at..end, bytes);
            bytes += ((end - cursor.at) * section.elem) as usize;
            if !all {
                cursor.at = end;
                break;
            }
            (cursor.section, cursor.at) = (cursor.section + 1, parcel.positions.start);
            self.skip(parcel, cursor);
        }
        bytes
    }

    /// In how many letters a parcel travels.
    pub fn letters(&self, parcel: &Fragment) -> usize {
        let mut cursor = self.open(parcel);
        let mut letters = 0;
        while !cursor.finished {
            self.letter(parcel, &mut cursor, |_, _, _| ());
            letters += 1;
        }
        letters
    }

    /// Packs the next letter of a parcel. Returns its bytes.
    ///
    /// # Safety
    /// At `to` there are `chunk` bytes to be written, which nobody else touches. The worker was made for all routes of the
    /// message's sender.
    pub unsafe fn pack(
        &self,
        parcel: &Fragment,
        cursor: &mut Cursor,
        to: *mut u8,
        worker: &mut Scratch,
    ) -> usize {
        self.letter(parcel, cursor, |section, range, offset| {
            let source = self.data.sources(section.array)[section.source];
            assert!(!source.is_null(), "the source was entered");
            let base = first_position(to.wrapping_add(offset), &range, section.elem);
            let manner = CopyMode { fetch: section.large, claim: section.large, ..CopyMode::default() };
            // SAFETY: the source is this plan's, whole, and only read while the run lasts. The box is dense, so positions
            // `range` take the bytes from `offset` on, which end within `chunk`: `letter` sees to both. The rest is passed on.
            unsafe { copy(errand(&section.pack, manner, &[source], &[base], range), worker) };
        })
    }

    /// Unpacks the next letter of a parcel. Returns its bytes.
    ///
    /// # Safety
    /// At `from` there is that letter, `chunk` readable bytes that nobody writes to. Nobody else writes to the parts of the
    /// message's receiver. The worker was made for all its routes.
    pub unsafe fn unpack(
        &self,
        parcel: &Fragment,
        cursor: &mut Cursor,
        from: *const u8,
        worker: &mut Scratch,
    ) -> usize {
        self.letter(parcel, cursor, |section, range, offset| {
            let target = self.data.targets(section.array)[section.target];
            assert!(!target.is_null(), "the target was entered");
            let base =
                first_position(from.wrapping_add(offset).cast_mut(), &range, section.elem).cast_const();
            let scaling = self.data.scaling(section.array);
            let manner = CopyMode { stream: section.stream, scaling, ..CopyMode::default() };
            // SAFETY: positions `range` are the bytes from `offset` on. The target is this plan's, whole, and a part of the
            // receiver. A scaling was made for the array's type. The rest is passed on.
            unsafe { copy(errand(&section.unpack, manner, &[base], &[target], range), worker) };
        })
    }

    /// Does the next piece of what a rank does on its own; false if all is done. `begin` is called before there is more.
    ///
    /// # Safety
    /// Nobody else writes to the parts of this rank. The worker was made for all its routes.
    pub unsafe fn work_alone(
        &self,
        rank: usize,
        alone: &mut LocalWork,
        worker: &mut Scratch,
        begin: impl FnOnce(),
    ) -> bool {
        let MessageSet { kept, arrivals, .. } = self.cargo;
        if let Some(kept) = kept[rank].get(alone.kept) {
            begin();
            let (positions, row) = (kept.route.positions(), kept.route.positions() / kept.route.rows());
            let range = alone.next_piece(positions, row, kept.route.row_bytes() / row);
            alone.kept += usize::from(alone.at == 0);
            let scaling = self.data.scaling(kept.array);
            let manner = CopyMode { stream: kept.stream, fetch: kept.stream, scaling, ..CopyMode::default() };
            let from = self.data.sources(kept.array)[kept.source];
            let to = self.data.targets(kept.array)[kept.target];
            assert!(!from.is_null() && !to.is_null(), "both parts were entered");
            // SAFETY: both parts are this plan's, whole, the target one of this rank's. A scaling was made for the array's
            // type. The rest is passed on.
            unsafe { copy(errand(&kept.route, manner, &[from], &[to], range), worker) };
            return true;
        }
        while let Some(&message) = arrivals[rank].get(alone.arrival) {
            let Some(section) = self.cargo.messages()[message].sections.get(alone.section) else {
                (alone.arrival, alone.section) = (alone.arrival + 1, 0);
                continue;
            };
            if !self.ignores(section.array) {
                alone.section += 1;
                continue;
            }
            begin();
            let range = alone.next_piece(section.positions, section.row, section.elem);
            alone.section += usize::from(alone.at == 0);
            let manner = CopyMode { scaling: self.data.scaling(section.array), ..CopyMode::default() };
            let to = self.data.targets(section.array)[section.target];
            assert!(!to.is_null(), "the target was entered");
            // SAFETY: nothing is read, so any address will do. The rest as above.
            unsafe { copy(errand(&section.unpack, manner, &[std::ptr::null()], &[to], range), worker) };
            return true;
        }
        false
    }
}

/// An errand for some positions of a route.
fn errand<'a>(
    route: &'a Route,
    manner: CopyMode<'a>,
    from: &'a [*const u8],
    to: &'a [*mut u8],
    range: Range<u64>,
) -> CopyJob<'a> {
    CopyJob { route, manner, from, to, share: CopyRange::Positions(range) }
}

impl LocalWork {
    /// The next of so many positions. Ends at 0 when there are no more.
    fn next_piece(&mut self, positions: u64, row: u64, elem: u64) -> Range<u64> {
        let begin = self.at;
        let some = (PIECE / elem).max(1);
        let all = positions - begin <= some;
        let end = if all { positions } else { cut_at_rows(begin, begin + some, row) };
        self.at = if all { 0 } else { end };
        begin..end
    }
}

/// Where position 0 would lie if the first of `range` lies at `place`: an address to reckon with, perhaps outside of all
/// memory. Kernels add to it what leads back to `place` and behind, and wrap as this does.
fn first_position(place: *mut u8, range: &Range<u64>, elem: u64) -> *mut u8 {
    place.wrapping_sub((range.start * elem) as usize)
}
