//! The sources of the elements of one destination process along one axis, in the order of its memory.
//!
//! An [`Overlap`] has window indices and peers; a copy needs local indices on both sides and writes in order. A [`Track`] has
//! these: *positions* count the elements a process receives along the axis, 0, 1, 2, ...,
//! and each position has a peer, a local index there (`from`) and a local index here (`to`). It is written as loops of
//! pieces: equal rounds, one after the other, so its size depends on blocks and processes and, as with overlaps, not on
//! the length of the array.
//!
//! ```text
//! positions    0 1 2 3 4 | 5 6 7 8 9 | 10 ...      a loop of rounds of 5 positions
//! peer         A A A B B | A A A B B | A           two pieces a round
//! from         0 1 2 0 1 | 3 4 5 2 3 | 6           from_step is 3 for A, 2 for B
//! ```
//!
//! Restricted to one peer ([`Track::with_peer`]) it describes one message; with one side renumbered by position
//! ([`Track::packed`], [`Track::unpacked`]) it packs that message and unpacks it. [`Track::staged`] unpacks the messages of
//! all peers at once.

use crate::error::{Error, Result};
use crate::memory;
use crate::overlap::{Overlap, Run, Sides};

/// The most pieces of a period that is written as one loop; a longer period is repeated loop by loop.
const MAX_FLAT_PIECES: u64 = 512;

/// The most pieces of a track.
const MAX_PIECES: u64 = 1 << 26;

/// `len` adjacent elements from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Position of the stretch within the round of its loop.
    pub at: u64,
    /// Number of elements.
    pub len: u64,
    /// Index of the source in [`Track::peers`].
    pub peer: u32,
    /// Local index of the first element at the source, in the loop's first round.
    pub from: u64,
    /// Local index of the first element at the destination, in the loop's first round.
    pub to: u64,
    /// Distance of `from` from one round to the next.
    pub from_step: u64,
    /// Distance of `to` from one round to the next.
    pub to_step: u64,
}

/// Stretches that repeat in equal rounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Position of the first element.
    pub at: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// Number of elements in a round.
    pub elems: u64,
    /// The stretches of a round, in order of position, without gaps.
    pub stretches: Vec<Stretch>,
}

/// The sources of one destination process's elements along one axis, in order of position.
///
/// ```
/// use reshard_plan::{Axis, Sides, Track};
/// let (from, to) = (Axis::block_cyclic(1000, 2, 1, 0)?, Axis::block_cyclic(1000, 1, 1000, 0)?);
/// let track = Track::new(&Sides::whole(&to, &from)?, 0)?;
/// // A zip of two halves: one loop, two stretches of one element.
/// assert_eq!((track.loops().len(), track.loops()[0].rounds, track.loops()[0].stretches.len()), (1, 500, 2));
/// assert_eq!(track.pieces().nth(3).map(|piece| (piece.at, piece.peer, piece.from)), Some((3, 1, 1)));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Track {
    loops: Vec<Loop>,
    peers: Vec<u64>,
    elems: u64,
}

impl Track {
    /// The track of `process` of the destination. The processes of the destination are the `here` of `sides`.
    pub fn new(sides: &Sides<'_>, process: u64) -> Result<Self> {
        Self::of(&Overlap::new(sides, process)?, sides, process)
    }

    /// The track of a process whose overlap is known already.
    pub fn of(overlap: &Overlap, sides: &Sides<'_>, process: u64) -> Result<Self> {
        let (extent, period) = (overlap.extent(), overlap.period());
        let mut builder = Builder::new(sides, process, overlap)?;
        if let Some(repeats) = extent.checked_div(period) {
            let rest = clipped(overlap.runs(), extent % period);
            let pieces: u64 = overlap.runs().iter().map(|run| run.count).sum();
            if repeats >= 2 && pieces <= MAX_FLAT_PIECES {
                builder.periods(overlap.runs(), repeats, period);
            } else {
                for k in 0..repeats {
                    builder.section(overlap.runs(), k * period)?;
                }
            }
            builder.section(&rest, repeats * period)?;
        }
        Ok(builder.finish())
    }

    /// Number of elements.
    pub fn elems(&self) -> u64 {
        self.elems
    }

    /// The peers that elements come from, ascending, as coordinates on the source's axis.
    pub fn peers(&self) -> &[u64] {
        &self.peers
    }

    /// The loops, in order of position, without gaps.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// Every stretch of every round in order of position, with absolute positions and indices.
    pub fn pieces(&self) -> impl Iterator<Item = Stretch> + '_ {
        self.loops.iter().flat_map(|each| {
            (0..each.rounds).flat_map(move |round| {
                each.stretches.iter().map(move |stretch| each.in_round(stretch, round))
            })
        })
    }

    /// The track of only the elements of one peer (an index into [`peers`](Self::peers)); their positions count from 0.
    #[must_use]
    pub fn with_peer(&self, peer: u32) -> Self {
        let mut loops: Vec<Loop> = Vec::new();
        let mut elems = 0;
        for each in &self.loops {
            let mut at = 0;
            let mut stretches: Vec<Stretch> = Vec::new();
            for stretch in each.stretches.iter().filter(|stretch| stretch.peer == peer) {
                push(&mut stretches, Stretch { at, peer: 0, ..*stretch });
                at += stretch.len;
            }
            join(&mut loops, elems, each.rounds, at, stretches);
            elems += at * each.rounds;
        }
        let peers = self.peers.get(peer as usize).copied().into_iter().collect();
        Self { loops, peers, elems }
    }

    /// The track that packs these elements, writing them one after the other: `to` is the position.
    #[must_use]
    pub fn packed(&self) -> Self {
        self.renumbered(|each, stretch| Stretch { to: each.at + stretch.at, to_step: each.elems, ..stretch })
    }

    /// The track that unpacks these elements, reading them one after the other: `from` is the position.
    #[must_use]
    pub fn unpacked(&self) -> Self {
        self.renumbered(|each, stretch| Stretch {
            from: each.at + stretch.at,
            from_step: each.elems,
            ..stretch
        })
    }

    /// The track that reads these elements from staging buffers, one for each peer, in which the peer's elements are packed one
    /// after the other: `from` counts the positions of that peer.
    #[must_use]
    pub fn staged(&self) -> Self {
        self.staged_except(None)
    }

    /// As [`staged`](Self::staged), but the elements of `peer` (an index into [`peers`](Self::peers)), if given, are read from the
    /// source in place.
    #[must_use]
    pub fn staged_except(&self, peer: Option<u32>) -> Self {
        let mut loops = Vec::with_capacity(self.loops.len());
        self.in_buffers(|each, staged| {
            let mut stretches = Vec::with_capacity(staged.len());
            for (there, here) in each.stretches.iter().zip(staged) {
                push(&mut stretches, if Some(there.peer) == peer { *there } else { *here });
            }
            join(&mut loops, each.at, each.rounds, each.elems, stretches);
        });
        Self { loops, peers: self.peers.clone(), elems: self.elems }
    }

    /// As [`staged`](Self::staged), but with exactly the loops and stretches of this track: none are merged.
    #[must_use]
    pub fn staged_unmerged(&self) -> Self {
        let mut loops = Vec::with_capacity(self.loops.len());
        self.in_buffers(|each, staged| loops.push(Loop { stretches: staged.to_vec(), ..each.clone() }));
        Self { loops, peers: self.peers.clone(), elems: self.elems }
    }

    /// Calls `take` for each loop with its stretches as they are in the staging buffers.
    fn in_buffers(&self, mut take: impl FnMut(&Loop, &[Stretch])) {
        let mut done = vec![0; self.peers.len()];
        let mut staged = Vec::new();
        for each in &self.loops {
            let mut within = vec![0; self.peers.len()];
            let in_round = each.in_round_of_each(self.peers.len());
            staged.clear();
            staged.extend(each.stretches.iter().map(|stretch| {
                let peer = stretch.peer as usize;
                let from = done[peer] + within[peer];
                within[peer] += stretch.len;
                Stretch { from, from_step: in_round[peer], ..*stretch }
            }));
            take(each, &staged);
            done.iter_mut().zip(&in_round).for_each(|(done, elems)| *done += elems * each.rounds);
        }
    }

    /// Number of positions below a given one that come from a peer (an index into [`peers`](Self::peers)).
    pub fn before(&self, peer: u32, position: u64) -> u64 {
        let of_loop = |each: &Loop| {
            let here = position.saturating_sub(each.at).min(each.rounds * each.elems);
            let of_peer = |up_to: u64| -> u64 {
                let stretches = each.stretches.iter().filter(|stretch| stretch.peer == peer);
                stretches.map(|stretch| up_to.saturating_sub(stretch.at).min(stretch.len)).sum()
            };
            here / each.elems * of_peer(each.elems) + of_peer(here % each.elems)
        };
        self.loops.iter().take_while(|each| each.at < position).map(of_loop).sum()
    }

    /// The peer (an index into [`peers`](Self::peers)) that a position comes from.
    pub fn peer_at(&self, position: u64) -> Option<u32> {
        let each = &self.loops[self.find(position)?.0];
        let deep =
            position.checked_sub(each.at).filter(|deep| *deep < each.rounds * each.elems)? % each.elems;
        let index = each.stretches.partition_point(|stretch| stretch.at <= deep).checked_sub(1)?;
        Some(each.stretches[index].peer)
    }

    fn renumbered(&self, anew: impl Fn(&Loop, Stretch) -> Stretch) -> Self {
        let mut loops = Vec::with_capacity(self.loops.len());
        for each in &self.loops {
            let mut stretches = Vec::with_capacity(each.stretches.len());
            each.stretches.iter().for_each(|stretch| push(&mut stretches, anew(each, *stretch)));
            join(&mut loops, each.at, each.rounds, each.elems, stretches);
        }
        Self { loops, peers: self.peers.clone(), elems: self.elems }
    }

    /// The loop of a position and the round in it; the last loop and round for positions past the end.
    pub fn find(&self, position: u64) -> Option<(usize, u64)> {
        let index = self.loops.partition_point(|each| each.at <= position).checked_sub(1)?;
        let each = &self.loops[index];
        Some((index, (position - each.at) / each.elems))
    }
}

impl Loop {
    /// Elements of each peer in a round.
    fn in_round_of_each(&self, peers: usize) -> Vec<u64> {
        let mut elems = vec![0; peers];
        self.stretches.iter().for_each(|stretch| elems[stretch.peer as usize] += stretch.len);
        elems
    }

    /// A stretch in one round, with absolute position and indices.
    pub fn in_round(&self, stretch: &Stretch, round: u64) -> Stretch {
        Stretch {
            at: self.at + round * self.elems + stretch.at,
            from: stretch.from + round * stretch.from_step,
            to: stretch.to + round * stretch.to_step,
            ..*stretch
        }
    }
}

/// Appends a stretch to a round; merges it with the last stretch if it continues that one on both sides.
fn push(stretches: &mut Vec<Stretch>, next: Stretch) {
    if let Some(last) = stretches.last_mut() {
        let goes_on =
            last.peer == next.peer && last.from + last.len == next.from && last.to + last.len == next.to;
        if goes_on && (last.from_step, last.to_step) == (next.from_step, next.to_step) {
            last.len += next.len;
            return;
        }
    }
    stretches.push(next);
}

/// Appends a loop. Merges its rounds to one stretch if they are contiguous, and a loop of a single round with a last loop of a
/// single round.
fn join(loops: &mut Vec<Loop>, at: u64, rounds: u64, elems: u64, mut stretches: Vec<Stretch>) {
    if elems == 0 || rounds == 0 {
        return;
    }
    let mut rounds = rounds;
    let mut elems = elems;
    if let [only] = stretches.as_mut_slice()
        && (only.from_step, only.to_step) == (only.len, only.len)
    {
        only.len *= rounds;
        elems *= rounds;
        rounds = 1;
    }
    if rounds == 1 {
        stretches.iter_mut().for_each(|stretch| (stretch.from_step, stretch.to_step) = (0, 0));
        if let Some(last) = loops.last_mut().filter(|last| last.rounds == 1) {
            for stretch in stretches {
                push(&mut last.stretches, Stretch { at: last.elems + stretch.at, ..stretch });
            }
            last.elems += elems;
            return;
        }
    }
    loops.push(Loop { at, rounds, elems, stretches });
}

/// The runs up to a window index, in order; a piece across the index is cut.
fn clipped(runs: &[Run], end: u64) -> Vec<Run> {
    let mut kept = Vec::new();
    for run in runs.iter().filter(|run| run.start < end) {
        let begun = if run.count == 1 { 1 } else { ((end - 1 - run.start) / run.stride + 1).min(run.count) };
        let last = run.start + (begun - 1) * run.stride;
        let whole = begun - u64::from(last + run.len > end);
        if whole > 0 {
            kept.push(Run { count: whole, stride: if whole == 1 { 0 } else { run.stride }, ..*run });
        }
        if whole < begun {
            kept.push(Run { start: last, len: end - last, stride: 0, count: 1, ..*run });
        }
    }
    kept.sort_by_key(|run| run.start);
    kept
}

struct Builder<'a> {
    sides: &'a Sides<'a>,
    peers: Vec<u64>,
    loops: Vec<Loop>,
    elems: u64,
    /// Local index, here, of position 0.
    first: u64,
    listed: u64,
    /// Number of pieces there is room for.
    fit: u64,
}

impl<'a> Builder<'a> {
    fn new(sides: &'a Sides<'a>, process: u64, overlap: &Overlap) -> Result<Self> {
        let mut peers: Vec<u64> = overlap.runs().iter().map(|run| run.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        if u32::try_from(peers.len()).is_err() {
            return Err(Error::too_large("one process shares an axis with more than 2^32 others"));
        }
        let here = sides.here();
        let first =
            overlap.runs().first().and_then(|run| here.axis.local_from_global(here.offset + run.start));
        debug_assert!(first.is_none_or(|(owner, _)| owner == process));
        Ok(Self {
            sides,
            peers,
            loops: Vec::new(),
            elems: 0,
            first: first.map_or(0, |(_, local)| local),
            listed: 0,
            fit: MAX_FLAT_PIECES,
        })
    }

    fn finish(self) -> Track {
        Track { loops: self.loops, peers: self.peers, elems: self.elems }
    }

    fn peer(&self, coord: u64) -> u32 {
        // Fits: the number of pieces was checked.
        self.peers.partition_point(|&peer| peer < coord) as u32
    }

    /// The source's local index of a window index.
    fn from(&self, window: u64) -> u64 {
        let there = self.sides.there();
        // Runs lie inside the window, and the window on the axis.
        there.axis.local_from_global(there.offset + window).map_or(0, |(_, local)| local)
    }

    /// Appends a stretch to a round that begins at position `self.elems`.
    fn stretch(&self, at: u64, peer: u64, window: u64, len: u64, from_step: u64, to_step: u64) -> Stretch {
        let to = self.first + self.elems + at;
        Stretch { at, len, peer: self.peer(peer), from: self.from(window), to, from_step, to_step }
    }

    /// Appends whole periods as one loop.
    fn periods(&mut self, runs: &[Run], repeats: u64, period: u64) {
        let mut flat: Vec<(u64, u64, u64)> = runs
            .iter()
            .flat_map(|run| run.pieces().map(|piece| (piece.start, piece.end - piece.start, run.peer)))
            .collect();
        flat.sort_unstable();
        let elems = flat.iter().map(|&(_, len, _)| len).sum();
        let from_step = period / self.sides.there().axis.procs();
        let mut stretches = Vec::with_capacity(flat.len());
        let mut at = 0;
        for (start, len, peer) in flat {
            push(&mut stretches, self.stretch(at, peer, start, len, from_step, elems));
            at += len;
        }
        join(&mut self.loops, self.elems, repeats, elems, stretches);
        self.elems += elems * repeats;
    }

    /// Appends the runs of one period that begins `base` elements into the window.
    fn section(&mut self, runs: &[Run], base: u64) -> Result<()> {
        let mut index = 0;
        while let Some(run) = runs.get(index) {
            let end_of_round = run.start + run.stride;
            let group = 1 + runs[index + 1..].iter().take_while(|other| other.start < end_of_round).count();
            let (together, others) = (&runs[index..index + group], index + group);
            self.count(together.len() as u64)?;
            if group == 1 {
                self.lone(run, base)?;
            } else {
                self.interleaved(together, base);
            }
            index = others;
        }
        Ok(())
    }

    /// Announces at most `more` further pieces. Memory grows by half each time there are more than fit.
    fn count(&mut self, more: u64) -> Result<()> {
        self.listed += more;
        if self.listed > self.fit {
            self.fit = self.listed + self.listed / 2;
            let each = (size_of::<Stretch>() + size_of::<Loop>()) as u128;
            memory::check(u128::from(self.fit) * each, "the pieces of an axis")?;
        }
        if self.listed > MAX_PIECES {
            return Err(Error::too_large(format!(
                "copying along this axis takes more than {MAX_PIECES} different pieces before anything repeats; \
                 choose block sizes nearer to multiples of each other"
            )));
        }
        Ok(())
    }

    /// Appends the pieces of one peer, with nothing in between. On a cyclic axis the peer's local index grows evenly; an irregular one
    /// has even parts, as far as its blocks go.
    fn lone(&mut self, run: &Run, base: u64) -> Result<()> {
        let there = self.sides.there();
        let mut done = 0;
        while done < run.count {
            let window = base + run.start + done * run.stride;
            let left = run.count - done;
            let count = if left == 1 || there.axis.is_cyclic() {
                left
            } else {
                let end = there.axis.block_at(there.offset + window).map_or(0, |(_, end)| end - there.offset);
                ((end - window - run.len) / run.stride + 1).min(left)
            };
            let from_step = if count == 1 { 0 } else { self.from(window + run.stride) - self.from(window) };
            let stretch = self.stretch(0, run.peer, window, run.len, from_step, run.len);
            join(&mut self.loops, self.elems, count, run.len, vec![stretch]);
            self.elems += run.len * count;
            done += count;
            self.count(1)?;
        }
        Ok(())
    }

    /// Appends whole blocks of many peers inside one own block, round after round; some peers may come once more than others.
    fn interleaved(&mut self, runs: &[Run], base: u64) {
        let rounds = runs.iter().map(|run| run.count).min().unwrap_or(0);
        let elems = runs.iter().map(|run| run.len).sum();
        let mut stretches = Vec::with_capacity(runs.len());
        let mut at = 0;
        for run in runs {
            // A whole block of the peer in each round.
            push(&mut stretches, self.stretch(at, run.peer, base + run.start, run.len, run.len, elems));
            at += run.len;
        }
        join(&mut self.loops, self.elems, rounds, elems, stretches);
        self.elems += elems * rounds;
        for run in runs.iter().filter(|run| run.count > rounds) {
            let window = base + run.start + rounds * run.stride;
            let stretch = self.stretch(0, run.peer, window, run.len, 0, 0);
            join(&mut self.loops, self.elems, 1, run.len, vec![stretch]);
            self.elems += run.len;
        }
    }
}
