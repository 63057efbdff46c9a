//! `reshard run`: makes an array, moves it, verifies every element, and compares the time with a plain copy.
//!
//! The first run is verified and warms everything up. In each repetition the run, a `memcpy` and a streaming copy of as
//! many bytes take turns on the same memory, so other load on the machine affects all three. Copying overwrites the
//! destination, so at the end it is filled again, and one more run is verified.

mod bytes;
pub mod progress;
pub mod request;
mod under_mpi;
pub mod values;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::level;
use crate::problem::Echo;
use crate::screen::{Screen, counted};
use crate::words::type_name;
use progress::Progress;
use request::{EngineChoice, RunRequest, human};
use reshard::engine::{PlainCopy, Report};
use reshard::memory::Memory;
use reshard::notation::print_shape;
use reshard::{Error, ErrorKind, Redistribution};
use reshard_draw::time;
use reshard_mpi::Session;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use values::Values;

/// The time of all repetitions without `--repeat`, about, in seconds.
const SECONDS: f64 = 1.0;
/// The least and the most repetitions without `--repeat`.
const REPEATS: (u64, u64) = (3, 1_000);

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    input: Echo,
    /// The type of the elements, as it was given.
    #[serde(rename = "type")]
    kind: String,
    engine: &'static str,
    /// The name of the instruction set level; under MPI that of rank 0.
    level: &'static str,
    ranks: usize,
    bytes: u64,
    plan_seconds: f64,
    run_seconds: Times,
    copy_seconds: Times,
    ratio: f64,
    scratch_bytes: u64,
    verified: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    sent: Option<Sent>,
    /// With MPI: the version of the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi: Option<String>,
    /// With MPI: the name of the mover.
    #[serde(skip_serializing_if = "Option::is_none")]
    mover: Option<&'static str>,
    /// The reason why this mover was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The keys that engines with messages add.
#[derive(Serialize)]
struct Sent {
    strategy: &'static str,
    steps: u64,
    messages: u64,
}

#[derive(Clone, Copy, Serialize)]
pub struct Times {
    pub best: f64,
    pub median: f64,
}

impl Times {
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.len() / 2;
        let median = match seconds.len() % 2 {
            0 => (seconds[middle - 1] + seconds[middle]) / 2.0,
            _ => seconds[middle],
        };
        Self { best: seconds[0], median }
    }
}

pub fn run(args: &args::Run) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let request = RunRequest::read(args, cores)?;
    request.check_size()?;
    if let EngineChoice::UnderMpi(under_mpi) = request.engine_choice {
        return under_mpi::run(args, &request, under_mpi);
    }
    let begin = Instant::now();
    let (engine, threads) = request.engine()?;
    let plan_seconds = begin.elapsed().as_secs_f64();
    let (name, scratch_bytes) = (engine.name(), engine.scratch_bytes());
    let redistribution = Redistribution::with_boxed(engine);
    // No more threads than cores, unless the engine has more.
    let copiers = match request.engine_choice {
        EngineChoice::Threads(requested) => requested.min(cores).max(threads.unwrap_or(1)),
        EngineChoice::Messages(_) | EngineChoice::UnderMpi(_) => cores,
    };
    let bytes = redistribution.plan().bytes();
    let measured =
        LocalBench::new(&request, redistribution, copiers, cores)?.measure(&request, !args.json)?;
    let Measured { run_seconds, copy_seconds, report } = measured;
    let sent = match request.engine_choice {
        EngineChoice::Threads(_) | EngineChoice::UnderMpi(_) => None,
        EngineChoice::Messages(strategy) => {
            Some(Sent { strategy: strategy.name(), steps: report.steps, messages: report.messages })
        }
    };
    let answer = Answer {
        input: request.move_request.echo(),
        kind: type_name(&args.elements.kind).to_string(),
        engine: name,
        level: level::name(request.level),
        ranks: ranks(&request),
        bytes,
        plan_seconds,
        run_seconds,
        copy_seconds,
        ratio: run_seconds.median / copy_seconds.median,
        scratch_bytes,
        verified: true,
        sent,
        mpi: None,
        mover: None,
        why: None,
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &answer)?;
    } else {
        show(&mut screen, &request, &answer, threads)?;
    }
    Ok(screen.out.flush()?)
}

/// Number of different ranks of both grids.
fn ranks(request: &RunRequest) -> usize {
    let problem = &request.move_request.problem;
    let mut ranks = problem.from().grid().sorted_ranks();
    ranks.extend(problem.to().grid().sorted_ranks());
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len()
}

/// The array, and the engines that move it.
struct LocalBench {
    redistribution: Redistribution,
    copy: PlainCopy,
    source: Memory<u8>,
    target: Memory<u8>,
    from_spans: Vec<usize>,
    to_spans: Vec<usize>,
    bytes: usize,
    /// Threads that fill and verify.
    cores: usize,
}

struct Measured {
    run_seconds: Times,
    copy_seconds: Times,
    report: Report,
}

impl LocalBench {
    fn new(
        request: &RunRequest,
        redistribution: Redistribution,
        copiers: usize,
        cores: usize,
    ) -> Result<Self, Failure> {
        let elem_bytes = request.moving.elem_bytes() as usize;
        let from_spans = Values::of_source(request.moving.from(), elem_bytes)?.spans();
        let to_spans = Values::before(request.moving.to(), elem_bytes)?.spans();
        let zeroed = |spans: &[usize]| array(spans.iter().sum());
        let (source, target) = (zeroed(&from_spans)?, zeroed(&to_spans)?);
        let copy = PlainCopy::new(copiers).map_err(failed)?;
        // The moved bytes are a part of the destination.
        let bytes = redistribution.plan().bytes() as usize;
        Ok(Self { redistribution, copy, source, target, from_spans, to_spans, bytes, cores })
    }

    fn measure(&mut self, request: &RunRequest, shows_progress: bool) -> Result<Measured, Failure> {
        let mut progress = Progress::new(shows_progress, (self.source.len() + self.target.len()) as u64);
        progress.at(0.0, "filling");
        let elem_bytes = request.moving.elem_bytes() as usize;
        Values::of_source(request.moving.from(), elem_bytes)?.fill(&mut self.source, self.cores);
        let (warm, _) = self.verified(request, &mut progress, 0.1)?;
        // The copies take about as long as the run, or less.
        let fitting = (SECONDS / (3.0 * warm)) as u64;
        let repeats = request.repeat.unwrap_or(fitting.clamp(REPEATS.0, REPEATS.1));
        let mut times: [Vec<f64>; 3] = Default::default();
        for repeat in 0..repeats {
            let done = 0.3 + 0.5 * repeat as f64 / repeats as f64;
            progress.at(done, &format!("moving {}/{repeats}", repeat + 1));
            times[0].push(self.run()?.0);
            for (kind, streams) in [(1, false), (2, true)] {
                let begin = Instant::now();
                // A replicated destination may be larger than the source, which is read several times then.
                let (most, to) = (self.source.len().max(1), &mut self.target[..self.bytes]);
                for to in to.chunks_mut(most) {
                    self.copy.run(&self.source[..to.len()], to, streams).map_err(failed)?;
                }
                times[kind].push(seconds_since(begin));
            }
        }
        let (_, report) = self.verified(request, &mut progress, 0.8)?;
        let [run_seconds, memcpy, streaming] = times.map(Times::of);
        let copy_seconds = if streaming.median < memcpy.median { streaming } else { memcpy };
        Ok(Measured { run_seconds, copy_seconds, report })
    }

    /// Runs once; all parts are in memory by ascending rank.
    fn run(&mut self) -> Result<(f64, Report), Failure> {
        let (mut rest, mut from) = (&self.source[..], Vec::with_capacity(self.from_spans.len()));
        for &span in &self.from_spans {
            let (part, after) = rest.split_at(span);
            from.push(part);
            rest = after;
        }
        let (mut rest, mut to) = (&mut self.target[..], Vec::with_capacity(self.to_spans.len()));
        for &span in &self.to_spans {
            let (part, after) = rest.split_at_mut(span);
            to.push(part);
            rest = after;
        }
        let begin = Instant::now();
        let report = self.redistribution.run_bytes(&from, &mut to).map_err(failed)?;
        Ok((seconds_since(begin), report))
    }

    /// Fills the destination again, runs once, and verifies all of the destination.
    fn verified(
        &mut self,
        request: &RunRequest,
        progress: &mut Progress,
        done: f64,
    ) -> Result<(f64, Report), Failure> {
        let elem_bytes = request.moving.elem_bytes() as usize;
        progress.at(done, "filling");
        Values::before(request.moving.to(), elem_bytes)?.fill(&mut self.target, self.cores);
        let run = self.run()?;
        progress.at(done + 0.1, "verifying");
        let after = Values::after(request.moving.to(), elem_bytes, request.moving.problem())?;
        match after.check(&self.target, self.cores)? {
            Some(wrong) => Err(Failure::failed(wrong.to_string())),
            None => Ok(run),
        }
    }
}

/// Seconds since `begin`, at least a nanosecond: some clocks are coarse.
fn seconds_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64().max(1e-9)
}

/// Reports an error of this rank alone, and ends the job: the other ranks may be waiting for this one.
pub fn end_job(session: &Session, failure: Failure) -> ! {
    failure.report();
    session.abort(1)
}

/// Allocates memory for (a part of) the array.
pub fn array(bytes: usize) -> Result<Memory<u8>, Failure> {
    Memory::zeroed(bytes).map_err(|_| {
        Failure::failed(format!(
            "{bytes} bytes for the array do not fit in memory; take a smaller problem or allow more memory"
        ))
    })
}

/// Turns an error of the library into a failure: errors about memory, MPI and the run itself are not wrong usage.
pub fn failed(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Failed | ErrorKind::Memory | ErrorKind::External | ErrorKind::Partner => {
            Failure::while_running(&error)
        }
        _ => error.into(),
    }
}

fn show(
    screen: &mut Screen,
    request: &RunRequest,
    answer: &Answer,
    threads: Option<usize>,
) -> Result<(), Failure> {
    let move_request = &request.move_request;
    let details = match (&answer.sent, threads) {
        _ if answer.mpi.is_some() => {
            format!("{}, mover {}", answer.mpi.as_deref().unwrap_or(""), answer.mover.unwrap_or(""))
        }
        (Some(sent), _) => format!(
            "strategy {}, {} in {}",
            sent.strategy,
            counted(sent.messages, "message"),
            counted(sent.steps, "step")
        ),
        (None, threads) => counted(threads.unwrap_or(1) as u64, "thread"),
    };
    let out = &mut screen.out;
    writeln!(
        out,
        "Redistributed {} {} ({}) from {} to {} on {}, engine {} ({details})",
        print_shape(move_request.problem.shape()),
        request.kind,
        human(u128::from(answer.bytes)),
        move_request.from,
        move_request.to,
        counted(answer.ranks as u64, "rank"),
        answer.engine
    )?;
    let scratch = human(u128::from(answer.scratch_bytes));
    writeln!(out, "planned in {}, scratch {scratch}", time(answer.plan_seconds))?;
    writeln!(
        out,
        "moved in {} (best {}), {:.1} GB/s; a plain copy takes {}: ratio {:.2}",
        time(answer.run_seconds.median),
        time(answer.run_seconds.best),
        answer.bytes as f64 / answer.run_seconds.median / 1e9,
        time(answer.copy_seconds.median),
        answer.ratio
    )?;
    let (moved, to) = (move_request.problem.elems(), move_request.problem.to());
    let all = u128::from(to.elems()) * u128::from(to.copies());
    let rest =
        if u128::from(moved) < all { ", and all others of the destination are as they were" } else { "" };
    writeln!(out, "all {moved} elements verified{rest}")?;
    Ok(())
}
