//! The engine for rings in which each process is a thread and items travel in messages.
//!
//! It works like the MPI engine, within one process. A fragment is packed in one of its sender's slots. The mailbox says who
//! owns which slot, and a lock for each slot, for which no thread ever waits, lets the compiler see it.
//!
//! Why there is no deadlock: a process waits if it has nothing to unpack or no room, and nothing to pack or no slot. If a
//! fragment that has arrived cannot be unpacked, its receiver is full, so it holds something to send (see
//! [`RingPlan::room`]) and has no free slot: its fragments have arrived at another process that is full, too. Such a row of
//! processes has no end and no cycle, so there is none. If no fragment waits to be unpacked, no process lacks a slot or room,
//! and a valid program always has a next send.

use super::fragments::FragmentSize;
use super::plan::RingPlan;
use super::progress::RankProgress;
use super::{Report, bytes_of};
use crate::solve::Side;
use bytemuck::Pod;
use reshard_kernel::pool::{ThreadPool, catch};
use reshard_kernel::sync::mailbox::{Failed, Mailbox, SlotHandle};
use reshard_kernel::sync::{Mutex, get_mut, lock};
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::sync::Arc;
use std::time::Instant;

/// The most processes of a ring in this engine: each is a thread.
const MAX_PROCS: usize = 4096;

/// The engine for rings that sends messages between threads.
///
/// ```
/// use reshard_ring::{RingMessages, RingPlan, RingProblem};
/// use std::sync::Arc;
/// let plan = RingPlan::solved(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?.in_order()?, 2)?;
/// let mut engine = RingMessages::new(Arc::new(plan), None)?;
/// let mut parts = [vec![1_u16, 2, 3, 4, 5], vec![0; 2], vec![6, 0]];
/// engine.run(&mut parts)?;
/// assert_eq!(parts, [vec![1, 2, 3, 4, 5], vec![3, 4], vec![5, 6]]); // the first two of process 0 are its own
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub struct RingMessages {
    plan: Arc<RingPlan>,
    size: FragmentSize,
    scratch_bytes: u64,
    mailbox: Mailbox,
    /// The slots of all processes, one process after the other.
    slots: Vec<Mutex<Vec<u8>>>,
    ranks: Vec<Mutex<RankProgress>>,
    logs: Vec<Mutex<RunLog>>,
    pool: ThreadPool,
}

/// What one process did in a run.
#[derive(Default)]
struct RunLog {
    /// Fragments it has sent.
    fragments: u64,
    /// The message of its panic, if it panicked.
    failure: Option<String>,
}

impl RingMessages {
    /// Makes an engine for the plan. `memory` limits the bytes of the message buffers of all processes together.
    pub fn new(plan: Arc<RingPlan>, memory: Option<u64>) -> Result<Self> {
        let procs = plan.procs();
        if procs > MAX_PROCS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the ring has {procs} processes, and each would be a thread; at most {MAX_PROCS} are started"
                ),
            ));
        }
        let size = FragmentSize::within(memory, &plan, false, 0)?;
        let endpoints: Vec<(usize, usize)> = (0..procs)
            .flat_map(|rank| {
                [Side::Left, Side::Right].map(|side| (rank, side.of(rank as u64, procs as u64) as usize))
            })
            .collect();
        let mailbox = Mailbox::new(procs, size.slots, &endpoints);
        let mut slots = Vec::with_capacity(procs * size.slots);
        for rank in 0..procs {
            for _ in 0..size.slots {
                slots.push(Mutex::new(memory::zeroed(size.sent_bytes(&plan, rank), "a message buffer")?));
            }
        }
        let ranks = (0..procs).map(|rank| Mutex::new(RankProgress::new(&plan, rank))).collect();
        let logs = (0..procs).map(|_| Mutex::new(RunLog::default())).collect();
        let pool = ThreadPool::new(procs).map_err(|error| {
            Error::new(
                ErrorKind::Memory,
                format!("{procs} threads, one for each process, could not be started: {error}"),
            )
        })?;
        let scratch_bytes = size.bytes(&plan);
        Ok(Self { plan, size, scratch_bytes, mailbox, slots, ranks, logs, pool })
    }

    /// The plan that the engine runs.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// Bytes of memory beside plan and items: the slots of all processes.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Moves the items in place. `parts` has one part for each process, with its [room](RingPlan::room). Allocates nothing.
    pub fn run<T: Pod, P: AsMut<[T]> + Send>(&mut self, parts: &mut [P]) -> Result<Report> {
        self.plan.check_parts(parts)?;
        let begin = Instant::now();
        self.mailbox.reset();
        self.logs.iter_mut().for_each(|log| *get_mut(log) = RunLog::default());
        // Each thread takes the next process, whichever that is.
        let next = Mutex::new(parts.iter_mut().enumerate());
        let Self { plan, size, mailbox, slots, ranks, logs, pool, .. } = self;
        let exchange = Exchange { mailbox, slots, slots_per_rank: size.slots, procs: plan.procs() };
        let run_next_rank = |_: usize| {
            let Some((rank, part)) = lock(&next).next() else { return };
            let part = Mutex::new(part);
            let outcome = catch(rank, &|rank| {
                let mut progress = lock(&ranks[rank]);
                exchange.run_rank(rank, &mut progress, bytes_of(&mut **lock(&part)), &logs[rank]);
            });
            if let Err(panicked) = outcome {
                // Ends all waits of the other processes.
                lock(&logs[rank]).failure = Some(panicked.message);
                exchange.mailbox.fail(rank);
            }
        };
        let outcome = pool.run(&run_next_rank);
        outcome.map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        if let Some(rank) = mailbox.failed() {
            let reason = get_mut(&mut logs[rank]).failure.take().unwrap_or_default();
            return Err(Error::new(
                ErrorKind::Failed,
                format!("process {rank} panicked: {reason}; the items are only partly written"),
            ));
        }
        let sent = logs.iter_mut().map(|log| get_mut(log).fragments).sum();
        Ok(Report::new(plan, sent, begin))
    }
}

/// The state of a run that all processes share.
struct Exchange<'a> {
    mailbox: &'a Mailbox,
    slots: &'a [Mutex<Vec<u8>>],
    slots_per_rank: usize,
    procs: usize,
}

/// A fragment that is being packed.
#[derive(Clone, Copy)]
struct OpenFragment {
    slot: u32,
    /// The side it is sent to.
    side: Side,
    /// Bytes packed so far.
    packed: usize,
}

/// A fragment that is being unpacked.
#[derive(Clone, Copy)]
struct ArrivedFragment {
    handle: SlotHandle,
    /// Bytes unpacked so far.
    unpacked: usize,
}

impl Exchange<'_> {
    /// Does the whole run of a process. Ends early if another process fails: the mailbox knows which.
    fn run_rank(&self, rank: usize, progress: &mut RankProgress, memory: &mut [u8], log: &Mutex<RunLog>) {
        progress.begin();
        let mut fragments = 0;
        let outcome = self.move_items(rank, progress, memory, &mut fragments);
        lock(log).fragments = fragments;
        if outcome.is_ok() {
            progress.finish(memory);
        }
    }

    /// Sends and receives all items of a process. Counts the fragments it sends in `fragments`.
    fn move_items(
        &self,
        rank: usize,
        progress: &mut RankProgress,
        memory: &mut [u8],
        fragments: &mut u64,
    ) -> std::result::Result<(), Failed> {
        let mut open: Option<OpenFragment> = None;
        let mut arrived = [None; 2];
        while !progress.is_over() {
            // Read before looking for work: events from here on are seen below, or end the wait at once.
            let seen = self.mailbox.event_count(rank);
            let mut moved = false;
            for side in [Side::Left, Side::Right] {
                moved |= self.unpack(rank, progress, memory, side, &mut arrived[side.index()]);
            }
            moved |= self.pack(rank, progress, memory, &mut open, fragments);
            if moved {
                continue;
            }
            match open.take() {
                Some(open) => self.send(rank, open, fragments),
                None => self.mailbox.wait(rank, seen)?,
            }
        }
        Ok(())
    }

    /// Unpacks the fragments that have arrived from `side`, as far as there is room. Returns whether any item was unpacked.
    fn unpack(
        &self,
        rank: usize,
        progress: &mut RankProgress,
        memory: &mut [u8],
        side: Side,
        arrived: &mut Option<ArrivedFragment>,
    ) -> bool {
        let sender = side.of(rank as u64, self.procs as u64) as usize;
        let message = 2 * sender + side.opposite().index();
        let mut moved = false;
        while progress.incoming(side) > 0 {
            if arrived.is_none() {
                let next = self.mailbox.receive(message);
                *arrived = next.map(|handle| ArrivedFragment { handle, unpacked: 0 });
            }
            let Some(ArrivedFragment { handle, unpacked }) = arrived else { break };
            let slot = lock(&self.slots[sender * self.slots_per_rank + handle.slot as usize]);
            let range = RankProgress::fragment_range(side.opposite(), slot.len(), handle.bytes as usize);
            let now = progress.unpack(memory, side, &slot[range], *unpacked);
            drop(slot);
            moved |= now > *unpacked;
            *unpacked = now;
            if (now as u64) < handle.bytes {
                break;
            }
            self.mailbox.release_slot(message, handle.slot);
            *arrived = None;
        }
        moved
    }

    /// Packs items that the process holds and that go next, and sends fragments that are full or the last of their step.
    /// Returns whether any item was packed.
    fn pack(
        &self,
        rank: usize,
        progress: &mut RankProgress,
        memory: &[u8],
        open: &mut Option<OpenFragment>,
        fragments: &mut u64,
    ) -> bool {
        let mut moved = false;
        while let Some(side) = progress.sends_to().filter(|_| progress.can_send()) {
            if open.is_none() {
                let slot = self.mailbox.take_slot(rank);
                *open = slot.map(|slot| OpenFragment { slot, side, packed: 0 });
            }
            let Some(fragment) = open else { break };
            let mut slot = lock(&self.slots[rank * self.slots_per_rank + fragment.slot as usize]);
            fragment.packed = progress.pack(memory, &mut slot, fragment.packed);
            let full = slot.len() == fragment.packed;
            drop(slot);
            moved = true;
            if full || progress.sends_to() != Some(side) {
                self.send(rank, *fragment, fragments);
                *open = None;
            }
        }
        moved
    }

    fn send(&self, rank: usize, open: OpenFragment, fragments: &mut u64) {
        let handle = SlotHandle { slot: open.slot, bytes: open.packed as u64 };
        self.mailbox.send(2 * rank + open.side.index(), handle);
        *fragments += 1;
    }
}
