//! How long something takes that all ranks do: from the first start to the last end.
//!
//! The largest of the ranks' own times would be less where ranks outnumber processors and take turns. The clock is the
//! system's, the same for all processes of a node; between nodes the largest own time is taken.

use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use reshard_plan::Result;
use std::time::Duration;

/// Runs something on all ranks at once and says how many seconds it took, the same on all. Collective.
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

/// A clock that all processes of a node share.
#[allow(unsafe_code)]
fn nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
