//! A ring with time running backwards: what was to be received is there and goes back over the same links.
//!
//! A program of the reversed ring, run backwards, is a program of the ring. As soon as possible then means as late as
//! possible, and decisions are made from the end: sometimes the better programs.

use super::chains::Net;
use super::problem::RingProblem;
use super::program::{Program, Transfer};

/// The ring with loads and targets exchanged, and its net flows the other way round.
pub(crate) struct Reversed {
    problem: RingProblem,
    flow: Vec<i64>,
}

impl Reversed {
    pub fn new(net: &Net<'_>) -> Self {
        let flow = net.flow.iter().map(|flow| -flow).collect();
        Self { problem: net.problem.reversed(), flow }
    }

    pub fn net(&self) -> Net<'_> {
        Net::new(&self.problem, self.flow.clone())
    }

    /// A program of the reversed ring, run backwards. Its runs must have whole paces, as those of items sent one by one
    /// have.
    pub fn backwards(program: &Program) -> Program {
        let (procs, makespan) = (program.procs() as u64, program.makespan());
        let back = |transfer: &Transfer| Transfer {
            from: transfer.to(procs),
            side: transfer.side.opposite(),
            items: transfer.items,
            start: makespan - transfer.end,
            end: makespan - transfer.start,
        };
        Program::new(program.procs(), program.transfers().iter().map(back).collect())
    }
}
