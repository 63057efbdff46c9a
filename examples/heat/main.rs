//! A small simulation coupled to a viewer: heat in a plate, computed by columns on some ranks, seen by rows on others, in another process.
//! Each has its own layout and knows nothing of the other's. docs/heat.md shows what comes out.
//!
//! `cargo run --release -p reshard-examples --bin heat -- --pictures .`                        both jobs; ranks are threads
//! `cargo run --release -p reshard-examples --bin heat -- --slow 1`                            rank 1 is slow: columns move away from it
//! `mpirun -n 4 heat produce --meet run.meet : -n 2 heat consume --meet run.meet --pictures .` ranks are processes

mod balance;
mod halo;
mod options;
mod picture;
mod plate;
mod producer;
mod ranks;
mod simulation;
mod viewer;

use options::{Options, wrong};
use producer::Produced;
use ranks::{Role, on_ranks};
use reshard::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use viewer::Viewed;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("produce") => {
            let options = Options::read(&arguments[1..])?;
            produced(&options)?.iter().for_each(|produced| report(&options, Some(produced), None));
        }
        Some("consume") => {
            let options = Options::read(&arguments[1..])?;
            viewed(&options)?.iter().for_each(|viewed| report(&options, None, Some(viewed)));
        }
        _ if reshard_mpi::mpi::launched().is_some() => {
            return Err(wrong("a launcher of MPI started this; say produce or consume".into()));
        }
        _ => both(&arguments)?,
    }
    Ok(())
}

/// Starts this program once more as the viewer, produces, and reports what both say.
fn both(arguments: &[String]) -> Result<()> {
    let mut options = Options::read(arguments)?;
    options.make_folder()?;
    let folder = Folder::new()?;
    options.meet_at(folder.0.join("meeting"));
    let mut viewer = Viewer::start(arguments, &folder)?;
    let produced = produced(&options)?;
    let viewed = viewer.ended()?;
    report(&options, produced.first(), Some(&viewed));
    Ok(())
}

/// What rank 0 of the producer says; none on other processes.
fn produced(options: &Options) -> Result<Vec<Produced>> {
    let ranks = on_ranks(options.producers, Role::Producer, |rank| {
        options.check(rank.comm.size())?;
        Ok((rank.comm.rank(), producer::produce(&rank, options)?))
    })?;
    Ok(ranks.into_iter().filter(|(rank, _)| *rank == 0).map(|(_, produced)| produced).collect())
}

/// The same of the viewer.
fn viewed(options: &Options) -> Result<Vec<Viewed>> {
    options.make_folder()?;
    let view = |rank: ranks::Rank| Ok((rank.comm.rank(), viewer::view(&rank, options)?));
    let ranks = on_ranks(options.consumers, Role::Consumer, view)?;
    Ok(ranks.into_iter().filter(|(rank, _)| *rank == 0).map(|(_, viewed)| viewed).collect())
}

/// The viewer's process, which ends with this one.
struct Viewer(Option<Child>);

impl Viewer {
    fn start(arguments: &[String], folder: &Folder) -> Result<Self> {
        let program = std::env::current_exe().map_err(external)?;
        let mut command = Command::new(program);
        command.args(["consume", "--meet"]).arg(folder.0.join("meeting")).args(arguments).arg("--json");
        command.stdout(Stdio::piped());
        Ok(Self(Some(command.spawn().map_err(external)?)))
    }

    /// What the viewer says, once it has ended.
    fn ended(&mut self) -> Result<Viewed> {
        let child = self.0.take().expect("it ends once");
        let output = child.wait_with_output().map_err(external)?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match serde_json::from_value(said["viewer"].clone()) {
            Ok(viewed) if output.status.success() => Ok(viewed),
            _ => Err(Error::new(ErrorKind::Partner, "the viewer failed; its last words are above")),
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder of this process alone, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("reshard-heat-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(external)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn external(error: std::io::Error) -> Error {
    Error::new(ErrorKind::External, format!("the viewer cannot be started: {error}"))
}

fn report(options: &Options, produced: Option<&Produced>, viewed: Option<&Viewed>) {
    if options.json {
        println!("{}", serde_json::json!({ "producer": produced, "viewer": viewed }));
        return;
    }
    let verified = |is: bool| if is { "; every bit verified" } else { "" };
    if let Some(said) = produced {
        let milliseconds = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
        println!(
            "{} steps of {} each, columns {:?}{}",
            options.plate.steps,
            milliseconds(said.seconds_per_step),
            said.columns,
            verified(said.verified)
        );
        for moved in &said.moves {
            println!(
                "columns moved after step {} in {} (by the ring's solution {}), coupled again in {}: {:?}",
                moved.after_step,
                milliseconds(moved.moving_seconds),
                milliseconds(moved.predicted_seconds),
                milliseconds(moved.reopening_seconds),
                moved.columns
            );
        }
        if let (Some(equal), Some(best)) = (said.equal_seconds_per_step, said.balanced_seconds_per_step) {
            let (equal, best) = (milliseconds(equal), milliseconds(best));
            println!("the waits of a step take {equal} with equal columns, {best} with the best ones");
        }
    }
    if let Some(said) = viewed {
        println!(
            "the viewer got {} steps in {}, hottest {:.4}, {} pictures{}",
            said.steps,
            if said.couplings == 1 { "one coupling".into() } else { format!("{} couplings", said.couplings) },
            said.hottest,
            said.pictures.len(),
            verified(said.verified)
        );
    }
}
