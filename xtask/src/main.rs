//! `cargo xtask`: set-up, checks and measurements, so that two commands are enough for everything.
//!
//! Every step says what it does before it does it, and installs what it needs: Rust components through rustup,
//! system packages through apt when root on Debian or Ubuntu. The standard library is all this program needs.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod binaries;
mod book;
mod browser;
mod copied;
mod fuzz;
mod install;
mod mpi;
mod mutants;
mod parts;
mod planted;
mod python;
mod tools;

use binaries::Passed;
use parts::Part;
use std::process::ExitCode;
use std::sync::OnceLock;
use tools::{Outcome, cargo, program, say};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test            format, lints, all tests, documentation: what continuous integration runs. Programs of tests that passed
                  here before, with the same bytes, data and programs to start, are skipped; never where CI is set
  test --again    the same, nothing skipped
  test [--again] PART...
                  only these parts of it: format, lints, tests, plain, python, loom, docs
  test --full     the same with the whole sweeps, more MPIs, AddressSanitizer, instruction counts and
                  millions of fuzzing executions
  test --full PART...
                  only these parts of it: planner, engines, files, mpi, couple, scalapack, program, python, loom, asan, count, fuzz
  mutants [NAME] [--seeds N]
                  plants each bug of xtask/mutants.txt in a copy of the sources, or the one of a name, and fails if no test notices; continues
                  where it was before; with --seeds in rounds, RESHARD_SEED being 1 to N
  install --prefix FOLDER
                  the library for C and Fortran with header, module, pkg-config and CMake files (docs/c.md), and
                  those that take the place of ScaLAPACK's routines (docs/scalapack.md)
  docs            this manual as a book, and the papers' five examples as pages: writes target/book
  bench plan      planning speed: writes docs/plan-speed.md and .svg, benchmarks/results/plan.json
  bench schedule  scheduling speed: writes docs/schedule-speed.md, benchmarks/results/schedule.json
  bench ring      rings of a million, and when redistributing pays: writes docs/ring-speed.md, docs/ring-advisor.svg,
                  benchmarks/results/ring.json
  bench couple    couplings: setting up, and steps beside plain sockets: writes docs/couple-speed.md, benchmarks/results/couple.json
  bench threads   speed of the embedded engine: writes docs/threads-speed.md, benchmarks/results/threads.json
  bench messages  schedules at work in one process: writes docs/messages-speed.md, benchmarks/results/messages.json
  bench mpi       speed between processes beside its rivals: writes docs/mpi-speed.md, benchmarks/results/mpi.json
  bench scalapack [--random SEED]
                  speed in the place of ScaLAPACK's routines, in chosen cases and in some drawn by a seed; with --random only in
                  those of this seed, the others are kept: writes docs/scalapack-speed.md, benchmarks/results/scalapack.json
  bench kernels [SIZE..]
                  three kernels of ScaLAPACK in all layouts, with and without redistribution, and whether the advisor was
                  right: writes docs/kernels.md and .svg, benchmarks/results/kernels.json; of some sizes, the others are kept
  bench network   schedules on sixteen hosts with slow links: writes docs/network-speed.md and .svg,
                  benchmarks/results/network.json
  bench figures   figures 4 and 5 of the ScaLAPACK redistribution paper: writes docs/figures-speed.md and two .svg,
                  benchmarks/results/figures.json
  bench python    calls from Python beside the program, and beside what people write with mpi4py: writes docs/python-speed.md,
                  benchmarks/results/python.json
  bench space [--seed N,..] [--count N] [--bytes N] [--types T,..] [--ranks N]
                  speed over random layouts, in one process or between N: writes docs/space-speed.md and .svg,
                  benchmarks/results/space.json (space-mpi with --ranks)
  bench files [FOLDER..]
                  converting sets of files of 4 GiB beside cp and NumPy, on the disk and in memory: writes docs/files-speed.md,
                  benchmarks/results/files.json
  bench count     instructions of planning under callgrind, against the count kept in benchmarks/results
  bench count --keep
                  the same, and keeps the new count
  fuzz notation [RUNS]
                  fuzz the parser of the notation (default: 10000000 executions)
  fuzz moves [RUNS]
                  fuzz plans and engines, every element judged (default: 500000 executions)
  fuzz greeting [RUNS], fuzz frames [RUNS]
                  fuzz what strangers and partners may send to a coupling (default: 10000000 executions)
  fuzz manifest [RUNS], fuzz npy [RUNS], fuzz safetensors [RUNS]
                  fuzz what files of a set may say of themselves (default: 10000000 executions)
  fuzz journal [RUNS], fuzz expected [RUNS], fuzz meeting [RUNS], fuzz http [RUNS]
                  fuzz the journals of interrupted runs, lists of expected tensors, the files by which jobs meet, and requests to
                  `reshard serve` (default: 10000000 executions)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Before the repository is entered.
    let here = std::env::current_dir().unwrap_or_default();
    let outcome = tools::enter_repository().and_then(|()| match arguments.as_slice() {
        ["test", "--full", names @ ..] => full(names),
        ["test", "--again", names @ ..] => test(Passed::RunAgain, names),
        ["test", names @ ..] => test(Passed::Skip, names),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["install", "--prefix", prefix] => install::install(prefix, &here),
        ["docs"] => book::write(),
        ["bench", name @ ("plan" | "schedule" | "ring" | "threads" | "messages" | "figures")] => {
            bench::time(name)
        }
        ["bench", "mpi"] => bench::mpi(),
        ["bench", "couple"] => bench::couple(),
        ["bench", "scalapack"] => bench::scalapack(&[]),
        ["bench", "scalapack", "--random", seed] => bench::scalapack(&["--random", seed]),
        ["bench", "kernels", sizes @ ..] => bench::kernels(sizes),
        ["bench", "network"] => bench::network(),
        ["bench", "files", folders @ ..] => bench::files(folders),
        ["bench", "python"] => bench::python(),
        ["bench", "space", options @ ..] => bench::space(options),
        ["bench", "count"] => bench::count(false),
        ["bench", "count", "--keep"] => bench::count(true),
        ["fuzz", name] => fuzz::Target::named(name).and_then(|target| target.run(target.enough)),
        ["fuzz", name, runs] => fuzz::Target::named(name).and_then(|target| match runs.parse() {
            Ok(runs) => target.run(runs),
            Err(_) => {
                Err(format!("{runs} is not a number of executions; try `cargo xtask fuzz {name} 1000`"))
            }
        }),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What continuous integration runs.
const QUICK: [Part; 7] = [
    Part { name: "format", what: "formatting", run: formatted },
    Part { name: "lints", what: "lints, warnings refused", run: linted },
    Part {
        name: "tests",
        what: "tests and documentation examples, with an Open MPI and an MPICH; programs of C and Fortran",
        run: tested,
    },
    Part {
        name: "plain",
        what: "runs by the program as it was compiled for tests, the kernel without optimisation: its frames are the largest",
        run: unoptimised,
    },
    Part { name: "python", what: "the package for Python", run: || python::tested(passed()) },
    LOOM,
    Part { name: "docs", what: "documentation, warnings refused", run: documented },
];

const LOOM: Part = Part {
    name: "loom",
    what: "interleavings of threads and of processes, all or with a bounded number of preemptions (loom)",
    run: models,
};

/// What `--full` runs after that, or by name. Each part stays under 90 minutes.
const FULL: [Part; 12] = [
    Part {
        name: "planner",
        what: "the whole sweeps of the planners",
        run: || swept(&["reshard-plan", "reshard-ring", "reshard-testkit"]),
    },
    Part {
        name: "engines",
        what: "the whole sweeps of the engines",
        run: || swept_by(&["reshard", "reshard-kernel"], &OPTIMISED_KERNEL),
    },
    Part {
        name: "files",
        what: "the whole sweeps of sets of files; those with the program are in its part",
        run: || swept(&["reshard-shards"]),
    },
    Part {
        name: "mpi",
        what: "the whole sweeps between processes, on the newest MPIs, too",
        run: || swept_on_all(&["reshard-mpi"]),
    },
    Part {
        name: "couple",
        what: "the whole sweeps of couplings; those with the program are in its part",
        run: || swept_on_all(&["reshard-couple", "reshard-capi", "reshard-examples"]),
    },
    Part {
        name: "scalapack",
        what: "the whole sweeps in the place of ScaLAPACK's routines",
        run: || {
            let all = mpi::both_scalapacks() && mpi::scalapack_programs();
            if !all {
                say("without ScaLAPACK the routines in its place are not tested");
            }
            swept_on_all(&["reshard-scalapack", "reshard-scalapack-lp64"])
        },
    },
    Part {
        name: "program",
        what: "the whole sweeps of the program and the tools",
        run: || swept_on_all(&["reshard-cli", "reshard-bench", "xtask"]),
    },
    Part { name: "python", what: "the whole sweeps of the package for Python", run: python::swept },
    LOOM,
    Part { name: "asan", what: "unit tests, values and the suite under AddressSanitizer", run: sanitized },
    Part { name: "count", what: "the instruction count", run: || bench::count(false) },
    Part {
        name: "fuzz",
        what: "fuzzing",
        run: || fuzz::TARGETS.iter().try_for_each(|target| target.run(target.enough)),
    },
];

/// What is done about programs of tests that passed here before.
static PASSED: OnceLock<Passed> = OnceLock::new();

fn passed() -> Passed {
    binaries::unless_ci(*PASSED.get_or_init(|| Passed::RunAgain))
}

/// What continuous integration runs, or the parts of it that are named.
fn test(passed: Passed, names: &[&str]) -> Outcome {
    let _ = PASSED.set(passed);
    parts::run(&parts::named(&QUICK, names)?)
}

/// Everything, or the parts that are named.
fn full(names: &[&str]) -> Outcome {
    let mut chosen = parts::named(&FULL, names)?;
    if names.is_empty() {
        // What stands in both is run once.
        let quick = QUICK.iter().filter(|part| FULL.iter().all(|other| other.name != part.name));
        chosen = quick.chain(chosen).collect();
    }
    parts::run(&chosen)
}

fn formatted() -> Outcome {
    if tools::rust_component("rustfmt", &["fmt", "--version"])? {
        cargo(&["fmt", "--all", "--check"]).run()?;
    }
    Ok(())
}

fn linted() -> Outcome {
    if tools::rust_component("clippy", &["clippy", "--version"])? {
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])
        .run()?;
    }
    Ok(())
}

fn tested() -> Outcome {
    let mut needed = Vec::new();
    match with_mpi() {
        Ok(()) => needed.push((mpi::NEEDED, "1")),
        // Continuous integration must not pass for want of an MPI.
        Err(missing) if std::env::var_os("CI").is_some() => return Err(missing),
        Err(missing) => say(&format!("{missing}: nothing is tested between processes")),
    }
    match mpi::compilers() {
        true => needed.push((mpi::NEEDED_COMPILERS, "1")),
        false => say("without these compilers programs of C and Fortran are not tested"),
    }
    match mpi::both_scalapacks() && mpi::scalapack_programs() && mpi::scalapack_to_link() {
        true => needed.push((mpi::NEEDED_SCALAPACK, "1")),
        false => say("without ScaLAPACK the routines in its place are not tested"),
    }
    match python::ready() {
        true => needed.push((python::NEEDED, "1")),
        false => say("without NumPy and safetensors it is not tested that they read what we write"),
    }
    match browser::ready() {
        true => needed.push((browser::NEEDED, "1")),
        false => say("without a browser the page is not driven"),
    }
    tools::build_libraries()?;
    binaries::run("", &tools::WORKSPACE, &[], &needed, passed())?;
    cargo(&[&["test", "--doc"], &tools::WORKSPACE[..]].concat()).run()
}

fn with_mpi() -> Outcome {
    mpi::ready()?;
    if !mpi::hosts() {
        say("without ip and tc there is one host: tests between several are left out");
    }
    Ok(())
}

fn unoptimised() -> Outcome {
    let reshard = tools::built("reshard");
    for engine in ["threads", "messages"] {
        let run = ["run", "--shape", "64x40x24", "--json", "--engine", engine];
        let layouts = ["--from", "2x2x2/16x16x16", "--to", "4x2x1/10x30x7"];
        program(&reshard, &[&run[..], &layouts].concat()).run()?;
    }
    Ok(())
}

fn documented() -> Outcome {
    cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()
}

/// Options of cargo with which the kernel is optimised, in a folder of its own, where it leaves the other builds alone.
const OPTIMISED_KERNEL: [&str; 4] =
    ["--config", "profile.dev.package.reshard-kernel.opt-level=1", "--target-dir", "target/optimised"];

/// All tests of some packages, nothing left out of their sweeps.
fn swept(packages: &[&str]) -> Outcome {
    swept_by(packages, &[])
}

fn swept_by(packages: &[&str], options: &[&str]) -> Outcome {
    let packages: Vec<&str> = packages.iter().flat_map(|name| ["--package", name]).collect();
    let test = [&["test", "--locked", "--all-features"], options, &packages[..]].concat();
    cargo(&test).env("RESHARD_FULL", "1").env(mpi::NEEDED, "1").run()
}

fn swept_on_all(packages: &[&str]) -> Outcome {
    with_mpi()?;
    mpi::newest();
    swept(packages)
}

/// The flag builds everything anew: in a folder of its own, where it leaves the other builds alone, and without the
/// optimisations that take longer than they save here.
fn models() -> Outcome {
    let packages = ["--package", "reshard-kernel", "--package", "reshard-mpi", "--lib"];
    let build = ["--locked", "--profile", "loom", "--target-dir", "target/loom"];
    let environment = [("RUSTFLAGS", "--cfg loom")];
    binaries::run("loom ", &[&build[..], &packages].concat(), &["loom"], &environment, passed())
}

/// AddressSanitizer sees what canaries do not: reads past the end, and memory that was freed. Its runtime comes with the
/// compiler, and only the flag is not stable. Optimised less and checked by calls, as kernels with all checks inside take many
/// minutes to compile.
fn sanitized() -> Outcome {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let packages = ["--package", "reshard", "--package", "reshard-kernel"];
    let tests = [&packages[..], &["--lib", "--test", "conformance", "--test", "values"]].concat();
    let place = ["--target", &triple, "--target-dir", "target/asan"];
    cargo(&[&["test", "--locked"], &tests[..], &place].concat())
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address -Cllvm-args=-asan-instrumentation-with-call-threshold=0")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .run()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_on_the_usage_page() {
        let mut lines = USAGE.lines().filter(|line| line.contains("only these parts"));
        for parts in [&QUICK[..], &FULL] {
            let line = lines.next().unwrap();
            let names = parts.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
            assert!(line.ends_with(&names), "{line}: {names}");
        }
        let twice =
            FULL.iter().filter(|part| FULL.iter().filter(|other| other.name == part.name).count() > 1);
        assert_eq!(twice.count(), 0);
    }
}
