//! Copies rows whose elements are adjacent on both sides.
//!
//! For each row (each combination of positions of the slow axes) the beginnings of the source rows it takes from are
//! known, one for each peer of the fast axis; then every end of the route gets its pieces, in order. Ends that differ only
//! along the fast axis take turns row by row, so each line of a source is fetched once, in order, and used by all.
//!
//! Sources are read here and there, which the processor's own prefetching does not foresee: some rows ahead, every line is
//! asked for explicitly, or of long pieces what it takes for the processor to go on by itself. That is worth 1.3 to 1.6 times
//! the speed.

use super::cursor::{Advance, RowCursor};
use crate::route::{Destination, GatherLanes, InnerLoop, InnerStretch, MOST_ENDS, PieceList, Route};
use crate::simd::{Vector, prefetch, prefetch_piece};
use crate::store::Sink;
use std::ops::Range;

/// What a worker needs beside the route: sized when the route is made, so that copying allocates nothing.
pub struct RowScratch {
    pub(crate) here: Vec<*const u8>,
    pub(crate) ahead: Vec<*const u8>,
    lanes: Vec<u64>,
}

impl RowScratch {
    /// Enough for routes of at most so many peers and so many lanes, and not a byte more.
    pub fn new(peers: usize, lanes: usize) -> Self {
        Self {
            here: vec![std::ptr::null(); peers],
            ahead: vec![std::ptr::null(); peers],
            lanes: vec![0; lanes],
        }
    }

    /// Bytes that takes.
    pub fn bytes(peers: usize, lanes: usize) -> u64 {
        (peers * 2 * size_of::<*const u8>() + lanes * size_of::<u64>()) as u64
    }
}

/// How rows are copied.
#[derive(Clone, Copy)]
pub struct RowMode {
    /// These rows and no others: nobody copies the rows before and after them at the same time.
    pub exact: bool,
    /// Asks for what will be read, for rows that do not fit into the caches.
    pub fetch: bool,
}

/// So many bytes ahead of the reading, lines are asked for.
const AHEAD: u64 = 32768;

/// Copies whole rows; unless they are `exact`, the first positions of a row may belong to whoever writes the row before:
/// see [`Route::spare`].
///
/// # Safety
/// The sinks' promises, one sink for each end; `from[s]` is the beginning of source `s` and `to[t]` of destination `t`, each
/// valid for the whole span its layout says; the scratch was made to fit the route; its kernel is `Rows`.
#[inline(always)]
pub unsafe fn copy<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: &[*mut u8],
    rows: Range<u64>,
    RowMode { exact, fetch }: RowMode,
    scratch: &mut RowScratch,
    sinks: &mut [S],
) {
    if rows.is_empty() {
        return;
    }
    // 0: what fits into the caches is not asked for.
    let ahead_rows = if fetch { (AHEAD / route.row_bytes().max(1)).clamp(1, 32) } else { 0 };
    let mut here = RowCursor::at(route, from, rows.start, &mut scratch.here);
    let mut ahead = RowCursor::at(route, from, rows.start, &mut scratch.ahead);
    for row in rows.start + 1..=rows.start + ahead_rows {
        if row < rows.end {
            // The first rows of many a share are most of it.
            if let Some(sweep) = &route.sweep {
                sweep.fetch(ahead.bases()[0]);
            }
            ahead.tick(route, from);
        }
    }
    // One row more for those first positions of it that are ours.
    let last = if exact { rows.end } else { (rows.end + 1).min(route.rows()) };
    let mut places = [std::ptr::null_mut(); MOST_ENDS];
    here.find_places(route, to, &mut places);
    let mut row = rows.start;
    while row < last {
        let meets = !exact && (row == rows.start || row == rows.end);
        let (ends, sweep, own) = here.ends(route);
        // With a source that is read where it lies, the others are boxes, and those are read in order.
        let asks = fetch && (own || route.own.is_none());
        // After the last rows that are asked for, the front ahead stands still.
        let moves = fetch && row + ahead_rows + 1 < last;
        if let Some(sweep) = sweep.filter(|_| !meets && sinks[0].reads()) {
            // All rows of this stretch, as long as all go on.
            let mut count = here.left_in_stretch().min(rows.end - row);
            if moves {
                count = count.min(ahead.left_in_stretch()).min(last - ahead_rows - row);
            }
            // SAFETY: all these rows lie inside the parts the front points into and inside the targets.
            unsafe {
                copy_swept::<V, S>(
                    route,
                    sweep,
                    [&mut here, &mut ahead],
                    [asks, moves],
                    count,
                    &mut places,
                    sinks,
                );
            }
            row += count - 1;
        } else {
            let nexts = if asks { ahead.bases() } else { &[] };
            for ((end, sink), place) in ends.iter().zip(sinks.iter_mut()).zip(places) {
                if let (Some(lines), false) = (end.one_round(), meets)
                    && sink.reads()
                {
                    // Such rows are short: nothing but the copying is to be done for each.
                    let mut local = *sink;
                    // SAFETY: the whole row lies inside the parts the front points into and inside the target.
                    unsafe { lines.copy::<V, S>([here.bases(), nexts], place, 0, &mut local) };
                    *sink = local;
                    continue;
                }
                let spare = if meets { route.spare(end, to[end.target], row) } else { 0 };
                let range = if row == rows.end { 0..spare } else { spare..end.elems };
                // SAFETY: positions of the row lie inside the parts the fronts point into and inside the target.
                unsafe {
                    copy_row::<V, S>(
                        route,
                        end,
                        row,
                        [here.bases(), nexts],
                        place,
                        range,
                        &mut scratch.lanes,
                        sink,
                    );
                };
            }
        }
        if row + 1 < last {
            match here.tick(route, from) {
                Advance::Next => here.next_places(route, 1, &mut places),
                Advance::Elsewhere => here.find_places(route, to, &mut places),
            }
            if fetch && row + ahead_rows + 1 < last {
                ahead.tick(route, from);
            }
        }
        row += 1;
    }
}

/// Copies so many rows, at least one, of one stretch of both fronts, and leaves them at the last. `asks`: for what lies ahead;
/// `moves`: so does the front ahead.
///
/// # Safety
/// As for [`copy`]; the list is that of the rows' ends.
#[inline(always)]
unsafe fn copy_swept<V: Vector, S: Sink<V>>(
    route: &Route,
    sweep: &PieceList,
    [here, ahead]: [&mut RowCursor<'_>; 2],
    [asks, moves]: [bool; 2],
    count: u64,
    places: &mut [*mut u8; MOST_ENDS],
    sinks: &mut [S],
) {
    let step = |[here, ahead]: [&mut RowCursor<'_>; 2], places: &mut [*mut u8; MOST_ENDS], count: u64| {
        here.step(route, count);
        here.next_places(route, count, places);
        if moves {
            ahead.step(route, count);
        }
    };
    if !asks && sweep.goes_on(|peer| here.strides(route, &route.ends[0], peer)) {
        // SAFETY: by the caller's contract.
        unsafe { sweep.copy_rows::<V, S>(here.bases(), places[0], count, &mut sinks[0]) };
        return step([here, ahead], places, count - 1);
    }
    for left in (0..count).rev() {
        let nexts = if asks { ahead.bases() } else { &[] };
        // SAFETY: by the caller's contract.
        unsafe { sweep.copy::<V, S>([here.bases(), nexts], places, sinks) };
        if left > 0 {
            step([&mut *here, &mut *ahead], places, 1);
        }
    }
}

/// Copies some positions of one row.
///
/// # Safety
/// As for [`copy`], for a route with one end.
#[inline(always)]
pub unsafe fn copy_part<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    row: u64,
    range: Range<u64>,
    scratch: &mut RowScratch,
    sink: &mut S,
) {
    let here = RowCursor::at(route, from, row, &mut scratch.here);
    let end = &here.ends(route).0[0];
    let place = to.wrapping_add(here.to(&end.strides));
    // SAFETY: by the caller's contract.
    unsafe { copy_row::<V, S>(route, end, row, [here.bases(), &[]], place, range, &mut scratch.lanes, sink) };
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn copy_row<V: Vector, S: Sink<V>>(
    route: &Route,
    end: &Destination,
    row: u64,
    fronts: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    addresses: &mut [u64],
    sink: &mut S,
) {
    let mut range = range;
    if let Some(clip) = &end.clip {
        let clip = &clip[row as usize];
        range = range.start.max(clip.start)..range.end.min(clip.end);
    }
    if range.is_empty() {
        return;
    }
    let first = match range.start {
        0 => 0,
        start => end.loops.partition_point(|each| each.at + each.rounds * each.elems <= start),
    };
    // In registers while it works.
    let mut local = *sink;
    for each in &end.loops[first..] {
        if each.at >= range.end {
            break;
        }
        let inside = range.start.saturating_sub(each.at)..(range.end - each.at).min(each.rounds * each.elems);
        // SAFETY: `inside` are positions of this loop; the rest is the caller's contract.
        unsafe {
            match &each.lanes {
                Some(lanes) if inside.end - inside.start >= 2 * each.elems * lanes.rounds => {
                    let first = inside.start.next_multiple_of(each.elems);
                    let groups = (inside.end - first) / each.elems / lanes.rounds;
                    let last = first + groups * lanes.rounds * each.elems;
                    copy_pieces::<V, S>(route, each, fronts, to, inside.start..first, &mut local);
                    gather_groups::<V, S>(
                        route, each, lanes, fronts, to, first, groups, addresses, &mut local,
                    );
                    copy_pieces::<V, S>(route, each, fronts, to, last..inside.end, &mut local);
                }
                _ => copy_pieces::<V, S>(route, each, fronts, to, inside, &mut local),
            }
        }
    }
    *sink = local;
}

/// Copies groups of whole rounds from position `first` of a loop on, as lanes of gathers.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn gather_groups<V: Vector, S: Sink<V>>(
    route: &Route,
    each: &InnerLoop,
    lanes: &GatherLanes,
    [bases, nexts]: [&[*const u8]; 2],
    to: *mut u8,
    first: u64,
    groups: u64,
    addresses: &mut [u64],
    sink: &mut S,
) {
    let ahead = first / each.elems * (lanes.shift / lanes.rounds);
    let addresses = &mut addresses[..lanes.lanes.len()];
    for (address, &(peer, offset)) in addresses.iter_mut().zip(&lanes.lanes) {
        *address = (bases[peer as usize].expose_provenance() as u64).wrapping_add(offset + ahead);
    }
    // SAFETY: lane by lane, what is gathered are elements of whole rounds, which lie in the parts the bases point into; the
    // rounds lie in the destination without gaps.
    unsafe {
        sink.open(to.wrapping_add((each.stretches[0].stretch.to + first) as usize * route.elem));
        for group in 0..groups {
            let shift = group * lanes.shift;
            if lanes.fetches {
                for next in nexts {
                    prefetch(next.wrapping_add((ahead + shift) as usize), lanes.shift as usize);
                }
            }
            match lanes.width {
                4 => sink.gather::<4>(addresses, shift),
                _ => sink.gather::<8>(addresses, shift),
            }
        }
    }
}

/// Copies some positions of a loop, counted from its beginning, piece by piece.
#[inline(always)]
unsafe fn copy_pieces<V: Vector, S: Sink<V>>(
    route: &Route,
    each: &InnerLoop,
    [bases, nexts]: [&[*const u8]; 2],
    to: *mut u8,
    range: Range<u64>,
    sink: &mut S,
) {
    if range.is_empty() {
        return;
    }
    let elem = route.elem;
    for round in range.start / each.elems..range.end.div_ceil(each.elems) {
        let done = round * each.elems;
        let (begin, end) = (range.start.saturating_sub(done), (range.end - done).min(each.elems));
        let whole = begin == 0 && end == each.elems && each.in_order;
        if let (Some(lines), true) = (&each.lines, whole)
            && sink.reads()
        {
            // SAFETY: by the caller's contract, for a whole round.
            unsafe { lines.copy::<V, S>([bases, nexts], to, round, sink) };
            continue;
        }
        if whole {
            let first = &each.stretches[0].stretch;
            // SAFETY: the round's first element lies in the destination.
            unsafe { sink.open(to.wrapping_add((first.to + round * first.to_step) as usize * elem)) };
        }
        for InnerStretch { stretch, fetch } in &each.stretches {
            let peer = stretch.peer as usize;
            let from = (stretch.from + round * stretch.from_step) as usize * elem;
            if let Some(next) = nexts.get(peer) {
                prefetch_piece(next.wrapping_add(from), *fetch);
            }
            if whole {
                // SAFETY: elements of the part the base points into; they go where the last ones ended.
                unsafe { sink.push(bases[peer].wrapping_add(from), stretch.len as usize * elem) };
                continue;
            }
            let (first, last) = (begin.max(stretch.at), end.min(stretch.at + stretch.len));
            if first < last {
                let skip = (first - stretch.at) as usize;
                let place = (stretch.to + round * stretch.to_step) as usize + skip;
                // SAFETY: elements of the part the base points into and of the destination.
                unsafe {
                    sink.open(to.wrapping_add(place * elem));
                    sink.push(bases[peer].wrapping_add(from + skip * elem), (last - first) as usize * elem);
                }
            }
        }
    }
}
