//! The engine for rings whose processes share one memory: items are copied straight from a process's memory into its
//! neighbour's.
//!
//! There are no messages, and nothing waits. A work list holds the processes that may have something to send: each copies as
//! many items as it holds and its neighbour has room for; then the neighbour may have something to send, and the processes
//! that send to this one may find room. Items copied at once are contiguous, so an item costs one copy for each link.

use super::plan::RingPlan;
use super::progress::RankProgress;
use super::{Report, bytes_of};
use crate::solve::Side;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The engine for rings whose processes share one memory. It needs no memory beside the items, and runs on the caller's
/// thread.
///
/// ```
/// use reshard_ring::{RingPlan, RingProblem, RingThreads};
/// use std::sync::Arc;
/// // Columns of a matrix with 2 rows, in order: from 3, 1 and 0 of them to 1, 2 and 1.
/// let plan = RingPlan::solved(RingProblem::between_gen_blocks(&[3, 1, 0], &[1, 2, 1])?, 2 * 4)?;
/// let mut parts = [vec![0, 1, 10, 11, 20, 21], vec![30, 31, -1, -1], vec![-1, -1]];
/// RingThreads::new(Arc::new(plan)).run(&mut parts)?;
/// assert_eq!(parts[0][..2], [0, 1]);
/// assert_eq!(parts[1..], [vec![10, 11, 20, 21], vec![30, 31]]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub struct RingThreads {
    plan: Arc<RingPlan>,
    ranks: Vec<RankProgress>,
    /// The work list: processes that may have something to send, each at most once.
    work_list: VecDeque<usize>,
    /// For each process, whether it is in the work list.
    is_listed: Vec<bool>,
}

impl RingThreads {
    /// Makes an engine for the plan.
    pub fn new(plan: Arc<RingPlan>) -> Self {
        let procs = plan.procs();
        let ranks = (0..procs).map(|rank| RankProgress::new(&plan, rank)).collect();
        Self { plan, ranks, work_list: VecDeque::with_capacity(procs), is_listed: vec![false; procs] }
    }

    /// The plan that the engine runs.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// Bytes of memory beside plan and items: always 0.
    pub fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Moves the items in place. `parts` has one part for each process, with its [room](RingPlan::room). Allocates nothing.
    pub fn run<T: Pod, P: AsMut<[T]>>(&mut self, parts: &mut [P]) -> Result<Report> {
        self.plan.check_parts(parts)?;
        let begin = Instant::now();
        let Self { plan, ranks, work_list, is_listed } = self;
        let procs = plan.procs() as u64;
        ranks.iter_mut().for_each(RankProgress::begin);
        work_list.clear();
        work_list.extend(0..procs as usize);
        is_listed.fill(true);
        while let Some(rank) = work_list.pop_front() {
            is_listed[rank] = false;
            while let Some(side) = ranks[rank].sends_to() {
                let peer = side.of(rank as u64, procs) as usize;
                let (Ok([from, to]), Ok([part, peer_part])) =
                    (ranks.get_disjoint_mut([rank, peer]), parts.get_disjoint_mut([rank, peer]))
                else {
                    break;
                };
                if from.copy_to(bytes_of(part), to, bytes_of(peer_part)) == 0 {
                    break;
                }
                for neighbour in [Side::Left, Side::Right].map(|side| side.of(rank as u64, procs) as usize) {
                    if !is_listed[neighbour] {
                        is_listed[neighbour] = true;
                        work_list.push_back(neighbour);
                    }
                }
            }
        }
        if let Some(rank) = ranks.iter().position(|rank| !rank.is_over()) {
            return Err(deadlock(rank));
        }
        for (rank, part) in ranks.iter_mut().zip(parts) {
            rank.finish(bytes_of(part));
        }
        Ok(Report::new(plan, 0, begin))
    }
}

/// The error of a program that cannot go on. [`RingPlan::new`] refuses such programs, so this is a bug.
fn deadlock(rank: usize) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!("process {rank} cannot go on: the program has a deadlock; the items are only partly written"),
    )
}
