//! One copy by the system, out of the private memory of another process: cross-memory attach (`process_vm_readv`).
//!
//! Each rank offers its source, and each receiver reads what it needs, run by run, straight into its destination. So a byte is
//! copied once, by its receiver, and an owner that sends to many is no bottleneck. It costs about half a microsecond for each run
//! of the source and a little for each page, so it is worth it where runs have [`MIN_RUN_BYTES`] and more. The mover `private`
//! tries it there, and keeps it if it is faster.
//!
//! The system may forbid it (containers, Yama, processes that are not dumpable): every pair tries when the engine is made. It may still
//! refuse a source that comes later (memory that it shows nobody): then the mover `private` does that run again in its other way, for all ranks
//! that are connected, and this one no more. An owner waits for its readers, and they for its confirmation, see [`Offers`]. What a rank reads of itself is a plain copy.

pub(super) mod offers;
mod system;

use super::shared::owners_and_readers;
use super::{MoverBackend, Progress, RunCounters, call_mismatch, check_unscaled, rank_list};
use crate::communicator::Communicator;
use crate::shm::{NodeMemory, PageKind};
use offers::{Offer, Offers};
use reshard::engine::Buffers;
use reshard_plan::{Array, Error, ErrorKind, MemoryOrder, Plan, Result, Target, memory};
use std::time::{Duration, Instant};
use system::{ReadList, probe};

/// Bytes of a run, in the mean, from which on the mover `private` tries this one.
const MIN_RUN_BYTES: u64 = 1 << 13;

/// Bytes of a plan from which on the mover `private` tries this one: it makes engines dearer, and ends of runs.
const MIN_PLAN_BYTES: u64 = 1 << 22;

/// With more ranks the mover `private` does not try this one: each rank looks at all pairs.
const MAX_TRYING_RANKS: usize = 256;

/// Bytes that are read in one call at most: ranks that wait for the reader see that it goes on.
const MAX_CALL_BYTES: usize = 1 << 20;

/// This mover is chosen if it takes less than this part of the time of the other way, in percent.
const MAX_PERCENT: u64 = 90;

/// The mover `cma`.
pub struct CmaMover {
    offers: Offers<NodeMemory>,
    sources: Vec<ReadSource>,
    /// The other ranks that read this rank's source.
    readers: Vec<usize>,
    /// The ranks that exchange data with this one, or with one that does, and so on, ascending: the first chooses for all.
    connected: Vec<usize>,
    /// Processors that the ranks may use, all together.
    processors: usize,
    /// For each array, the bytes that this rank's source spans.
    spans: Vec<usize>,
    /// Another mover does a run again in which a rank cannot read.
    tried: bool,
    list: ReadList,
    /// The run this rank is in, counted from 1.
    run: u64,
    /// This rank has read everything, and has published that.
    read: bool,
    /// This rank has confirmed its source.
    confirmed: bool,
    choice: Option<bool>,
    /// Calls of all ranks that this one waits for, when it looked last.
    seen_calls: u64,
    /// Calls of this rank.
    calls: u64,
    counters: RunCounters,
}

/// A rank whose source this one reads; itself, too.
struct ReadSource {
    rank: usize,
    pid: i32,
    /// All ranks but its owner that read it.
    readers: Vec<usize>,
    runs: Vec<ByteRun>,
    /// The next run, and how many bytes of it were read.
    next: (usize, usize),
}

/// Bytes that are contiguous on both sides.
#[derive(Clone, Copy)]
struct ByteRun {
    array: usize,
    from: u64,
    to: usize,
    bytes: usize,
}

impl CmaMover {
    /// Lists what this rank reads. The plan has the strides of all ranks. Fails with [`ErrorKind::Unsupported`], on all ranks, if
    /// it cannot be moved this way. Collective.
    pub fn new(plan: &Plan, comm: &Communicator, limit: Option<Duration>) -> Result<Self> {
        if plan.arrays().iter().any(|array| array.wanted().triangle().is_some()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the mover `cma` moves whole rectangles, not triangles; choose another mover",
            ));
        }
        let rank = comm.rank();
        let (owners, readers) = owners_and_readers(plan, rank as u64);
        let (pids, processors) = probe(comm, &owners, limit)?.map_err(|why| {
            Error::new(
                ErrorKind::Unsupported,
                format!("the mover `cma` needs ranks that can read each other's memory, but {why}; use the mover `private`"),
            )
        })?;
        let sources = crate::agree::agree_on_result("runs", sources_of(plan, rank, &pids), comm, limit)?;
        let bytes = Offers::<NodeMemory>::bytes(plan.arrays().len());
        let offers = Offers::new(NodeMemory::share(comm, bytes, PageKind::Ordinary, limit)?);
        Ok(Self {
            offers,
            sources,
            readers,
            connected: connected(plan, rank),
            processors,
            spans: plan.arrays().iter().map(|array| source_bytes(array, rank as u64)).collect(),
            tried: false,
            list: ReadList::new(),
            run: 0,
            read: false,
            confirmed: false,
            choice: None,
            seen_calls: 0,
            calls: 0,
            counters: RunCounters::default(),
        })
    }

    /// This mover as one that is only tried: see [`CmaMover::advance_or_give_up`].
    pub fn tried(self) -> Self {
        Self { tried: true, ..self }
    }

    /// True if the mover `private` should try this one, by what all ranks know alike.
    pub fn is_worth_trying(plan: &Plan, ranks: usize) -> bool {
        let whole = |array: &Array| array.wanted().triangle().is_none();
        plan.bytes() >= MIN_PLAN_BYTES
            && (2..=MAX_TRYING_RANKS).contains(&ranks)
            && plan.arrays().iter().all(whole)
            && has_long_runs(plan, least_runs)
    }

    /// As [`CmaMover::is_worth_trying`], once all strides are known.
    pub fn has_long_runs(plan: &Plan) -> bool {
        has_long_runs(plan, |array, target, place| array.memory_run_count(target, place).unwrap_or(u64::MAX))
    }

    /// Does nothing in the next run: data is moved otherwise.
    pub fn skip(&mut self) {
        self.run += 1;
        self.offers.refuse(self.run);
    }

    /// Fails if one of `senders` moves by this mover in this run, in which this rank does not: it was called otherwise.
    pub fn check_skipped(&self, senders: impl Iterator<Item = usize>) -> Result<()> {
        let mut senders = senders.filter(|&rank| rank != self.offers.rank());
        match senders.find(|&rank| self.offers.offer_of(rank, self.run) == Offer::Open) {
            Some(rank) => Err(call_mismatch(rank, self.offers.rank())),
            None => Ok(()),
        }
    }

    /// True if this rank exchanges data with others.
    pub fn takes_part(&self) -> bool {
        self.connected.len() > 1
    }

    /// Publishes how long this rank copied in a run, the other way and by this mover.
    pub fn publish_times(&self, times: [Duration; 2]) {
        self.offers.publish_times(times.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// True if the ranks that exchange data choose this mover; none if it is not known yet. A run takes as long as the rank with the
    /// most to do, and no less than all of it takes the processors together.
    pub fn choice(&mut self) -> Option<bool> {
        let chooser = *self.connected.first()?;
        let times = || self.connected.iter().map(|&rank| self.offers.times(rank));
        if self.choice.is_none() && chooser == self.offers.rank() && times().all(|times| times.is_some()) {
            let [other, this] = [0, 1].map(|way| {
                let times = || times().flatten().map(|times| times[way]);
                times().fold(times().fold(0, u64::saturating_add) / self.processors as u64, u64::max)
            });
            self.offers.publish_choice(this < other / 100 * MAX_PERCENT);
        }
        self.choice = self.choice.or_else(|| self.offers.choice(chooser));
        self.choice
    }

    /// The ranks that [`CmaMover::choice`] waits for.
    pub fn choosing(&self) -> Vec<usize> {
        let silent = |&rank: &usize| self.offers.times(rank).is_none();
        let late: Vec<usize> = self.connected.iter().copied().filter(silent).collect();
        if late.is_empty() { self.connected.first().copied().into_iter().collect() } else { late }
    }

    /// As [`MoverBackend::advance`], or none if a rank that is connected with this one cannot read: then all of them find that, and have
    /// to do the run otherwise. Sources are as they were.
    pub fn advance_or_give_up(&mut self, data: &mut Buffers<'_>) -> Result<Option<Progress>> {
        let gives_up = |mover: &Self| {
            let mut connected = mover.connected.iter();
            connected.any(|&rank| mover.offers.is_unreadable(rank, mover.run))
        };
        if gives_up(self) {
            return Ok(None);
        }
        let progress = self.advance(data)?;
        Ok((!gives_up(self)).then_some(progress))
    }

    /// The ranks that end a run together.
    fn together(&self) -> &[usize] {
        if self.tried { &self.connected } else { &[] }
    }

    /// True if this process reads both ends of its own sources as others do.
    fn reads_its_own(&mut self, data: &mut Buffers<'_>) -> bool {
        let (rank, pid) = (self.offers.rank() as u64, std::process::id() as i32);
        let mut ends = [0_u8; 2];
        self.spans.iter().enumerate().filter(|(_, bytes)| **bytes > 0).all(|(array, bytes)| {
            let first = data.own_of(array, rank).0;
            self.list.clear();
            for (end, place) in [0, bytes - 1].into_iter().zip(&mut ends) {
                self.list.push(first.wrapping_add(end).expose_provenance() as u64, place, 1);
            }
            // SAFETY: two bytes of this function.
            unsafe { self.list.read(pid) }.is_ok()
        })
    }

    /// Reads a part of what is still to be read from an open source. Returns false if there is none.
    fn read_some(&mut self, data: &mut Buffers<'_>) -> Result<bool> {
        let me = self.offers.rank();
        for source in self.sources.iter_mut().filter(|source| !source.is_read()) {
            match self.offers.offer_of(source.rank, self.run) {
                Offer::NotYet => continue,
                Offer::Refused => return Err(call_mismatch(source.rank, me)),
                Offer::Open => {}
            }
            let began = Instant::now();
            let list = &mut self.list;
            list.clear();
            while let Some(&run) = source.runs.get(source.next.0)
                && list.bytes() < MAX_CALL_BYTES
                && !list.is_full()
            {
                let done = source.next.1;
                let bytes = (run.bytes - done).min(MAX_CALL_BYTES - list.bytes());
                let (own, to) = data.own_of(run.array, me as u64);
                let to = to.wrapping_add(run.to + done);
                if source.rank == me {
                    let from = own.wrapping_add(run.from as usize + done);
                    // SAFETY: runs of the plan lie within this rank's parts, which were checked against it and are borrowed; they do
                    // not overlap, or the source is a copy.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
                    list.count(bytes);
                } else {
                    let from = self.offers.address(source.rank, run.array);
                    list.push(from.wrapping_add(run.from + done as u64), to, bytes);
                }
                source.next = match done + bytes == run.bytes {
                    true => (source.next.0 + 1, 0),
                    false => (source.next.0, done + bytes),
                };
            }
            if source.rank != me {
                // SAFETY: as above, for this rank's destination.
                match unsafe { list.read(source.pid) } {
                    // A process that has ended is missed in any way.
                    Err(error) if self.tried && error.raw_os_error() != Some(libc::ESRCH) => {
                        self.offers.publish_unreadable(self.run);
                        return Ok(true);
                    }
                    read => read.map_err(|error| unreadable(source.rank, &error))?,
                }
            }
            self.calls += 1;
            self.offers.publish_calls(self.calls);
            self.counters.unpack += began.elapsed();
            return Ok(true);
        }
        Ok(false)
    }
}

impl ReadSource {
    fn is_read(&self) -> bool {
        self.next.0 == self.runs.len()
    }
}

impl MoverBackend for CmaMover {
    fn check(&self, data: &Buffers<'_>) -> Result<()> {
        check_unscaled(data, "process_vm_readv")
    }

    fn begin(&mut self, data: &mut Buffers<'_>, _: u64) {
        self.run += 1;
        (self.read, self.confirmed) = (false, false);
        self.sources.iter_mut().for_each(|source| source.next = (0, 0));
        self.counters = RunCounters::default();
        if self.tried && !self.reads_its_own(data) {
            return self.offers.publish_unreadable(self.run);
        }
        let rank = self.offers.rank() as u64;
        let address = |array: usize| data.own_of(array, rank).0.expose_provenance() as u64;
        self.offers.offer(self.run, (0..self.spans.len()).map(address));
    }

    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        if self.read_some(data)? {
            return Ok(Progress::Moved);
        }
        if !self.read && self.sources.iter().all(ReadSource::is_read) {
            self.read = true;
            self.offers.publish_read(self.run);
        }
        if !self.confirmed && self.readers.iter().all(|&rank| self.offers.has_read(rank, self.run)) {
            self.confirmed = true;
            self.offers.confirm(self.run);
        }
        let mut others = self.sources.iter().filter(|source| source.rank != self.offers.rank());
        let over = self.read
            && self.confirmed
            && others.all(|source| self.offers.is_confirmed(source.rank, self.run))
            && self.together().iter().all(|&rank| self.offers.has_read(rank, self.run));
        if over {
            return Ok(Progress::Done);
        }
        // Somebody that this rank waits for goes on: the wait begins anew.
        let readers = self.sources.iter().flat_map(|source| &source.readers);
        let readers = readers.chain(&self.readers).chain(self.together());
        let calls = readers.fold(0_u64, |sum, &rank| sum.wrapping_add(self.offers.calls(rank)));
        Ok(Progress::of(std::mem::replace(&mut self.seen_calls, calls) != calls))
    }

    fn awaited(&self) -> String {
        let (me, run) = (self.offers.rank(), self.run);
        let unread = |readers: &[usize]| -> Vec<usize> {
            readers.iter().copied().filter(|&rank| !self.offers.has_read(rank, run)).collect()
        };
        let mut late = unread(&self.readers);
        for source in self.sources.iter().filter(|source| source.rank != me) {
            if !source.is_read() {
                late.push(source.rank);
            } else if !self.offers.is_confirmed(source.rank, run) {
                // An owner waits for its readers.
                let others = unread(&source.readers);
                late.extend(if others.is_empty() { vec![source.rank] } else { others });
            }
        }
        if late.is_empty() {
            late = unread(self.together());
        }
        late.retain(|&rank| rank != me);
        rank_list(late)
    }

    fn counters(&self) -> RunCounters {
        self.counters
    }

    fn scratch_bytes(&self) -> u64 {
        let runs: usize = self.sources.iter().map(|source| source.runs.len()).sum();
        let bytes = Offers::<NodeMemory>::bytes(self.spans.len());
        (runs * size_of::<ByteRun>() + NodeMemory::taken(bytes, PageKind::Ordinary)) as u64
    }
}

/// Bytes that the source of `rank` spans; 0 if it has none.
fn source_bytes(array: &Array, rank: u64) -> usize {
    let elems = array.source_of(rank).map_or(0, |source| array.sources()[source].span);
    (elems * array.wanted().elem_bytes()) as usize
}

/// The pairs of what moves: an array, a target, a place of it.
fn pairs(plan: &Plan) -> impl Iterator<Item = (usize, &Target, usize)> {
    plan.arrays().iter().enumerate().flat_map(|(number, array)| {
        let targets = array.targets().iter().filter(|target| target.elems() > 0);
        targets.flat_map(move |target| (0..target.places()).map(move |place| (number, target, place)))
    })
}

/// The ranks with which `rank` exchanges data, or with which one of these does, and so on: itself, too. Ascending.
fn connected(plan: &Plan, rank: usize) -> Vec<usize> {
    let edges: Vec<[usize; 2]> = pairs(plan)
        .filter_map(|(number, target, place)| {
            let array = &plan.arrays()[number];
            let source = array.source_at(target, place)?;
            Some([array.sources()[source].rank as usize, target.rank as usize])
        })
        .collect();
    let (mut reached, mut next) = (vec![rank], 0);
    while let Some(&from) = reached.get(next) {
        for &[one, other] in edges.iter().filter(|edge| edge.contains(&from)) {
            let peer = if one == from { other } else { one };
            if !reached.contains(&peer) {
                reached.push(peer);
            }
        }
        next += 1;
    }
    reached.sort_unstable();
    reached
}

/// What `rank` reads of each source, those of higher ranks first, so that not all ranks begin with the same one; its own last.
fn sources_of(plan: &Plan, rank: usize, pids: &[i32]) -> Result<Vec<ReadSource>> {
    let what = "the runs that a rank reads";
    let mut sources: Vec<ReadSource> = Vec::new();
    for (number, target, place) in pairs(plan).filter(|(_, target, _)| target.rank == rank as u64) {
        let array = &plan.arrays()[number];
        let Some(owner) = array.source_at(target, place).map(|source| array.sources()[source].rank as usize)
        else {
            continue;
        };
        let count = array.memory_run_count(target, place).unwrap_or(0);
        memory::check(u128::from(count) * 2 * size_of::<ByteRun>() as u128, what)?;
        let elem = array.wanted().elem_bytes();
        let runs = array.memory_runs(target, place).unwrap_or_default();
        let runs = runs.iter().map(|run| ByteRun {
            array: number,
            from: run.from * elem,
            to: (run.to * elem) as usize,
            bytes: (run.elems * elem) as usize,
        });
        let at = sources.iter().position(|source| source.rank == owner).unwrap_or_else(|| {
            let readers = owners_and_readers(plan, owner as u64).1;
            sources.push(ReadSource {
                rank: owner,
                pid: pids[owner],
                readers,
                runs: Vec::new(),
                next: (0, 0),
            });
            sources.len() - 1
        });
        memory::extend(&mut sources[at].runs, runs, what)?;
    }
    // In the order of the source: its ranges are the dearer ones, and adjacent ones are joined.
    sources.iter_mut().for_each(|source| source.runs.sort_unstable_by_key(|run| (run.array, run.from)));
    sources.sort_by_key(|source| (source.rank + pids.len() - rank - 1) % pids.len());
    Ok(sources)
}

/// True if runs have [`MIN_RUN_BYTES`] and more in the mean, by what `count` says of a pair.
fn has_long_runs(plan: &Plan, count: impl Fn(&Array, &Target, usize) -> u64) -> bool {
    let most = plan.bytes() / MIN_RUN_BYTES;
    let mut runs: u64 = 0;
    pairs(plan).all(|(number, target, place)| {
        runs = runs.saturating_add(count(&plan.arrays()[number], target, place));
        runs <= most
    })
}

/// Runs of a pair at least, whatever the strides, which each rank knows of itself alone: along the axes that are adjacent in the
/// destination's order, up to the first of which the pair has several stretches.
fn least_runs(array: &Array, target: &Target, place: usize) -> u64 {
    let problem = array.wanted().problem();
    let dims = target.tracks.len();
    let fast = |order: MemoryOrder| if order == MemoryOrder::RowMajor { dims - 1 } else { 0 };
    if problem.axes()[fast(array.order())] != fast(array.wanted().from().order()) {
        let dim = fast(array.order());
        return target.tracks[dim].with_peer(target.peers_at(place)[dim]).elems();
    }
    let peers = target.peers_at(place);
    let pieces = |dim: usize| -> u64 {
        let track = target.tracks[dim].with_peer(peers[dim]);
        track.loops().iter().map(|each| each.rounds * each.stretches.len() as u64).sum()
    };
    let mut order: Vec<usize> = (0..dims).collect();
    if array.order() == MemoryOrder::RowMajor {
        order.reverse();
    }
    let parted = order.iter().position(|&dim| pieces(dim) > 1);
    let Some(parted) = parted else { return 1 };
    let slower = order[parted + 1..].iter().map(|&dim| target.tracks[dim].with_peer(peers[dim]).elems());
    slower.fold(pieces(order[parted]), u64::saturating_mul)
}

/// The error of a rank whose memory could not be read.
fn unreadable(rank: usize, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!(
            "the memory of rank {rank} could not be read ({error}): its process has ended, its source was freed or is in \
             memory that the system does not show others; the destination is only partly written"
        ),
    )
}
