//! Our routines beside ScaLAPACK's, in turns, called as C calls them: under `mpirun -n 4`, as `cargo xtask bench scalapack` does. Writes
//! one line of JSON. `speed [CASE]` times chosen cases, or only one; `speed --random SEED COUNT [NUMBER]` so many cases that are drawn, or only one of them.

#![allow(unsafe_code, missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod chosen;
mod drawn;
#[allow(dead_code)]
#[path = "../../tests/calls/host.rs"]
mod host;
mod matrix;

use host::Host;
use matrix::{Matrix, call};
use reshard_mpi::mpi::Reduce;
use std::ffi::c_int;
use std::time::Instant;

/// Integers of the host program.
pub type Int = i32;

const PROCESSES: usize = 4;

const REPETITIONS: usize = 15;

/// The context of all processes. All must call it.
fn context_of_all(host: &Host) -> c_int {
    host.context(1, PROCESSES, &(0..PROCESSES).collect::<Vec<_>>())
}

/// Calls both, untimed: the first of ours plans, and more try ways. They must give the same.
fn checked(host: &Host, case: &str, routine: &str, pair: &mut [Matrix; 2], context: c_int) {
    let [ours, theirs] = [true, false].map(|ours| {
        pair[1].part.fill(u64::MAX);
        for _ in 0..if ours { 12 } else { 1 } {
            call(host, ours, routine, pair, context);
        }
        pair[1].part.clone()
    });
    assert!(ours == theirs, "{case} is moved as ScaLAPACK moves it");
}

/// Seconds of one of so many calls in a row, of the slowest process.
fn timed(host: &Host, calls: u32, mut one: impl FnMut()) -> f64 {
    host.world().barrier().unwrap();
    let began = Instant::now();
    (0..calls).for_each(|_| one());
    let mut nanoseconds = [began.elapsed().as_nanos() as u64];
    host.world().all_reduce(&mut nanoseconds, Reduce::Max).unwrap();
    nanoseconds[0] as f64 * 1e-9 / f64::from(calls)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let host = Host::new(false);
    assert_eq!(host.world().size(), PROCESSES, "start it with four processes");
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is no number"));
    let json = match arguments[..] {
        ["--random", seed, count, ref only @ ..] => {
            let only = only.first().map(|only| number(only) as usize);
            drawn::run(&host, number(seed), number(count) as usize, only)
        }
        [] => chosen::run(&host, None),
        [case, ..] => chosen::run(&host, Some(case)),
    };
    if host.world().rank() == 0 {
        println!("{json}");
    }
    host.end();
}
