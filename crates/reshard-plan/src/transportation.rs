//! Solves the transportation problem exactly: the supply of every row goes to the columns at the least total cost.
//!
//! Shortest augmenting paths with potentials, as Jonker and Volgenant solve the assignment problem, which is the
//! case of 1 everywhere; the quotient of a block-cyclic redistribution needs larger supplies and demands. Rows
//! are served one after the other. For each a Dijkstra search runs over the reduced costs `c - u - v >= 0` to the
//! nearest column with capacity left, passing through full columns by taking back what other rows had put there.
//! The potentials then rise so that all that is shipped has reduced cost 0: that is the proof of optimality.
//! Integers only: 64 bits where nothing can overflow, 128 otherwise.

use crate::error::{Error, Result};
use crate::memory;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// An amount shipped from a row to a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shipment {
    pub row: usize,
    pub column: usize,
    pub amount: u64,
}

/// Ships all of `supply`, which must not exceed `demand` in sum, at the least total cost. `fill` writes the
/// costs of a row, none above `most`. Equal input gives equal output.
pub(crate) fn cheapest(
    supply: &[u64],
    demand: &[u64],
    most: u128,
    fill: &mut dyn FnMut(usize, &mut [u128]) -> Result<()>,
) -> Result<Vec<Shipment>> {
    // A shortest path visits each row and column once, so no potential or distance is past this.
    let reach = most.checked_mul(8 * (supply.len() + demand.len() + 1) as u128);
    match reach.and_then(|reach| i128::try_from(reach).ok()) {
        Some(reach) if reach < i64::MAX.into() => {
            ship(supply, demand, &matrix::<i64>(supply, demand, fill)?, i64::MAX)
        }
        Some(reach) if reach < i128::MAX => {
            ship(supply, demand, &matrix::<i128>(supply, demand, fill)?, i128::MAX)
        }
        _ => Err(too_costly()),
    }
}

/// The error if costs do not fit into 128 bits.
pub(crate) fn too_costly() -> Error {
    Error::too_large(
        "bytes times weights add up to more than 128 bits can hold; give smaller weights for the same ratios",
    )
}

trait Number: Copy + Ord + Default + Add<Output = Self> + Sub<Output = Self> + AddAssign + SubAssign {}
impl Number for i64 {}
impl Number for i128 {}

fn matrix<T: Number + TryFrom<u128>>(
    supply: &[u64],
    demand: &[u64],
    fill: &mut dyn FnMut(usize, &mut [u128]) -> Result<()>,
) -> Result<Vec<T>> {
    let cells = supply.len().saturating_mul(demand.len());
    let mut costs = memory::with_room(cells, "the costs of an assignment")?;
    let mut row_costs = memory::filled(0, demand.len(), "the costs of a row")?;
    for row in 0..supply.len() {
        fill(row, &mut row_costs)?;
        for &cost in &row_costs {
            costs.push(T::try_from(cost).map_err(|_| too_costly())?);
        }
    }
    Ok(costs)
}

/// The state of one search; its memory is reused by the next.
struct PathSearch<T> {
    /// For each column: how far it is, the row before it on the way, and whether it is as near as can be.
    distance: Vec<T>,
    before: Vec<usize>,
    done: Vec<bool>,
    /// Full columns, all done: those at the present distance still to be passed, and those passed.
    ready: Vec<usize>,
    passed: Vec<usize>,
    /// The rows reached: (row, distance), and for each row the column through which; none for the root.
    rows: Vec<(usize, T)>,
    through: Vec<Option<usize>>,
    seen: Vec<bool>,
}

fn ship<T: Number>(supply: &[u64], demand: &[u64], costs: &[T], far: T) -> Result<Vec<Shipment>> {
    const WHAT: &str = "the search for an assignment";
    let (height, width) = (supply.len(), demand.len());
    let mut capacity = memory::listed(demand.iter().copied(), WHAT)?;
    // Each column lists the few rows whose supply it holds.
    memory::check((height + width) as u128 * size_of::<[(usize, u64); 4]>() as u128, WHAT)?;
    let mut held: Vec<Vec<(usize, u64)>> = memory::filled(Vec::new(), width, WHAT)?;
    let mut u = memory::filled(T::default(), height, WHAT)?;
    let mut v = memory::filled(T::default(), width, WHAT)?;
    let mut search = PathSearch {
        distance: memory::filled(far, width, WHAT)?,
        before: memory::filled(0, width, WHAT)?,
        done: memory::filled(false, width, WHAT)?,
        ready: memory::with_room(width, WHAT)?,
        passed: memory::with_room(width, WHAT)?,
        rows: memory::with_room(height, WHAT)?,
        through: memory::filled(None, height, WHAT)?,
        seen: memory::filled(false, height, WHAT)?,
    };
    for (root, &amount) in supply.iter().enumerate() {
        let mut left = amount;
        while left > 0 {
            let Some(end) = search.run(root, costs, &u, &v, &capacity, &held, far) else {
                // Only if the supply exceeds the demand.
                break;
            };
            let reached = search.distance[end];
            for &(row, distance) in &search.rows {
                u[row] += reached - distance;
            }
            for &column in &search.passed {
                v[column] -= reached - search.distance[column];
            }
            let amount = search.bottleneck(end, root, left.min(capacity[end]), &held);
            search.augment(end, root, amount, &mut held);
            capacity[end] -= amount;
            left -= amount;
        }
    }
    let mut shipments = memory::with_room(held.iter().map(Vec::len).sum(), "an assignment")?;
    for (column, rows) in held.iter().enumerate() {
        shipments.extend(rows.iter().map(|&(row, amount)| Shipment { row, column, amount }));
    }
    Ok(shipments)
}

impl<T: Number> PathSearch<T> {
    /// Dijkstra's search from a row to a nearest column with capacity left. Columns at one distance are taken together:
    /// integers tie often.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &mut self,
        root: usize,
        costs: &[T],
        u: &[T],
        v: &[T],
        capacity: &[u64],
        held: &[Vec<(usize, u64)>],
        far: T,
    ) -> Option<usize> {
        self.distance.fill(far);
        self.done.fill(false);
        self.seen.fill(false);
        self.ready.clear();
        self.passed.clear();
        self.rows.clear();
        self.reach(root, None, T::default());
        let (mut scanned, mut near) = (0, T::default());
        loop {
            while let Some(&(row, _)) = self.rows.get(scanned) {
                scanned += 1;
                let row_costs = &costs[row * v.len()..][..v.len()];
                if let Some(end) = self.scan(row, row_costs, near - u[row], v, capacity, near) {
                    return Some(end);
                }
            }
            if self.ready.is_empty() {
                let open = self.distance.iter().zip(&self.done).filter(|(_, done)| !**done);
                near = *open.map(|(distance, _)| distance).min()?;
                for (column, &distance) in self.distance.iter().enumerate() {
                    if distance == near && !self.done[column] {
                        if capacity[column] > 0 {
                            return Some(column);
                        }
                        self.done[column] = true;
                        self.ready.push(column);
                    }
                }
            }
            if let Some(column) = self.ready.pop() {
                self.passed.push(column);
                for &(row, _) in &held[column] {
                    if !self.seen[row] {
                        self.reach(row, Some(column), near);
                    }
                }
            }
        }
    }

    fn reach(&mut self, row: usize, through: Option<usize>, distance: T) {
        self.seen[row] = true;
        self.through[row] = through;
        self.rows.push((row, distance));
    }

    /// Updates the columns that are nearer through a row. Returns a column with capacity left at the present distance, if there
    /// is one.
    fn scan(
        &mut self,
        row: usize,
        costs: &[T],
        base: T,
        v: &[T],
        capacity: &[u64],
        near: T,
    ) -> Option<usize> {
        // Columns that are done are no farther than `near`, so they never come nearer.
        let columns = self.distance.iter_mut().zip(&mut self.before).zip(costs.iter().zip(v));
        for (column, ((distance, before), (&cost, &v))) in columns.enumerate() {
            let through = base + cost - v;
            if through < *distance {
                *distance = through;
                *before = row;
                if through == near {
                    if capacity[column] > 0 {
                        return Some(column);
                    }
                    self.done[column] = true;
                    self.ready.push(column);
                }
            }
        }
        None
    }

    /// The amount that can go along the path to `end`: no more than any row on it can take back.
    fn bottleneck(&self, end: usize, root: usize, most: u64, held: &[Vec<(usize, u64)>]) -> u64 {
        let mut amount = most;
        let mut row = self.before[end];
        while let Some(column) = self.through[row].filter(|_| row != root) {
            let back = held[column].iter().find(|&&(holder, _)| holder == row);
            amount = amount.min(back.map_or(0, |&(_, amount)| amount));
            row = self.before[column];
        }
        amount
    }

    fn augment(&self, end: usize, root: usize, amount: u64, held: &mut [Vec<(usize, u64)>]) {
        let mut column = end;
        loop {
            let row = self.before[column];
            match held[column].iter_mut().find(|(holder, _)| *holder == row) {
                Some((_, held)) => *held += amount,
                None => held[column].push((row, amount)),
            }
            let Some(back) = self.through[row].filter(|_| row != root) else { break };
            if let Some(at) = held[back].iter().position(|&(holder, _)| holder == row) {
                held[back][at].1 -= amount;
                if held[back][at].1 == 0 {
                    held[back].remove(at);
                }
            }
            column = back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reshard_testkit::Random;

    fn cost_of(shipments: &[Shipment], cost: impl Fn(usize, usize) -> u128) -> u128 {
        shipments.iter().map(|s| u128::from(s.amount) * cost(s.row, s.column)).sum()
    }

    /// Compares supplies and demands with the problem in which every unit is a row or column of its own, which the tests of
    /// relabelling compare with brute force; in 64 and in 128 bits.
    #[test]
    fn amounts_cost_what_their_units_cost() {
        let mut random = Random::new(41);
        for _ in 0..2_000 {
            let (rows, columns) = (random.within(1, 6) as usize, random.within(1, 6) as usize);
            let supply: Vec<u64> = (0..rows).map(|_| random.within(0, 7)).collect();
            let mut demand: Vec<u64> = (0..columns).map(|_| random.within(0, 7)).collect();
            let short = supply.iter().sum::<u64>().saturating_sub(demand.iter().sum());
            demand[columns - 1] += short;
            let scale = if random.one_in(2) { 1 } else { 1 << 70 };
            let costs: Vec<u128> =
                (0..rows * columns).map(|_| scale * u128::from(random.within(0, 9))).collect();
            let cost = |row: usize, column: usize| costs[row * columns + column];
            let solve = |supply: &[u64], demand: &[u64], cost: &dyn Fn(usize, usize) -> u128| {
                let mut fill = |row: usize, costs: &mut [u128]| {
                    costs.iter_mut().enumerate().for_each(|(column, to)| *to = cost(row, column));
                    Ok(())
                };
                cheapest(supply, demand, 9 * scale, &mut fill).unwrap()
            };
            let shipped = solve(&supply, &demand, &cost);

            let units = |amounts: &[u64]| -> Vec<usize> {
                (0..amounts.len()).flat_map(|at| vec![at; amounts[at] as usize]).collect()
            };
            let (from, to) = (units(&supply), units(&demand));
            let unit_cost = |row: usize, column: usize| cost(from[row], to[column]);
            let one_by_one = solve(&vec![1; from.len()], &vec![1; to.len()], &unit_cost);
            assert_eq!(
                cost_of(&shipped, cost),
                cost_of(&one_by_one, unit_cost),
                "{supply:?} {demand:?} {costs:?}"
            );
            for (row, &amount) in supply.iter().enumerate() {
                assert_eq!(shipped.iter().filter(|s| s.row == row).map(|s| s.amount).sum::<u64>(), amount);
            }
            for (column, &capacity) in demand.iter().enumerate() {
                assert!(
                    shipped.iter().filter(|s| s.column == column).map(|s| s.amount).sum::<u64>() <= capacity
                );
            }
            assert!(shipped.iter().all(|shipment| shipment.amount > 0));
        }
    }
}
