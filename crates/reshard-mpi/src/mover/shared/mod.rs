//! One copy: what a rank receives is read straight out of the other ranks' shared parts.
//!
//! [`TaskGroups`] says who may copy what, and when. A source may be read once its owner has begun the run. A rank's run
//! ends when it has received everything; others may still read its source, so whoever wants to write to the source waits
//! for its readers first: see [`Shared`](crate::Shared). On timeout the source is revoked, and a rank that reads it after
//! that gets an error. No rank waits for a rank that it exchanges nothing with, unless it is many runs ahead; but ranks
//! that receive parts of the same rows form one group.
//!
//! Where destinations are shared, too, it does not matter who copies: idle ranks take tasks, own ones first. So processors
//! are busy until all is done, however few ranks receive something and whatever else they have to do, and data for several
//! ranks is read once for all of them. No rank waits for something to help with.

#[allow(unsafe_code)]
pub mod array;
pub(super) mod groups;
pub(super) mod progress;
pub mod readers;

use super::{MoverBackend, Progress, RunCounters};
use crate::communicator::Communicator;
use groups::{GroupState, TaskGroups};
use progress::{MAX_TASKS, ProgressBoard};
use readers::Readers;
use reshard::engine::{Buffers, Level};
use reshard::rank::{GroupedTasks, TaskGroup, own_tasks, shared_tasks};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Among more ranks than this each copies only what it receives: listing the tasks of all takes every rank a time that grows
/// with the number of ranks.
const MAX_SHARING_RANKS: usize = 256;

/// Where ranks outnumber processors, a rank that has copied for this long yields before it takes another task. If the system
/// preempts it instead, it is in the middle of a task, and ranks that wait for it in an MPI that does not yield use up their
/// own time slices before it can go on.
const TIME_SLICE: Duration = Duration::from_micros(1500);

/// How long a rank that aborts a run waits for other ranks that still copy to its destination.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Which ranks copy what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkSharing {
    /// Each rank copies what it receives.
    Own,
    /// All ranks copy everything, if there is enough of it.
    All,
    /// All ranks copy everything, in tasks of this many bytes: for tests.
    AllInTasks(u64),
}

/// The movers `shared` and `shared-source`.
pub struct SharedMover {
    tasks: GroupedTasks,
    groups: TaskGroups,
    /// Tasks this rank has copied in this run.
    copied: u64,
    /// True if this rank yields after each time slice.
    yields: bool,
    /// When the current time slice began; none if this rank has just yielded.
    slice_began: Option<Instant>,
}

impl SharedMover {
    /// Cuts the plan into tasks and shares the progress board, within a limit; in runs, readers have another. Collective.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Communicator,
        sharing: WorkSharing,
        level: Option<Level>,
        limit: Option<Duration>,
        run_limit: Option<Duration>,
    ) -> Result<Self> {
        let rank = comm.rank();
        let (together, task_bytes) = match sharing {
            WorkSharing::Own => (false, None),
            WorkSharing::All => {
                (comm.size() <= MAX_SHARING_RANKS && GroupedTasks::is_worth_sharing(plan, comm.size()), None)
            }
            WorkSharing::AllInTasks(bytes) => (true, Some(bytes)),
        };
        let tasks = match together {
            true => shared_tasks(plan, comm.size(), task_bytes, level)?,
            false => own_tasks(plan, rank as u64, level)?,
        };
        let mut groups = group_states(plan, &tasks);
        if together {
            check_equal_groups(comm, &groups, limit)?;
        }
        let at_home = groups.iter().filter(|group| group.home.0 == rank).count();
        // Own groups first; then each rank begins with other groups, so that not all help the same receiver.
        groups.sort_by_key(|group| {
            let own = group.receivers.contains(&rank);
            (!own, (group.receivers[0] + comm.size() - rank) % comm.size(), group.number)
        });
        let own = groups.iter().filter(|group| group.receivers.contains(&rank)).count();
        let (owners, mut readers) = owners_and_readers(plan, rank as u64);
        if together {
            // All receivers of a group check the call fingerprints of all its owners, whether they read from each or not.
            let of_groups = tasks.groups().iter().flat_map(|group| {
                let array = &plan.arrays()[group.array];
                let owned = group.sources.iter().any(|&source| array.sources()[source].rank == rank as u64);
                let receivers = group.targets.iter().map(|&target| array.targets()[target].rank as usize);
                receivers.filter(move |&receiver| owned && receiver != rank)
            });
            readers.extend(of_groups);
            readers = sorted(readers);
        }
        let oversubscribed = comm.node(limit)?.is_oversubscribed();
        let board = Arc::new(ProgressBoard::share(comm, at_home, limit)?);
        let readers = Arc::new(Readers::new(Arc::clone(&board), readers, run_limit, oversubscribed));
        let groups = TaskGroups::new(groups, own, owners, board, readers);
        Ok(Self { tasks, groups, copied: 0, yields: together && oversubscribed, slice_began: None })
    }

    /// For each array, the indices of the sources and of the destinations that a run needs entered.
    pub fn parts(&self, arrays: usize) -> Vec<[Vec<usize>; 2]> {
        let mut parts = vec![<[Vec<usize>; 2]>::default(); arrays];
        for group in self.tasks.groups() {
            let [sources, targets] = &mut parts[group.array];
            sources.extend(&group.sources);
            targets.extend(&group.targets);
        }
        for numbers in parts.as_flattened_mut() {
            numbers.sort_unstable();
            numbers.dedup();
        }
        parts
    }

    /// The ranks that read this rank's source.
    pub fn readers(&self) -> &Arc<Readers> {
        self.groups.readers()
    }
}

/// The state of each task group, with its task counter on the group's first receiver.
fn group_states(plan: &Plan, tasks: &GroupedTasks) -> Vec<GroupState> {
    let mut counters_at = HashMap::new();
    let state = |(number, group): (usize, &TaskGroup)| {
        let array = &plan.arrays()[group.array];
        let receivers: Vec<usize> =
            group.targets.iter().map(|&target| array.targets()[target].rank as usize).collect();
        let owners = group.sources.iter().map(|&source| array.sources()[source].rank as usize);
        let ranks = sorted(owners.chain(receivers.iter().copied()).collect());
        let count = counters_at.entry(receivers[0]).or_insert(0);
        let home = (receivers[0], *count);
        *count += 1;
        let tasks = group.tasks() as u64;
        assert!(tasks < MAX_TASKS, "{tasks} tasks");
        GroupState { number, tasks, home, ranks, receivers }
    };
    tasks.groups().iter().enumerate().map(state).collect()
}

/// The ranks whose sources `rank` needs, and the ranks that need its source; both without itself.
pub(super) fn owners_and_readers(plan: &Plan, rank: u64) -> (Vec<usize>, Vec<usize>) {
    let (mut owners, mut readers) = (Vec::new(), Vec::new());
    for array in plan.arrays() {
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            let places = array.places_of(target, rank);
            if target.rank != rank {
                readers.extend(places.map(|_| target.rank as usize));
                continue;
            }
            let ranks =
                places.filter_map(|place| Some(array.sources()[array.source_at(target, place)?].rank));
            owners.extend(ranks.filter(|&owner| owner != rank).map(|owner| owner as usize));
        }
    }
    (sorted(owners), sorted(readers))
}

fn sorted(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Fails unless all ranks have cut the plan into equal groups: else two ranks would take one task index for different tasks.
/// Collective.
fn check_equal_groups(comm: &Communicator, groups: &[GroupState], limit: Option<Duration>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    groups.hash(&mut hasher);
    let number = hasher.finish();
    if comm.gather_numbers(number, limit)?.iter().any(|&other| other != number) {
        return Err(Error::new(
            ErrorKind::External,
            "the ranks have cut the same plan differently: their processors are not alike; use the mover `shared-source`",
        ));
    }
    Ok(())
}

impl MoverBackend for SharedMover {
    fn begin(&mut self, _: &mut Buffers<'_>, call: u64) {
        (self.copied, self.slice_began) = (0, None);
        self.groups.begin(call);
    }

    #[allow(unsafe_code)]
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        // Publish first, then help: a rank that waits for this source must not wait until other ranks are helped.
        if !self.groups.poll()? {
            return Ok(Progress::Waits);
        }
        // `Waits` makes the driver yield; the next slice begins after that, however long it took.
        if self.yields && self.slice_began.get_or_insert_with(Instant::now).elapsed() > TIME_SLICE {
            self.slice_began = None;
            return Ok(Progress::Waits);
        }
        let Self { tasks, groups, .. } = self;
        let copied = groups.copy(|group, task| {
            // SAFETY: the task is this rank's alone, and its sources and destinations may be read and written until it is
            // copied: see `TaskGroups::copy`.
            unsafe { tasks.run(group.number, task as usize, data) };
        })?;
        match copied {
            Progress::Moved => self.copied += 1,
            Progress::Waits => self.slice_began = None,
            Progress::Done => {}
        }
        Ok(copied)
    }

    fn abort(&mut self) {
        let counts = self.groups.close();
        let end = Instant::now() + ABORT_TIMEOUT;
        let mut copied = self.groups.taken_copied(&counts);
        while !copied && Instant::now() < end {
            std::thread::yield_now();
            copied = self.groups.taken_copied(&counts);
        }
        if copied {
            self.groups.end();
        }
        self.groups.leave();
    }

    fn skip_run(&mut self) {
        self.groups.skip();
    }

    fn awaited(&self) -> String {
        self.groups.awaited()
    }

    fn counters(&self) -> RunCounters {
        RunCounters { tasks: self.copied, ..RunCounters::default() }
    }

    fn scratch_bytes(&self) -> u64 {
        self.tasks.scratch_bytes() + self.groups.board_bytes()
    }
}
