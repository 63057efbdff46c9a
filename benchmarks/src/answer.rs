//! What `reshard bench --json` says: one case, and every way it was run.

use crate::machine::Failure;
use serde::{Deserialize, Serialize};
use std::process::Command;

#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub case: String,
    pub shape: String,
    pub from: String,
    pub to: String,
    pub ranks: usize,
    pub mpi: String,
    pub bytes: u64,
    pub repetitions: u64,
    pub rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// Seconds.
    pub best: f64,
    pub median: f64,
}

impl Answer {
    /// Runs a launcher to which the program and its arguments were given.
    pub fn of(command: &mut Command) -> Result<Self, Failure> {
        let output = command.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The same several times: of each way the best of all, and the median of the medians.
    pub fn of_launches(command: &mut Command, launches: usize) -> Result<Self, Failure> {
        let mut answer = Self::of(command)?;
        let mut medians: Vec<Vec<f64>> = answer.rows.iter().map(|row| vec![row.median]).collect();
        for _ in 1..launches {
            let another = Self::of(command)?;
            for (at, row) in another.rows.into_iter().enumerate() {
                answer.rows[at].best = answer.rows[at].best.min(row.best);
                medians[at].push(row.median);
            }
        }
        for (row, medians) in answer.rows.iter_mut().zip(&mut medians) {
            medians.sort_by(f64::total_cmp);
            row.median = medians[medians.len() / 2];
        }
        Ok(answer)
    }

    /// Seconds of one way, in the median.
    pub fn median(&self, name: &str) -> f64 {
        self.rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.median)
    }

    pub fn ratio(&self, name: &str, to: &str) -> f64 {
        self.median(name) / self.median(to)
    }
}

/// The launcher of Open MPI.
pub fn launcher() -> Result<&'static str, Failure> {
    ["mpirun.openmpi", "mpirun"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .ok_or_else(|| "there is no mpirun here".into())
}
