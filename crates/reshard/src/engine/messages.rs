//! All ranks in one process, and data travels as messages all the same: packed, sent, unpacked, step by step.
//!
//! The twin of an engine between processes. It follows a schedule, keeps to an amount of memory, and lives with ranks that
//! fail, on one machine where all of that can be tried and watched. Whoever only wants arrays moved takes
//! [`Threads`](super::Threads), which copies each byte once.

pub(crate) mod memory;
mod rank;

use super::{Buffers, Engine, Report};
use crate::program::{self, MessagesOptions, Program};
use crate::schedule::Schedule;
use rank::Log;
use reshard_kernel::exchange::{Exchange, MessageSet, SlotPool};
use reshard_kernel::memory::check_reach_of_all;
use reshard_kernel::pool::{ThreadPool, catch};
use reshard_kernel::sync::{Mutex, lock, unshared};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Instant;

/// The most ranks: each is a thread.
const MOST_RANKS: usize = 4096;

/// The engine that sends messages.
///
/// ```
/// use reshard::engine::{Messages, MessagesOptions};
/// use reshard::{Distribution, Layout, Move, Order, Plan, Redistribution};
/// use std::sync::Arc;
/// let layout = |text: &str| Ok::<_, reshard::Error>(Layout::new(text.parse::<Distribution>()?, Order::RowMajor));
/// let plan = Plan::new(vec![Move::new(layout("2/3 of 10")?, layout("3/2 of 10")?)?.of_bytes(4)?])?;
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
    freight: SlotPool,
    programs: Vec<Program>,
    logs: Vec<Mutex<Log>>,
    crew: ThreadPool,
    least_bytes: u64,
    bytes: u64,
}

impl Messages {
    /// Ready to run the plan: one thread for each rank, the caller's the first.
    pub fn new(plan: Arc<Plan>, options: MessagesOptions) -> Result<Self> {
        check_reach_of_all(&plan)?;
        let ranks = plan.ranks().len();
        if ranks > MOST_RANKS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the plan has {ranks} ranks, and each would be a thread; at most {MOST_RANKS} are started"
                ),
            ));
        }
        let groups = program::groups_of(&plan);
        let schedules = program::schedules_of(&plan, &groups, &options)?;
        let cargo = MessageSet::new(Arc::clone(&plan), &groups);
        let programs = program::of_ranks(&cargo, &schedules, options.barriers);
        let needs = memory::Needs::of(&cargo, &programs);
        let room = needs.room(options.memory)?;
        let logs = programs.iter().map(|program| Mutex::new(Log::new(program))).collect();
        let crew = ThreadPool::new(ranks).map_err(|error| {
            Error::new(
                ErrorKind::Memory,
                format!("{ranks} threads, one for each rank, could not be started: {error}"),
            )
        })?;
        let freight = SlotPool::new(cargo, room.slots, room.chunk);
        let (bytes, least_bytes) = (plan.bytes(), needs.least());
        Ok(Self { plan, options, schedules, freight, programs, logs, crew, least_bytes, bytes })
    }

    /// How it was made.
    pub fn options(&self) -> &MessagesOptions {
        &self.options
    }

    /// The schedules it follows, one after the other: one for each group of arrays that move alike.
    pub fn schedules(&self) -> &[Schedule] {
        &self.schedules
    }

    /// The least [`memory`](MessagesOptions::memory) with which this plan can be run.
    pub fn least_bytes(&self) -> u64 {
        self.least_bytes
    }

    /// In the next run this rank panics at its operation of this number, counted from 0, or at its end if it does fewer.
    #[doc(hidden)]
    pub fn fail_at(&mut self, rank: u64, operation: u64) {
        if let Ok(rank) = self.freight.cargo().ranks().binary_search(&rank) {
            unshared(&mut self.logs[rank]).fail_at = Some(operation);
        }
    }

    /// How many operations this rank did in the last run.
    #[doc(hidden)]
    pub fn operations(&self, rank: u64) -> u64 {
        let rank = self.freight.cargo().ranks().binary_search(&rank);
        rank.map_or(0, |rank| lock(&self.logs[rank]).operations)
    }

    /// What became of the run, from what the ranks wrote down.
    fn outcome(&mut self, failed: Option<usize>, seconds: f64) -> Result<Report> {
        let ranks = self.freight.cargo().ranks();
        if let Some(rank) = failed {
            let log = unshared(&mut self.logs[rank]);
            let reason = log.failure.take().unwrap_or_default();
            return Err(Error::new(
                ErrorKind::Failed,
                format!(
                    "rank {} panicked in step {}: {reason}; the destination is an unfinished mixture, the source is untouched",
                    ranks[rank], log.step
                ),
            ));
        }
        let steps = self.schedules.iter().map(Schedule::num_steps).sum();
        let mut report = Report { bytes: self.bytes, steps, seconds, ..Report::default() };
        for log in &mut self.logs {
            let log = unshared(log);
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
        self.freight.scratch_bytes()
    }

    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report> {
        data.check_all(&self.plan)?;
        let begin = Instant::now();
        let Self { freight, programs, logs, crew, .. } = self;
        logs.iter_mut().for_each(|log| unshared(log).begin());
        let round = Exchange::begin(freight, data)?;
        let share = |rank: usize| {
            let Some(program) = programs.get(rank) else { return };
            let played = catch(rank, &|rank| rank::play(&round, program, rank, &mut lock(&logs[rank])));
            if let Err(panicked) = played {
                // Nobody waits any longer for what this rank will not do.
                lock(&logs[rank]).failure = Some(panicked.message);
                round.fail(rank);
            }
        };
        let ended = crew.run(&share);
        let failed = round.failed();
        // Each rank catches its own panics, so this is none of theirs.
        ended.map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        self.outcome(failed, begin.elapsed().as_secs_f64())
    }
}
