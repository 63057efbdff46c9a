//! Balancing: after each step all ranks tell each other what a column takes them, and the ring advisor says whether it pays to move columns
//! between neighbours. If so, the columns move in the order and with the values they have, in the least time.

use crate::ranks::{DEADLINE, Rank};
use crate::simulation::Strip;
use reshard::Result;
use reshard_mpi::{MpiRing, MpiRingOptions};
use reshard_ring::{Advisor, Policy, RingProblem, balanced, solve};
use std::collections::VecDeque;
use std::time::Duration;

/// Steps over which a rank looks at its speed. The median of them does not see a single step that was disturbed, and sees another speed
/// after three.
const STEPS: usize = 5;

/// What a redistribution takes besides moving columns, before one was measured: the coupling is closed and opened again.
const OVERHEAD: Duration = Duration::from_millis(20);

/// When the columns of a ring of ranks move.
pub struct Balance {
    policy: Policy,
    advisor: Advisor,
    /// The links, in nanoseconds for a column.
    ring: RingProblem,
    /// Nanoseconds of a column in the last steps on this rank.
    recent: VecDeque<u64>,
}

/// A redistribution that is due.
pub struct Due {
    problem: RingProblem,
    /// What the solution says that moving takes.
    pub predicted: Duration,
}

impl Balance {
    /// Balancing by a policy; `link` is what a column takes from this rank to a neighbour. Collective.
    pub fn new(rank: &Rank, policy: Policy, columns: &[u64], link: Duration) -> Result<Self> {
        let links = rank.comm.gather_numbers(link.as_nanos() as u64, Some(DEADLINE))?;
        let cost = links.into_iter().max().unwrap_or(0).max(1);
        let ring = RingProblem::between_gen_blocks(columns, columns)?;
        let ring = ring.with_right(vec![cost; columns.len()])?.with_left(vec![cost; columns.len()])?;
        let advisor = Advisor::default().with_overhead(OVERHEAD.as_nanos() as u64);
        Ok(Self { policy, advisor, ring, recent: VecDeque::new() })
    }

    /// What is due after `done` steps, the last of which took this rank so long, if `left` are to come. Collective: all ranks find the same.
    pub fn after_step(
        &mut self,
        rank: &Rank,
        columns: &[u64],
        took: Duration,
        [done, left]: [u64; 2],
    ) -> Result<Option<Due>> {
        if self.policy == Policy::Never || left == 0 {
            return Ok(None);
        }
        if self.recent.len() == STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back(took.as_nanos() as u64 / columns[rank.comm.rank()]);
        let mut sorted: Vec<u64> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let slowness = rank.comm.gather_numbers(sorted[sorted.len() / 2].max(1), Some(DEADLINE))?;
        let ring = self.ring.clone().with_loads(columns.to_vec(), columns.to_vec())?;
        let is_due = match self.policy {
            Policy::Never => false,
            Policy::Every(steps) => done.is_multiple_of(steps),
            Policy::WhenItPays => self.advisor.after_step(&ring, &slowness, left)?.is_some(),
        };
        if !is_due {
            return Ok(None);
        }
        let targets = balanced(columns.iter().sum(), &slowness)?;
        if targets == columns {
            return Ok(None);
        }
        let problem = ring.with_loads(columns.to_vec(), targets)?;
        let predicted = Duration::from_nanos(solve(&problem)?.makespan());
        Ok(Some(Due { problem, predicted }))
    }

    /// Takes note of what a redistribution took besides moving columns. Collective.
    pub fn learn(&mut self, rank: &Rank, overhead: Duration) -> Result<()> {
        let all = rank.comm.gather_numbers(overhead.as_nanos() as u64, Some(DEADLINE))?;
        self.advisor = std::mem::take(&mut self.advisor).with_overhead(all.into_iter().max().unwrap_or(0));
        Ok(())
    }
}

impl Due {
    /// Moves whole columns between neighbours, and returns how many each rank has then. Collective.
    pub fn carry_out(self, rank: &Rank, strip: &mut Strip) -> Result<Vec<u64>> {
        let (rows, targets) = (strip.rows(), self.problem.targets().to_vec());
        let options = MpiRingOptions::default().with_deadline(DEADLINE);
        let mut ring = MpiRing::of_problem(Ok(self.problem), size_of::<f64>() * rows, &rank.comm, options)?;
        strip.cells.resize(ring.room() * rows, 0.0);
        ring.run(&mut strip.cells)?;
        strip.cut(rank, &targets);
        Ok(targets)
    }
}
