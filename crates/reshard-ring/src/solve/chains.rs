//! Net flows as chains: consecutive links that all carry items in one direction, from a process that only sends to a process
//! that only receives.
//!
//! No link carries items both ways, so inside a chain every process receives from one neighbour and sends to the other, and
//! no other chain uses its ports. Two chains meet only at their ends: a process that sends to both sides has to choose which
//! first, and so has a process that receives from both sides. All solvers work chain by chain.

use super::problem::{RingProblem, Side};

/// Net flows of a ring: how many items each process sends to each side in all.
#[derive(Clone, Debug)]
pub(crate) struct Net<'a> {
    pub problem: &'a RingProblem,
    /// The net flow over each link `i -> i + 1`, negative to the left; some are at most 0 and some at least 0.
    pub flow: Vec<i64>,
}

/// Consecutive links that carry items in one direction: `links` senders from `first` on, towards `side`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub side: Side,
    pub first: usize,
    pub links: usize,
}

impl<'a> Net<'a> {
    pub fn new(problem: &'a RingProblem, flow: Vec<i64>) -> Self {
        Self { problem, flow }
    }

    fn procs(&self) -> usize {
        self.flow.len()
    }

    /// The neighbour of a process on a side.
    pub fn next(&self, rank: usize, side: Side) -> usize {
        let procs = self.procs();
        match side {
            Side::Right if rank + 1 == procs => 0,
            Side::Right => rank + 1,
            Side::Left if rank == 0 => procs - 1,
            Side::Left => rank - 1,
        }
    }

    /// Number of items a process sends to a side.
    pub fn sends(&self, rank: usize, side: Side) -> u64 {
        match side {
            Side::Right => self.flow[rank].max(0) as u64,
            Side::Left => (-self.flow[self.next(rank, Side::Left)]).max(0) as u64,
        }
    }

    /// Number of items that a process receives and that move towards `side`.
    pub fn receives(&self, rank: usize, side: Side) -> u64 {
        self.sends(self.next(rank, side.opposite()), side)
    }

    /// True if a process must receive before it can send all it has to.
    pub fn waits(&self, rank: usize) -> bool {
        self.sends(rank, Side::Right) + self.sends(rank, Side::Left) > self.problem.loads()[rank]
    }

    /// Time that a process's items take over its link to a side.
    pub fn time(&self, rank: usize, side: Side) -> u64 {
        self.sends(rank, side) * self.problem.cost(rank, side)
    }

    /// The chains that move items towards a side.
    pub fn chains(&self, side: Side) -> impl Iterator<Item = Chain> + '_ {
        let begins = move |&rank: &usize| self.sends(rank, side) > 0 && self.receives(rank, side) == 0;
        (0..self.procs()).filter(begins).map(move |first| {
            let links = self.ranks_from(first, side).take_while(|&rank| self.sends(rank, side) > 0).count();
            Chain { side, first, links }
        })
    }

    /// The senders of a chain, in the direction of its items.
    pub fn senders(&self, chain: Chain) -> impl Iterator<Item = usize> + '_ {
        self.ranks_from(chain.first, chain.side).take(chain.links)
    }

    /// All ranks from `first` on, towards `side`.
    fn ranks_from(&self, first: usize, side: Side) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(first), move |&rank| Some(self.next(rank, side))).take(self.procs())
    }
}
