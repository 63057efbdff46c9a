//! The engine between processes against the one suite, by value, on the MPIs of this machine; and first of all without any,
//! every rank a thread of one process.
//!
//! The program starts itself under `mpirun`, with many cases in each launch.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod communicators;
mod faults;
#[path = "../runtime/handles.rs"]
mod handles;
mod help;
#[path = "../runtime/installation.rs"]
mod installation;
mod lent;
mod programs;
mod rank;
mod rings;
mod secret;
mod strays;
mod sums;
mod trials;
mod trust;
mod waits;
mod world;

use installation::Installation;
use reshard_mpi::Mover;
use reshard_testkit::allocations::Counting;
use reshard_testkit::full_sweep;
use reshard_testkit::hosts::Hosts;
use reshard_testkit::parts;

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
    let mut installations = installation::one_of_each();
    installations.insert(0, installation::threads());
    let named = |installation| GROUPS.map(|(group, run)| installation::part(installation, group, run));
    parts::run(&installations.iter().flat_map(named).collect::<Vec<_>>());
}

type Group = (&'static str, fn(&Installation));

/// Groups of launches, each a test on every installation: `cargo test --test engine -- threads` runs them without MPI.
const GROUPS: [Group; 8] = [
    ("conformance", conformance),
    ("sums", sums),
    ("rings", rings),
    ("programs", programs),
    ("communicators", communicators),
    ("trust", trust),
    ("hosts", several_hosts),
    ("faults", faults),
];

/// Every mover against the one suite.
fn conformance(installation: &Installation) {
    for ranks in RANKS {
        // Many ranks on few processors take their time.
        let cases = match ranks {
            _ if full_sweep() => 1_250,
            16 => 4,
            _ => 8,
        };
        installation.launch(&format!("conformance {} {cases}", ranks * 31), ranks).succeeded(ranks);
    }
    // Minutes of it.
    if full_sweep() {
        installation.launch("large", 4).succeeded(4);
        installation.launch("by-the-system", 4).succeeded(4);
    }
}

/// Several arrays, scaled.
fn sums(installation: &Installation) {
    for ranks in [1, 2, 4, 7] {
        let cases = if full_sweep() { 600 } else { 4 };
        installation.launch(&format!("sums {} {cases}", ranks * 13), ranks).succeeded(ranks);
    }
}

/// Several engines in flight at once.
fn programs(installation: &Installation) {
    for (ranks, share) in [(2, 4), (3, 2), (4, 2), (8, 1)] {
        let count = share * if full_sweep() { 1_112 } else { 4 };
        let outcome = installation.launch(&format!("programs {} {count}", ranks * 7), ranks);
        outcome.succeeded(ranks);
        outcome.show("programs:");
    }
    for ranks in [2, 4] {
        let count = if full_sweep() { 500 } else { 8 };
        let outcome = installation.launch(&format!("faults {} {count}", ranks * 11), ranks);
        outcome.succeeded(ranks);
        outcome.show("faults:");
    }
    let engines = if full_sweep() { 100_000 } else { 500 };
    installation.launch(&format!("many-engines {engines}"), 2).succeeded(2);
}

/// Programs on many communicators, some of which outlives MPI: about a hundred on each MPI, 5,100 in the full sweep.
fn communicators(installation: &Installation) {
    if !installation.has_mpi() {
        return;
    }
    installation.launch("unread-notices", 3).succeeded(3);
    for (ranks, count) in [(1, 20), (2, 35), (3, 40), (4, 0), (5, 0), (8, 0)] {
        let (launches, count) = match count {
            _ if full_sweep() => (25, 34),
            0 => continue,
            _ => (1, count),
        };
        for launch in 0..launches {
            // Even ones begin MPI as a host does.
            let outcome =
                installation.launch(&format!("communicators {} 0 {count}", 101 * ranks + launch), ranks);
            outcome.succeeded(ranks);
            outcome.show("programs:");
        }
    }
}

/// What once went wrong: see `trust.rs`, `waits.rs` and `strays.rs`.
fn trust(installation: &Installation) {
    // Hundreds of launches, and none of it is about one MPI or another.
    if installation.family == "MPICH" && !full_sweep() {
        return;
    }
    let play =
        |part: &str, ranks: usize| installation.launch(&format!("trust {part}"), ranks).succeeded(ranks);
    // By one launch, in which what went wrong before must not matter.
    let each = |part: &str, movers: &[&str], ranks: usize| {
        let parts: Vec<String> = movers.iter().map(|mover| format!("trust {part} {mover}")).collect();
        installation.launch(&parts.join("; "), ranks).succeeded(ranks);
    };
    let private = ["private", "cma", "messages", "mixed", "lockstep"];
    each("looked-after-in-another-order", &private, 2);
    each("begun-in-another-order", &private, 3);
    each("forgotten", &private, 3);
    each("forgotten-and-overwritten", &private, 2);
    each("panicked", &private, 3);
    each("run-after-a-failure", &private, 3);
    // Not `cma`: there a run that was forgotten holds up those who read its source.
    each("on-the-next-communicator", &["private", "messages", "mixed"], 2);
    for what in ["messages", "lockstep", "ring", "barriers"] {
        play(&format!("strays {what}"), 2);
    }
    each("refused-by-one", &["private", "cma", "messages", "mixed", "shared", "shared-source"], 3);
    let movers = Mover::ALL.iter().filter(|mover| installation.has_mpi() || !is_call_of_mpi(**mover));
    let names = |movers: &mut dyn Iterator<Item = &Mover>| movers.map(Mover::to_string).collect::<Vec<_>>();
    let all = names(&mut movers.clone());
    each("strides-of-its-own", &all.iter().map(String::as_str).collect::<Vec<_>>(), 4);
    let scaling = names(
        &mut movers.filter(|mover| !matches!(mover, Mover::Auto | Mover::Shared | Mover::SharedSource)),
    );
    each("another-alpha", &scaling.iter().map(String::as_str).collect::<Vec<_>>(), 3);
    each("owned-and-in-place", &private, 3);
    each("abandoned", &private, 3);
    each("leaked-guard", &["shared", "shared-source"], 3);
    each("of-another-communicator", &["shared", "shared-source"], 3);
    each("out-of-reach", &["private", "cma", "messages", "shared"], 2);
    play("another-alpha-another-way", 3);
    each("larger-than-memory", &["private", "messages"], 2);
    play("looks-do-not-wait", 3);
    play("without-an-end", 2);
    play("limited-files", 2);
    // From the first run on, from the first of the trial on, and after the trial.
    for (part, ranks) in [("ends", 2), ("middle", 2), ("middle", 4)] {
        for run in [0, 3, 11] {
            play(&format!("unreadable-{part}-{run} private"), ranks);
        }
    }
    for mover in ["private", "cma", "messages", "shared"] {
        play(&format!("forked {mover}"), 2);
    }
    if !installation.has_mpi() {
        return;
    }
    play("scalapack-elsewhere", 4);
    for what in ["engine", "engine-and-never", "shared", "ring"] {
        play(&format!("nobody-comes-at-first {what}"), 3);
    }
    // A namespace of processes for each rank: root's privilege, and not everywhere allowed.
    match installation.launch_hidden("trust hidden", 2) {
        Some(outcome) => outcome.succeeded(2),
        None => println!("  namespaces of processes cannot be had here: their test is left out"),
    }
}

/// Items passed on between neighbours.
fn rings(installation: &Installation) {
    let rings = if full_sweep() { 1_000 } else { 10 };
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
    if !installation.has_mpi() {
        return;
    }
    let hosts = match Hosts::up(4, None) {
        Ok(hosts) => hosts,
        Err(why) => return println!("  several hosts are left out: {why}"),
    };
    let cases = if full_sweep() { 400 } else { 10 };
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
    let trials = if full_sweep() { 1_000 } else { 40 };
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
    ] {
        installation.launch(part, ranks).succeeded(ranks);
    }
    for mover in ["private", "cma", "messages", "mixed"] {
        installation.launch(&format!("silence {mover}"), 2).succeeded(2);
    }
    let calls = if full_sweep() { 50_000 } else { 400 };
    for mover in ["private", "cma", "messages", "mixed", "shared"] {
        installation.launch(&format!("calls {mover} {calls}"), 2).succeeded(2);
    }
    if installation.has_mpi() {
        installation.launch("help-stopped", 3).succeeded(3);
        ended_processes(installation);
    }
    // Where the launcher lets the others go on, they are told who is missing. MPICH's ends the job, or itself.
    if installation.family != "MPICH" {
        let recovery: &[&str] = if installation.has_mpi() { &["--enable-recovery"] } else { &[] };
        for (number, mover) in
            ["private", "messages", "shared", "lockstep", "mixed", "cma"].iter().enumerate()
        {
            let steps = if full_sweep() { 0..9 } else { number % 3..number % 3 + 1 };
            for step in steps {
                installation.launch_with(recovery, &format!("killed {mover} {step}"), 3).succeeded(2);
            }
        }
    }
}

/// Processes that end in the middle, and messages that are longer than any test of threads needs.
fn ended_processes(installation: &Installation) {
    if full_sweep() {
        for mover in ["messages", "private", "cma"] {
            installation.launch(&format!("huge {mover}"), 2).succeeded(2);
        }
    }
    // A rank that ends in the middle takes the job with it, and nobody says that all is well.
    for (number, how) in ["panic", "exit", "kill"].into_iter().enumerate() {
        for mover in ["private", "cma", "messages", "shared"] {
            let step = (number + mover.len()) % 2;
            for step in if full_sweep() { 0..9 } else { step..step + 1 } {
                let outcome = installation.launch(&format!("end {how} {mover} {step}"), 3);
                outcome.failed(&[]);
                outcome.never_says("done]");
                outcome.took_less_than(trust::SOON);
            }
        }
    }
}

/// True if the mover is one call of MPI, which nothing else has.
fn is_call_of_mpi(mover: Mover) -> bool {
    matches!(mover, Mover::Alltoallv | Mover::Alltoallw)
}
