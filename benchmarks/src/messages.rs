//! Schedules at work: the scheduling paper's examples, scaled up, as messages between threads of one process.
//!
//! Examples 1, 2 and 4 of Desprez et al. on vectors of some megabytes. Every rank is a thread, so on a machine with fewer
//! cores than ranks this shows what packing, hand-over and waiting cost, not what a network would: for that there is
//! `reshard simulate`. Strategies take turns in every repetition; the embedded engine, which sends nothing, is the
//! yardstick.

use crate::machine::{Failure, Machine, keep, median};
use reshard::engine::{Messages, MessagesOptions, Threads};
use reshard::memory::Memory;
use reshard::schedule::Strategy;
use reshard::{Layout, MemoryOrder, Move, Plan, Redistribution};
use reshard_plan::{Pattern, one_period};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;

const EXAMPLES: [(&str, &str, &str); 3] =
    [("1", "16/3", "16/5"), ("2", "16/7", "16/11"), ("4", "12/4", "8/3")];
const STRATEGIES: [Strategy; 5] =
    [Strategy::Optimal, Strategy::MinCost, Strategy::Async, Strategy::Caterpillar, Strategy::Eager];
const REPETITIONS: usize = 15;
/// Elements of the vectors, about.
const ELEMS: u64 = 4 << 20;

#[derive(Serialize)]
struct Row {
    example: &'static str,
    from: &'static str,
    to: &'static str,
    elems: u64,
    strategy: &'static str,
    barriers: bool,
    messages: u64,
    steps: u64,
    /// Milliseconds, in the median.
    time: f64,
    /// The same over the embedded engine's.
    ratio: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    repetitions: usize,
    rows: Vec<Row>,
}

pub fn run() -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (example, from, to) in EXAMPLES {
        eprintln!("example {example}");
        rows.extend(measure(example, from, to)?);
    }
    let results = Results {
        benchmark: "messages",
        command: "cargo xtask bench messages",
        machine: Machine::here(),
        repetitions: REPETITIONS,
        rows,
    };
    let text = report(&results)?;
    keep("messages", &results, &text)
}

fn measure(example: &'static str, from: &'static str, to: &'static str) -> Result<Vec<Row>, Failure> {
    let (source, target): (Pattern, Pattern) = (from.parse()?, to.parse()?);
    let period = one_period(&source, &target)?[0];
    let elems = ELEMS / period * period;
    let layout =
        |pattern: &Pattern| Ok::<_, Failure>(Layout::new(pattern.over(&[elems])?, MemoryOrder::RowMajor));
    let plan = Arc::new(Plan::new(vec![Move::of::<f64>(layout(&source)?, layout(&target)?)?])?);
    let array = &plan.arrays()[0];
    let mut parts = Vec::new();
    for (part, rank) in array.sources().iter().zip(0..) {
        let mut memory = Memory::<f64>::zeroed(part.span as usize)?;
        memory.iter_mut().zip(0..).for_each(|(place, k)| *place = f64::from(rank) * 1e9 + f64::from(k));
        parts.push(memory);
    }
    let mut moved = array
        .targets()
        .iter()
        .map(|part| Memory::<f64>::zeroed(part.span as usize))
        .collect::<Result<Vec<_>, _>>()?;
    let mut embedded = Redistribution::with(Threads::new(Arc::clone(&plan), None)?);
    embedded.run(&parts, &mut moved)?;
    let right: Vec<Vec<f64>> = moved.iter().map(|part| part.to_vec()).collect();
    let mut engines = Vec::new();
    for strategy in STRATEGIES {
        for barriers in [false, true] {
            // The two that have no steps need no barriers.
            if barriers && matches!(strategy, Strategy::Async | Strategy::Eager) {
                continue;
            }
            let options = MessagesOptions::default().with_strategy(strategy).with_barriers(barriers);
            engines.push((
                options,
                Redistribution::with(Messages::new(Arc::clone(&plan), options)?),
                Vec::new(),
            ));
        }
    }
    let mut yardstick = Vec::new();
    let mut counted = vec![(0, 0); engines.len()];
    for _ in 0..REPETITIONS {
        yardstick.push(embedded.run(&parts, &mut moved)?.seconds * 1e3);
        for ((_, engine, times), counted) in engines.iter_mut().zip(&mut counted) {
            moved.iter_mut().for_each(|part| part.fill(-1.0));
            let report = engine.run(&parts, &mut moved)?;
            times.push(report.seconds * 1e3);
            *counted = (report.messages, report.steps);
            if moved.iter().zip(&right).any(|(moved, right)| moved[..] != right[..]) {
                return Err(format!("example {example}: an element is wrong").into());
            }
        }
    }
    let yardstick = median(yardstick).unwrap_or(f64::NAN);
    let row = |((options, _, times), (messages, steps)): ((MessagesOptions, Redistribution, Vec<f64>), _)| {
        let time = median(times).unwrap_or(f64::NAN);
        let MessagesOptions { strategy, barriers, .. } = options;
        let strategy = strategy.name();
        Row { example, from, to, elems, strategy, barriers, messages, steps, time, ratio: time / yardstick }
    };
    Ok(engines.into_iter().zip(counted).map(row).collect())
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::from("# Schedules at work, in one process\n\n");
    writeln!(
        text,
        "Examples 1, 2 and 4 of Desprez et al. on vectors of doubles, as messages between ranks that are threads of one\n\
         process; milliseconds, medians of {} repetitions in which all strategies take turns, every element checked. The\n\
         ratio is to the embedded engine, which copies each byte once. With fewer cores than ranks this is the cost of\n\
         packing, hand-over and waiting; what a network makes of the schedules is in [simulation.md](simulation.md).\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/messages.json`.\n",
        results.repetitions, results.machine, results.command
    )?;
    text.push_str("| example | elements | strategy | barriers | messages | steps | time | ratio |\n|---|---|---|---|---|---|---|---|\n");
    for row in &results.rows {
        writeln!(
            text,
            "| {}: {} to {} | {} | {} | {} | {} | {} | {:.1} | {:.2} |",
            row.example,
            row.from,
            row.to,
            row.elems,
            row.strategy,
            if row.barriers { "yes" } else { "no" },
            row.messages,
            row.steps,
            row.time,
            row.ratio
        )?;
    }
    Ok(text)
}
