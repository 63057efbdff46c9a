//! A run under way: begun, looked after now and then, waited for.
//!
//! Nothing moves by itself. Whoever computes meanwhile calls [`Running::test`] now and then, and every call moves what can be
//! moved: letters that have come are unpacked, the next are packed.
//!
//! A run that fails on one rank cannot end well on those that wait for it, so they are told: whatever kept it from going on,
//! an argument that was refused, a deadline, a panic, a run that was forgotten. An engine that failed on a rank is of no more
//! use there; others on the same communicator go on.

use crate::ffi::library::is_forked;
use crate::mover::{Backoff, MoverBackend, Progress, RunCounters};
use crate::private_comm::{PrivateComm, Registration};
use reshard::engine::{Buffers, Report};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every so often that a rank finds nothing to do, it looks whether another has told that it cannot go on.
const LISTENS: u32 = 16;

/// What an engine moves with, and whether it still can.
pub struct MoverDriver {
    registration: Registration,
    moving: Box<dyn MoverBackend>,
    limit: Option<Duration>,
    /// The node has more ranks than processors.
    oversubscribed: bool,
    /// Why nothing can be moved any more.
    broken: Option<Cow<'static, str>>,
    /// A run was begun, and has not ended: the others do not know.
    open: bool,
    /// Runs begun, or refused: the same number on all ranks that are in the same.
    runs: u64,
}

impl MoverDriver {
    /// Collective the first time for a communicator.
    pub fn new(
        registration: Registration,
        moving: Box<dyn MoverBackend>,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let oversubscribed = registration.comm().node(limit)?.is_oversubscribed();
        Ok(Self { registration, moving, limit, oversubscribed, broken: None, open: false, runs: 0 })
    }

    pub fn comm(&self) -> &Arc<PrivateComm> {
        self.registration.comm()
    }

    pub fn tag(&self) -> u32 {
        self.registration.tag()
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.moving.scratch_bytes()
    }

    /// What the last run did.
    pub fn counters(&self) -> RunCounters {
        self.moving.counters()
    }

    /// Begins a run.
    pub fn start<'r>(
        &'r mut self,
        plan: &Arc<Plan>,
        mut data: Buffers<'r>,
        call: u64,
    ) -> Result<Running<'r>> {
        let mut watch = self.begin(plan, &mut data, call)?;
        if self.moving.is_one_call() {
            self.finish(&mut data, &mut watch)?;
        }
        Ok(Running { ways: self, data, watch })
    }

    /// A whole run.
    pub fn run(&mut self, plan: &Arc<Plan>, data: &mut Buffers<'_>, call: u64) -> Result<Report> {
        let mut watch = self.begin(plan, data, call)?;
        self.finish(data, &mut watch)
    }

    /// Refuses if nothing can be moved any more: an earlier run failed, here or on another rank.
    pub fn check(&mut self) -> Result<()> {
        // Not after the end of MPI, not in a fork, and not on a thread that may not call it: even movers that need no MPI listen
        // to what other ranks tell.
        self.comm().mpi().check_open()?;
        if let Err(error) = self.registration.check(self.runs + 1, false) {
            return Err(self.fail_told(error));
        }
        let Some(why) = &self.broken else { return Ok(()) };
        let error = Error::new(
            ErrorKind::Mpi,
            format!("an earlier run failed ({why}), and nothing more can be moved with it; make a new one"),
        );
        // Of a run that was forgotten nobody knows yet.
        self.tell_if_open(&error);
        Err(error)
    }

    /// This rank's own arguments do not allow the next run. The others, who may be in it, are told why.
    pub fn refuse(&mut self, error: Error) -> Error {
        if self.broken.is_none() {
            self.runs += 1;
            self.moving.skip_run();
            self.break_and_tell(&error);
        }
        error
    }

    /// After [`MoverDriver::check`].
    fn begin(&mut self, plan: &Arc<Plan>, data: &mut Buffers<'_>, call: u64) -> Result<Watch> {
        data.check(plan).and_then(|()| self.moving.check(data)).map_err(|error| self.refuse(error))?;
        // Until it has ended.
        self.broken = Some("it was begun, and never waited for".into());
        self.open = true;
        self.runs += 1;
        let mut report = Report::default();
        report.bytes = plan.bytes();
        let watch = Watch {
            begin: Instant::now(),
            backoff: Backoff::new(self.limit, self.oversubscribed),
            waits: 0,
            report,
            ended: false,
        };
        self.moving.begin(data, call);
        Ok(watch)
    }

    /// One piece, if there is one.
    fn advance(&mut self, data: &mut Buffers<'_>, watch: &mut Watch) -> Result<Progress> {
        if is_forked() {
            return self.check().map(|()| Progress::Waits);
        }
        let outcome = self.moving.advance(data);
        if matches!(outcome, Ok(Progress::Done)) {
            watch.backoff.reset();
            watch.ended = true;
            self.broken = None;
            self.open = false;
            let (report, tally) = (&mut watch.report, self.moving.counters());
            (report.messages, report.steps) = (tally.messages, tally.steps);
            (report.pack_seconds, report.unpack_seconds) =
                (tally.pack.as_secs_f64(), tally.unpack.as_secs_f64());
            report.wait_seconds = watch.backoff.waited().as_secs_f64();
            report.seconds = watch.begin.elapsed().as_secs_f64();
        }
        outcome.map_err(|error| self.fail(error, watch))
    }

    /// Nothing could be done: fails if another rank has told that it cannot go on. Asked now and then only, for others may
    /// need the processor.
    fn listen(&mut self, watch: &mut Watch) -> Result<()> {
        watch.waits = watch.waits.wrapping_add(1);
        if !watch.waits.is_multiple_of(LISTENS) {
            return Ok(());
        }
        self.registration.check(self.runs, true).map_err(|error| {
            match self.registration.check(self.runs, false) {
                // Listening itself failed.
                Ok(()) => self.fail(error, watch),
                Err(error) => {
                    watch.ended = true;
                    self.fail_told(error)
                }
            }
        })
    }

    /// The run failed here.
    fn fail(&mut self, error: Error, watch: &mut Watch) -> Error {
        watch.ended = true;
        self.moving.abort();
        self.break_and_tell(&error);
        error
    }

    /// It failed on another rank, which has told all.
    fn fail_told(&mut self, error: Error) -> Error {
        if self.open {
            self.moving.abort();
            self.open = false;
        }
        self.broken = Some(error.to_string().into());
        error
    }

    fn break_and_tell(&mut self, error: &Error) {
        self.broken = Some(error.to_string().into());
        self.open = true;
        self.tell_if_open(error);
    }

    fn tell_if_open(&mut self, error: &Error) {
        if std::mem::take(&mut self.open) {
            self.registration.tell(self.runs, &error.to_string());
        }
    }

    /// As much as can be done without waiting. Whether the run is over.
    fn go_on(&mut self, data: &mut Buffers<'_>, watch: &mut Watch) -> Result<bool> {
        loop {
            match self.advance(data, watch)? {
                Progress::Moved => watch.backoff.reset(),
                Progress::Done => return Ok(true),
                Progress::Waits => {
                    self.listen(watch)?;
                    let noted = watch.backoff.check_limit(|| self.moving.awaited());
                    return noted.map(|()| false).map_err(|error| self.fail(error, watch));
                }
            }
        }
    }

    /// Of a run that has ended. One that failed says so again.
    fn outcome(&self) -> Result<()> {
        let failed = |why| Err(Error::new(ErrorKind::Mpi, format!("the run failed: {why}")));
        self.broken.as_ref().map_or(Ok(()), failed)
    }

    fn finish(&mut self, data: &mut Buffers<'_>, watch: &mut Watch) -> Result<Report> {
        while !watch.ended {
            match self.advance(data, watch)? {
                Progress::Moved => watch.backoff.reset(),
                Progress::Waits => {
                    self.listen(watch)?;
                    let waited = watch.backoff.wait(|| self.moving.awaited());
                    waited.map_err(|error| self.fail(error, watch))?;
                }
                Progress::Done => {}
            }
        }
        self.outcome().map(|()| watch.report)
    }
}

impl Drop for MoverDriver {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if self.open {
            self.moving.abort();
            let why =
                "the run was begun there, and neither waited for nor ended before its engine was dropped";
            self.tell_if_open(&Error::new(ErrorKind::Mpi, why));
        }
        if !self.moving.shut_down(self.broken.is_some()) {
            self.registration.keep_tags();
        }
    }
}

/// What is known of a run.
struct Watch {
    begin: Instant,
    backoff: Backoff,
    /// How often nothing could be done.
    waits: u32,
    report: Report,
    ended: bool,
}

/// A run under way, of [`MpiEngine::start`](crate::MpiEngine::start).
///
/// One that is dropped is waited for, because the other ranks count on it. One that is dropped by a panic, or forgotten, has
/// failed: its engine is of no more use, and the other ranks are told, at the latest when the engine is dropped.
///
/// Every call moves this run alone. Two runs under way at once may be tested in any order on each rank; ranks that wait for
/// two in different orders wait for each other until the deadline: [`Running::wait_all`] waits for several at once.
#[must_use = "a run must be waited for"]
pub struct Running<'r> {
    ways: &'r mut MoverDriver,
    data: Buffers<'r>,
    watch: Watch,
}

impl Running<'_> {
    /// Moves on what can be moved now, without waiting. Whether the run is over; may be asked again.
    pub fn test(&mut self) -> Result<bool> {
        if self.watch.ended {
            return self.ways.outcome().map(|()| true);
        }
        self.ways.go_on(&mut self.data, &mut self.watch)
    }

    /// Waits until the run is over, for this rank, and says what it did.
    pub fn wait(mut self) -> Result<Report> {
        self.ways.finish(&mut self.data, &mut self.watch)
    }

    /// Waits until all of some runs are over, in whatever order that is. Each says for itself what became of it: a run that
    /// failed does not keep the others from ending.
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
        if self.watch.ended || is_forked() {
            return;
        }
        if std::thread::panicking() {
            let why = Error::new(ErrorKind::Mpi, "it panicked in the middle of the run");
            let _ = self.ways.fail(why, &mut self.watch);
            return;
        }
        // An error is kept: the next run is refused for it.
        let _ = self.ways.finish(&mut self.data, &mut self.watch);
    }
}
