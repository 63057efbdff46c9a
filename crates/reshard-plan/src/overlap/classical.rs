//! Every own block against every block of every peer, over the whole window: the obvious algorithm.
//!
//! This is Algorithm 2 of the ASPEN paper. Its cost is the product of both sides' blocks.

use super::{Side, Sides};

pub(super) fn visit(sides: &Sides<'_>, process: u64, visit: &mut impl FnMut(u64, u64, u64)) {
    let (here, there) = (sides.here, sides.there);
    for peer in 0..there.axis.parts() {
        for (own_start, own_end) in blocks(here, process, sides.extent) {
            for (start, end) in blocks(there, peer, sides.extent) {
                let (left, right) = (own_start.max(start), own_end.min(end));
                if left < right {
                    visit(peer, left, right - left);
                }
            }
        }
    }
}

/// The blocks of a process as ranges of window indices, up to the window's end.
fn blocks(side: Side<'_>, process: u64, extent: u64) -> impl Iterator<Item = (u64, u64)> {
    let blocks = side.axis.blocks(process, side.offset);
    let ranges = blocks.map(move |block| (block.start.saturating_sub(side.offset), block.end - side.offset));
    ranges.take_while(move |&(start, _)| start < extent).map(move |(start, end)| (start, end.min(extent)))
}
