//! A run under way: begun, looked after now and then, waited for.
//!
//! Nothing moves by itself. Whoever computes meanwhile calls [`Running::test`] now and then, and every call moves what can be
//! moved: letters that have come are unpacked, the next are packed.

use crate::ffi::comm::Comm;
use crate::mover::{Moving, Patience, Progress, Tally};
use reshard::engine::{Data, Report};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an engine moves with, and whether it still can.
pub struct Ways {
    comm: Arc<Comm>,
    moving: Box<dyn Moving>,
    limit: Option<Duration>,
    /// The node has more ranks than processors.
    crowded: bool,
    /// Why nothing can be moved any more.
    broken: Option<Cow<'static, str>>,
}

impl Ways {
    /// Collective the first time for a communicator.
    pub fn new(comm: Arc<Comm>, moving: Box<dyn Moving>, limit: Option<Duration>) -> Result<Self> {
        let crowded = comm.node(limit)?.is_crowded();
        Ok(Self { comm, moving, limit, crowded, broken: None })
    }

    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.moving.scratch_bytes()
    }

    /// What the last run did.
    pub fn tally(&self) -> Tally {
        self.moving.tally()
    }

    /// Begins a run.
    pub fn start<'r>(&'r mut self, plan: &Arc<Plan>, mut data: Data<'r>) -> Result<Running<'r>> {
        let watch = self.begin(plan, &mut data)?;
        Ok(Running { ways: self, data, watch })
    }

    /// A whole run.
    pub fn run(&mut self, plan: &Arc<Plan>, data: &mut Data<'_>) -> Result<Report> {
        let mut watch = self.begin(plan, data)?;
        self.finish(data, &mut watch)
    }

    fn begin(&mut self, plan: &Arc<Plan>, data: &mut Data<'_>) -> Result<Watch> {
        data.check(plan)?;
        if let Some(why) = &self.broken {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "an earlier run failed ({why}), and nothing more can be moved with it; make a new one"
                ),
            ));
        }
        // Until it has ended.
        self.broken = Some("it was begun, and never waited for".into());
        let mut report = Report::default();
        report.bytes = plan.bytes();
        let watch = Watch {
            begin: Instant::now(),
            patience: Patience::new(self.limit, self.crowded),
            report,
            ended: false,
        };
        self.moving.begin(data, 0);
        Ok(watch)
    }

    /// One piece, if there is one.
    fn advance(&mut self, data: &mut Data<'_>, watch: &mut Watch) -> Result<Progress> {
        let outcome = self.moving.advance(data);
        if matches!(outcome, Ok(Progress::Done)) {
            watch.patience.begin_again();
            watch.ended = true;
            self.broken = None;
            let (report, tally) = (&mut watch.report, self.moving.tally());
            (report.messages, report.steps) = (tally.messages, tally.steps);
            (report.pack_seconds, report.unpack_seconds) =
                (tally.pack.as_secs_f64(), tally.unpack.as_secs_f64());
            report.wait_seconds = watch.patience.waited().as_secs_f64();
            report.seconds = watch.begin.elapsed().as_secs_f64();
        }
        outcome.map_err(|error| self.fail(error, watch))
    }

    fn fail(&mut self, error: Error, watch: &mut Watch) -> Error {
        watch.ended = true;
        self.moving.give_up();
        self.broken = Some(error.to_string().into());
        self.comm.poison(&error.to_string());
        error
    }

    /// As much as can be done without waiting. Whether the run is over.
    fn go_on(&mut self, data: &mut Data<'_>, watch: &mut Watch) -> Result<bool> {
        loop {
            match self.advance(data, watch)? {
                Progress::Moved => watch.patience.begin_again(),
                Progress::Done => return Ok(true),
                Progress::Waits => {
                    let noted = watch.patience.note(|| self.moving.late());
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

    fn finish(&mut self, data: &mut Data<'_>, watch: &mut Watch) -> Result<Report> {
        while !watch.ended {
            match self.advance(data, watch)? {
                Progress::Moved => watch.patience.begin_again(),
                Progress::Waits => {
                    let waited = watch.patience.wait(|| self.moving.late());
                    waited.map_err(|error| self.fail(error, watch))?;
                }
                Progress::Done => {}
            }
        }
        self.outcome().map(|()| watch.report)
    }
}

/// What is known of a run.
struct Watch {
    begin: Instant,
    patience: Patience,
    report: Report,
    ended: bool,
}

/// A run under way, of [`MpiEngine::start`](crate::MpiEngine::start).
///
/// One that is dropped is waited for, because the other ranks count on it.
#[must_use = "a run must be waited for"]
pub struct Running<'r> {
    ways: &'r mut Ways,
    data: Data<'r>,
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
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.watch.ended && !std::thread::panicking() {
            // An error is kept: the next run is refused for it.
            let _ = self.ways.finish(&mut self.data, &mut self.watch);
        }
    }
}
