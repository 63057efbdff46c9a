//! `reshard ring`: loads balanced along a ring of processes, as a program, a chart and a verdict; with `--run`, for real.

mod items;
mod request;
mod running;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::run::request::human;
use crate::screen::{Screen, counted, write_drawing};
use request::{Number, RingRequest};
use reshard_draw::{RingWords, time};
use reshard_plan::memory;
use reshard_ring::{Direction, Side, Solution, Transfer, check, solve};
use running::{RingRun, RingRunRequest};
use serde::Serialize;
use std::io::Write;

/// The most processes of the chart on the screen.
const CHART_RANKS: usize = 24;
/// The most columns of the chart on the screen.
const CHART_COLUMNS: usize = 64;
/// The most processes whose sends are shown in words.
const SHOWN_RANKS: usize = 12;
/// The most processes in a drawing: more cannot be seen.
const MAX_DRAWN_RANKS: usize = 1_000;
/// The most transfers in a drawing.
const MAX_DRAWN_TRANSFERS: usize = 100_000;
/// The most sends of a process that are shown in words.
const SHOWN_STEPS: usize = 6;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Solved {
    loads: Vec<u64>,
    targets: Vec<u64>,
    direction: &'static str,
    ordered: bool,
    makespan: Number,
    lower_bound: Number,
    optimal: Option<bool>,
    gap: f64,
    method: &'static str,
    net_flow: Vec<i64>,
    transfers: Vec<ListedTransfer>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ran: Option<RingRun>,
}

#[derive(Serialize)]
struct ListedTransfer {
    from: u64,
    to: u64,
    items: u64,
    start: Number,
    end: Number,
    side: &'static str,
}

pub fn run(args: &args::Ring) -> Result<(), Failure> {
    if args.json && args.svg.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(Failure::usage("--svg - and --json both go to standard output; draw to a file"));
    }
    let run_request = RingRunRequest::read(args)?;
    let request = RingRequest::read(args)?;
    let solution = solve(&request.problem)?;
    // Every program is replayed before it is shown.
    check(&request.problem, solution.program())
        .map_err(|error| Failure::failed(format!("the program found does not work: {error}")))?;
    let ran = match run_request {
        None => None,
        Some(run_request) => match run_request.run(args, &request.problem, solution.program())? {
            // Another rank reports.
            None => return Ok(()),
            ran => ran,
        },
    };
    if let Some(path) = &args.svg {
        let drawing = drawn(&request, &solution)?;
        if !write_drawing(path, &drawing)? {
            return Ok(());
        }
    }
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &solved(&request, &solution, ran)?)?;
    } else {
        show(&mut screen, &request, &solution)?;
        if let Some(ran) = ran {
            show_run(&mut screen, &request, &ran)?;
        }
        if let Some(path) = &args.svg {
            writeln!(screen.out, "drawn to {}", path.display())?;
        }
    }
    Ok(screen.out.flush()?)
}

fn solved(request: &RingRequest, solution: &Solution, ran: Option<RingRun>) -> Result<Solved, Failure> {
    let procs = request.problem.procs() as u64;
    let listed = |transfer: &Transfer| ListedTransfer {
        from: transfer.from,
        to: transfer.to(procs),
        items: transfer.items,
        start: request.number(transfer.start),
        end: request.number(transfer.end),
        side: word(transfer.side),
    };
    let list = |items: &[u64]| memory::listed(items.iter().copied(), "the loads as they are printed");
    Ok(Solved {
        loads: list(request.problem.loads())?,
        targets: list(request.problem.targets())?,
        direction: if request.problem.direction() == Direction::Uni { "uni" } else { "bi" },
        ordered: request.ordered,
        makespan: request.number(solution.makespan()),
        lower_bound: request.number(solution.lower_bound()),
        optimal: solution.optimal(),
        gap: solution.gap(),
        method: solution.method().name(),
        net_flow: solution.net_flow(),
        transfers: memory::listed(
            solution.program().transfers().iter().map(listed),
            "the transfers as they are printed",
        )?,
        ran,
    })
}

fn word(side: Side) -> &'static str {
    match side {
        Side::Right => "right",
        Side::Left => "left",
    }
}

fn drawn(request: &RingRequest, solution: &Solution) -> Result<String, Failure> {
    let procs = request.problem.procs();
    let transfers = solution.program().transfers().len();
    if procs > MAX_DRAWN_RANKS || transfers > MAX_DRAWN_TRANSFERS {
        return Err(Failure::usage(&format!(
            "--svg: {procs} processes with {transfers} transfers are too many to draw; at most {MAX_DRAWN_RANKS} and {MAX_DRAWN_TRANSFERS} can be"
        )));
    }
    let (title, about) = (title(request), verdict(request, solution));
    let words = RingWords { title: &title, about: &about, denominator: request.denominator };
    Ok(reshard_draw::ring(&words, &request.problem, solution))
}

/// Describes the ring in words.
fn title(request: &RingRequest) -> String {
    let problem = &request.problem;
    format!(
        "Ring of {}, {}, {}{}",
        processes(problem.procs()),
        counted(problem.loads().iter().sum::<u64>(), "item"),
        if problem.direction() == Direction::Uni { "one direction" } else { "both directions" },
        if problem.is_ordered() { ", in order" } else { "" },
    )
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_string() } else { format!("{count} processes") }
}

/// Describes the time of a solution and its bound in words.
fn verdict(request: &RingRequest, solution: &Solution) -> String {
    let time = request.time(solution.makespan());
    match solution.optimal() {
        Some(true) => format!("makespan {time}, optimal"),
        _ => format!(
            "makespan {time}, at most {:.2} % above the optimum; nothing is faster than {}",
            100.0 * solution.gap(),
            request.time(solution.lower_bound())
        ),
    }
}

fn show(screen: &mut Screen, request: &RingRequest, solution: &Solution) -> Result<(), Failure> {
    writeln!(screen.out, "{}", title(request))?;
    chart(screen, request, solution)?;
    for rank in 0..request.problem.procs().min(SHOWN_RANKS) as u64 {
        let sends = solution.program().of_rank(rank).sends;
        let words = sends.iter().take(SHOWN_STEPS).map(|step| format!("{} to {}", step.items, step.peer));
        let more = sends.len().saturating_sub(SHOWN_STEPS);
        let more = (more > 0).then(|| format!("{more} more, in turns"));
        let words: Vec<String> = words.chain(more).collect();
        if !words.is_empty() {
            writeln!(screen.out, "process {rank} sends {}", words.join(", then "))?;
        }
    }
    if request.problem.procs() > SHOWN_RANKS {
        writeln!(screen.out, "... --json has what all processes do")?;
    }
    writeln!(screen.out, "{} ({})", verdict(request, solution), solution.method())?;
    Ok(())
}

fn show_run(screen: &mut Screen, request: &RingRequest, ran: &RingRun) -> Result<(), Failure> {
    let mpi = ran.mpi.as_ref().map_or_else(String::new, |mpi| format!(" ({mpi})"));
    writeln!(
        screen.out,
        "moved {} over links in {}, engine {}{mpi}, scratch {}",
        human(u128::from(ran.bytes)),
        time(ran.run_seconds),
        ran.engine,
        human(u128::from(ran.scratch_bytes))
    )?;
    let items = counted(request.problem.loads().iter().sum::<u64>(), "item");
    let order = if request.problem.is_ordered() { ", in order" } else { "" };
    writeln!(screen.out, "all {items} verified{order}")?;
    Ok(())
}

/// Draws a line for each process, with a character for each interval of time: the side to which it sends.
fn chart(screen: &mut Screen, request: &RingRequest, solution: &Solution) -> Result<(), Failure> {
    let problem = &request.problem;
    let makespan = solution.makespan();
    let shown = problem.procs().min(CHART_RANKS);
    let widest = |numbers: &[u64]| numbers[..shown].iter().map(|n| n.to_string().len()).max().unwrap_or(1);
    let (rank_width, loads, targets) =
        (shown.to_string().len(), widest(problem.loads()), widest(problem.targets()));
    // Short runs get a column for each unit of time.
    let columns = usize::try_from(makespan).unwrap_or(usize::MAX);
    let columns = columns.min(screen.room(CHART_COLUMNS, 1, rank_width + loads + targets + 9));
    for rank in 0..shown {
        let (load, target) = (problem.loads()[rank], problem.targets()[rank]);
        let mut line = vec![None; columns];
        for transfer in solution.program().sends(rank as u64) {
            let column =
                |time: u64| (u128::from(time) * columns as u128).div_ceil(u128::from(makespan)) as usize;
            let begin = (u128::from(transfer.start) * columns as u128 / u128::from(makespan)) as usize;
            let free = line[begin..column(transfer.end)].iter_mut().filter(|cell| cell.is_none());
            free.for_each(|cell| *cell = Some(transfer.side));
        }
        let cell = |side: Option<Side>| match side {
            Some(Side::Right) => screen.of_rank(1, ">"),
            Some(Side::Left) => screen.of_rank(3, "<"),
            None => screen.faint("."),
        };
        let cells: Vec<String> = line.into_iter().map(cell).collect();
        writeln!(
            screen.out,
            "{rank:>rank_width$}: {load:>loads$} -> {target:>targets$} |{}|",
            cells.concat()
        )?;
    }
    if problem.procs() > shown {
        writeln!(screen.out, "... and {} more", processes(problem.procs() - shown))?;
    }
    Ok(())
}
