//! The row kernel, for rows that are contiguous in sources and destinations.
//!
//! For each row (each combination of positions of the slow axes) the addresses of the source rows it takes from are known,
//! one for each peer of the fast axis; then every destination of the route gets its pieces, in order. Destinations that
//! differ only along the fast axis take turns row by row, so each line of a source is read once, in order, and used by all.
//!
//! Sources are read in a pattern that the hardware prefetcher does not predict, so rows are prefetched by software, some
//! rows ahead: every line of short pieces, and the page starts of long ones (see [`prefetch_piece`]). That makes it 1.3 to
//! 1.6 times as fast.

use super::cursor::{Advance, RowCursor};
use super::short::ShortScratch;
use crate::route::{Destination, InnerLoop, InnerStretch, MAX_DESTINATIONS, PieceList, Route, ShortPieces};
use crate::simd::{Vector, prefetch_piece};
use crate::store::Sink;
use std::ops::Range;

/// Working memory of the row kernel, sized when routes are made, so that copying allocates nothing.
pub struct RowScratch {
    /// Addresses of the current row, one for each peer.
    pub(crate) here: Vec<*const u8>,
    /// Addresses of the prefetched row, one for each peer.
    pub(crate) ahead: Vec<*const u8>,
    pub(super) short: ShortScratch,
}

impl RowScratch {
    /// Allocates scratch for routes of at most `peers` peers, of which short pieces come from `origins`:
    /// [`RowScratch::bytes`] bytes.
    pub fn new(peers: usize, origins: usize) -> Self {
        Self {
            here: vec![std::ptr::null(); peers],
            ahead: vec![std::ptr::null(); peers],
            short: ShortScratch::new(origins),
        }
    }

    /// Returns the bytes of scratch for routes of at most `peers` peers, of which short pieces come from `origins`.
    pub fn bytes(peers: usize, origins: usize) -> u64 {
        (peers * 2 * size_of::<*const u8>()) as u64 + ShortScratch::bytes(origins)
    }
}

/// How rows are copied.
#[derive(Clone, Copy)]
pub struct RowMode {
    /// Copy exactly these rows: no other thread copies the rows before or after them at the same time.
    pub exact: bool,
    /// Prefetch rows that will be read, for sources that are not in the caches.
    pub prefetches: bool,
}

/// Distance in bytes between the row that is copied and the row that is prefetched.
const PREFETCH_AHEAD_BYTES: u64 = 32768;

/// Copies whole rows. Unless they are `exact`, the first positions of the first row are left to the task that copies the row
/// before, and those of the row after the last are copied too: see [`Route::row_head`].
///
/// # Safety
/// The contract of [`Sink`], with one sink for each destination; `from[s]` is the address of source `s` and `to[t]` of
/// destination `t`, each valid for the whole span of its layout; the scratch was made for the route; its kernel is `Rows`.
#[inline(always)]
pub unsafe fn copy<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: &[*mut u8],
    rows: Range<u64>,
    RowMode { exact, prefetches }: RowMode,
    scratch: &mut RowScratch,
    sinks: &mut [S],
) {
    if rows.is_empty() {
        return;
    }
    // 0: rows in the caches are not prefetched.
    let ahead_rows =
        if prefetches { (PREFETCH_AHEAD_BYTES / route.row_bytes().max(1)).clamp(1, 32) } else { 0 };
    scratch.short.ahead = 0;
    let mut here = RowCursor::at(route, from, rows.start, &mut scratch.here);
    let mut ahead = RowCursor::at(route, from, rows.start, &mut scratch.ahead);
    for row in rows.start + 1..=rows.start + ahead_rows {
        if row < rows.end {
            // Many ranges consist of few rows, so the first ones are prefetched, too.
            if let Some(pieces) = &route.pieces {
                pieces.prefetch_row(ahead.bases()[0]);
            }
            ahead.advance(route, from);
        }
    }
    // One row more: its first positions belong to this range.
    let last = if exact { rows.end } else { (rows.end + 1).min(route.rows()) };
    let mut row_starts = [std::ptr::null_mut(); MAX_DESTINATIONS];
    here.locate_row_starts(route, to, &mut row_starts);
    let mut row = rows.start;
    while row < last {
        let at_boundary = !exact && (row == rows.start || row == rows.end);
        let (destinations, pieces, local) = here.destinations(route);
        // With a local source read in place, all others are staging buffers, which are read in order.
        let prefetch_ahead = prefetches && (local || route.local.is_none());
        // The cursor ahead stops at the last row.
        let advance_ahead = prefetches && row + ahead_rows + 1 < last;
        if let Some(pieces) = pieces.filter(|_| !at_boundary && sinks[0].reads()) {
            // All rows of this stretch, limited by the stretch of the cursor ahead.
            let mut count = here.left_in_stretch().min(rows.end - row);
            if advance_ahead {
                count = count.min(ahead.left_in_stretch()).min(last - ahead_rows - row);
            }
            // SAFETY: all these rows lie inside the parts the cursor points into and inside the destinations.
            unsafe {
                copy_piece_rows::<V, S>(
                    route,
                    pieces,
                    [&mut here, &mut ahead],
                    [prefetch_ahead, advance_ahead],
                    count,
                    &mut row_starts,
                    sinks,
                );
            }
            row += count - 1;
        } else {
            let ahead_bases = if prefetch_ahead { ahead.bases() } else { &[] };
            for ((destination, sink), row_start) in destinations.iter().zip(sinks.iter_mut()).zip(row_starts)
            {
                if let (Some(short), false) = (destination.one_short_round(), at_boundary)
                    && sink.reads()
                    && short.suits::<V, S>()
                {
                    // Such rows are short, so the general path would cost more than the copy.
                    // SAFETY: the whole row lies inside the parts the cursor points into and inside the destination.
                    unsafe {
                        short.copy_rounds::<V, S>(
                            [here.bases(), ahead_bases],
                            row_start,
                            0..1,
                            &mut scratch.short,
                            sink,
                        );
                    }
                    continue;
                }
                let head =
                    if at_boundary { route.row_head(destination, to[destination.target], row) } else { 0 };
                let range = if row == rows.end { 0..head } else { head..destination.elems };
                // SAFETY: positions of the row lie inside the parts the bases point into and inside the destination.
                unsafe {
                    copy_row::<V, S>(
                        route,
                        destination,
                        row,
                        [here.bases(), ahead_bases],
                        row_start,
                        range,
                        &mut scratch.short,
                        sink,
                    );
                };
            }
        }
        if row + 1 < last {
            match here.advance(route, from) {
                Advance::Next => here.advance_row_starts(route, 1, &mut row_starts),
                Advance::Elsewhere => here.locate_row_starts(route, to, &mut row_starts),
            }
            if prefetches && row + ahead_rows + 1 < last {
                ahead.advance(route, from);
            }
        }
        row += 1;
    }
}

/// Copies `count` rows, at least one, that lie in one stretch of both cursors, and leaves the cursors at the last of them.
/// `prefetch_ahead`: prefetch the row of the cursor ahead; `advance_ahead`: advance that cursor, too.
///
/// # Safety
/// As for [`copy`]; `pieces` is the list of the rows' destinations.
#[inline(always)]
unsafe fn copy_piece_rows<V: Vector, S: Sink<V>>(
    route: &Route,
    pieces: &PieceList,
    [here, ahead]: [&mut RowCursor<'_>; 2],
    [prefetch_ahead, advance_ahead]: [bool; 2],
    count: u64,
    row_starts: &mut [*mut u8; MAX_DESTINATIONS],
    sinks: &mut [S],
) {
    let step =
        |[here, ahead]: [&mut RowCursor<'_>; 2], row_starts: &mut [*mut u8; MAX_DESTINATIONS], count: u64| {
            here.step(route, count);
            here.advance_row_starts(route, count, row_starts);
            if advance_ahead {
                ahead.step(route, count);
            }
        };
    if !prefetch_ahead && pieces.is_contiguous(|peer| here.strides(route, &route.destinations[0], peer)) {
        // SAFETY: by the caller's contract.
        unsafe { pieces.copy_rows::<V, S>(here.bases(), row_starts[0], count, &mut sinks[0]) };
        return step([here, ahead], row_starts, count - 1);
    }
    for left in (0..count).rev() {
        let ahead_bases = if prefetch_ahead { ahead.bases() } else { &[] };
        // SAFETY: by the caller's contract.
        unsafe { pieces.copy::<V, S>([here.bases(), ahead_bases], row_starts, sinks) };
        if left > 0 {
            step([&mut *here, &mut *ahead], row_starts, 1);
        }
    }
}

/// Bytes of a row, of all destinations together, that are copied before the destinations take turns again: a row that is longer
/// than the caches is read once nevertheless, as all destinations take from the same lines of the sources.
const TURN_BYTES: u64 = 1 << 16;

/// Copies the same share of one row for each destination: some parts out of `of`.
///
/// # Safety
/// As for [`copy`].
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub unsafe fn copy_share<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: &[*mut u8],
    row: u64,
    parts: Range<u64>,
    of: u64,
    prefetches: bool,
    scratch: &mut RowScratch,
    sinks: &mut [S],
) {
    let here = RowCursor::at(route, from, row, &mut scratch.here);
    let turns = (route.row_bytes() / of).div_ceil(TURN_BYTES).max(1);
    for turn in parts.start * turns..parts.end * turns {
        for (destination, sink) in here.destinations(route).0.iter().zip(sinks.iter_mut()) {
            let target = to[destination.target];
            let begin = |part| Route::part_begin(destination, part, of * turns);
            let row_start = target.wrapping_add(here.to(&destination.strides));
            // The next turn, which begins when all destinations had theirs.
            scratch.short.ahead = if prefetches { destination.elems / (of * turns) } else { 0 };
            // SAFETY: by the caller's contract.
            unsafe {
                copy_row::<V, S>(
                    route,
                    destination,
                    row,
                    [here.bases(), &[]],
                    row_start,
                    begin(turn)..begin(turn + 1),
                    &mut scratch.short,
                    sink,
                );
            }
        }
    }
}

/// Distance in bytes between the pieces that are copied and those that are prefetched, in a part of one long row.
const PART_AHEAD_BYTES: u64 = 4096;

/// Copies some positions of one row.
///
/// # Safety
/// As for [`copy`], for a route with one destination.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub unsafe fn copy_part<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    row: u64,
    range: Range<u64>,
    prefetches: bool,
    scratch: &mut RowScratch,
    sink: &mut S,
) {
    let here = RowCursor::at(route, from, row, &mut scratch.here);
    let (destinations, _, local) = here.destinations(route);
    let destination = &destinations[0];
    // With a local source read in place, all others are staging buffers, which are read in order.
    let prefetches = prefetches && (local || route.local.is_none());
    scratch.short.ahead = if prefetches { (PART_AHEAD_BYTES / route.elem as u64).max(1) } else { 0 };
    let row_start = to.wrapping_add(here.to(&destination.strides));
    // SAFETY: by the caller's contract.
    unsafe {
        copy_row::<V, S>(
            route,
            destination,
            row,
            [here.bases(), &[]],
            row_start,
            range,
            &mut scratch.short,
            sink,
        );
    };
}

/// Copies some positions of one row to one destination, loop by loop.
///
/// # Safety
/// As for [`copy`].
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn copy_row<V: Vector, S: Sink<V>>(
    route: &Route,
    destination: &Destination,
    row: u64,
    bases: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    scratch: &mut ShortScratch,
    sink: &mut S,
) {
    let mut range = range;
    if let Some(clip) = &destination.clip {
        let clip = &clip[row as usize];
        range = range.start.max(clip.start)..range.end.min(clip.end);
    }
    if range.is_empty() {
        return;
    }
    let first = match range.start {
        0 => 0,
        start => destination.loops.partition_point(|each| each.at + each.rounds * each.elems <= start),
    };
    // A copy of the sink, so that its state stays in registers.
    let mut sink_copy = *sink;
    for each in &destination.loops[first..] {
        if each.at >= range.end {
            break;
        }
        let inside = range.start.saturating_sub(each.at)..(range.end - each.at).min(each.rounds * each.elems);
        // SAFETY: `inside` are positions of this loop; the rest is the caller's contract.
        unsafe {
            match &each.short {
                Some(short) if sink_copy.reads() && short.suits::<V, S>() => {
                    copy_short::<V, S>(route, each, short, bases, to, inside, scratch, &mut sink_copy);
                }
                _ => {
                    let ahead = scratch.ahead.min(PART_AHEAD_BYTES / route.elem as u64);
                    copy_pieces::<V, S>(route, each, bases, to, inside, ahead, &mut sink_copy);
                }
            }
        }
    }
    *sink = sink_copy;
}

/// Copies some positions of a loop of short pieces, counted from its first: whole sections by their tables, the rest piece by
/// piece.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn copy_short<V: Vector, S: Sink<V>>(
    route: &Route,
    each: &InnerLoop,
    short: &ShortPieces,
    bases: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    scratch: &mut ShortScratch,
    sink: &mut S,
) {
    let rounds = range.start.div_ceil(each.elems)..range.end / each.elems;
    // SAFETY: these rounds and sections are parts of the range; the rest is the caller's contract.
    unsafe {
        if rounds.start + short.rounds <= rounds.end {
            let (first, last) = (rounds.start * each.elems, rounds.end * each.elems);
            if range.start < first {
                copy_in_round::<V, S>(route, each, short, bases, to, range.start..first, scratch, sink);
            }
            short.copy_rounds::<V, S>(bases, to, rounds, scratch, sink);
            if last < range.end {
                copy_in_round::<V, S>(route, each, short, bases, to, last..range.end, scratch, sink);
            }
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let end = ((at / each.elems + 1) * each.elems).min(range.end);
            copy_in_round::<V, S>(route, each, short, bases, to, at..end, scratch, sink);
            at = end;
        }
    }
}

/// Copies some positions of one round of a loop of short pieces.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn copy_in_round<V: Vector, S: Sink<V>>(
    route: &Route,
    each: &InnerLoop,
    short: &ShortPieces,
    bases: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    scratch: &mut ShortScratch,
    sink: &mut S,
) {
    let round = range.start / each.elems;
    let (begin, end) = (range.start - round * each.elems, range.end - round * each.elems);
    // Without several rounds in a batch: the sections that lie inside.
    let first = short.sections.partition_point(|section| section.at < begin);
    let last = short.sections.partition_point(|section| section.at + section.elems <= end);
    // SAFETY: by the caller's contract.
    unsafe {
        if short.rounds > 1 || first >= last {
            return copy_pieces::<V, S>(route, each, bases, to, range, 0, sink);
        }
        let (from, until) =
            (short.sections[first].at, short.sections[last - 1].at + short.sections[last - 1].elems);
        if begin < from {
            copy_pieces::<V, S>(route, each, bases, to, range.start..range.start + from - begin, 0, sink);
        }
        short.locate(bases, round, scratch);
        short.copy_sections::<V, S>(first..last, to, round, 0, scratch, sink);
        if until < end {
            copy_pieces::<V, S>(route, each, bases, to, range.end + until - end..range.end, 0, sink);
        }
    }
}

/// Copies some positions of a loop, counted from its first, piece by piece. Prefetches pieces `ahead` positions further on in the
/// same row, if that is not 0.
#[inline(always)]
unsafe fn copy_pieces<V: Vector, S: Sink<V>>(
    route: &Route,
    each: &InnerLoop,
    [bases, ahead_bases]: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    ahead: u64,
    sink: &mut S,
) {
    if range.is_empty() {
        return;
    }
    let elem = route.elem;
    let mut far = (ahead > 0).then(|| FarPiece::at(each, range.start));
    for round in range.start / each.elems..range.end.div_ceil(each.elems) {
        let done = round * each.elems;
        let (begin, end) = (range.start.saturating_sub(done), (range.end - done).min(each.elems));
        let whole = begin == 0 && end == each.elems && each.in_order;
        if whole {
            let first = &each.stretches[0].stretch;
            // SAFETY: the round's first element lies in the destination.
            unsafe { sink.open(to.wrapping_add((first.to + round * first.to_step) as usize * elem)) };
        }
        let first = match begin {
            0 => 0,
            begin => each.stretches.partition_point(|s| s.stretch.at + s.stretch.len <= begin),
        };
        for InnerStretch { stretch, prefetch_bytes } in &each.stretches[first..] {
            if stretch.at >= end {
                break;
            }
            let peer = stretch.peer as usize;
            let from = (stretch.from + round * stretch.from_step) as usize * elem;
            if let Some(next) = ahead_bases.get(peer) {
                prefetch_piece(next.wrapping_add(from), *prefetch_bytes);
            } else if let Some(far) = &mut far {
                far.prefetch_up_to(route, each, done + stretch.at + ahead, bases);
            }
            if whole {
                // SAFETY: elements of the part the base points into; in the destination they follow the piece before.
                unsafe { sink.push(bases[peer].wrapping_add(from), stretch.len as usize * elem) };
                continue;
            }
            let (first, last) = (begin.max(stretch.at), end.min(stretch.at + stretch.len));
            if first < last {
                let skip = (first - stretch.at) as usize;
                let row_start = (stretch.to + round * stretch.to_step) as usize + skip;
                // SAFETY: elements of the part the base points into and of the destination.
                unsafe {
                    sink.open(to.wrapping_add(row_start * elem));
                    sink.push(bases[peer].wrapping_add(from + skip * elem), (last - first) as usize * elem);
                }
            }
        }
    }
}

/// A piece of a loop that will be read soon.
struct FarPiece {
    round: u64,
    index: usize,
}

impl FarPiece {
    /// Returns the first piece that begins at a position of a loop or later: of a piece that began before, the hardware knows.
    #[inline(always)]
    fn at(each: &InnerLoop, position: u64) -> Self {
        let round = position / each.elems;
        let begin = position - round * each.elems;
        let index = each.stretches.partition_point(|s| s.stretch.at < begin);
        Self { round, index }
    }

    /// Prefetches the pieces from this one on that begin before a position of the loop, of long ones the beginning.
    #[inline(always)]
    fn prefetch_up_to(&mut self, route: &Route, each: &InnerLoop, position: u64, bases: &[*const u8]) {
        while self.round < each.rounds {
            let Some(InnerStretch { stretch, prefetch_bytes }) = each.stretches.get(self.index) else {
                (self.round, self.index) = (self.round + 1, 0);
                continue;
            };
            if self.round * each.elems + stretch.at >= position {
                return;
            }
            // Beside a local source there are staging buffers, which are read in order.
            if route.local.is_none() || *prefetch_bytes > 0 {
                let from = (stretch.from + self.round * stretch.from_step) as usize * route.elem;
                let bytes = (stretch.len as usize * route.elem).min(PART_AHEAD_BYTES as usize);
                prefetch_piece(bases[stretch.peer as usize].wrapping_add(from), bytes);
            }
            self.index += 1;
        }
    }
}
