//! Figures 4 and 5 of Prylli and Tourancheau, *Efficient block cyclic data redistribution*, measured again.
//!
//! Figure 4: in one dimension, the time in which a process finds what it shares with all others, by block size. The paper
//! compares scanning the blocks of both sides like a merge sort with taking every pair of elements of two blocks and solving a
//! linear congruence for it (its proposition 4). Figure 5: the elapsed time of redistributions of a matrix between random grids
//! of 14 to 16 processes with random blocks, by matrix size.

use crate::chart::{Dots, Scatter};
use crate::machine::{Failure, Machine, keep, median};
use reshard::engine::{Engine, Messages, MessagesOptions, PlainCopy, Threads};
use reshard::{Layout, Move, Plan, Redistribution};
use reshard_plan::{Distribution, Method, Overlap, Problem};
use reshard_testkit::Random;
use serde::Serialize;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Processes of either side of Figure 4. The paper does not say how many it had.
const PROCESSES: u64 = 4;

/// Pairs of block sizes of Figure 4, each from 1 to so many elements, their logarithms uniform.
const PAIRS: usize = 60;
const MAX_BLOCK: u64 = 128;

/// Timings of each pair, in each of which all strategies take turns, and scans in one timing.
const TIMINGS: usize = 9;
const SCANS: usize = 100;

/// Sides of the matrices of Figure 5, in doubles.
const SIDES: [u64; 6] = [128, 256, 512, 1024, 2048, 4096];

/// Redistributions for each side, and the runs of each.
const REDISTRIBUTIONS: usize = 10;
const RUNS: usize = 5;

/// Blocks of Figure 5: 1 to so many elements a side.
const MAX_SIDE_OF_BLOCK: u64 = 64;

const SEED: u64 = 1;

/// One pair of block sizes; microseconds for one process.
#[derive(Serialize)]
struct Scan {
    from_block: u64,
    to_block: u64,
    average_block: f64,
    scanning: f64,
    congruences: f64,
    ours: f64,
}

/// One redistribution; milliseconds.
#[derive(Serialize)]
struct Moved {
    side: u64,
    from: String,
    to: String,
    threads: f64,
    messages: f64,
    copy: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    /// The system's load average when the measurement began: what other programs ran.
    load: Option<f64>,
    figure_4: Vec<Scan>,
    figure_5: Vec<Moved>,
}

pub fn run() -> Result<(), Failure> {
    let load = load_average();
    let mut random = Random::new(SEED);
    let figure_4 = (0..PAIRS).map(|_| scan(&mut random)).collect::<Result<Vec<_>, Failure>>()?;
    let mut figure_5 = Vec::new();
    for side in SIDES {
        eprintln!("matrices of {side} x {side}");
        for _ in 0..REDISTRIBUTIONS {
            figure_5.push(redistribution(&mut random, side)?);
        }
    }
    let (command, machine) = ("cargo xtask bench figures", Machine::here());
    let results = Results { benchmark: "figures", command, machine, load, figure_4, figure_5 };
    keep("figures", &results, &report(&results)?)?;
    std::fs::write("docs/figures-speed-4.svg", chart_4(&results).svg())?;
    std::fs::write("docs/figures-speed-5.svg", chart_5(&results).svg())?;
    Ok(())
}

/// The load average of the last minute, where the system tells it.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Draws two block sizes and times all strategies on an array of one period.
fn scan(random: &mut Random) -> Result<Scan, Failure> {
    let mut block = || {
        let part = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        ((MAX_BLOCK as f64).powf(part)).round() as u64
    };
    let (from_block, to_block) = (block(), block());
    let (from_period, to_period) = (PROCESSES * from_block, PROCESSES * to_block);
    let period = from_period / gcd(from_period, to_period) * to_period;
    let over = |block: u64| format!("{PROCESSES}/{block} of {period}").parse::<Distribution>();
    let problem = Problem::new(over(from_block)?, over(to_block)?)?;
    let side = problem.sides(0);
    let process = random.within(0, PROCESSES - 1);
    // All strategies find the same elements.
    let mut scanned = 0;
    Method::Scan.visit(&side, process, &mut |_, _, len| scanned += len)?;
    let solved = congruences(process, from_block, to_block, &mut Vec::new());
    let overlap = Overlap::new(&side, process)?;
    let ours: u64 = overlap.runs().iter().map(|run| run.count * run.len).sum();
    if [scanned, solved, ours] != [period / PROCESSES; 3] {
        let found = format!("{scanned}, {solved} and {ours} elements were found");
        return Err(format!("{from_block} to {to_block}: {found}").into());
    }
    let mut times: [Vec<f64>; 3] = Default::default();
    let (mut pieces, mut patterns) = (Vec::new(), Vec::new());
    for _ in 0..TIMINGS {
        times[0].push(microseconds(|| {
            pieces.clear();
            Method::Scan.visit(&side, black_box(process), &mut |peer, start, len| {
                pieces.push((peer, start, len));
            })?;
            black_box(&pieces);
            Ok(())
        })?);
        times[1].push(microseconds(|| {
            patterns.clear();
            black_box(congruences(black_box(process), from_block, to_block, &mut patterns));
            Ok(())
        })?);
        times[2].push(microseconds(|| {
            black_box(Overlap::new(&side, black_box(process))?);
            Ok(())
        })?);
    }
    let [scanning, congruences, ours] = times.map(|times| median(times).unwrap_or(f64::NAN));
    let average_block = ((from_block * to_block) as f64).sqrt();
    Ok(Scan { from_block, to_block, average_block, scanning, congruences, ours })
}

/// Microseconds of one call, of [`SCANS`].
fn microseconds(mut call: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let begin = Instant::now();
    for _ in 0..SCANS {
        call()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / SCANS as f64)
}

/// Proposition 4: every element of a block of the process with every element of a block of each peer, the indices that both
/// have being a cyclic pattern or none. Lists (peer, first index) of the patterns of one period; returns their number.
fn congruences(process: u64, from_block: u64, to_block: u64, patterns: &mut Vec<(u64, u64)>) -> u64 {
    let (m, n) = ((PROCESSES * from_block) as i64, (PROCESSES * to_block) as i64);
    let g = gcd(m as u64, n as u64) as i64;
    let inverse = inverse(m / g, n / g);
    let before = patterns.len();
    for peer in 0..PROCESSES {
        for i in 0..from_block {
            for j in 0..to_block {
                // x = a modulo m, and x = b modulo n.
                let (a, b) = ((process * from_block + i) as i64, (peer * to_block + j) as i64);
                if (b - a) % g == 0 {
                    let steps = ((b - a) / g * inverse).rem_euclid(n / g);
                    patterns.push((peer, (a + m * steps) as u64));
                }
            }
        }
    }
    (patterns.len() - before) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The inverse of `a` modulo `n`, which have no common divisor; 0 modulo 1.
fn inverse(a: i64, n: i64) -> i64 {
    let (mut r, mut s) = ((a, n), (1, 0));
    while r.1 != 0 {
        let quotient = r.0 / r.1;
        (r, s) = ((r.1, r.0 - quotient * r.1), (s.1, s.0 - quotient * s.1));
    }
    s.0.rem_euclid(n)
}

/// Draws a redistribution of a square matrix of doubles, verifies it with both engines, and times them beside a plain copy.
fn redistribution(random: &mut Random, side: u64) -> Result<Moved, Failure> {
    let mut layout = || {
        let ranks = random.within(14, 16);
        let divisors: Vec<u64> = (1..=ranks).filter(|&rows| ranks.is_multiple_of(rows)).collect();
        let rows = divisors[random.within(0, divisors.len() as u64 - 1) as usize];
        let mut block = || random.within(1, MAX_SIDE_OF_BLOCK);
        format!("{rows}x{}/{}x{}", ranks / rows, block(), block())
    };
    let (from, to) = (layout(), layout());
    let over = |text: &str| format!("{text} of {side}x{side}").parse::<Layout>();
    let (from_layout, to_layout) = (over(&from)?, over(&to)?);
    let plan = Arc::new(Plan::new(vec![Move::of::<f64>(from_layout.clone(), to_layout.clone())?])?);
    let value = |index: &[u64]| (index[0] * side + index[1]) as f64;
    let (parts, mut moved) = (from_layout.parts(value)?, to_layout.parts(|_| -1.0)?);
    let expected = to_layout.parts(value)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let engines: [Box<dyn Engine>; 2] = [
        Box::new(Threads::new(Arc::clone(&plan), None)?),
        Box::new(Messages::new(plan, MessagesOptions::default())?),
    ];
    let mut engines = engines.map(Redistribution::with_boxed);
    for engine in &mut engines {
        moved.iter_mut().for_each(|part| part.fill(-1.0));
        engine.run(&parts, &mut moved)?;
        if moved != expected {
            return Err(format!("{from} to {to} of {side} x {side}: wrong elements").into());
        }
    }
    let mut copy = PlainCopy::new(cores)?;
    let source = vec![1_u8; (side * side * 8) as usize];
    let mut target = source.clone();
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..RUNS {
        for (engine, times) in engines.iter_mut().zip(&mut times) {
            times.push(engine.run(&parts, &mut moved)?.seconds * 1e3);
        }
        for (kind, streams) in [(2, false), (3, true)] {
            let begin = Instant::now();
            copy.run(&source, &mut target, streams)?;
            times[kind].push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [threads, messages, memcpy, stream] = times.map(|times| median(times).unwrap_or(f64::NAN));
    Ok(Moved { side, from, to, threads, messages, copy: memcpy.min(stream) })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn report(results: &Results) -> Result<String, Failure> {
    let mut text = String::from("# Two figures of the ScaLAPACK redistribution paper\n\n");
    writeln!(
        text,
        "Figures 4 and 5 of Prylli and Tourancheau, *Efficient block cyclic data redistribution*, measured again. The paper prints\n\
         them as plots, for a SUN Sparc5 and an Intel Paragon; its numbers are not repeated here.\n\n\
         Machine: {}; load average when it began: {}. Reproduce with `{}`; raw numbers in\n\
         `benchmarks/results/figures.json`.\n\n\
         ## Figure 4: scanning time by block size\n\n\
         One dimension, {PROCESSES} to {PROCESSES} processes, {PAIRS} random pairs of block sizes r and s from 1 to {MAX_BLOCK}, an array of one period:\n\
         microseconds for one process to find what it shares with all others, by the average block size, the square root of r s.\n\
         Medians of {TIMINGS} timings of {SCANS} calls, all strategies in turns. *Scanning* merges the blocks of both sides (`overlap/scan.rs`),\n\
         as the paper proposes; *congruences* takes every pair of elements of two blocks (proposition 4), with which the paper compares\n\
         it; *ours* is the default, `overlap/aspen.rs`, which also brings its answer into canonical form. All three found the same\n\
         number of elements.\n\n\
         ![Scanning time by block size](figures-speed-4.svg)\n",
        results.machine,
        results.load.map_or("unknown".to_string(), |load| format!("{load:.1}")),
        results.command
    )?;
    text.push_str("| average block | pairs | scanning | congruences | ours |\n|---|---|---|---|---|\n");
    for (low, high) in [(1.0, 4.0), (4.0, 16.0), (16.0, 64.0), (64.0, f64::MAX)] {
        let of = || results.figure_4.iter().filter(|scan| (low..high).contains(&scan.average_block));
        if of().next().is_none() {
            continue;
        }
        let name = if high == f64::MAX { format!("{low} and more") } else { format!("{low} to {high}") };
        writeln!(
            text,
            "| {name} | {} | {:.2} | {:.2} | {:.2} |",
            of().count(),
            mean(of().map(|scan| scan.scanning)),
            mean(of().map(|scan| scan.congruences)),
            mean(of().map(|scan| scan.ours))
        )?;
    }
    writeln!(
        text,
        "\nGeometric means.\n\n\
         ## Figure 5: random redistributions by matrix size\n\n\
         Square matrices of doubles, column-major, {REDISTRIBUTIONS} redistributions for each size between random grids of 14 to 16 ranks\n\
         with random blocks of 1 to {MAX_SIDE_OF_BLOCK} elements a side: milliseconds, medians of {RUNS} runs in turns. All ranks are in one\n\
         process: *threads* copies each byte once, on all cores; *messages* packs, sends and unpacks as the paper does, with a thread\n\
         for each rank and the strategy `optimal`. *Plain copy* is the faster of `memcpy` and a streaming copy of as many bytes. Every\n\
         element was verified.\n\n\
         ![Redistribution time by matrix size](figures-speed-5.svg)\n"
    )?;
    text.push_str("| matrix | threads | messages | plain copy | threads / copy | messages / copy |\n|---|---|---|---|---|---|\n");
    for side in SIDES {
        let of = || results.figure_5.iter().filter(move |moved| moved.side == side);
        let [threads, messages, copy] = [
            mean(of().map(|moved| moved.threads)),
            mean(of().map(|moved| moved.messages)),
            mean(of().map(|moved| moved.copy)),
        ];
        writeln!(
            text,
            "| {side} x {side} | {threads:.3} | {messages:.3} | {copy:.3} | {:.2} | {:.2} |",
            threads / copy,
            messages / copy
        )?;
    }
    text.push_str("\nGeometric means.\n");
    Ok(text)
}

fn chart_4(results: &Results) -> Scatter {
    let dots = |name: &str, value: fn(&Scan) -> f64| Dots {
        name: name.to_string(),
        points: results.figure_4.iter().map(|scan| (scan.average_block, value(scan))).collect(),
    };
    Scatter {
        title: "Microseconds to find what a process shares with all others, one dimension".to_string(),
        groups: vec![
            dots("scanning", |scan| scan.scanning),
            dots("congruences", |scan| scan.congruences),
            dots("ours", |scan| scan.ours),
        ],
        x_label: "average block size".to_string(),
        y_label: "microseconds".to_string(),
    }
}

fn chart_5(results: &Results) -> Scatter {
    let dots = |name: &str, value: fn(&Moved) -> f64| Dots {
        name: name.to_string(),
        points: results.figure_5.iter().map(|moved| (moved.side as f64, value(moved))).collect(),
    };
    Scatter {
        title: "Milliseconds of random redistributions on grids of 14 to 16 ranks, one process".to_string(),
        groups: vec![
            dots("plain copy", |moved| moved.copy),
            dots("messages", |moved| moved.messages),
            dots("threads", |moved| moved.threads),
        ],
        x_label: "rows of a square matrix of doubles".to_string(),
        y_label: "milliseconds".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congruences_find_every_index_of_both() {
        for (from_block, to_block) in [(1, 1), (3, 5), (4, 6), (7, 7), (8, 2)] {
            for process in 0..PROCESSES {
                let mut found = Vec::new();
                congruences(process, from_block, to_block, &mut found);
                let whole = gcd(PROCESSES * from_block, PROCESSES * to_block);
                let period = PROCESSES * from_block * (PROCESSES * to_block / whole);
                let mut expected: Vec<(u64, u64)> = (0..period)
                    .filter(|index| index / from_block % PROCESSES == process)
                    .map(|index| (index / to_block % PROCESSES, index))
                    .collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{from_block} to {to_block}");
            }
        }
    }
}
