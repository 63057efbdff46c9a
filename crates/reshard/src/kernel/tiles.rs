//! Transposes: the destination is adjacent along the fast axis, the source along the slow axis next to it.
//!
//! Reading along one side jumps on the other, so both are walked in tiles small enough for the first-level cache. A tile
//! is read from as many sources as meet in it, turned by small squares in registers, laid down in the destination's
//! order, and let go row by row into a sink, like any other row.

use super::clock::Front;
use super::route::{Route, RowLoop, RowStretch};
use super::sink::Sink;
use super::vector::{Vector, prefetch};
use std::ops::Range;

/// Bytes a tile reads at a time along the source: some lines.
const WIDE: usize = 1024;

/// Bytes a tile writes at a time along the destination.
const TALL: usize = 2048;

/// Columns turned at a time, while the next as many are asked for.
const FEW: usize = 16;

/// Memory for one tile, in the destination's order.
pub struct Tile(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// Rows and row length of a tile, in elements.
fn extents(elem: usize) -> (usize, usize) {
    ((WIDE / elem).max(1), (TALL / elem).max(1))
}

/// Bytes from one row of a tile to the next: a line more than the row, so that rows do not all want the same few places of
/// the cache.
fn pitch(elem: usize) -> usize {
    (extents(elem).1 * elem).next_multiple_of(64) + 64
}

impl Tile {
    /// Bytes of memory for a route's tiles.
    pub fn bytes(route: &Route) -> usize {
        extents(route.elem).0 * pitch(route.elem)
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

/// The stretches of a row that meet a range of positions, cut to it.
struct Strips<'a> {
    loops: &'a [RowLoop],
    round: u64,
    stretch: usize,
    range: Range<u64>,
}

impl<'a> Strips<'a> {
    fn new(loops: &'a [RowLoop], range: Range<u64>) -> Self {
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
            let Some(RowStretch { stretch, .. }) = one.stretches.get(self.stretch) else {
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
/// As for `rows::copy`, for a route with one end whose kernel is `Tiles` across its last slow axis, and tiles of at least
/// `Tile::bytes`.
#[inline(always)]
pub unsafe fn copy<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    bases: [&mut [*const u8]; 2],
    tiles: &mut [Tile; 2],
    sink: &mut S,
) {
    let (wide, tall) = extents(route.elem);
    let across = route.outer[route.outer.len() - 1].track.elems();
    let height = route.ends[0].elems;
    let [reading, writing] = bases;
    let mut full = (0..0, 0..0);
    let mut row = rows.start;
    while row < rows.end {
        // As many rows as the tile is wide and share all positions but the last.
        let count = (wide as u64).min(rows.end - row).min(across - row % across);
        let mut at = 0;
        while at < height {
            let part = at..height.min(at + tall as u64);
            let [filling, emptying] = &mut *tiles;
            // SAFETY: passed on; a tile has room for `wide` rows of `tall` elements.
            unsafe {
                let mut before = Emptying::new(route, from, to, emptying, full, writing, sink);
                fill::<V, S>(route, from, row..row + count, part.clone(), reading, filling, &mut before);
                before.empty::<V>(u64::MAX);
            }
            tiles.swap(0, 1);
            full = (row..row + count, part.clone());
            at = part.end;
        }
        row += count;
    }
    // SAFETY: passed on.
    unsafe { Emptying::new(route, from, to, &tiles[1], full, writing, sink).empty::<V>(u64::MAX) };
}

/// Reads a tile: the rows' stretches across, times the stretches of the fast axis. Meanwhile the tile before is let go, so
/// that memory is read and written at the same time.
#[inline(always)]
unsafe fn fill<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    rows: Range<u64>,
    part: Range<u64>,
    bases: &mut [*const u8],
    tile: &mut Tile,
    before: &mut Emptying<'_, S>,
) {
    let elem = route.elem;
    let fast = route.outer.len();
    let room = tile.0.as_mut_ptr().cast::<u8>();
    // So many rows of the tile before go for each few columns of this one.
    let groups = (part.end - part.start).div_ceil(FEW as u64);
    let pace = (before.rows.end - before.rows.start).div_ceil(groups);
    let mut row = rows.start;
    while row < rows.end {
        let front = Front::at(route, from, row, bases);
        let count = front.left_in_stretch().min(rows.end - row) as usize;
        let first = (row - rows.start) as usize;
        for strip in Strips::new(&route.ends[0].loops, part.clone()) {
            let stride = front.stride(route, strip.peer, fast);
            // Adjacent elements here are adjacent rows of the tile.
            let corner = front.bases()[strip.peer].wrapping_add(strip.from as usize * stride);
            let place = room.wrapping_add(first * pitch(elem) + (strip.at - part.start) as usize * elem);
            let columns = strip.len as usize;
            for begin in (0..columns).step_by(FEW) {
                let few = FEW.min(columns - begin);
                for next in begin + FEW..(begin + 2 * FEW).min(columns) {
                    prefetch(corner.wrapping_add(next * stride), count * elem);
                }
                let (place, corner) = (place.wrapping_add(begin * elem), corner.wrapping_add(begin * stride));
                // SAFETY: these `few` columns of `count` elements are elements of the part the base points into; they go to
                // `count` rows of the tile, each with room for them.
                unsafe {
                    V::transpose(place, pitch(elem), corner, stride, [count, few], elem);
                    before.empty::<V>(pace);
                }
            }
        }
        row += count as u64;
    }
}

/// A tile that is being let go, row by row.
struct Emptying<'a, S> {
    route: &'a Route,
    to: *mut u8,
    tile: &'a Tile,
    /// The rows that are left.
    rows: Range<u64>,
    /// The row that lies first in the tile, and the positions of each row it holds.
    first: u64,
    part: Range<u64>,
    front: Option<Front<'a>>,
    sink: &'a mut S,
}

impl<'a, S> Emptying<'a, S> {
    fn new(
        route: &'a Route,
        from: &[*const u8],
        to: *mut u8,
        tile: &'a Tile,
        (rows, part): (Range<u64>, Range<u64>),
        bases: &'a mut [*const u8],
        sink: &'a mut S,
    ) -> Self {
        let front = (!rows.is_empty()).then(|| Front::at(route, from, rows.start, bases));
        Self { route, to, tile, first: rows.start, rows, part, front, sink }
    }

    /// Lets go of some more rows, at most so many.
    #[inline(always)]
    unsafe fn empty<V: Vector>(&mut self, most: u64)
    where
        S: Sink<V>,
    {
        let Some(front) = &mut self.front else { return };
        let (elem, end) = (self.route.elem, &self.route.ends[0]);
        let stop = self.rows.end.min(self.rows.start.saturating_add(most));
        for row in self.rows.start..stop {
            let mut range = self.part.clone();
            if let Some(clip) = &end.clip {
                let clip = &clip[row as usize];
                range = range.start.max(clip.start)..range.end.min(clip.end);
            }
            let taken =
                self.tile.0.as_ptr().cast::<u8>().wrapping_add((row - self.first) as usize * pitch(elem));
            let place = self.to.wrapping_add(front.to(&end.strides));
            for each in &end.loops {
                let mut at = range.start.max(each.at);
                let last = range.end.min(each.at + each.rounds * each.elems);
                // Where a loop is not in order, its stretches lie apart in the destination.
                while at < last {
                    let (index, len) = each.place(at);
                    let len = len.min(last - at);
                    // SAFETY: elements of this row of the tile, to their place in the destination.
                    unsafe {
                        self.sink.open(place.wrapping_add(index as usize * elem));
                        self.sink
                            .push(taken.add((at - self.part.start) as usize * elem), len as usize * elem);
                    }
                    at += len;
                }
            }
            if row + 1 < self.rows.end {
                front.tick_places(self.route);
            }
        }
        self.rows.start = stop;
    }
}
