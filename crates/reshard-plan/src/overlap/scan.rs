//! Two counters over two lists of blocks, moved forward like a merge, stopped at the period.
//!
//! This is the scan of Prylli and Tourancheau in ScaLAPACK: for each peer, the counter whose block ends first
//! steps on. It needs nothing of the blocks but their order, so it works on irregular axes, too; there the own blocks
//! are merged with those of all peers at once, so that the cost does not grow with the number of peers, and
//! blocks that are periodic on one side are counted at once.

use super::Sides;
use super::run::{Fold, Run};

pub(super) fn visit(sides: &Sides<'_>, process: u64, span: u64, visit: &mut impl FnMut(u64, u64, u64)) {
    let (here, there) = (sides.here, sides.there);
    for peer in 0..there.axis.parts() {
        let (mut own_blocks, mut peer_blocks) =
            (here.axis.blocks(process, here.offset), there.axis.blocks(peer, there.offset));
        let (mut own, mut block) = (own_blocks.next(), peer_blocks.next());
        while let (Some(a), Some(b)) = (&own, &block) {
            let (a_start, a_end) = (a.start.saturating_sub(here.offset), a.end - here.offset);
            let (b_start, b_end) = (b.start.saturating_sub(there.offset), b.end - there.offset);
            let (left, right) = (a_start.max(b_start), a_end.min(b_end).min(span));
            if left >= span {
                break;
            }
            if left < right {
                visit(peer, left, right - left);
            }
            if a_end <= b_end {
                own = own_blocks.next();
            } else {
                block = peer_blocks.next();
            }
        }
    }
}

/// The canonical runs where at least one axis is irregular, so that there is no period.
pub(super) fn irregular_runs(sides: &Sides<'_>, process: u64) -> Vec<Run> {
    let (here, there, extent) = (sides.here, sides.there, sides.extent);
    let mut fold = Fold::with_capacity(16);
    let mut blocks = here.axis.blocks(process, here.offset);
    while let Some(block) = blocks.next() {
        let start = block.start.saturating_sub(here.offset);
        let end = (block.end - here.offset).min(extent);
        if start >= end {
            break;
        }
        if there.axis.has_cycle() {
            let cycle = there.axis.cycle();
            let global = start + there.offset;
            fold.stretch(start, end, cycle.owner(global), global % cycle.block, &cycle);
            continue;
        }
        let piece_at = |index: u64| there.axis.block_at(index + there.offset);
        let Some((peer, piece_end)) = piece_at(start) else { break };
        let piece_end = piece_end - there.offset;
        if end <= piece_end {
            // Equal own blocks inside one piece of the peer: count them instead of walking.
            let stride = if here.axis.has_cycle() { here.axis.cycle().stride } else { 0 };
            let whole = here.axis.has_cycle() && end - start == here.axis.cycle().block;
            let more = if whole { (piece_end.min(extent) - end) / stride } else { 0 };
            fold.lone(peer, start, end - start, stride, more + 1);
            if more > 0 {
                blocks = here.axis.blocks(process, here.offset + end + more * stride);
            }
            continue;
        }
        let mut at = start;
        while at < end {
            let Some((peer, piece_end)) = piece_at(at) else { break };
            let upto = end.min(piece_end - there.offset);
            fold.part(peer, at, upto - at, 0, 1);
            at = upto;
        }
    }
    fold.finish()
}

/// An upper bound of the runs where at least one axis is irregular.
pub(super) fn most_irregular_runs(sides: &Sides<'_>, process: u64) -> u128 {
    let (here, there) = (sides.here.axis, sides.there.axis);
    let own = || Sides::blocks_of_one(sides.here, process, sides.extent);
    match (here.has_cycle(), there.has_cycle()) {
        (true, _) => 3 * there.pieces() as u128 + 2,
        (false, true) => {
            let rounds = own().saturating_mul(u128::from(there.parts()) + 2);
            rounds.min(own() + Sides::blocks_of_all(sides.there, sides.extent))
        }
        (false, false) => own() + there.pieces() as u128,
    }
}
