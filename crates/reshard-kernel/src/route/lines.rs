//! Rounds of short pieces, composed in registers a cache line at a time.
//!
//! A line holds many pieces of a few elements, and branches on their lengths are mispredicted too often. But all offsets are
//! known when the route is made. So each line of a round is stored as a list of *patches*, equally many for all lines: masked
//! loads on top of each other, without a branch. Whole lines then go to the sink, which shifts them to the line boundaries of
//! the destination.

use crate::simd::{CACHE_LINE, Patch};
use reshard_plan::Stretch;

/// Patches of a line at most; rounds with more are copied piece by piece.
const MAX_PATCHES_PER_LINE: usize = 8;

/// A round of a loop as cache lines; its pieces are contiguous in the destination.
pub(crate) struct ComposedLines {
    /// Peer and patch, `patches_per_line` for each line.
    pub(crate) patches: Vec<(u32, Patch)>,
    pub(crate) patches_per_line: usize,
    /// Bytes of all lines together; the last line may be incomplete.
    pub(crate) bytes: usize,
    /// Byte offset of the first round in the destination, and bytes from one round to the next.
    pub(crate) to: [usize; 2],
    /// Bytes from one round to the next, in all sources.
    pub(crate) from_step: usize,
    /// Spans prefetched some rows ahead, for this destination and its neighbours: peer, byte offset, bytes.
    pub(crate) spans: Vec<(u32, usize, usize)>,
}

impl ComposedLines {
    /// Returns the lines of a round, if composing them pays: pieces are short, of similar length, contiguous in the
    /// destination, and of one source stride. With `prefetches`, this destination prefetches for all destinations.
    pub fn new<'a>(
        stretches: impl Iterator<Item = &'a Stretch> + Clone,
        elem: u64,
        rounds: u64,
        prefetches: bool,
    ) -> Option<Self> {
        let first = stretches.clone().next()?;
        let even = |s: &Stretch| s.to == first.to + s.at && s.from_step == first.from_step;
        if !stretches.clone().all(even) {
            return None;
        }
        let from_step = (first.from_step * elem) as usize;
        let mut spans: Vec<(u32, usize, usize)> = Vec::new();
        for stretch in stretches.clone().filter(|_| prefetches) {
            let (begin, end) =
                ((stretch.from * elem) as usize, ((stretch.from + stretch.len) * elem) as usize);
            match spans.iter_mut().find(|span| span.0 == stretch.peer) {
                Some((_, first, bytes)) => *bytes = end.saturating_sub(*first).max(*bytes),
                None if rounds > 1 => spans.push((stretch.peer, begin, from_step)),
                None => spans.push((stretch.peer, begin, end - begin)),
            }
        }
        let mut lines: Vec<Vec<(u32, Patch)>> = Vec::new();
        let mut fill = CACHE_LINE;
        let mut pieces = 0;
        for stretch in stretches {
            let mut from = (stretch.from * elem) as usize;
            let mut left = (stretch.len * elem) as usize;
            if left > 2 * CACHE_LINE {
                return None;
            }
            pieces += 1;
            while left > 0 {
                if fill == CACHE_LINE {
                    lines.push(Vec::new());
                    fill = 0;
                }
                let n = left.min(CACHE_LINE - fill);
                lines.last_mut()?.push((stretch.peer, Patch::new(from, fill, n)));
                (from, fill, left) = (from + n, fill + n, left - n);
            }
        }
        let each = lines.iter().map(Vec::len).max()?;
        let all: usize = lines.iter().map(Vec::len).sum();
        // A round of one piece gains nothing, and at most half of the patches may be padding.
        if pieces < 2 || each > MAX_PATCHES_PER_LINE || each * lines.len() > 2 * all {
            return None;
        }
        for line in &mut lines {
            let nothing = line.last().map(|(peer, patch)| (*peer, patch.emptied()))?;
            line.resize(each, nothing);
        }
        let to = [(first.to * elem) as usize, (first.to_step * elem) as usize];
        Some(Self {
            patches: lines.concat(),
            patches_per_line: each,
            bytes: (lines.len() - 1) * CACHE_LINE + fill,
            to,
            from_step,
            spans,
        })
    }
}
