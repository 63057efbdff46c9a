//! `reshard doctor`: what this machine has of all that reshard can use, and whether every engine works on it.
//!
//! Each look that could go wrong (a library that is loaded, an engine that is tried) is a process of its own with a deadline, so that the
//! answer comes whatever happens to it.

mod machine;
mod tries;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::level;
use crate::run::request::human;
use crate::screen::{Screen, counted};
use machine::Machine;
use reshard_draw::time;
use reshard_mpi::mpi::launched;
use serde::Serialize;
use std::io::Write;
use tries::{Attempt, Library};

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Checkup {
    version: &'static str,
    commit: &'static str,
    target: &'static str,
    level: &'static str,
    #[serde(flatten)]
    machine: Machine,
    launcher: Option<String>,
    mpirun: Option<String>,
    mpi: Vec<Library>,
    mpi_taken: Option<String>,
    scalapack: Vec<String>,
    engines: Vec<Attempt>,
    ok: bool,
}

pub fn run(args: &args::Doctor) -> Result<(), Failure> {
    if let Some(what) = &args.probe {
        return tries::probe(what);
    }
    let level = level::from_environment()?;
    level::check(level)?;
    let mpi = tries::mpi_libraries();
    let mpi_taken = tries::mpi_taken();
    let mpirun = tries::mpirun();
    let engines = tries::engines(mpirun.as_ref().filter(|_| mpi_taken.is_some()));
    let checkup = Checkup {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("RESHARD_COMMIT"),
        target: env!("RESHARD_TARGET"),
        level: level::name(level),
        machine: Machine::look(),
        launcher: launched()
            .map(|launcher| format!("{}, rank {} of {}", launcher.family, launcher.rank, launcher.size)),
        mpirun: mpirun.map(|mpirun| mpirun.version),
        mpi,
        mpi_taken,
        scalapack: tries::scalapack(),
        ok: engines.iter().all(|attempt| attempt.ok),
        engines,
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &checkup)?;
    } else {
        show(&mut screen, &checkup)?;
    }
    screen.out.flush()?;
    let failed: Vec<&str> =
        checkup.engines.iter().filter(|attempt| !attempt.ok).map(|attempt| attempt.engine).collect();
    match failed[..] {
        [] => Ok(()),
        _ => Err(Failure::failed(format!(
            "{} did not work here: {}",
            counted(failed.len(), "engine"),
            failed.join(", ")
        ))),
    }
}

fn show(screen: &mut Screen, checkup: &Checkup) -> Result<(), Failure> {
    let Machine { processor, cores, memory_available, shared_memory_free, huge_pages, kernel } =
        &checkup.machine;
    let bytes = |bytes: &Option<u64>| bytes.map_or("unknown".to_string(), |bytes| human(u128::from(bytes)));
    let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_string());
    let mut line = |name: &str, text: &str| writeln!(screen.out, "{name:<15} {text}");
    line("reshard", &format!("{}, commit {}, {}", checkup.version, checkup.commit, checkup.target))?;
    line("processor", &format!("{}, {}", unknown(processor), counted(*cores, "core")))?;
    line("instructions", checkup.level)?;
    line(
        "memory",
        &format!("{} available, {} free in /dev/shm", bytes(memory_available), bytes(shared_memory_free)),
    )?;
    line("huge pages", &format!("{}, Linux {}", unknown(huge_pages), unknown(kernel)))?;
    line("launcher", checkup.launcher.as_deref().unwrap_or("none, started by hand"))?;
    line("mpirun", checkup.mpirun.as_deref().unwrap_or("not found"))?;
    match &checkup.mpi[..] {
        [] => line("MPI", "not found; install Open MPI or MPICH (Debian: apt install openmpi-bin)")?,
        found => {
            for Library { library, version } in found {
                line("MPI", &format!("{version} ({library})"))?;
            }
            line("taken", checkup.mpi_taken.as_deref().unwrap_or("none"))?;
        }
    }
    match &checkup.scalapack[..] {
        [] => line("ScaLAPACK", "not found; only `reshard bench` looks for it")?,
        found => line("ScaLAPACK", &found.join(", "))?,
    }
    for Attempt { engine, ok, seconds, said } in &checkup.engines {
        let answer = match (ok, said) {
            (true, _) => format!("works, every element verified ({})", time(*seconds)),
            (false, Some(said)) => format!("FAILED: {said}"),
            (false, None) => "FAILED".to_string(),
        };
        line(engine, &answer)?;
    }
    if checkup.mpirun.is_none() || checkup.mpi_taken.is_none() {
        line("mpi", "not tried: there is no mpirun, or no library for it")?;
    }
    Ok(())
}
