//! Two copies through small staging buffers in shared memory: one rank packs what another assembles.
//!
//! Each pair of ranks has a [`BufferRing`] with a few entries, used in turn, so the sender packs the next buffer while the
//! receiver assembles from the last. Monotonic counters say who may touch a buffer: the sender's *filled*; the receiver's
//! *emptied*, which covers the buffers of all its chunks up to one. There is nothing else to wait for, within a run or
//! between runs.
//!
//! What bounds it: small arrays stay in the caches, and each cache line of a buffer is transferred from the core that
//! packed it to the core that assembles from it; the buffer is then packed again by that core, which holds its lines now.
//! With large arrays such transfers are mostly slower than memory: they are packed with non-temporal stores, many buffers
//! in a turn, so that they have left the caches when they are assembled. Then a byte crosses the memory bus four times
//! (twice in a copy with non-temporal stores, three times in a plain one), and what is left to gain is in reading each
//! source once, in order: what a rank packs for others and what it keeps for itself it reads together, in one pass where
//! whole rows are its own. Pushing cache lines out from either side, and reading the peer's memory through the kernel
//! (`process_vm_readv`), did not help.

pub(super) mod queue;

use super::{MoverBackend, Progress, RunCounters, call_mismatch, rank_list, too_little_memory};
use crate::communicator::Communicator;
use crate::shm::{NodeMemory, PageKind};
use queue::{
    BufferHandle, BufferRing, Consumer, LINE, MAX_BUFFERS_PER_PAIR, Producer, WarmBuffers, publish_emptied,
};
use reshard::engine::{Buffers, Level};
use reshard::rank::{MAX_RECEIVERS, ReceiverGroup, SendSide, StagedCopy, staged_copy};
use reshard_plan::{Plan, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers for each pair of ranks, at least: one is packed while the other is assembled.
const MIN_BUFFERS_PER_PAIR: usize = 2;

/// A pair has more than the fewest buffers only as long as those of a rank take no more than this many bytes.
const BUFFER_BUDGET_BYTES: usize = 8 << 20;

/// Huge pages: buffers are used in turn, and those of many ranks have more ordinary pages than the TLB has entries.
const PAGES: PageKind = PageKind::Huge;

/// With little memory, chunks are not made so short that there are more than this: each rank lists those of all.
const MAX_CHUNKS: u64 = 1 << 22;

/// The mover `private`.
pub struct PrivateMover {
    staged: StagedCopy,
    memory: NodeMemory,
    /// The rings to the receivers, in the order of the kernel's send sides.
    outgoing: Vec<SendState>,
    /// The rings from the senders.
    incoming: Vec<Consumer>,
    warm: WarmBuffers,
    /// This rank's chunks that need data from other ranks, ascending.
    joint: Vec<usize>,
    /// This rank's chunks that need its own data only, ascending.
    local: Vec<usize>,
    /// Joint chunks assembled in this run.
    joint_done: usize,
    /// Local chunks assembled in this run.
    local_done: usize,
    /// Runs that are over.
    runs: u64,
    /// Fingerprint of the current call.
    call: u64,
    /// The receiver group (the kernel calls it a bundle) to begin with: not all ranks begin with the same.
    first: usize,
    /// Chunks packed for a group in one turn: half of the buffers, as the receivers work on the other half.
    chunks_per_turn: usize,
    counters: RunCounters,
    /// Bytes of this rank's segment.
    bytes: usize,
}

/// The ring to one receiver, and how far it is packed.
struct SendState {
    producer: Producer,
    /// Chunks of the receiver in a run.
    chunks: u64,
    /// The next chunk of the receiver that needs data of this rank, in this run.
    next: u64,
}

impl PrivateMover {
    /// Lays out and shares the staging buffers. All buffers of a chunk have together about `chunk` bytes, less if those of
    /// all ranks would take more than `memory` bytes. Collective.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Communicator,
        chunk: u64,
        memory: Option<u64>,
        level: Option<Level>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let (staged, chunk, max_buffers) = fitting(plan, comm, chunk, memory, level, limit)?;
        let me = comm.rank();
        let mut bytes = LINE;
        let mut take = |count: usize| {
            bytes += count;
            bytes - count
        };
        let mut table = vec![[0_u64; 3]; comm.size()];
        let mut outgoing = Vec::with_capacity(staged.outgoing().len());
        for to in staged.outgoing() {
            let (peer, min_bytes, entries) = (to.to as usize, buffer_bytes(to), buffers(to, max_buffers));
            let at = take(BufferRing::header_bytes(entries));
            let ring = BufferRing { sender: me, at, peer, min_bytes, entries };
            table[peer] = [at, min_bytes, entries].map(|number| number as u64);
            outgoing.push(SendState { producer: Producer::new(ring), chunks: to.chunks as u64, next: 0 });
        }
        let mut buffer = |bytes: usize| BufferHandle { rank: me, at: take(bytes), bytes };
        let (count, spare_bytes) = spare_buffers(&staged, chunk);
        let warm = WarmBuffers::new((0..count).map(|_| buffer(spare_bytes)));
        let entries = || {
            let rings = outgoing.iter().map(|to| to.producer.ring);
            rings.flat_map(|ring| (0..ring.entries as u64).map(move |entry| (ring, entry)))
        };
        let first_buffers: Vec<BufferHandle> = entries().map(|(ring, _)| buffer(ring.min_bytes)).collect();
        let memory = NodeMemory::share(comm, bytes, PAGES, limit)?;
        entries()
            .zip(first_buffers)
            .for_each(|((ring, entry), buffer)| ring.init_entry(&memory, entry, buffer));
        let mine: Vec<u8> = table.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        // Also a barrier: afterwards all ranks' rings are initialised.
        let all = comm.gather(&mine, limit)?;
        let ring = |sender: usize| {
            let number = |k: usize| {
                let at = sender * mine.len() + (me * 3 + k) * 8;
                u64::from_ne_bytes(all[at..at + 8].try_into().unwrap_or_default()) as usize
            };
            BufferRing { sender, at: number(0), peer: sender, min_bytes: number(1), entries: number(2) }
        };
        let incoming: Vec<Consumer> =
            staged.incoming().iter().map(|&rank| Consumer::new(ring(rank as usize))).collect();
        let rings = outgoing.iter().map(|to| to.producer.ring).chain(incoming.iter().map(|from| from.ring));
        let chunks_per_turn = rings.map(|ring| ring.entries / MIN_BUFFERS_PER_PAIR).max().unwrap_or(1);
        let higher = |group: &ReceiverGroup| outgoing[group.members[0]].producer.ring.peer > me;
        let first = staged.groups().iter().position(higher).unwrap_or(0);
        let (local, joint) = (0..staged.chunks()).partition(|&chunk| staged.needs(chunk).next().is_none());
        Ok(Self {
            staged,
            memory,
            outgoing,
            incoming,
            warm,
            joint,
            local,
            joint_done: 0,
            local_done: 0,
            runs: 0,
            call: 0,
            first,
            chunks_per_turn,
            counters: RunCounters::default(),
            bytes,
        })
    }

    /// Packs the next chunk for a group of receivers, if each has a free buffer. Returns the index of the chunk.
    fn pack(&mut self, data: &mut Buffers<'_>, group: usize) -> Option<usize> {
        let Self { staged, memory, outgoing, warm, runs, call, counters, .. } = self;
        let members = &staged.groups()[group].members;
        // All members have equally many chunks, and are at the same one.
        let SendState { chunks, next, .. } = outgoing[members[0]];
        if next >= chunks || !members.iter().all(|&member| outgoing[member].producer.is_free(memory)) {
            return None;
        }
        let began = Instant::now();
        let is_next_local = self.local.get(self.local_done) == Some(&(next as usize));
        let keep = is_next_local && staged.keeps(data, group, next as usize);
        self.local_done += usize::from(keep);
        let mut numbers = [0; MAX_RECEIVERS];
        let mut buffers = [BufferHandle::default(); MAX_RECEIVERS];
        let count = members.len();
        numbers[..count].copy_from_slice(members);
        for (&number, buffer) in numbers[..count].iter().zip(&mut buffers) {
            *buffer = outgoing[number].producer.choose(memory, warm);
        }
        staged.pack_group(data, group, next as usize, keep, |k| {
            // SAFETY: a buffer that this rank has emptied itself, or that came back empty (the receiver's counter says so),
            // another one for each ring. The receiver reads it only when our counter says that it is filled, which is below.
            unsafe { std::slice::from_raw_parts_mut(buffers[k].first(memory), buffers[k].bytes) }
        });
        for &number in &numbers[..count] {
            let outgoing = &mut outgoing[number];
            outgoing.producer.push(memory, *call, *runs * chunks + next + 1);
            outgoing.next = staged.next_chunk(number, next as usize + 1) as u64;
        }
        counters.pack += began.elapsed();
        Some(next as usize)
    }

    /// True if all buffers of a chunk are filled.
    fn is_filled(&self, chunk: usize) -> bool {
        self.staged.needs(chunk).all(|sender| self.incoming[sender].is_filled(&self.memory))
    }

    /// Fails if a buffer of a chunk was filled in another call than this rank's. All must be filled.
    fn check_calls(&self, chunk: usize) -> Result<()> {
        let mut needed = self.staged.needs(chunk).map(|sender| &self.incoming[sender]);
        match needed.find(|from| from.call(&self.memory) != self.call) {
            Some(from) => Err(call_mismatch(from.ring.peer, self.memory.rank())),
            None => Ok(()),
        }
    }

    /// Assembles a chunk from its buffers, which must be filled, and returns them.
    fn assemble(&mut self, data: &mut Buffers<'_>, chunk: usize) {
        let began = Instant::now();
        let Self { staged, memory, incoming, warm, counters, .. } = self;
        staged.assemble(data, chunk, |sender| {
            let buffer = incoming[sender].peek(memory);
            // SAFETY: the sender's counter says that it has filled this buffer; nobody writes to it before this rank has
            // kept it as a spare one or returned it, which is after this.
            unsafe { std::slice::from_raw_parts(buffer.first(memory), buffer.bytes) }
        });
        for sender in staged.needs(chunk) {
            incoming[sender].pop(memory, warm);
        }
        counters.unpack += began.elapsed();
    }

    /// Assembles the next local chunk, if there is one before chunk `end`.
    fn assemble_local(&mut self, data: &mut Buffers<'_>, end: usize) -> bool {
        let Some(&chunk) = self.local.get(self.local_done).filter(|&&chunk| chunk < end) else {
            return false;
        };
        self.assemble(data, chunk);
        self.local_done += 1;
        true
    }

    /// Assembles the next joint chunk, if its buffers are filled.
    fn assemble_joint(&mut self, data: &mut Buffers<'_>) -> Result<bool> {
        let Some(&chunk) = self.joint.get(self.joint_done).filter(|&&chunk| self.is_filled(chunk)) else {
            return Ok(false);
        };
        self.check_calls(chunk)?;
        self.assemble(data, chunk);
        self.joint_done += 1;
        let emptied = self.runs * self.staged.chunks() as u64 + chunk as u64 + 1;
        publish_emptied(&self.memory, emptied);
        Ok(true)
    }
}

impl MoverBackend for PrivateMover {
    fn begin(&mut self, _: &mut Buffers<'_>, call: u64) {
        self.call = call;
        (self.joint_done, self.local_done) = (0, 0);
        for (number, outgoing) in self.outgoing.iter_mut().enumerate() {
            outgoing.next = self.staged.next_chunk(number, 0) as u64;
        }
        self.counters = RunCounters::default();
    }

    /// One turn: packs some chunks for each group of receivers, then assembles as many of this rank's own.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let (mut moved, mut left) = (false, false);
        let groups = self.staged.groups().len();
        for turn in 0..groups {
            let group = (self.first + turn) % groups;
            for _ in 0..self.chunks_per_turn {
                let Some(chunk) = self.pack(data, group) else { break };
                moved = true;
                // What this rank keeps of the same columns lies between what it has just read.
                while self.assemble_local(data, chunk + 1) {}
            }
            let to = &self.outgoing[self.staged.groups()[group].members[0]];
            left |= to.next < to.chunks;
        }
        for _ in 0..self.chunks_per_turn {
            if !self.assemble_joint(data)? {
                break;
            }
            moved = true;
        }
        if !moved {
            moved = self.assemble_local(data, usize::MAX);
        }
        if !left && self.joint_done == self.joint.len() && self.local_done == self.local.len() {
            self.runs += 1;
            return Ok(Progress::Done);
        }
        Ok(Progress::of(moved))
    }

    fn awaited(&self) -> String {
        let full = |to: &&SendState| to.next < to.chunks && !to.producer.is_free(&self.memory);
        let mut late: Vec<usize> =
            self.outgoing.iter().filter(full).map(|to| to.producer.ring.peer).collect();
        if let Some(&chunk) = self.joint.get(self.joint_done) {
            let needed = self.staged.needs(chunk).map(|sender| &self.incoming[sender]);
            late.extend(needed.filter(|from| !from.is_filled(&self.memory)).map(|from| from.ring.peer));
        }
        // A rank never waits for itself; report only the peers.
        late.retain(|&rank| rank != self.memory.rank());
        rank_list(late)
    }

    fn counters(&self) -> RunCounters {
        self.counters
    }

    fn scratch_bytes(&self) -> u64 {
        self.staged.scratch_bytes() + NodeMemory::taken(self.bytes, PAGES) as u64
    }
}

/// Finds the longest chunks with which all ranks together stay within `memory` bytes. Returns the staged copy, the bytes
/// of its chunks, and the most buffers of a pair. Tries many buffers, then few, then halves the chunk again and again. As
/// all ranks decide by the same sums, all have the same chunks, whatever their levels; the number of its buffers each sender
/// decides alone. Collective.
fn fitting(
    plan: &Arc<Plan>,
    comm: &Communicator,
    chunk: u64,
    memory: Option<u64>,
    level: Option<Level>,
    limit: Option<Duration>,
) -> Result<(StagedCopy, u64, usize)> {
    let (mut chunk, mut max_buffers) = (chunk, MAX_BUFFERS_PER_PAIR);
    loop {
        let staged = staged_copy(plan, comm.rank() as u64, chunk, level)?;
        let within_budget = |&buffers: &usize| segment_bytes(&staged, chunk, buffers) <= BUFFER_BUDGET_BYTES;
        let max_here =
            (MIN_BUFFERS_PER_PAIR..=max_buffers).rev().find(within_budget).unwrap_or(MIN_BUFFERS_PER_PAIR);
        let Some(memory) = memory else { return Ok((staged, chunk, max_here)) };
        let taken = NodeMemory::taken(segment_bytes(&staged, chunk, max_here), PAGES);
        let all = comm.sum(staged.scratch_bytes() + taken as u64, limit)?;
        if all <= memory {
            return Ok((staged, chunk, max_here));
        }
        if max_buffers > MIN_BUFFERS_PER_PAIR {
            max_buffers = MIN_BUFFERS_PER_PAIR;
        } else if chunk <= 1 || plan.bytes() / chunk > MAX_CHUNKS {
            return Err(too_little_memory(memory, all));
        } else {
            chunk /= 2;
        }
    }
}

/// Bytes of a rank's segment: the headers of its rings, their buffers, and its spare buffers.
fn segment_bytes(staged: &StagedCopy, chunk: u64, max_buffers: usize) -> usize {
    let ring = |to: &SendSide| {
        let entries = buffers(to, max_buffers);
        BufferRing::header_bytes(entries) + entries * buffer_bytes(to)
    };
    let (count, bytes) = spare_buffers(staged, chunk);
    LINE + staged.outgoing().iter().map(ring).sum::<usize>() + count * bytes
}

/// The number of spare buffers of a rank, and the bytes of each: as many as it empties and fills in a turn, together no
/// more than those of a chunk. Buffers written with non-temporal stores stay in their rings: they are never warm.
fn spare_buffers(staged: &StagedCopy, chunk: u64) -> (usize, usize) {
    let sizes = staged.outgoing().iter().filter(|to| !to.non_temporal()).map(buffer_bytes);
    let (count, bytes) = sizes.fold((0, LINE), |(count, most), bytes| (count + 1, most.max(bytes)));
    (count.min(staged.incoming().len()).min((chunk as usize / bytes).max(1)), bytes)
}

/// Bytes of a staging buffer for a receiver.
fn buffer_bytes(to: &SendSide) -> usize {
    to.max_bytes.next_multiple_of(LINE)
}

/// The number of staging buffers for a receiver. Few where they stay in the caches; else the more there are, the less
/// ranks wait for each other.
fn buffers(to: &SendSide, max_buffers: usize) -> usize {
    match to.non_temporal() {
        true => to.nonempty_chunks().clamp(MIN_BUFFERS_PER_PAIR, max_buffers),
        false => MIN_BUFFERS_PER_PAIR,
    }
}
