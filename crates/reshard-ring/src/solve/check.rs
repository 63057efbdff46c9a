//! Checks a program by replaying it transfer by transfer, independently of the solvers.
//!
//! The rules: no process sends two items at a time or receives two, none sends an item it does not hold, every item takes the
//! time of its link, and in the end each process holds its target. The items of two transfers are compared as straight lines
//! in time: if the first and the last of the items they share arrive before they leave, so do all in between. Only where the
//! lines cross by less than a unit of time are the items compared one by one.

use super::flow::system_6;
use super::problem::{Direction, RingProblem, Side};
use super::program::{Program, Transfer};
use reshard_plan::{Error, ErrorKind, Result};

/// The most items compared one by one, where lines do not decide: bounds the time of a check.
const MAX_SINGLE_ITEMS: u64 = 10_000_000;

/// The time of a valid program, compared with the lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Time at which the last item has arrived.
    pub makespan: u64,
    /// Lower bound: no program for the ring is faster than this.
    pub lower_bound: u64,
    /// True if no program is faster than this one, false if some program is known to be, `None` if neither is known.
    pub optimal: Option<bool>,
}

impl Verdict {
    /// Relative distance to the lower bound: 0.1 if the program takes a tenth longer.
    pub fn gap(&self) -> f64 {
        gap(self.makespan, self.lower_bound)
    }
}

/// Relative distance of `makespan` to `lower_bound`.
pub(crate) fn gap(makespan: u64, lower_bound: u64) -> f64 {
    if makespan == lower_bound { 0.0 } else { (makespan - lower_bound) as f64 / lower_bound as f64 }
}

/// Replays a program. Returns its time and the lower bound, or the rule that it breaks.
///
/// ```
/// use reshard_ring::{Program, RingProblem, Side, Transfer, check};
/// let ring = RingProblem::new(vec![3, 1], vec![2, 2])?;
/// let transfer = |start, end| Transfer { from: 0, side: Side::Right, items: 1, start, end };
/// let verdict = check(&ring, &Program::new(2, vec![transfer(4, 5)]))?;
/// assert_eq!((verdict.makespan, verdict.lower_bound, verdict.optimal), (5, 1, Some(false)));
/// assert!(check(&ring, &Program::new(2, vec![])).is_err());
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn check(problem: &RingProblem, program: &Program) -> Result<Verdict> {
    let procs = problem.procs();
    if program.procs() != procs {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!("the program is for {} processes and the ring has {procs}", program.procs()),
        ));
    }
    program.transfers().iter().try_for_each(|transfer| check_alone(problem, transfer))?;
    let transfers = program.transfers();
    // Index of the first transfer of each sender.
    let mut first = vec![0; procs + 1];
    transfers.iter().for_each(|transfer| first[transfer.from as usize + 1] += 1);
    (0..procs).for_each(|rank| first[rank + 1] += first[rank]);
    let sends = |rank: usize| &transfers[first[rank]..first[rank + 1]];
    let mut received: Vec<Transfer> = Vec::new();
    for rank in 0..procs {
        let (before, after) = ((rank + procs - 1) % procs, (rank + 1) % procs);
        received.clear();
        received.extend(sends(before).iter().filter(|transfer| transfer.side == Side::Right));
        received.extend(sends(after).iter().filter(|transfer| transfer.side == Side::Left));
        received.sort_by_key(|transfer| transfer.start);
        check_port(sends(rank), rank, "sends")?;
        check_port(&received, rank, "receives")?;
        check_holdings(problem, rank, &received, sends(rank))?;
    }
    let (makespan, lower_bound) = (program.makespan(), system_6(problem).0);
    let optimal = match makespan == lower_bound {
        true => Some(true),
        false => bound_is_reached(problem).then_some(false),
    };
    Ok(Verdict { makespan, lower_bound, optimal })
}

/// True if the lower bound is known to be the optimum: in one direction, or over equal links, if no process is empty at first
/// or in the end.
fn bound_is_reached(problem: &RingProblem) -> bool {
    let everyone_holds = problem.loads().iter().chain(problem.targets()).all(|&items| items > 0);
    everyone_holds && (problem.direction() == Direction::Uni || problem.is_homogeneous())
}

/// Checks a transfer on its own: its sender, side, number of items and duration.
fn check_alone(problem: &RingProblem, transfer: &Transfer) -> Result<()> {
    let procs = problem.procs() as u64;
    let &Transfer { from, side, items, start, end } = transfer;
    let refused = |why: String| {
        Err(Error::new(ErrorKind::Mismatch, format!("a transfer of {items} items from process {from} {why}")))
    };
    if from >= procs {
        return Err(Error::new(
            ErrorKind::OutOfRange,
            format!("process {from} sends, but the ring has {procs} processes"),
        ));
    }
    if procs == 1 || items == 0 {
        return refused("moves nothing; leave it out".to_string());
    }
    if side == Side::Left && problem.direction() == Direction::Uni {
        return refused("goes left, but the ring has one direction, to the right".to_string());
    }
    let wraps = (from, side) == (procs - 1, Side::Right) || (from, side) == (0, Side::Left);
    if problem.is_ordered() && wraps {
        return refused("joins the end of the sequence to its beginning, which breaks the order".to_string());
    }
    let cost = problem.cost(from as usize, side);
    let least = u128::from(items) * u128::from(cost);
    let taken = u128::from(end.saturating_sub(start));
    if end < start || taken < least || (items == 1 && taken != least) {
        return refused(format!("from {start} to {end} does not fit: an item takes {cost}"));
    }
    Ok(())
}

/// Checks that the transfers of a port do not overlap. `what` is the verb for errors.
fn check_port(transfers: &[Transfer], rank: usize, what: &str) -> Result<()> {
    match transfers.windows(2).find(|pair| pair[1].start < pair[0].end) {
        None => Ok(()),
        Some(pair) => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "process {rank} {what} {} items from {} to {} and others from {}: one thing at a time",
                pair[0].items, pair[0].start, pair[0].end, pair[1].start
            ),
        )),
    }
}

/// Checks that a process never sends an item before it holds it, and holds its target in the end.
fn check_holdings(
    problem: &RingProblem,
    rank: usize,
    received: &[Transfer],
    sent: &[Transfer],
) -> Result<()> {
    let total =
        |transfers: &[Transfer]| transfers.iter().map(|transfer| u128::from(transfer.items)).sum::<u128>();
    let (load, target) = (problem.loads()[rank], problem.targets()[rank]);
    let (got, gave) = (total(received), total(sent));
    if u128::from(load) + got != u128::from(target) + gave {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "process {rank} has {load} items, receives {got} and sends {gave}; it should have {target} in the end"
            ),
        ));
    }
    let with_line = |transfers: &[Transfer]| {
        let line = |transfer: &Transfer| Line::new(problem, transfer);
        transfers.iter().map(line).collect::<Vec<_>>()
    };
    if gave <= u128::from(load) {
        return Ok(());
    }
    let (arriving, leaving) = (with_line(received), with_line(sent));
    // The item sent as number k needs arrival number k - load, both counted from 0; the first `load` items need none.
    let (mut k, mut at, mut base) = (0_u64, 0, 0_u64);
    for line in &leaving {
        let mut within = load.saturating_sub(k).min(line.items);
        while within < line.items {
            let arrival = k + within - load;
            while at < arriving.len() && arrival - base >= arriving[at].items {
                base += arriving[at].items;
                at += 1;
            }
            let Some(from) = arriving.get(at) else {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!("process {rank} sends more than it holds and receives"),
                ));
            };
            let shared = (line.items - within).min(from.items - (arrival - base));
            if !from.precedes(arrival - base, line, within, shared)? {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!(
                        "process {rank} sends item {} of the {} it begins at {} before it has it",
                        within + 1,
                        line.items,
                        line.start
                    ),
                ));
            }
            within += shared;
        }
        k += line.items;
    }
    Ok(())
}

/// The items of a transfer as a line in time: item k starts at `start + floor(k * rise / steps)`.
struct Line {
    items: u64,
    start: u64,
    rise: u64,
    steps: u64,
    cost: u64,
}

impl Line {
    fn new(problem: &RingProblem, transfer: &Transfer) -> Self {
        let cost = problem.cost(transfer.from as usize, transfer.side);
        let &Transfer { items, start, end, .. } = transfer;
        Self { items, start, rise: end - start - cost, steps: (items - 1).max(1), cost }
    }

    /// Start of item k: whole units of time, and the numerator of the rest, whose denominator is `steps`.
    fn starts(&self, k: u64) -> (u128, u128) {
        let (rise, steps) = (u128::from(k) * u128::from(self.rise), u128::from(self.steps));
        (u128::from(self.start) + rise / steps, rise % steps)
    }

    /// True if item `mine + k` of this transfer has arrived before item `others + k` of `other` leaves, for all `k < count`.
    fn precedes(&self, mine: u64, other: &Self, others: u64, count: u64) -> Result<bool> {
        let arrives_in_time =
            |k: u64| self.starts(mine + k).0 + u128::from(self.cost) <= other.starts(others + k).0;
        if !(arrives_in_time(0) && arrives_in_time(count - 1)) {
            return Ok(false);
        }
        let on_lines = |k: u64| {
            let ((whole, part), (later, later_part)) = (self.starts(mine + k), other.starts(others + k));
            let whole = whole + u128::from(self.cost);
            whole < later
                || (whole == later && part * u128::from(other.steps) <= later_part * u128::from(self.steps))
        };
        if on_lines(0) && on_lines(count - 1) {
            return Ok(true);
        }
        if count > MAX_SINGLE_ITEMS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "two runs of {count} items are too close to be told apart without looking at every item"
                ),
            ));
        }
        Ok((0..count).all(arrives_in_time))
    }
}
