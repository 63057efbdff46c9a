//! Our routines in the place of ScaLAPACK's, beside ScaLAPACK's own, called as a program calls them: in chosen cases, and in cases that are
//! drawn by a seed.
//!
//! The example `speed` of `reshard-scalapack` does the measuring, under `mpirun`, both in turns; this collects its answers of several
//! launches: which processes share a processor is the luck of one.

use crate::answer::launcher;
use crate::machine::{Failure, Machine, keep, median};
use crate::stats::{Stats, stats};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::process::Command;

const LAUNCHES: usize = 5;

const KEPT: &str = "benchmarks/results/scalapack.json";

const COMMAND: &str = "cargo xtask bench scalapack";

/// The seed of the drawn cases, if none is given, and their number.
const SEED: u64 = 1;
const DRAWN: usize = 200;

/// As many of the drawn cases are listed, from the worst on.
const LISTED: usize = 5;

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    case: String,
    /// Seconds of a call.
    ours: f64,
    scalapack: f64,
    /// Seconds of an `MPI_Allreduce` of 64 bytes in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    allreduce: Option<f64>,
}

impl Row {
    fn times_faster(&self) -> f64 {
        self.scalapack / self.ours
    }
}

/// What a launch says of drawn cases.
#[derive(Deserialize)]
struct Launch {
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Drawn {
    seed: u64,
    /// ScaLAPACK's time over ours: more is better.
    times_faster: Stats,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    launches: usize,
    rows: Vec<Row>,
    drawn: Drawn,
}

/// What an earlier run wrote.
#[derive(Deserialize)]
struct Kept {
    machine: serde_json::Value,
    rows: Vec<Row>,
}

/// `program` is the example `speed`, built for speed. With `--random SEED` only drawn cases are measured, and what is known of the chosen ones is
/// kept.
pub fn run(program: &str, options: &[String]) -> Result<(), Failure> {
    let machine = Machine::here();
    let (seed, rows) = match options {
        [] => (SEED, medians(&launches::<Vec<Row>>(program, &[])?)),
        [option, seed] if option == "--random" => {
            let seed = seed.parse().map_err(|_| format!("seed {seed} was given; it is a number"))?;
            (seed, kept(&machine)?)
        }
        _ => return Err(format!("{options:?} was given; there is --random SEED").into()),
    };
    let arguments = ["--random", &seed.to_string(), &DRAWN.to_string()];
    let drawn: Vec<Vec<Row>> =
        launches::<Launch>(program, &arguments)?.into_iter().map(|launch| launch.rows).collect();
    let drawn = medians(&drawn);
    let times_faster =
        stats(drawn.iter().map(Row::times_faster).collect(), true).ok_or("nothing was drawn")?;
    let drawn = Drawn { seed, times_faster, rows: drawn };
    let (benchmark, command) = ("scalapack", COMMAND);
    let results = Results { benchmark, command, machine, launches: LAUNCHES, rows, drawn };
    keep("scalapack", &results, &report(&results)?)
}

/// The chosen cases of an earlier run on this machine.
fn kept(machine: &Machine) -> Result<Vec<Row>, Failure> {
    let kept: Kept = serde_json::from_str(&std::fs::read_to_string(KEPT)?)?;
    match kept.machine == serde_json::to_value(machine)? {
        true => Ok(kept.rows),
        // Numbers of two machines do not belong on one page.
        false => Err(format!("{KEPT} is of another machine; `{COMMAND}` measures all anew").into()),
    }
}

/// What several launches of the example write.
fn launches<T: DeserializeOwned>(program: &str, arguments: &[&str]) -> Result<Vec<T>, Failure> {
    let launch = |launch: usize| {
        eprintln!("launch {} of {LAUNCHES}", launch + 1);
        let mut command = Command::new(launcher()?);
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", program]).args(arguments);
        let output = command.output()?;
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout)?),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
        }
    };
    (0..LAUNCHES).map(launch).collect()
}

/// Medians over the launches, case by case.
fn medians(launches: &[Vec<Row>]) -> Vec<Row> {
    let of_all = |at: usize, of: fn(&Row) -> Option<f64>| {
        median(launches.iter().filter_map(|rows| of(rows.get(at)?)).collect())
    };
    let row = |(at, row): (usize, &Row)| Row {
        case: row.case.clone(),
        ours: of_all(at, |row| Some(row.ours)).unwrap_or(f64::NAN),
        scalapack: of_all(at, |row| Some(row.scalapack)).unwrap_or(f64::NAN),
        allreduce: of_all(at, |row| row.allreduce),
    };
    launches.first().map(|rows| rows.iter().enumerate().map(row).collect()).unwrap_or_default()
}

fn report(results: &Results) -> Result<String, Failure> {
    let mut text = String::from("# Speed in the place of ScaLAPACK\n\n");
    writeln!(
        text,
        "`Cpdgemr2d` of ours and of ScaLAPACK, called by one program in turns, Open MPI, four processes on one machine of {} cores;\n\
         microseconds of a call, of the slowest process, medians of {LAUNCHES} launches of 15 repetitions each. A new context is of a shape\n\
         that is known; a new shape is planned in the call. The last column is how many times an `MPI_Allreduce` of 64 bytes, in the\n\
         same run, a call takes.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `{KEPT}`.\n",
        results.machine.cores, results.machine, results.command
    )?;
    text.push_str("| call | ours | ScaLAPACK | times faster | of an Allreduce |\n|---|---|---|---|---|\n");
    for row in &results.rows {
        let share = row.allreduce.map_or(String::new(), |allreduce| format!("{:.1}", row.ours / allreduce));
        writeln!(
            text,
            "| {} | {:.1} | {:.1} | {:.2} | {share} |",
            row.case,
            row.ours * 1e6,
            row.scalapack * 1e6,
            row.times_faster()
        )?;
    }
    text.push_str(
        "\nThe cases, on 4096 x 4096 doubles: i 2x2/64x64 to 1x4/32x32, ii 1x2/256x256 to 2x1/128x128, iii 2x2/64x64 to 1x4/50x30,\n\
         iv 2x2/64x64 to 3x1/100x100, v 2x2/8x8 to 4x1/5x7, vi 2x2/1x1 to 1x4/2x2, vii 2x2/64x64 to 2x2/1024x1024; 256 x 256 as i;\n\
         25 x 25 1x2/13x13 to 2x2/5x5.\n\n",
    );
    report_drawn(&mut text, &results.drawn)?;
    Ok(text)
}

fn report_drawn(text: &mut String, Drawn { seed, times_faster, rows }: &Drawn) -> Result<(), Failure> {
    let slower = rows.iter().filter(|row| row.times_faster() < 1.0).count();
    writeln!(
        text,
        "## Cases nobody chose\n\n\
         {} cases drawn by seed {seed} (`{COMMAND} --random {seed}` measures only these): p?gemr2d of any of the five types, 8 to\n\
         2048 rows and 8 to 2048 columns, blocks of one row or column to all of them (logarithms uniform), grids of one to four of the four\n\
         processes in any order, any first process. On the same machine, of a shape that is known, medians as above; both moved the same.\n\n\
         Ours are {:.2} times faster in the geometric mean, {:.2} in the median, {:.2} in the 5th percentile, {:.2} in the worst case; slower in\n\
         {slower} of {}. The worst:\n\n\
         | call | ours | ScaLAPACK | times faster |\n|---|---|---|---|",
        times_faster.cases,
        times_faster.geometric_mean,
        times_faster.median,
        times_faster.percentile_95,
        times_faster.worst,
        times_faster.cases,
    )?;
    let mut worst: Vec<&Row> = rows.iter().collect();
    worst.sort_by(|one, two| one.times_faster().total_cmp(&two.times_faster()));
    for row in worst.into_iter().take(LISTED) {
        let (ours, theirs) = (row.ours * 1e6, row.scalapack * 1e6);
        writeln!(text, "| {} | {ours:.1} | {theirs:.1} | {:.2} |", row.case, row.times_faster())?;
    }
    Ok(())
}
