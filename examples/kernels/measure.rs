//! Times of kernels, of redistributions, and of both together; every result is checked before its time counts.

use crate::matrix::{Deal, Known, Matrix, moved_pivots};
use crate::scalapack::Scalapack;
use reshard::{Move, Plan, Result};
use reshard_mpi::baselines::makespan;
use reshard_mpi::{Comm, MpiEngine, MpiOptions, Own};
use serde::Serialize;
use std::ffi::c_int;

/// Runs of a redistribution before it is timed again: engines try ways in some of the first ones.
const WARM: usize = 4;

/// Timed runs of a redistribution.
const TIMED: usize = 3;

/// What all measurements of one size need.
pub struct Setting<'a> {
    pub comm: &'a Comm,
    pub scalapack: &'a Scalapack,
    pub known: Known,
}

/// Seconds of a redistribution: with a plan that is there already, in the median; and the first time, planning included.
#[derive(Clone, Copy, Serialize)]
pub struct Times {
    pub again: f64,
    pub first: f64,
}

/// A matrix on its way to another layout.
struct Moved {
    engine: MpiEngine,
    to: Matrix,
}

impl Moved {
    fn new(comm: &Comm, from: Deal, to: Deal, shape: [usize; 2]) -> Result<Self> {
        let (source, to) = (Matrix::new(comm, from, shape)?.layout, Matrix::new(comm, to, shape)?);
        let plan = Plan::for_rank(vec![Move::of::<f64>(source, to.layout.clone())?], comm.rank() as u64)?;
        Ok(Self { engine: MpiEngine::new(plan.into(), comm, MpiOptions::default())?, to })
    }

    /// One that has found its way, from a matrix of any values.
    fn warm(comm: &Comm, from: Deal, to: Deal, shape: [usize; 2]) -> Result<Self> {
        let (mut moved, source) = (Self::new(comm, from, to, shape)?, Matrix::new(comm, from, shape)?);
        for _ in 0..WARM {
            moved.run(&source)?;
        }
        Ok(moved)
    }

    fn run(&mut self, from: &Matrix) -> Result<&mut Matrix> {
        self.engine.run(Own::new(&from.part, &mut self.to.part))?;
        Ok(&mut self.to)
    }
}

impl Setting<'_> {
    pub fn square(&self) -> [usize; 2] {
        [self.known.size; 2]
    }

    /// The shape of the right-hand sides: a quarter as many as rows.
    pub fn sides(&self) -> [usize; 2] {
        [self.known.size, self.known.size / 4]
    }

    pub fn a(&self, deal: Deal) -> Result<Matrix> {
        Matrix::of(self.comm, deal, self.square(), |row, column| self.known.a(row, column))
    }

    fn b(&self, deal: Deal) -> Result<Matrix> {
        Matrix::of(self.comm, deal, self.square(), |row, column| self.known.b(row, column))
    }

    /// Right-hand sides for A.
    pub fn c(&self, deal: Deal) -> Result<Matrix> {
        Matrix::of(self.comm, deal, self.sides(), |row, column| self.known.a_x(row, column))
    }

    /// Right-hand sides for A B.
    fn c_of_product(&self, deal: Deal) -> Result<Matrix> {
        Matrix::of(self.comm, deal, self.sides(), |row, column| self.known.a_b_x(row, column))
    }

    /// Seconds from the first process's start to the last one's end, equal on all processes.
    fn timed<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<(R, f64)> {
        makespan(self.comm, None, true, run)
    }

    /// A redistribution of a matrix that is known on both sides.
    pub fn redistribution(
        &self,
        from: (Deal, &Matrix),
        to: (Deal, &Matrix),
        shape: [usize; 2],
    ) -> Result<Times> {
        let (mut moved, first) = self.timed(|| {
            let mut moved = Moved::new(self.comm, from.0, to.0, shape)?;
            moved.run(from.1)?;
            Ok(moved)
        })?;
        for _ in 0..WARM {
            moved.run(from.1)?;
        }
        moved.to.part.fill(f64::NAN);
        let mut again = [0.0; TIMED];
        for time in &mut again {
            *time = self.timed(|| moved.run(from.1).map(|_| ()))?.1;
        }
        assert!(moved.to.part == to.1.part, "{} to {} is moved element by element", from.0, to.0);
        again.sort_by(f64::total_cmp);
        Ok(Times { again: again[TIMED / 2], first })
    }
}

/// The matrices of the three kernels in one layout.
pub struct Here<'a> {
    setting: &'a Setting<'a>,
    a: Matrix,
    b: Matrix,
    product: Matrix,
    factors: Matrix,
    pivots: Vec<c_int>,
    c: Matrix,
    solutions: Matrix,
}

impl<'a> Here<'a> {
    pub fn new(setting: &'a Setting<'a>, deal: Deal) -> Result<Self> {
        let zero = |shape| Matrix::new(setting.comm, deal, shape);
        Ok(Self {
            setting,
            a: setting.a(deal)?,
            b: setting.b(deal)?,
            product: zero(setting.square())?,
            factors: zero(setting.square())?,
            pivots: Vec::new(),
            c: setting.c(deal)?,
            solutions: zero(setting.sides())?,
        })
    }

    /// Seconds of the three kernels.
    pub fn stay(&mut self) -> Result<[f64; 3]> {
        let Setting { comm, scalapack, known } = self.setting;
        // No result of an earlier run passes for one of this.
        self.product.part.fill(0.0);
        let run = || {
            scalapack.multiply(&self.a, &self.b, &mut self.product);
            Ok(())
        };
        let ((), multiply) = self.setting.timed(run)?;
        known.assert_product(comm, &self.product)?;
        self.factors.part.copy_from_slice(&self.a.part);
        let (pivots, lu) = self.setting.timed(|| scalapack.factor(&mut self.factors))?;
        self.pivots = pivots;
        self.solutions.part.copy_from_slice(&self.c.part);
        let run = || scalapack.solve(&self.factors, &self.pivots, &mut self.solutions);
        let ((), solve) = self.setting.timed(run)?;
        // Wrong factors have wrong solutions.
        known.assert_solution(&self.solutions);
        Ok([multiply, lu, solve])
    }
}

/// The redistributions from one layout to the best ones for multiply, LU and solve, and back.
pub struct There<'a> {
    setting: &'a Setting<'a>,
    here: Deal,
    best: [Deal; 3],
    multiply: [Moved; 3],
    lu: [Moved; 2],
    solve: [Moved; 3],
    /// In a chain from kernel to kernel.
    on: [Moved; 2],
    product: Matrix,
    c_of_product: Matrix,
}

impl<'a> There<'a> {
    pub fn new(setting: &'a Setting<'a>, here: Deal, best: [Deal; 3]) -> Result<Self> {
        let [mm, lu, ts] = best;
        let (square, sides) = (setting.square(), setting.sides());
        let moved = |from, to, shape| Moved::warm(setting.comm, from, to, shape);
        Ok(Self {
            setting,
            here,
            best,
            multiply: [moved(here, mm, square)?, moved(here, mm, square)?, moved(mm, here, square)?],
            lu: [moved(here, lu, square)?, moved(lu, here, square)?],
            solve: [moved(here, ts, square)?, moved(here, ts, sides)?, moved(ts, here, sides)?],
            on: [moved(mm, lu, square)?, moved(lu, ts, square)?],
            product: Matrix::new(setting.comm, mm, square)?,
            c_of_product: setting.c_of_product(here)?,
        })
    }

    /// Seconds of the three kernels, each from here to its best layout, there, and back; after [`Here::stay`].
    pub fn moved(&mut self, from: &Here<'_>) -> Result<[f64; 3]> {
        let Setting { comm, scalapack, known } = self.setting;
        let ([_, lu, ts], here) = (self.best, self.here);
        let [a, b, back] = &mut self.multiply;
        for result in [&mut self.product, &mut back.to, &mut self.lu[1].to, &mut self.solve[2].to] {
            result.part.fill(0.0);
        }
        let ((), multiply_seconds) = self.setting.timed(|| {
            scalapack.multiply(a.run(&from.a)?, b.run(&from.b)?, &mut self.product);
            back.run(&self.product).map(|_| ())
        })?;
        known.assert_product(comm, &back.to)?;
        let [there, back] = &mut self.lu;
        let (pivots, lu_seconds) = self.setting.timed(|| {
            let factors = there.run(&from.a)?;
            let pivots = scalapack.factor(factors)?;
            back.run(factors)?;
            moved_pivots(comm, &pivots, lu, here, known.size)
        })?;
        known.assert_near(&back.to, &from.factors);
        let rows = from.factors.rows();
        assert_eq!(pivots[..rows], from.pivots[..rows], "the rows that LU swaps in {here}");
        let [there, c, back] = &mut self.solve;
        let ((), solve_seconds) = self.setting.timed(|| {
            let pivots = moved_pivots(comm, &from.pivots, here, ts, known.size)?;
            let solutions = c.run(&from.c)?;
            scalapack.solve(there.run(&from.factors)?, &pivots, solutions)?;
            back.run(solutions).map(|_| ())
        })?;
        known.assert_solution(&back.to);
        Ok([multiply_seconds, lu_seconds, solve_seconds])
    }

    /// Seconds of the three kernels one after the other, each in its best layout, with six redistributions: A, B, A B, its factors, the
    /// right-hand sides, and the solutions back.
    pub fn chain(&mut self, from: &Here<'_>) -> Result<f64> {
        let Setting { comm, scalapack, known } = self.setting;
        let [_, lu, ts] = self.best;
        let ([a, b, _], [_, c, back], [to_lu, to_ts]) = (&mut self.multiply, &mut self.solve, &mut self.on);
        for result in [&mut self.product, &mut back.to] {
            result.part.fill(0.0);
        }
        let ((), seconds) = self.setting.timed(|| {
            scalapack.multiply(a.run(&from.a)?, b.run(&from.b)?, &mut self.product);
            let factors = to_lu.run(&self.product)?;
            let pivots = scalapack.factor(factors)?;
            let pivots = moved_pivots(comm, &pivots, lu, ts, known.size)?;
            let solutions = c.run(&self.c_of_product)?;
            scalapack.solve(to_ts.run(factors)?, &pivots, solutions)?;
            back.run(solutions).map(|_| ())
        })?;
        known.assert_solution(&back.to);
        Ok(seconds)
    }

    /// The chain without the first and last redistributions: everything begins and ends where it is best. `here` must be the best
    /// layout for multiply, whose matrices `from` has.
    pub fn optimised_chain(&mut self, from: &Here<'_>) -> Result<f64> {
        let Setting { comm, scalapack, known } = self.setting;
        let [mm, lu, ts] = self.best;
        assert_eq!(self.here, mm, "it begins where multiply is best");
        let [to_lu, to_ts] = &mut self.on;
        let mut solutions = self.setting.c_of_product(ts)?;
        self.product.part.fill(0.0);
        let ((), seconds) = self.setting.timed(|| {
            scalapack.multiply(&from.a, &from.b, &mut self.product);
            let factors = to_lu.run(&self.product)?;
            let pivots = scalapack.factor(factors)?;
            let pivots = moved_pivots(comm, &pivots, lu, ts, known.size)?;
            scalapack.solve(to_ts.run(factors)?, &pivots, &mut solutions)
        })?;
        known.assert_solution(&solutions);
        Ok(seconds)
    }
}
