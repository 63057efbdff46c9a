//! Transposes: the destination is adjacent along the fast axis, the source along the slow axis next to it.
//!
//! Reading along one side jumps on the other, so both are walked in tiles small enough for the first-level cache. A tile
//! is read from as many sources as meet in it, turned by small squares in registers, laid down in the destination's
//! order, and let go row by row into a sink, like any other row.

use super::clock::Front;
use super::route::{Route, RowLoop};
use super::sink::Sink;
use super::vector::{Vector, prefetch};
use reshard_plan::Stretch;
use std::ops::Range;

/// Bytes a tile reads at a time along the source: some lines.
const WIDE: usize = 256;

/// Bytes a tile writes at a time along the destination.
const TALL: usize = 1024;

/// Memory for one tile, in the destination's order.
pub struct Tile(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// Rows and row length of a tile, in elements.
fn extents(elem: usize) -> (usize, usize) {
    ((WIDE / elem).max(1), (TALL / elem).max(1))
}

impl Tile {
    /// Bytes of memory for a route's tiles.
    pub fn bytes(route: &Route) -> usize {
        let (wide, tall) = extents(route.elem);
        (wide * tall * route.elem).next_multiple_of(64)
    }

    pub fn new(bytes: usize) -> Self {
        Self(vec![Line([0; 64]); bytes.div_ceil(64)])
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

/// Calls `each` for the stretches of loops that meet a range of positions, cut to it. `loops` and `stretch` say how to find
/// them, since the two axes keep theirs in different ways.
fn strips(loops: &[RowLoop], range: Range<u64>, mut each: impl FnMut(Strip)) {
    let first = loops.partition_point(|one| one.at + one.rounds * one.elems <= range.start);
    for one in loops[first..].iter().take_while(|one| one.at < range.end) {
        let rounds = (range.start.saturating_sub(one.at) / one.elems)
            ..(range.end - one.at).div_ceil(one.elems).min(one.rounds);
        for round in rounds {
            for row_stretch in &one.stretches {
                let Stretch { at, len, peer, from, from_step, .. } = row_stretch.stretch;
                let at = one.at + round * one.elems + at;
                let (begin, end) = (at.max(range.start), (at + len).min(range.end));
                if begin < end {
                    let from = from + round * from_step + (begin - at);
                    each(Strip { peer: peer as usize, from, at: begin, len: end - begin });
                }
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
    let (wide, tall) = extents(route.elem);
    let slow = route.outer.len() - 1;
    let across = route.outer[slow].track.elems();
    let end = &route.ends[0];
    let mut row = rows.start;
    while row < rows.end {
        // As many rows as the tile is wide and share all positions but the last.
        let count = (wide as u64).min(rows.end - row).min(across - row % across);
        let mut height = 0;
        while height < end.elems {
            let part = height..end.elems.min(height + tall as u64);
            // SAFETY: passed on; the tile has room for `wide` rows of `tall` elements.
            unsafe {
                fill::<V>(route, from, row..row + count, part.clone(), bases, tile);
                empty::<V, S>(route, from, to, row..row + count, part.clone(), bases, tile, sink);
            }
            height = part.end;
        }
        row += count;
    }
}

/// Reads a tile: the rows' stretches across, times the stretches of the fast axis.
#[inline(always)]
unsafe fn fill<V: Vector>(
    route: &Route,
    from: &[*const u8],
    rows: Range<u64>,
    part: Range<u64>,
    bases: &mut [*const u8],
    tile: &mut Tile,
) {
    let (wide, tall) = extents(route.elem);
    let elem = route.elem;
    let slow = route.outer.len() - 1;
    let mut row = rows.start;
    let room = tile.0.as_mut_ptr().cast::<u8>();
    while row < rows.end {
        let front = Front::at(route, from, row, bases);
        let count = front.left_in_stretch().min(rows.end - row);
        let first = (row - rows.start) as usize;
        strips(&route.ends[0].loops, part.clone(), |strip| {
            let stride = front.stride(route, strip.peer, slow + 1);
            // The square's corner: adjacent elements here are adjacent rows of the tile.
            let corner = front.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
            let place = room.wrapping_add((first * tall + (strip.at - part.start) as usize) * elem);
            for k in 0..strip.len as usize {
                prefetch(corner.wrapping_add(k * stride + wide * elem), count as usize * elem);
            }
            // SAFETY: `strip.len` columns of `count` elements are elements of the part the base points into; they go to
            // `count` rows of the tile, each with room for `tall`.
            unsafe {
                V::transpose(place, tall * elem, corner, stride, [count as usize, strip.len as usize], elem)
            };
        });
        row += count;
    }
}

/// Lets a tile go, row by row.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn empty<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    part: Range<u64>,
    bases: &mut [*const u8],
    tile: &Tile,
    sink: &mut S,
) {
    let (_, tall) = extents(route.elem);
    let elem = route.elem;
    let end = &route.ends[0];
    let mut front = Front::at(route, from, rows.start, bases);
    for row in rows.clone() {
        let mut range = part.clone();
        if let Some(clip) = &end.clip {
            let clip = &clip[row as usize];
            range = range.start.max(clip.start)..range.end.min(clip.end);
        }
        let taken = tile.0.as_ptr().cast::<u8>().wrapping_add((row - rows.start) as usize * tall * elem);
        let place = to.wrapping_add(front.to(&end.strides));
        for each in &end.loops {
            let (begin, last) = (range.start.max(each.at), range.end.min(each.at + each.rounds * each.elems));
            // Where a loop is not in order, its stretches lie apart in the destination.
            let mut at = begin;
            while at < last {
                let (to_index, len) = each.place(at);
                let len = len.min(last - at);
                // SAFETY: elements of this row of the tile, to their place in the destination.
                unsafe {
                    sink.open(place.wrapping_add(to_index as usize * elem));
                    sink.push(taken.add((at - part.start) as usize * elem), len as usize * elem);
                }
                at += len;
            }
        }
        if row + 1 < rows.end {
            front.tick(route, from);
        }
    }
}
