//! Every own block against every block of every peer, over the whole window: what one writes first.
//!
//! This is Algorithm 2 of the ASPEN paper. Its cost is the product of both sides' blocks.

use super::Sides;

pub(super) fn visit(sides: &Sides<'_>, process: u64, visit: &mut impl FnMut(u64, u64, u64)) {
    let (here, there) = (sides.here, sides.there);
    let window = |offset: u64, block: std::ops::Range<u64>| {
        (block.start.saturating_sub(offset), (block.end - offset).min(sides.extent))
    };
    for peer in 0..there.axis.procs() {
        for own in here.axis.blocks(process, here.offset) {
            let (own_start, own_end) = window(here.offset, own);
            for block in there.axis.blocks(peer, there.offset) {
                let (start, end) = window(there.offset, block);
                let (left, right) = (own_start.max(start), own_end.min(end));
                if left < right {
                    visit(peer, left, right - left);
                }
            }
        }
    }
}
