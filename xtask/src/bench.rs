//! Measurements: timings for people, instruction counts to hold a gain.
//!
//! Timings depend on the machine and its mood. The number of instructions of a binary does not, so a change that
//! makes planning slower shows there first.

use crate::tools::{Outcome, cargo, program, say, system_program};

const KEPT: &str = "benchmarks/results/plan-instructions.txt";

/// Another compiler or allocator moves the count a little; a lost shortcut moves it a lot.
const TOLERANCE: f64 = 1.05;

/// Runs one benchmark and keeps its results.
pub fn time(name: &str) -> Outcome {
    say(&format!("{name} speed: about a minute"));
    cargo(&["run", "--release", "--locked", "--package", "reshard-bench", "--", name]).run()
}

/// Between processes, with ScaLAPACK among the rivals if it can be had.
pub fn mpi() -> Outcome {
    crate::mpi::ready()?;
    if !crate::mpi::scalapack() {
        say("ScaLAPACK cannot be had here: its column stays empty");
    }
    with_program("mpi", "speed between processes: some minutes")
}

/// On hosts that are network namespaces, with links so slow that they are what counts.
pub fn network() -> Outcome {
    crate::mpi::ready()?;
    if !crate::mpi::hosts() {
        return Err("ip and tc are missing; as root on Debian: apt-get install iproute2".into());
    }
    with_program("network", "schedules on a network: some minutes")
}

/// A benchmark that starts the program `reshard`.
fn with_program(name: &str, what: &str) -> Outcome {
    cargo(&["build", "--release", "--locked", "--package", "reshard-cli"]).run()?;
    say(what);
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let reshard = format!("{target}/release/reshard");
    cargo(&["run", "--release", "--locked", "--package", "reshard-bench", "--", name, &reshard]).run()
}

pub fn count(keep: bool) -> Outcome {
    if !system_program("valgrind", "valgrind") {
        say("without valgrind instructions cannot be counted: left out");
        return Ok(());
    }
    say("instructions of planning, under callgrind");
    cargo(&["build", "--release", "--locked", "--package", "reshard-bench"]).run()?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let binary = format!("{target}/release/reshard-bench");
    let talk = program(
        "valgrind",
        &["--tool=callgrind", "--callgrind-out-file=/dev/null", &binary, "plan-loop", "20"],
    )
    .talk()?;
    let counted = talk
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse::<u64>().ok())
        .ok_or("callgrind printed no instruction count")?;
    if keep {
        say(&format!("{counted} instructions, kept in {KEPT}"));
        return std::fs::write(KEPT, format!("{counted}\n")).map_err(|error| format!("{KEPT}: {error}"));
    }
    let kept = std::fs::read_to_string(KEPT).map_err(|error| format!("{KEPT}: {error}"))?;
    let kept: u64 = kept.trim().parse().map_err(|_| format!("{KEPT} holds no number"))?;
    let ratio = counted as f64 / kept as f64;
    say(&format!("{counted} instructions, {ratio:.3} of the {kept} kept in {KEPT}"));
    if ratio > TOLERANCE {
        return Err(format!(
            "planning takes {ratio:.3} times the instructions it took; find out why, or keep the new count with \
             `cargo xtask bench count --keep` and say why in the commit"
        ));
    }
    Ok(())
}
