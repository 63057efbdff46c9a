//! What ranks copy where they can read each other's source parts: each byte once, straight to where it belongs.
//!
//! A rank copies what it receives. Where ranks can write to each other's destinations, too, anybody can copy anything: then all
//! of it is cut into units to be shared out, and what leads to several destinations is read once for all of them.

use super::{TaskGroup, TaskList, Tuning, fair_unit};
use crate::memory::Buffers;
use crate::simd::Level;
use reshard_plan::Plan;
use std::sync::Arc;

/// Units that are shared out have at least so many bytes: what a processor has copied in part, another fetches anew next time.
const LEAST: u64 = 1 << 19;

/// Copies out of all source parts, in lots of units.
pub struct GroupedTasks {
    work: TaskList,
    lots: Vec<TaskGroup>,
}

impl GroupedTasks {
    /// What `rank` receives.
    pub fn new(plan: Arc<Plan>, rank: u64) -> Self {
        Self::cut(plan, None, |receiver| receiver == rank)
    }

    /// Whether so many ranks should share out what there is to copy: if there is at least a unit for each.
    pub fn is_worth_sharing(plan: &Plan, ranks: usize) -> bool {
        plan.bytes() / LEAST >= ranks as u64
    }

    /// What all ranks receive, for so many to copy. Units have so many bytes if that is said.
    pub fn of_all(plan: Arc<Plan>, ranks: usize, unit_bytes: Option<u64>) -> Self {
        let unit_bytes = unit_bytes.unwrap_or_else(|| fair_unit(&plan, ranks).max(LEAST));
        Self::cut(plan, Some(unit_bytes), |_| true)
    }

    fn cut(plan: Arc<Plan>, unit_bytes: Option<u64>, receives: impl Fn(u64) -> bool) -> Self {
        let tuning = Tuning { level: Level::best(), unit_bytes, streams: None };
        let mut work = TaskList::for_targets(plan, 1, tuning, |target| receives(target.rank));
        let lots = work.lots();
        Self { work, lots }
    }

    /// What there is to copy; the same in every process that asks for the same.
    pub fn lots(&self) -> &[TaskGroup] {
        &self.lots
    }

    /// Bytes of memory the kernels need.
    pub fn scratch_bytes(&self) -> u64 {
        self.work.scratch_bytes()
    }

    /// Copies one unit of a lot.
    ///
    /// # Panics
    /// If the data is another plan's, there is no such unit, or a part that it needs was not entered.
    ///
    /// # Safety
    /// Nobody, in whatever process, copies the same unit meanwhile, writes to what it reads, or touches what it writes.
    pub unsafe fn run(&self, lot: usize, unit: usize, data: &mut Buffers<'_>) {
        let TaskGroup { array, sources, targets, units } = &self.lots[lot];
        assert!(unit < units.len(), "unit {unit} of {}", units.len());
        let (from, to) = (data.sources(*array), data.targets(*array));
        assert!(sources.iter().all(|&source| !from[source].is_null()), "all sources were entered");
        assert!(targets.iter().all(|&target| !to[target].is_null()), "all destinations were entered");
        // SAFETY: what was entered is there over its whole span; sources and destinations are different borrows, or memory of
        // others, of which the caller knows. The rest is passed on.
        unsafe { self.work.run_unit(units.start + unit, data) };
    }
}
