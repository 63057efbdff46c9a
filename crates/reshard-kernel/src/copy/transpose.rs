//! The transpose kernel: the destination is contiguous along the fast axis, the source along the slow axis next to it.
//!
//! Contiguous reads make strided writes, and the other way round. It is fastest to read about thirty columns of the source
//! side by side, each in order, a line at a time: the hardware prefetcher can follow that many streams. A few lines at a
//! time are transposed in registers, stored in a tile of a few kilobytes in the destination's order, and pushed row by row
//! into a sink, like any other row. (Large square tiles, the usual way, are half as fast: their columns lie apart by powers
//! of two and evict each other from the caches.)

use super::cursor::RowCursor;
use crate::route::{InnerLoop, InnerStretch, Route};
use crate::simd::{CACHE_LINE, Vector};
use crate::store::Sink;
use std::ops::Range;

/// Columns of the source read side by side.
const COLUMN_STREAMS: usize = 32;

/// Positions of a part at most, and so strips of a part at most.
const MAX_STRIPS: usize = CACHE_LINE;

/// The memory of one tile, in the destination's order.
pub struct Tile(Vec<TileLine>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct TileLine(#[allow(dead_code)] [u8; CACHE_LINE]);

/// Returns the number of rows and the row length of a tile, in elements: the rows make up a line of the source, and a row is
/// at least a line.
fn extents(elem: usize) -> (usize, usize) {
    let streams = if elem <= 8 { COLUMN_STREAMS } else { COLUMN_STREAMS / 2 };
    ((CACHE_LINE / elem).max(1), streams.max(CACHE_LINE / elem))
}

/// Returns the bytes from one row of a tile to the next: a line more than the row, so that the rows do not all map to the
/// same few cache sets.
fn pitch(elem: usize) -> usize {
    (extents(elem).1 * elem).next_multiple_of(CACHE_LINE) + CACHE_LINE
}

impl Tile {
    /// Returns the bytes of a tile for the route.
    pub fn bytes(route: &Route) -> usize {
        extents(route.elem).0 * pitch(route.elem)
    }

    pub fn new(bytes: usize) -> Self {
        Self(vec![TileLine([0; CACHE_LINE]); bytes.div_ceil(CACHE_LINE)])
    }
}

/// A piece of a row: elements `from..from + len` of one peer, at positions from `at` on.
#[derive(Clone, Copy)]
struct Strip {
    peer: usize,
    from: u64,
    at: u64,
    len: u64,
}

/// Iterates over the stretches of a row that overlap a range of positions, clipped to it.
struct Strips<'a> {
    loops: &'a [InnerLoop],
    round: u64,
    stretch: usize,
    range: Range<u64>,
}

impl<'a> Strips<'a> {
    fn new(loops: &'a [InnerLoop], range: Range<u64>) -> Self {
        let first = loops.partition_point(|one| one.at + one.rounds * one.elems <= range.start);
        let loops = &loops[first..];
        let round = loops.first().map_or(0, |one| range.start.saturating_sub(one.at) / one.elems);
        Self { loops, round, stretch: 0, range }
    }
}

impl Iterator for Strips<'_> {
    type Item = Strip;

    #[inline(always)]
    fn next(&mut self) -> Option<Strip> {
        loop {
            let one = self.loops.first()?;
            let Some(InnerStretch { stretch, .. }) = one.stretches.get(self.stretch) else {
                (self.stretch, self.round) = (0, self.round + 1);
                if self.round == one.rounds {
                    self.round = 0;
                    self.loops = &self.loops[1..];
                }
                continue;
            };
            self.stretch += 1;
            let at = one.at + self.round * one.elems + stretch.at;
            if at >= self.range.end {
                return None;
            }
            let (begin, end) = (at.max(self.range.start), (at + stretch.len).min(self.range.end));
            if begin < end {
                let from = stretch.from + self.round * stretch.from_step + (begin - at);
                return Some(Strip { peer: stretch.peer as usize, from, at: begin, len: end - begin });
            }
        }
    }
}

/// Copies rows. The source is contiguous along the last slow axis.
///
/// # Safety
/// As for `rows::copy`, for a route with one destination whose kernel is `Tiles` across its last slow axis, and a tile of at
/// least `Tile::bytes`.
#[inline(always)]
pub unsafe fn copy<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    bases: &mut [*const u8],
    tile: &mut Tile,
    sink: &mut S,
) {
    let height = route.destinations[0].elems;
    let (_, streams) = extents(route.elem);
    // The first part ends at a cache line boundary of the destination, so that the others are whole lines.
    let mut at = 0;
    let mut next = match route.elems_to_line(to, rows.start) {
        0 => streams as u64,
        ahead => ahead,
    };
    while at < height {
        let part = at..height.min(next);
        // SAFETY: by the caller's contract.
        unsafe { copy_part::<V, S>(route, from, to, rows.clone(), part, bases, tile, sink) };
        (at, next) = (next, next + streams as u64);
    }
}

/// Copies some positions of rows, no more than a row of the tile holds.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn copy_part<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    part: Range<u64>,
    bases: &mut [*const u8],
    tile: &mut Tile,
    sink: &mut S,
) {
    let elem = route.elem;
    let (tile_rows, _) = extents(elem);
    let fast = route.outer.len();
    let destination = &route.destinations[0];
    let tile_start = tile.0.as_mut_ptr().cast::<u8>();
    let mut cursor = RowCursor::at(route, from, rows.start, bases);
    let mut row = rows.start;
    // The same for all rows: the strips of the part, and its destination offset if it is contiguous there.
    let mut strips = [Strip { peer: 0, from: 0, at: 0, len: 0 }; MAX_STRIPS];
    let mut strip_count = 0;
    for (slot, strip) in strips.iter_mut().zip(Strips::new(&destination.loops, part.clone())) {
        *slot = strip;
        strip_count += 1;
    }
    let len = part.end - part.start;
    let loop_index =
        destination.loops.partition_point(|each| each.at + each.rounds * each.elems <= part.start);
    let (index, together) = destination.loops[loop_index].locate(part.start);
    let offset = (together >= len && destination.clip.is_none()).then_some(index as usize * elem);
    // Squares that are whole lines in source and destination need no tile.
    let to_stride = destination.strides[fast - 1];
    let squares = |strip: &Strip| strip.len.is_multiple_of(8) && (strip.at - part.start).is_multiple_of(8);
    let lined_up = S::NON_TEMPORAL && V::SQUARE_ELEM_BYTES == elem && to_stride.is_multiple_of(CACHE_LINE);
    let square_offset = offset.filter(|_| lined_up && strips[..strip_count].iter().all(squares));
    loop {
        let count = cursor.left_in_stretch().min(rows.end - row).min(tile_rows as u64);
        if let Some(offset) = square_offset {
            let row_start = to.wrapping_add(cursor.to(&destination.strides) + offset);
            if count == tile_rows as u64 && row_start.addr().is_multiple_of(CACHE_LINE) {
                for strip in &strips[..strip_count] {
                    let stride = cursor.stride(route, strip.peer, fast);
                    let corner = cursor.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
                    let row_start = row_start.wrapping_add((strip.at - part.start) as usize * elem);
                    // SAFETY: as below, but directly to the rows of the destination, which lie `to_stride` bytes apart.
                    unsafe { V::stream_squares(row_start, to_stride, corner, stride, strip.len as usize) };
                }
                row += count;
                if row >= rows.end {
                    return;
                }
                cursor.skip(route, from, count);
                continue;
            }
        }
        for strip in &strips[..strip_count] {
            let stride = cursor.stride(route, strip.peer, fast);
            let corner = cursor.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
            let row_start = tile_start.wrapping_add((strip.at - part.start) as usize * elem);
            // SAFETY: these columns of `count` elements are elements of the part the base points into; they go to `count`
            // rows of the tile, each with room for them.
            unsafe {
                V::transpose(
                    row_start,
                    pitch(elem),
                    corner,
                    stride,
                    [count as usize, strip.len as usize],
                    elem,
                );
            }
        }
        // Within a stretch the rows of the destination lie one stride apart.
        let row_start = to.wrapping_add(cursor.to(&destination.strides));
        // A copy of the sink, so that its state stays in registers.
        let mut sink_copy = *sink;
        for k in 0..count as usize {
            let (taken, row_start) = (
                tile_start.wrapping_add(k * pitch(elem)),
                row_start.wrapping_add(k * destination.strides[fast - 1]),
            );
            if let Some(offset) = offset {
                // SAFETY: this row of the tile, to its place in the destination.
                unsafe {
                    sink_copy.open(row_start.wrapping_add(offset));
                    sink_copy.push(taken, len as usize * elem);
                }
                continue;
            }
            let clip = destination.clip.as_ref().map(|clip| &clip[row as usize + k]);
            let range = clip.map_or(part.clone(), |clip| part.start.max(clip.start)..part.end.min(clip.end));
            // SAFETY: elements of this row of the tile, to their place in the destination.
            unsafe {
                push_row::<V, S>(
                    &destination.loops,
                    range,
                    taken,
                    part.start,
                    row_start,
                    elem,
                    &mut sink_copy,
                );
            };
        }
        *sink = sink_copy;
        row += count;
        if row >= rows.end {
            return;
        }
        cursor.skip(route, from, count);
    }
}

/// Pushes some positions of a row of the tile, whose first position is `first`.
#[inline(always)]
unsafe fn push_row<V: Vector, S: Sink<V>>(
    loops: &[InnerLoop],
    range: Range<u64>,
    taken: *const u8,
    first: u64,
    row_start: *mut u8,
    elem: usize,
    sink: &mut S,
) {
    let begin = match range.start {
        0 => 0,
        start => loops.partition_point(|each| each.at + each.rounds * each.elems <= start),
    };
    let mut at = range.start;
    for each in &loops[begin..] {
        let last = range.end.min(each.at + each.rounds * each.elems);
        // The stretches of a loop that is not in order are not contiguous in the destination.
        while at < last {
            let (index, len) = each.locate(at);
            let len = len.min(last - at);
            // SAFETY: by the caller's contract.
            unsafe {
                sink.open(row_start.wrapping_add(index as usize * elem));
                sink.push(taken.add((at - first) as usize * elem), len as usize * elem);
            }
            at += len;
        }
        if at >= range.end {
            return;
        }
    }
}
