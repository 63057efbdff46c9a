//! Our routines in integers of 8 bytes (ILP64), by the calls of `calls/`, beside a ScaLAPACK that has such integers. No system has one among its packages, so
//! `RESHARD_TEST_ILP64` names its libraries, in the order in which they are loaded, with colons between; without it nothing is tried.

#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../calls/case.rs"]
mod case;
#[path = "../calls/host.rs"]
mod host;
#[path = "../../../reshard-mpi/tests/runtime/installation.rs"]
mod installation;
#[path = "../calls/kept.rs"]
mod kept;
#[path = "../calls/partners.rs"]
mod partners;
#[path = "../calls/rank.rs"]
mod rank;
#[path = "../calls/transposes.rs"]
mod transposes;
#[path = "../calls/wrong.rs"]
mod wrong;

/// Integers of the host program.
pub type Int = i64;

/// Names the part that a launched process plays.
pub const PART: &str = "RESHARD_SCALAPACK_TEST_PART";

fn main() {
    if let Ok(part) = std::env::var(PART) {
        return rank::play(&part);
    }
    let Some(libraries) = std::env::var_os("RESHARD_TEST_ILP64") else {
        println!("RESHARD_TEST_ILP64 names no ScaLAPACK with integers of 8 bytes: nothing was tried");
        return;
    };
    // SAFETY: nothing else runs in this process yet.
    unsafe { std::env::set_var(host::LIBRARIES, libraries) };
    for installation in installation::one_of_each().iter().filter(|each| each.family == "Open MPI") {
        for ranks in [1, 2, 4, 6] {
            let outcome = installation.launch(&format!("sets {} 50", 47 * ranks), ranks);
            outcome.succeeded(ranks);
            outcome.show("sets:");
        }
        let outcome = installation.launch("transposes 5 50", 4);
        outcome.succeeded(4);
        outcome.show("transposes:");
        installation.launch("arguments", 4).succeeded(4);
        installation.launch("contexts 500", 4).succeeded(4);
    }
}
