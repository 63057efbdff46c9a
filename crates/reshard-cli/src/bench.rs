//! `reshard bench`, under `mpirun`: the rivals and we, in turns, on the same arrays.
//!
//! In every repetition each way of moving the array is measured once, so whatever else the machine does meets all of them. The
//! time is the makespan: from the first rank's start to the last one's end. Every way is verified once, element by element.

use crate::args;
use crate::failure::Failure;
use crate::run::values::Values;
use crate::run::{Times, failed};
use crate::screen::Screen;
use crate::simulate::time;
use reshard::engine::{MessagesOptions, PlainCopy};
use reshard::schedule::Strategy;
use reshard::{Distribution, Layout, Memory, Move, Order, Plan, use_huge_pages};
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Scalapack, Shared, makespan};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

/// The cases people compare with: name, source, destination, shape.
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

/// Ways without one of our engines.
const OTHERS: [&str; 3] = ["memcpy", "stream", "scalapack"];

/// Ways with an engine. The names of strategies are messages in that order; the synchronous caterpillar is ScaLAPACK's
/// exchange, in which no rank begins a step before the one before is over.
const MOVERS: [(&str, Mover, Strategy); 14] = [
    ("alltoallv", Mover::Alltoallv, Strategy::Optimal),
    ("alltoallw", Mover::Alltoallw, Strategy::Optimal),
    ("reshard-shared", Mover::Shared, Strategy::Optimal),
    ("reshard-private", Mover::Private, Strategy::Optimal),
    ("reshard-messages", Mover::Messages, Strategy::Optimal),
    ("reshard-mixed", Mover::Mixed, Strategy::Optimal),
    ("optimal", Mover::Messages, Strategy::Optimal),
    ("stepwise", Mover::Messages, Strategy::Stepwise),
    ("min-cost", Mover::Messages, Strategy::MinCost),
    ("split", Mover::Messages, Strategy::Split),
    ("async", Mover::Messages, Strategy::Async),
    ("eager", Mover::Messages, Strategy::Eager),
    ("caterpillar", Mover::Lockstep, Strategy::Caterpillar),
    ("pipelined-caterpillar", Mover::Messages, Strategy::Caterpillar),
];

/// So many of them run if nothing is chosen.
const USUAL: usize = 5;

const REPEATS: u64 = 15;

/// The answer, with the keys scripts depend on.
#[derive(Serialize)]
struct Answer {
    case: String,
    shape: String,
    from: String,
    to: String,
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

/// One way to move the array.
enum Way {
    Copy(Box<PlainCopy>, bool),
    Engine(Box<MpiEngine>),
    Scalapack(Scalapack),
}

/// This rank's parts: anybody's own, and those that we allocate.
struct Arrays {
    private: Vec<f64>,
    target: Vec<f64>,
    shared: Shared<f64>,
    our_target: Memory<f64>,
}

impl Arrays {
    /// Where a way puts the array.
    fn target_of(&mut self, way: &Way) -> &mut [f64] {
        if way.is_shared() { &mut self.our_target } else { &mut self.target }
    }
}

impl Way {
    /// With arrays that we allocate.
    fn is_shared(&self) -> bool {
        matches!(self, Self::Engine(engine) if engine.mover() == Mover::Shared)
    }
}

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
    let repeats = args.repeat.unwrap_or(REPEATS);
    let layout = |flag: &'static str, text: &str| -> Result<Layout, Failure> {
        let distribution: Distribution =
            format!("{text} of {shape}").parse().map_err(Failure::of_flag(flag))?;
        Ok(Layout::new(distribution, Order::ColMajor))
    };
    let moving = Move::new(layout("--from", from)?, layout("--to", to)?)?;
    let session = Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?;
    let world = session.world();
    let plan = Arc::new(Plan::new(vec![moving.clone()])?);
    MpiEngine::check(&plan, world).map_err(failed)?;
    let names: Vec<&str> = OTHERS.into_iter().chain(MOVERS.map(|(name, ..)| name)).collect();
    if let Some(unknown) = args.only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(Failure::usage(&format!(
            "--only: there is no way {unknown:?}; choose from {}",
            names.join(", ")
        )));
    }
    let usual = &names[..OTHERS.len() + USUAL];
    let chosen = |name: &str| match args.only.as_slice() {
        [] => usual.contains(&name),
        only => only.iter().any(|only| only == name),
    };
    let wanted = |name: &str| name == "memcpy" || chosen(name);
    let mut ways = ways(world, &plan, &moving, wanted).map_err(failed)?;
    let rank = world.rank() as u64;
    let mut arrays = arrays(world, &moving, rank)?;
    if args.huge {
        use_huge_pages(&mut arrays.private);
        use_huge_pages(&mut arrays.target);
    }
    let mut times: Vec<Vec<f64>> = ways.iter().map(|_| Vec::new()).collect();
    for (name, way) in &mut ways {
        go(world, way, &mut arrays).map_err(failed)?;
        if !matches!(way, Way::Copy(..)) {
            verify(name, &moving, rank, arrays.target_of(way))?;
        }
    }
    for _ in 0..repeats {
        for ((_, way), times) in ways.iter_mut().zip(&mut times) {
            for _ in 0..args.warm {
                go(world, way, &mut arrays).map_err(failed)?;
            }
            times.push(go(world, way, &mut arrays).map_err(failed)?);
        }
    }
    let rows = ways.iter().zip(times).map(|((name, _), times)| {
        let Times { best, median } = Times::of(times);
        Row { name, best, median }
    });
    let answer = Answer {
        case: case.to_string(),
        shape: shape.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        ranks: world.size(),
        mpi: session.mpi().version().to_string(),
        bytes: plan.bytes(),
        repetitions: repeats,
        rows: rows.collect(),
    };
    if rank == 0 { show(&answer, args.json) } else { Ok(()) }
}

/// All ways there are, memcpy first.
fn ways(
    world: &Comm,
    plan: &Arc<Plan>,
    moving: &Move,
    wanted: impl Fn(&str) -> bool,
) -> reshard::Result<Vec<(&'static str, Way)>> {
    let copy = |streams| Ok::<_, reshard::Error>(Way::Copy(Box::new(PlainCopy::new(1)?), streams));
    let mut ways = vec![("memcpy", copy(false)?), ("stream", copy(true)?)];
    if wanted("scalapack")
        && let Some(scalapack) = Scalapack::new(world, moving.from(), moving.to())
    {
        ways.push(("scalapack", Way::Scalapack(scalapack)));
    }
    for &(name, mover, strategy) in MOVERS.iter().filter(|(name, ..)| wanted(name)) {
        let messages = MessagesOptions { strategy, ..MessagesOptions::default() };
        let options = MpiOptions { mover, messages, ..MpiOptions::default() };
        ways.push((name, Way::Engine(Box::new(MpiEngine::new(Arc::clone(plan), world, options)?))));
    }
    ways.retain(|(name, _)| wanted(name));
    Ok(ways)
}

fn arrays(world: &Comm, moving: &Move, rank: u64) -> Result<Arrays, Failure> {
    let len = |layout: &Layout| layout.span(rank).map_or(0, |span| span as usize);
    let mut shared = Shared::zeroed(world, len(moving.from())).map_err(failed)?;
    if let Some(values) = Values::of_source(moving.from(), 8)?.of_rank(rank) {
        values.fill(bytemuck::cast_slice_mut(&mut shared), 1);
    }
    // Long enough for a copy of the source, too.
    let target = vec![0.0; len(moving.to()).max(len(moving.from()))];
    let our_target = Memory::zeroed(len(moving.to())).map_err(failed)?;
    Ok(Arrays { private: shared.to_vec(), target, shared, our_target })
}

/// One run; seconds.
fn go(world: &Comm, way: &mut Way, arrays: &mut Arrays) -> reshard::Result<f64> {
    let Arrays { private, target, shared, our_target } = arrays;
    let comm = world.private()?;
    let limit = MpiOptions::default().deadline;
    let ((), seconds) = makespan(&comm, limit, true, || match way {
        Way::Copy(copy, streams) => {
            // Its share of the array.
            let to = &mut target[..private.len()];
            copy.run(bytemuck::cast_slice(private), bytemuck::cast_slice_mut(to), *streams)
        }
        Way::Engine(engine) if engine.mover() == Mover::Shared => {
            engine.run_shared(shared, our_target).map(|_| ())
        }
        Way::Engine(engine) => engine.run_own(private, target).map(|_| ()),
        Way::Scalapack(scalapack) => scalapack.run(private, target),
    })?;
    Ok(seconds.max(1e-9))
}

fn verify(name: &str, moving: &Move, rank: u64, target: &mut [f64]) -> Result<(), Failure> {
    let Some(values) = Values::after(moving.to(), 8, moving.problem())?.of_rank(rank) else { return Ok(()) };
    let part = &target[..moving.to().span(rank)? as usize];
    match values.check(bytemuck::cast_slice(part), 1)? {
        Some(wrong) => Err(Failure::Failed(format!("{name}: {wrong}"))),
        None => {
            target.fill(0.0);
            Ok(())
        }
    }
}

fn show(answer: &Answer, json: bool) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if json {
        serde_json::to_writer(&mut screen.out, answer)?;
        writeln!(screen.out)?;
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
