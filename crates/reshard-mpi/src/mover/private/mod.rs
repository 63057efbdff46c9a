//! Two copies through small staging buffers in shared memory: one rank packs what another assembles.
//!
//! Each pair of ranks has a [`BufferRing`] with two entries, used in turn, so the sender packs the next buffer while the
//! receiver assembles from the last. Monotonic counters say who may touch a buffer: the sender's *filled*; the receiver's
//! *emptied*, which covers the buffers of all its chunks up to one. There is nothing else to wait for in a run that packs,
//! nor between two of them.
//!
//! What bounds it: a byte is read from the source, written to a buffer, read from there by another core, and written to the
//! destination. Small buffers stay in the caches, so that only the first and the last of these reach memory; each line of a buffer
//! is transferred from the core that packed it to the core that assembles from it, and the buffer is then packed again by that
//! core, which holds its lines now. On processors where such transfers are slower than memory, large arrays are packed with
//! non-temporal stores instead: that is measured, see [`Trial`]. What a rank packs for others and what it keeps for itself it
//! reads together, in one pass where whole rows are its own. Pushing cache lines out from either side did not help.
//!
//! Where runs are long, one copy by the system ([`CmaMover`]) is tried, too, and kept if it is faster for all ranks. A run in which the
//! system refuses it is done again through the buffers, and so are all that follow.

pub(super) mod queue;
mod trial;

use super::cma::CmaMover;
use super::{MoverBackend, Progress, RunCounters, call_mismatch, rank_list, too_little_memory};
use crate::communicator::Communicator;
use crate::shm::{NodeMemory, PageKind};
use crate::strides;
use queue::{
    BUFFERS_PER_PAIR, BufferHandle, BufferRing, Consumer, LINE, Producer, WarmBuffers, publish_emptied,
};
use reshard::engine::{Buffers, Level};
use reshard::rank::{MAX_RECEIVERS, ReceiverGroup, SendSide, StagedCopy, staged_copy};
use reshard_plan::{Plan, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trial::{Trial, Way, processor_time};

/// Huge pages: buffers are used in turn, and those of many ranks have more ordinary pages than the TLB has entries.
const PAGES: PageKind = PageKind::Huge;

/// Buffers take at most one byte for so many of the arrays, or so many bytes for each rank, whichever is more.
const MIN_ARRAY_PER_SCRATCH: u64 = 8;
const MIN_SCRATCH_BYTES: u64 = 1 << 18;

/// Chunks are not made shorter than this to save memory, if no limit is given.
const MIN_CHUNK_BYTES: u64 = 1 << 15;

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
    /// The receiver group to begin with: not all ranks begin with the same.
    first: usize,
    trial: Trial,
    /// Processor time in which this rank copied in this run, if it is one of the trial.
    copied: Duration,
    /// The mover that is tried, too, where runs are long.
    cma: Option<CmaMover>,
    mode: Mode,
    counters: RunCounters,
    /// Bytes of this rank's segment.
    bytes: usize,
}

/// How a run moves its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Through staging buffers.
    Staged,
    /// By [`CmaMover`].
    Cma,
    /// One of the two: the rank that chooses has not said so yet.
    Undecided,
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
    /// all ranks would take more than `memory` bytes. With `eager`, for tests, all ways are tried at once and however short runs
    /// are. Collective.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Communicator,
        chunk: u64,
        memory: Option<u64>,
        level: Option<Level>,
        eager: bool,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let (staged, chunk) = fitting(plan, comm, chunk, memory, level, limit)?;
        let me = comm.rank();
        let mut bytes = LINE;
        let mut take = |count: usize| {
            bytes += count;
            bytes - count
        };
        let mut table = vec![[0_u64; 2]; comm.size()];
        let mut outgoing = Vec::with_capacity(staged.outgoing().len());
        for to in staged.outgoing() {
            let (peer, min_bytes, entries) = (to.to as usize, buffer_bytes(to), BUFFERS_PER_PAIR);
            let at = take(BufferRing::header_bytes(entries));
            let ring = BufferRing { sender: me, at, peer, min_bytes, entries };
            table[peer] = [at, min_bytes].map(|number| number as u64);
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
        let shared = NodeMemory::share(comm, bytes, PAGES, limit)?;
        entries()
            .zip(first_buffers)
            .for_each(|((ring, entry), buffer)| ring.init_entry(&shared, entry, buffer));
        let mine: Vec<u8> = table.iter().flatten().flat_map(|number| number.to_ne_bytes()).collect();
        // Also a barrier: afterwards all ranks' rings are initialised.
        let all = comm.gather(&mine, limit)?;
        let ring = |sender: usize| {
            let number = |k: usize| {
                let at = sender * mine.len() + (me * 2 + k) * 8;
                u64::from_ne_bytes(all[at..at + 8].try_into().unwrap_or_default()) as usize
            };
            let (at, min_bytes) = (number(0), number(1));
            BufferRing { sender, at, peer: sender, min_bytes, entries: BUFFERS_PER_PAIR }
        };
        let incoming: Vec<Consumer> =
            staged.incoming().iter().map(|&rank| Consumer::new(ring(rank as usize))).collect();
        let higher = |group: &ReceiverGroup| outgoing[group.members[0]].producer.ring.peer > me;
        let first = staged.groups().iter().position(higher).unwrap_or(0);
        let (local, joint) = (0..staged.chunks()).partition(|&chunk| staged.needs(chunk).next().is_none());
        let cma = if memory.is_none() { try_cma(plan, comm, eager, limit)? } else { None };
        // With a way that all ranks must go together, all have a trial of the same length, whatever each could choose alone.
        let trial = match eager && cma.is_some() {
            true => Trial::eager(),
            false => Trial::new(staged.can_pack_non_temporal() || cma.is_some(), cma.is_some()),
        };
        Ok(Self {
            staged,
            memory: shared,
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
            trial,
            copied: Duration::ZERO,
            cma,
            mode: Mode::Staged,
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

impl PrivateMover {
    /// Begins to move the data in a mode, now that it is known.
    fn begin_as(&mut self, data: &mut Buffers<'_>, mode: Mode) {
        self.mode = mode;
        match (&mut self.cma, mode) {
            (Some(cma), Mode::Cma) => cma.begin(data, self.call),
            (Some(cma), Mode::Staged) => cma.skip(),
            _ => {}
        }
    }

    /// The mode of a run; the same on all ranks that exchange data, as they know how many runs there were and whether this one only
    /// copies.
    fn mode_of(&mut self, only_copies: bool) -> Mode {
        match &mut self.cma {
            // Who has nothing to move waits for nobody.
            Some(cma) if !cma.takes_part() => Mode::Staged,
            Some(cma) if only_copies && self.trial.is_over() => match cma.choice() {
                Some(true) => Mode::Cma,
                Some(false) => Mode::Staged,
                None => Mode::Undecided,
            },
            Some(_) if only_copies && self.trial.way() == Way::Cma => Mode::Cma,
            _ => Mode::Staged,
        }
    }

    /// A run is over, in which this rank copied for so long.
    fn run_ended(&mut self, data: &Buffers<'_>) {
        self.runs += 1;
        if self.staged.only_copies(data) && !self.trial.is_over() {
            self.trial.run_took(self.copied);
            if let (Some(cma), true) = (&self.cma, self.trial.is_over()) {
                cma.publish_times(self.trial.times());
            }
        }
    }

    /// One turn: packs a chunk for each group of receivers, then assembles one of this rank's own.
    fn advance_staged(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let (mut moved, mut left) = (false, false);
        let groups = self.staged.groups().len();
        for turn in 0..groups {
            let group = (self.first + turn) % groups;
            if let Some(chunk) = self.pack(data, group) {
                moved = true;
                // What this rank keeps of the same columns lies between what it has just read.
                while self.assemble_local(data, chunk + 1) {}
            }
            let to = &self.outgoing[self.staged.groups()[group].members[0]];
            left |= to.next < to.chunks;
        }
        moved |= self.assemble_joint(data)?;
        if !moved {
            moved = self.assemble_local(data, usize::MAX);
        }
        if !left && self.joint_done == self.joint.len() && self.local_done == self.local.len() {
            return Ok(Progress::Done);
        }
        if let (Some(cma), false) = (&self.cma, moved) {
            cma.check_skipped(self.incoming.iter().map(|from| from.ring.peer))?;
        }
        Ok(Progress::of(moved))
    }
}

impl MoverBackend for PrivateMover {
    fn begin(&mut self, data: &mut Buffers<'_>, call: u64) {
        self.call = call;
        (self.joint_done, self.local_done) = (0, 0);
        for (number, outgoing) in self.outgoing.iter_mut().enumerate() {
            outgoing.next = self.staged.next_chunk(number, 0) as u64;
        }
        (self.counters, self.copied) = (RunCounters::default(), Duration::ZERO);
        self.staged.pack_non_temporal(self.trial.way() == Way::NonTemporal);
        let mode = self.mode_of(self.staged.only_copies(data));
        self.begin_as(data, mode);
    }

    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        // The rank that chooses does so in whatever run: others may wait for it.
        let choice = self.cma.as_mut().filter(|_| self.trial.is_over()).and_then(CmaMover::choice);
        if self.mode == Mode::Undecided {
            let Some(choice) = choice else { return Ok(Progress::Waits) };
            self.begin_as(data, if choice { Mode::Cma } else { Mode::Staged });
        }
        let began = (!self.trial.is_over()).then(processor_time);
        let progress = match (&mut self.cma, self.mode) {
            (Some(cma), Mode::Cma) => match cma.advance_or_give_up(data)? {
                Some(progress) => {
                    self.counters = cma.counters();
                    progress
                }
                // All ranks that are connected find the same.
                None => {
                    (self.cma, self.mode) = (None, Mode::Staged);
                    Progress::Moved
                }
            },
            _ => self.advance_staged(data)?,
        };
        if let (Some(began), false) = (began, progress == Progress::Waits) {
            self.copied += processor_time().saturating_sub(began);
        }
        if progress == Progress::Done {
            self.run_ended(data);
        }
        Ok(progress)
    }

    fn awaited(&self) -> String {
        match (&self.cma, self.mode) {
            (Some(cma), Mode::Cma) => return cma.awaited(),
            (Some(cma), Mode::Undecided) => return rank_list(cma.choosing()),
            _ => {}
        }
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
        let cma = self.cma.as_ref().map_or(0, CmaMover::scratch_bytes);
        self.staged.scratch_bytes() + NodeMemory::taken(self.bytes, PAGES) as u64 + cma
    }
}

/// The mover by one copy of the system, if it may be faster, or `anyhow`, and can be had. Collective.
fn try_cma(
    plan: &Arc<Plan>,
    comm: &Communicator,
    anyhow: bool,
    limit: Option<Duration>,
) -> Result<Option<CmaMover>> {
    if !anyhow && !CmaMover::is_worth_trying(plan, comm.size()) {
        return Ok(None);
    }
    let plan = strides::of_all_ranks(plan, comm, limit)?;
    if !anyhow && !CmaMover::has_long_runs(&plan) {
        return Ok(None);
    }
    match CmaMover::new(&plan, comm, limit) {
        // All ranks have this error, and can do without.
        Err(_) if comm.check_usable().is_ok() => Ok(None),
        made => made.map(|made| Some(made.tried())),
    }
}

/// Finds the longest chunks with which all ranks together stay within `memory` bytes, or within [`default_memory`]. Returns the
/// staged copy and the bytes of its chunks. Halves the chunk again and again; as all ranks decide by the same sums, all have the
/// same chunks, whatever their levels. Collective.
fn fitting(
    plan: &Arc<Plan>,
    comm: &Communicator,
    chunk: u64,
    memory: Option<u64>,
    level: Option<Level>,
    limit: Option<Duration>,
) -> Result<(StagedCopy, u64)> {
    let most = memory.unwrap_or_else(|| default_memory(plan, comm.size()));
    let mut chunk = chunk;
    loop {
        let staged = staged_copy(plan, comm.rank() as u64, chunk, level)?;
        let taken = NodeMemory::taken(segment_bytes(&staged, chunk), PAGES);
        let all = comm.sum(staged.scratch_bytes() + taken as u64, limit)?;
        let too_short = |least: u64| chunk <= least || plan.bytes() / chunk > MAX_CHUNKS;
        if all <= most || (memory.is_none() && too_short(MIN_CHUNK_BYTES)) {
            return Ok((staged, chunk));
        }
        if too_short(1) {
            return Err(too_little_memory(most, all));
        }
        chunk /= 2;
    }
}

/// Bytes that all ranks together take, if the caller gives no limit and chunks need not be shorter than [`MIN_CHUNK_BYTES`] for it.
fn default_memory(plan: &Plan, ranks: usize) -> u64 {
    (plan.bytes() / MIN_ARRAY_PER_SCRATCH).max(MIN_SCRATCH_BYTES * ranks as u64)
}

/// Bytes of a rank's segment: the headers of its rings, their buffers, and its spare buffers.
fn segment_bytes(staged: &StagedCopy, chunk: u64) -> usize {
    let ring =
        |to: &SendSide| BufferRing::header_bytes(BUFFERS_PER_PAIR) + BUFFERS_PER_PAIR * buffer_bytes(to);
    let (count, bytes) = spare_buffers(staged, chunk);
    LINE + staged.outgoing().iter().map(ring).sum::<usize>() + count * bytes
}

/// The number of spare buffers of a rank, and the bytes of each: as many as it empties and fills in a turn, together no
/// more than those of a chunk.
fn spare_buffers(staged: &StagedCopy, chunk: u64) -> (usize, usize) {
    let bytes = staged.outgoing().iter().map(buffer_bytes).fold(LINE, usize::max);
    let count = staged.outgoing().len().min(staged.incoming().len());
    (count.min((chunk as usize / bytes).max(1)), bytes)
}

/// Bytes of a staging buffer for a receiver.
fn buffer_bytes(to: &SendSide) -> usize {
    to.max_bytes.next_multiple_of(LINE)
}
