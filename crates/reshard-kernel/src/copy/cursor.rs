//! Cursors over the slow axes: they advance from row to row and know where each begins in sources and destinations.

use crate::route::{Destination, LocalSource, MAX_DESTINATIONS, OuterAxis, PieceList, Route, SourcePart};
use reshard_plan::{MAX_DIMS, Stretch, Track};

/// A position on the track of one slow axis.
#[derive(Clone, Copy)]
struct AxisCursor {
    /// Loop of the track, round of the loop, stretch of the round.
    index: usize,
    round: u64,
    stretch: usize,
    /// That stretch in absolute indices.
    here: Stretch,
    /// Offset in the stretch, in elements.
    within: u64,
}

impl AxisCursor {
    /// Returns a cursor at a position, which must be below the track's number of elements.
    fn at(outer: &OuterAxis, position: u64) -> Self {
        let track = &outer.track;
        let (index, round) = track.find(position).expect("the position lies on the track");
        let each = &track.loops()[index];
        let deep = position - each.at - round * each.elems;
        let stretch = each.stretches.partition_point(|stretch| stretch.at <= deep) - 1;
        let here = each.in_round(&each.stretches[stretch], round);
        Self { index, round, stretch, here, within: position - here.at }
    }

    /// Returns the source index of this position on another track with the same loops and stretches.
    fn index_on(&self, track: &Track) -> u64 {
        let each = &track.loops()[self.index];
        each.in_round(&each.stretches[self.stretch], self.round).from + self.within
    }

    /// Advances by one position; after the last it wraps to the first.
    #[inline(always)]
    fn advance(&mut self, outer: &OuterAxis) -> AxisStep {
        self.within += 1;
        if self.within < self.here.len {
            return AxisStep::Within;
        }
        self.next_stretch(outer)
    }

    fn next_stretch(&mut self, outer: &OuterAxis) -> AxisStep {
        self.within = 0;
        let loops = outer.track.loops();
        self.stretch += 1;
        let mut step = AxisStep::Next;
        if self.stretch == loops[self.index].stretches.len() {
            self.stretch = 0;
            self.round += 1;
            if self.round == loops[self.index].rounds {
                self.round = 0;
                self.index += 1;
                if self.index == loops.len() {
                    self.index = 0;
                    step = AxisStep::Around;
                }
            }
        }
        let each = &loops[self.index];
        self.here = each.in_round(&each.stretches[self.stretch], self.round);
        step
    }
}

/// Where [`AxisCursor::advance`] led to.
#[derive(PartialEq, Eq)]
enum AxisStep {
    /// The next element of the same stretch.
    Within,
    /// Another stretch.
    Next,
    /// Wrapped to the first element.
    Around,
}

/// Where [`RowCursor::advance`] led to.
#[derive(PartialEq, Eq)]
pub enum Advance {
    /// The next index of the last slow axis, in sources and destinations.
    Next,
    /// Any other row: all addresses were computed anew.
    Elsewhere,
}

/// A position on each slow axis but the last.
#[derive(Clone, Copy)]
pub struct Plane {
    axes: [Option<AxisCursor>; MAX_DIMS],
    /// Index in the route's parts of those with the first peer along the last slow axis and the fast one.
    pub first: usize,
}

impl Plane {
    /// Returns plane number `number` of a route.
    pub fn at(route: &Route, number: u64) -> Self {
        let mut axes = [None; MAX_DIMS];
        let (mut number, mut first) = (number, 0);
        let slow = route.outer.len() - 1;
        for (k, outer) in route.outer[..slow].iter().enumerate().rev() {
            let elems = outer.track.elems();
            let axis = AxisCursor::at(outer, number % elems);
            first += axis.here.peer as usize * outer.peer_stride;
            axes[k] = Some(axis);
            number /= elems;
        }
        Self { axes, first }
    }

    /// Returns the byte offset of the plane in a source with these strides.
    #[inline(always)]
    pub fn from(&self, strides: &[usize; MAX_DIMS]) -> usize {
        let of_axis = |(axis, stride): (&AxisCursor, &usize)| {
            ((axis.here.from + axis.within) as usize).wrapping_mul(*stride)
        };
        self.axes.iter().map_while(Option::as_ref).zip(strides).map(of_axis).sum()
    }

    /// Returns the byte offset of the plane in a destination with these strides.
    #[inline(always)]
    pub fn to(&self, strides: &[usize; MAX_DIMS]) -> usize {
        let of_axis = |(axis, stride): (&AxisCursor, &usize)| {
            ((axis.here.to + axis.within) as usize).wrapping_mul(*stride)
        };
        self.axes.iter().map_while(Option::as_ref).zip(strides).map(of_axis).sum()
    }
}

/// A row: a position on each slow axis, and the row's address in the part of each peer of the fast axis.
pub struct RowCursor<'a> {
    axes: [Option<AxisCursor>; MAX_DIMS],
    bases: &'a mut [*const u8],
    /// Index of the first peer's part in the route's parts.
    first: usize,
}

impl<'a> RowCursor<'a> {
    /// Returns a cursor at row number `row`. `bases` has room for all peers of the route.
    pub fn at(route: &Route, from: &[*const u8], row: u64, bases: &'a mut [*const u8]) -> Self {
        let mut axes = [None; MAX_DIMS];
        let mut row = row;
        for (k, outer) in route.outer.iter().enumerate().rev() {
            let elems = outer.track.elems();
            axes[k] = Some(AxisCursor::at(outer, row % elems));
            row /= elems;
        }
        let mut cursor = Self { axes, bases, first: 0 };
        cursor.locate(route, from);
        cursor
    }

    fn axis(&self, k: usize) -> &AxisCursor {
        self.axes[k].as_ref().expect("a cursor for each slow axis")
    }

    /// Computes the row's address in the part of each peer.
    fn locate(&mut self, route: &Route, from: &[*const u8]) {
        let of_axis = |(k, outer): (usize, &OuterAxis)| self.axis(k).here.peer as usize * outer.peer_stride;
        self.first = route.outer.iter().enumerate().map(of_axis).sum();
        for peer in 0..route.peers {
            let part = &route.parts[self.first + peer];
            let index = |k: usize| (self.axis(k).here.from + self.axis(k).within) as usize;
            let ahead: usize = (0..route.outer.len()).map(|k| index(k) * part.strides[k]).sum();
            // Combinations of peers that no destination has are never read.
            let source = from.get(part.source as usize).copied().unwrap_or(std::ptr::null());
            self.bases[peer] = source.wrapping_add(ahead);
        }
        if let Some(local) = self.local(route) {
            let part = &route.parts[local.first + local.peer];
            let index = |(k, outer): (usize, &OuterAxis)| {
                let from = outer.local.as_ref().map_or(0, |track| self.axis(k).index_on(track));
                from as usize * part.strides[k]
            };
            let ahead: usize = route.outer.iter().enumerate().map(index).sum();
            self.bases[local.peer] = from[part.source as usize].wrapping_add(ahead);
        }
    }

    /// Returns the local source, read in place, if this row takes from it.
    #[inline(always)]
    fn local<'r>(&self, route: &'r Route) -> Option<&'r LocalSource> {
        route.local.as_ref().filter(|local| local.first == self.first)
    }

    /// Returns the destinations of this row, their piece list if there is one, and whether the row takes from the local
    /// source.
    #[inline(always)]
    pub fn destinations<'r>(&self, route: &'r Route) -> (&'r [Destination], Option<&'r PieceList>, bool) {
        match self.local(route) {
            Some(local) => (&local.destinations, local.pieces.as_ref(), true),
            None => (&route.destinations, route.pieces.as_ref(), false),
        }
    }

    /// Advances by `count` rows, fewer than [`RowCursor::left_in_stretch`].
    #[inline(always)]
    pub fn step(&mut self, route: &Route, count: u64) {
        if let Some(last) = route.outer.len().checked_sub(1)
            && let Some(axis) = &mut self.axes[last]
        {
            axis.within += count;
            advance_bases(self.bases, &route.parts[self.first..][..route.peers], last, count);
        }
    }

    /// Advances to the next row.
    #[inline(always)]
    pub fn advance(&mut self, route: &Route, from: &[*const u8]) -> Advance {
        let slow = route.outer.len();
        for k in (0..slow).rev() {
            let Some(axis) = &mut self.axes[k] else { continue };
            match axis.advance(&route.outer[k]) {
                AxisStep::Within if k + 1 == slow => {
                    advance_bases(self.bases, &route.parts[self.first..][..route.peers], k, 1);
                    return Advance::Next;
                }
                AxisStep::Around => {}
                _ => break,
            }
        }
        self.locate(route, from);
        Advance::Elsewhere
    }

    /// Computes the address of the row in each destination of the route.
    pub fn locate_row_starts(
        &self,
        route: &Route,
        to: &[*mut u8],
        row_starts: &mut [*mut u8; MAX_DESTINATIONS],
    ) {
        for (row_start, destination) in row_starts.iter_mut().zip(&route.destinations) {
            *row_start = to[destination.target].wrapping_add(self.to(&destination.strides));
        }
    }

    /// Advances the row's address in each destination by `count` rows along the last slow axis.
    #[inline(always)]
    pub fn advance_row_starts(
        &self,
        route: &Route,
        count: u64,
        row_starts: &mut [*mut u8; MAX_DESTINATIONS],
    ) {
        let Some(last) = route.outer.len().checked_sub(1) else { return };
        match &route.destinations[..] {
            [only] => {
                row_starts[0] = row_starts[0].wrapping_add(only.strides[last].wrapping_mul(count as usize));
            }
            several => advance_several(row_starts, several, last, count),
        }
    }

    /// Returns the row's address in the part of each peer, at index 0 of the fast axis.
    pub fn bases(&self) -> &[*const u8] {
        self.bases
    }

    /// Returns the number of rows, this one included, left in the stretch of the last slow axis; `u64::MAX` without slow
    /// axes.
    pub fn left_in_stretch(&self) -> u64 {
        let last = self.axes.iter().flatten().last();
        last.map_or(u64::MAX, |axis| axis.here.len - axis.within)
    }

    /// Returns the stride in bytes of an axis (slow ones in order, then the fast one) in the part of a peer.
    pub fn stride(&self, route: &Route, peer: usize, axis: usize) -> usize {
        route.parts[self.first + peer].strides[axis]
    }

    /// Returns the bytes from a row to the next of its stretch, in the part of a peer and in a destination.
    pub fn strides(&self, route: &Route, destination: &Destination, peer: usize) -> [usize; 2] {
        let last = route.outer.len().saturating_sub(1);
        [self.stride(route, peer, last), destination.strides[last]]
    }

    /// Returns the byte offset of the row in a destination with these strides.
    #[inline(always)]
    pub fn to(&self, strides: &[usize; MAX_DIMS]) -> usize {
        let of_axis = |(axis, stride): (&Option<AxisCursor>, &usize)| {
            axis.as_ref().map_or(0, |axis| (axis.here.to + axis.within) as usize * stride)
        };
        self.axes.iter().zip(strides).map(of_axis).sum()
    }
}

/// Advances the address of each peer by `count` rows along an axis.
#[inline(always)]
fn advance_bases(bases: &mut [*const u8], parts: &[SourcePart], axis: usize, count: u64) {
    match parts {
        [only] => bases[0] = bases[0].wrapping_add(only.strides[axis].wrapping_mul(count as usize)),
        several => advance_several_bases(bases, several, axis, count),
    }
}

/// As [`advance_bases`]. Not inlined into kernels: compiled for their levels, the loop would be made of gathers.
#[inline(never)]
fn advance_several_bases(bases: &mut [*const u8], parts: &[SourcePart], axis: usize, count: u64) {
    for (base, part) in bases.iter_mut().zip(parts) {
        *base = base.wrapping_add(part.strides[axis].wrapping_mul(count as usize));
    }
}

/// Advances the address of a row in each of several destinations by `count` rows along an axis. Not inlined into kernels, as
/// [`advance_several_bases`] is not.
#[inline(never)]
fn advance_several(row_starts: &mut [*mut u8], destinations: &[Destination], axis: usize, count: u64) {
    for (row_start, destination) in row_starts.iter_mut().zip(destinations) {
        *row_start = row_start.wrapping_add(destination.strides[axis].wrapping_mul(count as usize));
    }
}
