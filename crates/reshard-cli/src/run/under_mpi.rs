//! `reshard run` under `mpirun`: every rank is a process, makes its own part, and verifies its own part afterwards.
//!
//! Rank 0 reports. Times are makespans, from the first start to the last end. Errors that all ranks have together are reported
//! once; an error of one rank alone is reported by that rank, which ends the job.

use super::request::{RunRequest, UnderMpi};
use super::values::Values;
use super::{Answer, REPEATS, SECONDS, Sent, Times, array, end_job, failed, ranks, show};
use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::level;
use crate::screen::Screen;
use crate::words::type_name;
use reshard::engine::{MessagesOptions, PlainCopy, Report};
use reshard::memory::Memory;
use reshard::{Layout, Plan};
use reshard_mpi::baselines::makespan;
use reshard_mpi::mpi::Reduce;
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Own, Session, Shared};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

pub fn run(args: &args::Run, request: &RunRequest, under_mpi: UnderMpi) -> Result<(), Failure> {
    let session = Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?;
    let report_once =
        |error: Failure| if session.world().rank() == 0 { error.reported() } else { error.silent() };
    let begin = Instant::now();
    let plan = Arc::new(Plan::new(vec![request.moving.clone()])?);
    let messages = MessagesOptions::default().with_strategy(under_mpi.strategy).with_memory(request.memory);
    let options =
        MpiOptions::default().with_mover(under_mpi.mover).with_messages(messages).with_level(request.level);
    // Has the same outcome on all ranks.
    let engine = MpiEngine::new(plan, session.world(), options).map_err(|error| report_once(error.into()))?;
    let plan_seconds = begin.elapsed().as_secs_f64();
    let outcome = RankBench::new(&session, request, engine, options).and_then(|mut bench| {
        let measured = bench.measure(request)?;
        Ok((bench.engine, measured))
    });
    let (engine, RankMeasured { run_seconds, copy_seconds, steps, messages, scratch_bytes }) = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => end_job(&session, failure),
    };
    if session.world().rank() > 0 {
        return Ok(());
    }
    let sent = engine.mover().follows_schedule().then(|| Sent {
        strategy: under_mpi.strategy.name(),
        steps,
        messages,
    });
    let answer = Answer {
        input: request.move_request.echo(),
        kind: type_name(&args.elements.kind).to_string(),
        engine: engine.name(),
        level: level::name(request.level),
        ranks: ranks(request),
        bytes: engine.plan().bytes(),
        plan_seconds,
        run_seconds,
        copy_seconds,
        ratio: run_seconds.median / copy_seconds.median,
        scratch_bytes,
        verified: true,
        sent,
        mpi: Some(session.mpi().version().to_string()),
        mover: Some(engine.mover().name()),
        why: Some(engine.why().to_string()),
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &answer)?;
    } else {
        show(&mut screen, request, &answer, None)?;
    }
    Ok(screen.out.flush()?)
}

/// This rank's part of the array.
struct RankBench<'a> {
    world: &'a Comm,
    engine: MpiEngine,
    options: MpiOptions,
    copy: PlainCopy,
    source: RankPart,
    target: RankPart,
    target_bytes: usize,
    one_node: bool,
}

/// The memory of a part.
enum RankPart {
    Private(Memory<u8>),
    Shared(Shared<u8>),
}

impl RankPart {
    /// Allocates a part of zeros. Collective if it is shared.
    fn zeroed(world: &Comm, shared: bool, bytes: usize) -> Result<Self, Failure> {
        Ok(match shared {
            true => Self::Shared(Shared::zeroed(world, bytes).map_err(failed)?),
            false => Self::Private(array(bytes)?),
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Private(part) => part,
            Self::Shared(part) => part,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Private(part) => part,
            Self::Shared(part) => part,
        }
    }
}

struct RankMeasured {
    run_seconds: Times,
    copy_seconds: Times,
    steps: u64,
    messages: u64,
    scratch_bytes: u64,
}

impl<'a> RankBench<'a> {
    fn new(
        session: &'a Session,
        request: &RunRequest,
        engine: MpiEngine,
        options: MpiOptions,
    ) -> Result<Self, Failure> {
        let world = session.world();
        let elem = request.moving.elem_bytes();
        let bytes =
            |layout: &Layout| layout.span(world.rank() as u64).map_or(0, |span| (span * elem) as usize);
        let (from, target_bytes) = (bytes(request.moving.from()), bytes(request.moving.to()));
        let (shares_source, shares_target) = match engine.mover() {
            Mover::Shared => (true, true),
            Mover::SharedSource => (true, false),
            _ => (false, false),
        };
        let source = RankPart::zeroed(world, shares_source, from)?;
        // Long enough for a copy of the source, too.
        let target = RankPart::zeroed(world, shares_target, target_bytes.max(from))?;
        let one_node = world
            .private()
            .and_then(|comm| comm.communicator().is_one_node(options.deadline))
            .map_err(failed)?;
        let copy = PlainCopy::new(1).map_err(failed)?;
        Ok(Self { world, engine, options, copy, source, target, target_bytes, one_node })
    }

    fn measure(&mut self, request: &RunRequest) -> Result<RankMeasured, Failure> {
        let (elem, rank) = (request.moving.elem_bytes() as usize, self.world.rank() as u64);
        if let Some(values) = Values::of_source(request.moving.from(), elem)?.of_rank(rank) {
            values.fill(self.source.bytes_mut(), 1);
        }
        let (warm, _) = self.verified(request)?;
        // All ranks have the same makespan, so they compute the same number.
        let fitting = (SECONDS / (3.0 * warm)) as u64;
        let repeats = request.repeat.unwrap_or(fitting.clamp(REPEATS.0, REPEATS.1));
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..repeats {
            times[0].push(self.run()?.0);
            for (kind, streams) in [(1, false), (2, true)] {
                times[kind].push(self.copy(streams)?);
            }
        }
        let (_, report) = self.verified(request)?;
        // Sums over all ranks.
        let mut sums = [report.messages, self.engine.scratch_bytes()];
        self.world.all_reduce(&mut sums, Reduce::Sum).map_err(failed)?;
        let [messages, scratch_bytes] = sums;
        let [run_seconds, memcpy, streaming] = times.map(Times::of);
        let copy_seconds = if streaming.median < memcpy.median { streaming } else { memcpy };
        Ok(RankMeasured { run_seconds, copy_seconds, steps: report.steps, messages, scratch_bytes })
    }

    fn run(&mut self) -> Result<(f64, Report), Failure> {
        let Self { world, engine, options, source, target, target_bytes, one_node, .. } = self;
        let moved = makespan(&*world.private().map_err(failed)?, options.deadline, *one_node, || {
            match (source, target) {
                (RankPart::Private(from), to) => {
                    engine.run(Own::new(from, &mut to.bytes_mut()[..*target_bytes]).as_bytes())
                }
                (RankPart::Shared(from), RankPart::Private(to)) => {
                    engine.run(Own::shared_source(from, &mut to[..*target_bytes]).as_bytes())
                }
                (RankPart::Shared(from), RankPart::Shared(to)) => {
                    engine.run(Own::shared(from, to).as_bytes())
                }
            }
        });
        let (report, seconds) = moved.map_err(failed)?;
        Ok((seconds.max(1e-9), report))
    }

    /// Measures a plain copy of the source, on all ranks at once.
    fn copy(&mut self, streams: bool) -> Result<f64, Failure> {
        let from = self.source.bytes();
        let (copy, to) = (&mut self.copy, &mut self.target.bytes_mut()[..from.len()]);
        let comm = self.world.private().map_err(failed)?;
        let copied = makespan(&comm, self.options.deadline, self.one_node, || copy.run(from, to, streams));
        Ok(copied.map_err(failed)?.1.max(1e-9))
    }

    /// Fills the destination again, runs once, and verifies all of this rank's part.
    fn verified(&mut self, request: &RunRequest) -> Result<(f64, Report), Failure> {
        let (elem, rank) = (request.moving.elem_bytes() as usize, self.world.rank() as u64);
        if let Some(values) = Values::before(request.moving.to(), elem)?.of_rank(rank) {
            values.fill(&mut self.target.bytes_mut()[..self.target_bytes], 1);
        }
        let run = self.run()?;
        if let Some(values) =
            Values::after(request.moving.to(), elem, request.moving.problem())?.of_rank(rank)
            && let Some(wrong) = values.check(&self.target.bytes()[..self.target_bytes], 1)?
        {
            return Err(Failure::failed(wrong.to_string()));
        }
        Ok(run)
    }
}
