//! `reshard bench`, under `mpirun`: measures reshard and other libraries in turn.
//!
//! In every repetition each method is measured once, so other load on the machine affects all of them. Each method has its own
//! arrays: on common arrays it would find data in the caches that the others have just read and written, and not all methods
//! can use common arrays. The time is the makespan: from the first rank's start to the last rank's end. Every method is
//! verified once, element by element.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::level;
use crate::run::values::Values;
use crate::run::{Times, end_job, failed};
use crate::screen::Screen;
use crate::simulate::time;
use reshard::engine::{Level, MessagesOptions, PlainCopy};
use reshard::memory::{Memory, use_huge_pages};
use reshard::rank::check_reach;
use reshard::schedule::Strategy;
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_mpi::baselines::{Scalapack, makespan};
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Own, Shared};
use reshard_plan::Distribution;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

/// The well-known cases: name, source, destination, shape.
const CASES: [(&str, &str, &str, &str); 8] = [
    ("i", "2x2/64x64", "1x4/32x32", "4096x4096"),
    ("ii", "1x2/256x256", "2x1/128x128", "4096x4096"),
    ("iii", "4x4/64x64", "2x8/50x30", "4096x4096"),
    ("iv", "4x4/64x64", "3x3/100x100", "4096x4096"),
    ("v", "2x2/8x8", "4x1/5x7", "4096x4096"),
    ("vi", "2x2/1x1", "1x4/2x2", "4096x4096"),
    ("vii", "2x2/64x64", "2x2/1024x1024", "4096x4096"),
    ("viii", "2x2/64x64", "1x4/32x32", "256x256"),
];

/// Plain copies of each rank's part, without and with non-temporal (streaming) stores.
const COPIES: [(&str, bool); 2] = [("memcpy", false), ("stream", true)];

const SCALAPACK: &str = "scalapack";

/// Methods with an engine. Methods named after a strategy send messages in its order; the synchronous caterpillar is
/// ScaLAPACK's exchange, in which no rank begins a step before the last is over.
const MOVERS: [(&str, Mover, Strategy); 15] = [
    ("alltoallv", Mover::Alltoallv, Strategy::Optimal),
    ("alltoallw", Mover::Alltoallw, Strategy::Optimal),
    ("reshard-shared", Mover::Shared, Strategy::Optimal),
    ("reshard-private", Mover::Private, Strategy::Optimal),
    ("reshard-messages", Mover::Messages, Strategy::Optimal),
    ("reshard-mixed", Mover::Mixed, Strategy::Optimal),
    ("reshard-shared-source", Mover::SharedSource, Strategy::Optimal),
    ("optimal", Mover::Messages, Strategy::Optimal),
    ("stepwise", Mover::Messages, Strategy::Stepwise),
    ("min-cost", Mover::Messages, Strategy::MinCost),
    ("split", Mover::Messages, Strategy::Split),
    ("async", Mover::Messages, Strategy::Async),
    ("eager", Mover::Messages, Strategy::Eager),
    ("caterpillar", Mover::Lockstep, Strategy::Caterpillar),
    ("pipelined-caterpillar", Mover::Messages, Strategy::Caterpillar),
];

/// The number of movers that run by default, from the first on.
const DEFAULT_MOVERS: usize = 5;

const REPEATS: u64 = 15;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Comparison {
    case: String,
    shape: String,
    from: String,
    to: String,
    /// The name of the instruction set level, that of rank 0.
    level: &'static str,
    ranks: usize,
    mpi: String,
    bytes: u64,
    repetitions: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    best: f64,
    median: f64,
}

/// A method to move the array, and its times so far.
struct Contender {
    name: &'static str,
    method: Method,
    seconds: Vec<f64>,
}

/// The implementation of a method, with this rank's parts.
enum Method {
    /// Arrays in private memory. The destination has room for a copy of the source, too.
    Private { run: Box<RunFn>, from: Vec<f64>, to: Vec<f64> },
    /// Arrays in shared memory.
    Shared { engine: Box<MpiEngine>, from: Shared<f64>, to: Shared<f64> },
    /// A source in shared memory, and a destination in private memory.
    SharedSource { engine: Box<MpiEngine>, from: Shared<f64>, to: Memory<f64> },
}

type RunFn = dyn FnMut(&[f64], &mut [f64]) -> reshard::Result<()>;

pub fn run(args: &args::Bench) -> Result<(), Failure> {
    let named = args.case.as_deref().map(|name| {
        CASES.iter().find(|case| case.0 == name).ok_or_else(|| {
            let names: Vec<&str> = CASES.iter().map(|case| case.0).collect();
            Failure::usage(&format!("--case: there is no case {name:?}; choose one of {}", names.join(", ")))
        })
    });
    let (case, from, to, shape) = match (named.transpose()?, &args.from, &args.to, &args.shape) {
        (Some(case), None, None, shape) => (case.0, case.1, case.2, shape.as_deref().unwrap_or(case.3)),
        (None, Some(from), Some(to), Some(shape)) => ("", from.as_str(), to.as_str(), shape.as_str()),
        _ => {
            return Err(Failure::usage("give --case, such as --case i, or all of --shape, --from and --to"));
        }
    };
    let layout = |flag: &'static str, text: &str| -> Result<Layout, Failure> {
        let distribution: Distribution =
            format!("{text} of {shape}").parse().map_err(Failure::of_flag(flag))?;
        Ok(Layout::new(distribution, MemoryOrder::ColMajor))
    };
    let moving = Move::of::<f64>(layout("--from", from)?, layout("--to", to)?)?;
    let level = level::from_environment()?;
    let session = Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?;
    let world = session.world();
    let plan = Arc::new(Plan::new(vec![moving.clone()])?);
    MpiEngine::check(&plan, world.size()).and_then(|()| check_reach(&plan)).map_err(failed)?;
    let copies = COPIES.map(|(name, _)| name);
    let names: Vec<&str> =
        copies.into_iter().chain([SCALAPACK]).chain(MOVERS.map(|(name, ..)| name)).collect();
    if let Some(unknown) = args.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(Failure::usage(&format!(
            "--only: there is no method {unknown:?}; choose from {}",
            names.join(", ")
        )));
    }
    let defaults = &names[..copies.len() + 1 + DEFAULT_MOVERS];
    let chosen = |name: &str| match args.only.as_slice() {
        [] => defaults.contains(&name),
        only => only.iter().any(|only| only == name),
    };
    let is_chosen = |name: &str| name == "memcpy" || chosen(name);
    let measured = measure(world, &plan, &moving, level, is_chosen, args);
    let contenders = match measured {
        Ok(contenders) => contenders,
        // All ranks fail together, and one has reported the reason.
        Err(Failure::Silent(code)) => return Err(Failure::Silent(code)),
        Err(failure) => end_job(&session, failure),
    };
    let rows = contenders.into_iter().map(|Contender { name, seconds, .. }| {
        let Times { best, median } = Times::of(seconds);
        Row { name, best, median }
    });
    let answer = Comparison {
        case: case.to_string(),
        shape: shape.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        level: level::name(level),
        ranks: world.size(),
        mpi: session.mpi().version().to_string(),
        bytes: plan.bytes(),
        repetitions: args.repeat.unwrap_or(REPEATS),
        rows: rows.collect(),
    };
    if world.rank() == 0 { show(&answer, args.json) } else { Ok(()) }
}

/// Verifies all chosen methods, and measures them in turn.
fn measure(
    world: &Comm,
    plan: &Arc<Plan>,
    moving: &Move,
    level: Option<Level>,
    is_chosen: impl Fn(&str) -> bool,
    args: &args::Bench,
) -> Result<Vec<Contender>, Failure> {
    let mut contenders = contenders(world, plan, moving, level, is_chosen)?;
    for contender in &mut contenders {
        if let (Method::Private { from, to, .. }, true) = (&mut contender.method, args.huge) {
            use_huge_pages(from);
            use_huge_pages(to);
        }
        contender.go(world).map_err(failed)?;
        contender.verify(moving, world.rank() as u64)?;
    }
    for _ in 0..args.repeat.unwrap_or(REPEATS) {
        for contender in &mut contenders {
            for _ in 0..args.warm {
                contender.go(world).map_err(failed)?;
            }
            let seconds = contender.go(world).map_err(failed)?;
            contender.seconds.push(seconds);
        }
    }
    Ok(contenders)
}

/// All chosen methods, memcpy first.
fn contenders(
    world: &Comm,
    plan: &Arc<Plan>,
    moving: &Move,
    level: Option<Level>,
    is_chosen: impl Fn(&str) -> bool,
) -> Result<Vec<Contender>, Failure> {
    let rank = world.rank() as u64;
    let len = |layout: &Layout| layout.span(rank).map_or(0, |span| span as usize);
    let (from_len, to_len) = (len(moving.from()), len(moving.to()));
    let source = Values::of_source(moving.from(), 8)?.of_rank(rank);
    let fill = |from: &mut [f64]| {
        if let Some(values) = &source {
            values.fill(bytemuck::cast_slice_mut(from), 1);
        }
    };
    let mut contenders = Vec::new();
    let mut enter = |name, method| contenders.push(Contender { name, method, seconds: Vec::new() });
    let private = |run: Box<RunFn>| {
        let mut from = vec![0.0; from_len];
        fill(&mut from);
        Method::Private { run, from, to: vec![0.0; to_len.max(from_len)] }
    };
    for (name, streams) in COPIES.into_iter().filter(|(name, _)| is_chosen(name)) {
        let mut copy = PlainCopy::new(1)?;
        let run = move |from: &[f64], to: &mut [f64]| {
            // This rank's part of the array.
            let to = &mut to[..from.len()];
            copy.run(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to), streams)
        };
        enter(name, private(Box::new(run)));
    }
    if is_chosen(SCALAPACK)
        && let Some(scalapack) = Scalapack::new(world, moving.from(), moving.to())
    {
        enter(SCALAPACK, private(Box::new(move |from, to| scalapack.run(from, to))));
    }
    for &(name, mover, strategy) in MOVERS.iter().filter(|(name, ..)| is_chosen(name)) {
        let messages = MessagesOptions::default().with_strategy(strategy);
        let options = MpiOptions::default().with_mover(mover).with_messages(messages).with_level(level);
        // Has the same outcome on all ranks.
        let report_once = |error| if rank == 0 { failed(error).reported() } else { failed(error).silent() };
        let mut engine = Box::new(MpiEngine::new(Arc::clone(plan), world, options).map_err(report_once)?);
        let shared = || {
            let mut from = Shared::zeroed(world, from_len)?;
            fill(&mut from);
            Ok(from)
        };
        let method = match mover {
            Mover::Shared => {
                let (from, to) = (shared().map_err(failed)?, Shared::zeroed(world, to_len).map_err(failed)?);
                Method::Shared { engine, from, to }
            }
            Mover::SharedSource => {
                let (from, to) = (shared().map_err(failed)?, Memory::zeroed(to_len).map_err(failed)?);
                Method::SharedSource { engine, from, to }
            }
            _ => private(Box::new(move |from, to| engine.run(Own::new(from, to)).map(|_| ()))),
        };
        enter(name, method);
    }
    Ok(contenders)
}

impl Contender {
    /// Runs once, and returns the seconds.
    fn go(&mut self, world: &Comm) -> reshard::Result<f64> {
        let comm = world.private()?;
        let limit = MpiOptions::default().deadline;
        let ((), seconds) = makespan(&comm, limit, true, || match &mut self.method {
            Method::Private { run, from, to } => run(from, to),
            Method::Shared { engine, from, to } => engine.run(Own::shared(from, to)).map(|_| ()),
            Method::SharedSource { engine, from, to } => engine.run(Own::shared_source(from, to)).map(|_| ()),
        })?;
        Ok(seconds.max(1e-9))
    }

    /// Checks every element of the destination; plain copies are not checked.
    fn verify(&self, moving: &Move, rank: u64) -> Result<(), Failure> {
        let to = match &self.method {
            Method::Private { to, .. } => &to[..],
            Method::Shared { to, .. } => &to[..],
            Method::SharedSource { to, .. } => &to[..],
        };
        let copies = COPIES.iter().any(|(name, _)| *name == self.name);
        let values = Values::after(moving.to(), 8, moving.problem())?;
        let (Some(values), false) = (values.of_rank(rank), copies) else { return Ok(()) };
        match values.check(bytemuck::cast_slice(&to[..moving.to().span(rank)? as usize]), 1)? {
            Some(wrong) => Err(Failure::failed(format!("{}: {wrong}", self.name))),
            None => Ok(()),
        }
    }
}

fn show(answer: &Comparison, json: bool) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if json {
        json::write(&mut screen, answer)?;
        return Ok(screen.out.flush()?);
    }
    let out = &mut screen.out;
    let name = if answer.case.is_empty() { String::new() } else { format!("Case {}: ", answer.case) };
    writeln!(
        out,
        "{name}{} doubles from {} to {}, {} ranks, {}, {} repetitions",
        answer.shape, answer.from, answer.to, answer.ranks, answer.mpi, answer.repetitions
    )?;
    let memcpy = answer.rows[0].median;
    writeln!(out, "{:<18}{:>12}{:>12}{:>10}", "", "best", "median", "memcpy")?;
    for row in &answer.rows {
        let (best, median) = (time(row.best), time(row.median));
        writeln!(out, "{:<18}{best:>12}{median:>12}{:>10.2}", row.name, row.median / memcpy)?;
    }
    Ok(screen.out.flush()?)
}
