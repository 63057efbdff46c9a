//! The `reshard` program: describe, plan, inspect and run redistributions of distributed arrays.
//!
//! `args` says what may be typed; each command turns that into what was meant, asks the library, and shows the
//! answer as text or JSON. Results go to standard output, talk to standard error. Exit code 0: done; 1: failed;
//! 2: wrong usage, with one sentence that says what to do.

#![deny(unsafe_code)]

mod args;
mod bench;
mod explain;
mod failure;
mod json;
mod layout;
mod memory;
mod message_table;
mod plan;
mod problem;
mod relabel;
mod ring;
mod run;
mod schedule;
mod screen;
mod simulate;
mod svg;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// EngineChoice long a rank that has nothing to say waits for the one that has.
const OTHERS_SPEAK: Duration = Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: memory::LastWord = memory::LastWord;

/// The command that was typed, if it is one.
fn command() -> Option<String> {
    let typed = std::env::args().nth(1)?;
    let known = Args::command().get_subcommands().any(|command| command.get_name() == typed);
    known.then_some(typed)
}

fn main() -> ExitCode {
    let args = Args::try_parse();
    if let Ok(args) = &args {
        memory::wanted_while(args.command.doing());
    }
    // What is typed is wrong on all ranks alike, and what needs no other rank is answered by all alike: one says so.
    let quiet = reshard_mpi::mpi::launched().is_some_and(|launcher| launcher.rank > 0);
    let result = match args {
        Ok(Args { command }) if quiet && !command.is_parallel() => return ExitCode::SUCCESS,
        Ok(Args { command: Command::Run(args) }) => run::run(&args),
        Ok(Args { command: Command::Bench(args) }) => bench::run(&args),
        Ok(Args { command: Command::Plan(args) }) => plan::run(&args),
        Ok(Args { command: Command::Schedule(args) }) => schedule::run(&args),
        Ok(Args { command: Command::Layout(args) }) => layout::run(&args),
        Ok(Args { command: Command::Relabel(args) }) => relabel::run(&args),
        Ok(Args { command: Command::Simulate(args) }) => simulate::run(&args),
        Ok(Args { command: Command::Ring(args) }) => ring::run(&args),
        Ok(Args { command: Command::Explain(args) }) => explain::run(&args),
        // --help and --version are answers, not errors.
        Err(error) if !error.use_stderr() => write!(std::io::stdout(), "{error}").map_err(Failure::from),
        Err(error) => Err(Failure::usage(&failure::in_one_sentence(&error, command().as_deref()))),
    };
    let result = result.map_err(|failure| match failure {
        Failure::Usage(_) if quiet => {
            // A launcher ends the job, and what was not yet said is lost, when the first rank fails: that is to be the one who
            // says it, and ends this one, too.
            std::thread::sleep(OTHERS_SPEAK);
            failure.silent()
        }
        failure => failure,
    });
    result.map_or_else(failure::Failure::report, |()| ExitCode::SUCCESS)
}
