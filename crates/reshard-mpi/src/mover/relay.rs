//! Two copies through small shared boxes: what a rank packs is assembled by another while it is still in the caches.
//!
//! Each pair of ranks has two boxes in the sender's segment, so the sender packs the next chunk while the receiver works on
//! the last. Numbers that only grow say who may touch a box: the sender has *filled* so many of the receiver's chunks, the
//! receiver has *emptied* so many of its own. There is nothing else to wait for, within a run or between runs.
//!
//! What bounds it: each line of a box is taken from the core that read it last, to be packed, and from the core that packed
//! it, to be assembled; between two cores much of a run is that, however fast source and destination are. Asking for lines
//! ahead of packing helps. Other sizes and numbers of boxes, stores past the caches and lines pushed out by either side did
//! not; nor did reading each other's memory through the kernel (`process_vm_readv`), which is slow for short pieces.

use super::{Moving, Progress, Tally, named, too_little};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::shared::{Neighbours, Pages};
use reshard::engine::Data;
use reshard::rank::{Bundle, Relay};
use reshard_plan::{Plan, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Boxes for each pair of ranks.
const BOXES: u64 = 2;

/// Boxes are used in turn, and those of many ranks have more pages than a processor remembers.
const PAGES: Pages = Pages::Huge;

/// Where a rank writes down how many chunks it has emptied.
const EMPTIED: usize = 0;

/// The most receivers of a bundle.
const MOST: usize = 8;

/// A cache line, so that nobody's counter is another's neighbour.
const LINE: usize = 64;

pub struct RelayMover {
    relay: Relay,
    neighbours: Neighbours,
    outgoing: Vec<Lane>,
    incoming: Vec<Lane>,
    /// Runs that are over.
    runs: u64,
    /// The next chunk of this rank's own, in this run.
    next: u64,
    /// The bundle of receivers to begin with: not all ranks begin with the same.
    first: usize,
    tally: Tally,
    bytes: usize,
}

/// The boxes from one rank to another: a counter, then the boxes, in the sender's segment.
#[derive(Clone, Copy)]
struct Lane {
    /// The other rank.
    rank: usize,
    at: usize,
    /// Bytes of a box.
    room: usize,
    /// Chunks of the receiver, in a run.
    chunks: u64,
    /// The next chunk, in this run.
    next: u64,
}

impl RelayMover {
    /// Collective. All boxes of a chunk have together about `chunk` bytes, less if all ranks' would take more than `memory`.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Comm,
        chunk: u64,
        memory: Option<u64>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let relay = fitting(plan, comm, chunk, memory, limit)?;
        let mut bytes = LINE;
        let mut table = vec![[0_u64; 2]; comm.size()];
        let mut outgoing = Vec::with_capacity(relay.outgoing().len());
        for to in relay.outgoing() {
            let room = to.most_bytes.next_multiple_of(LINE);
            let lane = Lane { rank: to.to as usize, at: bytes, room, chunks: to.chunks as u64, next: 0 };
            table[lane.rank] = [lane.at as u64, lane.room as u64];
            bytes += LINE + BOXES as usize * room;
            outgoing.push(lane);
        }
        let neighbours = Neighbours::share(comm, bytes, PAGES, limit)?;
        let mine: Vec<u8> = table.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        let mut all = vec![0; mine.len() * comm.size()];
        comm.all_gather_within(&mine, &mut all, limit)?;
        let number = |from: usize, k: usize| {
            let at = from * mine.len() + comm.rank() * 16 + k * 8;
            u64::from_ne_bytes(all[at..at + 8].try_into().unwrap_or_default()) as usize
        };
        let lane = |&rank: &u64| {
            let rank = rank as usize;
            Lane { rank, at: number(rank, 0), room: number(rank, 1), chunks: 0, next: 0 }
        };
        let incoming = relay.incoming().iter().map(lane).collect();
        let higher = |bundle: &Bundle| outgoing[bundle.members[0]].rank > comm.rank();
        let first = relay.bundles().iter().position(higher).unwrap_or(0);
        let tally = Tally::default();
        Ok(Self { relay, neighbours, outgoing, incoming, runs: 0, next: 0, first, tally, bytes })
    }

    /// Packs the next chunk of a bundle of receivers, if there is a free box for each.
    fn pack(&mut self, data: &Data<'_>, bundle: usize) -> bool {
        let Self { relay, neighbours, outgoing, runs, tally, .. } = self;
        let members = &relay.bundles()[bundle].members;
        // All members have as many chunks, and are at the same.
        let Lane { chunks, next, .. } = outgoing[members[0]];
        let chunk = *runs * chunks + next;
        let free = |&member: &usize| chunk < emptied(neighbours, outgoing[member].rank) + BOXES;
        if next >= chunks || !members.iter().all(free) {
            return false;
        }
        let began = Instant::now();
        let mut lanes = [0; MOST];
        let count = members.len();
        lanes[..count].copy_from_slice(members);
        relay.pack_bundle(data, bundle, next as usize, |k| {
            let Lane { at, room, .. } = outgoing[lanes[k]];
            let place =
                neighbours.place(neighbours.rank(), at + LINE + (chunk % BOXES) as usize * room, room);
            // SAFETY: a box in our own segment, another for each lane. The receiver has emptied it (its counter says so) and
            // reads it again only when ours says that it is filled, which is below.
            unsafe { std::slice::from_raw_parts_mut(place, room) }
        });
        for &lane in &lanes[..count] {
            neighbours.counter(neighbours.rank(), outgoing[lane].at).store(chunk + 1, Ordering::Release);
            outgoing[lane].next = relay.next_chunk(lane, next as usize + 1) as u64;
        }
        tally.pack += began.elapsed();
        true
    }

    /// Whether all boxes of a chunk are there. `all` counts the chunks of all runs.
    fn is_filled(&self, chunk: usize, all: u64) -> bool {
        let filled = |sender: usize| {
            let Lane { rank, at, .. } = self.incoming[sender];
            self.neighbours.counter(rank, at).load(Ordering::Acquire) > all
        };
        self.relay.needs(chunk).all(filled)
    }

    fn assemble(&mut self, data: &mut Data<'_>, chunk: usize, all: u64) {
        let began = Instant::now();
        let Self { relay, neighbours, incoming, tally, .. } = self;
        relay.assemble(data, chunk, |sender| {
            let Lane { rank, at, room, .. } = incoming[sender];
            let place = neighbours.place(rank, at + LINE + (all % BOXES) as usize * room, room);
            // SAFETY: the sender's counter says that it has filled this box; it writes there again only when ours says that
            // it is emptied, which is below.
            unsafe { std::slice::from_raw_parts(place, room) }
        });
        neighbours.counter(neighbours.rank(), EMPTIED).store(all + 1, Ordering::Release);
        tally.unpack += began.elapsed();
    }
}

impl Moving for RelayMover {
    fn begin(&mut self, _: &mut Data<'_>) {
        self.next = 0;
        for (number, lane) in self.outgoing.iter_mut().enumerate() {
            lane.next = self.relay.next_chunk(number, 0) as u64;
        }
        self.tally = Tally::default();
    }

    fn advance(&mut self, data: &mut Data<'_>) -> Result<Progress> {
        let mine = self.relay.chunks() as u64;
        let before = self.runs * mine;
        let (mut moved, mut left) = (false, false);
        let bundles = self.relay.bundles().len();
        for turn in 0..bundles {
            let bundle = (self.first + turn) % bundles;
            moved |= self.pack(data, bundle);
            let lane = &self.outgoing[self.relay.bundles()[bundle].members[0]];
            left |= lane.next < lane.chunks;
        }
        while self.next < mine && self.is_filled(self.next as usize, before + self.next) {
            self.assemble(data, self.next as usize, before + self.next);
            self.next += 1;
            moved = true;
            if left {
                break;
            }
        }
        if !left && self.next == mine {
            self.runs += 1;
            return Ok(Progress::Done);
        }
        Ok(Progress::of(moved))
    }

    fn late(&self) -> String {
        let mine = self.relay.chunks() as u64;
        let before = self.runs * mine;
        let busy = self.outgoing.iter().filter(|lane| lane.next < lane.chunks).map(|lane| lane.rank);
        let mut late: Vec<usize> = busy.filter(|&rank| rank != self.neighbours.rank()).collect();
        if self.next < mine {
            let needed = self.relay.needs(self.next as usize).map(|sender| self.incoming[sender]);
            late.extend(needed.filter_map(|Lane { rank, at, .. }| {
                let filled = self.neighbours.counter(rank, at).load(Ordering::Acquire);
                (filled <= before + self.next).then_some(rank)
            }));
        }
        named(late)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn scratch_bytes(&self) -> u64 {
        self.relay.scratch_bytes() + Neighbours::taken(self.bytes, PAGES) as u64
    }
}

/// The relay with the longest chunks, each half of the one before, that fits into the memory on all ranks together. As all
/// ranks reckon with the same sums, all end alike.
fn fitting(
    plan: &Arc<Plan>,
    comm: &Comm,
    chunk: u64,
    memory: Option<u64>,
    limit: Option<Duration>,
) -> Result<Relay> {
    let mut chunk = chunk;
    loop {
        let relay = Relay::new(Arc::clone(plan), comm.rank() as u64, chunk);
        let Some(memory) = memory else { return Ok(relay) };
        let boxes =
            relay.outgoing().iter().map(|to| LINE + BOXES as usize * to.most_bytes.next_multiple_of(LINE));
        let boxes = Neighbours::taken(LINE + boxes.sum::<usize>(), PAGES);
        let mut all = [relay.scratch_bytes() + boxes as u64];
        comm.all_reduce_within(&mut all, Reduce::Sum, limit)?;
        if all[0] <= memory {
            return Ok(relay);
        }
        if chunk <= 1 {
            return Err(too_little(memory, all[0]));
        }
        chunk /= 2;
    }
}

fn emptied(neighbours: &Neighbours, rank: usize) -> u64 {
    neighbours.counter(rank, EMPTIED).load(Ordering::Acquire)
}
