//! Monotonic counters by which the ranks of a node see each other's progress, and from which they take tasks.

use super::super::word::{OrderingSite, SharedMemory, Word};
use crate::communicator::Communicator;
use crate::shm::{NodeMemory, PageKind};
use reshard_plan::Result;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A point of a run that a rank publishes, as the number of the last run in which it was reached.
#[derive(Clone, Copy)]
pub enum Milestone {
    /// The rank has begun the run: its source may be read, and its destination written.
    Begun,
    /// The rank has received everything.
    Received,
    /// The rank has revoked its source before all had read it.
    Revoked,
    /// The rank has aborted the run.
    Aborted,
}

impl Milestone {
    /// The orderings with which the milestone is published and read. The last two carry no data with them.
    fn orderings(self) -> [Ordering; 2] {
        match self {
            Self::Begun => [OrderingSite::RunBegins.order(), OrderingSite::SeesRunBegun.order()],
            Self::Received => [OrderingSite::RunReceived.order(), OrderingSite::SeesReceived.order()],
            Self::Revoked | Self::Aborted => [Ordering::Relaxed; 2],
        }
    }
}

/// Bytes of a cache line. Each milestone has a line of its own to avoid false sharing between ranks that poll one and the
/// rank that writes another.
const LINE: usize = 64;

/// Offset in bytes, beside the last milestone: the group of which this rank copied a task when it panicked.
const PANICKED: usize = Milestone::Aborted as usize * LINE + 8;

/// Offset in bytes: the group of which this rank copies a task now.
const BUSY: usize = 4 * LINE;

/// Offset in bytes: the call fingerprints of the last [`CALL_HISTORY`] runs.
const CALLS: usize = 5 * LINE;

/// Runs whose call fingerprints are kept. A rank does not begin a run before all that need its fingerprint of this many
/// runs ago have seen it.
pub const CALL_HISTORY: u64 = if cfg!(all(test, loom)) { 2 } else { 8 };

/// Offset in bytes: the task counters, one cache line for each group whose first receiver is this rank.
const TASK_COUNTERS: usize = 6 * LINE;

/// The name by which all ranks know a group: the rank that holds its task counter, and the index of that counter there.
pub type GroupHome = (usize, usize);

/// A group's name as a number that is not 0.
fn group_id((rank, index): GroupHome) -> u64 {
    ((rank as u64) << 32 | index as u64) + 1
}

/// The published counters of all ranks of a node.
pub struct ProgressBoard<M = NodeMemory> {
    memory: M,
}

impl ProgressBoard {
    /// Maps a board with `groups` task counters on this rank. Collective.
    pub fn share(comm: &Communicator, groups: usize, limit: Option<Duration>) -> Result<Self> {
        let memory = NodeMemory::share(comm, Self::bytes(groups), PageKind::Ordinary, limit)?;
        Ok(Self { memory })
    }

    /// Bytes of this rank's memory for a board with `groups` task counters.
    pub fn bytes(groups: usize) -> usize {
        TASK_COUNTERS + groups * LINE
    }
}

impl<M: SharedMemory> ProgressBoard<M> {
    /// A board in memory that is shared already.
    #[cfg(test)]
    pub fn within(memory: M) -> Self {
        Self { memory }
    }

    pub fn rank(&self) -> usize {
        self.memory.rank()
    }

    /// The number of ranks that share the board.
    pub fn ranks(&self) -> usize {
        self.memory.ranks()
    }

    /// Publishes that this rank has reached a milestone of `run`. No effect if `run` or a later one was published before.
    pub fn publish(&self, milestone: Milestone, run: u64) {
        self.memory.word(self.rank(), milestone as usize * LINE).fetch_max(run, milestone.orderings()[0]);
    }

    /// Publishes that this rank begins `run`, with the fingerprint of its call.
    pub fn begin(&self, run: u64, call: u64) {
        self.call(self.rank(), run).store(call, Ordering::Relaxed);
        self.publish(Milestone::Begun, run);
    }

    /// True if `rank`, which has begun `run`, did so with another call fingerprint. To be asked before this rank takes a
    /// task of a group that `rank` belongs to: as long as a task can be taken, the fingerprint is still there, see
    /// [`CALL_HISTORY`].
    pub fn call_differs(&self, rank: usize, run: u64, call: u64) -> bool {
        self.call(rank, run).load(Ordering::Relaxed) != call
    }

    fn call(&self, rank: usize, run: u64) -> &M::Word {
        self.memory.word(rank, CALLS + (run % CALL_HISTORY) as usize * size_of::<u64>())
    }

    /// The last run in which `rank` has reached a milestone.
    pub fn read(&self, rank: usize, milestone: Milestone) -> u64 {
        self.memory.word(rank, milestone as usize * LINE).load(milestone.orderings()[1])
    }

    /// Those of `ranks` that have not reached a milestone of `run`.
    pub fn behind<'a>(
        &'a self,
        ranks: &'a [usize],
        milestone: Milestone,
        run: u64,
    ) -> impl Iterator<Item = usize> + 'a {
        ranks.iter().copied().filter(move |&rank| self.read(rank, milestone) < run)
    }

    /// Revokes this rank's source for `run`. To be called before anything is written to the source.
    pub fn revoke(&self, run: u64) {
        self.publish(Milestone::Revoked, run);
        M::Word::fence(OrderingSite::RevokeFence.order());
    }

    /// Counts a task that this rank took and has copied.
    pub fn finish_task(&self, counter: TaskCounter<'_, M::Word>) {
        // A rank that sees the count also sees which sources were revoked before they were read.
        M::Word::fence(OrderingSite::ReadFence.order());
        counter.finish();
    }

    /// Publishes of which group this rank copies a task now, if of any.
    pub fn set_busy(&self, group: Option<GroupHome>) {
        self.memory.word(self.rank(), BUSY).store(group.map_or(0, group_id), Ordering::Relaxed);
    }

    /// True if `rank` copies a task of `group` now.
    pub fn is_busy_with(&self, rank: usize, group: GroupHome) -> bool {
        self.memory.word(rank, BUSY).load(Ordering::Relaxed) == group_id(group)
    }

    /// Publishes that this rank panicked while it copied a task of `group`, which will never be counted.
    pub fn set_panicked(&self, group: GroupHome) {
        self.memory.word(self.rank(), PANICKED).store(group_id(group), Ordering::Relaxed);
    }

    /// The first rank that panicked while it copied a task of `group`.
    pub fn panicked_rank(&self, group: GroupHome) -> Option<usize> {
        let panicked =
            |rank: &usize| self.memory.word(*rank, PANICKED).load(Ordering::Relaxed) == group_id(group);
        (0..self.ranks()).find(panicked)
    }

    /// The task counter of a group.
    pub fn task_counter(&self, (rank, index): GroupHome) -> TaskCounter<'_, M::Word> {
        let at = TASK_COUNTERS + index * LINE;
        TaskCounter { next: self.memory.word(rank, at), copied: self.memory.word(rank, at + 8) }
    }
}

/// Low bits of [`TaskCounter::next`] that hold the index of the next task; the bits above hold the run.
const TASK_BITS: u32 = 24;

/// The highest of the task bits: set when no more tasks may be taken.
const CLOSED: u64 = 1 << (TASK_BITS - 1);

/// A group has fewer tasks than this.
pub const MAX_TASKS: u64 = CLOSED;

/// Two atomic words from which any rank takes the tasks of a group, each task once in a run. A rank that takes a task learns
/// nothing by that but its index: what it may read and write it knows from the milestones.
pub struct TaskCounter<'a, W> {
    /// The run and the index of the next task, packed.
    next: &'a W,
    /// Tasks copied, in all runs.
    copied: &'a W,
}

impl<W> Clone for TaskCounter<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for TaskCounter<'_, W> {}

impl<W: Word> TaskCounter<'_, W> {
    /// Index of the next untaken task, if `run` still has one.
    pub fn next(self, run: u64, tasks: u64) -> Option<u64> {
        let seen = self.next.load(Ordering::Relaxed);
        taken(seen, run).filter(|&task| task < tasks)
    }

    /// Takes the next task, if `run` still has one.
    pub fn take(self, run: u64, tasks: u64) -> Option<u64> {
        let mut seen = self.next.load(Ordering::Relaxed);
        loop {
            let task = taken(seen, run).filter(|&task| task < tasks)?;
            match self.next.replace(seen, (run << TASK_BITS) + task + 1) {
                Ok(_) => return Some(task),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts a taken task as copied.
    fn finish(self) {
        self.copied.fetch_add(1, OrderingSite::TaskCopied.order());
    }

    /// True if all tasks of `run`, and of the runs before it, are copied.
    pub fn all_copied(self, run: u64, tasks: u64) -> bool {
        self.copied.load(OrderingSite::SeesAllCopied.order()) >= run * tasks
    }

    /// Closes the run: no more tasks of it can be taken. Returns the total count that `copied` will reach once all taken
    /// tasks are copied. Idempotent; any rank may call it.
    pub fn close(self, run: u64, tasks: u64) -> u64 {
        let mut seen = self.next.load(Ordering::Relaxed);
        // If a later run has begun there is nothing to close: all tasks of this one were copied.
        while let Some(count) = taken(seen, run).map(|count| count % CLOSED) {
            match self.next.replace(seen, (run << TASK_BITS) + CLOSED + count) {
                Ok(_) => return (run - 1) * tasks + count,
                Err(now) => seen = now,
            }
        }
        run * tasks
    }

    /// True if at least `count` tasks, in all runs, are copied; `count` comes from [`TaskCounter::close`].
    pub fn taken_copied(self, count: u64) -> bool {
        self.copied.load(OrderingSite::SeesTakenCopied.order()) >= count
    }
}

/// The number of tasks of `run` that were taken; at least [`CLOSED`] if the run is closed, none if a later run has begun.
fn taken(next: u64, run: u64) -> Option<u64> {
    match (next >> TASK_BITS).cmp(&run) {
        std::cmp::Ordering::Less => Some(0),
        std::cmp::Ordering::Equal => Some(next % (1 << TASK_BITS)),
        std::cmp::Ordering::Greater => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_is_taken_once_in_every_run() {
        const TASKS: u64 = 37;
        const RUNS: u64 = 300;
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let counter = TaskCounter { next: &next, copied: &copied };
        let times_taken = Mutex::new(vec![[0_u32; TASKS as usize]; RUNS as usize]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for run in 1..=RUNS {
                        while let Some(task) = counter.take(run, TASKS) {
                            times_taken.lock().unwrap()[run as usize - 1][task as usize] += 1;
                            counter.finish();
                        }
                        // Nobody begins a run before the one before is over.
                        while !counter.all_copied(run, TASKS) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert!(times_taken.lock().unwrap().iter().flatten().all(|&times| times == 1));
        assert!(counter.taken_copied(RUNS * TASKS) && !counter.taken_copied(RUNS * TASKS + 1));
    }

    #[test]
    fn a_late_rank_takes_no_task_of_a_later_run() {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let counter = TaskCounter { next: &next, copied: &copied };
        assert_eq!([counter.take(1, 2), counter.take(1, 2), counter.take(1, 2)], [Some(0), Some(1), None]);
        assert_eq!(counter.next(2, 2), Some(0));
        assert_eq!(counter.take(2, 2), Some(0));
        assert_eq!([counter.take(1, 2), counter.next(1, 2)], [None, None]);
        assert!(!counter.all_copied(1, 2));
        (0..2).for_each(|_| counter.finish());
        assert!(counter.all_copied(1, 2) && !counter.all_copied(2, 2));
    }

    #[test]
    fn a_closed_run_gives_no_task_and_counts_those_taken() {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let counter = TaskCounter { next: &next, copied: &copied };
        (0..4).for_each(|_| assert!(counter.take(1, 4).is_some()));
        (0..4).for_each(|_| counter.finish());
        assert_eq!([counter.take(2, 4), counter.take(2, 4)], [Some(0), Some(1)]);
        counter.finish();
        assert_eq!(counter.close(2, 4), 6);
        assert!(counter.taken_copied(5) && !counter.taken_copied(6));
        assert_eq!([counter.take(2, 4), counter.next(2, 4)], [None, None]);
        assert_eq!(counter.close(2, 4), 6, "idempotent");
        // A run of which no task was taken.
        let counter = TaskCounter { next: &AtomicU64::new(0), copied: &copied };
        assert_eq!(counter.close(2, 4), 4);
    }
}
