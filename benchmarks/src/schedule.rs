//! How long a schedule takes: the closed form against edge colouring and the paper's matchings, on one input.
//!
//! Blocks of 8 to blocks of 25 on equal grids, 32 messages a rank and 50 steps. The closed form is timed for all ranks
//! one after the other, each listing its own messages with their steps as it would alone; colouring and matchings see the
//! whole graph. Also one rank of a grid of a million, all costs of setting up included; and what it takes a rank of the engine
//! between processes to get ready.

use crate::machine::{Failure, Machine, keep, median};
use reshard::engine::MessagesOptions;
use reshard::rank::{messages, staged_copy};
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_plan::Distribution;
use reshard_plan::schedule::{ClosedForm, Schedule, Strategy};
use reshard_plan::{Pattern, Problem, one_period};
use serde::Serialize;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const SIZES: [u64; 3] = [1_000, 10_000, 100_000];
const REPETITIONS: usize = 9;
/// Edge colouring and matchings build all messages; past these sizes they are left out.
const COLOURED: u64 = 100_000;
const MATCHED: u64 = 1_000;

#[derive(Serialize)]
struct Row {
    processes: u64,
    messages: u64,
    steps: u64,
    /// Microseconds for one rank, in the median, when all ranks list their messages and steps.
    closed_form: f64,
    /// Microseconds for one rank, all messages at once.
    colouring: Option<f64>,
    matchings: Option<f64>,
}

/// Ranks, source, destination and shape of arrays an engine gets ready for.
const ENGINES: [(u64, &str, &str, &str); 4] = [
    (16, "4x4/64x64", "2x8/50x30", "4096x4096"),
    (256, "16x16/64x64", "8x32/50x30", "16384x16384"),
    (1024, "32x32/64x64", "16x64/50x30", "65536x65536"),
    (4096, "64x64/64x64", "32x128/50x30", "131072x131072"),
];

/// Milliseconds that one rank of an engine needs to get ready.
#[derive(Serialize)]
struct Ready {
    ranks: u64,
    from: &'static str,
    to: &'static str,
    shape: &'static str,
    plan: f64,
    boxes: f64,
    messages: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    repetitions: usize,
    rows: Vec<Row>,
    /// Microseconds for one rank of a million, from two layouts to its list of messages and steps.
    one_of_a_million: f64,
    messages_of_one: u64,
    ready: Vec<Ready>,
}

pub fn run() -> Result<(), Failure> {
    let mut rows = Vec::new();
    for processes in SIZES {
        eprintln!("{processes} processes");
        rows.push(measure(processes)?);
    }
    let (one_of_a_million, messages_of_one) = one_rank(1_000_000, 64, 125)?;
    eprintln!("engines");
    let ready = ENGINES.into_iter().map(get_ready).collect::<Result<_, _>>()?;
    let results = Results {
        benchmark: "schedule",
        command: "cargo xtask bench schedule",
        machine: Machine::here(),
        repetitions: REPETITIONS,
        rows,
        one_of_a_million,
        messages_of_one,
        ready,
    };
    let text = report(&results)?;
    keep("schedule", &results, &text)
}

fn problem(processes: u64, r: u64, s: u64) -> Result<Problem, Failure> {
    let (from, to): (Pattern, Pattern) =
        (format!("{processes}/{r}").parse()?, format!("{processes}/{s}").parse()?);
    let shape = one_period(&from, &to)?;
    Ok(Problem::new(from.over(&shape)?, to.over(&shape)?)?)
}

fn measure(processes: u64) -> Result<Row, Failure> {
    let problem = problem(processes, 8, 25)?;
    let mut times = Vec::new();
    let mut messages = 0;
    for _ in 0..REPETITIONS {
        let begin = Instant::now();
        let form = ClosedForm::new(black_box(&problem))?.ok_or("no closed form")?;
        messages = 0;
        for rank in 0..processes {
            let mut sum = 0;
            form.sends(rank, |receiver, step| {
                sum += receiver ^ step;
                messages += 1;
            });
            black_box(sum);
        }
        times.push(begin.elapsed().as_secs_f64());
    }
    let per_rank = |seconds: f64| seconds * 1e6 / processes as f64;
    let timed = |strategy: Strategy, most: u64| -> Result<Option<f64>, Failure> {
        if processes > most {
            return Ok(None);
        }
        let begin = Instant::now();
        black_box(Schedule::new(&problem, strategy)?);
        Ok(Some(per_rank(begin.elapsed().as_secs_f64())))
    };
    let steps = ClosedForm::new(&problem)?.ok_or("no closed form")?.steps();
    Ok(Row {
        processes,
        messages,
        steps,
        closed_form: per_rank(median(times).unwrap_or(f64::NAN)),
        colouring: timed_colouring(&problem, processes)?.map(per_rank),
        matchings: timed(Strategy::Stepwise, MATCHED)?,
    })
}

/// Seconds to colour the whole graph; the grids share their ranks, so that there is no closed form to take instead.
fn timed_colouring(problem: &Problem, processes: u64) -> Result<Option<f64>, Failure> {
    if processes > COLOURED {
        return Ok(None);
    }
    let options = reshard_plan::schedule::Options::default().with_shared_ranks(true);
    let begin = Instant::now();
    black_box(Schedule::with(problem, &options)?);
    Ok(Some(begin.elapsed().as_secs_f64()))
}

/// Microseconds for one rank alone, set-up included, and its number of messages.
fn one_rank(processes: u64, r: u64, s: u64) -> Result<(f64, u64), Failure> {
    let problem = problem(processes, r, s)?;
    let mut times = Vec::new();
    let mut messages = 0;
    for repetition in 0..10 * REPETITIONS as u64 {
        let begin = Instant::now();
        let form = ClosedForm::new(black_box(&problem))?.ok_or("no closed form")?;
        messages = 0;
        let mut sum = 0;
        form.sends(black_box(repetition * 7919), |receiver, step| {
            sum += receiver ^ step;
            messages += 1;
        });
        black_box(sum);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok((median(times).unwrap_or(f64::NAN), messages))
}

/// What rank 3 does before it can move anything.
fn get_ready(
    (ranks, from, to, shape): (u64, &'static str, &'static str, &'static str),
) -> Result<Ready, Failure> {
    let layout = |text: &str| -> Result<Layout, Failure> {
        let distribution: Distribution = format!("{text} of {shape}").parse()?;
        Ok(Layout::new(distribution, MemoryOrder::ColMajor))
    };
    let moving = Move::of::<f64>(layout(from)?, layout(to)?)?;
    let milliseconds = |begin: Instant| begin.elapsed().as_secs_f64() * 1e3;
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..REPETITIONS {
        let begin = Instant::now();
        let plan = Arc::new(Plan::new(vec![black_box(moving.clone())])?);
        times[0].push(milliseconds(begin));
        let begin = Instant::now();
        black_box(staged_copy(&plan, 3, 1 << 19, None)?);
        times[1].push(milliseconds(begin));
        let begin = Instant::now();
        black_box(messages(&plan, 3, &MessagesOptions::default(), 1 << 15)?);
        times[2].push(milliseconds(begin));
    }
    let [plan, boxes, messages] = times.map(|times| median(times).unwrap_or(f64::NAN));
    Ok(Ready { ranks, from, to, shape, plan, boxes, messages })
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "# Scheduling speed\n\n\
         Blocks of 8 on P processes to blocks of 25 on as many: 32 messages a rank. Microseconds for each rank; the median\n",
    );
    writeln!(
        text,
        "of {} repetitions for the closed form, one run for the others, which see all messages at once and include\n\
         building them.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/schedule.json`.\n",
        results.repetitions, results.machine, results.command
    )?;
    text.push_str(
        "| P = Q | messages | steps | closed form | edge colouring | matchings (`stepwise`) |\n|---|---|---|---|---|---|\n",
    );
    let cell = |time: Option<f64>| time.map_or("-".to_string(), |time| format!("{time:.2}"));
    for row in &results.rows {
        writeln!(
            text,
            "| {} | {} | {} | {:.3} | {} | {} |",
            row.processes,
            row.messages,
            row.steps,
            row.closed_form,
            cell(row.colouring),
            cell(row.matchings)
        )?;
    }
    writeln!(
        text,
        "\nOne rank of a grid of 1,000,000 (blocks of 64 to blocks of 125, {} messages), set-up included: {:.1} microseconds.",
        results.messages_of_one, results.one_of_a_million
    )?;
    text.push_str(
        "\n## One rank of an engine between processes\n\n\
         Milliseconds until it could move its first byte: the plan, which every rank makes of all, and then its boxes (all\n\
         ranks on one node) or its messages in their steps, of `optimal`. Every rank has something for every other, or\n\
         nearly. From 16,384 messages on each rank goes by the closed form alone, also where grids share ranks or the\n\
         array is shorter than a period: before, 1,024 ranks took 1.5 s each, and 4,096 took 20 s.\n\n\
         | ranks | from | to | array | plan | boxes | messages |\n|---|---|---|---|---|---|---|\n",
    );
    for Ready { ranks, from, to, shape, plan, boxes, messages } in &results.ready {
        writeln!(text, "| {ranks} | {from} | {to} | {shape} | {plan:.2} | {boxes:.2} | {messages:.2} |")?;
    }
    Ok(text)
}
