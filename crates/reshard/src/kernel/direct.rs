//! One rank's share where it can read every other's source parts: each byte is copied once, straight to where it belongs.

use super::data::Data;
use super::vector::Level;
use super::work::{Tuning, Work};
use reshard_plan::Plan;
use std::sync::Arc;

/// What one rank copies for itself out of all source parts.
pub struct Direct {
    plan: Arc<Plan>,
    rank: u64,
    work: Work,
    /// For each array, the sources it reads.
    sources: Vec<Vec<usize>>,
}

impl Direct {
    /// What `rank` receives.
    pub fn new(plan: Arc<Plan>, rank: u64) -> Self {
        let tuning = Tuning { level: Level::best(), unit_bytes: None, streams: None };
        let work = Work::for_targets(Arc::clone(&plan), 1, tuning, |target| target.rank == rank);
        let sources = plan
            .arrays()
            .iter()
            .map(|array| {
                let targets = array.targets().iter().filter(|t| t.rank == rank && t.elems() > 0);
                let mut sources: Vec<usize> = targets.flat_map(|target| array.parts(target)).collect();
                sources.sort_unstable();
                sources.dedup();
                sources
            })
            .collect();
        Self { plan, rank, work, sources }
    }

    /// For each array, which of its sources are read: those of other ranks are to be entered with
    /// [`Data::enter_foreign`].
    pub fn sources(&self) -> &[Vec<usize>] {
        &self.sources
    }

    /// Bytes of memory the kernels need.
    pub fn scratch_bytes(&self) -> u64 {
        self.work.scratch_bytes()
    }

    /// Copies everything this rank receives.
    ///
    /// # Panics
    /// If the data is another plan's, or a part that is needed was not entered.
    pub fn run(&self, data: &mut Data<'_>) {
        for (array, sources) in self.sources.iter().enumerate() {
            let entered = |&source: &usize| !data.sources(array)[source].is_null();
            assert!(sources.iter().all(entered), "all sources of array {array} were entered");
            let targets = self.plan.arrays()[array].targets().iter().zip(data.targets(array));
            let mut mine = targets.filter(|(target, _)| target.rank == self.rank && target.elems() > 0);
            assert!(mine.all(|(_, to)| !to.is_null()), "the target of array {array} was entered");
        }
        self.work.run_alone(data);
    }
}
