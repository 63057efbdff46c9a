//! The canonical form of an overlap.
//!
//! Cut the window at the period (or take all of it where there is none). The elements a process owns there fall
//! into *stretches*, contiguous as far as they go, and each stretch into *pieces*, one for each peer it meets in
//! turn. Equal pieces at equal distances are written once, as a [`Run`]. Two rules say which:
//!
//! 1. A stretch of one piece joins the run before it if that, too, came from stretches of one piece with the
//!    same peer and length, and the distance goes on. So short blocks inside a peer's long block are one run.
//! 2. Inside a stretch of several pieces, those of one peer that are whole blocks of the peer, one round apart,
//!    are one run. So short blocks of many peers inside a long own block are one run for each peer.
//!
//! Runs are listed by their first element. Form and number of runs depend on blocks and processes, not on the
//! length of the array; and every method's answer compares with `==`.

use crate::axis::{Axis, Cycle};
use std::ops::Range;

/// Equal pieces at equal distances, all shared with one peer: `count` pieces of `len` elements, the first at
/// `start`, `stride` apart (0 if there is one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The peer, a process of the other side, as a coordinate on its axis.
    pub peer: u64,
    /// Window index of the first element.
    pub start: u64,
    /// Elements in each piece.
    pub len: u64,
    /// Distance from the start of one piece to the start of the next; 0 if there is only one.
    pub stride: u64,
    /// Number of pieces.
    pub count: u64,
}

impl Run {
    /// Elements in all pieces together.
    pub fn elems(&self) -> u64 {
        self.len * self.count
    }

    /// The pieces as ranges of window indices, ascending.
    pub fn pieces(self) -> impl Iterator<Item = Range<u64>> {
        (0..self.count).map(move |k| {
            let start = self.start + k * self.stride;
            start..start + self.len
        })
    }

    /// Elements with a window index below `end`.
    fn elems_before(&self, end: u64) -> u64 {
        if end <= self.start {
            return 0;
        }
        let begun =
            if self.count == 1 { 1 } else { ((end - 1 - self.start) / self.stride + 1).min(self.count) };
        let last = self.start + (begun - 1) * self.stride;
        (begun - 1) * self.len + (end - last).min(self.len)
    }
}

/// The elements that one process shares with the processes of the other side along one axis: runs within one period, which
/// repeats through the window and is cut off at its end.
///
/// ```
/// use reshard_plan::{Axis, Overlap, Sides};
/// let (here, there) = (Axis::block_cyclic(1_000_000, 2, 3, 0)?, Axis::block_cyclic(1_000_000, 3, 2, 0)?);
/// let overlap = Overlap::new(&Sides::whole(&here, &there)?, 0)?;
/// // Two runs in a period of six, however long the axis is.
/// assert_eq!((overlap.period(), overlap.runs().len()), (6, 2));
/// assert_eq!(overlap.elems(), here.local_len(0));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Overlap {
    extent: u64,
    period: u64,
    runs: Vec<Run>,
}

impl Overlap {
    pub(super) fn from_runs(extent: u64, period: u64, runs: Vec<Run>) -> Self {
        Self { extent, period, runs }
    }

    /// Elements in the window.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// Period of the runs in elements; the extent if they do not repeat.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The runs of one period, by first element.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The overlap with only one peer.
    #[must_use]
    pub fn with_peer(&self, peer: u64) -> Self {
        let runs = self.runs.iter().filter(|run| run.peer == peer).copied().collect();
        Self { extent: self.extent, period: self.period, runs }
    }

    /// Every piece through the whole window as (peer, window range), period by period and run by run.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        let repeats = if self.period == 0 { 0 } else { self.extent.div_ceil(self.period) };
        (0..repeats).flat_map(move |k| {
            let base = k * self.period;
            self.runs.iter().flat_map(move |run| {
                let inside = run.pieces().map(move |piece| (base + piece.start, base + piece.end));
                let inside = inside.take_while(|&(start, _)| start < self.extent);
                inside.map(|(start, end)| (run.peer, start..end.min(self.extent)))
            })
        })
    }

    /// Number of elements shared with all peers: those the process owns in the window.
    pub fn elems(&self) -> u64 {
        self.runs.iter().map(|run| self.elems_of(run)).sum()
    }

    /// Each peer that shares elements with the process, ascending, and their number.
    pub fn shares(&self) -> Vec<(u64, u64)> {
        let mut shares: Vec<_> = self.runs.iter().map(|run| (run.peer, self.elems_of(run))).collect();
        shares.sort_unstable();
        shares.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        shares.retain(|&(_, elems)| elems > 0);
        shares
    }

    fn elems_of(&self, run: &Run) -> u64 {
        let (whole, rest) = (self.extent / self.period, self.extent % self.period);
        whole * run.elems() + run.elems_before(rest)
    }
}

/// One piece before folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flat {
    pub peer: u64,
    pub start: u64,
    pub end: u64,
}

/// Builds canonical runs from stretches that arrive in ascending order.
pub(super) struct Fold {
    runs: Vec<Run>,
    /// True if the last run came from stretches of one piece, so another may join it.
    open: bool,
}

impl Fold {
    pub fn with_capacity(runs: usize) -> Self {
        Self { runs: Vec::with_capacity(runs), open: false }
    }

    pub fn finish(self) -> Vec<Run> {
        self.runs
    }

    /// Adds by rule 1: `count` stretches of one piece each, `stride` apart.
    #[inline]
    pub fn lone(&mut self, peer: u64, start: u64, len: u64, stride: u64, count: u64) {
        let (mut start, mut count) = (start, count);
        if let Some(last) =
            self.runs.last_mut().filter(|last| self.open && last.peer == peer && last.len == len)
        {
            let gap = start - (last.start + (last.count - 1) * last.stride);
            if last.count == 1 || gap == last.stride {
                last.stride = gap;
                last.count += 1;
                (start, count) = (start + stride, count - 1);
                if stride == gap {
                    last.count += count;
                    count = 0;
                }
            }
        }
        if count > 0 {
            self.runs.push(Run { peer, start, len, stride: if count == 1 { 0 } else { stride }, count });
            self.open = true;
        }
    }

    /// Adds one piece, or equal pieces, of a stretch that has others, too.
    #[inline]
    pub fn part(&mut self, peer: u64, start: u64, len: u64, stride: u64, count: u64) {
        self.runs.push(Run { peer, start, len, stride: if count == 1 { 0 } else { stride }, count });
        self.open = false;
    }

    /// Adds a stretch `start..end` over the blocks of a cyclic other side. `start` lies `within` elements deep in a
    /// block of `peer`.
    #[inline]
    pub fn stretch(&mut self, start: u64, end: u64, peer: u64, within: u64, there: &Cycle) {
        let boundary = start + (there.block - within);
        if end <= boundary {
            return self.lone(peer, start, end - start, 0, 1);
        }
        if end - start > there.stride {
            return self.long_stretch(start, end, peer, within, there);
        }
        let (mut start, mut boundary, mut peer) = (start, boundary, peer);
        while boundary < end {
            self.part(peer, start, boundary - start, 0, 1);
            start = boundary;
            boundary += there.block;
            peer = if peer + 1 == there.procs { 0 } else { peer + 1 };
        }
        self.part(peer, start, end - start, 0, 1);
    }

    /// Adds by rule 2: a stretch longer than one round of the other side, without walking all its pieces.
    fn long_stretch(&mut self, start: u64, end: u64, peer: u64, within: u64, there: &Cycle) {
        let (mut start, mut peer) = (start, peer);
        let next = |peer: u64| if peer + 1 == there.procs { 0 } else { peer + 1 };
        if within > 0 {
            let head = there.block - within;
            self.part(peer, start, head, 0, 1);
            start += head;
            peer = next(peer);
        }
        let whole = (end - start) / there.block;
        let tail = start + whole * there.block;
        let last_peer = (peer + whole % there.procs) % there.procs;
        let (rounds, extra) = (whole / there.procs, whole % there.procs);
        for turn in 0..there.procs.min(whole) {
            let count = rounds + u64::from(turn < extra);
            self.part(peer, start, there.block, there.stride, count);
            start += there.block;
            peer = next(peer);
        }
        if tail < end {
            self.part(last_peer, tail, end - tail, 0, 1);
        }
    }

    /// The canonical runs of pieces in any order, given the axis of the other side: a slow reference implementation.
    pub fn flat(mut pieces: Vec<Flat>, there: &Axis) -> Vec<Run> {
        pieces.sort_unstable_by_key(|piece| piece.start);
        pieces.dedup_by(|next, kept| {
            let joins = next.start == kept.end && next.peer == kept.peer;
            if joins {
                kept.end = next.end;
            }
            joins
        });
        let round = there.has_cycle().then(|| (there.cycle().block, there.cycle().stride));
        let mut fold = Self::with_capacity(0);
        for stretch in pieces.chunk_by(|a, b| a.end == b.start) {
            if let [one] = stretch {
                fold.lone(one.peer, one.start, one.end - one.start, 0, 1);
                continue;
            }
            let first = fold.runs.len();
            for piece in stretch {
                let len = piece.end - piece.start;
                let joins = |run: &&mut Run| {
                    round.is_some_and(|(block, stride)| {
                        let next = run.start + run.count * stride;
                        run.peer == piece.peer && run.len == block && len == block && next == piece.start
                    })
                };
                match fold.runs[first..].iter_mut().find(joins) {
                    Some(run) => {
                        run.count += 1;
                        run.stride = round.map_or(0, |(_, stride)| stride);
                    }
                    None => fold.part(piece.peer, piece.start, len, 0, 1),
                }
            }
            fold.open = false;
        }
        fold.runs
    }
}
