//! Walks the slow axes: from row to row, knowing where each begins on both sides.

use crate::route::{Destination, LocalSource, MOST_ENDS, OuterAxis, PieceList, Route};
use reshard_plan::{MAX_DIMS, Stretch, Track};

/// Where on a track one stands: a stretch in absolute indices, and how deep in it.
#[derive(Clone, Copy)]
struct AxisCursor {
    index: usize,
    round: u64,
    stretch: usize,
    /// The stretch in its round, and how many of its elements are behind.
    here: Stretch,
    within: u64,
}

impl AxisCursor {
    /// Stands at a position, which must be below the track's number of elements.
    fn at(outer: &OuterAxis, position: u64) -> Self {
        let track = &outer.track;
        let (index, round) = track.find(position).expect("the position lies on the track");
        let each = &track.loops()[index];
        let deep = position - each.at - round * each.elems;
        let stretch = each.stretches.partition_point(|stretch| stretch.at <= deep) - 1;
        let here = each.in_round(&each.stretches[stretch], round);
        Self { index, round, stretch, here, within: position - here.at }
    }

    /// The index at the source on a track with the very same loops and stretches.
    fn index_on(&self, track: &Track) -> u64 {
        let each = &track.loops()[self.index];
        each.in_round(&each.stretches[self.stretch], self.round).from + self.within
    }

    /// One further, from the end back to the beginning.
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

/// What one step along a track led to.
#[derive(PartialEq, Eq)]
enum AxisStep {
    /// The same stretch.
    Within,
    /// Another stretch.
    Next,
    /// The beginning.
    Around,
}

/// Where a tick led to.
#[derive(PartialEq, Eq)]
pub enum Advance {
    /// The next index of the last slow axis, on both sides.
    Next,
    /// Anywhere.
    Elsewhere,
}

/// A row: a position of each slow axis, and where it begins in the part of each peer of the fast axis.
pub struct RowCursor<'a> {
    stands: [Option<AxisCursor>; MAX_DIMS],
    bases: &'a mut [*const u8],
    /// Index into the route's parts of the first peer.
    first: usize,
}

impl<'a> RowCursor<'a> {
    /// Stands at row number `row`. `bases` has room for all peers of the route.
    pub fn at(route: &Route, from: &[*const u8], row: u64, bases: &'a mut [*const u8]) -> Self {
        let mut stands = [None; MAX_DIMS];
        let mut row = row;
        for (k, outer) in route.outer.iter().enumerate().rev() {
            let elems = outer.track.elems();
            stands[k] = Some(AxisCursor::at(outer, row % elems));
            row /= elems;
        }
        let mut front = Self { stands, bases, first: 0 };
        front.find(route, from);
        front
    }

    fn stand(&self, k: usize) -> &AxisCursor {
        self.stands[k].as_ref().expect("a stand for each slow axis")
    }

    /// The beginnings of the row, all anew.
    fn find(&mut self, route: &Route, from: &[*const u8]) {
        let of_axis = |(k, outer): (usize, &OuterAxis)| self.stand(k).here.peer as usize * outer.peer_stride;
        self.first = route.outer.iter().enumerate().map(of_axis).sum();
        for peer in 0..route.peers {
            let part = &route.parts[self.first + peer];
            let index = |k: usize| (self.stand(k).here.from + self.stand(k).within) as usize;
            let ahead: usize = (0..route.outer.len()).map(|k| index(k) * part.strides[k]).sum();
            // Combinations of peers that no end has are never read from.
            let source = from.get(part.source as usize).copied().unwrap_or(std::ptr::null());
            self.bases[peer] = source.wrapping_add(ahead);
        }
        if let Some(own) = self.own(route) {
            let part = &route.parts[own.first + own.peer];
            let index = |(k, outer): (usize, &OuterAxis)| {
                let from = outer.own.as_ref().map_or(0, |track| self.stand(k).index_on(track));
                from as usize * part.strides[k]
            };
            let ahead: usize = route.outer.iter().enumerate().map(index).sum();
            self.bases[own.peer] = from[part.source as usize].wrapping_add(ahead);
        }
    }

    /// The source that is read where it lies, if this row takes from it.
    #[inline(always)]
    fn own<'r>(&self, route: &'r Route) -> Option<&'r LocalSource> {
        route.own.as_ref().filter(|own| own.first == self.first)
    }

    /// The ends of this row, all of them as one list if there is one, and whether it takes from a source that is read where
    /// it lies.
    #[inline(always)]
    pub fn ends<'r>(&self, route: &'r Route) -> (&'r [Destination], Option<&'r PieceList>, bool) {
        match self.own(route) {
            Some(own) => (&own.ends, own.sweep.as_ref(), true),
            None => (&route.ends, route.sweep.as_ref(), false),
        }
    }

    /// So many rows further, which must be fewer than are left in the stretch: see [`RowCursor::left_in_stretch`].
    #[inline(always)]
    pub fn step(&mut self, route: &Route, count: u64) {
        if let Some(last) = route.outer.len().checked_sub(1)
            && let Some(stand) = &mut self.stands[last]
        {
            stand.within += count;
            for (base, part) in self.bases.iter_mut().zip(&route.parts[self.first..][..route.peers]) {
                *base = base.wrapping_add(part.strides[last].wrapping_mul(count as usize));
            }
        }
    }

    /// So many rows further, at least one and no more than are left in the stretch.
    #[inline(always)]
    pub fn skip(&mut self, route: &Route, from: &[*const u8], count: u64) {
        self.step(route, count - 1);
        self.tick(route, from);
    }

    /// The next row.
    #[inline(always)]
    pub fn tick(&mut self, route: &Route, from: &[*const u8]) -> Advance {
        let slow = route.outer.len();
        for k in (0..slow).rev() {
            let Some(stand) = &mut self.stands[k] else { continue };
            match stand.advance(&route.outer[k]) {
                AxisStep::Within if k + 1 == slow => {
                    for (peer, base) in self.bases.iter_mut().enumerate().take(route.peers) {
                        *base = base.wrapping_add(route.parts[self.first + peer].strides[k]);
                    }
                    return Advance::Next;
                }
                AxisStep::Around => {}
                _ => break,
            }
        }
        self.find(route, from);
        Advance::Elsewhere
    }

    /// Where the row begins in each end of the route.
    pub fn find_places(&self, route: &Route, to: &[*mut u8], places: &mut [*mut u8; MOST_ENDS]) {
        for (place, end) in places.iter_mut().zip(&route.ends) {
            *place = to[end.target].wrapping_add(self.to(&end.strides));
        }
    }

    /// The same so many rows further, in the same stretch or one that goes on.
    #[inline(always)]
    pub fn next_places(&self, route: &Route, count: u64, places: &mut [*mut u8; MOST_ENDS]) {
        let Some(last) = route.outer.len().checked_sub(1) else { return };
        let further = |place: *mut u8, end: &Destination| {
            place.wrapping_add(end.strides[last].wrapping_mul(count as usize))
        };
        if let [only] = &route.ends[..] {
            // As one of many, it would have to be fetched back out of a vector.
            places[0] = further(places[0], only);
            return;
        }
        for (place, end) in places.iter_mut().zip(&route.ends) {
            *place = further(*place, end);
        }
    }

    /// Where the row begins in the part of each peer of the fast axis, at index 0 of that axis.
    pub fn bases(&self) -> &[*const u8] {
        self.bases
    }

    /// Rows from here on that lie in the same stretch of the last slow axis; all there are without slow axes.
    pub fn left_in_stretch(&self) -> u64 {
        let last = self.stands.iter().flatten().last();
        last.map_or(u64::MAX, |stand| stand.here.len - stand.within)
    }

    /// Bytes from one index to the next in the part of a peer, along an axis (slow ones in order, then the fast one).
    pub fn stride(&self, route: &Route, peer: usize, axis: usize) -> usize {
        route.parts[self.first + peer].strides[axis]
    }

    /// Bytes from a row to the next of the stretch, in the part of a peer and in an end.
    pub fn strides(&self, route: &Route, end: &Destination, peer: usize) -> [usize; 2] {
        let last = route.outer.len().saturating_sub(1);
        [self.stride(route, peer, last), end.strides[last]]
    }

    /// Where the row begins in a destination with these strides, in bytes.
    #[inline(always)]
    pub fn to(&self, strides: &[usize; MAX_DIMS]) -> usize {
        let of_axis = |(stand, stride): (&Option<AxisCursor>, &usize)| {
            stand.as_ref().map_or(0, |stand| (stand.here.to + stand.within) as usize * stride)
        };
        self.stands.iter().zip(strides).map(of_axis).sum()
    }
}
