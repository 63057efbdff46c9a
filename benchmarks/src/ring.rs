//! Rings: how long a million processes take to solve, and when redistributing pays.
//!
//! Four kinds of rings with flows of up to millions of items a link; the time to solve one and to check the program. Then
//! the application of the advisor, under policies that do not look and one that does, for links from nearly free to dear.

use crate::chart::{Chart, Line};
use crate::machine::{Failure, Machine, keep, median};
use reshard_ring::{Application, Direction, Policy, RingProblem, check, solve};
use serde::Serialize;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const REPETITIONS: usize = 5;

/// The application: processes, items for each, steps, time of an item.
const PROCS: usize = 16;
const ITEMS: u64 = 500;
const STEPS: u64 = 500;
const SLOWNESS: u64 = 10_000;
const SEEDS: u64 = 10;
/// What an item takes over a link, as part of what it takes in a step.
const COSTS: [f64; 7] = [0.1, 0.5, 2.0, 10.0, 50.0, 200.0, 1_000.0];
const DRIFTS: [u64; 2] = [1, 5];
const POLICIES: [(&str, Policy); 5] = [
    ("never", Policy::Never),
    ("every step", Policy::Every(1)),
    ("every 10", Policy::Every(10)),
    ("every 100", Policy::Every(100)),
    ("when it pays", Policy::WhenItPays),
];

#[derive(Serialize)]
struct Speed {
    kind: &'static str,
    processes: usize,
    method: &'static str,
    transfers: usize,
    solve_seconds: f64,
    check_seconds: f64,
    gap: f64,
}

/// Time of an application under all policies, as multiples of balanced loads in every step for nothing.
#[derive(Serialize)]
struct Paid {
    drift_percent: u64,
    link_cost: f64,
    relative: Vec<f64>,
    /// Redistributions of the last policy, in the mean.
    moves: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    repetitions: usize,
    speed: Vec<Speed>,
    policies: Vec<&'static str>,
    paid: Vec<Paid>,
}

pub fn run() -> Result<(), Failure> {
    let mut speed = Vec::new();
    for processes in SIZES {
        eprintln!("{processes} processes");
        for (kind, ring) in rings(processes)? {
            speed.push(measure(kind, &ring)?);
        }
    }
    let mut paid = Vec::new();
    for drift_percent in DRIFTS {
        eprintln!("speeds that drift by {drift_percent} %");
        for link_cost in COSTS {
            paid.push(pay(drift_percent, link_cost)?);
        }
    }
    let policies = POLICIES.iter().map(|policy| policy.0).collect();
    let results = Results {
        benchmark: "ring",
        command: "cargo xtask bench ring",
        machine: Machine::here(),
        repetitions: REPETITIONS,
        speed,
        policies,
        paid,
    };
    let text = report(&results)?;
    keep("ring", &results, &text)?;
    std::fs::write("docs/ring-advisor.svg", chart(&results).svg())?;
    Ok(())
}

/// The same ring of each kind every time.
fn rings(processes: usize) -> Result<Vec<(&'static str, RingProblem)>, Failure> {
    let mut state = 2026_u64;
    let mut within = |least: u64, most: u64| {
        // Knuth's multiplier; the high bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) % (most - least + 1)
    };
    let mut ring = |least: u64, most_cost: u64| -> Result<RingProblem, Failure> {
        let loads: Vec<u64> = (0..processes).map(|_| least + within(0, 1_000_000)).collect();
        let mut targets = loads.clone();
        targets.rotate_left(processes / 3);
        let mut costs = || (0..processes).map(|_| within(1, most_cost)).collect::<Vec<_>>();
        let (right, left) = (costs(), costs());
        Ok(RingProblem::new(loads, targets)?.with_right(right)?.with_left(left)?)
    };
    Ok(vec![
        ("one direction, any links", ring(1, 10)?.with_direction(Direction::Uni)?),
        ("both, equal links", ring(1, 1)?),
        ("both, any links, light", ring(1_000_000_000, 10)?),
        ("both, any links", ring(1, 10)?),
        ("in order, any links", ring(1, 10)?.in_order()?),
    ])
}

fn measure(kind: &'static str, ring: &RingProblem) -> Result<Speed, Failure> {
    let (mut solving, mut checking) = (Vec::new(), Vec::new());
    let solution = solve(ring)?;
    for _ in 0..REPETITIONS {
        let begin = Instant::now();
        let solution = black_box(solve(black_box(ring))?);
        solving.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        black_box(check(ring, solution.program())?);
        checking.push(begin.elapsed().as_secs_f64());
    }
    Ok(Speed {
        kind,
        processes: ring.procs(),
        method: solution.method().name(),
        transfers: solution.program().transfers().len(),
        solve_seconds: median(solving).unwrap_or(f64::NAN),
        check_seconds: median(checking).unwrap_or(f64::NAN),
        gap: solution.gap(),
    })
}

fn pay(drift_percent: u64, link_cost: f64) -> Result<Paid, Failure> {
    let cost = (link_cost * SLOWNESS as f64) as u64;
    let ring = RingProblem::new(vec![ITEMS; PROCS], vec![ITEMS; PROCS])?;
    let ring = ring.with_right(vec![cost; PROCS])?.with_left(vec![cost; PROCS])?;
    let (mut relative, mut moves) = (vec![0.0; POLICIES.len()], 0);
    for seed in 0..SEEDS {
        let application =
            Application { ring: ring.clone(), steps: STEPS, slowness: SLOWNESS, drift_percent, seed };
        let ideal = application.run(Policy::Every(1))?.computing as f64;
        for (sum, (_, policy)) in relative.iter_mut().zip(POLICIES) {
            let outcome = application.run(policy)?;
            *sum += outcome.total() as f64 / ideal / SEEDS as f64;
            moves += if policy == Policy::WhenItPays { outcome.moves } else { 0 };
        }
    }
    Ok(Paid { drift_percent, link_cost, relative, moves: moves as f64 / SEEDS as f64 })
}

fn chart(results: &Results) -> Chart {
    let panel = |drift: u64| {
        let points = |at: usize| {
            let of_drift = results.paid.iter().filter(|paid| paid.drift_percent == drift);
            of_drift.map(|paid| (paid.link_cost, paid.relative[at])).collect()
        };
        let line = |(at, (name, _)): (usize, &(&str, Policy))| Line {
            name: name.to_string(),
            points: points(at),
            joined: true,
        };
        (format!("speeds drift by {drift} % a step"), POLICIES.iter().enumerate().map(line).collect())
    };
    Chart {
        title: "When redistributing pays: time of an application, 1 = balanced for nothing".to_string(),
        panels: DRIFTS.into_iter().map(panel).collect(),
        x_label: "time of an item over a link / in a step".to_string(),
        y_label: "time".to_string(),
    }
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::from("# Rings: speed, and when redistributing pays\n\n");
    writeln!(
        text,
        "Loads of up to a million items a process, shifted by a third of the ring. Milliseconds to solve a ring and to check\n\
         its program, the median of {}; the gap is what the program may be above the optimum.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/ring.json`.\n",
        results.repetitions, results.machine, results.command
    )?;
    text.push_str("| ring | processes | method | transfers | solve (ms) | check (ms) | gap |\n|---|---|---|---|---|---|---|\n");
    for row in &results.speed {
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} % |",
            row.kind,
            row.processes,
            row.method,
            row.transfers,
            1e3 * row.solve_seconds,
            1e3 * row.check_seconds,
            100.0 * row.gap
        )?;
    }
    writeln!(
        text,
        "\n## When it pays\n\n\
         {PROCS} processes with {ITEMS} items each, {STEPS} steps, both directions, equal links; speeds drift at random between a\n\
         quarter and four times the average. Time of the whole run as a multiple of balanced loads in every step for nothing,\n\
         the mean of {SEEDS} drifts. Links from nearly free to dear: what an item takes over a link as a multiple of what it takes\n\
         in a step. The policy \"when it pays\" is the library's `Advisor`, with the number of its redistributions.\n\n\
         ![Time by the cost of links](ring-advisor.svg)\n"
    )?;
    writeln!(text, "| drift | link / item | {} | redistributions |", results.policies.join(" | "))?;
    writeln!(text, "|---|---|{}---|", "---|".repeat(results.policies.len()))?;
    for paid in &results.paid {
        let cells: Vec<String> = paid.relative.iter().map(|time| format!("{time:.3}")).collect();
        writeln!(
            text,
            "| {} % | {} | {} | {:.1} |",
            paid.drift_percent,
            paid.link_cost,
            cells.join(" | "),
            paid.moves
        )?;
    }
    Ok(text)
}
