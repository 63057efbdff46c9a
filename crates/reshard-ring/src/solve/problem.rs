//! The problem: how many items each process of a ring has, how many it should have, and the costs of its links.
//!
//! Everything is checked here, once: equal lengths, equal sums, costs of at least 1, an order that can be kept. After that no
//! sum and no product of an item count and a cost overflows.

use reshard_plan::memory;
use reshard_plan::{Error, ErrorKind, Result};

/// The most items of a ring, and the most time its links could take together: sums of both fit into 64 bits.
const MAX_ITEMS_OR_TIME: u128 = 1 << 62;

/// Which neighbours a process can send to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Only to the next process, `i -> i + 1`.
    Uni,
    /// To the next and to the previous process, one at a time.
    #[default]
    Bi,
}

/// A neighbour, seen from a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The next process, `i + 1`.
    Right,
    /// The previous process, `i - 1`.
    Left,
}

impl Side {
    /// The neighbour of `rank` on this side of a ring of `procs` processes.
    pub fn of(self, rank: u64, procs: u64) -> u64 {
        match self {
            Self::Right if rank >= procs.saturating_sub(1) => 0,
            Self::Right => rank + 1,
            Self::Left => rank.checked_sub(1).unwrap_or(procs.saturating_sub(1)),
        }
    }

    /// The index of this side in a pair: 0 is left, 1 is right.
    pub fn index(self) -> usize {
        match self {
            Self::Left => 0,
            Self::Right => 1,
        }
    }

    /// The other side.
    pub fn opposite(self) -> Self {
        match self {
            Self::Right => Self::Left,
            Self::Left => Self::Right,
        }
    }
}

/// Loads to be balanced along a ring.
///
/// Process `i` holds `loads[i]` items and should hold `targets[i]`. An item takes `right[i]` units of time from `i` to
/// `i + 1` and `left[i]` from `i` to `i - 1`, counted round the ring. A process sends at most one item at a time and
/// receives at most one, and can do both together; it can pass an item on once it has it.
///
/// Costs are whole numbers; bring rational costs to a common denominator first.
///
/// ```
/// use reshard_ring::{Direction, RingProblem};
/// let ring = RingProblem::new(vec![1, 2, 3, 1], vec![4, 1, 1, 1])?;
/// assert_eq!(ring.procs(), 4);
/// let slow = ring.with_right(vec![1, 5, 1, 1])?.with_direction(Direction::Uni)?;
/// assert_eq!(slow.right(), [1, 5, 1, 1]);
/// let said = RingProblem::new(vec![1, 2], vec![1, 1]).unwrap_err().to_string();
/// assert!(said.contains("add up to"), "{said}");
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingProblem {
    loads: Vec<u64>,
    targets: Vec<u64>,
    right: Vec<u64>,
    left: Vec<u64>,
    direction: Direction,
    ordered: bool,
}

impl RingProblem {
    /// A ring of links that all take one unit of time, in both directions, whose items have no order.
    pub fn new(loads: Vec<u64>, targets: Vec<u64>) -> Result<Self> {
        let costs = || memory::filled(1, loads.len(), "the costs of all links");
        let (right, left, direction, ordered) = (costs()?, costs()?, Direction::Bi, false);
        Self { loads, targets, right, left, direction, ordered }.checked()
    }

    /// Replaces loads and targets; links, direction and order stay.
    pub fn with_loads(self, loads: Vec<u64>, targets: Vec<u64>) -> Result<Self> {
        Self { loads, targets, ..self }.checked()
    }

    /// Sets the costs to the right: an item takes `right[i]` from process `i` to `i + 1`.
    pub fn with_right(self, right: Vec<u64>) -> Result<Self> {
        Self { right, ..self }.checked()
    }

    /// Sets the costs to the left: an item takes `left[i]` from process `i` to `i - 1`.
    pub fn with_left(self, left: Vec<u64>) -> Result<Self> {
        Self { left, ..self }.checked()
    }

    /// Sets whether items move in one direction or both.
    pub fn with_direction(self, direction: Direction) -> Result<Self> {
        Self { direction, ..self }.checked()
    }

    /// Declares that items are in order: the slice of process `i` comes before the slice of `i + 1`, and the result is the
    /// contiguous re-slicing of the sequence.
    ///
    /// Then nothing crosses the link between the last process and the first: it would carry the end of the sequence to
    /// its beginning. Without an order the solutions still keep the order round the ring, but the sequence may begin at
    /// another place: it is rotated by the net flow over that link.
    pub fn in_order(self) -> Result<Self> {
        Self { ordered: true, ..self }.checked()
    }

    /// The ring problem of a redistribution between two GEN_BLOCK layouts: contiguous slices of `from[i]` elements become
    /// slices of `to[i]`, in order.
    ///
    /// ```
    /// use reshard_ring::{RingProblem, solve};
    /// let solution = solve(&RingProblem::between_gen_blocks(&[10, 20, 30], &[20, 20, 20])?)?;
    /// assert_eq!(solution.net_flow(), [-10, -10, 0]);
    /// assert_eq!(solution.makespan(), 10);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn between_gen_blocks(from: &[u64], to: &[u64]) -> Result<Self> {
        let list = |of: &[u64]| memory::listed(of.iter().copied(), "the slices of a layout");
        Self::new(list(from)?, list(to)?)?.in_order()
    }

    /// Checks all rules of a problem.
    fn checked(self) -> Result<Self> {
        let procs = self.loads.len();
        if procs == 0 {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                "a ring of 0 processes was given; it needs at least 1",
            ));
        }
        for (what, list) in [
            ("targets", &self.targets),
            ("costs to the right", &self.right),
            ("costs to the left", &self.left),
        ] {
            if list.len() != procs {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!(
                        "{procs} loads but {} {what} were given; each process needs one of each",
                        list.len()
                    ),
                ));
            }
        }
        let sum = |list: &[u64]| list.iter().map(|&items| u128::from(items)).sum::<u128>();
        let (held, target) = (sum(&self.loads), sum(&self.targets));
        if held != target {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the loads add up to {held} and the targets to {target}; nothing is made or lost on the way, so both must \
                 be equal"
                ),
            ));
        }
        if held > MAX_ITEMS_OR_TIME {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the loads add up to {held}; at most 2^62 items are planned"),
            ));
        }
        for (side, costs) in [("right", &self.right), ("left", &self.left)] {
            if let Some(rank) = costs.iter().position(|&cost| cost == 0) {
                return Err(Error::new(
                    ErrorKind::OutOfRange,
                    format!(
                        "the link from process {rank} to the {side} costs 0; an item must take at least 1 unit of time"
                    ),
                ));
            }
        }
        let (mut prefix, mut least, mut most) = (0_i64, (0_i64, 0), 0_i64);
        for rank in 0..procs {
            prefix += self.imbalance(rank);
            least = least.min((prefix, rank));
            most = most.max(prefix);
        }
        if self.ordered && self.direction == Direction::Uni && least.0 < 0 {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "processes 0 to {} together lack items: {}, which in order can only come from the right; use both directions",
                    least.1, -least.0
                ),
            ));
        }
        let flow = most.abs_diff(least.0);
        let time = u128::from(flow).checked_mul(sum(&self.right) + sum(&self.left));
        if time.is_none_or(|time| time > MAX_ITEMS_OR_TIME) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "up to {flow} items over links that cost {} together take longer than 2^62 units of time; use a coarser unit",
                    sum(&self.right) + sum(&self.left)
                ),
            ));
        }
        Ok(self)
    }

    /// The ring with time running backwards: loads and targets exchanged, every link at the cost of its opposite.
    pub(crate) fn reversed(&self) -> Self {
        let (mut right, mut left) = (self.left.clone(), self.right.clone());
        right.rotate_left(1);
        left.rotate_right(1);
        let (loads, targets) = (self.targets.clone(), self.loads.clone());
        Self { loads, targets, right, left, ..*self }
    }

    /// Number of processes.
    pub fn procs(&self) -> usize {
        self.loads.len()
    }

    /// Items that each process holds at first.
    pub fn loads(&self) -> &[u64] {
        &self.loads
    }

    /// Items that each process should hold in the end.
    pub fn targets(&self) -> &[u64] {
        &self.targets
    }

    /// The time of an item from each process to the next.
    pub fn right(&self) -> &[u64] {
        &self.right
    }

    /// The time of an item from each process to the previous.
    pub fn left(&self) -> &[u64] {
        &self.left
    }

    /// The time of an item from a process to its neighbour on a side.
    pub fn cost(&self, rank: usize, side: Side) -> u64 {
        match side {
            Side::Right => self.right[rank],
            Side::Left => self.left[rank],
        }
    }

    /// The directions in which items can move.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// True if items are in order: the result must be the contiguous re-slicing.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// True if every link that may be used takes the same time.
    pub fn is_homogeneous(&self) -> bool {
        let cost = self.right[0];
        self.right.iter().all(|&other| other == cost)
            && (self.direction == Direction::Uni || self.left.iter().all(|&other| other == cost))
    }

    /// The surplus of a process in items; negative if it has too few. The paper's delta.
    pub fn imbalance(&self, rank: usize) -> i64 {
        // Both are at most 2^62.
        self.loads[rank] as i64 - self.targets[rank] as i64
    }
}
