//! The inner loops of a route, along its fast axis: rounds of stretches, prepared for the way they are copied.
//!
//! Long stretches are copied as they are, and prefetched some rows ahead; a round of short ones is composed as cache lines;
//! short pieces with a common stride become the lanes of a gather.

use super::lines::ComposedLines;
use reshard_plan::{Loop, Stretch};

/// Gathers are used for pieces shorter than this on average.
const MAX_GATHERED_PIECE_BYTES: u64 = 48;

/// Bytes of a group of gather lanes at most.
const MAX_GATHER_GROUP_BYTES: u64 = 2048;

/// A loop along the fast axis: `rounds` rounds of `elems` positions each, from position `at` on.
pub struct InnerLoop {
    pub at: u64,
    pub rounds: u64,
    pub elems: u64,
    /// True if a round is contiguous in the destination.
    pub in_order: bool,
    pub stretches: Vec<InnerStretch>,
    pub lanes: Option<GatherLanes>,
    /// A round of short stretches as composed cache lines.
    pub lines: Option<ComposedLines>,
}

/// A stretch of the fast axis; `from`, `to` and the steps are element indices, as the planner gives them.
pub struct InnerStretch {
    pub stretch: Stretch,
    /// Bytes from `from` on that are prefetched some rows ahead, for this destination and its neighbours.
    pub prefetch_bytes: usize,
}

/// A group of rounds as the lanes of a gather.
pub struct GatherLanes {
    /// Bytes of a lane: 4 or 8.
    pub width: usize,
    /// Rounds in a group.
    pub rounds: u64,
    /// Bytes from one group to the next, in every source.
    pub shift: u64,
    /// Peer and byte offset of each lane.
    pub lanes: Vec<(u32, u64)>,
    /// True if this destination prefetches, for itself and its neighbours.
    pub prefetches: bool,
}

impl InnerLoop {
    /// Returns the destination index of a position of this loop, and how many positions from there on are contiguous.
    pub fn locate(&self, position: u64) -> (u64, u64) {
        let (round, deep) = ((position - self.at) / self.elems, (position - self.at) % self.elems);
        let first = &self.stretches[0].stretch;
        if self.in_order {
            let contiguous = first.to_step == self.elems;
            let left =
                if contiguous { self.rounds * self.elems - (position - self.at) } else { self.elems - deep };
            return (first.to + round * first.to_step + deep, left);
        }
        let index = self.stretches.partition_point(|s| s.stretch.at <= deep) - 1;
        let stretch = &self.stretches[index].stretch;
        let within = deep - stretch.at;
        (stretch.to + round * stretch.to_step + within, stretch.len - within)
    }

    /// Prepares a loop of a track. `peer_index` maps the track's peers to the route's; with `prefetches`, this destination
    /// prefetches for all destinations of the route.
    pub fn new(each: &Loop, elem: u64, peer_index: impl Fn(u32) -> u32, prefetches: bool) -> Self {
        let mut stretches: Vec<InnerStretch> = each
            .stretches
            .iter()
            .map(|stretch| {
                let stretch = Stretch { peer: peer_index(stretch.peer), ..*stretch };
                InnerStretch { stretch, prefetch_bytes: 0 }
            })
            .collect();
        if each.elems * elem >= 192 * each.stretches.len() as u64 {
            for s in &mut stretches {
                s.prefetch_bytes = (s.stretch.len * elem) as usize;
            }
        } else if prefetches {
            // Up to the next stretch of the same peer: the elements between them go to the neighbours.
            for index in 0..stretches.len() {
                let Stretch { peer, from, len, from_step, .. } = stretches[index].stretch;
                let later = &stretches[index + 1..];
                let next =
                    later.iter().find(|later| later.stretch.peer == peer).map(|later| later.stretch.from);
                let first = stretches[..=index].iter().find(|other| other.stretch.peer == peer);
                let around = first.map_or(from, |first| first.stretch.from + from_step);
                let end = next.unwrap_or(around).max(from + len);
                stretches[index].prefetch_bytes = ((end - from).min(8 * len) * elem) as usize;
            }
        }
        let in_order = each.stretches.iter().all(|s| s.to == each.stretches[0].to + s.at);
        let lines =
            ComposedLines::new(stretches.iter().map(|each| &each.stretch), elem, each.rounds, prefetches);
        let (at, rounds, elems) = (each.at, each.rounds, each.elems);
        Self { at, rounds, elems, in_order, stretches, lanes: None, lines }
    }

    /// Makes gather lanes of the loop if its pieces are short, contiguous in the destination and of one source stride.
    pub fn find_lanes(&mut self, elem: u64, prefetches: bool) {
        let (width, per_elem) = match elem {
            4 => (4, 1),
            8 => (8, 1),
            16 => (8, 2),
            _ => return,
        };
        let Some(InnerStretch { stretch: first, .. }) = self.stretches.first() else { return };
        let step = first.from_step;
        let even = |s: &InnerStretch| s.stretch.from_step == step && s.stretch.to_step == self.elems;
        let short = self.elems * elem < MAX_GATHERED_PIECE_BYTES * self.stretches.len() as u64;
        if !short || !self.in_order || !self.stretches.iter().all(even) {
            return;
        }
        // A group has enough rounds to fill whole vectors of eight lanes, and about 32 lanes at least.
        let in_round = self.elems * per_elem;
        let rounds = (1..=8).find(|rounds| (in_round * rounds).is_multiple_of(8)).unwrap_or(8);
        let rounds = rounds * (32 / (in_round * rounds)).max(1);
        if in_round * rounds * width as u64 > MAX_GATHER_GROUP_BYTES || self.rounds < 2 * rounds {
            return;
        }
        let mut lanes = Vec::with_capacity((in_round * rounds) as usize);
        for round in 0..rounds {
            for InnerStretch { stretch, .. } in &self.stretches {
                let first = (stretch.from + round * step) * elem;
                lanes.extend(
                    (0..stretch.len * per_elem).map(|lane| (stretch.peer, first + lane * width as u64)),
                );
            }
        }
        self.lanes = Some(GatherLanes { width, rounds, shift: rounds * step * elem, lanes, prefetches });
    }
}
