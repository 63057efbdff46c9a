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

mod builder;

use crate::error::Result;
use crate::overlap::{Overlap, Sides};
use std::ops::Range;

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
        builder::track(overlap, sides, process)
    }

    /// The track of elements that all come from one process of a replicated axis: from another of its copies.
    #[must_use]
    pub(crate) fn taking_copy(mut self, copy: u64) -> Self {
        self.peers.fill(copy);
        self
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

    /// The track of a range of the positions, which count from 0 there.
    #[must_use]
    pub fn within(&self, positions: Range<u64>) -> Self {
        let (mut loops, mut elems) = (Vec::new(), 0);
        let first = self.loops.partition_point(|each| each.at + each.rounds * each.elems <= positions.start);
        for each in self.loops[first..].iter().take_while(|each| each.at < positions.end) {
            let mut at = positions.start.saturating_sub(each.at);
            let end = (positions.end - each.at).min(each.rounds * each.elems);
            // The end of a round, whole rounds, the beginning of a round.
            while at < end {
                let (round, deep) = (at / each.elems, at % each.elems);
                let rounds = if deep == 0 { (end - at) / each.elems } else { 0 };
                let part = if rounds > 0 { 0..each.elems } else { deep..(deep + end - at).min(each.elems) };
                let (rounds, len) = (rounds.max(1), part.end - part.start);
                join(&mut loops, elems, rounds, len, each.part_of_round(round, part));
                (at, elems) = (at + rounds * len, elems + rounds * len);
            }
        }
        let mut track = Self { loops, peers: self.peers.clone(), elems };
        track.forget_unused_peers();
        track
    }

    /// Drops the peers that no element comes from.
    fn forget_unused_peers(&mut self) {
        let mut used = vec![false; self.peers.len()];
        let stretches = |loops: &mut [Loop], act: &mut dyn FnMut(&mut Stretch)| {
            loops.iter_mut().flat_map(|each| &mut each.stretches).for_each(act);
        };
        stretches(&mut self.loops, &mut |stretch| used[stretch.peer as usize] = true);
        let mut numbers = vec![0; used.len()];
        let mut next = 0;
        for (number, used) in numbers.iter_mut().zip(&used) {
            (*number, next) = (next, next + u32::from(*used));
        }
        stretches(&mut self.loops, &mut |stretch| stretch.peer = numbers[stretch.peer as usize]);
        let mut used = used.into_iter();
        self.peers.retain(|_| used.next() == Some(true));
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

    /// The stretches of a part of a round, from one round on; their positions count from the beginning of the part.
    fn part_of_round(&self, round: u64, part: Range<u64>) -> Vec<Stretch> {
        let first = self.stretches.partition_point(|stretch| stretch.at + stretch.len <= part.start);
        let mut kept = Vec::new();
        for stretch in self.stretches[first..].iter().take_while(|stretch| stretch.at < part.end) {
            let skipped = part.start.saturating_sub(stretch.at);
            let whole = self.in_round(stretch, round);
            let len = stretch.len.min(part.end - stretch.at) - skipped;
            let at = stretch.at + skipped - part.start;
            push(
                &mut kept,
                Stretch { at, len, from: whole.from + skipped, to: whole.to + skipped, ..*stretch },
            );
        }
        kept
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
