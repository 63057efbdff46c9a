//! A matrix on a grid, and calls that move one to another.

use crate::host::{Call, Host};
use std::ffi::c_int;

/// How a matrix is distributed.
#[derive(Clone)]
pub struct Side {
    pub grid: [usize; 2],
    pub block: [usize; 2],
    /// The process that has the first block.
    pub source: [usize; 2],
    /// The ranks of the grid, row by row.
    pub ranks: Vec<usize>,
}

impl Side {
    /// A context of the grid. All processes must call it.
    fn context(&self, host: &Host) -> c_int {
        host.context(self.grid[0], self.grid[1], &self.ranks)
    }

    /// Where a rank is in the grid; none outside of it.
    fn place(&self, rank: usize) -> Option<[usize; 2]> {
        let at = self.ranks.iter().position(|&other| other == rank)?;
        Some([at / self.grid[1], at % self.grid[1]])
    }

    /// Rows or columns that a rank has.
    fn local(&self, rank: usize, dim: usize, len: usize) -> usize {
        let owner = |index: usize| (index / self.block[dim] + self.source[dim]) % self.grid[dim];
        self.place(rank).map_or(0, |place| (0..len).filter(|&index| owner(index) == place[dim]).count())
    }
}

/// A matrix, and this process's part of it.
pub struct Matrix {
    side: Side,
    shape: [usize; 2],
    context: c_int,
    descriptor: [c_int; 9],
    pub part: Vec<u64>,
}

impl Matrix {
    /// Every element another. All processes must call it.
    pub fn new(host: &Host, shape: [usize; 2], elem: usize, side: &Side) -> Self {
        let rank = host.world().rank();
        let context = side.context(host);
        let [rows, columns] = [0, 1].map(|dim| side.local(rank, dim, shape[dim]));
        let bytes = rows.max(1) * columns.max(1) * elem;
        let part = (0..bytes.div_ceil(8)).map(|at| (rank << 32 | at) as u64).collect();
        let int = |number: usize| number as c_int;
        let ([m, n], [mb, nb], [row, column]) = (shape, side.block, side.source);
        let descriptor =
            [1, context, int(m), int(n), int(mb), int(nb), int(row), int(column), int(rows.max(1))];
        Self { side: side.clone(), shape, context, descriptor, part }
    }

    /// Puts the matrix into a new context of the same grid.
    pub fn renew(&mut self, host: &Host) {
        host.destroy(self.context);
        self.context = self.side.context(host);
        self.descriptor[1] = self.context;
    }

    pub fn destroy(self, host: &Host) {
        host.destroy(self.context);
    }
}

/// Moves the first matrix to the second, by our routine of this name or by ScaLAPACK's.
pub fn call(host: &Host, ours: bool, name: &str, [a, b]: &mut [Matrix; 2], context: c_int) {
    let call = Call {
        letters: None,
        m: a.shape[0] as c_int,
        n: a.shape[1] as c_int,
        a: a.part.as_mut_ptr().cast(),
        ia: 1,
        ja: 1,
        desca: &a.descriptor,
        b: b.part.as_mut_ptr().cast(),
        ib: 1,
        jb: 1,
        descb: &b.descriptor,
        context: Some(context),
    };
    host.call(ours, name, &call);
}
