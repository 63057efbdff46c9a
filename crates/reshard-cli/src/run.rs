//! `reshard run`: makes an array, moves it, looks at every element, and says how long it took beside a plain copy.
//!
//! The first run is verified and warms everything up. In each repetition the run, a `memcpy` and a streaming copy of as
//! many bytes take turns on the same memory, so whatever else the machine does meets all three. Copying spoils the
//! destination, so at the end it is filled afresh, and one more run is verified.

mod bytes;
mod progress;
pub mod request;
mod under_mpi;
pub mod values;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::problem::Echo;
use crate::screen::{Screen, counted};
use crate::simulate::time;
use progress::Progress;
use request::{EngineChoice, RunRequest, human};
use reshard::engine::{PlainCopy, Report};
use reshard::memory::Memory;
use reshard::notation::print_shape;
use reshard::{Error, ErrorKind, Redistribution};
use reshard_mpi::Session;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use values::Values;

/// Without `--repeat`: for about so long, but at least and at most so often.
const SECONDS: f64 = 1.0;
const REPEATS: (u64, u64) = (3, 1_000);

/// The answer, with the keys scripts depend on.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    input: Echo,
    /// The type of the elements, as it was typed.
    #[serde(rename = "type")]
    kind: String,
    engine: &'static str,
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
    /// Between processes: which MPI, and how bytes travelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mover: Option<&'static str>,
    /// Why this mover.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What messages add.
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
    let asked = RunRequest::read(args, cores)?;
    asked.check_size()?;
    if let EngineChoice::UnderMpi(how) = asked.how {
        return under_mpi::run(args, &asked, how);
    }
    let begin = Instant::now();
    let (engine, threads) = asked.engine()?;
    let plan_seconds = begin.elapsed().as_secs_f64();
    let (name, scratch_bytes) = (engine.name(), engine.scratch_bytes());
    let redistribution = Redistribution::with_boxed(engine);
    // No more than there are cores, unless the engine has more.
    let copiers = match asked.how {
        EngineChoice::Threads(wanted) => wanted.min(cores).max(threads.unwrap_or(1)),
        EngineChoice::Messages(_) | EngineChoice::UnderMpi(_) => cores,
    };
    let bytes = redistribution.plan().bytes();
    let measured = LocalBench::new(&asked, redistribution, copiers, cores)?.measure(&asked, !args.json)?;
    let Measured { run_seconds, copy_seconds, report } = measured;
    let sent = match asked.how {
        EngineChoice::Threads(_) | EngineChoice::UnderMpi(_) => None,
        EngineChoice::Messages(strategy) => {
            Some(Sent { strategy: strategy.name(), steps: report.steps, messages: report.messages })
        }
    };
    let answer = Answer {
        input: asked.described.echo(),
        kind: args.kind.clone(),
        engine: name,
        ranks: ranks(&asked),
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
        show(&mut screen, &asked, &answer, threads)?;
    }
    Ok(screen.out.flush()?)
}

/// Different ranks of both grids.
fn ranks(asked: &RunRequest) -> usize {
    let problem = &asked.described.problem;
    let mut ranks = problem.from().grid().sorted_ranks();
    ranks.extend(problem.to().grid().sorted_ranks());
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len()
}

/// The array, and those who move it.
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
        asked: &RunRequest,
        redistribution: Redistribution,
        copiers: usize,
        cores: usize,
    ) -> Result<Self, Failure> {
        let elem_bytes = asked.moving.elem_bytes() as usize;
        let from_spans = Values::of_source(asked.moving.from(), elem_bytes)?.spans();
        let to_spans = Values::before(asked.moving.to(), elem_bytes)?.spans();
        let zeroed = |spans: &[usize]| array(spans.iter().sum());
        let (source, target) = (zeroed(&from_spans)?, zeroed(&to_spans)?);
        let copy = PlainCopy::new(copiers).map_err(failed)?;
        // What moves is part of both.
        let bytes = redistribution.plan().bytes() as usize;
        Ok(Self { redistribution, copy, source, target, from_spans, to_spans, bytes, cores })
    }

    fn measure(&mut self, asked: &RunRequest, watched: bool) -> Result<Measured, Failure> {
        let mut progress = Progress::new(watched, (self.source.len() + self.target.len()) as u64);
        progress.at(0.0, "filling");
        let elem_bytes = asked.moving.elem_bytes() as usize;
        Values::of_source(asked.moving.from(), elem_bytes)?.fill(&mut self.source, self.cores);
        let (warm, _) = self.verified(asked, &mut progress, 0.1)?;
        // The copies take about as long as the run, or less.
        let fitting = (SECONDS / (3.0 * warm)) as u64;
        let repeats = asked.repeat.unwrap_or(fitting.clamp(REPEATS.0, REPEATS.1));
        let mut times: [Vec<f64>; 3] = Default::default();
        for repeat in 0..repeats {
            let done = 0.3 + 0.5 * repeat as f64 / repeats as f64;
            progress.at(done, &format!("moving {}/{repeats}", repeat + 1));
            times[0].push(self.run()?.0);
            for (kind, streams) in [(1, false), (2, true)] {
                let begin = Instant::now();
                let (from, to) = (&self.source[..self.bytes], &mut self.target[..self.bytes]);
                self.copy.run(from, to, streams).map_err(failed)?;
                times[kind].push(seconds_since(begin));
            }
        }
        let (_, report) = self.verified(asked, &mut progress, 0.8)?;
        let [run_seconds, memcpy, streaming] = times.map(Times::of);
        let copy_seconds = if streaming.median < memcpy.median { streaming } else { memcpy };
        Ok(Measured { run_seconds, copy_seconds, report })
    }

    /// One run, all parts by ascending rank.
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

    /// One run into a destination filled afresh, and a look at all of it.
    fn verified(
        &mut self,
        asked: &RunRequest,
        progress: &mut Progress,
        done: f64,
    ) -> Result<(f64, Report), Failure> {
        let elem_bytes = asked.moving.elem_bytes() as usize;
        progress.at(done, "filling");
        Values::before(asked.moving.to(), elem_bytes)?.fill(&mut self.target, self.cores);
        let run = self.run()?;
        progress.at(done + 0.1, "verifying");
        let after = Values::after(asked.moving.to(), elem_bytes, asked.moving.problem())?;
        match after.check(&self.target, self.cores)? {
            Some(wrong) => Err(Failure::failed(wrong.to_string())),
            None => Ok(run),
        }
    }
}

/// At least a nanosecond: some clocks are coarse.
fn seconds_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64().max(1e-9)
}

/// What one rank alone finds wrong, it says, and ends the job: the others may be waiting for it.
pub fn end_job(session: &Session, failure: Failure) -> ! {
    failure.report();
    session.abort(1)
}

/// Memory for (a part of) the array.
pub fn array(bytes: usize) -> Result<Memory<u8>, Failure> {
    Memory::zeroed(bytes).map_err(|_| {
        Failure::failed(format!(
            "{bytes} bytes for the array do not fit in memory; take a smaller problem or allow more memory"
        ))
    })
}

/// An error of the library: those about memory, MPI and what went wrong on the way are no mistake of whoever typed.
pub fn failed(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Failed | ErrorKind::Memory | ErrorKind::External => Failure::while_running(&error),
        _ => error.into(),
    }
}

fn show(
    screen: &mut Screen,
    asked: &RunRequest,
    answer: &Answer,
    threads: Option<usize>,
) -> Result<(), Failure> {
    let described = &asked.described;
    let how = match (&answer.sent, threads) {
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
        "Redistributed {} {} ({}) from {} to {} on {}, engine {} ({how})",
        print_shape(described.problem.shape()),
        asked.kind,
        human(u128::from(answer.bytes)),
        described.from,
        described.to,
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
    let (moved, all) = (described.problem.elems(), described.problem.to().elems());
    let rest = if moved < all { ", and all others of the destination are as they were" } else { "" };
    writeln!(out, "all {moved} elements verified{rest}")?;
    Ok(())
}
