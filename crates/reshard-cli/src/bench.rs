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
use crate::run::request::read_move;
use crate::run::values::Values;
use crate::run::{Times, end_job, failed};
use crate::screen::Screen;
use crate::words::type_name;
use reshard::engine::{Level, MessagesOptions, PlainCopy};
use reshard::memory::{Memory, use_huge_pages};
use reshard::rank::check_reach;
use reshard::schedule::Strategy;
use reshard::{Error, ErrorKind, Layout, MemoryOrder, Move, Plan};
use reshard_draw::time;
use reshard_mpi::baselines::{Scalapack, makespan};
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Own, Shared};
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

/// The mover `private` with a plan and an engine made for each run: what it takes to move an array once.
const ONCE: &str = "reshard-private-once";

/// Methods with an engine. Methods named after a strategy send messages in its order; the synchronous caterpillar is
/// ScaLAPACK's exchange, in which no rank begins a step before the last is over.
const MOVERS: [(&str, Mover, Strategy); 17] = [
    ("alltoallv", Mover::Alltoallv, Strategy::Optimal),
    ("alltoallw", Mover::Alltoallw, Strategy::Optimal),
    ("reshard-shared", Mover::Shared, Strategy::Optimal),
    ("reshard-private", Mover::Private, Strategy::Optimal),
    ("reshard-messages", Mover::Messages, Strategy::Optimal),
    ("reshard-mixed", Mover::Mixed, Strategy::Optimal),
    ("reshard-shared-source", Mover::SharedSource, Strategy::Optimal),
    ("reshard-cma", Mover::Cma, Strategy::Optimal),
    (ONCE, Mover::Private, Strategy::Optimal),
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

/// Untimed runs at first: the mover `private` tries its ways in them.
const FIRST_RUNS: u32 = 11;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Comparison {
    case: String,
    shape: String,
    from: String,
    to: String,
    /// The type of the elements, as it was given.
    #[serde(rename = "type")]
    kind: String,
    order: &'static str,
    to_order: &'static str,
    /// The source axis that each destination axis takes.
    permute: Vec<usize>,
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
    Private { run: Box<RunFn>, from: Vec<u8>, to: Vec<u8> },
    /// Arrays in shared memory.
    Shared { engine: Box<MpiEngine>, from: Shared<u8>, to: Shared<u8> },
    /// A source in shared memory, and a destination in private memory.
    SharedSource { engine: Box<MpiEngine>, from: Shared<u8>, to: Memory<u8> },
}

type RunFn = dyn FnMut(&[u8], &mut [u8]) -> reshard::Result<()>;

pub fn run(args: &args::Bench) -> Result<(), Failure> {
    let named = args.case.as_deref().map(|name| {
        // By name, or by number from 1 on.
        let by_number = name.parse::<usize>().ok().and_then(|number| CASES.get(number.checked_sub(1)?));
        CASES.iter().find(|case| case.0 == name).or(by_number).ok_or_else(|| {
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
    let moved = args::Move {
        layouts: vec![from.to_string(), to.to_string()],
        from: None,
        to: None,
        shape: Some(shape.to_string()),
        to_shape: None,
        window: None,
        from_at: None,
        to_at: None,
        transpose: false,
        permute: args.permute.clone(),
    };
    let (_, moving, kind_in_words) = read_move(&moved, &args.elements)?;
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
        kind: type_name(&args.elements.kind).to_string(),
        order: order_name(moving.from()),
        to_order: order_name(moving.to()),
        permute: moving.problem().axes().to_vec(),
        level: level::name(level),
        ranks: world.size(),
        mpi: session.mpi().version().to_string(),
        bytes: plan.bytes(),
        repetitions: args.repeat.unwrap_or(REPEATS),
        rows: rows.collect(),
    };
    if world.rank() == 0 { show(&answer, &kind_in_words, args.json) } else { Ok(()) }
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
    let mut contenders = contenders(world, plan, moving, level, is_chosen, args.elements.kind == "f64")?;
    for contender in &mut contenders {
        if let (Method::Private { from, to, .. }, true) = (&mut contender.method, args.huge) {
            use_huge_pages(from);
            use_huge_pages(to);
        }
        let tries = contender.name == "reshard-private";
        for _ in 0..if tries { FIRST_RUNS } else { 1 } {
            contender.go(world).map_err(failed)?;
        }
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
    is_f64: bool,
) -> Result<Vec<Contender>, Failure> {
    let rank = world.rank() as u64;
    let elem = moving.elem_bytes() as usize;
    let bytes = |layout: &Layout| layout.span(rank).map_or(0, |span| span as usize * elem);
    let (from_bytes, to_bytes) = (bytes(moving.from()), bytes(moving.to()));
    let source = Values::of_source(moving.from(), elem)?.of_rank(rank);
    let fill = |from: &mut [u8]| {
        if let Some(values) = &source {
            values.fill(from, 1);
        }
    };
    let mut contenders = Vec::new();
    let mut enter = |name, method| contenders.push(Contender { name, method, seconds: Vec::new() });
    let private = |run: Box<RunFn>| {
        let mut from = vec![0; from_bytes];
        fill(&mut from);
        Method::Private { run, from, to: vec![0; to_bytes.max(from_bytes)] }
    };
    for (name, streams) in COPIES.into_iter().filter(|(name, _)| is_chosen(name)) {
        let mut copy = PlainCopy::new(1)?;
        // This rank's part of the array.
        let run = move |from: &[u8], to: &mut [u8]| copy.run(from, &mut to[..from.len()], streams);
        enter(name, private(Box::new(run)));
    }
    // It is called for doubles only, and cannot transpose; more is refused by `Scalapack::new`.
    if is_chosen(SCALAPACK)
        && is_f64
        && moving.problem().axes().is_sorted()
        && let Some(scalapack) = Scalapack::new(world, moving.from(), moving.to())
    {
        let run = move |from: &[u8], to: &mut [u8]| {
            // An empty part has no address, aligned or not.
            let from = if from.is_empty() { Ok(&[][..]) } else { bytemuck::try_cast_slice(from) };
            let to = if to.is_empty() { Ok(&mut [][..]) } else { bytemuck::try_cast_slice_mut(to) };
            let (Ok(from), Ok(to)) = (from, to) else {
                let message = "the arrays of a method begin at no multiple of 8 bytes; leave out scalapack";
                return Err(Error::new(ErrorKind::Failed, message));
            };
            scalapack.run(from, to)
        };
        enter(SCALAPACK, private(Box::new(run)));
    }
    for &(name, mover, strategy) in MOVERS.iter().filter(|(name, ..)| is_chosen(name)) {
        let messages = MessagesOptions::default().with_strategy(strategy);
        let options = MpiOptions::default().with_mover(mover).with_messages(messages).with_level(level);
        if name == ONCE {
            let (comm, moving) = (world.private().map_err(failed)?, moving.clone());
            let run = move |from: &[u8], to: &mut [u8]| {
                let moves = Ok(vec![moving.clone()]);
                let mut engine = MpiEngine::of_moves(moves, comm.communicator(), options)?;
                engine.run(Own::new(from, &mut to[..to_bytes]).as_bytes()).map(|_| ())
            };
            enter(name, private(Box::new(run)));
            continue;
        }
        // Has the same outcome on all ranks.
        let report_once = |error| if rank == 0 { failed(error).reported() } else { failed(error).silent() };
        let mut engine = Box::new(MpiEngine::new(Arc::clone(plan), world, options).map_err(report_once)?);
        let shared = || {
            let mut from = Shared::zeroed(world, from_bytes)?;
            fill(&mut from);
            Ok(from)
        };
        let method = match mover {
            Mover::Shared => {
                let (from, to) =
                    (shared().map_err(failed)?, Shared::zeroed(world, to_bytes).map_err(failed)?);
                Method::Shared { engine, from, to }
            }
            Mover::SharedSource => {
                let (from, to) = (shared().map_err(failed)?, Memory::zeroed(to_bytes).map_err(failed)?);
                Method::SharedSource { engine, from, to }
            }
            _ => private(Box::new(move |from, to| {
                engine.run(Own::new(from, &mut to[..to_bytes]).as_bytes()).map(|_| ())
            })),
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
            Method::Shared { engine, from, to } => engine.run(Own::shared(from, to).as_bytes()).map(|_| ()),
            Method::SharedSource { engine, from, to } => {
                engine.run(Own::shared_source(from, to).as_bytes()).map(|_| ())
            }
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
        let elem = moving.elem_bytes() as usize;
        let values = Values::after(moving.to(), elem, moving.problem())?;
        let (Some(values), false) = (values.of_rank(rank), copies) else { return Ok(()) };
        match values.check(&to[..moving.to().span(rank)? as usize * elem], 1)? {
            Some(wrong) => Err(Failure::failed(format!("{}: {wrong}", self.name))),
            None => Ok(()),
        }
    }
}

/// The memory order of a layout, as `--order` takes it.
fn order_name(layout: &Layout) -> &'static str {
    match layout.order() {
        MemoryOrder::ColMajor => "col",
        MemoryOrder::RowMajor => "row",
    }
}

fn show(answer: &Comparison, kind: &str, json: bool) -> Result<(), Failure> {
    let mut screen = Screen::new();
    if json {
        json::write(&mut screen, answer)?;
        return Ok(screen.out.flush()?);
    }
    let out = &mut screen.out;
    let name = if answer.case.is_empty() { String::new() } else { format!("Case {}: ", answer.case) };
    writeln!(
        out,
        "{name}{} {kind} from {} to {}, {} ranks, {}, {} repetitions",
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
