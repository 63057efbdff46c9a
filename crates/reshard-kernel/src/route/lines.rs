//! Rounds of short pieces, composed in registers a cache line at a time.
//!
//! Pieces of a few elements are many to a line, and a processor that guesses the length of each guesses wrong too often.
//! But where they lie is known when the route is made. So each line of a round is written down as the *patches* it is
//! made of, equally many for all lines: masked loads on top of each other, and not a single branch. Whole lines then go
//! to the sink, which turns them to where lines of the destination begin.

use crate::simd::{CACHE_LINE, Patch};
use reshard_plan::Stretch;

/// Lines of more patches are copied piece by piece.
const MOST: usize = 8;

/// A round of a loop in which pieces follow each other without a gap, as lines.
pub(crate) struct ComposedLines {
    /// So many for each line.
    pub(crate) patches: Vec<(u32, Patch)>,
    pub(crate) each: usize,
    /// Of all lines together.
    pub(crate) bytes: usize,
    /// Where the first round begins in the destination, and how much further each of the next does, in bytes.
    pub(crate) to: [usize; 2],
    /// How much further each of the next rounds begins in all sources, in bytes.
    pub(crate) from_step: usize,
    /// What will be needed, by this end or its neighbours, and is asked for some rows ahead: peer, first byte, bytes.
    pub(crate) spans: Vec<(u32, usize, usize)>,
}

impl ComposedLines {
    /// The lines of a round, if composing them is worth while: pieces are short, not too different in length, follow each
    /// other without a gap and all sources go at one pace. If it `fetches`, this end asks for what all ends need.
    pub fn new<'a>(
        stretches: impl Iterator<Item = &'a Stretch> + Clone,
        elem: u64,
        rounds: u64,
        fetches: bool,
    ) -> Option<Self> {
        let first = stretches.clone().next()?;
        let even = |s: &Stretch| s.to == first.to + s.at && s.from_step == first.from_step;
        if !stretches.clone().all(even) {
            return None;
        }
        let from_step = (first.from_step * elem) as usize;
        let mut spans: Vec<(u32, usize, usize)> = Vec::new();
        for stretch in stretches.clone().filter(|_| fetches) {
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
        // A round of few pieces has little to gain; patches that are there to be equally many should not be the most.
        if pieces < 2 || each > MOST || each * lines.len() > 2 * all {
            return None;
        }
        for line in &mut lines {
            let nothing = line.last().map(|(peer, patch)| (*peer, patch.emptied()))?;
            line.resize(each, nothing);
        }
        let to = [(first.to * elem) as usize, (first.to_step * elem) as usize];
        Some(Self {
            patches: lines.concat(),
            each,
            bytes: (lines.len() - 1) * CACHE_LINE + fill,
            to,
            from_step,
            spans,
        })
    }
}
