//! The inner loops of a route, along its fast axis: rounds of stretches, prepared for the way they are copied.
//!
//! Long stretches are copied as they are, and prefetched some rows ahead; short ones by tables, see [`ShortPieces`].

use super::short::{ShortLimits, ShortPieces};
use crate::simd::Level;
use reshard_plan::{Loop, Stretch};

/// A loop along the fast axis: `rounds` rounds of `elems` positions each, from position `at` on.
pub struct InnerLoop {
    pub at: u64,
    pub rounds: u64,
    pub elems: u64,
    /// True if a round is contiguous in the destination.
    pub in_order: bool,
    pub stretches: Vec<InnerStretch>,
    pub short: Option<ShortPieces>,
}

/// A stretch of the fast axis; `from`, `to` and the steps are element indices, as the planner gives them.
pub struct InnerStretch {
    pub stretch: Stretch,
    /// Bytes from `from` on that are prefetched some rows ahead, for this destination and its neighbours.
    pub prefetch_bytes: usize,
}

impl InnerLoop {
    /// Prepares a loop of a track. `peer_index` maps the track's peers to the route's; `turn` is the number of the destination
    /// in the route, and of how many: the first prefetches long pieces for all. `short` are the limits and the
    /// instruction set level, if short pieces are copied by tables.
    pub fn new(
        each: &Loop,
        elem: u64,
        peer_index: impl Fn(u32) -> u32,
        turn: [usize; 2],
        short: Option<(ShortLimits, Level)>,
    ) -> Self {
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
        } else if turn[0] == 0 {
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
        let renumbered = Loop { stretches: stretches.iter().map(|each| each.stretch).collect(), ..*each };
        let short =
            short.and_then(|(limits, level)| ShortPieces::new(&renumbered, elem, turn, limits, level));
        let (at, rounds, elems) = (each.at, each.rounds, each.elems);
        Self { at, rounds, elems, in_order, stretches, short }
    }
}
