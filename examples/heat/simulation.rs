//! The simulation on one rank: a few neighbouring columns of the plate, computed step by step.

use crate::halo::Halo;
use crate::plate::Plate;
use crate::ranks::Rank;
use reshard::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// The columns of one rank.
pub struct Strip {
    plate: Plate,
    /// The first of its columns.
    pub first: usize,
    /// Its cells, column after column: as its layout has them, so they are published and moved from here.
    pub cells: Vec<f64>,
    next: Vec<f64>,
    pub halo: Halo,
}

impl Strip {
    /// The cold columns of a rank; `columns` has the number of each rank's.
    pub fn new(rank: &Rank, plate: Plate, columns: &[u64]) -> Result<Self> {
        let mut strip =
            Self { plate, first: 0, cells: Vec::new(), next: Vec::new(), halo: Halo::new(rank, plate.size)? };
        strip.cut(rank, columns);
        Ok(strip)
    }

    /// Takes note of which columns are this rank's now.
    pub fn cut(&mut self, rank: &Rank, columns: &[u64]) {
        let own = rank.comm.rank();
        self.first = columns[..own].iter().sum::<u64>() as usize;
        self.cells.resize(columns[own] as usize * self.plate.size, 0.0);
    }

    /// Cells of a column.
    pub fn rows(&self) -> usize {
        self.plate.size
    }

    /// The number of its columns.
    pub fn columns(&self) -> usize {
        self.cells.len() / self.plate.size
    }

    /// Computes one step, and waits `extra` for each column, as if it took so much longer. Returns how long that took, without what was
    /// waited for neighbours.
    pub fn step(&mut self, step: u64, extra: Duration) -> Result<Duration> {
        let (rows, columns, flames) = (self.plate.size, self.columns(), self.plate.flames(step));
        let column = |at: usize| &self.cells[at * rows..][..rows];
        let [left, right] = self.halo.exchange(column(0), column(columns - 1))?;
        let begin = Instant::now();
        self.next.clear();
        for at in 0..columns {
            let here = column(at);
            let west = if at == 0 { left } else { column(at - 1) };
            let east = if at + 1 == columns { right } else { column(at + 1) };
            self.next.extend((0..rows).map(|row| {
                let north = if row == 0 { 0.0 } else { here[row - 1] };
                let south = if row + 1 == rows { 0.0 } else { here[row + 1] };
                flames.next(row, self.first + at, here[row], [north, south, west[row], east[row]])
            }));
        }
        std::mem::swap(&mut self.cells, &mut self.next);
        if !extra.is_zero() {
            std::thread::sleep(extra * columns as u32);
        }
        Ok(begin.elapsed())
    }

    /// Fails unless every bit is as if one process had computed it all.
    pub fn verify(&self) -> Result<()> {
        let (last, _) = self.plate.serial();
        let rows = self.plate.size;
        let expected = &last[self.first * rows..][..self.cells.len()];
        match self.cells.iter().zip(expected).position(|(found, wanted)| found.to_bits() != wanted.to_bits())
        {
            None => Ok(()),
            Some(at) => Err(Error::new(
                ErrorKind::Failed,
                format!(
                    "the cell in row {} and column {} is {}, and {} if one process computes all",
                    at % rows,
                    self.first + at / rows,
                    self.cells[at],
                    expected[at]
                ),
            )),
        }
    }
}
