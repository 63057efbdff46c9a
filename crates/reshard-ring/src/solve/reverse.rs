//! A ring with time running backwards: each process holds its target at first, and the items go back over the same links.
//!
//! A program of the reversed ring, run backwards, is a program of the ring. As soon as possible then means as late as
//! possible, and decisions are made from the end, which sometimes gives better programs.

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

    /// Turns a program of the reversed ring into one of the ring. The pace of its transfers must be a whole number, as it is if
    /// items are simulated one by one.
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
