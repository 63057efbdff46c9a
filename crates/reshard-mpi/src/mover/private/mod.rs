//! Two copies through small shared boxes: a rank packs what another assembles.
//!
//! Each pair of ranks has a [`BufferRing`] with places for some boxes, used in turn, so the sender packs the next while the receiver
//! works on the last. Numbers that only grow say who may touch a box: the sender has *filled* so many; the receiver has
//! *emptied* the boxes of all its chunks up to one. There is nothing else to wait for, within a run or between runs.
//!
//! What bounds it: small arrays stay in the caches, and each line of a box is taken from the core that packed it, to be
//! assembled; the box is then packed again by that core, which has its lines now. With large arrays that is mostly slower than
//! memory: they are packed past the caches, many boxes in a turn, so that they are out of the way when they are assembled.
//! Then a byte crosses the memory's bus four times (twice in a copy past the caches, three times in a plain one), and what is
//! left to gain is in reading each source once, in order: what a rank packs for others and has for itself it does together,
//! in one pass where whole rows are its own.
//! Lines pushed out by either side, and reading each other's memory through the kernel (`process_vm_readv`), did not help.

pub(super) mod queue;

use super::{MoverBackend, Progress, RunCounters, named, other_call, too_little};
use crate::ffi::collective::Reduce;
use crate::private_comm::PrivateComm;
use crate::shm::{NodeMemory, PageKind};
use queue::{BufferHandle, BufferRing, Consumer, LINE, MANY, Producer, WarmBuffers, tell_emptied};
use reshard::engine::Buffers;
use reshard::rank::{self, ReceiverGroup, StagedCopy};
use reshard_plan::{Plan, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Boxes for each pair of ranks, at least: one is packed while the other is assembled.
const FEW: usize = 2;

/// More than the fewest boxes only as long as those of a rank take no more than so many bytes.
const PLENTY: usize = 8 << 20;

/// Boxes are used in turn, and those of many ranks have more pages than a processor remembers.
const PAGES: PageKind = PageKind::Huge;

/// With little memory, chunks are not made so short that there are more than this: each rank lists those of all.
const MOST_CHUNKS: u64 = 1 << 22;

/// The most receivers of a bundle.
const MOST: usize = 8;

pub struct PrivateMover {
    relay: StagedCopy,
    neighbours: NodeMemory,
    outgoing: Vec<SendState>,
    incoming: Vec<Consumer>,
    shelf: WarmBuffers,
    /// This rank's chunks of which others have something, in their order.
    joint: Vec<usize>,
    /// The others.
    alone: Vec<usize>,
    /// How many of each are done, in this run.
    joint_done: usize,
    alone_done: usize,
    /// Runs that are over.
    runs: u64,
    /// What stands for what the caller gave for this one.
    call: u64,
    /// The bundle of receivers to begin with: not all ranks begin with the same.
    first: usize,
    /// Chunks of a turn: half of the boxes, as others work on the other half.
    turn: usize,
    tally: RunCounters,
    bytes: usize,
}

/// The boxes this rank fills.
struct SendState {
    boxes: Producer,
    /// Chunks of the receiver, in a run.
    chunks: u64,
    /// The next chunk of which this rank has something, in this run.
    next: u64,
}

impl PrivateMover {
    /// Collective. All boxes of a chunk have together about `chunk` bytes, less if all ranks' would take more than `memory`.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &PrivateComm,
        chunk: u64,
        memory: Option<u64>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let (relay, chunk, most) = fitting(plan, comm, chunk, memory, limit)?;
        let me = comm.rank();
        let mut bytes = LINE;
        let mut take = |count: usize| {
            bytes += count;
            bytes - count
        };
        let mut table = vec![[0_u64; 3]; comm.size()];
        let mut outgoing = Vec::with_capacity(relay.outgoing().len());
        for to in relay.outgoing() {
            let (other, room, boxes) = (to.to as usize, room(to), boxes(to, most));
            let lane = BufferRing { sender: me, at: take(BufferRing::head(boxes)), other, room, boxes };
            table[other] = [lane.at, room, boxes].map(|number| number as u64);
            outgoing.push(SendState { boxes: Producer::new(lane), chunks: to.chunks as u64, next: 0 });
        }
        let mut spot = |room: usize| BufferHandle { rank: me, at: take(room), room };
        let (count, room) = at_hand(&relay, chunk);
        let shelf = WarmBuffers::new((0..count).map(|_| spot(room)));
        let places = || {
            let lanes = outgoing.iter().map(|to| to.boxes.lane);
            lanes.flat_map(|lane| (0..lane.boxes as u64).map(move |place| (lane, place)))
        };
        let spots: Vec<BufferHandle> = places().map(|(lane, _)| spot(lane.room)).collect();
        let neighbours = NodeMemory::share(comm, bytes, PAGES, limit)?;
        places().zip(spots).for_each(|((lane, place), spot)| lane.furnish(&neighbours, place, spot));
        let mine: Vec<u8> = table.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        // Also tells that all boxes stand in their places.
        let all = comm.gather(&mine, limit)?;
        let lane = |sender: usize| {
            let number = |k: usize| {
                let at = sender * mine.len() + (me * 3 + k) * 8;
                u64::from_ne_bytes(all[at..at + 8].try_into().unwrap_or_default()) as usize
            };
            BufferRing { sender, at: number(0), other: sender, room: number(1), boxes: number(2) }
        };
        let incoming: Vec<Consumer> =
            relay.incoming().iter().map(|&rank| Consumer::new(lane(rank as usize))).collect();
        let lanes = outgoing.iter().map(|to| to.boxes.lane).chain(incoming.iter().map(|from| from.lane));
        let turn = lanes.map(|lane| lane.boxes / FEW).max().unwrap_or(1);
        let higher = |bundle: &ReceiverGroup| outgoing[bundle.members[0]].boxes.lane.other > me;
        let first = relay.bundles().iter().position(higher).unwrap_or(0);
        let (alone, joint) = (0..relay.chunks()).partition(|&chunk| relay.needs(chunk).next().is_none());
        Ok(Self {
            relay,
            neighbours,
            outgoing,
            incoming,
            shelf,
            joint,
            alone,
            joint_done: 0,
            alone_done: 0,
            runs: 0,
            call: 0,
            first,
            turn,
            tally: RunCounters::default(),
            bytes,
        })
    }

    /// Packs the next chunk of a bundle of receivers, if there is a free box for each. Returns its number.
    fn pack(&mut self, data: &mut Buffers<'_>, bundle: usize) -> Option<usize> {
        let Self { relay, neighbours, outgoing, shelf, runs, call, tally, .. } = self;
        let members = &relay.bundles()[bundle].members;
        // All members have as many chunks, and are at the same.
        let SendState { chunks, next, .. } = outgoing[members[0]];
        if next >= chunks || !members.iter().all(|&member| outgoing[member].boxes.is_free(neighbours)) {
            return None;
        }
        let began = Instant::now();
        let own = self.alone.get(self.alone_done) == Some(&(next as usize));
        let keep = own && relay.keeps(data, bundle, next as usize);
        self.alone_done += usize::from(keep);
        let (mut lanes, mut spots) = ([0; MOST], [BufferHandle::default(); MOST]);
        let count = members.len();
        lanes[..count].copy_from_slice(members);
        for (&number, spot) in lanes[..count].iter().zip(&mut spots) {
            *spot = outgoing[number].boxes.choose(neighbours, shelf);
        }
        relay.pack_bundle(data, bundle, next as usize, keep, |k| {
            // SAFETY: a box that this rank has emptied itself, or that came back empty (the receiver's counter says so),
            // another for each lane. The receiver reads it only when our counter says that it is filled, which is below.
            unsafe { std::slice::from_raw_parts_mut(spots[k].first(neighbours), spots[k].room) }
        });
        for &number in &lanes[..count] {
            let outgoing = &mut outgoing[number];
            outgoing.boxes.pass(neighbours, *call, *runs * chunks + next + 1);
            outgoing.next = relay.next_chunk(number, next as usize + 1) as u64;
        }
        tally.pack += began.elapsed();
        Some(next as usize)
    }

    /// Whether all boxes of a chunk are there.
    fn is_filled(&self, chunk: usize) -> bool {
        self.relay.needs(chunk).all(|sender| self.incoming[sender].is_filled(&self.neighbours))
    }

    /// Whether all boxes of a chunk were filled in a call like this rank's own. They are there.
    fn check(&self, chunk: usize) -> Result<()> {
        let mut needed = self.relay.needs(chunk).map(|sender| &self.incoming[sender]);
        match needed.find(|from| from.call(&self.neighbours) != self.call) {
            Some(from) => Err(other_call(from.lane.other, self.neighbours.rank())),
            None => Ok(()),
        }
    }

    fn assemble(&mut self, data: &mut Buffers<'_>, chunk: usize) {
        let began = Instant::now();
        let Self { relay, neighbours, incoming, shelf, tally, .. } = self;
        relay.assemble(data, chunk, |sender| {
            let spot = incoming[sender].look(neighbours);
            // SAFETY: the sender's counter says that it has filled this box; nobody writes to it before this rank has put it
            // on its shelf or given it back, which is after this.
            unsafe { std::slice::from_raw_parts(spot.first(neighbours), spot.room) }
        });
        for sender in relay.needs(chunk) {
            incoming[sender].give_back(neighbours, shelf);
        }
        tally.unpack += began.elapsed();
    }

    /// The next chunk for which this rank waits for nobody, if there is one and its number is below `end`.
    fn assemble_alone(&mut self, data: &mut Buffers<'_>, end: usize) -> bool {
        let Some(&chunk) = self.alone.get(self.alone_done).filter(|&&chunk| chunk < end) else {
            return false;
        };
        self.assemble(data, chunk);
        self.alone_done += 1;
        true
    }

    /// The next chunk of which others have something, if that is there.
    fn assemble_joint(&mut self, data: &mut Buffers<'_>) -> Result<bool> {
        let Some(&chunk) = self.joint.get(self.joint_done).filter(|&&chunk| self.is_filled(chunk)) else {
            return Ok(false);
        };
        self.check(chunk)?;
        self.assemble(data, chunk);
        self.joint_done += 1;
        let told = self.runs * self.relay.chunks() as u64 + chunk as u64 + 1;
        tell_emptied(&self.neighbours, told);
        Ok(true)
    }
}

impl MoverBackend for PrivateMover {
    fn begin(&mut self, _: &mut Buffers<'_>, call: u64) {
        self.call = call;
        (self.joint_done, self.alone_done) = (0, 0);
        for (number, outgoing) in self.outgoing.iter_mut().enumerate() {
            outgoing.next = self.relay.next_chunk(number, 0) as u64;
        }
        self.tally = RunCounters::default();
    }

    /// A turn: some chunks for each bundle of receivers, then as many of this rank's own.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let (mut moved, mut left) = (false, false);
        let bundles = self.relay.bundles().len();
        for turn in 0..bundles {
            let bundle = (self.first + turn) % bundles;
            for _ in 0..self.turn {
                let Some(chunk) = self.pack(data, bundle) else { break };
                moved = true;
                // What this rank has of the same columns for itself lies between what it has just read.
                while self.assemble_alone(data, chunk + 1) {}
            }
            let to = &self.outgoing[self.relay.bundles()[bundle].members[0]];
            left |= to.next < to.chunks;
        }
        for _ in 0..self.turn {
            if !self.assemble_joint(data)? {
                break;
            }
            moved = true;
        }
        if !moved {
            moved = self.assemble_alone(data, usize::MAX);
        }
        if !left && self.joint_done == self.joint.len() && self.alone_done == self.alone.len() {
            self.runs += 1;
            return Ok(Progress::Done);
        }
        Ok(Progress::of(moved))
    }

    fn late(&self) -> String {
        let full = |to: &&SendState| to.next < to.chunks && !to.boxes.is_free(&self.neighbours);
        let mut late: Vec<usize> = self.outgoing.iter().filter(full).map(|to| to.boxes.lane.other).collect();
        if let Some(&chunk) = self.joint.get(self.joint_done) {
            let needed = self.relay.needs(chunk).map(|sender| &self.incoming[sender]);
            late.extend(needed.filter(|from| !from.is_filled(&self.neighbours)).map(|from| from.lane.other));
        }
        // What a rank lacks of its own, it does not wait for, but for whom it packs with.
        late.retain(|&rank| rank != self.neighbours.rank());
        named(late)
    }

    fn tally(&self) -> RunCounters {
        self.tally
    }

    fn scratch_bytes(&self) -> u64 {
        self.relay.scratch_bytes() + NodeMemory::taken(self.bytes, PAGES) as u64
    }
}

/// The relay with the longest chunks that fits into the memory on all ranks together, these chunks, and the most boxes of a
/// pair: few rather than many, then each chunk half of the one before. As all ranks reckon with the same sums, all have the
/// same chunks; how many boxes it has is each sender's own business.
fn fitting(
    plan: &Arc<Plan>,
    comm: &PrivateComm,
    chunk: u64,
    memory: Option<u64>,
    limit: Option<Duration>,
) -> Result<(StagedCopy, u64, usize)> {
    let (mut chunk, mut most) = (chunk, MANY);
    loop {
        let relay = StagedCopy::new(Arc::clone(plan), comm.rank() as u64, chunk);
        let most_here =
            (FEW..=most).rev().find(|&most| segment(&relay, chunk, most) <= PLENTY).unwrap_or(FEW);
        let Some(memory) = memory else { return Ok((relay, chunk, most_here)) };
        let taken = NodeMemory::taken(segment(&relay, chunk, most_here), PAGES);
        let all = comm.reduce(relay.scratch_bytes() + taken as u64, Reduce::Sum, limit)?;
        if all <= memory {
            return Ok((relay, chunk, most_here));
        }
        if most > FEW {
            most = FEW;
        } else if chunk <= 1 || plan.bytes() / chunk > MOST_CHUNKS {
            return Err(too_little(memory, all));
        } else {
            chunk /= 2;
        }
    }
}

/// Bytes of a rank's segment: its lanes and their boxes, and those it has at hand.
fn segment(relay: &StagedCopy, chunk: u64, most: usize) -> usize {
    let lane = |to: &rank::SendSide| BufferRing::head(boxes(to, most)) + boxes(to, most) * room(to);
    let (count, bytes) = at_hand(relay, chunk);
    LINE + relay.outgoing().iter().map(lane).sum::<usize>() + count * bytes
}

/// How many boxes a rank has at hand, and the bytes of each: as many as it empties and fills in a turn, together no more than
/// those of a chunk. Boxes that are written past the caches stay where they are.
fn at_hand(relay: &StagedCopy, chunk: u64) -> (usize, usize) {
    let lanes = relay.outgoing().iter().filter(|to| !to.streams()).map(room);
    let (count, bytes) = lanes.fold((0, LINE), |(count, most), room| (count + 1, most.max(room)));
    (count.min(relay.incoming().len()).min((chunk as usize / bytes).max(1)), bytes)
}

/// Bytes of a box.
fn room(to: &rank::SendSide) -> usize {
    to.most_bytes.next_multiple_of(LINE)
}

/// How many boxes for a receiver. Those that stay in the caches are few; of others, the more there are, the less ranks wait
/// for each other.
fn boxes(to: &rank::SendSide, most: usize) -> usize {
    match to.streams() {
        true => to.filled_chunks().clamp(FEW, most),
        false => FEW,
    }
}
