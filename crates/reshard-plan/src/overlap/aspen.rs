//! Adjacent shifting of periodic node data: a walk along the own blocks that never searches for a peer.
//!
//! ```text
//! find the peer of the first own block by one division
//! for each own block of the period:
//!     its pieces belong to that peer and the ones after it, in turn
//!     the next own block lies one stride on: the peer and the depth in its block shift by constants
//! ```
//!
//! After Foyer, Tate and McIntosh-Smith (Algorithm 4), on window indices instead of local ones, with the two
//! divisions of each block replaced by additions, and with two shortcuts for very different block sizes: own
//! blocks that fall into one block of the peer are counted rather than visited, and so are the rounds of the
//! peers inside a long own block. So the cost follows the number of runs, whatever the length of the array, the
//! number of peers and the ratio of the blocks.

use super::Sides;
use super::run::{Fold, Run};

/// The most runs for which memory is reserved in advance: the bound on their number is often far too large.
const MAX_RESERVED_RUNS: u64 = 128;

/// The runs of one process within `span` elements, of which there are at most `most`.
pub(super) fn runs(sides: &Sides<'_>, process: u64, span: u64, most: u64) -> Vec<Run> {
    let (here, there) = (sides.here.axis.cycle(), sides.there.axis.cycle());
    let (here_offset, there_offset) = (sides.here.offset, sides.there.offset);
    let peer_at = |index: u64| {
        let global = index + there_offset;
        let (block, within) = (global / there.block, global % there.block);
        ((block + there.first) % there.procs, within)
    };
    let first = here.block_after(process, here_offset);
    if span == 0 || first >= here_offset + span {
        return Vec::new();
    }
    let mut fold = Fold::with_capacity(most.min(MAX_RESERVED_RUNS) as usize);

    // The window may begin inside a block; the blocks after that are whole but for the end of the span.
    let mut start = if first < here_offset {
        let end = (first + here.block - here_offset).min(span);
        let (peer, within) = peer_at(0);
        fold.stretch(0, end, peer, within, &there);
        first + here.stride - here_offset
    } else {
        first - here_offset
    };
    if start >= span {
        return fold.finish();
    }

    let (mut peer, mut within) = peer_at(start);
    let peer_shift = (here.stride / there.block) % there.procs;
    let within_shift = here.stride % there.block;
    let peers_are_long = there.block > here.stride;
    loop {
        let end = (start + here.block).min(span);
        let boundary = start + (there.block - within);
        if peers_are_long && end <= boundary && end - start == here.block {
            let more = (boundary.min(span) - end) / here.stride;
            fold.lone(peer, start, here.block, here.stride, more + 1);
            start += more * here.stride;
            within += more * here.stride;
        } else {
            fold.stretch(start, end, peer, within, &there);
        }
        start += here.stride;
        if start >= span {
            return fold.finish();
        }
        peer += peer_shift;
        within += within_shift;
        if within >= there.block {
            within -= there.block;
            peer += 1;
        }
        if peer >= there.procs {
            peer -= there.procs;
        }
    }
}

/// An upper bound of the runs within `span` elements.
pub(super) fn most_runs(sides: &Sides<'_>, span: u64) -> u128 {
    let (here, there) = (sides.here.axis.cycle(), sides.there.axis.cycle());
    let own_blocks = u128::from(span / here.stride) + 2;
    let peer_blocks = u128::from(span / there.block) + 2;
    let folded = if there.block >= here.stride {
        3 * peer_blocks
    } else if here.block >= there.stride {
        own_blocks * (u128::from(there.procs) + 2)
    } else {
        own_blocks * (u128::from(here.block / there.block) + 2)
    };
    // Never more runs than pieces, each of which begins where a block of either side begins.
    folded.min(own_blocks + peer_blocks)
}
