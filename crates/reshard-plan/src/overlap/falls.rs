//! One period, and of each peer only the blocks that can meet the own block.
//!
//! This is Algorithm 3 of the ASPEN paper, after Ramaswamy, Simons and Banerjee: the intersection of two
//! block-cyclic sets repeats after the least common multiple of their strides, and the blocks of a peer that
//! meet an own block have numbers between two bounds one can compute. (The paper prints `max` where it means
//! `min(N_local, S / S_local)`.) The cost still grows with the number of peers.

use super::Sides;

pub(super) fn visit(sides: &Sides<'_>, process: u64, span: u64, visit: &mut impl FnMut(u64, u64, u64)) {
    let (here, there) = (sides.here, sides.there);
    let cycle = there.axis.cycle();
    for peer in 0..cycle.procs {
        let Some(origin) = cycle.turn(peer).checked_mul(cycle.block).filter(|&at| at < there.axis.len())
        else {
            continue;
        };
        for own in here.axis.blocks(process, here.offset) {
            let own_start = own.start.saturating_sub(here.offset);
            let own_end = (own.end - here.offset).min(span);
            if own_start >= own_end {
                break;
            }
            // The own block's range on the peer's axis, and the numbers of the peer's blocks that may meet it.
            let (from, upto) = (own_start + there.offset, own_end + there.offset);
            if upto <= origin {
                continue;
            }
            let past = origin + cycle.block;
            let first = if from < past { 0 } else { (from - past) / cycle.stride + 1 };
            let last = (upto - 1 - origin) / cycle.stride;
            for number in first..=last {
                let start = origin + number * cycle.stride;
                let (left, right) = (from.max(start), upto.min(start + cycle.block));
                if left < right {
                    visit(peer, left - there.offset, right - left);
                }
            }
        }
    }
}
