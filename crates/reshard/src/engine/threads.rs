//! All ranks in one process: a byte is read once from where it is and written once to where it belongs.
//!
//! No packing, no messages, no scratch to speak of. The plan is cut into units of up to two megabytes of destination,
//! and a few threads take one after the other.

use super::{Buffers, Engine, Report};
use reshard_kernel::Level;
use reshard_kernel::memory::check_reach_of_all;
use reshard_kernel::pool::ThreadPool;
use reshard_kernel::tasks::{TaskList, Tuning};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Instant;

/// The embedded engine.
pub struct Threads {
    plan: Arc<Plan>,
    work: TaskList,
    crew: ThreadPool,
    bytes: u64,
}

impl Threads {
    /// Ready to run the plan with so many threads, the caller's included; `None` for one on each core.
    pub fn new(plan: Arc<Plan>, threads: Option<usize>) -> Result<Self> {
        Self::tuned(plan, threads, Tuning { level: Level::best(), unit_bytes: None, streams: None })
    }

    /// How many ways there are to run a plan on this processor: every set of instructions, past the caches and not.
    #[doc(hidden)]
    pub fn ways() -> usize {
        2 * Level::available().len()
    }

    /// One of those ways, in small units. All must do the same; the first, portable, is the oracle of the others.
    #[doc(hidden)]
    pub fn in_way(plan: &Arc<Plan>, threads: usize, way: usize) -> Result<Self> {
        let levels = Level::available();
        let level = levels[way / 2 % levels.len()];
        let tuning = Tuning { level, unit_bytes: Some(256), streams: Some(way % 2 == 1) };
        Self::tuned(Arc::clone(plan), Some(threads), tuning)
    }

    /// One engine for each way.
    #[doc(hidden)]
    pub fn every_way(plan: &Arc<Plan>, threads: usize) -> Result<Vec<Self>> {
        (0..Self::ways()).map(|way| Self::in_way(plan, threads, way)).collect()
    }

    fn tuned(plan: Arc<Plan>, threads: Option<usize>, tuning: Tuning) -> Result<Self> {
        let threads = match threads {
            Some(0) => {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    "0 threads were given; the work needs at least 1, the calling thread",
                ));
            }
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        check_reach_of_all(&plan)?;
        let work = TaskList::new(Arc::clone(&plan), threads, tuning);
        let crew = ThreadPool::new(work.workers()).map_err(|error| {
            Error::new(ErrorKind::Memory, format!("{} threads could not be started: {error}", work.workers()))
        })?;
        let bytes = plan.bytes();
        Ok(Self { plan, work, crew, bytes })
    }

    /// How many threads will work, the caller's included: never more than there are units of work.
    pub fn threads(&self) -> usize {
        self.work.workers()
    }
}

impl Engine for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> u64 {
        self.work.scratch_bytes()
    }

    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report> {
        data.check_all(&self.plan)?;
        let begin = Instant::now();
        self.work.run(data, &mut self.crew).map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        Ok(Report { bytes: self.bytes, seconds: begin.elapsed().as_secs_f64(), ..Report::default() })
    }
}
