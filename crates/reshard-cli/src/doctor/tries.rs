//! What can only be known by trying: libraries that are loaded and engines that move something, each in a process of its own.

use crate::failure::Failure;
use reshard_mpi::Mpi;
use reshard_mpi::baselines::scalapack_libraries;
use reshard_mpi::mpi::library_names;
use serde::Serialize;
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longest that a process may take: a second is usual, the launchers of MPI need more.
const DEADLINE: Duration = Duration::from_secs(30);

/// An MPI library that can be loaded.
#[derive(Serialize)]
pub struct Library {
    pub library: String,
    pub version: String,
}

/// An engine that was tried.
#[derive(Serialize)]
pub struct Attempt {
    pub engine: &'static str,
    pub ok: bool,
    pub seconds: f64,
    /// What it said if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// The launcher in the PATH.
pub struct Mpirun {
    pub version: String,
    is_open_mpi: bool,
}

/// Answers a look: the version of an MPI library, of the one that is taken, or the names of ScaLAPACK's.
pub fn probe(what: &str) -> Result<(), Failure> {
    let answer = match what.split_once('=') {
        Some(("mpi", name)) => Mpi::load(Some(name))?.version().to_string(),
        _ if what == "mpi" => Mpi::load(None)?.version().to_string(),
        _ if what == "scalapack" => scalapack_libraries().join("\n"),
        _ => return Err(Failure::usage(&format!("--probe: {what:?} is not known"))),
    };
    Ok(writeln!(std::io::stdout(), "{answer}")?)
}

/// This program, as if nobody had launched it with others.
fn ourselves() -> Option<Command> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    without_launcher(&mut command);
    Some(command)
}

fn without_launcher(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["OMPI_", "PMI", "PMIX_", "PRTE_", "MV2_", "SLURM_", "HYD"]
            .iter()
            .any(|begin| text.starts_with(begin))
        {
            command.env_remove(&name);
        }
    }
}

/// Runs a process to its end, or to the deadline.
fn output(mut command: Command) -> Result<Output, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < DEADLINE => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it was not done after {} s", DEADLINE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    // Answers are far shorter than what a pipe holds, so nobody waits for us to read them.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let out = child.stdout.take().map_or(Ok(0), |mut out| out.read_to_end(&mut stdout));
    let err = child.stderr.take().map_or(Ok(0), |mut err| err.read_to_end(&mut stderr));
    out.and(err).map_err(|error| error.to_string())?;
    Ok(Output { status, stdout, stderr })
}

/// The answer of a look; none if what was looked for is not there.
fn asked(what: &str) -> Option<String> {
    let mut command = ourselves()?;
    command.args(["doctor", "--probe", what]);
    let output = output(command).ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// All MPI libraries that can be loaded by a name that is known.
pub fn mpi_libraries() -> Vec<Library> {
    let found = |library: &str| {
        Some(Library { library: library.to_string(), version: asked(&format!("mpi={library}"))? })
    };
    library_names().filter_map(found).collect()
}

/// The version of the MPI that would be taken.
pub fn mpi_taken() -> Option<String> {
    asked("mpi")
}

pub fn scalapack() -> Vec<String> {
    asked("scalapack").map_or_else(Vec::new, |names| names.lines().map(String::from).collect())
}

/// The launcher in the PATH, if there is one.
pub fn mpirun() -> Option<Mpirun> {
    let mut command = Command::new("mpirun");
    command.arg("--version");
    without_launcher(&mut command);
    let output = output(command).ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).to_string();
    let is_open_mpi = text.contains("Open MPI") || text.contains("OpenRTE");
    Some(Mpirun {
        version: text.lines().find(|line| !line.trim().is_empty())?.trim().to_string(),
        is_open_mpi,
    })
}

/// Tries every engine, on arrays that take about a second together; those that need MPI if there is a launcher.
pub fn engines(mpirun: Option<&Mpirun>) -> Vec<Attempt> {
    const MOVE: [&str; 7] = ["run", "2x2/64x64", "3x1/50x50", "--shape", "1000x1000", "--repeat", "3"];
    const RING: [&str; 5] = ["ring", "--loads", "900,100,300,700", "--targets", "500,500,500,500"];
    let mut attempts = vec![
        attempt("threads", None, &MOVE, &["--engine", "threads"]),
        attempt("messages", None, &MOVE, &["--engine", "messages"]),
        attempt("ring threads", None, &RING, &["--run", "--engine", "threads"]),
        attempt("ring messages", None, &RING, &["--run", "--engine", "messages"]),
    ];
    if let Some(mpirun) = mpirun {
        attempts.push(attempt("mpi", Some(mpirun), &MOVE, &["--engine", "mpi"]));
        attempts.push(attempt("ring mpi", Some(mpirun), &RING, &["--run", "--engine", "mpi"]));
    }
    attempts
}

fn attempt(engine: &'static str, mpirun: Option<&Mpirun>, moved: &[&str], flags: &[&str]) -> Attempt {
    let begin = Instant::now();
    let result = tried(mpirun, moved, flags);
    Attempt { engine, ok: result.is_ok(), seconds: begin.elapsed().as_secs_f64(), said: result.err() }
}

fn tried(mpirun: Option<&Mpirun>, moved: &[&str], flags: &[&str]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = match mpirun {
        None => Command::new(program),
        Some(mpirun) => {
            let mut command = Command::new("mpirun");
            command.args(["-n", "4"]);
            if mpirun.is_open_mpi {
                // Four ranks, however few cores there are, and whoever asks.
                command.args(["--oversubscribe", "--allow-run-as-root"]);
            }
            command.arg(program);
            command
        }
    };
    without_launcher(&mut command);
    let output = output({
        command.args(moved).args(flags).arg("--json");
        command
    })?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let answer = stdout.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let verified = answer.is_some_and(|answer| answer["verified"] == true);
    match output.status.success() && verified {
        true => Ok(()),
        false => {
            let first = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            Err(first.strip_prefix("error: ").unwrap_or(first).to_string())
        }
    }
}
