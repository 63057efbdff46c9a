//! Parses the arguments of `reshard run`: the move, the type of its elements, and the engine.

use crate::args;
use crate::failure::Failure;
use crate::level;
use crate::problem::MoveRequest;
use crate::screen::counted;
use crate::words::{TYPES, type_name};
use reshard::engine::{Engine, Level, Messages, MessagesOptions, Threads, ThreadsOptions};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Layout, MemoryOrder, Move, Plan, Window};
use reshard_mpi::Mover;
use reshard_mpi::mpi::launched;
use reshard_plan::{Distribution, Traffic};
use std::sync::Arc;

const UNITS: [(&str, u64); 7] = [
    ("b", 1),
    ("kb", 1_000),
    ("kib", 1 << 10),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
];

/// The most timed runs.
const MAX_REPEATS: u64 = 1_000_000;
/// The most threads of the engine threads.
const MAX_THREADS: u64 = 1 << 12;
/// The most ranks of a side: all ranks of both sides are planned in one process.
const MAX_RANKS: u64 = 1 << 16;
/// The most messages: all are planned in one process.
const MAX_MESSAGES: u128 = 10_000_000;

/// The request: all arguments, parsed.
pub struct RunRequest {
    pub move_request: MoveRequest,
    pub moving: Move,
    /// The type in words: `f64`, or `elements of 12 bytes`.
    pub kind: String,
    pub repeat: Option<u64>,
    pub memory: Option<u64>,
    /// The instruction set level, if one was asked for.
    pub level: Option<Level>,
    pub engine_choice: EngineChoice,
}

/// The engine, with its own arguments.
#[derive(Clone, Copy)]
pub enum EngineChoice {
    Threads(usize),
    Messages(Strategy),
    UnderMpi(UnderMpi),
}

/// The arguments of the engine mpi.
#[derive(Clone, Copy)]
pub struct UnderMpi {
    pub mover: Mover,
    pub strategy: Strategy,
}

impl RunRequest {
    pub fn read(args: &args::Run, cores: usize) -> Result<Self, Failure> {
        if args.moved.shape.is_none() {
            return Err(Failure::usage(
                "the shape of the array is missing; give it with --shape, such as --shape 8192x8192",
            ));
        }
        let engine_choice = engine_choice(args, cores)?;
        let memory = args.memory.as_deref().map(amount).transpose()?;
        let level = level::from_environment()?;
        if args.repeat.is_some_and(|repeat| !(1..=MAX_REPEATS).contains(&repeat)) {
            return Err(Failure::usage(&format!(
                "--repeat: {} was given; take a number from 1 to {MAX_REPEATS}",
                args.repeat.unwrap_or(0)
            )));
        }
        let (move_request, moving, kind) = read_move(&args.moved, &args.elements)?;
        Ok(Self { move_request, moving, kind, repeat: args.repeat, memory, level, engine_choice })
    }

    /// Fails if the run would not fit in memory; to be called before anything is allocated.
    pub fn check_size(&self) -> Result<(), Failure> {
        let problem = &self.move_request.problem;
        let ranks = problem.from().grid().size().max(problem.to().grid().size());
        if ranks > MAX_RANKS {
            return Err(Failure::usage(&format!(
                "a grid of {ranks} ranks was given, and a run in one process takes at most {MAX_RANKS}; take smaller \
                 grids, or ask `reshard plan` or `reshard simulate`"
            )));
        }
        let elems = |side: &Distribution| u128::from(side.elems()) * u128::from(side.copies());
        let elems = elems(problem.from()) + elems(problem.to());
        let needed = elems.saturating_mul(u128::from(self.moving.elem_bytes()));
        if let Some(available) = available().filter(|&available| needed > u128::from(available)) {
            return Err(Failure::failed(format!(
                "source and destination take {} of memory together, and {} are available; take a smaller --shape or \
                 --type",
                human(needed),
                human(u128::from(available))
            )));
        }
        let messages = Traffic::new(problem).table().map(|table| table.message_count());
        if messages.map_or(true, |messages| messages > MAX_MESSAGES) {
            return Err(Failure::usage(&format!(
                "this redistribution has more than {MAX_MESSAGES} messages, too many to be planned in one process; take \
                 smaller grids"
            )));
        }
        Ok(())
    }

    /// Makes the plan and the engine; for threads, also returns their number.
    pub fn engine(&self) -> Result<(Box<dyn Engine>, Option<usize>), Failure> {
        level::check(self.level)?;
        let plan = Arc::new(Plan::new(vec![self.moving.clone()])?);
        match self.engine_choice {
            EngineChoice::Threads(threads) => {
                let options = ThreadsOptions::default().with_threads(threads).with_level(self.level);
                let engine = Threads::with_options(plan, options).map_err(not_started)?;
                let scratch = engine.scratch_bytes();
                if let Some(memory) = self.memory.filter(|&memory| memory < scratch) {
                    return Err(Failure::usage(&format!(
                        "--memory: {} was given; this plan needs at least {} for what {} work with",
                        counted(memory, "byte"),
                        counted(scratch, "byte"),
                        counted(engine.threads(), "thread")
                    )));
                }
                let threads = engine.threads();
                Ok((Box::new(engine), Some(threads)))
            }
            EngineChoice::UnderMpi(_) => Err(Failure::usage("the engine mpi is made by all ranks together")),
            EngineChoice::Messages(strategy) => {
                let options = MessagesOptions::default()
                    .with_strategy(strategy)
                    .with_memory(self.memory)
                    .with_level(self.level);
                let engine = Messages::new(plan, options).map_err(|error| match self.memory {
                    Some(_) if error.kind() == ErrorKind::Memory => {
                        Failure::usage_of(&error, format!("--memory: {error}"))
                    }
                    _ => not_started(error),
                })?;
                Ok((Box::new(engine), None))
            }
        }
    }
}

/// Reads the move of an array with elements in memory. Returns what was asked for, the move, and the type in words.
pub fn read_move(
    moved: &args::Move,
    elements: &args::Elements,
) -> Result<(MoveRequest, Move, String), Failure> {
    let (kind, elem_bytes) = element(&elements.kind)?;
    let (move_request, in_memory) = MoveRequest::read_with_memory(moved)?;
    let [order, to_order] = orders(elements, in_memory)?;
    let problem = &move_request.problem;
    let from = Layout::new(problem.from().clone(), order);
    let to = Layout::new(problem.to().clone(), to_order);
    let window = Window::of(problem.shape())
        .from(problem.from_offset())
        .to(problem.to_offset())
        .permuted(problem.axes());
    let moving =
        Move::windowed::<f64>(from, to, window)?.of_bytes(elem_bytes).map_err(Failure::of_flag("--type"))?;
    Ok((move_request, moving, kind))
}

/// The failure of an engine that could not be made: too little memory or threads is not wrong usage.
fn not_started(error: reshard::Error) -> Failure {
    match error.kind() {
        ErrorKind::Memory => Failure::while_running(&error),
        _ => error.into(),
    }
}

/// Reads the engine and its flags.
fn engine_choice(args: &args::Run, cores: usize) -> Result<EngineChoice, Failure> {
    let launched = launched().is_some_and(|launcher| launcher.size > 1);
    let engine = args.engine.as_deref().unwrap_or(if launched { "mpi" } else { "threads" });
    if engine != "mpi" && (args.mover.is_some() || args.mpi.is_some()) {
        return Err(Failure::usage(
            "--mover and --mpi are for the engine mpi; start the program under mpirun, or add --engine mpi",
        ));
    }
    match engine {
        "mpi" if args.threads.is_some() => Err(Failure::usage(
            "--threads is for the engine threads; with --engine mpi every rank is a process, so leave it out",
        )),
        "mpi" => {
            let strategy = args.strategy.as_deref().map(str::parse).transpose();
            let strategy = strategy.map_err(Failure::of_flag("--strategy"))?;
            let mover = args.mover.as_deref().map(str::parse).transpose();
            let mover = mover.map_err(Failure::of_flag("--mover"))?.unwrap_or_default();
            match (strategy, mover) {
                // A strategy orders messages, so it implies the mover messages.
                (Some(strategy), Mover::Auto) => {
                    Ok(EngineChoice::UnderMpi(UnderMpi { mover: Mover::Messages, strategy }))
                }
                (Some(_), mover) if !mover.follows_schedule() => Err(Failure::usage(
                    "--strategy orders messages, and this mover sends none; add --mover messages",
                )),
                (strategy, mover) => {
                    Ok(EngineChoice::UnderMpi(UnderMpi { mover, strategy: strategy.unwrap_or_default() }))
                }
            }
        }
        "threads" => {
            if args.strategy.is_some() {
                return Err(Failure::usage(
                    "--strategy orders messages, and the engine threads sends none; add --engine messages",
                ));
            }
            match args.threads {
                Some(threads) if !(1..=MAX_THREADS).contains(&threads) => Err(Failure::usage(&format!(
                    "--threads: {threads} was given; take a number from 1 to {MAX_THREADS}"
                ))),
                threads => Ok(EngineChoice::Threads(threads.map_or(cores, |threads| threads as usize))),
            }
        }
        "messages" if args.threads.is_some() => Err(Failure::usage(
            "--threads is for the engine threads; with --engine messages every rank is a thread, so leave it out",
        )),
        "messages" => {
            let strategy = args.strategy.as_deref().map(str::parse).transpose();
            Ok(EngineChoice::Messages(strategy.map_err(Failure::of_flag("--strategy"))?.unwrap_or_default()))
        }
        other => Err(Failure::usage(&format!(
            "--engine: the engine {other:?} is not known; choose threads, messages or mpi"
        ))),
    }
}

/// The memory order of both sides: as the layout says, else as the flags say, else the destination as the source and the source column-major.
fn orders(
    elements: &args::Elements,
    in_memory: [Option<MemoryOrder>; 2],
) -> Result<[MemoryOrder; 2], Failure> {
    let flag = |flag: &str, text: &Option<String>| text.as_deref().map(|text| order(flag, text)).transpose();
    let [from, to] = [flag("--order", &elements.order)?, flag("--to-order", &elements.to_order)?];
    let sides = [("--from", "--order", from, in_memory[0]), ("--to", "--to-order", to, in_memory[1])];
    if let Some((side, flag, ..)) =
        sides.iter().find(|(.., by_flag, by_layout)| by_flag.is_some() && by_layout.is_some())
    {
        return Err(Failure::usage(&format!("{side} says memory= and {flag} is given, too; say it once")));
    }
    let source = in_memory[0].or(from).unwrap_or_default();
    Ok([source, in_memory[1].or(to).or(from).unwrap_or(source)])
}

fn order(flag: &str, text: &str) -> Result<MemoryOrder, Failure> {
    match text {
        "row" => Ok(MemoryOrder::RowMajor),
        "col" => Ok(MemoryOrder::ColMajor),
        _ => Err(Failure::usage(&format!("{flag}: the order {text:?} is not known; choose row or col"))),
    }
}

/// The type of the elements in words, and their bytes.
fn element(text: &str) -> Result<(String, u64), Failure> {
    let text = type_name(text);
    if let Some((name, bytes)) = TYPES.iter().find(|(name, _)| *name == text) {
        return Ok((name.to_string(), *bytes));
    }
    match text.parse() {
        Ok(1) => Ok(("elements of 1 byte".to_string(), 1)),
        Ok(bytes) => Ok((format!("elements of {bytes} bytes"), bytes)),
        Err(_) => Err(Failure::usage(&format!(
            "--type: the type {text:?} is not known; choose one of {}, or give the bytes of an element, such as 12",
            TYPES.map(|(name, _)| name).join(", ")
        ))),
    }
}

/// An amount of memory in bytes.
pub fn amount(text: &str) -> Result<u64, Failure> {
    let refused = || {
        Failure::usage(&format!(
            "--memory: {text:?} is not an amount of memory below 2^64 bytes; give a whole number of bytes, or one with B, \
             KB, KiB, MB, MiB, GB or GiB, such as 64MiB"
        ))
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| refused())?;
    let unit = text[end..].trim().to_ascii_lowercase();
    let bytes = match unit.as_str() {
        "" => Some(1),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, bytes)| bytes),
    };
    bytes.and_then(|bytes| number.checked_mul(bytes)).ok_or_else(refused)
}

/// The memory in bytes that the system reports as available; `None` where it does not report any.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Writes bytes in the largest unit that fits: `512 MiB`, `1.5 KiB`.
pub fn human(bytes: u128) -> String {
    let mut scaled = bytes as f64;
    if bytes == 1 {
        return "1 byte".to_string();
    }
    for unit in ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if scaled < 1024.0 {
            let whole = format!("{scaled:.0}");
            let tenths = format!("{scaled:.1}");
            let shown = if tenths == format!("{whole}.0") { whole } else { tenths };
            return format!("{shown} {unit}");
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} EiB")
}
