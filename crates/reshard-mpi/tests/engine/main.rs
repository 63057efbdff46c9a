//! The engine between processes against the one suite, by value, on the MPIs of this machine.
//!
//! The program starts itself under `mpirun`, with many cases in each launch.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod faults;
mod help;
#[path = "../runtime/installation.rs"]
mod installation;
mod lent;
mod programs;
mod rank;
mod rings;
mod strays;
mod sums;
mod trials;
mod trust;
mod waits;

use installation::Installation;
use reshard_mpi::Mover;
use reshard_testkit::allocations::Counting;
use reshard_testkit::full_sweep;
use reshard_testkit::hosts::Hosts;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Names the part that a launched process plays.
pub const PART: &str = "RESHARD_MPI_TEST_PART";

/// Numbers of processes that are started.
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
        for (_, run) in GROUPS.iter().filter(|(name, _)| is_wanted(name)) {
            run(installation);
        }
    }
}

type Group = (&'static str, fn(&Installation));

/// Groups of launches, by the names they are asked for with: `cargo test --test engine -- rings faults`.
const GROUPS: [Group; 7] = [
    ("conformance", conformance),
    ("sums", sums),
    ("rings", rings),
    ("programs", programs),
    ("trust", trust),
    ("hosts", several_hosts),
    ("faults", faults),
];

/// All groups are, unless some are named.
fn is_wanted(name: &str) -> bool {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let known = |word: &String| GROUPS.iter().any(|(group, _)| group == word);
    assert!(
        asked.iter().all(known),
        "{asked:?} are asked for; there are {:?}",
        GROUPS.map(|(group, _)| group)
    );
    asked.is_empty() || asked.iter().any(|word| word == name)
}

/// Every mover against the one suite.
fn conformance(installation: &Installation) {
    for ranks in RANKS {
        // Many ranks on few processors take their time.
        let cases = if full_sweep() { 1_250 } else { 100 };
        installation.launch(&format!("conformance {} {cases}", ranks * 31), ranks).succeeded(ranks);
    }
    installation.launch("large", 4).succeeded(4);
}

/// Several arrays, scaled.
fn sums(installation: &Installation) {
    for ranks in [1, 2, 4, 7] {
        let cases = if full_sweep() { 600 } else { 24 };
        installation.launch(&format!("sums {} {cases}", ranks * 13), ranks).succeeded(ranks);
    }
}

/// Several engines in flight at once.
fn programs(installation: &Installation) {
    for (ranks, share) in [(2, 4), (3, 2), (4, 2), (8, 1)] {
        let count = share * if full_sweep() { 1_112 } else { 12 };
        let outcome = installation.launch(&format!("programs {} {count}", ranks * 7), ranks);
        outcome.succeeded(ranks);
        outcome.show("programs:");
    }
    for ranks in [2, 4] {
        let count = if full_sweep() { 500 } else { 24 };
        let outcome = installation.launch(&format!("faults {} {count}", ranks * 11), ranks);
        outcome.succeeded(ranks);
        outcome.show("faults:");
    }
    let engines = if full_sweep() { 100_000 } else { 2_000 };
    installation.launch(&format!("many-engines {engines}"), 2).succeeded(2);
}

/// What once went wrong: see `trust.rs`, `waits.rs` and `strays.rs`.
fn trust(installation: &Installation) {
    let play =
        |part: &str, ranks: usize| installation.launch(&format!("trust {part}"), ranks).succeeded(ranks);
    let private = ["private", "messages", "mixed", "lockstep"];
    for mover in private {
        play(&format!("looked-after-in-another-order {mover}"), 2);
        play(&format!("begun-in-another-order {mover}"), 3);
        play(&format!("forgotten {mover}"), 3);
        play(&format!("panicked {mover}"), 3);
        play(&format!("run-after-a-failure {mover}"), 3);
    }
    for mover in ["private", "messages", "mixed"] {
        play(&format!("on-the-next-communicator {mover}"), 2);
    }
    for what in ["messages", "lockstep", "ring", "barriers"] {
        play(&format!("strays {what}"), 2);
    }
    for mover in ["private", "messages", "mixed", "shared", "shared-source"] {
        play(&format!("refused-by-one {mover}"), 3);
    }
    for mover in Mover::ALL {
        play(&format!("strides-of-its-own {mover}"), 4);
    }
    for mover in ["private", "messages", "mixed", "lockstep", "alltoallv", "alltoallw"] {
        play(&format!("another-alpha {mover}"), 3);
    }
    for mover in ["shared", "shared-source"] {
        play(&format!("of-another-communicator {mover}"), 3);
    }
    for mover in ["private", "messages", "shared"] {
        play(&format!("out-of-reach {mover}"), 2);
        play(&format!("forked {mover}"), 2);
    }
    play("larger-than-memory private", 2);
    play("larger-than-memory messages", 2);
    play("scalapack-elsewhere", 4);
    for what in ["engine", "engine-and-never", "shared", "ring"] {
        play(&format!("nobody-comes-at-first {what}"), 3);
    }
    play("looks-do-not-wait", 3);
    // A namespace of processes for each rank: root's privilege, and not everywhere allowed.
    match installation.launch_hidden("trust hidden", 2) {
        Some(outcome) => outcome.succeeded(2),
        None => println!("  namespaces of processes cannot be had here: their test is left out"),
    }
}

/// Items passed on between neighbours.
fn rings(installation: &Installation) {
    let rings = if full_sweep() { 1_000 } else { 30 };
    for ranks in [1, 2, 3, 4, 7] {
        installation.launch(&format!("rings {} {rings}", 17 * ranks), ranks).succeeded(ranks);
    }
    installation.launch("rings-round", 3).succeeded(3);
    for ranks in [2, 4] {
        installation.launch(&format!("rings-disagreement {ranks}"), ranks).succeeded(ranks);
    }
    for when in ["make", "run"] {
        installation.launch(&format!("rings-absence {when}"), 3).succeeded(3);
    }
}

/// Messages that really travel, alone and beside shared buffers within a host.
fn several_hosts(installation: &Installation) {
    let hosts = match Hosts::up(4, None) {
        Ok(hosts) => hosts,
        Err(why) => return println!("  several hosts are left out: {why}"),
    };
    let cases = if full_sweep() { 400 } else { 40 };
    for (placement, mover) in
        [(&[1, 1][..], "messages"), (&[2, 2], "mixed"), (&[1, 2, 1], "mixed"), (&[3, 1, 2, 2], "mixed")]
    {
        let part = format!("conformance {} {cases} {mover}", 7 * placement.len());
        installation.launch_on(&hosts, placement, &part).succeeded(placement.iter().sum());
    }
    for placement in [&[1, 1][..], &[1, 2, 1]] {
        installation.launch_on(&hosts, placement, "rings 5 20").succeeded(placement.iter().sum());
    }
}

fn faults(installation: &Installation) {
    let trials = if full_sweep() { 1_000 } else { 150 };
    for ranks in [2, 4] {
        installation.launch(&format!("disagreement {ranks} {}", trials / 2), ranks).succeeded(ranks);
    }
    installation.launch("absence", 3).succeeded(3);
    for (part, ranks) in [("lent", 2), ("lent-unread", 2), ("lent-of-two", 2), ("lent-given-up", 3)] {
        installation.launch(part, ranks).succeeded(ranks);
    }
    for (part, ranks) in [
        ("help", 3),
        ("help-round", 4),
        ("help-passed-on", 3),
        ("help-swapped", 3),
        ("help-gone-on shared 2", 2),
        ("help-gone-on shared-source 9", 2),
        ("help-ahead", 2),
        ("help-given-up", 5),
        ("help-stopped", 3),
    ] {
        installation.launch(part, ranks).succeeded(ranks);
    }
    for mover in ["private", "messages", "mixed"] {
        installation.launch(&format!("silence {mover}"), 2).succeeded(2);
    }
    let calls = if full_sweep() { 50_000 } else { 2_000 };
    for mover in ["private", "messages", "mixed", "shared"] {
        installation.launch(&format!("calls {mover} {calls}"), 2).succeeded(2);
    }
    if full_sweep() {
        for mover in ["messages", "private"] {
            installation.launch(&format!("huge {mover}"), 2).succeeded(2);
        }
    }
    // A rank that ends in the middle takes the job with it, and nobody says that all is well.
    let steps = if full_sweep() { 9 } else { 2 };
    for how in ["panic", "exit", "kill"] {
        for mover in ["private", "messages", "shared"] {
            for step in 0..steps {
                let outcome = installation.launch(&format!("end {how} {mover} {step}"), 3);
                outcome.failed(&[]);
                outcome.never_says("done]");
                outcome.took_less_than(Duration::from_secs(5));
            }
        }
    }
    // Where the launcher lets the others go on, they are told who is missing. MPICH's ends the job, or itself.
    if installation.family == "Open MPI" {
        for (number, mover) in ["private", "messages", "shared", "lockstep", "mixed"].iter().enumerate() {
            let steps = if full_sweep() { 0..9 } else { number % 3..number % 3 + 1 };
            for step in steps {
                installation
                    .launch_with(&["--enable-recovery"], &format!("killed {mover} {step}"), 3)
                    .succeeded(2);
            }
        }
    }
}
