//! The equation: a square plate whose rim is kept cold, and two flames that move over it. One formula gives a cell of the next step from
//! five of this one, so that every way of dealing the cells out to ranks computes the same bits; `serial` is the slow twin of them all.

use std::f64::consts::TAU;

/// How much of the difference to its neighbours a cell takes over in a step; at most a quarter, or the scheme is not stable.
const DIFFUSION: f64 = 0.2;

/// How much of the difference to a temperature of 1 the middle of a flame adds in a step.
const HEATING: f64 = 0.5;

/// The plate, with cells of temperatures from 0 to 1, all cold at first.
#[derive(Clone, Copy)]
pub struct Plate {
    /// Cells along each side.
    pub size: usize,
    /// Steps in which the flames go round.
    pub steps: u64,
}

/// A flame, in cells.
struct Flame {
    row: f64,
    column: f64,
    radius: f64,
}

/// Where the flames are in a step.
pub struct Flames([Flame; 2]);

impl Plate {
    /// Where the flames are in a step: one goes round in a circle, the other in a figure of eight.
    pub fn flames(&self, step: u64) -> Flames {
        let (size, angle) = (self.size as f64, TAU * step as f64 / self.steps as f64);
        let flame = |row: f64, column: f64, radius: f64| Flame {
            row: size * (0.5 + row),
            column: size * (0.5 + column),
            radius: (size * radius).max(1.0),
        };
        Flames([
            flame(-0.36 * angle.cos(), 0.36 * angle.sin(), 0.06),
            flame(0.12 * (2.0 * angle).sin(), 0.24 * angle.cos(), 0.04),
        ])
    }

    /// All cells after the last step, and the highest temperature each of them ever had after a step, column after column, on one process.
    pub fn serial(&self) -> (Vec<f64>, Vec<f64>) {
        let size = self.size as isize;
        let (mut now, mut highest) = (vec![0.0; self.size * self.size], vec![0.0; self.size * self.size]);
        for step in 0..self.steps {
            let flames = self.flames(step);
            let at = |row: isize, column: isize| {
                let inside = (0..size).contains(&row) && (0..size).contains(&column);
                if inside { now[(column * size + row) as usize] } else { 0.0 }
            };
            let mut next = Vec::with_capacity(now.len());
            for column in 0..size {
                for row in 0..size {
                    let around =
                        [at(row - 1, column), at(row + 1, column), at(row, column - 1), at(row, column + 1)];
                    next.push(flames.next(row as usize, column as usize, at(row, column), around));
                }
            }
            now = next;
            highest.iter_mut().zip(&now).for_each(|(highest, now)| *highest = now.max(*highest));
        }
        (now, highest)
    }
}

impl Flames {
    /// The temperature of a cell after the step: `around` are its neighbours to the north, south, west and east.
    pub fn next(&self, row: usize, column: usize, here: f64, around: [f64; 4]) -> f64 {
        let [north, south, west, east] = around;
        let mut next = here + DIFFUSION * (north + south + west + east - 4.0 * here);
        for flame in &self.0 {
            let (down, right) = (row as f64 - flame.row, column as f64 - flame.column);
            let within = 1.0 - (down * down + right * right) / (flame.radius * flame.radius);
            if within > 0.0 {
                next += HEATING * within * (1.0 - next);
            }
        }
        next
    }
}
