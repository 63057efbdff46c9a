//! The transportation problem, exactly: what every row has to give goes to the columns at the least total cost.
//!
//! Shortest augmenting paths with potentials, as Jonker and Volgenant solve the assignment problem, which is the
//! case of 1 everywhere; the quotient of a block-cyclic redistribution needs larger supplies and demands. Rows
//! are served one after the other. For each a Dijkstra search runs over the reduced costs `c - u - v >= 0` to the
//! nearest column with room left, passing through full columns by taking back what other rows had put there.
//! The potentials then rise so that all that is shipped has reduced cost 0: that is the proof of optimality.
//! Integers only: 64 bits where nothing can overflow, 128 otherwise.

use crate::error::{Error, Result};
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// So much from a row to a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shipment {
    pub row: usize,
    pub column: usize,
    pub amount: u64,
}

/// Ships all of `supply`, which `demand` must have room for, at the least cost for each unit. `fill` writes the
/// costs of a row, none above `most`. Equal input gives equal output.
pub(super) fn cheapest(
    supply: &[u64],
    demand: &[u64],
    most: u128,
    fill: &mut dyn FnMut(usize, &mut [u128]) -> Result<()>,
) -> Result<Vec<Shipment>> {
    // A shortest path visits each row and column once, so no potential or distance is past this.
    let reach = most.checked_mul(8 * (supply.len() + demand.len() + 1) as u128);
    match reach.and_then(|reach| i128::try_from(reach).ok()) {
        Some(reach) if reach < i64::MAX.into() => {
            Ok(ship(supply, demand, &matrix::<i64>(supply, demand, fill)?, i64::MAX))
        }
        Some(reach) if reach < i128::MAX => {
            Ok(ship(supply, demand, &matrix::<i128>(supply, demand, fill)?, i128::MAX))
        }
        _ => Err(too_costly()),
    }
}

/// What is said where costs leave 128 bits.
pub(super) fn too_costly() -> Error {
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
    let mut costs = Vec::with_capacity(supply.len() * demand.len());
    let mut row_costs = vec![0; demand.len()];
    for row in 0..supply.len() {
        fill(row, &mut row_costs)?;
        for &cost in &row_costs {
            costs.push(T::try_from(cost).map_err(|_| too_costly())?);
        }
    }
    Ok(costs)
}

/// The state of one search, kept to be used again.
struct Search<T> {
    /// For each column: how far it is, and the row before it on the way.
    distance: Vec<T>,
    before: Vec<usize>,
    /// The columns still to be passed, and those passed.
    open: Vec<usize>,
    passed: Vec<usize>,
    /// The rows reached: (row, distance), and for each row the column through which; none for the root.
    rows: Vec<(usize, T)>,
    through: Vec<Option<usize>>,
    seen: Vec<bool>,
}

fn ship<T: Number>(supply: &[u64], demand: &[u64], costs: &[T], far: T) -> Vec<Shipment> {
    let width = demand.len();
    let mut room = demand.to_vec();
    let mut held: Vec<Vec<(usize, u64)>> = vec![Vec::new(); width];
    let (mut u, mut v) = (vec![T::default(); supply.len()], vec![T::default(); width]);
    let mut search = Search {
        distance: vec![far; width],
        before: vec![0; width],
        open: Vec::with_capacity(width),
        passed: Vec::new(),
        rows: Vec::new(),
        through: vec![None; supply.len()],
        seen: vec![false; supply.len()],
    };
    for (root, &amount) in supply.iter().enumerate() {
        let mut left = amount;
        while left > 0 {
            let Some(end) = search.run(root, costs, &u, &v, &room, &held, far) else {
                // Only if the demand had no room for the supply.
                break;
            };
            let reached = search.distance[end];
            for &(row, distance) in &search.rows {
                u[row] += reached - distance;
            }
            for &column in &search.passed {
                v[column] -= reached - search.distance[column];
            }
            let amount = search.bottleneck(end, root, left.min(room[end]), &held);
            search.augment(end, root, amount, &mut held);
            room[end] -= amount;
            left -= amount;
        }
    }
    let shipments = held
        .iter()
        .enumerate()
        .flat_map(|(column, rows)| rows.iter().map(move |&(row, amount)| Shipment { row, column, amount }));
    shipments.collect()
}

impl<T: Number> Search<T> {
    /// Dijkstra from a row to the nearest column with room.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &mut self,
        root: usize,
        costs: &[T],
        u: &[T],
        v: &[T],
        room: &[u64],
        held: &[Vec<(usize, u64)>],
        far: T,
    ) -> Option<usize> {
        let width = room.len();
        self.distance.fill(far);
        self.seen.fill(false);
        self.passed.clear();
        self.rows.clear();
        self.open.clear();
        self.open.extend(0..width);
        self.through[root] = None;
        self.seen[root] = true;
        self.rows.push((root, T::default()));
        let mut scanned = 0;
        loop {
            while let Some(&(row, so_far)) = self.rows.get(scanned) {
                let base = so_far - u[row];
                let row_costs = &costs[row * width..][..width];
                for &column in &self.open {
                    let distance = base + row_costs[column] - v[column];
                    if distance < self.distance[column] {
                        self.distance[column] = distance;
                        self.before[column] = row;
                    }
                }
                scanned += 1;
            }
            // Of equally near columns one with room, then the first.
            let nearness = |&at: &usize| {
                let column = self.open[at];
                (self.distance[column], room[column] == 0, column)
            };
            let nearest = (0..self.open.len()).min_by_key(nearness)?;
            let column = self.open.swap_remove(nearest);
            if room[column] > 0 {
                return Some(column);
            }
            self.passed.push(column);
            for &(row, _) in &held[column] {
                if !self.seen[row] {
                    self.seen[row] = true;
                    self.through[row] = Some(column);
                    self.rows.push((row, self.distance[column]));
                }
            }
        }
    }

    /// How much can go along the path to `end`: no more than any row on it can take back.
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
