//! The inner loops of a route, along its fast axis: rounds of stretches, prepared for the way they are copied.
//!
//! Long stretches are copied as they are, and prefetched some rows ahead; short ones by tables, see [`ShortPieces`].

use super::short::{ShortLimits, ShortPieces};
use crate::simd::Level;
use reshard_plan::{Loop, Stretch};
use std::collections::HashMap;

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
    /// Prepares a loop whose peers are those of the route. `turn` is the number of the destination in the route, and of how many:
    /// the first prefetches long pieces for all. `short` are the limits and the instruction set level, if short pieces are
    /// copied by tables.
    pub fn new(each: &Loop, elem: u64, turn: [usize; 2], short: Option<(ShortLimits, Level)>) -> Self {
        let all = |s: &Stretch| InnerStretch { stretch: *s, prefetch_bytes: (s.len * elem) as usize };
        let mut stretches: Vec<InnerStretch> = each.stretches.iter().map(all).collect();
        if each.elems * elem < 192 * each.stretches.len() as u64 {
            prefetch_gaps(&mut stretches, elem, turn);
        }
        let in_order = each.stretches.iter().all(|s| s.to == each.stretches[0].to + s.at);
        let short = short.and_then(|(limits, level)| ShortPieces::new(each, elem, turn, limits, level));
        let (at, rounds, elems) = (each.at, each.rounds, each.elems);
        Self { at, rounds, elems, in_order, stretches, short }
    }
}

/// Prefetches for all destinations of the route with the first one: up to the next stretch of the same peer, as the elements
/// between them go to the others.
fn prefetch_gaps(stretches: &mut [InnerStretch], elem: u64, [turn, _]: [usize; 2]) {
    if turn > 0 {
        return stretches.iter_mut().for_each(|s| s.prefetch_bytes = 0);
    }
    let mut next: HashMap<u32, u64> = HashMap::new();
    // After the last stretch of a peer comes its first one of the next round.
    for s in stretches.iter().rev() {
        next.insert(s.stretch.peer, s.stretch.from.saturating_add(s.stretch.from_step));
    }
    for s in stretches.iter_mut().rev() {
        let Stretch { peer, from, len, .. } = s.stretch;
        let end = next.insert(peer, from).unwrap_or(0).max(from + len);
        s.prefetch_bytes = ((end - from).min(8 * len) * elem) as usize;
    }
}
