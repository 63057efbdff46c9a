//! The mailbox between ranks of one process, on which engines that pass messages run.
//!
//! It passes slot handles, never bytes. A handle names one of the sender's buffers (its slots), and whoever holds the handle
//! owns the buffer. The states of a slot form a cycle: free, being filled by its sender, in flight, being read by the
//! receiver, free again. Every transfer of ownership happens under a lock, so the next owner sees all that the last one
//! wrote. The order is checked at every step, in release builds too, because the safety of engines depends on it.
//!
//! One lock for each rank guards its slots, the queues of the messages it sends, and its event count. A message has one
//! sender, so the fragments of its queue are slots of one rank and the queue is a linked list through them: memory for
//! `messages + ranks * slots`, not for their product. No thread ever holds two locks.
//!
//! Waiting uses event counts, which leave no gap for a lost wake-up: a rank reads its [`Mailbox::event_count`], looks for
//! work, and, having found none, waits until the count is larger than what it had read. Events that happened while it looked
//! have raised the count, and then it does not block at all.
//!
//! Ranks, messages and slots are the engine's own numbers, not a user's: one that is out of range panics like an index.

use super::atomic::{AtomicUsize, Ordering};
use super::monitor::Monitor;
use queue::{NONE, RankQueue};
use std::fmt;

#[cfg(all(test, loom))]
mod loom_models;
mod queue;
#[cfg(all(test, not(loom)))]
mod tests;

/// A filled slot of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHandle {
    /// Index of the slot, in `0..slots` of the message's sender.
    pub slot: u32,
    /// Bytes of the slot that are filled.
    pub bytes: u64,
}

/// The error of a wait: `rank` failed, so the wait cannot end otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The first rank that failed.
    pub rank: usize,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} failed", self.rank)
    }
}

impl std::error::Error for Failed {}

/// The mailboxes of all ranks. All memory is allocated in [`Mailbox::new`].
pub struct Mailbox {
    ranks: Vec<RankState>,
    channels: Vec<Channel>,
    barrier: Monitor<StepBarrier>,
    /// The first rank that failed, or [`NO_RANK`].
    failed: AtomicUsize,
}

/// No rank has failed.
const NO_RANK: usize = usize::MAX;

/// A message: its sender, its receiver, and the index of its queue among those of the sender.
#[derive(Clone, Copy)]
struct Channel {
    sender: u32,
    receiver: u32,
    queue: u32,
}

/// One rank, on cache lines of its own to avoid false sharing.
#[repr(align(128))]
struct RankState {
    queue: Monitor<RankQueue>,
}

impl Mailbox {
    /// Makes mailboxes for `ranks` ranks with `slots` slots each; message `m` goes from `endpoints[m].0` to `endpoints[m].1`.
    pub fn new(ranks: usize, slots: usize, endpoints: &[(usize, usize)]) -> Self {
        let limit = NONE as usize;
        assert!(ranks < limit && slots < limit && endpoints.len() < limit, "all numbers fit into 32 bits");
        let mut queues = vec![0_u32; ranks];
        let channel = |&(sender, receiver): &(usize, usize)| {
            assert!(
                sender < ranks && receiver < ranks,
                "message from {sender} to {receiver} of {ranks} ranks"
            );
            let queue = queues[sender];
            queues[sender] += 1;
            Channel { sender: sender as u32, receiver: receiver as u32, queue }
        };
        let channels = endpoints.iter().map(channel).collect();
        let rank = |&queues: &u32| RankState { queue: Monitor::new(RankQueue::new(slots, queues)) };
        Self {
            ranks: queues.iter().map(rank).collect(),
            channels,
            barrier: Monitor::new(StepBarrier::new(ranks)),
            failed: AtomicUsize::new(NO_RANK),
        }
    }

    /// Takes one of `rank`'s own free slots; none if all are in use.
    pub fn take_slot(&self, rank: usize) -> Option<u32> {
        self.rank_queue(rank).with(RankQueue::take_slot)
    }

    /// Appends a filled slot to the queue of `message`, and wakes the receiver.
    pub fn send(&self, message: usize, handle: SlotHandle) {
        let Channel { sender, receiver, queue } = self.channels[message];
        self.rank_queue(sender as usize).with(|rank| rank.push(queue as usize, handle));
        self.rank_queue(receiver as usize).update(|rank| {
            rank.event_count += 1;
            true
        });
    }

    /// Returns the next fragment of `message`, if one has arrived.
    pub fn receive(&self, message: usize) -> Option<SlotHandle> {
        let Channel { sender, queue, .. } = self.channels[message];
        self.rank_queue(sender as usize).with(|rank| rank.pop(queue as usize))
    }

    /// Returns a slot that the receiver of `message` has read to the sender, and wakes the sender.
    pub fn release_slot(&self, message: usize, slot: u32) {
        self.rank_queue(self.channels[message].sender as usize).update(|rank| {
            rank.free_slot(slot);
            rank.event_count += 1;
            true
        });
    }

    /// Returns the event count of `rank`: fragments that arrived and slots that came back. Read it before looking for work.
    pub fn event_count(&self, rank: usize) -> u64 {
        self.rank_queue(rank).with(|rank| rank.event_count)
    }

    /// Blocks until the event count of `rank` is larger than `seen`, or a rank has failed.
    pub fn wait(&self, rank: usize, seen: u64) -> Result<(), Failed> {
        self.rank_queue(rank)
            .wait_until(|rank| self.failure().or((rank.event_count > seen).then_some(Ok(()))))
    }

    /// Records that `rank` has finished one more step. Returns how many it has finished: `wait_all(arrive(rank))` is a
    /// barrier.
    pub fn arrive(&self, rank: usize) -> u64 {
        let mut steps = 0;
        self.barrier.update(|barrier| {
            let was_last = barrier.arrive(rank);
            steps = barrier.arrivals[rank];
            was_last
        });
        steps
    }

    /// Blocks until every rank has finished `steps` steps, or a rank has failed.
    pub fn wait_all(&self, steps: u64) -> Result<(), Failed> {
        self.barrier.wait_until(|barrier| self.failure().or((barrier.finished >= steps).then_some(Ok(()))))
    }

    /// Records that `rank` failed: every wait, now or later, ends with that error. Only the first failure is recorded.
    pub fn fail(&self, rank: usize) {
        if self.failed.compare_exchange(NO_RANK, rank, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        // A thread that checked for a failure too early to see this one did so under a lock, and is blocked by the time we
        // hold that lock. A thread that takes the lock after us sees the failure.
        for rank in &self.ranks {
            rank.queue.update(|_| true);
        }
        self.barrier.update(|_| true);
    }

    /// Returns the first rank that failed.
    pub fn failed(&self) -> Option<usize> {
        let rank = self.failed.load(Ordering::Acquire);
        (rank != NO_RANK).then_some(rank)
    }

    /// Resets to the initial state: all slots free, queues empty, no arrivals, no failure. Keeps all memory.
    pub fn reset(&mut self) {
        for rank in &mut self.ranks {
            rank.queue.get_mut().reset();
        }
        self.barrier.get_mut().reset();
        // The access is exclusive, and whoever uses the mailbox next gets it from this thread.
        self.failed.store(NO_RANK, Ordering::Relaxed);
    }

    fn rank_queue(&self, rank: usize) -> &Monitor<RankQueue> {
        &self.ranks[rank].queue
    }

    fn failure(&self) -> Option<Result<(), Failed>> {
        self.failed().map(|rank| Err(Failed { rank }))
    }
}

/// Counts the arrivals of ranks at the end of each step.
struct StepBarrier {
    arrivals: Vec<u64>,
    /// The fewest arrivals of any rank: all ranks have finished this many steps.
    finished: u64,
    /// Number of ranks with exactly `finished` arrivals.
    behind: usize,
}

impl StepBarrier {
    fn new(ranks: usize) -> Self {
        Self { arrivals: vec![0; ranks], finished: 0, behind: ranks }
    }

    fn reset(&mut self) {
        self.arrivals.fill(0);
        self.finished = 0;
        self.behind = self.arrivals.len();
    }

    /// Counts an arrival; true if it was the last that a step waited for.
    fn arrive(&mut self, rank: usize) -> bool {
        let was_behind = self.arrivals[rank] == self.finished;
        self.arrivals[rank] += 1;
        self.behind -= usize::from(was_behind);
        if self.behind > 0 {
            return false;
        }
        // Ranks may be ahead, but this one has exactly one arrival more than `finished`: so that is the new minimum.
        self.finished += 1;
        self.behind = self.arrivals.iter().filter(|&&arrivals| arrivals == self.finished).count();
        true
    }
}
