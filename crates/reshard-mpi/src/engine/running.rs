//! A run in flight: begun, progressed now and then, waited for.
//!
//! There is no progress thread. Whoever computes meanwhile calls [`Running::test`] now and then, and every call moves what
//! can be moved: fragments that have arrived are unpacked, the next ones are packed.
//!
//! A run that fails on one rank cannot succeed on those that wait for it, so the failure is sent to them, whatever it was:
//! an argument that was refused, a timeout, a panic, a run that was forgotten. An engine that failed on a rank cannot be
//! used there any more; others on the same communicator go on.

use crate::communicator::{Communicator, Registration};
use crate::fork::is_forked;
use crate::mover::{Backoff, MoverBackend, Progress, RunCounters};
use reshard::engine::{Buffers, Report};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Polls without progress between two checks for a failure notice of another rank.
const POLLS_PER_NOTICE_CHECK: u32 = 16;

/// Drives the mover of an engine: waits, times out, and spreads failures.
pub struct MoverDriver {
    registration: Registration,
    backend: Box<dyn MoverBackend>,
    /// The timeout of a wait without progress.
    limit: Option<Duration>,
    /// The node has more ranks than processors.
    oversubscribed: bool,
    /// Why nothing can be moved any more.
    broken: Option<Cow<'static, str>>,
    /// A run was begun and has not ended, or failed, and the other ranks do not know yet.
    open: bool,
    /// Runs begun or refused: equal on all ranks that are in the same run.
    runs: u64,
}

impl MoverDriver {
    /// Drives `backend`. Collective the first time for a communicator.
    pub fn new(
        registration: Registration,
        backend: Box<dyn MoverBackend>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let oversubscribed = registration.comm().node(limit)?.is_oversubscribed();
        Ok(Self { registration, backend, limit, oversubscribed, broken: None, open: false, runs: 0 })
    }

    pub fn comm(&self) -> &Arc<Communicator> {
        self.registration.comm()
    }

    pub fn tag(&self) -> u32 {
        self.registration.tag()
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.backend.scratch_bytes()
    }

    /// What this rank did in the last run.
    pub fn counters(&self) -> RunCounters {
        self.backend.counters()
    }

    /// Begins a run.
    pub fn start<'r>(
        &'r mut self,
        plan: &Arc<Plan>,
        mut data: Buffers<'r>,
        call: u64,
    ) -> Result<Running<'r>> {
        let state = match self.begin(plan, &mut data, call) {
            Ok(state) => state,
            Err(error) => {
                data.clear();
                return Err(error);
            }
        };
        let mut running = Running { driver: self, data, state };
        if running.driver.backend.is_one_call() {
            running.driver.finish(&mut running.data, &mut running.state)?;
        }
        Ok(running)
    }

    /// Fails if the engine cannot be used any more: an earlier run failed, here or on another rank.
    pub fn check(&mut self) -> Result<()> {
        // Not after the end of MPI, not in a fork, and not on a thread that may not call MPI: even movers that send nothing
        // check for failure notices of other ranks.
        self.comm().check_open()?;
        if let Err(error) = self.registration.check(self.runs + 1, false) {
            return Err(self.fail_by_notice(error));
        }
        let Some(why) = &self.broken else { return Ok(()) };
        let error = Error::new(
            ErrorKind::External,
            format!("an earlier run failed ({why}), and nothing more can be moved with it; make a new one"),
        );
        // The other ranks do not know yet of a run that was forgotten.
        self.notify_if_open(&error);
        Err(error)
    }

    /// Refuses the next run because of this rank's own arguments. The other ranks, which may be in it, are sent the error.
    pub fn refuse(&mut self, error: Error) -> Error {
        if self.broken.is_none() {
            self.runs += 1;
            self.backend.skip_run();
            self.break_and_notify(&error);
        }
        error
    }

    /// Begins a run, after [`MoverDriver::check`].
    fn begin(&mut self, plan: &Arc<Plan>, data: &mut Buffers<'_>, call: u64) -> Result<RunState> {
        data.check(plan).and_then(|()| self.backend.check(data)).map_err(|error| self.refuse(error))?;
        // Holds until the run has ended.
        self.broken = Some("it was begun, and never waited for".into());
        self.open = true;
        self.runs += 1;
        let mut report = Report::default();
        report.bytes = plan.bytes();
        let state = RunState {
            begin: Instant::now(),
            backoff: if data.is_in_place() {
                Backoff::in_place(self.limit, self.oversubscribed)
            } else {
                Backoff::new(self.limit, self.oversubscribed)
            },
            waits: 0,
            report,
            ended: false,
        };
        self.backend.begin(data, call);
        Ok(state)
    }

    /// Does a part of the run, if there is one to do.
    fn advance(&mut self, data: &mut Buffers<'_>, state: &mut RunState) -> Result<Progress> {
        if is_forked() {
            return self.check().map(|()| Progress::Waits);
        }
        // The run stays in flight: the thread that may call MPI goes on with it.
        self.comm().check_thread()?;
        let outcome = self.backend.advance(data);
        if matches!(outcome, Ok(Progress::Done)) {
            state.backoff.reset();
            state.ended = true;
            self.broken = None;
            self.open = false;
            let (report, counters) = (&mut state.report, self.backend.counters());
            (report.messages, report.steps) = (counters.messages, counters.steps);
            (report.pack_seconds, report.unpack_seconds) =
                (counters.pack.as_secs_f64(), counters.unpack.as_secs_f64());
            report.wait_seconds = state.backoff.waited().as_secs_f64();
            report.seconds = state.begin.elapsed().as_secs_f64();
        }
        outcome.map_err(|error| self.fail(error, state))
    }

    /// After a poll without progress: fails if another rank has sent a failure notice. Checks now and then only, as other
    /// ranks may need the processor.
    fn check_notices(&mut self, state: &mut RunState) -> Result<()> {
        state.waits = state.waits.wrapping_add(1);
        if !state.waits.is_multiple_of(POLLS_PER_NOTICE_CHECK) {
            return Ok(());
        }
        self.registration.check(self.runs, true).map_err(|error| {
            match self.registration.check(self.runs, false) {
                // There is no notice: the check itself failed.
                Ok(()) => self.fail(error, state),
                Err(error) => {
                    state.ended = true;
                    self.fail_by_notice(error)
                }
            }
        })
    }

    /// The run failed on this rank.
    fn fail(&mut self, error: Error, state: &mut RunState) -> Error {
        state.ended = true;
        self.backend.abort();
        self.break_and_notify(&error);
        error
    }

    /// The run failed on another rank, which has sent notices to all.
    fn fail_by_notice(&mut self, error: Error) -> Error {
        if self.open {
            self.backend.abort();
            self.open = false;
        }
        self.broken = Some(error.to_string().into());
        error
    }

    fn break_and_notify(&mut self, error: &Error) {
        self.broken = Some(error.to_string().into());
        self.open = true;
        self.notify_if_open(error);
    }

    fn notify_if_open(&mut self, error: &Error) {
        if std::mem::take(&mut self.open) {
            self.registration.notify(self.runs, &error.to_string());
        }
    }

    /// Does all that can be done without waiting. Returns whether the run is over.
    fn progress(&mut self, data: &mut Buffers<'_>, state: &mut RunState) -> Result<bool> {
        loop {
            match self.advance(data, state)? {
                Progress::Moved => state.backoff.reset(),
                Progress::Done => return Ok(true),
                Progress::Waits => {
                    self.check_notices(state)?;
                    let checked = state.backoff.check_limit(|| self.backend.awaited());
                    return checked.map(|()| false).map_err(|error| self.fail(error, state));
                }
            }
        }
    }

    /// The outcome of a run that has ended; a failed run returns its error again.
    fn outcome(&self) -> Result<()> {
        let failed = |why| Err(Error::new(ErrorKind::External, format!("the run failed: {why}")));
        self.broken.as_ref().map_or(Ok(()), failed)
    }

    /// Does a part of the run, or waits a little for one to do.
    fn turn(&mut self, data: &mut Buffers<'_>, state: &mut RunState) -> Result<()> {
        match self.advance(data, state)? {
            Progress::Moved => state.backoff.reset(),
            Progress::Waits => {
                self.check_notices(state)?;
                let waited = state.backoff.wait(|| self.backend.awaited());
                waited.map_err(|error| self.fail(error, state))?;
            }
            Progress::Done => {}
        }
        Ok(())
    }

    /// Waits until the run is over, or `end` has come, if there is one. Returns whether it is over.
    fn finish_by(
        &mut self,
        end: Option<Instant>,
        data: &mut Buffers<'_>,
        state: &mut RunState,
    ) -> Result<bool> {
        while !state.ended {
            self.turn(data, state)?;
            if !state.ended && end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
        }
        self.outcome().map(|()| true)
    }

    /// Waits until the run is over.
    fn finish(&mut self, data: &mut Buffers<'_>, state: &mut RunState) -> Result<Report> {
        while !state.ended {
            self.turn(data, state)?;
        }
        self.outcome().map(|()| state.report)
    }
}

impl Drop for MoverDriver {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if self.open {
            self.backend.abort();
            let why =
                "the run was begun there, and neither waited for nor ended before its engine was dropped";
            self.notify_if_open(&Error::new(ErrorKind::External, why));
        }
        if !self.backend.shut_down(self.broken.is_some()) {
            self.registration.keep_tags();
        }
    }
}

/// The state of a run in flight.
struct RunState {
    begin: Instant,
    backoff: Backoff,
    /// Polls without progress.
    waits: u32,
    report: Report,
    ended: bool,
}

/// A run in flight, from [`MpiEngine::start`](crate::MpiEngine::start).
///
/// Dropping it waits for its end, because the other ranks rely on it. A run that is dropped by a panic, or by a thread that may not call
/// MPI, or forgotten, has failed: its engine cannot be used any more, and the other ranks get an error, at the latest when the engine is dropped.
///
/// Every call progresses this run alone. Two runs in flight at once may be tested in any order on each rank; ranks that
/// wait for two in different orders deadlock until the timeout: [`Running::wait_all`] waits for several at once.
///
/// ```no_run
/// # fn f(engine: &mut reshard_mpi::MpiEngine, x: &[f64], y: &mut [f64]) -> reshard::Result<()> {
/// use reshard_mpi::Own;
/// let mut running = engine.start(Own::new(x, y))?;
/// while !running.test()? {
///     // compute something else
/// }
/// let report = running.wait()?;
/// # Ok(()) }
/// ```
#[must_use = "a run must be waited for"]
pub struct Running<'r> {
    driver: &'r mut MoverDriver,
    data: Buffers<'r>,
    state: RunState,
}

impl Running<'_> {
    /// Fails if MPI was begun for another thread alone: then `test` and `wait_for` of this one fail likewise, and the run stays in
    /// flight; `wait`, which takes the run, makes it fail.
    pub fn check_thread(&self) -> Result<()> {
        self.driver.comm().check_thread()
    }

    /// Progresses the run without waiting. Returns whether it is over; may be called again after that.
    pub fn test(&mut self) -> Result<bool> {
        if self.state.ended {
            return self.driver.outcome().map(|()| true);
        }
        self.driver.progress(&mut self.data, &mut self.state)
    }

    /// Waits until the run is over on this rank, but at most so long: for callers that have to look after something else now and then, such
    /// as signals. Returns whether it is over; may be called again after that.
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        // A time beyond what the clock counts has no end.
        let end = Instant::now().checked_add(time);
        self.driver.finish_by(end, &mut self.data, &mut self.state)
    }

    /// Ends the run at once, as one that failed: the other ranks get an error that names this rank and says `why`, and the engine cannot
    /// be used any more. Returns the error; that of the run, if it had failed already. A run that is over stays as it was.
    pub fn abandon(mut self, why: &str) -> Result<()> {
        if !self.state.ended {
            let why = Error::new(ErrorKind::External, why);
            return Err(self.driver.fail(why, &mut self.state));
        }
        self.driver.outcome()
    }

    /// Waits until the run is over on this rank. Returns what this rank did.
    pub fn wait(mut self) -> Result<Report> {
        self.driver.finish(&mut self.data, &mut self.state)
    }

    /// Waits until all of the runs are over, in whatever order. Each has an outcome of its own: a run that fails does not
    /// keep the others from ending.
    pub fn wait_all(runs: Vec<Self>) -> Vec<Result<Report>> {
        let mut runs: Vec<(Self, Option<Result<()>>)> = runs.into_iter().map(|run| (run, None)).collect();
        while runs.iter().any(|(_, outcome)| outcome.is_none()) {
            let mut moved = false;
            for (run, outcome) in runs.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
                match run.test() {
                    Ok(false) => continue,
                    Ok(true) => *outcome = Some(Ok(())),
                    Err(error) => *outcome = Some(Err(error)),
                }
                moved = true;
            }
            if !moved {
                std::thread::yield_now();
            }
        }
        let report = |(run, outcome): (Self, Option<Result<()>>)| match outcome {
            Some(Err(error)) => Err(error),
            _ => run.wait(),
        };
        runs.into_iter().map(report).collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if !self.state.ended && std::thread::panicking() {
            let why = Error::new(ErrorKind::External, "it panicked in the middle of the run");
            let _ = self.driver.fail(why, &mut self.state);
        } else if !self.state.ended {
            // The driver keeps an error: the next run is refused with it. A thread that may not call MPI cannot wait for the end, and the
            // memory of the run is gone after this.
            let finished = self.driver.finish(&mut self.data, &mut self.state);
            if let (Err(error), false) = (finished, self.state.ended) {
                let _ = self.driver.fail(error, &mut self.state);
            }
        }
        // Copies of what was moved in place take no memory beyond the run.
        self.data.clear();
    }
}
