//! Our routines in the place of ScaLAPACK's, beside ScaLAPACK's own, called as a program calls them.
//!
//! The example `speed` of `reshard-scalapack` does the measuring, under `mpirun`, both in turns; this collects its answers of several
//! launches: which processes share a processor is the luck of one.

use crate::answer::launcher;
use crate::machine::{Failure, Machine, keep, median};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::process::Command;

const LAUNCHES: usize = 5;

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    case: String,
    /// Seconds of a call.
    ours: f64,
    scalapack: f64,
    /// Seconds of an `MPI_Allreduce` of 64 bytes in the same run.
    allreduce: Option<f64>,
}

#[derive(Serialize)]
struct Results {
    benchmark: &'static str,
    command: &'static str,
    machine: Machine,
    launches: usize,
    rows: Vec<Row>,
}

/// `program` is the example `speed`, built for speed.
pub fn run(program: &str) -> Result<(), Failure> {
    let mut launches: Vec<Vec<Row>> = Vec::new();
    for launch in 0..LAUNCHES {
        eprintln!("launch {} of {LAUNCHES}", launch + 1);
        let mut command = Command::new(launcher()?);
        let output = command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", program]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        launches.push(serde_json::from_slice(&output.stdout)?);
    }
    let first = launches.first().ok_or("no launches")?;
    let of_all = |at: usize, of: fn(&Row) -> Option<f64>| {
        median(launches.iter().filter_map(|rows| of(rows.get(at)?)).collect())
    };
    let row = |(at, row): (usize, &Row)| Row {
        case: row.case.clone(),
        ours: of_all(at, |row| Some(row.ours)).unwrap_or(f64::NAN),
        scalapack: of_all(at, |row| Some(row.scalapack)).unwrap_or(f64::NAN),
        allreduce: of_all(at, |row| row.allreduce),
    };
    let rows: Vec<Row> = first.iter().enumerate().map(row).collect();
    let (benchmark, command) = ("scalapack", "cargo xtask bench scalapack");
    let results = Results { benchmark, command, machine: Machine::here(), launches: LAUNCHES, rows };
    keep("scalapack", &results, &report(&results)?)
}

fn report(results: &Results) -> Result<String, Failure> {
    let mut text = String::from("# Speed in the place of ScaLAPACK\n\n");
    writeln!(
        text,
        "`Cpdgemr2d` of ours and of ScaLAPACK, called by one program in turns, Open MPI, four processes on one machine of {} cores;\n\
         microseconds of a call, of the slowest process, medians of {LAUNCHES} launches of 15 repetitions each. A new context is of a shape\n\
         that is known; a new shape is planned in the call. The last column is how many times an `MPI_Allreduce` of 64 bytes, in the\n\
         same run, a call takes.\n\n\
         Machine: {}. Reproduce with `{}`; raw numbers in `benchmarks/results/scalapack.json`.\n",
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
            row.scalapack / row.ours
        )?;
    }
    text.push_str(
        "\nThe cases, on 4096 x 4096 doubles: i 2x2/64x64 to 1x4/32x32, ii 1x2/256x256 to 2x1/128x128, iii 2x2/64x64 to 1x4/50x30,\n\
         iv 2x2/64x64 to 3x1/100x100, v 2x2/8x8 to 4x1/5x7, vi 2x2/1x1 to 1x4/2x2, vii 2x2/64x64 to 2x2/1024x1024; 256 x 256 as i;\n\
         25 x 25 1x2/13x13 to 2x2/5x5.\n",
    );
    Ok(text)
}
