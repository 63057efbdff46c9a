//! Measurements: timings for people, instruction counts to hold a gain.
//!
//! Timings depend on the machine and its mood. The number of instructions of a binary does not, so a change that
//! makes planning or copying slower shows there first.

use crate::tools::{Outcome, cargo, program, say, system_program};

const KEPT: &str = "benchmarks/results/instructions.txt";

/// What is counted, and the rounds that are compared: their difference has nothing of the preparations in it.
const COUNTED: [(&str, u64, u64); 4] =
    [("plan", 0, 20), ("threads", 1, 5), ("pack", 1, 21), ("unpack", 1, 21)];

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
    with_program("mpi", "speed between processes: some minutes", &[])
}

/// Couplings: setting up, steps by every way, behind a computation, with strangers at the door.
pub fn couple() -> Outcome {
    crate::mpi::ready()?;
    let steps = ["--package", "reshard-couple", "--all-features", "--example", "steps"];
    cargo(&[&["build", "--release", "--locked"], &steps[..]].concat()).run()?;
    say("couplings: some minutes");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let example = format!("{target}/release/examples/steps");
    cargo(&["run", "--release", "--locked", "--package", "reshard-bench", "--", "couple", &example]).run()
}

/// In the place of ScaLAPACK's routines, beside them; with `--random SEED` only in cases that are drawn.
pub fn scalapack(options: &[&str]) -> Outcome {
    crate::mpi::ready()?;
    if !crate::mpi::scalapack() {
        return Err("ScaLAPACK is missing; as root on Debian: apt-get install libscalapack-openmpi2.2".into());
    }
    cargo(&["build", "--release", "--locked", "--package", "reshard-scalapack", "--example", "speed"])
        .run()?;
    say("speed in the place of ScaLAPACK: some minutes");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let example = format!("{target}/release/examples/speed");
    let run = ["run", "--release", "--locked", "--package", "reshard-bench", "--", "scalapack", &example];
    cargo(&[&run[..], options].concat()).run()
}

/// Three kernels of ScaLAPACK, where their matrices are and where they are fastest; of these sizes, or of all.
pub fn kernels(sizes: &[&str]) -> Outcome {
    crate::mpi::ready()?;
    if !crate::mpi::scalapack() {
        return Err("ScaLAPACK is missing; as root on Debian: apt-get install libscalapack-openmpi2.2".into());
    }
    if !crate::mpi::openblas() {
        say(
            "OpenBLAS cannot be had here: the kernels run on the BLAS that is, which may be the slow reference",
        );
    }
    cargo(&["build", "--release", "--locked", "--package", "reshard-examples", "--bin", "kernels"]).run()?;
    say("kernels of ScaLAPACK in all layouts: half an hour for all sizes");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let example = format!("{target}/release/kernels");
    let run = ["run", "--release", "--locked", "--package", "reshard-bench", "--", "kernels", &example];
    cargo(&[&run[..], sizes].concat()).run()
}

/// On hosts that are network namespaces, with links so slow that they are what counts.
pub fn network() -> Outcome {
    crate::mpi::ready()?;
    if !crate::mpi::hosts() {
        return Err("ip and tc are missing; as root on Debian: apt-get install iproute2".into());
    }
    with_program("network", "schedules on a network: some minutes", &[])
}

/// On random layouts; with `--ranks` between processes.
pub fn space(options: &[&str]) -> Outcome {
    if options.contains(&"--ranks") {
        crate::mpi::ready()?;
    }
    with_program("space", "speed over random layouts: an hour without options", options)
}

/// From Python, beside the program and beside what people write with mpi4py.
pub fn python() -> Outcome {
    crate::mpi::ready()?;
    let python = crate::python::with_wheel()?;
    cargo(&["build", "--release", "--locked", "--package", "reshard-cli"]).run()?;
    say("speed from Python: some minutes");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    program(python, &["benchmarks/python/speed.py", &format!("{target}/release/reshard")]).run()
}

/// Sets of files, in these folders, or on the disk and in memory.
pub fn files(folders: &[&str]) -> Outcome {
    if !crate::python::ready() {
        say("NumPy cannot be had here: its column stays empty");
    }
    let folders = if folders.is_empty() { &["target", "/dev/shm"] } else { folders };
    with_program("files", "sets of files of 4 GiB: some minutes", folders)
}

/// A benchmark that starts the program `reshard`.
fn with_program(name: &str, what: &str, options: &[&str]) -> Outcome {
    cargo(&["build", "--release", "--locked", "--package", "reshard-cli"]).run()?;
    say(what);
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let reshard = format!("{target}/release/reshard");
    let run = ["run", "--release", "--locked", "--package", "reshard-bench", "--", name, &reshard];
    cargo(&[&run[..], options].concat()).run()
}

/// Instructions of planning, running, packing and unpacking, under callgrind, beside those that are kept.
pub fn count(keep: bool) -> Outcome {
    if !system_program("valgrind", "valgrind") {
        say("without valgrind instructions cannot be counted: left out");
        return Ok(());
    }
    cargo(&["build", "--release", "--locked", "--package", "reshard-bench"]).run()?;
    let text = if keep { Ok(String::new()) } else { std::fs::read_to_string(KEPT) };
    let text = text.map_err(|error| format!("{KEPT}: {error}"))?;
    let mut lines = Vec::new();
    let mut worse = Vec::new();
    for (what, few, more) in COUNTED {
        let counted = counted(what, more)? - counted(what, few)?;
        lines.push(format!("{what} {counted}\n"));
        let kept = text.lines().find_map(|line| line.strip_prefix(what)?.trim().parse::<u64>().ok());
        let kept = match kept {
            Some(kept) => kept,
            None if keep => {
                say(&format!("{what}: {counted} instructions"));
                continue;
            }
            None => {
                return Err(format!(
                    "{KEPT} has no count of {what}; keep one with `cargo xtask bench count --keep`"
                ));
            }
        };
        let ratio = counted as f64 / kept as f64;
        say(&format!("{what}: {counted} instructions, {ratio:.3} of the {kept} that are kept"));
        if ratio > TOLERANCE {
            worse.push(format!("{what} takes {ratio:.3} times the instructions it took"));
        }
    }
    if keep {
        say(&format!("kept in {KEPT}"));
        return std::fs::write(KEPT, lines.concat()).map_err(|error| format!("{KEPT}: {error}"));
    }
    match worse.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{}; find out why, or keep the new counts with `cargo xtask bench count --keep` and say why in the commit",
            worse.join(", ")
        )),
    }
}

/// Instructions of so many rounds of something, and of what goes before.
fn counted(what: &str, rounds: u64) -> Result<u64, String> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    let binary = format!("{target}/release/reshard-bench");
    let rounds = rounds.to_string();
    let talk = program(
        "valgrind",
        &["--tool=callgrind", "--callgrind-out-file=/dev/null", &binary, "count", what, &rounds],
    )
    .talk()?;
    talk.lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("callgrind printed no instruction count of {what}"))
}
