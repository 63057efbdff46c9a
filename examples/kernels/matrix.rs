//! Matrices whose elements, products and solutions are known in advance, so that no speed of a wrong result is ever reported.
//!
//! A and B are random, with a large number in each row, not on the diagonal: well conditioned, and LU has to swap rows. The solutions
//! X have rank 2, so that right-hand sides are known in any layout for the price of two products with a vector.

use crate::scalapack::Scalapack;
use reshard::{Layout, Result, bytemuck};
use reshard_mpi::Comm;
use std::ffi::c_int;

/// A grid of all processes and square blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    pub grid: [usize; 2],
    pub block: usize,
    pub context: c_int,
}

impl std::fmt::Display for Deal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { grid: [rows, columns], block, .. } = self;
        write!(f, "{rows}x{columns}/{block}x{block}")
    }
}

impl Deal {
    /// The indices along a dimension that this process has.
    fn own(self, comm: &Comm, dim: usize, len: usize) -> Vec<usize> {
        let place = [comm.rank() / self.grid[1], comm.rank() % self.grid[1]];
        (0..len).filter(|index| index / self.block % self.grid[dim] == place[dim]).collect()
    }
}

/// A matrix, and the part of this process, column by column.
#[derive(Clone)]
pub struct Matrix {
    pub layout: Layout,
    pub descriptor: [c_int; 9],
    /// The indices in the whole matrix.
    rows: Vec<usize>,
    columns: Vec<usize>,
    pub part: Vec<f64>,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn new(comm: &Comm, deal: Deal, [height, width]: [usize; 2]) -> Result<Self> {
        let layout = format!("{deal} of {height}x{width}").parse()?;
        let (rows, columns) = (deal.own(comm, 0, height), deal.own(comm, 1, width));
        let numbers = [1, 0, height, width, deal.block, deal.block, 0, 0, rows.len().max(1)];
        let mut descriptor = numbers.map(|number| number as c_int);
        descriptor[1] = deal.context;
        let part = vec![0.0; rows.len() * columns.len()];
        Ok(Self { layout, descriptor, rows, columns, part })
    }

    /// A matrix of these elements.
    pub fn of(
        comm: &Comm,
        deal: Deal,
        shape: [usize; 2],
        element: impl Fn(usize, usize) -> f64,
    ) -> Result<Self> {
        let mut matrix = Self::new(comm, deal, shape)?;
        let elements: Vec<f64> = matrix.indices().map(|[row, column]| element(row, column)).collect();
        matrix.part = elements;
        Ok(matrix)
    }

    /// Rows of the part.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The row and the column of each element of the part.
    fn indices(&self) -> impl Iterator<Item = [usize; 2]> {
        self.columns.iter().flat_map(|&column| self.rows.iter().map(move |&row| [row, column]))
    }
}

/// The pivots of a factorisation in one layout for a solver in another. Collective.
pub fn moved_pivots(comm: &Comm, pivots: &[c_int], from: Deal, to: Deal, size: usize) -> Result<Vec<c_int>> {
    let mut mine = vec![0; size];
    from.own(comm, 0, size).into_iter().zip(pivots).for_each(|(row, &pivot)| mine[row] = pivot);
    let mut all = vec![0; size * comm.size()];
    comm.all_gather(bytemuck::cast_slice(&mine), bytemuck::cast_slice_mut(&mut all))?;
    let pivot = |row: usize| all.iter().skip(row).step_by(size).copied().max().unwrap_or(0);
    let mut moved: Vec<c_int> = to.own(comm, 0, size).into_iter().map(pivot).collect();
    moved.resize(moved.len().max(1) + to.block, 0);
    Ok(moved)
}

/// The elements of the experiment of one size.
pub struct Known {
    pub size: usize,
    /// Two vectors z, each with A z and A B z.
    vectors: [[Vec<f64>; 3]; 2],
}

/// A number from -1/2 to 1/2 that depends on its indices in no simple way.
fn noise(kind: u64, row: usize, column: usize) -> f64 {
    let mut z = (kind << 60) ^ ((row as u64) << 30) ^ column as u64;
    z = (z ^ (z >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^= z >> 32;
    (z >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

/// An element of A (kind 1) or of B (kind 2).
fn element(kind: u64, size: usize, row: usize, column: usize) -> f64 {
    let large = if (row + size / 3) % size == column { 2.0 * (size as f64).sqrt() } else { 0.0 };
    noise(kind, row, column) + large
}

impl Known {
    /// Every process multiplies some rows. Collective.
    pub fn new(comm: &Comm, size: usize) -> Result<Self> {
        let product = |kind: u64, vector: &[f64]| {
            let mine: Vec<f64> = (0..size.div_ceil(comm.size()))
                .map(|at| at * comm.size() + comm.rank())
                .map(|row| {
                    let terms = vector.iter().enumerate();
                    terms.map(|(column, z)| element(kind, size, row, column) * z).sum()
                })
                .collect();
            let mut all = vec![0.0; mine.len() * comm.size()];
            comm.all_gather(bytemuck::cast_slice(&mine), bytemuck::cast_slice_mut(&mut all))?;
            let at = |row: usize| all[row % comm.size() * mine.len() + row / comm.size()];
            Ok::<Vec<f64>, reshard::Error>((0..size).map(at).collect())
        };
        let vectors = |kind: u64| {
            let z: Vec<f64> = (0..size).map(|row| noise(kind, row, 0)).collect();
            let a_b_z = product(1, &product(2, &z)?)?;
            let a_z = product(1, &z)?;
            Ok::<_, reshard::Error>([z, a_z, a_b_z])
        };
        Ok(Self { size, vectors: [vectors(3)?, vectors(4)?] })
    }

    pub fn a(&self, row: usize, column: usize) -> f64 {
        element(1, self.size, row, column)
    }

    pub fn b(&self, row: usize, column: usize) -> f64 {
        element(2, self.size, row, column)
    }

    /// An element of X (0), of A X (1) or of A B X (2).
    fn combined(&self, which: usize, row: usize, column: usize) -> f64 {
        let [one, other] = &self.vectors;
        one[which][row] * noise(5, column, 0) + other[which][row] * noise(6, column, 0)
    }

    /// Right-hand sides whose solutions with A are known.
    pub fn a_x(&self, row: usize, column: usize) -> f64 {
        self.combined(1, row, column)
    }

    /// Right-hand sides whose solutions with A B are known.
    pub fn a_b_x(&self, row: usize, column: usize) -> f64 {
        self.combined(2, row, column)
    }

    /// Asserts that a matrix is A B: its product with a vector is.
    pub fn assert_product(&self, comm: &Comm, matrix: &Matrix) -> Result<()> {
        let z = &self.vectors[0][0];
        let mut mine = vec![0.0; self.size];
        for ([row, column], is) in matrix.indices().zip(&matrix.part) {
            mine[row] += is * z[column];
        }
        let mut all = vec![0.0; self.size * comm.size()];
        comm.all_gather(bytemuck::cast_slice(&mine), bytemuck::cast_slice_mut(&mut all))?;
        for row in 0..self.size {
            let is: f64 = all.iter().skip(row).step_by(self.size).sum();
            let should = self.vectors[0][2][row];
            let near = (is - should).abs() <= 1e-10 * self.size as f64;
            assert!(near, "row {row} of {}: A B z is {is}, and should be {should}", matrix.layout);
        }
        Ok(())
    }

    /// Asserts that a matrix is X.
    pub fn assert_solution(&self, matrix: &Matrix) {
        for ([row, column], is) in matrix.indices().zip(&matrix.part) {
            let should = self.combined(0, row, column);
            let near = (is - should).abs() <= 1e-9;
            assert!(near, "X of {row}, {column} in {} is {is}, and should be {should}", matrix.layout);
        }
    }

    /// Asserts that two matrices of one layout are equal, but for rounding.
    pub fn assert_near(&self, matrix: &Matrix, other: &Matrix) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * (self.size as f64).sqrt();
        let all = matrix.part.iter().zip(&other.part).all(near);
        assert!(all && matrix.part.len() == other.part.len(), "factors in {} differ", matrix.layout);
    }
}

/// A BLACS context for each grid, and with it every layout of the sweep.
pub fn deals(comm: &Comm, scalapack: &Scalapack, blocks: &[usize]) -> Vec<Deal> {
    let ranks = comm.size();
    let mut all = Vec::new();
    for rows in (1..=ranks).filter(|rows| ranks.is_multiple_of(*rows)) {
        let grid = [rows, ranks / rows];
        let context = scalapack.context(grid);
        all.extend(blocks.iter().map(|&block| Deal { grid, block, context }));
    }
    all
}
