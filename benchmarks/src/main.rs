//! Measurements of reshard, run by `cargo xtask bench NAME`.
//!
//! Each benchmark compares rivals interleaved in one run, reports medians, and writes a table, a picture and the
//! raw numbers with the machine they were taken on. Nothing here is a test: machines are noisy.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod chart;
mod count;
mod couple;
mod figures;
mod files;
mod kernels;
mod machine;
mod messages;
mod mpi;
mod network;
mod plan;
mod ring;
mod scalapack;
mod schedule;
mod space;
mod stats;
mod threads;

use std::process::ExitCode;

/// So many rounds of something whose instructions are counted.
fn count(what: &str, rounds: Option<&str>) -> Result<(), machine::Failure> {
    let rounds = rounds.ok_or("how many rounds?")?.parse()?;
    match what {
        "plan" => plan::run_loop(rounds),
        "threads" => count::threads(rounds),
        "pack" => count::messages(rounds, true),
        "unpack" => count::messages(rounds, false),
        _ => {
            Err(format!("instructions of {what} cannot be counted; there are plan, threads, pack and unpack")
                .into())
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match (arguments.next().as_deref(), arguments.next().as_deref()) {
        (Some("plan"), None) => plan::run(),
        (Some("schedule"), None) => schedule::run(),
        (Some("ring"), None) => ring::run(),
        (Some("couple"), Some(example)) => couple::run(example),
        (Some("figures"), None) => figures::run(),
        (Some("files"), Some(program)) => files::run(program, &arguments.collect::<Vec<_>>()),
        (Some("messages"), None) => messages::run(),
        (Some("threads"), only) => threads::run(only),
        (Some("mpi"), Some(program)) => mpi::run(program),
        (Some("scalapack"), Some(program)) => scalapack::run(program, &arguments.collect::<Vec<_>>()),
        (Some("kernels"), Some(program)) => kernels::run(program, &arguments.collect::<Vec<_>>()),
        (Some("network"), Some(program)) => network::run(program),
        (Some("space"), Some(program)) => space::run(program, &arguments.collect::<Vec<_>>()),
        (Some("count"), Some(what)) => count(what, arguments.next().as_deref()),
        _ => {
            Err("usage: reshard-bench plan | schedule | ring | figures | threads [CASE] | messages | mpi PROGRAM | scalapack EXAMPLE [--random SEED] | kernels EXAMPLE [SIZE..] | network PROGRAM | \
                 space PROGRAM [OPTIONS] | count plan|threads|pack|unpack ROUNDS"
                .into())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
