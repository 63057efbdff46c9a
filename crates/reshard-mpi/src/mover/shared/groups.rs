//! Which rank copies which tasks, and what it may read and write meanwhile.
//!
//! Monotonic counters say how far each rank is: see [`ProgressBoard`]. A source may be read once its owner has begun the
//! run, a destination written once its owner has; tasks are taken from an atomic counter and counted when they are copied.
//! A rank has received everything when all tasks of the groups that lead to it are copied and nobody has revoked a source
//! read for it.
//!
//! A rank may run ahead of those that read its source by [`CALL_HISTORY`] runs: so long the fingerprints of its calls stay
//! on the board. A rank that is further ahead waits before it begins.

use super::super::word::SharedMemory;
use super::super::{Progress, call_mismatch, rank_list};
use super::progress::{CALL_HISTORY, GroupHome, Milestone, ProgressBoard, TaskCounter};
use super::readers::Readers;
use crate::shm::NodeMemory;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Tasks with the same sources and destinations, as the mover knows them.
#[derive(Hash)]
pub struct GroupState {
    /// Index of the group among the kernel's groups on this rank.
    pub number: usize,
    /// Tasks of the group.
    pub tasks: u64,
    /// Where the group's task counter is.
    pub home: GroupHome,
    /// Ranks that own a source or a destination of the group: all must have begun before a task is copied.
    pub ranks: Vec<usize>,
    /// Ranks that own a destination of the group.
    pub receivers: Vec<usize>,
}

impl GroupState {
    fn counter<'a, M: SharedMemory>(&self, board: &'a ProgressBoard<M>) -> TaskCounter<'a, M::Word> {
        board.task_counter(self.home)
    }
}

/// All task groups of which this rank may copy tasks.
pub struct TaskGroups<M = NodeMemory> {
    /// The groups that lead to this rank, then all others.
    groups: Vec<GroupState>,
    /// The number of groups that lead to this rank.
    own: usize,
    /// For each group, the last run that all its ranks had begun with the same call.
    ready: Vec<u64>,
    /// Ranks whose sources this rank needs, without itself.
    owners: Vec<usize>,
    board: Arc<ProgressBoard<M>>,
    readers: Arc<Readers<M>>,
    /// The current run.
    run: u64,
    /// Fingerprint of the current call.
    call: u64,
    /// The beginning of the run is published.
    begun: bool,
    /// This rank has received everything of the run.
    received: bool,
}

impl<M: SharedMemory> TaskGroups<M> {
    /// The first `own` of the groups lead to this rank.
    pub fn new(
        groups: Vec<GroupState>,
        own: usize,
        owners: Vec<usize>,
        board: Arc<ProgressBoard<M>>,
        readers: Arc<Readers<M>>,
    ) -> Self {
        let ready = vec![0; groups.len()];
        Self { groups, own, ready, owners, board, readers, run: 0, call: 0, begun: false, received: false }
    }

    /// The ranks that read this rank's source.
    pub fn readers(&self) -> &Arc<Readers<M>> {
        &self.readers
    }

    /// Begins the next run, with the fingerprint of its call.
    pub fn begin(&mut self, call: u64) {
        self.run += 1;
        self.call = call;
        (self.begun, self.received) = (false, false);
        self.readers.begin(self.run);
        self.publish_begin();
    }

    /// Publishes that this rank has begun, unless a reader still needs the fingerprint that would be overwritten. Returns
    /// whether the beginning is published.
    fn publish_begin(&mut self) -> bool {
        if !self.begun && self.readers.are_done(self.run.saturating_sub(CALL_HISTORY)) {
            self.board.begin(self.run, self.call);
            self.begun = true;
        }
        self.begun
    }

    /// Skips the next run: this rank does not begin it, and no rank need wait for it.
    pub fn skip(&mut self) {
        self.run += 1;
        (self.begun, self.received) = (true, false);
        self.readers.begin(self.run);
        self.close();
        self.leave();
        self.readers.end(self.run);
    }

    /// Polls the other ranks' progress. False if this rank's beginning is not published yet: then it can copy nothing.
    pub fn poll(&mut self) -> Result<bool> {
        if !self.publish_begin() {
            return Ok(false);
        }
        if !self.received && self.unfinished().next().is_none() {
            self.receive()?;
        }
        Ok(true)
    }

    /// Takes a task, if there is one, and has `copy` copy it. The task is the caller's alone, its sources are complete, its
    /// destinations may be written, and both stay so until it is copied. Exceptions: an owner that revoked its source has
    /// published that, and a receiver that aborted without waiting for the task does not look at its destination any more.
    pub fn copy(&mut self, copy: impl FnOnce(&GroupState, u64)) -> Result<Progress> {
        let Some((at, task)) = self.take()? else {
            if self.received {
                return Ok(Progress::Done);
            }
            return self.failure().map_or(Ok(Progress::Waits), Err);
        };
        let group = &self.groups[at];
        self.board.set_busy(Some(group.home));
        let guard = PanicGuard { board: &self.board, group: group.home };
        copy(group, task);
        std::mem::forget(guard);
        self.board.finish_task(group.counter(&self.board));
        self.board.set_busy(None);
        Ok(Progress::Moved)
    }

    /// Takes a task whose ranks have all begun: the index of its group, and of the task.
    fn take(&mut self) -> Result<Option<(usize, u64)>> {
        let Self { groups, own, ready, board, run, call, .. } = self;
        for (at, (group, ready)) in groups.iter().zip(ready).enumerate() {
            let counter = group.counter(board);
            if counter.next(*run, group.tasks).is_none() {
                continue;
            }
            if *ready < *run {
                if board.behind(&group.ranks, Milestone::Begun, *run).next().is_some() {
                    continue;
                }
                let other = group.ranks.iter().find(|&&rank| board.call_differs(rank, *run, *call));
                match other {
                    Some(&rank) if at < *own => return Err(call_mismatch(rank, board.rank())),
                    // The receivers of the group report it.
                    Some(_) => continue,
                    None => *ready = *run,
                }
            }
            if let Some(task) = counter.take(*run, group.tasks) {
                return Ok(Some((at, task)));
            }
        }
        Ok(None)
    }

    /// The groups that lead to this rank and of which not all tasks are copied.
    fn unfinished(&self) -> impl Iterator<Item = &GroupState> {
        self.groups[..self.own]
            .iter()
            .filter(|group| !group.counter(&self.board).all_copied(self.run, group.tasks))
    }

    /// Why a group that leads to this rank will never be finished: a rank panicked over a task, or a receiver aborted.
    fn failure(&self) -> Option<Error> {
        let aborted = |rank: &&usize| self.board.read(**rank, Milestone::Aborted) == self.run;
        self.unfinished().find_map(|group| {
            let panic = self.board.panicked_rank(group.home).map(panicked);
            panic.or_else(|| group.receivers.iter().find(aborted).map(|&rank| gave_up(rank)))
        })
    }

    /// All tasks are copied: publishes that this rank has received everything, unless a source was revoked meanwhile.
    fn receive(&mut self) -> Result<()> {
        let revoked = |rank: &&usize| self.board.read(**rank, Milestone::Revoked) >= self.run;
        if let Some(rank) = self.owners.iter().find(revoked) {
            return Err(Error::new(
                ErrorKind::External,
                format!(
                    "rank {rank} waited too long for this one and revoked its shared part; the destination is only partly written"
                ),
            ));
        }
        self.board.publish(Milestone::Received, self.run);
        self.readers.end(self.run);
        self.received = true;
        Ok(())
    }

    /// Aborts the run: no rank takes a task that leads to this rank any more. Returns the counts for
    /// [`TaskGroups::taken_copied`].
    pub fn close(&mut self) -> Vec<u64> {
        self.board.publish(Milestone::Aborted, self.run);
        let own = self.groups[..self.own].iter();
        own.map(|group| group.counter(&self.board).close(self.run, group.tasks)).collect()
    }

    /// True if all tasks that were taken before [`TaskGroups::close`] are copied.
    pub fn taken_copied(&self, counts: &[u64]) -> bool {
        let mut own = self.groups.iter().zip(counts);
        own.all(|(group, &count)| group.counter(&self.board).taken_copied(count))
    }

    /// After [`TaskGroups::taken_copied`]: records that no rank writes to this rank's destinations any more.
    pub fn end(&self) {
        self.readers.end(self.run);
    }

    /// Last step of an abort, also if taken tasks were not copied in time: publishes that this rank reads nothing more, so
    /// that no owner waits for it.
    pub fn leave(&mut self) {
        self.board.publish(Milestone::Received, self.run);
    }

    /// The ranks that the run waits for, in words.
    pub fn awaited(&self) -> String {
        if !self.begun {
            return rank_list(self.readers.behind(self.run.saturating_sub(CALL_HISTORY)));
        }
        let absent = |group: &GroupState| {
            self.board.behind(&group.ranks, Milestone::Begun, self.run).collect::<Vec<_>>()
        };
        let late: Vec<usize> = self.unfinished().flat_map(absent).collect();
        if !late.is_empty() {
            return rank_list(late);
        }
        let busy = |rank: &usize| self.unfinished().any(|group| self.board.is_busy_with(*rank, group.home));
        rank_list((0..self.board.ranks()).filter(busy))
    }

    /// Bytes of this rank's part of the board.
    pub fn board_bytes(&self) -> u64 {
        let at_home = self.groups.iter().filter(|group| group.home.0 == self.board.rank()).count();
        ProgressBoard::bytes(at_home) as u64
    }
}

/// Guards a task that is being copied: if that panics, publishes it, so that no rank waits for the task.
struct PanicGuard<'a, M: SharedMemory> {
    board: &'a ProgressBoard<M>,
    group: GroupHome,
}

impl<M: SharedMemory> Drop for PanicGuard<'_, M> {
    fn drop(&mut self) {
        self.board.set_panicked(self.group);
    }
}

fn panicked(rank: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {rank} panicked while it copied something that this one receives; the destination is only partly written"
        ),
    )
}

fn gave_up(rank: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {rank} gave the run up, and what it receives is copied together with what this one does; the destination is \
             only partly written"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU64;

    /// The words of three ranks, within one process.
    type Words = Arc<[[AtomicU64; 64]; 3]>;

    /// The words of all ranks, as one rank sees them.
    struct LocalMemory {
        rank: usize,
        words: Words,
    }

    impl SharedMemory for LocalMemory {
        type Word = AtomicU64;

        fn rank(&self) -> usize {
            self.rank
        }

        fn ranks(&self) -> usize {
            self.words.len()
        }

        fn word(&self, rank: usize, at: usize) -> &AtomicU64 {
            &self.words[rank][at / 8]
        }
    }

    /// Rank 0 owns what rank 1 receives, in two tasks, and rank 2 helps.
    fn groups(rank: usize, words: &Words) -> TaskGroups<LocalMemory> {
        let group = GroupState { number: 0, tasks: 2, home: (1, 0), ranks: vec![0, 1], receivers: vec![1] };
        let board = Arc::new(ProgressBoard::within(LocalMemory { rank, words: Arc::clone(words) }));
        let readers = if rank == 0 { vec![1] } else { Vec::new() };
        let readers = Arc::new(Readers::new(Arc::clone(&board), readers, None, false));
        TaskGroups::new(vec![group], usize::from(rank == 1), vec![0], board, readers)
    }

    fn words() -> Words {
        Arc::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }

    #[test]
    fn nobody_waits_for_a_task_over_which_another_rank_panicked() {
        let words = words();
        let [mut owner, mut receiver, mut helper] = [0, 1, 2].map(|rank| groups(rank, &words));
        owner.begin(7);
        receiver.begin(7);
        helper.begin(7);
        // Over another group, although its counter has the same index on its rank.
        receiver.board.set_panicked((2, 0));
        assert!(receiver.failure().is_none());
        let panicked = catch_unwind(AssertUnwindSafe(|| helper.copy(|_, _| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert!(receiver.poll().unwrap());
        assert_eq!(receiver.copy(|_, task| assert_eq!(task, 1)).unwrap(), Progress::Moved);
        let error = receiver.copy(|_, _| panic!("all are taken")).unwrap_err().to_string();
        assert!(error.contains("rank 2 panicked while it copied"), "{error}");
    }

    #[test]
    fn a_rank_with_another_call_is_named_by_the_receiver_and_not_helped() {
        let words = words();
        let [mut owner, mut receiver, mut helper] = [0, 1, 2].map(|rank| groups(rank, &words));
        owner.begin(8);
        receiver.begin(7);
        helper.begin(8);
        for run in 2..=CALL_HISTORY {
            owner.begin(7);
            assert!(owner.poll().unwrap(), "run {run}");
        }
        // Its reader has not seen the fingerprint of its first run.
        owner.begin(7);
        owner.begin(7);
        assert!(!owner.poll().unwrap());
        assert_eq!(owner.awaited(), "rank 1");
        assert_eq!(helper.copy(|_, _| panic!("other arrays")).unwrap(), Progress::Waits);
        let error = receiver.copy(|_, _| panic!("other arrays")).unwrap_err().to_string();
        assert_eq!(
            error,
            "rank 0 gives other alpha, beta or arrays in this run than rank 1; give the same on all ranks; the destination is \
             only partly written"
        );
        receiver.close();
        receiver.leave();
        assert!(!owner.poll().unwrap(), "one run further ahead");
    }
}
