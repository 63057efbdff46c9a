//! All ranks in one process: each byte is read once from its source and written once to its destination.
//!
//! No packing, no messages, hardly any scratch memory. The plan is cut into tasks of up to two megabytes of destination,
//! and a thread pool takes one after the other.

use super::{Buffers, Engine, Report};
use crate::level::{Level, kernel_level};
use reshard_kernel::memory::check_reach_of_all;
use reshard_kernel::pool::ThreadPool;
use reshard_kernel::tasks::{TaskList, Tuning};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a task in the ways of [`Threads::ways`]: less than a section of short pieces, and many.
const TASK_BYTES_OF_WAYS: [u64; 2] = [256, 1 << 14];

/// Options of [`Threads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadsOptions {
    /// The number of threads, including the caller's; `None` for one on each core.
    pub threads: Option<usize>,
    /// The instruction set level; `None` for the best of this processor.
    pub level: Option<Level>,
}

impl ThreadsOptions {
    /// Sets the number of threads, including the caller's; `None` for one on each core.
    #[must_use]
    pub fn with_threads(self, threads: impl Into<Option<usize>>) -> Self {
        Self { threads: threads.into(), ..self }
    }

    /// Sets the instruction set level; `None` for the best of this processor.
    #[must_use]
    pub fn with_level(self, level: impl Into<Option<Level>>) -> Self {
        Self { level: level.into(), ..self }
    }
}

/// The engine for all ranks in one process, with a thread pool.
pub struct Threads {
    plan: Arc<Plan>,
    tasks: TaskList,
    pool: ThreadPool,
    bytes: u64,
}

impl Threads {
    /// Makes an engine with `threads` threads, including the caller's; `None` for one on each core.
    pub fn new(plan: Arc<Plan>, threads: Option<usize>) -> Result<Self> {
        Self::with_options(plan, ThreadsOptions::default().with_threads(threads))
    }

    /// Makes an engine with options.
    pub fn with_options(plan: Arc<Plan>, options: ThreadsOptions) -> Result<Self> {
        let level = kernel_level(options.level)?;
        let tuning = Tuning { level, task_bytes: None, non_temporal: None, take_turns: true };
        Self::tuned(plan, options.threads, tuning)
    }

    /// Returns the number of ways to run a plan on this processor: every instruction set level, with non-temporal stores and
    /// without, in small tasks and in larger ones.
    #[doc(hidden)]
    pub fn ways() -> usize {
        2 * Level::available().len() * TASK_BYTES_OF_WAYS.len()
    }

    /// Makes an engine that runs in way number `way` of [`Threads::ways`]. All ways must give the same result; the first,
    /// portable, is the oracle of the others.
    #[doc(hidden)]
    pub fn in_way(plan: &Arc<Plan>, threads: usize, way: usize) -> Result<Self> {
        let levels = Level::available();
        let level = kernel_level(Some(levels[way / 2 % levels.len()]))?;
        let task_bytes = TASK_BYTES_OF_WAYS[way / 2 / levels.len() % TASK_BYTES_OF_WAYS.len()];
        let tuning = Tuning {
            level,
            task_bytes: Some(task_bytes),
            non_temporal: Some(way % 2 == 1),
            take_turns: true,
        };
        Self::tuned(Arc::clone(plan), Some(threads), tuning)
    }

    /// Makes one engine for each way of [`Threads::ways`].
    #[doc(hidden)]
    pub fn every_way(plan: &Arc<Plan>, threads: usize) -> Result<Vec<Self>> {
        (0..Self::ways()).map(|way| Self::in_way(plan, threads, way)).collect()
    }

    fn tuned(plan: Arc<Plan>, threads: Option<usize>, tuning: Tuning) -> Result<Self> {
        let threads = match threads {
            Some(0) => {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    "0 threads were given; the engine needs at least 1, the calling thread",
                ));
            }
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        check_reach_of_all(&plan)?;
        let tasks = TaskList::new(Arc::clone(&plan), threads, tuning);
        let pool = ThreadPool::new(tasks.workers()).map_err(|error| {
            Error::new(
                ErrorKind::Memory,
                format!("{} threads could not be started: {error}", tasks.workers()),
            )
        })?;
        let bytes = plan.bytes();
        Ok(Self { plan, tasks, pool, bytes })
    }

    /// Returns the number of threads that work, including the caller's: never more than there are tasks.
    pub fn threads(&self) -> usize {
        self.tasks.workers()
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
        self.tasks.scratch_bytes()
    }

    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report> {
        data.check_all(&self.plan)?;
        let begin = Instant::now();
        self.tasks.run(data, &mut self.pool).map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        Ok(Report { bytes: self.bytes, seconds: begin.elapsed().as_secs_f64(), ..Report::default() })
    }
}
