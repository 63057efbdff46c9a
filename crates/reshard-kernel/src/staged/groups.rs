//! Receivers that are packed for together, and with them what a rank keeps for itself.
//!
//! Gaps cost a third of the speed of reading: a row of the source should be read once, from its beginning to its end. So
//! receivers that take from the same rows are packed for in one go. And where whole rows of this rank's own destination come
//! from itself, they lie between what it packs, and are written in the same go.

use super::buffers::{StagingLayout, StagingTuning};
use super::{Assembly, ChunkSource, PackSide, SendSide};
use crate::route::{Kernel, MOST_ENDS, Route, by_order};
use reshard_plan::{Plan, Target, Track};
use std::ops::Range;
use std::sync::Arc;

/// Receivers that share all but the fast axis: they are packed for together, so that each row of the source is read once.
pub struct ReceiverGroup {
    /// Which of the outgoing.
    pub members: Vec<usize>,
    /// For each array, the way into all their boxes; none if there is only one member.
    pub(crate) together: Vec<Route>,
    /// For each array, the same with one end more, for what this rank keeps of the same rows.
    pub(crate) kept: Vec<Option<KeptTogether>>,
}

/// What a rank packs for others and what it keeps, in one go.
pub(crate) struct KeptTogether {
    /// Into the boxes, and last into the destination.
    pub route: Route,
    /// Which of the halls.
    pub hall: usize,
}

/// Rows of a matrix that are read where they lie, as if they were packed: into the destination.
pub(crate) struct KeptRows {
    /// As of a box, but along the fast axis as in the destination.
    tracks: Vec<Arc<Track>>,
    strides: Vec<u64>,
    /// The slow axis, and the index of its first position.
    slow: usize,
    first: u64,
    /// Positions of a row.
    row: u64,
}

impl KeptRows {
    /// Whole matrices only: with one slow axis, rows that follow each other in the box do so in the destination.
    pub fn new(boxes: &mut StagingLayout<'_>, target: &Target, place: usize) -> Option<Self> {
        let &[slow, fast] = &boxes.order[..] else { return None };
        if target.rows.is_some() {
            return None;
        }
        let mut tracks = boxes.packed(target, place);
        tracks[fast] = Arc::new(target.tracks[fast].with_peer(target.peers_at(place)[fast]));
        let first = target.tracks[slow].loops().first()?.stretches.first()?.to;
        let row = target.tracks[fast].elems();
        Some(Self { tracks, strides: target.strides.clone(), slow, first, row })
    }
}

impl Assembly {
    /// Whether its rows that are read where they lie are those of a leg.
    fn keeps_with(&self, leg: &PackSide) -> bool {
        let same = |rows: &KeptRows| Arc::ptr_eq(&rows.tracks[rows.slow], &leg.tracks[rows.slow]);
        (self.array, self.first) == (leg.array, leg.first)
            && leg.pack.kernel() == Kernel::Rows
            && self.rows.as_ref().is_some_and(same)
    }

    /// Whether what is read where it lies of a chunk are whole rows, the very same that a leg packs from, and there is nothing
    /// else in the chunk.
    pub(crate) fn has_the_rows_of(&self, leg: &PackSide, at: usize) -> bool {
        let count = |rows: Option<Range<u64>>| rows.map(|rows| rows.end - rows.start);
        let own = self.boxes.iter().find(|(held, _)| matches!(held, ChunkSource::Local(_)));
        let (Some(rows), Some((_, own))) = (&self.rows, own) else { return false };
        let (Some(chunk), Some(own)) = (self.chunks.get(at), own.get(at)) else { return false };
        let packed = whole_rows(&leg.cuts[at], leg.row);
        packed.is_some()
            && packed == whole_rows(own, rows.row)
            && count(packed) == count(whole_rows(chunk, rows.row))
    }

    /// Where the rows of a chunk would have to begin for the packed row `first` to be the chunk's first.
    pub(crate) fn place(&self, target: *mut u8, at: usize, first: u64) -> *mut u8 {
        let Some(rows) = &self.rows else { return std::ptr::null_mut() };
        let begin = rows.first + self.chunks[at].start / rows.row;
        let stride = rows.strides[rows.slow].wrapping_mul(self.elem);
        target.wrapping_add(begin.wrapping_sub(first).wrapping_mul(stride) as usize)
    }
}

/// Receivers whose chunks are the same rows of the same source, in all arrays.
pub(crate) fn bundles_of(
    plan: &Plan,
    outgoing: &[SendSide],
    halls: &[Assembly],
    way: StagingTuning,
) -> Vec<ReceiverGroup> {
    let mut bundles: Vec<ReceiverGroup> = Vec::new();
    for (number, one) in outgoing.iter().enumerate() {
        let fits = |bundle: &&mut ReceiverGroup| {
            bundle.members.len() < MOST_ENDS && alike(plan, &outgoing[bundle.members[0]], one)
        };
        match bundles.iter_mut().find(fits) {
            Some(bundle) => bundle.members.push(number),
            None => {
                bundles.push(ReceiverGroup { members: vec![number], together: Vec::new(), kept: Vec::new() })
            }
        }
    }
    let boxes: Vec<StagingLayout<'_>> =
        plan.arrays().iter().map(|array| StagingLayout::new(array, way)).collect();
    for ReceiverGroup { members, together, kept } in &mut bundles {
        for (number, leg) in outgoing[members[0]].legs.iter().enumerate() {
            let boxes = &boxes[leg.array];
            let members = members.iter().map(|&member| &outgoing[member].legs[number]);
            let mut ends: Vec<_> = members.map(|leg| (&leg.tracks[..], &leg.strides[..])).collect();
            if ends.len() > 1 {
                together.push(boxes.pack(&ends, leg.source));
            }
            let hall = halls.iter().position(|hall| hall.keeps_with(leg)).filter(|_| ends.len() < MOST_ENDS);
            let rows = hall.and_then(|hall| halls[hall].rows.as_ref());
            ends.extend(rows.map(|rows| (&rows.tracks[..], &rows.strides[..])));
            let route = hall.map(|hall| KeptTogether { route: boxes.pack(&ends, leg.source), hall });
            kept.push(route.filter(|kept| kept.route.kernel() == Kernel::Rows));
        }
    }
    bundles
}

fn alike(plan: &Plan, one: &SendSide, other: &SendSide) -> bool {
    let same = |(one, other): (&PackSide, &PackSide)| {
        let array = &plan.arrays()[one.array];
        let order = by_order(array.order(), one.tracks.len());
        let slow = &order[..order.len() - 1];
        one.array == other.array
            && one.first == other.first
            && one.cuts.len() == other.cuts.len()
            && one.pack.kernel() == Kernel::Rows
            && other.pack.kernel() == Kernel::Rows
            && slow.iter().all(|&dim| Arc::ptr_eq(&one.tracks[dim], &other.tracks[dim]))
            && one.cuts.iter().zip(&other.cuts).all(|(a, b)| {
                let a = whole_rows(a, one.row);
                a.is_some() && a == whole_rows(b, other.row)
            })
    };
    one.chunks == other.chunks
        && one.legs.len() == other.legs.len()
        && one.legs.iter().zip(&other.legs).all(same)
}

/// The rows of a range of positions; none if it begins or ends within one.
fn whole_rows(range: &Range<u64>, row: u64) -> Option<Range<u64>> {
    let whole = range.start.is_multiple_of(row) && range.end.is_multiple_of(row);
    whole.then(|| range.start / row..range.end / row)
}
