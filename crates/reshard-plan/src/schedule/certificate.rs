//! A lower bound on `alpha * steps + beta * cost` whose proof is a sum of integers.
//!
//! Think of steps in blocks: `n_w` steps of cost `w`, every message in a block at least as costly as it is long, and no
//! process with more messages in a block than the block has steps. Relax whole messages to fractions and look at the
//! dual: a step of cost `w` has a price, `alpha + beta w`. Split it among the processes, `share[w][v]`. A message between
//! `u` and `v` cannot be sent for less than the least `share[w][u] + share[w][v]` over all `w` it fits in, because its
//! step must pay both. So *any* split of the prices proves the bound "sum over all messages of that least".
//!
//! The simplex method, in floating point, finds a good split; the proof is then made with integers. Messages of one class
//! may be treated together (their average is a solution too), so for block-cyclic redistributions the bound costs the
//! same whatever the number of processes.

use crate::error::Result;
use crate::memory;

/// One kind of message: its length, the kinds of process it is between, and how many of it each process of that kind has.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageKind {
    pub elems: u64,
    pub row: usize,
    pub column: usize,
}

/// All messages of a redistribution by kind.
#[derive(Clone, Debug)]
pub(super) struct MessageKinds {
    pub kinds: Vec<MessageKind>,
    pub rows: usize,
    pub columns: usize,
    /// Messages of one kind at each process of its row, and of its column.
    pub per_row: u64,
    pub per_column: u64,
}

/// Prices are split in units of 2^-30, or larger units where 128 bits would not hold the sums.
const FINEST_UNIT_BITS: u32 = 30;

/// The most cells of a simplex tableau; with more it takes too long, and the caller has a simpler bound.
const MAX_CELLS: usize = 6_000_000;

/// The most different lengths; more are rounded down to this many.
const MAX_LENGTHS: usize = 24;

/// The name of lists as long as the tableau in errors.
const TABLEAU: &str = "the bound of a schedule's price";

/// A lower bound of `alpha * steps + beta * cost` of any schedule, with a limit on the steps if given, rounded up to a whole
/// number. `None` if that takes more than the `effort` left, counted in cells of the simplex tableau.
pub(super) fn bound(
    of: &MessageKinds,
    alpha: u64,
    beta: u64,
    steps: Option<u64>,
    effort: &mut u64,
) -> Result<Option<u128>> {
    let mut lengths: Vec<u64> = of.kinds.iter().map(|kind| kind.elems).collect();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.len() > MAX_LENGTHS {
        // Shorter messages cost less, so the bound stays a lower bound.
        lengths = (0..MAX_LENGTHS).map(|at| lengths[at * lengths.len() / MAX_LENGTHS]).collect();
    }
    if lengths.is_empty() {
        return Ok(Some(0));
    }
    // Each kind fits the blocks from its own length on.
    let fits: Vec<usize> =
        of.kinds.iter().map(|kind| lengths.partition_point(|&length| length <= kind.elems) - 1).collect();
    let split = Split { of, lengths: &lengths, fits: &fits };
    let best = split.best(alpha as f64, beta as f64, steps, effort)?;
    Ok(best.and_then(|(shares, toll)| split.proven(&shares, toll, alpha, beta, steps)))
}

struct Split<'a> {
    of: &'a MessageKinds,
    lengths: &'a [u64],
    fits: &'a [usize],
}

impl Split<'_> {
    fn processes(&self) -> usize {
        self.of.rows + self.of.columns
    }

    /// A split of the prices, and a toll that every step pays on top, to be given back for as many steps as are allowed. By
    /// the simplex method on the dual, whose all-slack basis is feasible.
    fn best(
        &self,
        alpha: f64,
        beta: f64,
        steps: Option<u64>,
        effort: &mut u64,
    ) -> Result<Option<(Vec<f64>, f64)>> {
        let (kinds, levels, processes) = (self.of.kinds.len(), self.lengths.len(), self.processes());
        // Columns: worth of each kind; shares by level and process; the toll.
        let columns = kinds + levels * processes + 1;
        let share = |level: usize, process: usize| kinds + level * processes + process;
        let height = levels + self.fits.iter().map(|&fits| levels - fits).sum::<usize>();
        if height.saturating_mul(columns + height + 1) > MAX_CELLS {
            return Ok(None);
        }
        let mut rows: Vec<(Vec<(usize, f64)>, f64)> = memory::with_room(height, TABLEAU)?;
        for (index, kind) in self.of.kinds.iter().enumerate() {
            for level in self.fits[index]..levels {
                let pays = vec![
                    (index, 1.0),
                    (share(level, kind.row), -(self.of.per_row as f64)),
                    (share(level, self.of.rows + kind.column), -(self.of.per_column as f64)),
                ];
                rows.push((pays, 0.0));
            }
        }
        // Lengths in units of the longest keep the numbers near one.
        let unit = (alpha + beta * self.lengths[levels - 1] as f64).max(1.0);
        for (level, &length) in self.lengths.iter().enumerate() {
            let mut split: Vec<(usize, f64)> =
                (0..processes).map(|process| (share(level, process), 1.0)).collect();
            if steps.is_some() {
                split.push((columns - 1, -1.0));
            }
            rows.push((split, (alpha + beta * length as f64) / unit));
        }
        let mut worth = vec![0.0; columns];
        worth[..kinds].fill(1.0);
        if let Some(steps) = steps {
            worth[columns - 1] = -(steps as f64);
        }
        let Some(solution) = simplex(&rows, &worth, effort)? else { return Ok(None) };
        let shares = solution[kinds..kinds + levels * processes].iter().map(|share| share * unit).collect();
        Ok(Some((shares, solution[columns - 1] * unit)))
    }

    /// The bound that a split proves, in integers: shares are rounded down, and cut where they exceed the price and the toll.
    fn proven(&self, shares: &[f64], toll: f64, alpha: u64, beta: u64, steps: Option<u64>) -> Option<u128> {
        let one = 1_i128 << self.scale(alpha, beta, steps)?;
        let fixed = |value: f64| (value.max(0.0) * one as f64).floor() as i128;
        let toll = if steps.is_some() { fixed(toll) } else { 0 };
        let processes = self.processes();
        let mut whole: Vec<i128> = shares.iter().map(|&share| fixed(share)).collect();
        for (level, &length) in self.lengths.iter().enumerate() {
            let price = (i128::from(alpha) + i128::from(beta) * i128::from(length)) * one + toll;
            let shares = &mut whole[level * processes..(level + 1) * processes];
            let mut excess = shares.iter().sum::<i128>() - price;
            for share in shares.iter_mut() {
                let cut = excess.clamp(0, *share);
                *share -= cut;
                excess -= cut;
            }
        }
        let share = |level: usize, process: usize| whole[level * processes + process];
        let mut sum = -i128::from(steps.unwrap_or(0)) * toll;
        for (kind, &fits) in self.of.kinds.iter().zip(self.fits) {
            let cheapest = (fits..self.lengths.len())
                .map(|level| {
                    i128::from(self.of.per_row) * share(level, kind.row)
                        + i128::from(self.of.per_column) * share(level, self.of.rows + kind.column)
                })
                .min();
            sum += cheapest.unwrap_or(0);
        }
        // Prices are whole numbers, so every schedule's price is.
        u128::try_from((sum + one - 1).div_euclid(one)).ok()
    }

    /// The bits of the unit in which prices are split so that all sums fit into 126 bits; `None` if even whole numbers do not.
    fn scale(&self, alpha: u64, beta: u64, steps: Option<u64>) -> Option<u32> {
        let bits = |number: u128| 128 - number.leading_zeros();
        let price =
            u128::from(beta).checked_mul(self.lengths.last().copied()?.into())?.checked_add(alpha.into())?;
        let times = (self.of.kinds.len() as u128)
            .checked_mul(u128::from(self.of.per_row) + u128::from(self.of.per_column))?;
        // A toll never pays beyond the price of all steps together.
        let times = times.checked_add(steps.unwrap_or(0).into())?.checked_mul(times + 1)?;
        126_u32.checked_sub(bits(price) + bits(times)).map(|free| free.min(FINEST_UNIT_BITS))
    }
}

/// Maximises `worth . x` subject to sparse rows `row . x <= limit`, `x >= 0`, all limits at least 0. `None` if it does not
/// end in time.
fn simplex(rows: &[(Vec<(usize, f64)>, f64)], worth: &[f64], effort: &mut u64) -> Result<Option<Vec<f64>>> {
    let (count, columns) = (rows.len(), worth.len());
    let width = columns + 1;
    // Slacks are kept implicitly: a basic variable's row expresses it by the others.
    let mut table = memory::filled(0.0_f64, (count + 1) * width, TABLEAU)?;
    for (index, (row, limit)) in rows.iter().enumerate() {
        for &(column, value) in row {
            table[index * width + column] = value;
        }
        // A small perturbation of the limits avoids cycling; the proof does not depend on it.
        let noise = 1e-7 * (1.0 + ((index * 7919) % 1000) as f64 / 1000.0);
        table[index * width + columns] = limit + noise;
    }
    for (column, &worth) in worth.iter().enumerate() {
        table[count * width + column] = -worth;
    }
    // The variable of each row and column: originals 0..columns, slacks after them.
    let mut row_variable: Vec<usize> = (columns..columns + count).collect();
    let mut column_variable: Vec<usize> = (0..columns).collect();
    let cells = ((count + 1) * width) as u64;
    loop {
        let Some(left) = effort.checked_sub(cells) else { return Ok(None) };
        *effort = left;
        let bottom = &table[count * width..count * width + columns];
        let least = bottom.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((enter, value)) = least else { return Ok(None) };
        if value > -1e-9 {
            let mut solution = vec![0.0; columns];
            for (row, &variable) in row_variable.iter().enumerate() {
                if variable < columns {
                    solution[variable] = table[row * width + columns];
                }
            }
            return Ok(Some(solution));
        }
        let leave = (0..count).filter(|row| table[row * width + enter] > 1e-9).min_by(|&a, &b| {
            let ratio = |row: usize| table[row * width + columns] / table[row * width + enter];
            ratio(a).total_cmp(&ratio(b))
        });
        let Some(leave) = leave else { return Ok(None) };
        pivot(&mut table, width, count + 1, leave, enter);
        std::mem::swap(&mut row_variable[leave], &mut column_variable[enter]);
    }
}

fn pivot(table: &mut [f64], width: usize, height: usize, row: usize, column: usize) {
    let value = table[row * width + column];
    let pivot_row: Vec<f64> = table[row * width..(row + 1) * width].iter().map(|cell| cell / value).collect();
    for other in (0..height).filter(|&other| other != row) {
        let factor = table[other * width + column];
        if factor != 0.0 {
            let cells = &mut table[other * width..(other + 1) * width];
            for (cell, pivot) in cells.iter_mut().zip(&pivot_row) {
                *cell -= factor * pivot;
            }
            cells[column] = -factor / value;
        }
    }
    table[row * width..(row + 1) * width].copy_from_slice(&pivot_row);
    table[row * width + column] = 1.0 / value;
}
