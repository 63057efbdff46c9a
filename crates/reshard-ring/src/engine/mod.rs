//! Engines that run the program of a ring on items of any kind, in place.
//!
//! | file | what it is |
//! |---|---|
//! | `plan.rs` | a program and the size of an item, checked against each other: what engines run |
//! | `stock.rs` | which slots of a process's memory hold items |
//! | `share.rs` | what one process still has to send and to receive, however its messages travel |
//! | `letters.rs` | how long messages are, and how many |
//! | `threads.rs`, `messages.rs` | the engines within one process |

mod letters;
mod messages;
mod plan;
mod share;
mod stock;
mod threads;

pub use letters::Letters;
pub use messages::RingMessages;
pub use plan::RingPlan;
pub use share::Share;
pub use threads::RingThreads;

use crate::solve::RingProblem;
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
