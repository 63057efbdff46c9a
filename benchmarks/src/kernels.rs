//! Section 6 of Prylli and Tourancheau, *Efficient block cyclic data redistribution*, measured again: three kernels of ScaLAPACK in all
//! layouts of four processes, and what it saves to move the matrices to the best one and back.
//!
//! The example `kernels` does the measuring, under `mpirun`; this takes medians of several launches, asks the advisor about all
//! pairs of layouts (`advice.rs`), and writes the page (`page.rs`).

mod advice;
mod page;

use crate::answer::launcher;
use crate::machine::{Failure, Machine, median};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};

const SIZES: [usize; 4] = [512, 1024, 2048, 4096];

const KEPT: &str = "benchmarks/results/kernels.json";

/// Seconds of a redistribution: with a plan that is there already, and the first time.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Times {
    again: f64,
    first: f64,
}

/// What a launch of the example says of one size; only what it was asked for.
#[derive(Deserialize)]
struct Launch {
    mpi: String,
    blas: String,
    ranks: usize,
    layouts: Vec<String>,
    best: Option<[usize; 3]>,
    moved: Option<WithAndWithout>,
    redistributions: Option<Redistributions>,
}

/// Seconds of multiply, LU and solve in each layout, and moved from there to the best one and back; all three in a row, each in its
/// best layout.
#[derive(Clone, Serialize, Deserialize)]
struct WithAndWithout {
    stay: [Vec<f64>; 3],
    moved: [Vec<f64>; 3],
    chain: Vec<f64>,
    optimised_chain: f64,
}

/// From each layout to each: of the matrix, and of the right-hand sides.
#[derive(Clone, Serialize, Deserialize)]
struct Redistributions {
    square: Vec<Vec<Times>>,
    sides: Vec<Vec<Times>>,
}

/// All of one size, medians over the launches.
#[derive(Serialize, Deserialize)]
struct Answer {
    size: usize,
    mpi: String,
    blas: String,
    ranks: usize,
    layouts: Vec<String>,
    /// The number of the best layout of each kernel, in each launch.
    best: Vec<[usize; 3]>,
    with_and_without: WithAndWithout,
    redistributions: Redistributions,
}

#[derive(Serialize, Deserialize)]
struct Results {
    benchmark: String,
    command: String,
    machine: String,
    sizes: Vec<Answer>,
}

/// `program` is the example, built for speed; of no sizes, all are measured.
pub fn run(program: &str, sizes: &[String]) -> Result<(), Failure> {
    let number = |text: &String| {
        let known = text.parse().ok().filter(|size| SIZES.contains(size));
        known.ok_or_else(|| format!("size {text} was given; there are {SIZES:?}"))
    };
    let mut wanted = sizes.iter().map(number).collect::<Result<Vec<usize>, _>>()?;
    if wanted.is_empty() {
        wanted = SIZES.to_vec();
    }
    let machine = Machine::here().to_string();
    let kept = std::fs::read_to_string(KEPT).ok();
    let kept = kept.and_then(|text| serde_json::from_str::<Results>(&text).ok());
    // Numbers of two machines do not belong into one table.
    let kept = kept.filter(|results| results.machine == machine).map(|results| results.sizes);
    let mut answers = kept.unwrap_or_default();
    for size in wanted {
        answers.retain(|kept| kept.size != size);
        answers.push(measured(program, size)?);
    }
    answers.sort_by_key(|answer| answer.size);
    let command = "cargo xtask bench kernels".to_string();
    let results = Results { benchmark: "kernels".to_string(), command, machine, sizes: answers };
    let text = page::page(&results)?;
    println!("{text}");
    // One line for each size: most of it are tables that nobody reads line by line.
    std::fs::create_dir_all("benchmarks/results")?;
    std::fs::write(KEPT, serde_json::to_string(&results)?.replace("{\"size\"", "\n{\"size\"") + "\n")?;
    std::fs::write("docs/kernels.md", text)?;
    std::fs::write("docs/kernels.svg", page::chart(&results).svg())?;
    eprintln!("written: {KEPT}, docs/kernels.md, docs/kernels.svg");
    Ok(())
}

/// Launches and runs of each thing in a launch: what takes long is measured less often.
fn effort(size: usize) -> (usize, usize) {
    match size {
        ..=1024 => (3, 3),
        1025..=2048 => (1, 3),
        _ => (1, 1),
    }
}

fn measured(program: &str, size: usize) -> Result<Answer, Failure> {
    let (launches, repeat) = effort(size);
    let (mut best, mut moved, mut redistributions) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..launches {
        let ask = |part: &str, more: &[&str]| launch(program, size, repeat, part, more);
        let layouts = ask("best", &[])?.best.ok_or("the example named no best layouts")?;
        let numbers = layouts.map(|layout| layout.to_string()).join(",");
        let more = ["--best", &numbers];
        best.push(layouts);
        moved.push(ask("moved", &more)?.moved.ok_or("the example moved nothing")?);
        let answer = ask("redistributions", &more)?;
        redistributions.push(answer.redistributions.clone().ok_or("the example redistributed nothing")?);
        last = Some(answer);
    }
    let Launch { mpi, blas, ranks, layouts, .. } = last.ok_or("no launches")?;
    let with_and_without = merged_kernels(&moved)?;
    let redistributions = merged_redistributions(&redistributions)?;
    Ok(Answer { size, mpi, blas, ranks, layouts, best, with_and_without, redistributions })
}

fn launch(program: &str, size: usize, repeat: usize, part: &str, more: &[&str]) -> Result<Launch, Failure> {
    let mut command = Command::new(launcher()?);
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", program]);
    command.args(["--sizes", &size.to_string(), "--repeat", &repeat.to_string(), "--parts", part]).args(more);
    for variable in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"] {
        command.env(variable, "1");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the example kernels failed at size {size}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The median of a number over all launches, in tenths of microseconds.
fn merged<T>(launches: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let time = median(launches.iter().map(of).collect()).unwrap_or(f64::NAN);
    (time * 1e7).round() / 1e7
}

fn merged_kernels(launches: &[WithAndWithout]) -> Result<WithAndWithout, Failure> {
    let mut all = launches.first().ok_or("no launches")?.clone();
    for kernel in 0..all.stay.len() {
        for at in 0..all.chain.len() {
            all.stay[kernel][at] = merged(launches, |launch| launch.stay[kernel][at]);
            all.moved[kernel][at] = merged(launches, |launch| launch.moved[kernel][at]);
        }
    }
    for at in 0..all.chain.len() {
        all.chain[at] = merged(launches, |launch| launch.chain[at]);
    }
    all.optimised_chain = merged(launches, |launch| launch.optimised_chain);
    Ok(all)
}

fn merged_redistributions(launches: &[Redistributions]) -> Result<Redistributions, Failure> {
    let mut all = launches.first().ok_or("no launches")?.clone();
    let times = |of: &dyn Fn(&Redistributions) -> Times| Times {
        again: merged(launches, |launch| of(launch).again),
        first: merged(launches, |launch| of(launch).first),
    };
    for from in 0..all.square.len() {
        for to in 0..all.square.len() {
            all.square[from][to] = times(&|launch| launch.square[from][to]);
            all.sides[from][to] = times(&|launch| launch.sides[from][to]);
        }
    }
    Ok(all)
}

impl Answer {
    /// Seconds of a kernel in each layout.
    fn stay(&self, kernel: usize) -> &[f64] {
        &self.with_and_without.stay[kernel]
    }

    /// The best layout of a kernel, to which it was moved: in most launches.
    fn best(&self, kernel: usize) -> usize {
        let count = |at: usize| self.best.iter().filter(|best| best[kernel] == at).count();
        // Of equally many, the faster one.
        let key = |at: &usize| (count(*at), (1.0 / self.stay(kernel)[*at]).to_bits());
        (0..self.layouts.len()).max_by_key(key).unwrap_or(0)
    }

    /// The redistributions of a kernel from one layout to another and back: A, B and the product; A and its factors; factors,
    /// right-hand sides and solutions.
    fn redistribution(&self, kernel: usize, here: usize, there: usize, time: fn(&Times) -> f64) -> f64 {
        let square = |from: usize, to: usize| time(&self.redistributions.square[from][to]);
        let sides = |from: usize, to: usize| time(&self.redistributions.sides[from][to]);
        match kernel {
            0 => 2.0 * square(here, there) + square(there, here),
            1 => square(here, there) + square(there, here),
            _ => square(here, there) + sides(here, there) + sides(there, here),
        }
    }

    /// Seconds of a kernel moved from a layout to the best and back, for the first time: with the planning that was measured apart.
    fn moved_first(&self, kernel: usize, here: usize) -> f64 {
        let best = self.best(kernel);
        let planning = self.redistribution(kernel, here, best, |times| times.first)
            - self.redistribution(kernel, here, best, |times| times.again);
        self.with_and_without.moved[kernel][here] + planning
    }

    /// The three kernels in one layout.
    fn chain_stay(&self, at: usize) -> f64 {
        (0..3).map(|kernel| self.stay(kernel)[at]).sum()
    }
}
