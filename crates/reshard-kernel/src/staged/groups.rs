//! Groups of receivers that are packed together, and with them the rows a rank sends itself.
//!
//! Gaps cost a third of the read bandwidth: a row of the source should be read once, from start to end. So receivers that
//! take from the same rows are packed in one pass. If whole rows of this rank's own destination come from itself, they lie
//! between what it packs, and are written in the same pass.

use super::buffers::{StagingLayout, StagingTuning};
use super::{Assembly, ChunkSource, PackSide, SendSide};
use crate::route::{Kernel, MAX_DESTINATIONS, Route, by_message};
use reshard_plan::{Plan, Target, Track};
use std::ops::Range;
use std::sync::Arc;

/// Receivers that differ only along the fast axis: they are packed together, so that each row of the source is read once.
pub struct ReceiverGroup {
    /// Indices into [`super::StagedCopy::outgoing`].
    pub members: Vec<usize>,
    /// For each side, the route into the buffers of all members; empty if there is only one member.
    pub(crate) together: Vec<Route>,
    /// For each side, that route with the rank's own destination as one more, for rows that this rank keeps.
    pub(crate) kept: Vec<Option<KeptTogether>>,
}

/// A route that packs for others and writes what the rank keeps, in one pass.
pub(crate) struct KeptTogether {
    /// Into the staging buffers, and last into the own destination.
    pub route: Route,
    /// Index of the assembly of the own destination.
    pub assembly: usize,
}

/// Rows of a matrix that are read in place and written to the own destination while other rows are packed.
pub(crate) struct KeptRows {
    /// The tracks of the message, but along the fast axis those of the destination.
    tracks: Vec<Arc<Track>>,
    strides: Vec<u64>,
    /// The slow axis, and the destination index of its first position.
    slow: usize,
    first: u64,
    /// Positions of a row.
    row: u64,
}

impl KeptRows {
    /// For whole matrices only: with one slow axis, rows that are consecutive in the message are so in the destination.
    pub fn new(layout: &mut StagingLayout<'_>, target: &Target, place: usize) -> Option<Self> {
        let &[slow, fast] = &layout.order[..] else { return None };
        if target.rows.is_some() {
            return None;
        }
        let mut tracks = layout.packed(target, place);
        tracks[fast] = Arc::new(target.tracks[fast].with_peer(target.peers_at(place)[fast]));
        let first = target.tracks[slow].loops().first()?.stretches.first()?.to;
        let row = target.tracks[fast].elems();
        Some(Self { tracks, strides: target.strides.clone(), slow, first, row })
    }
}

impl Assembly {
    /// True if the rows it reads in place are those that `side` packs.
    fn shares_rows_with(&self, side: &PackSide) -> bool {
        let same = |rows: &KeptRows| Arc::ptr_eq(&rows.tracks[rows.slow], &side.tracks[rows.slow]);
        (self.array, self.first) == (side.array, side.first)
            && side.pack.kernel() == Kernel::Rows
            && self.rows.as_ref().is_some_and(same)
    }

    /// True if the chunk consists only of whole local rows, and they are the rows that `side` packs.
    pub(crate) fn has_only_rows_of(&self, side: &PackSide, at: usize) -> bool {
        let count = |rows: Option<Range<u64>>| rows.map(|rows| rows.end - rows.start);
        let own = self.sources.iter().find(|(location, _)| matches!(location, ChunkSource::Local(_)));
        let (Some(rows), Some((_, own))) = (&self.rows, own) else { return false };
        let (Some(chunk), Some(own)) = (self.chunks.get(at), own.get(at)) else { return false };
        let packed = whole_rows(&side.ranges[at], side.row);
        packed.is_some()
            && packed == whole_rows(own, rows.row)
            && count(packed) == count(whole_rows(chunk, rows.row))
    }

    /// Returns the address at which the chunk's rows would begin, so that packed row `first` becomes the first row of the
    /// chunk.
    pub(crate) fn row_base(&self, target: *mut u8, at: usize, first: u64) -> *mut u8 {
        let Some(rows) = &self.rows else { return std::ptr::null_mut() };
        let begin = rows.first + self.chunks[at].start / rows.row;
        let stride = rows.strides[rows.slow].wrapping_mul(self.elem);
        target.wrapping_add(begin.wrapping_sub(first).wrapping_mul(stride) as usize)
    }
}

/// Groups the receivers whose chunks are the same rows of the same source, in all arrays.
pub(crate) fn group_receivers(
    plan: &Plan,
    outgoing: &[SendSide],
    assemblies: &[Assembly],
    tuning: StagingTuning,
) -> Vec<ReceiverGroup> {
    let mut groups: Vec<ReceiverGroup> = Vec::new();
    for (number, one) in outgoing.iter().enumerate() {
        let fits = |group: &&mut ReceiverGroup| {
            group.members.len() < MAX_DESTINATIONS && same_rows(plan, &outgoing[group.members[0]], one)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.members.push(number),
            None => {
                groups.push(ReceiverGroup { members: vec![number], together: Vec::new(), kept: Vec::new() });
            }
        }
    }
    let layouts: Vec<StagingLayout<'_>> =
        plan.arrays().iter().map(|array| StagingLayout::new(array, tuning)).collect();
    for ReceiverGroup { members, together, kept } in &mut groups {
        for (number, side) in outgoing[members[0]].sides.iter().enumerate() {
            let layout = &layouts[side.array];
            let members = members.iter().map(|&member| &outgoing[member].sides[number]);
            let mut destinations: Vec<_> =
                members.map(|side| (&side.tracks[..], &side.strides[..])).collect();
            if destinations.len() > 1 {
                together.push(layout.pack(&destinations, side.source, false));
            }
            let assembly = assemblies
                .iter()
                .position(|assembly| assembly.shares_rows_with(side))
                .filter(|_| destinations.len() < MAX_DESTINATIONS);
            let rows = assembly.and_then(|assembly| assemblies[assembly].rows.as_ref());
            destinations.extend(rows.map(|rows| (&rows.tracks[..], &rows.strides[..])));
            let route = assembly.map(|assembly| KeptTogether {
                route: layout.pack(&destinations, side.source, true),
                assembly,
            });
            kept.push(route.filter(|kept| kept.route.kernel() == Kernel::Rows));
        }
    }
    groups
}

fn same_rows(plan: &Plan, one: &SendSide, other: &SendSide) -> bool {
    let same = |(one, other): (&PackSide, &PackSide)| {
        let array = &plan.arrays()[one.array];
        let order = by_message(array);
        let slow = &order[..order.len() - 1];
        one.array == other.array
            && one.first == other.first
            && one.ranges.len() == other.ranges.len()
            && one.pack.kernel() == Kernel::Rows
            && other.pack.kernel() == Kernel::Rows
            && slow.iter().all(|&dim| Arc::ptr_eq(&one.tracks[dim], &other.tracks[dim]))
            && one.ranges.iter().zip(&other.ranges).all(|(a, b)| {
                let a = whole_rows(a, one.row);
                a.is_some() && a == whole_rows(b, other.row)
            })
    };
    one.chunks == other.chunks
        && one.sides.len() == other.sides.len()
        && one.sides.iter().zip(&other.sides).all(same)
}

/// Returns the rows of a range of positions; `None` if it begins or ends within a row.
fn whole_rows(range: &Range<u64>, row: u64) -> Option<Range<u64>> {
    let whole = range.start.is_multiple_of(row) && range.end.is_multiple_of(row);
    whole.then(|| range.start / row..range.end / row)
}
