//! The `reshard` program: describe, plan, inspect and run redistributions of distributed arrays.
//!
//! `args` defines the command line; each command turns its arguments into a request, calls the library, and shows the
//! result as text or JSON. Results go to standard output, everything else to standard error. Exit code 0: done; 1: failed;
//! 2: wrong usage, with one sentence that says what to do.

#![deny(unsafe_code)]

mod advise;
mod args;
mod bench;
mod couple;
mod doctor;
mod explain;
mod failure;
mod files;
mod json;
mod layout;
mod level;
mod limit;
mod manual;
mod memory;
mod message_table;
mod page;
mod plan;
mod problem;
mod relabel;
mod ring;
mod run;
mod schedule;
mod screen;
mod serve;
mod simulate;
mod words;

use args::{Args, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Time that a silent rank waits before it fails, so that the rank that reports can do so first.
const REPORT_GRACE: Duration = Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: memory::ExitOnOom = memory::ExitOnOom;

/// The first argument, if it is a command.
fn command() -> Option<String> {
    let argument = std::env::args_os().nth(1)?.into_string().ok()?;
    let known = Args::command().get_subcommands().any(|command| command.get_name() == argument);
    known.then_some(argument)
}

fn main() -> ExitCode {
    limit::ignore_signal();
    let args = Args::try_parse();
    if let Ok(args) = &args {
        memory::set_activity(args.command.activity());
        screen::set_colour(args.color);
    }
    // Wrong arguments are wrong on all ranks, and commands that need no other rank have equal results on all: rank 0 reports.
    let quiet = reshard_mpi::mpi::launched().is_some_and(|launcher| launcher.rank > 0);
    let result = match args {
        Ok(Args { command, .. }) if quiet && !command.is_parallel() => return ExitCode::SUCCESS,
        Ok(Args { command: Command::Run(args), .. }) => run::run(&args),
        Ok(Args { command: Command::Bench(args), .. }) => bench::run(&args),
        Ok(Args { command: Command::Plan(args), .. }) => plan::run(&args),
        Ok(Args { command: Command::Schedule(args), .. }) => schedule::run(&args),
        Ok(Args { command: Command::Layout(args), .. }) => layout::run(&args),
        Ok(Args { command: Command::Relabel(args), .. }) => relabel::run(&args),
        Ok(Args { command: Command::Simulate(args), .. }) => simulate::run(&args),
        Ok(Args { command: Command::Couple(args), .. }) => couple::run(&args),
        Ok(Args { command: Command::Ring(args), .. }) => ring::run(&args),
        Ok(Args { command: Command::Advise(args), .. }) => advise::run(&args),
        Ok(Args { command: Command::Make(args), .. }) => files::make_set(&args),
        Ok(Args { command: Command::Convert(args), .. }) => files::convert::convert_set(&args),
        Ok(Args { command: Command::Verify(args), .. }) => files::verify_set(&args),
        Ok(Args { command: Command::Show(args), .. }) => files::show_set(&args),
        Ok(Args { command: Command::Explain(args), .. }) => explain::run(&args),
        Ok(Args { command: Command::Serve(args), .. }) => serve::run(&args),
        Ok(Args { command: Command::Doctor(args), .. }) => doctor::run(&args),
        Ok(Args { command: Command::Completions(args), .. }) => manual::completions(&args),
        Ok(Args { command: Command::Man(args), .. }) => manual::pages(&args),
        // --help and --version are results, not errors.
        Err(error) if !error.use_stderr() => write!(std::io::stdout(), "{error}").map_err(Failure::from),
        Err(error) => Err(Failure::usage(&failure::in_one_sentence(&error, command().as_deref()))),
    };
    let result = result.map_err(|failure| match failure {
        Failure::Usage(_) if quiet => {
            // A launcher ends the job when the first rank fails, and output that was not yet written is lost: so the rank that
            // reports must fail first.
            std::thread::sleep(REPORT_GRACE);
            failure.silent()
        }
        failure => failure,
    });
    result.map_or_else(failure::Failure::report, |()| ExitCode::SUCCESS)
}
