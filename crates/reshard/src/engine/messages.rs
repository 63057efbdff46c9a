//! All ranks in one process, but data is sent as messages: packed, sent, unpacked, step by step.
//!
//! The counterpart of an engine between processes. It follows a schedule, keeps a memory limit, and survives ranks that
//! fail, on one machine where all of that can be tested and observed. To just move arrays use
//! [`Threads`](super::Threads), which copies each byte once.

pub(crate) mod memory;
mod rank;

use super::{Buffers, Engine, Report};
use crate::level::kernel_level;
use crate::program::{self, MessagesOptions, Program};
use crate::schedule::Schedule;
use rank::Log;
use reshard_kernel::exchange::{Exchange, MessageSet, SlotPool};
use reshard_kernel::memory::check_reach_of_all;
use reshard_kernel::pool::{ThreadPool, catch};
use reshard_kernel::sync::{Mutex, get_mut, lock};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Instant;

/// Ranks at most: each is a thread.
const MAX_RANKS: usize = 4096;

/// The engine that sends messages.
///
/// ```
/// use reshard::engine::{Messages, MessagesOptions};
/// use reshard::{Move, Plan, Redistribution};
/// use std::sync::Arc;
/// let plan = Plan::new(vec![Move::of::<i32>("2/3 of 10".parse()?, "3/2 of 10".parse()?)?])?;
/// let engine = Messages::new(Arc::new(plan), MessagesOptions::default())?;
/// let mut moved = [vec![-1; 4], vec![-1; 4], vec![-1; 2]];
/// let report = Redistribution::with(engine).run(&[vec![0, 1, 2, 6, 7, 8], vec![3, 4, 5, 9]], &mut moved)?;
/// assert_eq!(moved, [vec![0, 1, 6, 7], vec![2, 3, 8, 9], vec![4, 5]]);
/// assert_eq!((report.messages, report.steps), (2, 1)); // what stays is not sent
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct Messages {
    plan: Arc<Plan>,
    options: MessagesOptions,
    schedules: Vec<Schedule>,
    slots: SlotPool,
    programs: Vec<Program>,
    logs: Vec<Mutex<Log>>,
    pool: ThreadPool,
    min_bytes: u64,
    bytes: u64,
}

impl Messages {
    /// Makes an engine with one thread for each rank; the caller's thread is the first.
    pub fn new(plan: Arc<Plan>, options: MessagesOptions) -> Result<Self> {
        check_reach_of_all(&plan)?;
        let ranks = plan.ranks().len();
        if ranks > MAX_RANKS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the plan has {ranks} ranks, and each would be a thread; at most {MAX_RANKS} are started"
                ),
            ));
        }
        let level = kernel_level(options.level)?;
        let groups = program::groups_of(&plan);
        let schedules = program::schedules_of(&plan, &groups, &options)?;
        let messages = MessageSet::new(Arc::clone(&plan), &groups, level);
        let programs = program::of_ranks(&messages, &schedules, options.barriers);
        let needs = memory::Needs::of(&messages, &programs);
        let size = needs.slot_size(options.memory)?;
        let logs = programs.iter().map(|program| Mutex::new(Log::new(program))).collect();
        let pool = ThreadPool::new(ranks).map_err(|error| {
            Error::new(
                ErrorKind::Memory,
                format!("{ranks} threads, one for each rank, could not be started: {error}"),
            )
        })?;
        let slots = SlotPool::new(messages, size.slots, size.slot_bytes);
        let (bytes, min_bytes) = (plan.bytes(), needs.min_bytes());
        Ok(Self { plan, options, schedules, slots, programs, logs, pool, min_bytes, bytes })
    }

    /// Returns the options of the engine.
    pub fn options(&self) -> &MessagesOptions {
        &self.options
    }

    /// Returns the schedules it follows, one after the other: one for each group of arrays with equal problems.
    pub fn schedules(&self) -> &[Schedule] {
        &self.schedules
    }

    /// Returns the smallest [`memory`](MessagesOptions::memory) with which this plan can be run.
    pub fn min_bytes(&self) -> u64 {
        self.min_bytes
    }

    /// Makes `rank` panic in the next run, at its operation number `operation` (from 0), or at its end if it does fewer.
    #[doc(hidden)]
    pub fn fail_at(&mut self, rank: u64, operation: u64) {
        if let Ok(rank) = self.slots.message_set().ranks().binary_search(&rank) {
            get_mut(&mut self.logs[rank]).fail_at = Some(operation);
        }
    }

    /// Returns the number of operations of `rank` in the last run.
    #[doc(hidden)]
    pub fn operations(&self, rank: u64) -> u64 {
        let rank = self.slots.message_set().ranks().binary_search(&rank);
        rank.map_or(0, |rank| lock(&self.logs[rank]).operations)
    }

    /// Returns the report or the error of a run, from the logs of the ranks.
    fn outcome(&mut self, failed: Option<usize>, seconds: f64) -> Result<Report> {
        let ranks = self.slots.message_set().ranks();
        if let Some(rank) = failed {
            let log = get_mut(&mut self.logs[rank]);
            let reason = log.failure.take().unwrap_or_default();
            return Err(Error::new(
                ErrorKind::Failed,
                format!(
                    "rank {} panicked in step {}: {reason}; the destination is only partly written, the source is untouched",
                    ranks[rank], log.step
                ),
            ));
        }
        let steps = self.schedules.iter().map(Schedule::num_steps).sum();
        let mut report = Report { bytes: self.bytes, steps, seconds, ..Report::default() };
        for log in &mut self.logs {
            let log = get_mut(log);
            report.messages += log.sent;
            report.pack_seconds += log.pack.as_secs_f64();
            report.unpack_seconds += log.unpack.as_secs_f64();
            report.wait_seconds += log.wait.as_secs_f64();
        }
        Ok(report)
    }
}

impl Engine for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> u64 {
        self.slots.scratch_bytes()
    }

    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report> {
        data.check_all(&self.plan)?;
        let begin = Instant::now();
        let Self { slots, programs, logs, pool, .. } = self;
        logs.iter_mut().for_each(|log| get_mut(log).begin());
        let exchange = Exchange::begin(slots, data)?;
        let job = |rank: usize| {
            let Some(program) = programs.get(rank) else { return };
            let outcome = catch(rank, &|rank| rank::run(&exchange, program, rank, &mut lock(&logs[rank])));
            if let Err(panicked) = outcome {
                // Ends all waits for this rank.
                lock(&logs[rank]).failure = Some(panicked.message);
                exchange.fail(rank);
            }
        };
        let ended = pool.run(&job);
        let failed = exchange.failed();
        // The panics of ranks are caught above, so this one is not a rank's.
        ended.map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        self.outcome(failed, begin.elapsed().as_secs_f64())
    }
}
