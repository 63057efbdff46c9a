//! Which copy of a replicated source each receiver takes.
//!
//! Along a replicated dimension every process of the source has everything, so one of them has to be chosen. The choice is
//! a function of the receiver alone, so all ranks agree on it without a word, and what a rank receives stays a product
//! over the axes:
//!
//! - A receiver that is a rank of the source takes its own copy, the one at its own coordinates: what it has stays where it is.
//! - Any other takes the copies in turn. Receivers are counted with the axes that take replicated dimensions running
//!   fastest; number `x` of them takes the copy numbered by the sum of the digits of `x`, written in base `copies`, modulo `copies`.
//!   Of any `copies` receivers that begin at a multiple of it each takes another copy, and so do receivers at distances of a power of it.

use crate::distribution::Distribution;
use crate::grid::{Grid, MAX_DIMS};

/// The copies of a source with replicated dimensions, and the receivers that choose among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copies {
    from: Grid,
    to: Grid,
    /// The replicated dimensions of the source.
    dims: Vec<usize>,
    /// The dimensions of the destination, in the order in which its ranks are counted.
    order: Vec<usize>,
}

impl Copies {
    /// The copies of a source; `None` if it has no replicated dimension. Source axis `d` goes to destination axis `lands[d]`.
    pub fn new(from: &Distribution, to: &Distribution, lands: &[usize]) -> Option<Self> {
        let dims: Vec<usize> = (0..from.dims()).filter(|&dim| from.axes()[dim].is_replicated()).collect();
        if dims.is_empty() {
            return None;
        }
        let others = (0..from.dims()).filter(|dim| !dims.contains(dim));
        let order = dims.iter().copied().chain(others).map(|dim| lands[dim]).collect();
        Some(Self { from: from.grid().clone(), to: to.grid().clone(), dims, order })
    }

    /// The copy at these coordinates on the source's grid: its coordinates along replicated dimensions, and 0 along others.
    pub fn at(&self, coords: &[u64]) -> [u64; MAX_DIMS] {
        let mut copy = [0; MAX_DIMS];
        self.dims.iter().for_each(|&dim| copy[dim] = coords[dim]);
        copy
    }

    /// The copy that a rank of the destination takes, as [`at`](Self::at).
    pub fn taken_by(&self, rank: u64, coords: &[u64]) -> [u64; MAX_DIMS] {
        if let Some(own) = self.from.coords(rank) {
            return self.at(&own);
        }
        let mut taken = [0; MAX_DIMS];
        let extents = |dim: usize| self.from.extents()[dim];
        // Neither is more than the size of a grid, 2^62.
        let copies: u64 = self.dims.iter().map(|&dim| extents(dim)).product();
        let number = self.order.iter().rev().fold(0, |at, &dim| at * self.to.extents()[dim] + coords[dim]);
        let mut copy = turn(number, copies);
        for &dim in &self.dims {
            taken[dim] = copy % extents(dim);
            copy /= extents(dim);
        }
        taken
    }

    /// Keeps, of the ranks of the destination that share elements with the copy at these coordinates, those that take it.
    pub fn retain_takers(&self, shares: &mut Vec<(u64, u64)>, copy: &[u64]) {
        let taken =
            |rank: u64| self.to.coords(rank).is_some_and(|coords| self.is_taken_by(rank, &coords, copy));
        shares.retain(|&(rank, _)| taken(rank));
    }

    /// True if these coordinates on the source's grid are those of the copy that a rank of the destination takes.
    pub fn is_taken_by(&self, rank: u64, coords: &[u64], copy: &[u64]) -> bool {
        self.taken_by(rank, coords) == self.at(copy)
    }
}

/// The sum of the digits of a number in base `copies`, modulo `copies`.
fn turn(number: u64, copies: u64) -> u64 {
    let (mut rest, mut turn) = (number, 0);
    while rest > 0 && copies > 1 {
        turn = (turn + rest % copies) % copies;
        rest /= copies;
    }
    turn
}
