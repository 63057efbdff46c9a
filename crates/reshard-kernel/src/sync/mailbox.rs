//! The post between ranks of one process: what an engine that passes messages runs on.
//!
//! It passes letters, never bytes. A letter names one of the sender's buffers (its slots), and whoever holds the letter
//! holds the buffer. A slot goes round: free, filled by its sender, travelling, emptied by the receiver, free again.
//! Every hand-over happens under a lock, so the next holder sees all that the last one wrote. The order is checked at
//! every step, in release builds too, because engines rest their claim to a buffer on it.
//!
//! One lock for each rank guards its slots, the queues of the messages it sends, and a count of what has happened to
//! it. A message has one sender, so the letters of its queue are slots of one rank and the queue is a list through
//! them: memory for `messages + ranks * slots`, not for their product. Nobody ever holds two locks.
//!
//! Waiting is by count, which leaves no gap for a wake-up to be lost in: a rank reads its [`Mailbox::news`], looks for
//! work, and, having found none, waits for more news than it had read. What happened while it looked has raised the
//! count, and it does not sleep at all.
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

/// Which of the sender's slots, and how many bytes are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHandle {
    /// The slot, in `0..slots` of the message's sender.
    pub slot: u32,
    /// How much of the slot is filled.
    pub bytes: u64,
}

/// Waiting is pointless: `rank` cannot go on.
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

/// The mailboxes of all ranks. All memory is taken in [`Mailbox::new`].
pub struct Mailbox {
    ranks: Vec<RankState>,
    routes: Vec<Channel>,
    meeting: Monitor<StepBarrier>,
    /// The first rank that failed, or [`NOBODY`].
    failed: AtomicUsize,
}

/// Nobody has failed.
const NOBODY: usize = usize::MAX;

/// A message: from whom, to whom, and its queue's place among those of its sender.
#[derive(Clone, Copy)]
struct Channel {
    sender: u32,
    receiver: u32,
    queue: u32,
}

/// One rank; alone on its cache lines, since its neighbours have nothing to do with it.
#[repr(align(128))]
struct RankState {
    desk: Monitor<RankQueue>,
}

impl Mailbox {
    /// `ranks` ranks with `slots` buffers each; message `m` goes from `ends[m].0` to `ends[m].1`.
    pub fn new(ranks: usize, slots: usize, ends: &[(usize, usize)]) -> Self {
        let most = NONE as usize;
        assert!(ranks < most && slots < most && ends.len() < most, "numbers of 32 bits");
        let mut queues = vec![0_u32; ranks];
        let route = |&(sender, receiver): &(usize, usize)| {
            assert!(
                sender < ranks && receiver < ranks,
                "message from {sender} to {receiver} of {ranks} ranks"
            );
            let queue = queues[sender];
            queues[sender] += 1;
            Channel { sender: sender as u32, receiver: receiver as u32, queue }
        };
        let routes = ends.iter().map(route).collect();
        let rank = |&queues: &u32| RankState { desk: Monitor::new(RankQueue::new(slots, queues)) };
        Self {
            ranks: queues.iter().map(rank).collect(),
            routes,
            meeting: Monitor::new(StepBarrier::new(ranks)),
            failed: AtomicUsize::new(NOBODY),
        }
    }

    /// One of `rank`'s own free slots, now taken; none if all are under way.
    pub fn take_slot(&self, rank: usize) -> Option<u32> {
        self.desk(rank).hold(RankQueue::take_slot)
    }

    /// Hands a filled slot to the receiver of `message`, behind the letters sent before, and wakes it.
    pub fn send(&self, message: usize, letter: SlotHandle) {
        let Channel { sender, receiver, queue } = self.routes[message];
        self.desk(sender as usize).hold(|desk| desk.append(queue as usize, letter));
        self.desk(receiver as usize).change(|desk| {
            desk.news += 1;
            true
        });
    }

    /// The next letter of `message`, if one has arrived.
    pub fn receive(&self, message: usize) -> Option<SlotHandle> {
        let Channel { sender, queue, .. } = self.routes[message];
        self.desk(sender as usize).hold(|desk| desk.take_letter(queue as usize))
    }

    /// The receiver of `message` has emptied the slot: it is the sender's again, who is woken.
    pub fn give_back(&self, message: usize, slot: u32) {
        self.desk(self.routes[message].sender as usize).change(|desk| {
            desk.free_slot(slot);
            desk.news += 1;
            true
        });
    }

    /// How much has happened to `rank` so far: letters arrived, slots come back. To be read before looking for work.
    pub fn news(&self, rank: usize) -> u64 {
        self.desk(rank).hold(|desk| desk.news)
    }

    /// Sleeps until more has happened to `rank` than `seen`, or somebody has failed.
    pub fn wait(&self, rank: usize, seen: u64) -> Result<(), Failed> {
        self.desk(rank).wait_until(|desk| self.failure().or((desk.news > seen).then_some(Ok(()))))
    }

    /// `rank` has finished one more step. Returns how many it has finished: `wait_all(arrive(rank))` is a barrier.
    pub fn arrive(&self, rank: usize) -> u64 {
        let mut steps = 0;
        self.meeting.change(|meeting| {
            let was_last = meeting.arrive(rank);
            steps = meeting.arrivals[rank];
            was_last
        });
        steps
    }

    /// Sleeps until every rank has finished `steps` steps, or somebody has failed.
    pub fn wait_all(&self, steps: u64) -> Result<(), Failed> {
        self.meeting.wait_until(|meeting| self.failure().or((meeting.finished >= steps).then_some(Ok(()))))
    }

    /// `rank` cannot go on: everybody who waits, now or later, is told so. The first to fail stays named.
    pub fn fail(&self, rank: usize) {
        if self.failed.compare_exchange(NOBODY, rank, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        // Whoever looked for a failure too early to see this one did so under a lock and sleeps by the time we have it.
        // Whoever takes the lock after us sees it.
        for rank in &self.ranks {
            rank.desk.change(|_| true);
        }
        self.meeting.change(|_| true);
    }

    /// The first rank that failed.
    pub fn failed(&self) -> Option<usize> {
        let rank = self.failed.load(Ordering::Acquire);
        (rank != NOBODY).then_some(rank)
    }

    /// Back to the beginning: all slots free, no letters, no arrivals, nobody failed. Keeps all memory.
    pub fn reset(&mut self) {
        for rank in &mut self.ranks {
            rank.desk.get_mut().reset();
        }
        self.meeting.get_mut().reset();
        // Nobody else is here, and whoever comes gets the post from us.
        self.failed.store(NOBODY, Ordering::Relaxed);
    }

    fn desk(&self, rank: usize) -> &Monitor<RankQueue> {
        &self.ranks[rank].desk
    }

    fn failure(&self) -> Option<Result<(), Failed>> {
        self.failed().map(|rank| Err(Failed { rank }))
    }
}

/// How often ranks have arrived at the end of a step.
struct StepBarrier {
    arrivals: Vec<u64>,
    /// The fewest arrivals of any rank: this many steps are finished by all.
    finished: u64,
    /// How many ranks have arrived no more often than that.
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

    /// Counts the arrival; true if it was the last that a step waited for.
    fn arrive(&mut self, rank: usize) -> bool {
        let was_behind = self.arrivals[rank] == self.finished;
        self.arrivals[rank] += 1;
        self.behind -= usize::from(was_behind);
        if self.behind > 0 {
            return false;
        }
        // Ranks may be ahead, but this one has just left the rear: the new rear is one step on.
        self.finished += 1;
        self.behind = self.arrivals.iter().filter(|&&arrivals| arrivals == self.finished).count();
        true
    }
}
