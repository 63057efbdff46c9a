//! The fast axis of a route: loops of stretches, each with what it takes to copy it one way or another.
//!
//! Long stretches are copied as they are, and asked for some rows ahead; a round of short ones is composed as cache lines;
//! single elements at one pace become the lanes of a gather.

use super::lines::ComposedLines;
use reshard_plan::{Loop, Stretch};

/// Gathers are for pieces shorter than this on average, in bytes.
const SHORT: u64 = 48;

/// The longest group of gathered lanes, in bytes.
const MOST_GATHERED: u64 = 2048;

/// A loop of the fast axis.
pub struct InnerLoop {
    pub at: u64,
    pub rounds: u64,
    pub elems: u64,
    /// A round lies in the destination without gaps.
    pub in_order: bool,
    pub stretches: Vec<InnerStretch>,
    pub lanes: Option<GatherLanes>,
    /// A round of short stretches as cache lines.
    pub lines: Option<ComposedLines>,
}

/// A stretch of the fast axis; `from`, `to` and the steps are indices, as the planner gives them.
pub struct InnerStretch {
    pub stretch: Stretch,
    /// Bytes at and behind `from` that will be needed, by this end or its neighbours: asked for some rows ahead.
    pub fetch: usize,
}

/// A group of rounds as lanes of a gather.
pub struct GatherLanes {
    /// Bytes of a lane: 4 or 8.
    pub width: usize,
    /// Rounds in a group.
    pub rounds: u64,
    /// Bytes from one group to the next, at every source.
    pub shift: u64,
    /// Peer and byte offset of each lane.
    pub lanes: Vec<(u32, u64)>,
    /// Whether this end asks for what it and its neighbours will need.
    pub fetches: bool,
}

impl InnerLoop {
    /// The destination's index of a position of this loop, and how many from there on follow without a gap.
    pub fn place(&self, position: u64) -> (u64, u64) {
        let (round, deep) = ((position - self.at) / self.elems, (position - self.at) % self.elems);
        let first = &self.stretches[0].stretch;
        if self.in_order {
            let goes_on = first.to_step == self.elems;
            let left =
                if goes_on { self.rounds * self.elems - (position - self.at) } else { self.elems - deep };
            return (first.to + round * first.to_step + deep, left);
        }
        let index = self.stretches.partition_point(|s| s.stretch.at <= deep) - 1;
        let stretch = &self.stretches[index].stretch;
        let within = deep - stretch.at;
        (stretch.to + round * stretch.to_step + within, stretch.len - within)
    }

    pub fn new(each: &Loop, elem: u64, known: impl Fn(u32) -> u32, fetches: bool) -> Self {
        let mut stretches: Vec<InnerStretch> = each
            .stretches
            .iter()
            .map(|stretch| {
                let stretch = Stretch { peer: known(stretch.peer), ..*stretch };
                InnerStretch { stretch, fetch: 0 }
            })
            .collect();
        if each.elems * elem >= 192 * each.stretches.len() as u64 {
            for s in &mut stretches {
                s.fetch = (s.stretch.len * elem) as usize;
            }
        } else if fetches {
            // Up to where the next stretch of the same peer begins: what lies between belongs to the neighbours.
            for index in 0..stretches.len() {
                let Stretch { peer, from, len, from_step, .. } = stretches[index].stretch;
                let later = &stretches[index + 1..];
                let next =
                    later.iter().find(|later| later.stretch.peer == peer).map(|later| later.stretch.from);
                let first = stretches[..=index].iter().find(|other| other.stretch.peer == peer);
                let around = first.map_or(from, |first| first.stretch.from + from_step);
                let end = next.unwrap_or(around).max(from + len);
                stretches[index].fetch = ((end - from).min(8 * len) * elem) as usize;
            }
        }
        let in_order = each.stretches.iter().all(|s| s.to == each.stretches[0].to + s.at);
        let lines =
            ComposedLines::new(stretches.iter().map(|each| &each.stretch), elem, each.rounds, fetches);
        let (at, rounds, elems) = (each.at, each.rounds, each.elems);
        Self { at, rounds, elems, in_order, stretches, lanes: None, lines }
    }

    /// Short pieces that go on without a gap in the destination, all sources at one pace, become lanes.
    pub fn find_lanes(&mut self, elem: u64, fetches: bool) {
        let (width, per_elem) = match elem {
            4 => (4, 1),
            8 => (8, 1),
            16 => (8, 2),
            _ => return,
        };
        let Some(InnerStretch { stretch: first, .. }) = self.stretches.first() else { return };
        let step = first.from_step;
        let even = |s: &InnerStretch| s.stretch.from_step == step && s.stretch.to_step == self.elems;
        let short = self.elems * elem < SHORT * self.stretches.len() as u64;
        if !short || !self.in_order || !self.stretches.iter().all(even) {
            return;
        }
        // So many rounds that the lanes fill whole vectors of eight, and some more if that is little.
        let in_round = self.elems * per_elem;
        let rounds = (1..=8).find(|rounds| (in_round * rounds).is_multiple_of(8)).unwrap_or(8);
        let rounds = rounds * (32 / (in_round * rounds)).max(1);
        if in_round * rounds * width as u64 > MOST_GATHERED || self.rounds < 2 * rounds {
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
        self.lanes = Some(GatherLanes { width, rounds, shift: rounds * step * elem, lanes, fetches });
    }
}
