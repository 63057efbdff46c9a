//! The engine between processes against the one suite, by value, on the MPIs of this machine.
//!
//! The program starts itself under `mpirun`, with many cases in each launch.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

#[allow(dead_code)]
#[path = "../runtime/installation.rs"]
mod installation;
mod rank;

use reshard_testkit::full_sweep;

/// Names the part that a launched process plays.
pub const PART: &str = "RESHARD_MPI_TEST_PART";

/// So many processes are started.
const RANKS: [usize; 8] = [1, 2, 3, 4, 6, 7, 8, 16];

fn main() {
    if let Ok(part) = std::env::var(PART) {
        return rank::play(&part);
    }
    // Each library once, that of the system if there is one; the others differ in how they are found.
    let mut installations = installation::all();
    installations.retain(|installation| ["Open MPI", "MPICH"].contains(&installation.family));
    installations.dedup_by_key(|installation| installation.family);
    assert!(
        !installations.is_empty() || std::env::var_os("RESHARD_NEEDS_MPI").is_none(),
        "no MPI is installed, and it must be tested here"
    );
    for installation in &installations {
        println!("{installation}");
        for ranks in RANKS {
            // Many ranks on few processors take their time.
            let cases = if full_sweep() { 1_250 } else { 130 };
            installation.launch(&format!("conformance {} {cases}", ranks * 31), ranks).succeeded(ranks);
        }
    }
}
