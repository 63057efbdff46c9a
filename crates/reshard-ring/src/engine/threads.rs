//! All processes of a ring in one: items go straight from one's memory into its neighbour's.
//!
//! There are no letters and nobody waits. A list of processes that may have something to do is worked off: each passes on as
//! many items as it holds and its neighbour has room for; then the neighbour may have something to send, and whoever sends
//! to this one may find room. What is passed on at once lies together, so an item costs one copy for each link.

use super::plan::RingPlan;
use super::share::Share;
use super::{Report, bytes_of};
use crate::solve::Side;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The engine for rings whose processes are all in this one. It needs no memory beside the items, and runs on the thread
/// of its caller.
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
    shares: Vec<Share>,
    /// Processes that may have something to do, each at most once.
    next: VecDeque<usize>,
    is_next: Vec<bool>,
}

impl RingThreads {
    /// Ready to run the plan.
    pub fn new(plan: Arc<RingPlan>) -> Self {
        let procs = plan.procs();
        let shares = (0..procs).map(|rank| Share::new(&plan, rank)).collect();
        Self { plan, shares, next: VecDeque::with_capacity(procs), is_next: vec![false; procs] }
    }

    /// What it runs.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// Bytes it takes beside plan and items: none.
    pub fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Moves the items, in place: a part for each process, with its [room](RingPlan::room). Allocates nothing.
    pub fn run<T: Pod, P: AsMut<[T]>>(&mut self, parts: &mut [P]) -> Result<Report> {
        self.plan.check_parts(parts)?;
        let begin = Instant::now();
        let Self { plan, shares, next, is_next } = self;
        let procs = plan.procs() as u64;
        shares.iter_mut().for_each(Share::begin);
        next.clear();
        next.extend(0..procs as usize);
        is_next.fill(true);
        while let Some(rank) = next.pop_front() {
            is_next[rank] = false;
            while let Some(side) = shares[rank].sends_to() {
                let peer = side.of(rank as u64, procs) as usize;
                let (Ok([share, to]), Ok([part, place])) =
                    (shares.get_disjoint_mut([rank, peer]), parts.get_disjoint_mut([rank, peer]))
                else {
                    break;
                };
                if share.pass(bytes_of(part), to, bytes_of(place)) == 0 {
                    break;
                }
                for woken in [Side::Left, Side::Right].map(|side| side.of(rank as u64, procs) as usize) {
                    if !is_next[woken] {
                        is_next[woken] = true;
                        next.push_back(woken);
                    }
                }
            }
        }
        if let Some(rank) = shares.iter().position(|share| !share.is_over()) {
            return Err(stuck(rank));
        }
        for (share, part) in shares.iter_mut().zip(parts) {
            share.settle(bytes_of(part));
        }
        Ok(Report::new(plan, 0, begin))
    }
}

/// The plan's door lets no such program in.
fn stuck(rank: usize) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!(
            "process {rank} waits for ever: the program does not work; the items are an unfinished mixture"
        ),
    )
}
