//! Single items, as they are sent, gathered into runs.
//!
//! An item joins the run before it if it goes over the same link, in the same rhythm, and neither its sender nor its
//! receiver did anything else in between: then the run as a whole has both ports for itself.

use super::problem::{RingProblem, Side};
use super::program::{Program, Transfer};

/// A program in the making; items come in the order of their starts.
pub(crate) struct Record<'a> {
    problem: &'a RingProblem,
    transfers: Vec<Transfer>,
    /// The last transfer of each process's ports.
    sending: Vec<usize>,
    receiving: Vec<usize>,
}

impl<'a> Record<'a> {
    pub fn new(problem: &'a RingProblem) -> Self {
        let none = vec![usize::MAX; problem.procs()];
        Self { problem, transfers: Vec::new(), sending: none.clone(), receiving: none }
    }

    /// A burst of items without pauses.
    pub fn send(&mut self, from: usize, side: Side, items: u64, start: u64) {
        let to = side.of(from as u64, self.problem.procs() as u64) as usize;
        let cost = self.problem.cost(from, side);
        let end = start + items * cost;
        let run = self.sending[from];
        if run != usize::MAX && run == self.receiving[to] && self.transfers[run].side == side {
            let last = &mut self.transfers[run];
            let pace = start + cost - last.end;
            // The pace of a run, unless it is a single item and goes with any.
            let fits = |items: u64, taken: u64| {
                items == 1 || u128::from(taken - cost) == u128::from(items - 1) * u128::from(pace)
            };
            if fits(last.items, last.end - last.start) && fits(items, end - start) {
                (last.items, last.end) = (last.items + items, end);
                return;
            }
        }
        (self.sending[from], self.receiving[to]) = (self.transfers.len(), self.transfers.len());
        self.transfers.push(Transfer { from: from as u64, side, items, start, end });
    }

    pub fn program(self) -> Program {
        Program::new(self.problem.procs(), self.transfers)
    }
}
