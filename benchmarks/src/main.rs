//! Measurements of reshard, run by `cargo xtask bench NAME`.
//!
//! Each benchmark compares rivals interleaved in one run, reports medians, and writes a table, a picture and the
//! raw numbers with the machine they were taken on. Nothing here is a test: machines are noisy.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod chart;
mod machine;
mod messages;
mod mpi;
mod network;
mod plan;
mod ring;
mod schedule;
mod threads;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match (arguments.next().as_deref(), arguments.next().as_deref()) {
        (Some("plan"), None) => plan::run(),
        (Some("schedule"), None) => schedule::run(),
        (Some("ring"), None) => ring::run(),
        (Some("messages"), None) => messages::run(),
        (Some("threads"), only) => threads::run(only),
        (Some("mpi"), Some(program)) => mpi::run(program),
        (Some("network"), Some(program)) => network::run(program),
        // For instruction counts: the default method alone, so many times over all cases.
        (Some("plan-loop"), Some(rounds)) => rounds.parse().map_err(Into::into).and_then(plan::run_loop),
        _ => {
            Err("usage: reshard-bench plan | schedule | ring | threads [CASE] | messages | mpi PROGRAM | network PROGRAM | \
                 plan-loop ROUNDS"
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
