//! The scheduling paper's experiment again: its examples on sixteen hosts with slow links.
//!
//! Desprez et al. timed their schedules on a Paragon. Here hosts are network namespaces whose links are shaped, both ways, so
//! slow that the processors are not the limit: one port to send and one to receive, as in the model. `reshard bench` runs all
//! ways in turns in one job; beside each stand the bound and what `reshard simulate` says of the same schedule.

use crate::answer::{Answer, launcher};
use crate::chart::{Chart, Line};
use crate::machine::{Failure, Machine, keep};
use reshard::cost::CostModel;
use reshard::schedule::{Options, Schedule, Strategy};
use reshard::simulate::{self, Network};
use reshard_plan::{Distribution, Problem};
use reshard_testkit::hosts::{Hosts, Rate};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

const RATE: Rate = Rate { megabits: 50 };

/// Number, source, destination, ranks, what the paper measured for long vectors, and our goal: ratios to the caterpillar.
const EXAMPLES: [(&str, &str, &str, usize, &str, f64); 3] = [
    ("1", "16/3", "16/5", 16, "0.44 to 0.64", 0.6),
    ("2", "16/7", "16/11", 16, "0.86", 0.75),
    ("4", "12/4", "8/3", 12, "about 0.6", 0.7),
];

/// Doubles of a vector.
const LENGTHS: [u64; 6] = [1_200, 12_000, 120_000, 480_000, 960_000, 1_920_000];

/// Ways to compare, with the strategy whose simulation says what to expect.
const WAYS: [(&str, Option<Strategy>); 7] = [
    ("optimal", Some(Strategy::Optimal)),
    ("min-cost", Some(Strategy::MinCost)),
    ("async", Some(Strategy::Async)),
    ("eager", Some(Strategy::Eager)),
    ("pipelined-caterpillar", Some(Strategy::Caterpillar)),
    ("caterpillar", Some(Strategy::Caterpillar)),
    ("alltoallv", None),
];

/// Those that are ours: the papers' own and the collective are to compare with.
const OURS: [&str; 4] = ["optimal", "min-cost", "async", "eager"];

const REPETITIONS: &str = "9";

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    megabits: u32,
    runs: Vec<Run>,
}

/// One example at one length.
#[derive(Serialize)]
struct Run {
    example: &'static str,
    elems: u64,
    /// Seconds below which no schedule comes, start-ups left out: the busiest port's bytes over what a link lets through.
    bound: f64,
    /// What the simulation says, in seconds, for each way that has a strategy: without barriers, and for the caterpillar with.
    simulated: Vec<(&'static str, f64)>,
    answer: Answer,
}

impl Run {
    fn best_of_ours(&self) -> (&'static str, f64) {
        let times = OURS.map(|name| (name, self.answer.median(name)));
        times.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", f64::NAN))
    }

    fn simulated(&self, name: &str) -> f64 {
        self.simulated.iter().find(|(way, _)| *way == name).map_or(f64::NAN, |way| way.1)
    }
}

/// `program` is `reshard`, built for speed.
pub fn run(program: &str) -> Result<(), Failure> {
    let program = std::fs::canonicalize(program)?;
    let hosts = Hosts::up(16, Some(RATE))
        .map_err(|why| format!("several hosts cannot be made here ({why}); it takes root, ip and tc"))?;
    let mut runs = Vec::new();
    for (example, from, to, ranks, ..) in EXAMPLES {
        for elems in LENGTHS {
            eprintln!("example {example}, {elems} doubles");
            runs.push(measure(&hosts, &program, example, [from, to], ranks, elems)?);
        }
    }
    let (command, machine) = ("cargo xtask bench network", Machine::here());
    let results = Results { benchmark: "network", command, machine, megabits: RATE.megabits, runs };
    let text = report(&results)?;
    keep("network", &results, &text)?;
    std::fs::write("docs/network-speed.svg", chart(&results).svg())?;
    Ok(())
}

fn measure(
    hosts: &Hosts,
    program: &Path,
    example: &'static str,
    [from, to]: [&str; 2],
    ranks: usize,
    elems: u64,
) -> Result<Run, Failure> {
    let names = WAYS.map(|way| way.0).join(",");
    let mut command = hosts.launch(Path::new(launcher()?), "Open MPI", &vec![1; ranks]);
    command.arg(program).args(["bench", "--shape", &elems.to_string(), "--from", from, "--to", to]);
    command.args(["--only", &names, "--repeat", REPETITIONS, "--json"]);
    let answer = Answer::of(&mut command)?;
    let problem = Problem::new(of(from, elems)?, of(to, elems)?)?;
    // Start-ups are left out: what a message costs to start here is the launcher's and the kernel's business.
    let cost = CostModel::new(0.0, 8.0 / RATE.payload())?;
    let machine = simulate::Machine { cost, network: Network::Flat };
    let schedule = |strategy| {
        Schedule::with(&problem, &Options::default().with_strategy(strategy).with_shared_ranks(true))
    };
    let mut simulated = Vec::new();
    for (name, strategy) in WAYS {
        let Some(strategy) = strategy else { continue };
        // In lockstep, every step waits for its slowest.
        let timeline = simulate::simulate(&schedule(strategy)?, &machine, name == "caterpillar")?;
        simulated.push((name, timeline.makespan()));
    }
    let messages = schedule(Strategy::Eager)?;
    let bound = cost.bound(messages.steps().iter().flat_map(|step| &step.messages));
    Ok(Run { example, elems, bound, simulated, answer })
}

fn of(pattern: &str, elems: u64) -> Result<Distribution, Failure> {
    Ok(format!("{pattern} of {elems}").parse()?)
}

fn report(results: &Results) -> Result<String, Failure> {
    let first = &results.runs.first().ok_or("nothing was run")?.answer;
    let mut text = String::from("# Schedules on a network\n\n");
    writeln!(
        text,
        "Examples 1, 2 and 4 of Desprez et al. on sixteen hosts: network namespaces of one machine, each with a link of {RATE}\n\
         each way to a common switch, one rank on each, {}. Milliseconds, makespans, medians of {} repetitions in which all\n\
         ways take turns; every way was verified, element by element. The bound is W, the bytes of the busiest port over what\n\
         a link lets through, without start-ups; short vectors may take less, as a link lets the first 18 KB pass at once. Sockets\n\
         hold at most 128 KiB: with more, queues of slow links grow long and answers wait in them (1.19 of W instead of 1.10 in\n\
         example 1). `caterpillar` is the synchronous one: no rank begins a step before what it\n\
         sent in the one before is being received; all others go on as soon as they can.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/network.json`.\n\n\
         ![Time over the bound](network-speed.svg)\n",
        first.mpi, first.repetitions, results.machine, results.command
    )?;
    text.push_str("## Long vectors\n\n");
    text.push_str(
        "Ratio of the best of optimal, min-cost, async and eager to the caterpillar, and to the bound. *Simulated* is what\n\
         `reshard simulate` says of the same strategy, to the caterpillar with barriers and without.\n\n\
         | example | best | to the caterpillar | goal | the paper measured | simulated | to W | goal |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (example, from, to, _, paper, goal) in EXAMPLES {
        let longest = results.runs.iter().filter(|run| run.example == example).max_by_key(|run| run.elems);
        let Some(run) = longest else { continue };
        let (name, time) = run.best_of_ours();
        writeln!(
            text,
            "| {example}: {from} to {to} | {name} | {:.2} | {goal} | {paper} | {:.2}; {:.2} | {:.2} | 1.15 |",
            time / run.answer.median("caterpillar"),
            run.simulated(name) / run.simulated("caterpillar"),
            run.simulated(name) / run.simulated("pipelined-caterpillar"),
            time / run.bound,
        )?;
    }
    for (example, from, to, ..) in EXAMPLES {
        writeln!(text, "\n## Example {example}: {from} to {to}\n")?;
        let names = WAYS.map(|way| way.0);
        writeln!(text, "| doubles | W | {} |\n|---|---|{}", names.join(" | "), "---|".repeat(names.len()))?;
        for run in results.runs.iter().filter(|run| run.example == example) {
            write!(text, "| {} | {:.2} |", run.elems, run.bound * 1e3)?;
            for name in names {
                write!(text, " {:.2} |", run.answer.median(name) * 1e3)?;
            }
            text.push('\n');
        }
        if let Some(run) = results.runs.iter().rfind(|run| run.example == example) {
            write!(text, "| *simulated* | {:.2} |", run.bound * 1e3)?;
            for name in names {
                let time = run.simulated(name) * 1e3;
                write!(text, " {} |", if time.is_nan() { String::new() } else { format!("{time:.2}") })?;
            }
            text.push('\n');
        }
    }
    Ok(text)
}

fn chart(results: &Results) -> Chart {
    let panel = |example: &str, name: String| {
        let lines = WAYS.iter().map(|(way, _)| Line {
            name: (*way).to_string(),
            joined: true,
            points: results
                .runs
                .iter()
                .filter(|run| run.example == example)
                .map(|run| (run.elems as f64, run.answer.median(way) / run.bound))
                .collect(),
        });
        (name, lines.collect())
    };
    let panels = EXAMPLES.map(|(example, from, to, ..)| panel(example, format!("{example}: {from} to {to}")));
    Chart {
        title: format!("Time over the one-port bound W, sixteen hosts with links of {RATE}"),
        panels: panels.into(),
        x_label: "doubles".into(),
        y_label: "time / W".into(),
    }
}
