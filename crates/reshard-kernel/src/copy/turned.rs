//! The transpose kernel: the destination is contiguous along the fast axis, the sources along the slow axis next to it.
//!
//! Contiguous reads make strided writes, and the other way round. So it goes in three steps, through tiles of a few kilobytes:
//! *collect* some elements along the axis that is fast in the sources, for about thirty positions of the other axis, *turn* the
//! tile in registers, and push its rows to the sink. About thirty columns of the sources are read side by side, each in order:
//! the hardware prefetcher can follow that many streams. Long pieces need no collecting, they are turned where they are.
//! (Large square tiles, the usual way, are half as fast: their columns lie apart by powers of two and evict each other from the
//! caches.)

use super::cursor::Plane;
use super::short::ShortScratch;
use crate::route::{InnerLoop, InnerStretch, Route, Section, Turned};
use crate::simd::{CACHE_LINE, Vector, prefetch, prefetch_write, transpose};
use crate::store::Sink;
use std::ops::Range;

/// Columns of the sources read side by side.
const COLUMN_STREAMS: usize = 32;

/// Bytes of a column that are turned where they are, at most.
const TURNED_BYTES: usize = 2 * CACHE_LINE;

/// Returns the number of columns of a tile: its rows have at least a line.
pub fn columns_of(elem: usize) -> usize {
    let streams = if elem <= 8 { COLUMN_STREAMS } else { COLUMN_STREAMS / 2 };
    streams.max(CACHE_LINE / elem)
}

/// Returns the bytes from one row of a tile to the next.
fn tile_pitch(elem: usize) -> usize {
    (columns_of(elem) * elem).next_multiple_of(CACHE_LINE)
}

/// Returns the bytes from one collected column to the next: a line more than it has, so that they do not all map to the same few
/// cache sets.
fn pitch(bytes: usize) -> usize {
    bytes.next_multiple_of(CACHE_LINE) + CACHE_LINE
}

/// Working memory of the transpose kernel.
pub struct TurnScratch {
    /// For each column the address of its position, in the part of each peer along the other axis; and those of the columns that
    /// come next.
    bases: Vec<*const u8>,
    next_bases: Vec<*const u8>,
    /// For each of the first peers along the other axis the byte offset at which it is read first: what is prefetched.
    starts: Vec<usize>,
    /// The columns of the tile that is turned.
    columns: Vec<*const u8>,
    collected: Vec<ScratchLine>,
    tile: Vec<ScratchLine>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct ScratchLine(#[allow(dead_code)] [u8; CACHE_LINE]);

/// The sizes of that memory.
#[derive(Clone, Copy, Default)]
pub struct TurnSizes {
    bases: usize,
    starts: usize,
    columns: usize,
    collected_lines: usize,
    tile_lines: usize,
}

impl TurnSizes {
    /// Returns what these sizes and a route need.
    pub fn with(self, route: &Route) -> Self {
        let Some(turned) = &route.turned else { return self };
        let columns = columns_of(route.elem);
        let rows = Turned::most_rows(route.elem).max(TURNED_BYTES / route.elem);
        let collected = if turned.collects() { columns * pitch(turned.section_bytes(route.elem)) } else { 0 };
        Self {
            bases: self.bases.max(columns * turned.peers),
            starts: self.starts.max(turned.peers),
            columns: self.columns.max(columns),
            collected_lines: self.collected_lines.max(collected / CACHE_LINE),
            tile_lines: self.tile_lines.max(rows.max(1) * tile_pitch(route.elem) / CACHE_LINE),
        }
    }

    /// Returns their bytes.
    pub fn bytes(self) -> u64 {
        let pointers = (2 * self.bases + self.starts + self.columns) * size_of::<*const u8>();
        (pointers + (self.collected_lines + self.tile_lines) * CACHE_LINE) as u64
    }
}

impl TurnScratch {
    pub fn new(sizes: TurnSizes) -> Self {
        let lines = |count: usize| vec![ScratchLine([0; CACHE_LINE]); count];
        Self {
            bases: vec![std::ptr::null(); sizes.bases],
            next_bases: vec![std::ptr::null(); sizes.bases],
            starts: vec![0; sizes.starts],
            columns: vec![std::ptr::null(); sizes.columns],
            collected: lines(sizes.collected_lines),
            tile: lines(sizes.tile_lines),
        }
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

/// Iterates over the stretches of some loops that overlap a range of positions, clipped to it.
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
        let deep = loops.first().map_or(0, |one| {
            let begin = range.start.saturating_sub(one.at + round * one.elems);
            one.stretches.partition_point(|s| s.stretch.at + s.stretch.len <= begin)
        });
        Self { loops, round, stretch: deep, range }
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

/// Copies some positions of each of some rows.
///
/// # Safety
/// As for `rows::copy`, for a route with one destination that is turned, and scratch that was made for it.
#[inline(always)]
pub unsafe fn copy<V: Vector, S: Sink<V>>(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    columns: Range<u64>,
    (scratch, short): (&mut TurnScratch, &mut ShortScratch),
    sink: &mut S,
) {
    let Some(turned) = &route.turned else { return };
    short.ahead = 0;
    if columns.is_empty() {
        return;
    }
    let mut here = Part::first(route, to, turned, rows.start, rows.end, &columns);
    find_starts(turned, route.elem, here.range.start, &mut scratch.starts);
    locate_columns(route, turned, &here, from, &mut scratch.bases);
    loop {
        let next = here.next(route, to, turned, rows.end, &columns);
        if let Some(next) = &next {
            locate_columns(route, turned, next, from, &mut scratch.next_bases);
        }
        let short_range =
            |next: &&Part| (next.range.end - next.range.start) as usize * route.elem <= MAX_PREFETCHED_RANGE;
        if let Some(next) = next.as_ref().filter(short_range) {
            let bytes = ((next.range.end - next.range.start) as usize * route.elem / turned.peers
                + CACHE_LINE)
                .min(PREFETCHED_BYTES);
            let columns = (next.columns.end - next.columns.start) as usize;
            for bases in scratch.next_bases.chunks_exact(turned.peers).take(columns) {
                for (base, start) in bases.iter().zip(&scratch.starts) {
                    prefetch(base.wrapping_add(*start), bytes);
                }
            }
        }
        // SAFETY: by the caller's contract.
        unsafe { Tile { route, turned, to, part: &here }.copy::<V, S>(scratch, short, sink) };
        std::mem::swap(&mut scratch.bases, &mut scratch.next_bases);
        let Some(next) = next else { return };
        here = next;
    }
}

/// Sections are collected if at least one of so many positions is wanted; all, if pieces have so many on average.
const MIN_COLLECTED_SHARE: u64 = 3;
const LONG_COLLECTED_PIECE: u64 = 8;

/// Bytes of each column and peer that are prefetched before a part is copied.
const PREFETCHED_BYTES: usize = 4 * CACHE_LINE;

/// Columns of more bytes are left to the hardware prefetcher.
const MAX_PREFETCHED_RANGE: usize = 2048;

/// Finds the byte offset at which each peer is read first, from a position on.
fn find_starts(turned: &Turned, elem: usize, first: u64, starts: &mut [usize]) {
    starts.fill(0);
    let mut left = turned.peers;
    let mut seen = [false; 64];
    for strip in Strips::new(&turned.loops, first..turned.elems).take(256) {
        let known = seen.get_mut(strip.peer).map(|seen| std::mem::replace(seen, true));
        if known == Some(false) {
            starts[strip.peer] = strip.from as usize * elem;
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// Some columns of some rows of one plane.
struct Part {
    plane: Plane,
    /// The first row of the plane.
    row: u64,
    /// Positions along the axis that is fast in the sources.
    range: Range<u64>,
    /// Positions along the fast axis.
    columns: Range<u64>,
    /// The end of those of all parts.
    columns_end: u64,
}

impl Part {
    /// Returns the first part of the rows from `row` on, of these columns.
    fn first(route: &Route, to: *mut u8, turned: &Turned, row: u64, end: u64, all: &Range<u64>) -> Self {
        let (number, first) = (row / turned.elems, row % turned.elems);
        // The first part ends at a cache line boundary of the destination, so that the others are whole lines.
        let columns = match route.elems_to_line(to, row, all.start) {
            0 => columns_of(route.elem) as u64,
            ahead => ahead,
        };
        Self {
            plane: Plane::at(route, number),
            row: row - first,
            range: first..turned.elems.min(first + end - row),
            columns: all.start..all.end.min(all.start + columns),
            columns_end: all.end,
        }
    }

    /// Returns the part that comes next in the rows up to `end`, of these columns.
    fn next(&self, route: &Route, to: *mut u8, turned: &Turned, end: u64, all: &Range<u64>) -> Option<Self> {
        let begin = self.columns.end;
        if begin < all.end {
            let columns = begin..all.end.min(begin + columns_of(route.elem) as u64);
            return Some(Self { columns, range: self.range.clone(), ..*self });
        }
        let row = self.row + turned.elems;
        (row < end).then(|| Self::first(route, to, turned, row, end, all))
    }
}

/// Finds the address of each column of a part, in the part of each peer along the other axis.
/// Not inlined into kernels: compiled for their levels, its loops would be made of gathers.
#[inline(never)]
fn locate_columns(route: &Route, turned: &Turned, part: &Part, from: &[*const u8], bases: &mut [*const u8]) {
    let fast = route.outer.len();
    let peer_stride = route.outer[fast - 1].peer_stride;
    for strip in Strips::new(&route.destinations[0].loops, part.columns.clone()) {
        let first = (strip.at - part.columns.start) as usize * turned.peers;
        for peer in 0..turned.peers {
            let source = &route.parts[part.plane.first + peer * peer_stride + strip.peer];
            // Combinations of peers that no destination has are never read.
            let base = from.get(source.source as usize).copied().unwrap_or(std::ptr::null());
            let stride = source.strides[fast];
            let mut address = base
                .wrapping_add(part.plane.from(&source.strides))
                .wrapping_add(strip.from as usize * stride);
            for column in 0..strip.len as usize {
                bases[first + column * turned.peers + peer] = address;
                address = address.wrapping_add(stride);
            }
        }
    }
}

/// Finds the columns of a strip, and prefetches those of the next one.
/// Not inlined into kernels: compiled for their levels, the loop would be made of gathers.
#[inline(never)]
fn find_columns(
    columns: &mut [*const u8],
    bases: std::slice::ChunksExact<'_, *const u8>,
    here: Strip,
    ahead: Option<Strip>,
    elem: usize,
) {
    for (column, bases) in columns.iter_mut().zip(bases) {
        *column = bases[here.peer].wrapping_add(here.from as usize * elem);
        if let Some(ahead) = &ahead {
            let bytes = ahead.len as usize * elem + CACHE_LINE - 1;
            prefetch(bases[ahead.peer].wrapping_add(ahead.from as usize * elem), bytes);
        }
    }
}

/// Where a part goes.
struct Tile<'a> {
    route: &'a Route,
    turned: &'a Turned,
    to: *mut u8,
    part: &'a Part,
}

impl Tile<'_> {
    /// Copies the part.
    ///
    /// # Safety
    /// As for [`copy`]; the columns were located.
    #[inline(always)]
    unsafe fn copy<V: Vector, S: Sink<V>>(
        &mut self,
        scratch: &mut TurnScratch,
        short: &mut ShortScratch,
        sink: &mut S,
    ) {
        let range = &self.part.range;
        for each in &self.turned.loops {
            let end = each.at + each.rounds * each.elems;
            let inside = range.start.max(each.at)..range.end.min(end);
            if inside.is_empty() {
                continue;
            }
            // SAFETY: positions of this loop; by the caller's contract.
            unsafe {
                match &each.short {
                    Some(_) => self.collect::<V, S>(each, inside, scratch, short, sink),
                    None => self.in_place::<V, S>(each, inside, scratch, sink),
                }
            }
        }
    }

    /// Copies some positions of a loop of short pieces: sections are collected, also those that are in the range only in part; but
    /// a few positions are turned where they are.
    #[inline(always)]
    unsafe fn collect<V: Vector, S: Sink<V>>(
        &mut self,
        each: &InnerLoop,
        range: Range<u64>,
        scratch: &mut TurnScratch,
        short: &mut ShortScratch,
        sink: &mut S,
    ) {
        let Some(pieces) = &each.short else { return };
        let columns = (self.part.columns.end - self.part.columns.start) as usize;
        let long = each.elems >= LONG_COLLECTED_PIECE * each.stretches.len() as u64;
        let share = if long { 1 } else { MIN_COLLECTED_SHARE };
        let mut at = range.start;
        while at < range.end {
            // The section of the next position, and the round its batch begins with.
            let (round, deep) = ((at - each.at) / each.elems, (at - each.at) % each.elems);
            let (round, section) = match pieces.rounds {
                1 => (round, pieces.sections.partition_point(|section| section.at + section.elems <= deep)),
                several => (round.min(each.rounds - several), 0),
            };
            let Section { at: begin, elems: rows, .. } = pieces.sections[section];
            let first = each.at + round * each.elems + begin;
            let end = range.end.min(first + rows);
            if (end - at) * share < rows {
                // SAFETY: by the caller's contract.
                unsafe { self.in_place::<V, S>(each, at..end, scratch, sink) };
                at = end;
                continue;
            }
            let bytes = pitch(self.turned.section_bytes(self.route.elem));
            for column in 0..columns {
                let bases = &scratch.bases[column * self.turned.peers..][..self.turned.peers];
                let collected = scratch.collected.as_mut_ptr().cast::<u8>().wrapping_add(column * bytes);
                scratch.columns[column] = collected;
                // SAFETY: the sources have the elements of this section; a collected column has room for it.
                unsafe { pieces.collect(bases, round, section, short, collected) };
            }
            // SAFETY: each column has the rows of the section.
            unsafe { self.turn::<V, S>(first, (end - first) as usize, (at - first) as usize, scratch, sink) };
            at = end;
        }
    }

    /// Copies some positions of a loop, from where they are.
    #[inline(always)]
    unsafe fn in_place<V: Vector, S: Sink<V>>(
        &mut self,
        each: &InnerLoop,
        range: Range<u64>,
        scratch: &mut TurnScratch,
        sink: &mut S,
    ) {
        let elem = self.route.elem;
        let most = (TURNED_BYTES / elem).max(1) as u64;
        let columns = (self.part.columns.end - self.part.columns.start) as usize;
        let chunks = |strip: Strip| {
            let chunk = move |done: u64| Strip {
                from: strip.from + done,
                at: strip.at + done,
                len: (strip.len - done).min(most),
                ..strip
            };
            (0..strip.len).step_by(most as usize).map(chunk)
        };
        let mut chunks = Strips::new(std::slice::from_ref(each), range).flat_map(chunks);
        let mut chunk = chunks.next();
        while let Some(here) = chunk {
            // The hardware prefetcher does not know where the next piece is.
            let next = chunks.next();
            let ahead = next.filter(|next| (next.peer, next.from) != (here.peer, here.from + here.len));
            let bases = scratch.bases.chunks_exact(self.turned.peers);
            find_columns(&mut scratch.columns[..columns], bases, here, ahead, elem);
            // SAFETY: these are elements of the strip, in each column.
            unsafe { self.turn::<V, S>(here.at, here.len as usize, 0, scratch, sink) };
            chunk = next;
        }
    }

    /// Turns the columns, `rows` elements each, and pushes them as rows from position `first` on, but for the first `done`.
    #[inline(always)]
    unsafe fn turn<V: Vector, S: Sink<V>>(
        &mut self,
        first: u64,
        rows: usize,
        done: usize,
        scratch: &mut TurnScratch,
        sink: &mut S,
    ) {
        let Self { route, turned, to, part: Part { plane, row, columns: part, columns_end, .. } } = self;
        let destination = &route.destinations[0];
        let (elem, fast) = (route.elem, route.outer.len());
        let len = (part.end - part.start) as usize;
        let to_stride = destination.strides[fast - 1];
        let row_start = to
            .wrapping_add(plane.to(&destination.strides))
            .wrapping_add((turned.to[0] + first) as usize * to_stride)
            .wrapping_add((turned.to[1] + part.start) as usize * elem);
        let lines = |bytes: usize| bytes.is_multiple_of(CACHE_LINE);
        if S::NON_TEMPORAL
            && (V::SQUARE_ELEM_BYTES, done) == (elem, 0)
            && rows.is_multiple_of(8)
            && lines(len * elem)
            && lines(to_stride)
            && lines(row_start.addr())
            && destination.clip.is_none()
        {
            // Squares that are whole lines in source and destination need no tile.
            for (k, columns) in scratch.columns[..len].as_chunks::<8>().0.iter().enumerate() {
                for row in (0..rows).step_by(8) {
                    let to = row_start.wrapping_add(row * to_stride + k * CACHE_LINE);
                    // SAFETY: each column has these rows; the rows of the destination are aligned lines.
                    unsafe { V::stream_square(to, to_stride, columns, row * elem) };
                }
            }
            return;
        }
        let pitch = tile_pitch(elem);
        let tile = scratch.tile.as_mut_ptr().cast::<u8>();
        // SAFETY: each column has these rows; the tile has room for as many rows of that many columns.
        unsafe { transpose(tile, pitch, &scratch.columns[..len], rows, elem) };
        // The last line of a row that the next part writes in part: its ownership takes long to get, so that begins now.
        let next_end = (len + columns_of(elem)) * elem;
        let another = part.end + columns_of(elem) as u64 <= *columns_end;
        // A copy of the sink, so that its state stays in registers.
        let mut sink_copy = *sink;
        for k in done..rows {
            let (taken, row_start) = (tile.wrapping_add(k * pitch), row_start.wrapping_add(k * to_stride));
            let (mut skipped, mut end) = (0, len);
            if let Some(clip) = &destination.clip {
                let clip = &clip[(*row + first) as usize + k];
                skipped = clip.start.clamp(part.start, part.end) - part.start;
                end = (clip.end.clamp(part.start, part.end) - part.start) as usize;
            }
            let skipped = skipped as usize;
            if skipped >= end {
                continue;
            }
            // SAFETY: this row of the tile, to its place in the destination.
            unsafe {
                sink_copy.open(row_start.wrapping_add(skipped * elem));
                sink_copy.push(taken.add(skipped * elem), (end - skipped) * elem);
            }
            if another && !lines(row_start.addr().wrapping_add(next_end)) {
                prefetch_write(row_start.wrapping_add(next_end - CACHE_LINE), CACHE_LINE);
            }
        }
        *sink = sink_copy;
    }
}
