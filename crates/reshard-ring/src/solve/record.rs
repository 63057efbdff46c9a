//! Gathers single items, in the order in which they are sent, into transfers.
//!
//! An item joins the last transfer if it goes over the same link, at the same pace, and neither its sender nor its receiver
//! did anything else in between: then no other transfer uses the two ports during this one.

use super::problem::{RingProblem, Side};
use super::program::{Program, Transfer};

/// The transfers of a program so far; items are added in the order of their starts.
pub(crate) struct Record<'a> {
    problem: &'a RingProblem,
    transfers: Vec<Transfer>,
    /// The last transfer that each process sends, or `usize::MAX`.
    sending: Vec<usize>,
    /// The last transfer that each process receives, or `usize::MAX`.
    receiving: Vec<usize>,
}

impl<'a> Record<'a> {
    pub fn new(problem: &'a RingProblem) -> Self {
        let none = vec![usize::MAX; problem.procs()];
        Self { problem, transfers: Vec::new(), sending: none.clone(), receiving: none }
    }

    /// Adds a burst of items without pauses.
    pub fn send(&mut self, from: usize, side: Side, items: u64, start: u64) {
        let to = side.of(from as u64, self.problem.procs() as u64) as usize;
        let cost = self.problem.cost(from, side);
        let end = start + items * cost;
        let run = self.sending[from];
        if run != usize::MAX && run == self.receiving[to] && self.transfers[run].side == side {
            let last = &mut self.transfers[run];
            let pace = start + cost - last.end;
            // A single item fits any pace.
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

    /// The program of all items added.
    pub fn program(self) -> Program {
        Program::new(self.problem.procs(), self.transfers)
    }
}
