//! The number of items over each link, and a lower bound of the time: the paper's Systems 6 and 8 without a linear programme.
//!
//! The imbalances of the processes fix all flows but one: with `x` items over the link from the last process to the
//! first, `x + delta_0 + .. + delta_i` cross the link `i -> i + 1`. Items both ways over one link never help the ports. So
//! everything is a function of `x`:
//!
//! ```text
//! y_i = x + prefix_i
//! send_i = max(y_i, 0) * right_i + max(-y_(i-1), 0) * left_i             time process i must send
//! recv_i = max(y_(i-1), 0) * right_(i-1) + max(-y_i, 0) * left_(i+1)     time process i must receive
//! T(x) = max over i of send_i and recv_i
//! ```
//!
//! `T` is convex, so bisection finds the integer `x` where it is least, and no program is faster than `T` there. If
//! every process holds all it sends from the beginning (the paper's light redistributions) that time is reached; the `x`
//! for which that is so form an interval.

use super::problem::{Direction, RingProblem};

/// The flows of a ring problem as functions of `x`, the one free number.
#[derive(Clone, Debug)]
pub(crate) struct Flows<'a> {
    problem: &'a RingProblem,
    /// `prefix[i]` is the sum of the imbalances of processes 0 to i.
    prefix: Vec<i64>,
    /// The least and the largest `x` that can be optimal.
    range: (i64, i64),
    /// The `x` with the fewest items over all links, whatever the links cost.
    fewest_items: i64,
}

impl<'a> Flows<'a> {
    pub fn new(problem: &'a RingProblem) -> Self {
        let mut sum = 0;
        let prefix: Vec<i64> = (0..problem.procs())
            .map(|rank| {
                sum += problem.imbalance(rank);
                sum
            })
            .collect();
        // The last prefix is 0, so `lowest <= 0 <= highest`.
        let lowest = prefix.iter().copied().fold(0, i64::min);
        let highest = prefix.iter().copied().fold(0, i64::max);
        let range = match (problem.is_ordered(), problem.direction()) {
            (true, _) => (0, 0),
            (false, Direction::Uni) => (-lowest, -lowest),
            // Beyond these all flows go round in one direction, and one item less helps every process.
            (false, Direction::Bi) => (-highest, -lowest),
        };
        let fewest_items = if range.0 < range.1 { median(&prefix) } else { range.0 };
        Self { problem, prefix, range, fewest_items }
    }

    /// The least and the largest `x` that can be optimal.
    pub fn range(&self) -> (i64, i64) {
        self.range
    }

    /// The net flow over each link `i -> i + 1`.
    pub fn at(&self, x: i64) -> Vec<i64> {
        self.prefix.iter().map(|prefix| x + prefix).collect()
    }

    /// `T(x)`, and its slope just right of `x`.
    fn time_and_slope(&self, x: i64) -> (i64, i64) {
        let (right, left) = (self.problem.right(), self.problem.left());
        let procs = right.len();
        // Time and slope of the flow over a link, to the right and to the left.
        let link = |at: usize| {
            let y = x + self.prefix[at];
            // Costs are below 2^62, as `RingProblem` checks their products with flows.
            let next = if at + 1 == procs { 0 } else { at + 1 };
            let (right, left) = (right[at] as i64, left[next] as i64);
            if y >= 0 { ((y * right, right), (0, 0)) } else { ((0, 0), (-y * left, -left)) }
        };
        let plus = |a: (i64, i64), b: (i64, i64)| (a.0 + b.0, a.1.saturating_add(b.1));
        let mut worst = (0, i64::MIN);
        let mut before = link(procs - 1);
        for rank in 0..procs {
            let after = link(rank);
            worst = worst.max(plus(after.0, before.1)).max(plus(before.0, after.1));
            before = after;
        }
        worst
    }

    /// `T(x)`: no program with this `x` is faster.
    pub fn time(&self, x: i64) -> u64 {
        self.time_and_slope(x).0 as u64
    }

    /// The `x` of an interval with the least `T(x)`; of several, the one that sends the fewest items over all links.
    pub fn best_within(&self, range: (i64, i64)) -> (i64, u64) {
        let (mut x, time) = self.least_within(range);
        // From the `x` found towards `fewest_items`, `T` never decreases.
        let mut beyond = self.fewest_items.clamp(range.0, range.1);
        if self.time(beyond) == time {
            return (beyond, time);
        }
        while x.abs_diff(beyond) > 1 {
            let middle = x + (beyond - x) / 2;
            if self.time(middle) == time { x = middle } else { beyond = middle }
        }
        (x, time)
    }

    fn least_within(&self, (mut low, mut high): (i64, i64)) -> (i64, u64) {
        let mut best = (i64::MAX, low);
        while low < high {
            let middle = low + (high - low) / 2;
            let (time, slope) = self.time_and_slope(middle);
            best = best.min((time, middle));
            // If `T` decreases to the right of the middle, its minimum is there; else nothing to the right is less.
            if slope < 0 { low = middle + 1 } else { high = middle }
        }
        let (time, x) = best.min((self.time_and_slope(low).0, low));
        (x, time as u64)
    }

    /// System 6: the best `x` and the time no program can beat.
    pub fn best(&self) -> (i64, u64) {
        self.best_within(self.range)
    }

    /// The `x` for which no process sends more than it holds at first, if there are any.
    pub fn light_range(&self) -> Option<(i64, i64)> {
        let (mut low, mut high) = self.range;
        let mut before = 0;
        for (&load, &prefix) in self.problem.loads().iter().zip(&self.prefix) {
            let load = load as i64;
            low = low.max(-load - before);
            high = high.min(load - prefix);
            before = prefix;
        }
        (low <= high).then_some((low, high))
    }

    /// System 8: the best light `x` and its time, given the best of all.
    pub fn best_light(&self, best: (i64, u64)) -> Option<(i64, u64)> {
        let (low, high) = self.light_range()?;
        Some(if low <= best.0 && best.0 <= high { best } else { self.best_within((low, high)) })
    }
}

/// The median of all `-prefix` that is nearest to 0: it minimizes the sum of all `|x + prefix|`.
fn median(prefix: &[i64]) -> i64 {
    let mut negated: Vec<i64> = prefix.iter().map(|prefix| -prefix).collect();
    let half = (negated.len() - 1) / 2;
    let (_, &mut low, above) = negated.select_nth_unstable(half);
    let high = if prefix.len().is_multiple_of(2) { above.iter().copied().min().unwrap_or(low) } else { low };
    0.clamp(low, high)
}

/// System 6 of the paper: a lower bound of the time of every program for this ring, and the net flows that have it.
///
/// ```
/// use reshard_ring::{RingProblem, system_6};
/// let ring = RingProblem::new(vec![1, 2, 3, 1], vec![4, 1, 1, 1])?;
/// assert_eq!(system_6(&ring).0, 3);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn system_6(problem: &RingProblem) -> (u64, Vec<i64>) {
    let flows = Flows::new(problem);
    let (x, time) = flows.best();
    (time, flows.at(x))
}

/// System 8 of the paper: the least time in which no process sends more than it holds at first, and its net flows; `None`
/// if there are no such flows.
pub fn system_8(problem: &RingProblem) -> Option<(u64, Vec<i64>)> {
    let flows = Flows::new(problem);
    flows.best_light(flows.best()).map(|(x, time)| (time, flows.at(x)))
}
