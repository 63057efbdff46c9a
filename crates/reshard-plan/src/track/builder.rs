//! Builds a track from an overlap: its runs, which are sorted by peer, become loops in the order of the destination.

use super::{Loop, Stretch, Track, join, push};
use crate::error::{Error, Result};
use crate::memory;
use crate::overlap::{Overlap, Run, Sides};

/// A period of at most this many pieces is written as one loop; a longer one only if repeating it loop by loop takes more.
const MAX_FLAT_PIECES: u64 = 512;

/// The most rounds of one piece that are listed one by one: a list of its own would take longer to make.
const MAX_LISTED_ROUNDS: u64 = 4;

/// The most pieces of a track.
const MAX_PIECES: u64 = 1 << 26;

/// The track of a process.
pub fn track(overlap: &Overlap, sides: &Sides<'_>, process: u64) -> Result<Track> {
    let (extent, period) = (overlap.extent(), overlap.period());
    let mut builder = Builder::new(sides, process, overlap)?;
    if let Some(repeats) = extent.checked_div(period) {
        let rest = clipped(overlap.runs(), extent % period);
        let pieces: u64 = overlap.runs().iter().map(|run| run.count).sum();
        let listed = (overlap.runs().len() as u64).saturating_mul(repeats);
        if repeats >= 2 && pieces <= listed.max(MAX_FLAT_PIECES) {
            builder.count(pieces)?;
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
        debug_assert!(first.is_none_or(|(owner, _)| owner == here.axis.part_of(process)));
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

    /// The source's local index of a window index of a run.
    fn from(&self, run: &Run, window: u64) -> u64 {
        let there = self.sides.there();
        there.axis.local_index_at(run.peer, there.offset + window)
    }

    /// Appends a stretch to a round that begins at position `self.elems`.
    fn stretch(&self, at: u64, run: &Run, window: u64, from_step: u64, to_step: u64) -> Stretch {
        let to = self.first + self.elems + at;
        let (peer, from) = (self.peer(run.peer), self.from(run, window));
        Stretch { at, len: run.len, peer, from, to, from_step, to_step }
    }

    /// Appends whole periods as one loop. On a cyclic axis a peer's local index grows evenly along a run, as in `lone`, so it is
    /// worked out for two pieces of it alone: this is most of the time that planning a rank takes.
    fn periods(&mut self, runs: &[Run], repeats: u64, period: u64) {
        let pieces: u64 = runs.iter().map(|run| run.count).sum();
        let elems = runs.iter().map(|run| run.len * run.count).sum();
        let from_step = period / self.sides.there().axis.parts();
        // The first window index of each piece; its position and `to` follow from the order.
        let mut flat: Vec<(u64, Stretch)> = Vec::with_capacity(pieces as usize);
        for run in runs {
            let first = self.stretch(0, run, run.start, from_step, elems);
            let step = if run.count > 1 { self.from(run, run.start + run.stride) - first.from } else { 0 };
            let piece =
                |k: u64| (run.start + k * run.stride, Stretch { from: first.from + k * step, ..first });
            flat.extend((0..run.count).map(piece));
        }
        if !flat.is_sorted_by_key(|(start, _)| *start) {
            flat.sort_unstable_by_key(|(start, _)| *start);
        }
        let mut stretches = Vec::with_capacity(flat.len());
        let mut at = 0;
        for (_, stretch) in flat {
            push(&mut stretches, Stretch { at, to: stretch.to + at, ..stretch });
            at += stretch.len;
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
            let count = if left == 1 || there.axis.has_cycle() {
                left
            } else {
                let end = there.axis.block_at(there.offset + window).map_or(0, |(_, end)| end - there.offset);
                ((end - window - run.len) / run.stride + 1).min(left)
            };
            let stretch = self.stretch(0, run, window, 0, run.len);
            let from_step = if count == 1 { 0 } else { self.from(run, window + run.stride) - stretch.from };
            if count <= MAX_LISTED_ROUNDS {
                (0..count).for_each(|k| self.once(stretch.peer, stretch.from + k * from_step, run.len));
            } else {
                let stretches = vec![Stretch { from_step, ..stretch }];
                join(&mut self.loops, self.elems, count, run.len, stretches);
                self.elems += run.len * count;
            }
            done += count;
            self.count(count.min(MAX_LISTED_ROUNDS))?;
        }
        Ok(())
    }

    /// Appends whole blocks of many peers inside one own block, round after round; some peers may come once more than others.
    fn interleaved(&mut self, runs: &[Run], base: u64) {
        let rounds = runs.iter().map(|run| run.count).min().unwrap_or(0);
        let elems = runs.iter().map(|run| run.len).sum();
        if rounds <= 1 {
            for run in runs {
                self.once(self.peer(run.peer), self.from(run, base + run.start), run.len);
            }
        } else {
            let mut stretches = Vec::with_capacity(runs.len());
            let mut at = 0;
            for run in runs {
                // A whole block of the peer in each round.
                push(&mut stretches, self.stretch(at, run, base + run.start, run.len, elems));
                at += run.len;
            }
            join(&mut self.loops, self.elems, rounds, elems, stretches);
            self.elems += elems * rounds;
        }
        for run in runs.iter().filter(|run| run.count > rounds) {
            let window = base + run.start + rounds * run.stride;
            self.once(self.peer(run.peer), self.from(run, window), run.len);
        }
    }

    /// Appends one piece that does not repeat, as `join` would, but without a list of its own.
    fn once(&mut self, peer: u32, from: u64, len: u64) {
        let to = self.first + self.elems;
        let piece = Stretch { at: 0, len, peer, from, to, from_step: 0, to_step: 0 };
        match self.loops.last_mut().filter(|last| last.rounds == 1) {
            Some(last) => {
                push(&mut last.stretches, Stretch { at: last.elems, ..piece });
                last.elems += len;
            }
            None => self.loops.push(Loop { at: self.elems, rounds: 1, elems: len, stretches: vec![piece] }),
        }
        self.elems += len;
    }
}
