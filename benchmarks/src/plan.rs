//! How long one rank takes to plan: the experiment of the ASPEN paper, with all five methods.
//!
//! An array of 10,000 x 10,000, square grids of 2 to 32 a side, blocks of 1024 x 1024, 256 x 256, 30 x 50 and
//! 654 x 321 on either side: 16 pairs, of which we take the geometric mean. As in the paper every method writes
//! its pieces into memory it was given. Only our default does more: it allocates, and brings its answer into the
//! canonical form. The four others just list.

use crate::chart::{Chart, Line};
use crate::machine::{Failure, Machine, keep, median};
use reshard_plan::{Distribution, Layout, Method, Move, Overlap, Pattern, Plan, Problem};
use serde::Serialize;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

const SIDE: u64 = 10_000;
const GRIDS: [u64; 5] = [2, 4, 8, 16, 32];
const BLOCKS: [(u64, u64); 4] = [(1024, 1024), (256, 256), (30, 50), (654, 321)];
/// An array that has something for each of a million ranks.
const LARGE_SIDE: u64 = 2_000_000;
const ARRAYS: [u64; 4] = [10_000, 1_000_000, 100_000_000, 1_000_000_000];
const REPETITIONS: usize = 15;
/// Ranks planned in one timing, spread over the grid.
const RANKS: u64 = 16;

/// Microseconds for one rank, by method, and how many pieces and runs it found on average.
#[derive(Serialize)]
struct Row {
    array: u64,
    from_grid: u64,
    to_grid: u64,
    /// By method, in the order of `Method::ALL`; NaN-free: the geometric mean of medians.
    microseconds: Vec<Option<f64>>,
    /// `Problem::sends`, all that a caller waits for.
    sends_microseconds: f64,
    pieces: f64,
    runs: f64,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    repetitions: usize,
    methods: Vec<&'static str>,
    equal_grids: Vec<Row>,
    growing_remote_grid: Vec<Row>,
    growing_array: Vec<Row>,
    hosted: Vec<HostedRow>,
}

/// `Plan::for_rank` for a rank of one grid, with the other grid on ranks of its own, as in two coupled jobs.
#[derive(Serialize)]
struct HostedRow {
    array: u64,
    own_grid: u64,
    other_grid: u64,
    /// For a rank that sends, and for one that receives: the geometric mean of medians, and the slowest pair of blocks.
    source_microseconds: [f64; 2],
    target_microseconds: [f64; 2],
}

pub fn run() -> Result<(), Failure> {
    let equal = GRIDS.map(|grid| Case::new(SIDE, grid, grid, true));
    let remote = GRIDS.map(|grid| Case::new(SIDE, 2, grid, true));
    let arrays = ARRAYS.map(|array| Case::new(array, 2, 2, false));
    let mut cases = equal.into_iter().chain(remote).chain(arrays).collect::<Result<Vec<_>, _>>()?;
    // All cases take turns in every repetition, so that a change of the machine's clock meets them alike.
    for repetition in 1..=REPETITIONS {
        eprintln!("repetition {repetition} of {REPETITIONS}");
        cases.iter_mut().try_for_each(Case::repeat)?;
    }
    let hosted = GRIDS
        .map(|grid| (SIDE, 2, grid))
        .into_iter()
        .chain([(LARGE_SIDE, 1024, 1024), (LARGE_SIDE, 1024, 2)]);
    let hosted = hosted.map(|(array, own, other)| hosted_row(array, own, other)).collect::<Result<_, _>>()?;
    let mut rows = cases.into_iter().map(Case::row);
    let mut next = |count: usize| rows.by_ref().take(count).collect::<Result<Vec<Row>, Failure>>();
    let results = Results {
        benchmark: "plan",
        command: "cargo xtask bench plan",
        machine: Machine::here(),
        repetitions: REPETITIONS,
        methods: Method::ALL.iter().map(|method| method.name()).collect(),
        equal_grids: next(GRIDS.len())?,
        growing_remote_grid: next(GRIDS.len())?,
        growing_array: next(ARRAYS.len())?,
        hosted,
    };
    let text = report(&results)?;
    keep("plan", &results, &text)?;
    std::fs::write("docs/plan-speed.svg", chart(&results).svg())?;
    Ok(())
}

/// The default method alone, for counting instructions: every case of equal grids, `rounds` times.
pub fn run_loop(rounds: usize) -> Result<(), Failure> {
    for grid in GRIDS {
        for problem in problems(SIDE, grid, grid)? {
            for _ in 0..rounds {
                for rank in sample(grid) {
                    black_box(problem.sends(black_box(rank), Method::default())?);
                }
            }
        }
    }
    Ok(())
}

/// The sixteen pairs of block sizes between two square grids.
fn problems(array: u64, from: u64, to: u64) -> Result<Vec<Problem>, Failure> {
    let over = |grid: u64, (rows, columns): (u64, u64)| -> Result<Distribution, Failure> {
        Ok(format!("{grid}x{grid}/{rows}x{columns}").parse::<Pattern>()?.over(&[array, array])?)
    };
    let mut problems = Vec::new();
    for from_block in BLOCKS {
        for to_block in BLOCKS {
            problems.push(Problem::new(over(from, from_block)?, over(to, to_block)?)?);
        }
    }
    Ok(problems)
}

fn sample(grid: u64) -> impl Iterator<Item = u64> {
    let ranks = grid * grid;
    let step = ranks.div_ceil(RANKS);
    (0..ranks).step_by(step as usize)
}

/// One row of a table being measured: sixteen problems, and the timings of each so far.
struct Case {
    array: u64,
    from: u64,
    to: u64,
    /// The slow methods take part.
    slow: bool,
    problems: Vec<Timed>,
}

struct Timed {
    problem: Problem,
    by_method: Vec<Vec<f64>>,
    sends: Vec<f64>,
}

impl Case {
    fn new(array: u64, from: u64, to: u64, slow: bool) -> Result<Self, Failure> {
        let timed =
            |problem| Timed { problem, by_method: vec![Vec::new(); Method::ALL.len()], sends: Vec::new() };
        let problems = problems(array, from, to)?.into_iter().map(timed).collect();
        Ok(Self { array, from, to, slow, problems })
    }

    fn repeat(&mut self) -> Result<(), Failure> {
        let mut pieces: Vec<(u64, u64, u64)> = Vec::with_capacity(1 << 20);
        for Timed { problem, by_method, sends } in &mut self.problems {
            for (method, times) in Method::ALL.into_iter().zip(by_method) {
                if self.slow || method == Method::default() {
                    times.push(time_overlaps(problem, self.from, method, &mut pieces)?);
                }
            }
            sends.push(time_sends(problem, self.from)?);
        }
        Ok(())
    }

    fn row(self) -> Result<Row, Failure> {
        let mut logs = vec![0.0; Method::ALL.len()];
        let (mut sends_log, mut piece_log, mut run_log) = (0.0, 0.0, 0.0);
        let count = self.problems.len() as f64;
        for Timed { problem, by_method, sends } in self.problems {
            for (log, times) in logs.iter_mut().zip(by_method) {
                *log += median(times).map_or(f64::NAN, f64::ln);
            }
            sends_log += median(sends).map_or(f64::NAN, f64::ln);
            let part = problem.sends(0, Method::default())?;
            let runs: Vec<_> = part.overlaps().iter().flat_map(Overlap::runs).collect();
            piece_log += (runs.iter().map(|run| run.count).sum::<u64>() as f64).ln();
            run_log += (runs.len() as f64).ln();
        }
        let mean = |log: f64| (log / count).exp();
        let defined = |log: &f64| if log.is_nan() { None } else { Some(mean(*log)) };
        Ok(Row {
            array: self.array,
            from_grid: self.from,
            to_grid: self.to,
            microseconds: logs.iter().map(defined).collect(),
            sends_microseconds: mean(sends_log),
            pieces: mean(piece_log),
            runs: mean(run_log),
        })
    }
}

/// Microseconds for one rank to find its overlaps on both axes.
fn time_overlaps(
    problem: &Problem,
    grid: u64,
    method: Method,
    pieces: &mut Vec<(u64, u64, u64)>,
) -> Result<f64, Failure> {
    let ranks: Vec<(u64, u64)> = sample(grid).map(|rank| (rank / grid, rank % grid)).collect();
    let sides = [problem.sides(0), problem.sides(1)];
    // Fast methods are timed over many rounds, slow ones over few: about 50 microseconds at least.
    let rounds = if matches!(method, Method::Naive) { 1 } else { 20 };
    let begin = Instant::now();
    for _ in 0..rounds {
        for &(row, column) in &ranks {
            if method == Method::default() {
                for (side, process) in sides.iter().zip([row, column]) {
                    black_box(Overlap::new(side, black_box(process))?);
                }
                continue;
            }
            pieces.clear();
            for (side, process) in sides.iter().zip([row, column]) {
                method.visit(side, black_box(process), &mut |peer, start, len| {
                    pieces.push((peer, start, len));
                })?;
            }
            black_box(&pieces);
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (rounds * ranks.len()) as f64)
}

/// Microseconds for all a caller asks for: one rank's part, coordinates, both axes and all memory.
fn time_sends(problem: &Problem, grid: u64) -> Result<f64, Failure> {
    let ranks: Vec<u64> = sample(grid).collect();
    let rounds = 20;
    let begin = Instant::now();
    for _ in 0..rounds {
        for &rank in &ranks {
            black_box(problem.sends(black_box(rank), Method::default())?);
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (rounds * ranks.len()) as f64)
}

/// The sixteen pairs of blocks in turns, a rank in the middle of its grid.
fn hosted_row(array: u64, own: u64, other: u64) -> Result<HostedRow, Failure> {
    let layout = |grid: u64, (rows, columns): (u64, u64), first: u64| -> Result<Layout, Failure> {
        let ranks = format!("{first}..{}", first + grid * grid);
        Ok(format!("{grid}x{grid}/{rows}x{columns} ranks={ranks} of {array}x{array}").parse()?)
    };
    let rank = own * own / 2;
    let mut sides = Vec::new();
    for sends in [true, false] {
        let mut moves = Vec::new();
        for mine in BLOCKS {
            for theirs in BLOCKS {
                let (here, there) = (layout(own, mine, 0)?, layout(other, theirs, own * own)?);
                let (from, to) = if sends { (here, there) } else { (there, here) };
                moves.push((Move::of::<f64>(from, to)?, Vec::new()));
            }
        }
        for _ in 0..REPETITIONS {
            for (moving, times) in &mut moves {
                let begin = Instant::now();
                for _ in 0..20 {
                    black_box(Plan::for_rank(vec![black_box(&*moving).clone()], rank)?);
                }
                times.push(begin.elapsed().as_secs_f64() * 1e6 / 20.0);
            }
        }
        let medians: Vec<f64> = moves.into_iter().filter_map(|(_, times)| median(times)).collect();
        let mean = (medians.iter().map(|time| time.ln()).sum::<f64>() / medians.len() as f64).exp();
        sides.push([mean, medians.iter().copied().fold(0.0, f64::max)]);
    }
    Ok(HostedRow {
        array,
        own_grid: own,
        other_grid: other,
        source_microseconds: sides[0],
        target_microseconds: sides[1],
    })
}

fn report(results: &Results) -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "# Planning speed\n\n\
         The experiment of the ASPEN paper (seed of `overlap/aspen.rs`): an array of 10,000 x 10,000 between square\n\
         grids, blocks of 1024 x 1024, 256 x 256, 30 x 50 and 654 x 321 on either side. Microseconds for one rank to\n\
         find everything it sends, both axes together: geometric mean over the 16 block pairs of the medians of\n",
    );
    writeln!(text, "{} interleaved repetitions.\n", results.repetitions)?;
    writeln!(
        text,
        "Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/plan.json`.\n",
        results.machine, results.command
    )?;
    text.push_str(
        "`naive`, `classical`, `falls` and `scan` list their pieces into memory they are given, as in the paper.\n\
         `aspen`, the default, gives canonical runs in memory of its own; `sends` is the whole call\n\
         `Problem::sends(rank)`. `pieces` counts the pieces of one period (`falls` and `scan` list just these; `naive`\n\
         looks at every element, `classical` at all periods), `runs` what we answer with. All cases and methods take\n\
         turns, so that a change of the machine's clock meets them alike.\n\n\
         As the array grows past 10,000, whole periods fit into it and the number of runs reaches what the two layouts\n\
         have; from there on the time does not change, whatever the length.\n\n\
         ![Planning time by grid size](plan-speed.svg)\n",
    );
    let mut table = |title: &str, rows: &[Row]| -> std::fmt::Result {
        writeln!(
            text,
            "\n## {title}\n\n| array | grids | {} | sends | pieces | runs |",
            results.methods.join(" | ")
        )?;
        writeln!(text, "|---|---|{}---|---|---|", "---|".repeat(results.methods.len()))?;
        for row in rows {
            let cells: Vec<_> = row
                .microseconds
                .iter()
                .map(|cell| cell.map_or("-".to_string(), |time| format!("{time:.3}")))
                .collect();
            writeln!(
                text,
                "| {0} x {0} | {1}x{1} to {2}x{2} | {3} | {4:.3} | {5:.0} | {6:.0} |",
                row.array,
                row.from_grid,
                row.to_grid,
                cells.join(" | "),
                row.sends_microseconds,
                row.pieces,
                row.runs
            )?;
        }
        Ok(())
    };
    table("Both grids grow", &results.equal_grids)?;
    table("The other grid grows", &results.growing_remote_grid)?;
    table("The array grows", &results.growing_array)?;
    text.push_str(
        "\n## A plan for one hosted rank\n\n\
         `Plan::for_rank`: one rank of a grid, the other grid on ranks of its own, as in two coupled jobs. Microseconds, the\n\
         moves copied each time: geometric mean over the 16 block pairs, and the slowest pair. A rank that receives has the\n\
         tracks of its elements, a rank that sends only its strides: whom it sends to is asked for with `Plan::with_peers`.\n\n\
         | array | hosted on | other grid | sends | slowest | receives | slowest |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &results.hosted {
        let (source, target) = (row.source_microseconds, row.target_microseconds);
        writeln!(
            text,
            "| {0} x {0} | {1}x{1} | {2}x{2} | {3:.2} | {4:.2} | {5:.2} | {6:.2} |",
            row.array, row.own_grid, row.other_grid, source[0], source[1], target[0], target[1]
        )?;
    }
    Ok(text)
}

fn chart(results: &Results) -> Chart {
    let lines = |rows: &[Row]| -> Vec<Line> {
        (0..results.methods.len())
            .map(|method| Line {
                name: results.methods[method].to_string(),
                joined: true,
                points: rows
                    .iter()
                    .filter_map(|row| Some((row.to_grid as f64, row.microseconds[method]?)))
                    .collect(),
            })
            .collect()
    };
    Chart {
        title: "Microseconds for one rank to plan, 10,000 x 10,000, geometric mean of 16 block pairs"
            .to_string(),
        panels: vec![
            ("g x g to g x g".to_string(), lines(&results.equal_grids)),
            ("2 x 2 to g x g".to_string(), lines(&results.growing_remote_grid)),
        ],
        x_label: "g, processes a side".to_string(),
        y_label: "microseconds".to_string(),
    }
}
