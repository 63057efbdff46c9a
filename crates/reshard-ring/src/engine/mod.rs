//! Engines that run the program of a ring on items of any kind, in place.
//!
//! | file | what it is |
//! |---|---|
//! | `plan.rs` | a problem, its program and the size of an item, checked together: what engines run |
//! | `item_slots.rs` | which item slots of a process's memory are in use |
//! | `progress.rs` | what one process still has to send and to receive, whichever engine transports its fragments |
//! | `fragments.rs` | the size of fragments and the number of slots for them |
//! | `threads.rs`, `messages.rs` | the engines within one process |

mod fragments;
mod item_slots;
mod messages;
mod plan;
mod progress;
mod threads;

pub use fragments::FragmentSize;
pub use messages::RingMessages;
pub use plan::RingPlan;
pub use progress::RankProgress;
pub use threads::RingThreads;

use crate::solve::RingProblem;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::sync::Arc;
use std::time::Instant;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Items sent over links, each counted once for every link it crossed; with MPI, only those this rank sent.
    pub hops: u64,
    /// Bytes of the items counted in `hops`.
    pub bytes: u64,
    /// Messages in which these items were sent; 0 if the engine sends none.
    pub messages: u64,
    /// Seconds from the beginning of the run to its end.
    pub seconds: f64,
}

impl Report {
    fn new(plan: &RingPlan, messages: u64, begin: Instant) -> Self {
        Self { hops: plan.hops(), bytes: plan.bytes(), messages, seconds: begin.elapsed().as_secs_f64() }
    }

    /// The report of one process that sent `hops` items in `messages` messages.
    pub fn of_rank(plan: &RingPlan, hops: u64, messages: u64, begin: Instant) -> Self {
        let bytes = hops * plan.item_bytes() as u64;
        Self { hops, bytes, messages, seconds: begin.elapsed().as_secs_f64() }
    }
}

/// Balances items between neighbours once: solves the ring, moves the items and drops the plan. An item is `item_len`
/// values; process `i` has `loads[i]` items and ends with `targets[i]`. The vectors grow and shrink. To do it more than once,
/// make a [`RingPlan`] and run that.
///
/// ```
/// use reshard_ring::{RingProblem, even_out};
/// let mut parts = [vec![1, 2, 3, 4, 5], vec![], vec![6]];
/// even_out(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?.in_order()?, 1, &mut parts)?;
/// assert_eq!(parts, [[1, 2], [3, 4], [5, 6]]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn even_out<T: Pod>(problem: RingProblem, item_len: usize, parts: &mut [Vec<T>]) -> Result<Report> {
    let too_large =
        || Error::new(ErrorKind::TooLarge, format!("items of {item_len} values do not fit in any memory"));
    let plan = RingPlan::solved(problem, item_len.checked_mul(size_of::<T>()).ok_or_else(too_large)?)?;
    let problem = plan.problem();
    if parts.len() != plan.procs() {
        plan.check_parts(parts)?;
    }
    for (rank, (part, &load)) in parts.iter().zip(problem.loads()).enumerate() {
        // Neither overflows: the plan has checked its rooms.
        let expected = load as usize * item_len;
        if part.len() != expected {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the part of process {rank} has {} values; its {load} items of {item_len} values are {expected}",
                    part.len()
                ),
            ));
        }
    }
    for (rank, part) in parts.iter_mut().enumerate() {
        let len = plan.room(rank) * item_len;
        let more = len.saturating_sub(part.len());
        memory::reserve(part, more, &format!("the items of process {rank}"))?;
        part.resize(len, T::zeroed());
    }
    let mut engine = RingThreads::new(Arc::new(plan));
    let report = engine.run(parts)?;
    for (part, &target) in parts.iter_mut().zip(engine.plan().problem().targets()) {
        part.truncate(target as usize * item_len);
    }
    Ok(report)
}

/// A part as bytes.
fn bytes_of<T: Pod, P: AsMut<[T]>>(part: &mut P) -> &mut [u8] {
    bytemuck::cast_slice_mut(part.as_mut())
}
