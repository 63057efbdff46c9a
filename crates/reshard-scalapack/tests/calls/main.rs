//! Our routines against the definition of each, element by element, and beside ScaLAPACK's own: random parameter sets, wrong
//! arguments, processes that disagree, contexts made and destroyed all the time.
//!
//! The program starts itself under `mpirun`, with many calls in each launch.

#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod case;
mod host;
#[path = "../../../reshard-mpi/tests/runtime/installation.rs"]
mod installation;
mod kept;
mod partners;
mod rank;
mod transposes;
mod wrong;

use installation::Installation;
use reshard_testkit::{full_sweep, parts};
use std::process::Command;

/// Integers of the host program.
pub type Int = i32;

/// Names the part that a launched process plays.
pub const PART: &str = "RESHARD_SCALAPACK_TEST_PART";

fn main() {
    if let Ok(part) = std::env::var(PART) {
        return rank::play(&part);
    }
    let installations = installation::one_of_each();
    let named = |installation| installation::part(installation, "calls", calls);
    parts::run(&installations.iter().map(named).collect::<Vec<_>>());
}

fn calls(installation: &Installation) {
    let listed = Command::new("ldconfig").arg("-p").output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let name = format!("libscalapack-{}", installation.family.to_lowercase().replace(' ', ""));
    if !listed.contains(&name) {
        assert!(std::env::var_os("RESHARD_NEEDS_SCALAPACK").is_none(), "{name} is not installed");
        return println!("  {name} is not installed: left out");
    }
    // MPICH's processes do not yield while they wait: more of them than processors take their time.
    let quick = installation.family == "Open MPI";
    let sets: &[(usize, u64)] = match quick {
        true => &[(1, 32), (2, 32), (3, 32), (4, 32), (5, 32), (6, 32), (7, 32), (8, 32)],
        false => &[(1, 20), (2, 20), (3, 12), (4, 8)],
    };
    for &(ranks, sets) in sets {
        let sets = if full_sweep() { sets * 40 } else { sets };
        let outcome = installation.launch(&format!("sets {} {sets}", 41 * ranks), ranks);
        outcome.succeeded(ranks);
        outcome.show("sets:");
    }
    installation.launch("hidden 5 20", 4).succeeded(4);
    let engine_sets = if quick { 100 } else { 20 } / if full_sweep() { 1 } else { 3 };
    for ranks in if quick { vec![2, 4, 7] } else { vec![2] } {
        for way in ["engine", "collective"] {
            let part = format!("{way}-sets {} {engine_sets}", 43 * ranks);
            installation.launch(&part, ranks).succeeded(ranks);
        }
    }
    if quick {
        installation.launch(if full_sweep() { "groups 600" } else { "groups 150" }, 5).succeeded(5);
    }
    for ranks in if quick { vec![1, 4, 6] } else { vec![2] } {
        let outcome = installation.launch(&format!("transposes {} 40", 7 * ranks), ranks);
        outcome.succeeded(ranks);
        outcome.show("transposes:");
    }
    installation.launch("other-transposes", 2).succeeded(2);
    installation.launch("guesses 200", if quick { 4 } else { 2 }).succeeded(if quick { 4 } else { 2 });
    installation.launch("progress", if quick { 4 } else { 2 }).succeeded(if quick { 4 } else { 2 });
    installation.launch("absent", 3).succeeded(3);
    installation.launch("late", 3).succeeded(3);
    installation.launch("two-threads", 2).succeeded(2);
    installation.launch("rounds", 3).succeeded(3);
    installation.launch("huge", 2).succeeded(2);
    if quick {
        // The launcher of others ends all when one dies.
        installation.launch_with(&["--enable-recovery"], "killed", 3).succeeded(2);
        installation
            .launch(if full_sweep() { "many-shapes 3000" } else { "many-shapes 1000" }, 4)
            .succeeded(4);
    }
    installation.launch("different-contexts", 2).succeeded(2);
    installation.launch("names", 2).succeeded(2);
    installation.launch("arguments", 4).succeeded(4);
    let trials = if full_sweep() { 1_000 } else { 30 };
    let ranks = if quick { 4 } else { 2 };
    let outcome = installation.launch(&format!("disagreement 7 {trials}"), ranks);
    outcome.succeeded(ranks);
    outcome.show("trials:");
    let calls = if full_sweep() {
        200_000
    } else if quick {
        1_000
    } else {
        300
    };
    let outcome = installation.launch(&format!("contexts {calls}"), ranks);
    outcome.succeeded(ranks);
    outcome.show("calls:");
    let aborted = installation.launch("abort", 3);
    aborted.failed(&["reshard: pdgemr2d: rank 1: entry 5 (MB) of argument 6 (DESCA) is 0"]);
    aborted.never_says("done]");
}
