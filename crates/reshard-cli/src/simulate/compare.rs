//! `reshard simulate --compare`: the time of every strategy on one machine, as a table with bars, as JSON or as a picture.

use super::{OfPorts, SimulationRequest, of_ports};
use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::problem::Echo;
use crate::screen::{Screen, write_drawing};
use reshard_draw::time;
use reshard_plan::cost::predict;
use reshard_plan::schedule::Strategy;
use serde::Serialize;
use std::io::Write;

/// The columns of the longest bar.
const BAR: usize = 24;
/// Those of the numbers before it.
const NUMBERS: usize = 45;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct ComparedTimes {
    #[serde(flatten)]
    input: Echo,
    network: String,
    barriers: bool,
    rows: Vec<StrategyRow>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StrategyRow {
    Simulated(StrategyTime),
    Refused { strategy: &'static str, error: String },
}

#[derive(Serialize)]
struct StrategyTime {
    strategy: &'static str,
    messages: u64,
    steps: u64,
    makespan: f64,
    bound: f64,
    predicted: f64,
    busy: OfPorts,
}

pub fn run(args: &args::Simulate, request: &SimulationRequest) -> Result<(), Failure> {
    let rows =
        Strategy::ALL.into_iter().map(|strategy| row(request, strategy)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.svg {
        if args.json && path.as_os_str() == "-" {
            return Err(Failure::usage("--svg - and --json both go to standard output; draw to a file"));
        }
        if !write_drawing(path, &drawn(request, &rows))? {
            return Ok(());
        }
    }
    let mut screen = Screen::new();
    if args.json {
        let (network, barriers) = (request.machine.network.to_string(), request.barriers);
        json::write(
            &mut screen,
            &ComparedTimes { input: request.move_request.echo(), network, barriers, rows },
        )?;
    } else {
        show(&mut screen, request, &rows)?;
        if let Some(path) = &args.svg {
            writeln!(screen.out, "drawn to {}", path.display())?;
        }
    }
    Ok(screen.out.flush()?)
}

fn row(request: &SimulationRequest, strategy: Strategy) -> Result<StrategyRow, Failure> {
    let (schedule, timeline) = match request.run_by(strategy) {
        Ok(run) => run,
        Err(Failure::Usage(why)) => {
            return Ok(StrategyRow::Refused { strategy: strategy.name(), error: why.message().to_string() });
        }
        Err(failure) => return Err(failure),
    };
    let cost = &request.machine.cost;
    Ok(StrategyRow::Simulated(StrategyTime {
        strategy: strategy.name(),
        messages: timeline.messages().len() as u64,
        steps: schedule.num_steps(),
        makespan: timeline.makespan(),
        bound: cost.bound(schedule.steps().iter().flat_map(|step| &step.messages)),
        predicted: predict(&schedule, cost).seconds,
        busy: of_ports(timeline.busy()),
    }))
}

fn timed(rows: &[StrategyRow]) -> impl Iterator<Item = &StrategyTime> {
    rows.iter().filter_map(|row| match row {
        StrategyRow::Simulated(row) => Some(row),
        StrategyRow::Refused { .. } => None,
    })
}

/// The least time of any strategy: messages that are cut start more often, so the bound of those that cut none is taken.
fn bound(rows: &[StrategyRow]) -> f64 {
    timed(rows).map(|row| row.bound).fold(f64::INFINITY, f64::min)
}

fn drawn(request: &SimulationRequest, rows: &[StrategyRow]) -> String {
    let strategies: Vec<_> = timed(rows)
        .map(|row| reshard_draw::Strategy { name: row.strategy, steps: row.steps, makespan: row.makespan })
        .collect();
    let refused: Vec<&str> = rows
        .iter()
        .filter_map(|row| match row {
            StrategyRow::Refused { strategy, .. } => Some(*strategy),
            StrategyRow::Simulated(_) => None,
        })
        .collect();
    let (title, about) = (request.layouts(), request.machine_in_words());
    reshard_draw::comparison(&title, &about, &strategies, bound(rows), &refused)
}

fn show(screen: &mut Screen, request: &SimulationRequest, rows: &[StrategyRow]) -> Result<(), Failure> {
    writeln!(screen.out, "{}", request.layouts())?;
    writeln!(screen.out, "{}", request.machine_in_words())?;
    writeln!(screen.out, "{:<12} {:>7} {:>9} {:>12}", "strategy", "steps", "messages", "makespan")?;
    let most = timed(rows).map(|row| row.makespan).fold(0.0, f64::max);
    let longest = screen.room(BAR, 1, NUMBERS) as f64;
    for row in rows {
        match row {
            StrategyRow::Simulated(row) => {
                let columns = if most > 0.0 { (longest * row.makespan / most).round() as usize } else { 0 };
                let StrategyTime { strategy, steps, messages, .. } = row;
                let (makespan, bar) = (time(row.makespan), "#".repeat(columns));
                writeln!(screen.out, "{strategy:<12} {steps:>7} {messages:>9} {makespan:>12}  {bar}")?;
            }
            StrategyRow::Refused { strategy, error } => {
                writeln!(screen.out, "{strategy:<12} not applicable: {error}")?;
            }
        }
    }
    writeln!(screen.out, "The busiest rank needs {} by any strategy", time(bound(rows)))?;
    Ok(())
}
