//! Rings: loads evened out between neighbours, planned and run.
//!
//! The planner's nouns are all here ([`RingProblem`], [`solve`], [`Program`], [`check`]). A [`RingPlan`] is a program and the
//! size of an item; engines run it on items of any kind, in place: each process has one slice with room for
//! [`RingPlan::room`] items, holds its load before and its target after.
//!
//! | engine | how items travel | beside the items |
//! |---|---|---|
//! | [`RingThreads`] | straight from one process's memory into its neighbour's | nothing |
//! | [`RingMessages`] | in letters, a thread for each process | two letters for each process that sends |
//! | `MpiRing`, in `reshard-mpi` | in letters, each process a rank of MPI | two letters for each process that sends, two for each link it receives from |
//!
//! [`even_out`] does it all in one call.

mod letters;
mod messages;
mod plan;
mod share;
mod stock;
mod threads;

pub use letters::Letters;
pub use messages::RingMessages;
pub use plan::RingPlan;
pub use reshard_plan::ring::*;
pub use share::Share;
pub use threads::RingThreads;

use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::sync::Arc;
use std::time::Instant;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Items over links, each counted once for every link it crossed. Between processes, those this rank sent.
    pub hops: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Letters they travelled in.
    pub letters: u64,
    /// From the beginning of the run to its end.
    pub seconds: f64,
}

impl Report {
    fn new(plan: &RingPlan, letters: u64, begin: Instant) -> Self {
        Self { hops: plan.hops(), bytes: plan.bytes(), letters, seconds: begin.elapsed().as_secs_f64() }
    }

    /// Of one process that sent so many items in so many letters.
    pub fn of_rank(plan: &RingPlan, hops: u64, letters: u64, begin: Instant) -> Self {
        let bytes = hops * plan.item_bytes() as u64;
        Self { hops, bytes, letters, seconds: begin.elapsed().as_secs_f64() }
    }
}

/// Evens out items between neighbours, once: solves the ring, moves the items and forgets the plan. An item is `item_len`
/// values; process `i` has `loads[i]` items and ends with `targets[i]`. The vectors grow and shrink. Whoever does it again
/// makes a [`RingPlan`] and runs that.
///
/// ```
/// use reshard::ring::{RingProblem, even_out};
/// let mut parts = [vec![1, 2, 3, 4, 5], vec![], vec![6]];
/// even_out(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?.in_order()?, 1, &mut parts)?;
/// assert_eq!(parts, [[1, 2], [3, 4], [5, 6]]);
/// # Ok::<(), reshard::Error>(())
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
        // Both fit: the plan has room for them.
        let wanted = load as usize * item_len;
        if part.len() != wanted {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the part of process {rank} has {} values; its {load} items of {item_len} values are {wanted}",
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

/// The bytes of a part.
fn bytes_of<T: Pod, P: AsMut<[T]>>(part: &mut P) -> &mut [u8] {
    bytemuck::cast_slice_mut(part.as_mut())
}
