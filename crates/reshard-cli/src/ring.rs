//! `reshard ring`: loads balanced along a ring of processes, as a program, a chart and a verdict; with `--run`, for real.

mod items;
mod request;
mod running;
mod svg;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::run::request::human;
use crate::screen::{Screen, counted, write_drawing};
use crate::simulate::time;
use request::{Number, RingRequest};
use reshard_plan::memory;
use reshard_ring::{Direction, Side, Solution, Transfer, check, solve};
use running::{Ran, Wanted};
use serde::Serialize;
use std::io::Write;

/// The chart on the screen: so many processes, so many columns; and so many processes, and steps of one, in words.
const CHART_RANKS: usize = 24;
const CHART_COLUMNS: usize = 64;
const SHOWN_RANKS: usize = 12;
const SHOWN_STEPS: usize = 6;

/// The answer, with the keys scripts depend on.
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
    ran: Option<Ran>,
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
    let wanted = Wanted::read(args)?;
    let asked = RingRequest::read(args)?;
    let solution = solve(&asked.problem)?;
    // What is shown was replayed first.
    check(&asked.problem, solution.program())
        .map_err(|error| Failure::failed(format!("the program found does not work: {error}")))?;
    let ran = match wanted {
        None => None,
        Some(wanted) => match wanted.run(args, &asked.problem, solution.program())? {
            // Another rank reports.
            None => return Ok(()),
            ran => ran,
        },
    };
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&asked, &solution)?;
        if !write_drawing(path, &drawing)? {
            return Ok(());
        }
    }
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &solved(&asked, &solution, ran)?)?;
    } else {
        show(&mut screen, &asked, &solution)?;
        if let Some(ran) = ran {
            show_run(&mut screen, &asked, &ran)?;
        }
        if let Some(path) = &args.svg {
            writeln!(screen.out, "drawn to {}", path.display())?;
        }
    }
    Ok(screen.out.flush()?)
}

fn solved(asked: &RingRequest, solution: &Solution, ran: Option<Ran>) -> Result<Solved, Failure> {
    let procs = asked.problem.procs() as u64;
    let listed = |transfer: &Transfer| ListedTransfer {
        from: transfer.from,
        to: transfer.to(procs),
        items: transfer.items,
        start: asked.number(transfer.start),
        end: asked.number(transfer.end),
        side: word(transfer.side),
    };
    let again = |items: &[u64]| memory::listed(items.iter().copied(), "the loads as they are printed");
    Ok(Solved {
        loads: again(asked.problem.loads())?,
        targets: again(asked.problem.targets())?,
        direction: if asked.problem.direction() == Direction::Uni { "uni" } else { "bi" },
        ordered: asked.ordered,
        makespan: asked.number(solution.makespan()),
        lower_bound: asked.number(solution.lower_bound()),
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

/// What the ring is, in words.
fn title(asked: &RingRequest) -> String {
    let problem = &asked.problem;
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

/// What is known of a solution, in words.
fn verdict(asked: &RingRequest, solution: &Solution) -> String {
    let time = asked.time(solution.makespan());
    match solution.optimal() {
        Some(true) => format!("makespan {time}, optimal"),
        _ => format!(
            "makespan {time}, at most {:.2} % above the optimum; nothing is faster than {}",
            100.0 * solution.gap(),
            asked.time(solution.lower_bound())
        ),
    }
}

fn show(screen: &mut Screen, asked: &RingRequest, solution: &Solution) -> Result<(), Failure> {
    writeln!(screen.out, "{}", title(asked))?;
    chart(screen, asked, solution)?;
    for rank in 0..asked.problem.procs().min(SHOWN_RANKS) as u64 {
        let sends = solution.program().of_rank(rank).sends;
        let words = sends.iter().take(SHOWN_STEPS).map(|step| format!("{} to {}", step.items, step.peer));
        let more = sends.len().saturating_sub(SHOWN_STEPS);
        let more = (more > 0).then(|| format!("{more} more, in turns"));
        let words: Vec<String> = words.chain(more).collect();
        if !words.is_empty() {
            writeln!(screen.out, "process {rank} sends {}", words.join(", then "))?;
        }
    }
    if asked.problem.procs() > SHOWN_RANKS {
        writeln!(screen.out, "... --json has what all processes do")?;
    }
    writeln!(screen.out, "{} ({})", verdict(asked, solution), solution.method())?;
    Ok(())
}

fn show_run(screen: &mut Screen, asked: &RingRequest, ran: &Ran) -> Result<(), Failure> {
    let how = ran.mpi.as_ref().map_or_else(String::new, |mpi| format!(" ({mpi})"));
    writeln!(
        screen.out,
        "moved {} over links in {}, engine {}{how}, scratch {}",
        human(u128::from(ran.bytes)),
        time(ran.run_seconds),
        ran.engine,
        human(u128::from(ran.scratch_bytes))
    )?;
    let items = counted(asked.problem.loads().iter().sum::<u64>(), "item");
    let order = if asked.problem.is_ordered() { ", in order" } else { "" };
    writeln!(screen.out, "all {items} verified{order}")?;
    Ok(())
}

/// A line for each process, a character for each stretch of time: to which side it sends.
fn chart(screen: &mut Screen, asked: &RingRequest, solution: &Solution) -> Result<(), Failure> {
    let problem = &asked.problem;
    let makespan = solution.makespan();
    let shown = problem.procs().min(CHART_RANKS);
    let widest = |numbers: &[u64]| numbers[..shown].iter().map(|n| n.to_string().len()).max().unwrap_or(1);
    let (rank_width, loads, targets) =
        (shown.to_string().len(), widest(problem.loads()), widest(problem.targets()));
    // Short runs get a column for each unit of time.
    let columns = usize::try_from(makespan).unwrap_or(usize::MAX).min(CHART_COLUMNS);
    for rank in 0..shown {
        let (load, target) = (problem.loads()[rank], problem.targets()[rank]);
        let mut line = vec![None; columns];
        for transfer in solution.program().sends(rank as u64) {
            let place =
                |time: u64| (u128::from(time) * columns as u128).div_ceil(u128::from(makespan)) as usize;
            let begin = (u128::from(transfer.start) * columns as u128 / u128::from(makespan)) as usize;
            let free = line[begin..place(transfer.end)].iter_mut().filter(|cell| cell.is_none());
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
