//! Tasks of ranks that can read each other's source parts: each byte is copied once, directly to its destination.
//!
//! A rank copies what it receives. If ranks can also write to each other's destinations, any rank can copy anything: then all
//! of it is cut into tasks that the ranks share, and rows that go to several destinations are read once for all of them.

use super::{TaskGroup, TaskList, Tuning, default_task_bytes};
use crate::memory::Buffers;
use crate::simd::Level;
use reshard_plan::Plan;
use std::sync::Arc;

/// Tasks shared between ranks have at least this many bytes: data that one core has copied in part, another must load into
/// its caches next time.
const MIN_SHARED_TASK_BYTES: u64 = 1 << 19;

/// The tasks of a plan, or of one receiver, in groups.
pub struct GroupedTasks {
    tasks: TaskList,
    groups: Vec<TaskGroup>,
}

impl GroupedTasks {
    /// Cuts what `rank` receives, to be copied at an instruction set level.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn new(plan: Arc<Plan>, rank: u64, level: Level) -> Self {
        Self::cut(plan, level, None, |receiver| receiver == rank)
    }

    /// True if `ranks` ranks should share the tasks: there is at least one task for each.
    pub fn is_worth_sharing(plan: &Plan, ranks: usize) -> bool {
        plan.bytes() / MIN_SHARED_TASK_BYTES >= ranks as u64
    }

    /// Cuts what all ranks receive, to be copied by `ranks` ranks, into tasks of `task_bytes` bytes (default: by plan and
    /// ranks). The tasks are the same at every level, so each rank may have its own.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn of_all(plan: Arc<Plan>, ranks: usize, task_bytes: Option<u64>, level: Level) -> Self {
        let task_bytes =
            task_bytes.unwrap_or_else(|| default_task_bytes(&plan, ranks).max(MIN_SHARED_TASK_BYTES));
        Self::cut(plan, level, Some(task_bytes), |_| true)
    }

    fn cut(plan: Arc<Plan>, level: Level, task_bytes: Option<u64>, receives: impl Fn(u64) -> bool) -> Self {
        let tuning = Tuning { level, task_bytes, non_temporal: None, take_turns: false };
        let mut tasks = TaskList::for_targets(plan, 1, tuning, |target| receives(target.rank));
        let groups = tasks.groups();
        Self { tasks, groups }
    }

    /// Returns the task groups: the same in every process that cuts the same plan with the same arguments, whatever the level.
    pub fn groups(&self) -> &[TaskGroup] {
        &self.groups
    }

    /// Returns the bytes of scratch memory.
    pub fn scratch_bytes(&self) -> u64 {
        self.tasks.scratch_bytes()
    }

    /// Copies one task of a group.
    ///
    /// # Panics
    /// If the data was entered for another plan, there is no such task, or a part that it needs was not entered.
    ///
    /// # Safety
    /// No thread of any process copies the same task meanwhile, writes to what it reads, or accesses what it writes.
    pub unsafe fn run(&self, group: usize, task: usize, data: &mut Buffers<'_>) {
        let TaskGroup { array, sources, targets, tasks } = &self.groups[group];
        assert!(task < tasks.len(), "task {task} of {}", tasks.len());
        let (from, to) = (data.sources(*array), data.targets(*array));
        assert!(sources.iter().all(|&source| !from[source].is_null()), "all sources were entered");
        assert!(targets.iter().all(|&target| !to[target].is_null()), "all destinations were entered");
        // SAFETY: entered parts are valid over their whole span; sources and destinations are different borrows, or memory of
        // other ranks, for which the caller answers. The rest is the caller's contract.
        unsafe { self.tasks.run_task(tasks.start + task, data) };
    }
}
