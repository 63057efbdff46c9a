//! Every wrapped call, by value, on every MPI that is here, with one to four ranks.
//!
//! The program starts itself under `mpirun`. Each launch does many things, because a launch takes half a second; each has a
//! time limit, because what is tested here is what hangs when it is wrong.

#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod faults;
mod groups;
mod handles;
mod host;
mod installation;
mod rank;
mod values;

use installation::{Installation, Outcome};
use reshard_testkit::{full_sweep, parts};
use std::time::Duration;

/// Names the part that a launched process plays.
pub const PART: &str = "RESHARD_MPI_TEST_PART";

/// Longer than a launch takes on any machine, and shorter than a job that hangs.
const SOON: Duration = Duration::from_secs(300);

fn main() {
    if let Ok(part) = std::env::var(PART) {
        return rank::play(&part);
    }
    let installations = installation::all();
    if installations.is_empty() {
        eprintln!(
            "\n*** NO MPI IS INSTALLED: reshard-mpi WAS NOT TESTED. `cargo xtask test` installs what it needs. ***\n"
        );
        assert!(
            std::env::var_os("RESHARD_NEEDS_MPI").is_none(),
            "no MPI is installed, and it must be tested here"
        );
        return;
    }
    let named = |installation| {
        [("right", right as fn(&Installation)), ("wrong", wrong)]
            .map(|(name, run)| installation::part(installation, name, run))
    };
    let mut tests: Vec<_> = installations.iter().flat_map(named).collect();
    tests.push(("mismatches".into(), Box::new(|| mismatches(&installations))));
    parts::run(&tests);
}

fn right(installation: &Installation) {
    for ranks in 1..=4 {
        installation.launch("values", ranks).succeeded(ranks);
    }
    if installation.choice.is_empty() && !full_sweep() {
        // What is found by searching is a library that is tested by its name.
        return;
    }
    installation.launch("many", 2).succeeded(2);
    installation.launch("joined", 3).succeeded(3);
    let outcome = installation.launch("unjoined", 1);
    outcome.failed(&["[given up]"]);
    outcome.took_less_than(SOON);
    for part in [
        "host",
        "host-serialized",
        "host-funneled",
        "host-second-thread",
        "two-begin",
        "on-itself",
        "between-groups",
    ] {
        installation.launch(part, 2).succeeded(2);
    }
}

fn wrong(installation: &Installation) {
    installation.launch("errors", 2).succeeded(2);
    for ranks in [1, 3] {
        let outcome = installation.launch("panic", ranks);
        outcome.failed(&[&format!("rank {} of {ranks} panicked", ranks - 1)]);
        outcome.took_less_than(SOON);
    }
    let outcome = installation.launch("abort", 2);
    outcome.failed(&[]);
    outcome.took_less_than(SOON);
    let outcome: Outcome = installation.choosing("/nowhere/libmpi.so").launch("values", 1);
    outcome.failed(&["the MPI library /nowhere/libmpi.so cannot be loaded"]);
}

/// The launcher of one with the library of another: each process is alone, and says so.
fn mismatches(installations: &[Installation]) {
    for launcher in installations {
        for library in installations {
            if launcher.family != library.family && launcher.system && library.system {
                let outcome = launcher.choosing(&library.choice).launch("values", 2);
                outcome.failed(&[
                    "started 2 processes",
                    "each of them is alone",
                    library.family,
                    "RESHARD_MPI",
                ]);
            }
        }
    }
}
