//! Transposes: the destination is adjacent along the fast axis, the source along the slow axis next to it.
//!
//! Reading along one side jumps on the other. What works best is to read some thirty columns of the source side by side,
//! each in order, a line at a time: so many streams the processor can follow by itself. Each handful of lines is turned
//! in registers, laid down in a tile of a few kilobytes in the destination's order, and let go row by row into a sink,
//! like any other row. (Large square tiles, the usual way, are half as fast: their columns lie apart by powers of two and
//! drive each other out of the caches.)

use super::cursor::RowCursor;
use crate::route::{InnerLoop, InnerStretch, Route};
use crate::simd::{CACHE_LINE, Vector};
use crate::store::Sink;
use std::ops::Range;

/// Columns of the source read side by side.
const STREAMS: usize = 32;

/// A part has at most so many positions, and no more strips.
const MOST_STRIPS: usize = CACHE_LINE;

/// Memory for one tile, in the destination's order.
pub struct Tile(Vec<TileLine>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct TileLine(#[allow(dead_code)] [u8; CACHE_LINE]);

/// Rows and row length of a tile, in elements: rows make a line of the source, and a row is at least a line.
fn extents(elem: usize) -> (usize, usize) {
    let streams = if elem <= 8 { STREAMS } else { STREAMS / 2 };
    ((CACHE_LINE / elem).max(1), streams.max(CACHE_LINE / elem))
}

/// Bytes from one row of a tile to the next: a line more than the row, so that rows do not all want the same few places of
/// the cache.
fn pitch(elem: usize) -> usize {
    (extents(elem).1 * elem).next_multiple_of(CACHE_LINE) + CACHE_LINE
}

impl Tile {
    /// Bytes of memory for a route's tiles.
    pub fn bytes(route: &Route) -> usize {
        extents(route.elem).0 * pitch(route.elem)
    }

    pub fn new(bytes: usize) -> Self {
        Self(vec![TileLine([0; CACHE_LINE]); bytes.div_ceil(CACHE_LINE)])
    }
}

/// A part of a track: elements `from..from + len` of one peer, at positions from `at` on.
#[derive(Clone, Copy)]
struct Strip {
    peer: usize,
    from: u64,
    at: u64,
    len: u64,
}

/// The stretches of a row that meet a range of positions, cut to it.
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

/// Copies rows. The slow axis along which the source is adjacent is the last of them.
///
/// # Safety
/// As for `rows::copy`, for a route with one end whose kernel is `Tiles` across its last slow axis, and a tile of at least
/// `Tile::bytes`.
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
    let height = route.ends[0].elems;
    let (_, streams) = extents(route.elem);
    // The first part ends where a line of the destination begins, so that the others are whole lines.
    let mut at = 0;
    let mut next = match route.to_line(to, rows.start) {
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

/// Copies some positions of rows, no more than a tile's row has.
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
    let (most, _) = extents(elem);
    let fast = route.outer.len();
    let end = &route.ends[0];
    let room = tile.0.as_mut_ptr().cast::<u8>();
    let mut front = RowCursor::at(route, from, rows.start, bases);
    let mut row = rows.start;
    // What is the same for all rows: where the part comes from, and where it goes if that is one place.
    let mut strips = [Strip { peer: 0, from: 0, at: 0, len: 0 }; MOST_STRIPS];
    let mut strip_count = 0;
    for (slot, strip) in strips.iter_mut().zip(Strips::new(&end.loops, part.clone())) {
        *slot = strip;
        strip_count += 1;
    }
    let len = part.end - part.start;
    let holder = end.loops.partition_point(|each| each.at + each.rounds * each.elems <= part.start);
    let (index, together) = end.loops[holder].place(part.start);
    let one_place = (together >= len && end.clip.is_none()).then_some(index as usize * elem);
    // Squares that are whole lines on both sides need no tile.
    let to_stride = end.strides[fast - 1];
    let squares = |strip: &Strip| strip.len.is_multiple_of(8) && (strip.at - part.start).is_multiple_of(8);
    let lined_up = S::NON_TEMPORAL && V::SQUARE_ELEM_BYTES == elem && to_stride.is_multiple_of(CACHE_LINE);
    let squared = one_place.filter(|_| lined_up && strips[..strip_count].iter().all(squares));
    loop {
        let count = front.left_in_stretch().min(rows.end - row).min(most as u64);
        if let Some(ahead) = squared {
            let place = to.wrapping_add(front.to(&end.strides) + ahead);
            if count == most as u64 && place.addr().is_multiple_of(CACHE_LINE) {
                for strip in &strips[..strip_count] {
                    let stride = front.stride(route, strip.peer, fast);
                    let corner = front.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
                    let place = place.wrapping_add((strip.at - part.start) as usize * elem);
                    // SAFETY: as below, but straight to the rows of the destination, which lie `to_stride` apart.
                    unsafe { V::stream_squares(place, to_stride, corner, stride, strip.len as usize) };
                }
                row += count;
                if row >= rows.end {
                    return;
                }
                front.skip(route, from, count);
                continue;
            }
        }
        for strip in &strips[..strip_count] {
            let stride = front.stride(route, strip.peer, fast);
            let corner = front.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
            let place = room.wrapping_add((strip.at - part.start) as usize * elem);
            // SAFETY: these columns of `count` elements are elements of the part the base points into; they go to `count` rows
            // of the tile, each with room for them.
            unsafe {
                V::transpose(place, pitch(elem), corner, stride, [count as usize, strip.len as usize], elem);
            }
        }
        // Within a stretch the destination's rows lie one stride apart.
        let place = to.wrapping_add(front.to(&end.strides));
        // In registers while it works.
        let mut local = *sink;
        for k in 0..count as usize {
            let (taken, place) =
                (room.wrapping_add(k * pitch(elem)), place.wrapping_add(k * end.strides[fast - 1]));
            if let Some(ahead) = one_place {
                // SAFETY: this row of the tile, to its place in the destination.
                unsafe {
                    local.open(place.wrapping_add(ahead));
                    local.push(taken, len as usize * elem);
                }
                continue;
            }
            let clip = end.clip.as_ref().map(|clip| &clip[row as usize + k]);
            let range = clip.map_or(part.clone(), |clip| part.start.max(clip.start)..part.end.min(clip.end));
            // SAFETY: elements of this row of the tile, to their place in the destination.
            unsafe { let_go::<V, S>(&end.loops, range, taken, part.start, place, elem, &mut local) };
        }
        *sink = local;
        row += count;
        if row >= rows.end {
            return;
        }
        front.skip(route, from, count);
    }
}

/// Pushes some positions of a row of the tile, whose first position is `first`.
#[inline(always)]
unsafe fn let_go<V: Vector, S: Sink<V>>(
    loops: &[InnerLoop],
    range: Range<u64>,
    taken: *const u8,
    first: u64,
    place: *mut u8,
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
        // Where a loop is not in order, its stretches lie apart in the destination.
        while at < last {
            let (index, len) = each.place(at);
            let len = len.min(last - at);
            // SAFETY: by the caller's contract.
            unsafe {
                sink.open(place.wrapping_add(index as usize * elem));
                sink.push(taken.add((at - first) as usize * elem), len as usize * elem);
            }
            at += len;
        }
        if at >= range.end {
            return;
        }
    }
}
