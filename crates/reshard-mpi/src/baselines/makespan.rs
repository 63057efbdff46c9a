//! The makespan of an operation of all ranks: the time from the first start to the last end.
//!
//! The largest of the ranks' own times would be less on an oversubscribed node, where ranks take turns. The clock is the
//! system's, shared by all processes of a node; between nodes, which share no clock, the largest own time is taken.

use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use reshard_plan::Result;
use std::time::Duration;

/// Runs `run` on all ranks after a barrier. Returns its result and the makespan in seconds, equal on all ranks. Collective.
pub fn makespan<R>(
    comm: &Comm,
    limit: Option<Duration>,
    one_node: bool,
    run: impl FnOnce() -> Result<R>,
) -> Result<(R, f64)> {
    comm.barrier_within(limit)?;
    let begin = nanoseconds();
    let outcome = run();
    let end = nanoseconds();
    let mut numbers = if one_node { [end, u64::MAX - begin] } else { [end - begin, u64::MAX] };
    comm.all_reduce_within(&mut numbers, Reduce::Max, limit)?;
    let took = numbers[0] - (u64::MAX - numbers[1]);
    Ok((outcome?, took as f64 * 1e-9))
}

/// The monotonic clock that all processes of a node share, in nanoseconds.
#[allow(unsafe_code)]
fn nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
