//! The optimum of a tiny ring, by exhaustive search with a bound (branch and bound).
//!
//! Some optimal program starts every item at time 0 or when another item arrives, so it is enough to decide at these
//! moments which idle processes send to which side; that none sends is a choice, too. States that cannot end in time by the
//! lower bound of the ports are pruned, and a state is not expanded again unless it is reached earlier. Items may go any way,
//! also both ways over one link, so a time that this search finds to be impossible is impossible.

use super::problem::{Direction, RingProblem, Side};
use super::program::Program;
use super::record::Record;
use std::collections::HashMap;

/// The result of a search.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    /// No program of the kind searched for is faster than this.
    pub lower_bound: u64,
    /// A program that takes the time `lower_bound`, if one was found.
    pub program: Option<Program>,
}

/// An item in flight from a process: to which side, and the time until it arrives.
type InFlight = Option<(Side, u64)>;

/// The items that all processes hold, and the items in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    held: Vec<u64>,
    /// For each process, the item that it is sending.
    in_flight: Vec<InFlight>,
    /// If links may carry items one way only, the direction of each link so far.
    ways: Vec<Option<Side>>,
}

/// The kind of programs that is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ways {
    /// All programs.
    Any,
    /// Programs in which no link carries items both ways.
    Net,
}

struct Search<'a> {
    problem: &'a RingProblem,
    kind: Ways,
    deadline: u64,
    /// The earliest time at which each state was reached.
    seen: HashMap<State, u64>,
    /// States that may still be expanded.
    budget: u64,
    /// The sends that lead to the present state: time, process, side.
    sent: Vec<(u64, usize, Side)>,
}

/// Raises the lower bound by 1 at a time until a program is found, `upper_bound` is reached, or `budget` states were
/// expanded.
pub(crate) fn search(
    problem: &RingProblem,
    kind: Ways,
    (lower_bound, upper_bound): (u64, u64),
    budget: u64,
) -> Searched {
    let mut budget = budget;
    for deadline in lower_bound..upper_bound {
        let mut search = Search { problem, kind, deadline, seen: HashMap::new(), budget, sent: Vec::new() };
        let start = State {
            held: problem.loads().to_vec(),
            in_flight: vec![None; problem.procs()],
            ways: vec![None; problem.procs()],
        };
        let found = search.from(&start, 0);
        if found {
            let mut record = Record::new(problem);
            search.sent.sort_by_key(|&(start, ..)| start);
            search.sent.iter().for_each(|&(start, from, side)| record.send(from, side, 1, start));
            return Searched { lower_bound: deadline, program: Some(record.program()) };
        }
        budget = search.budget;
        if budget == 0 {
            return Searched { lower_bound: deadline, program: None };
        }
    }
    Searched { lower_bound: upper_bound, program: None }
}

impl Search<'_> {
    /// True if the targets can be reached from this state by the deadline; `sent` then has all sends of the program.
    fn from(&mut self, state: &State, now: u64) -> bool {
        if self.budget == 0 || now > self.deadline {
            return false;
        }
        if state.held == self.problem.targets() && state.in_flight.iter().all(Option::is_none) {
            return true;
        }
        if self.seen.get(state).is_some_and(|&before| before <= now)
            || now + self.time_bound(state) > self.deadline
        {
            return false;
        }
        self.budget -= 1;
        self.seen.insert(state.clone(), now);
        let receives = (0..state.held.len()).map(|rank| self.is_receiving(state, rank)).collect();
        self.choose(state.clone(), receives, 0, now)
    }

    /// True if an item is in flight to `rank`.
    fn is_receiving(&self, state: &State, rank: usize) -> bool {
        let procs = state.held.len();
        let (before, after) = ((rank + procs - 1) % procs, (rank + 1) % procs);
        matches!(state.in_flight[before], Some((Side::Right, _)))
            || matches!(state.in_flight[after], Some((Side::Left, _)))
    }

    /// Decides for the processes from `rank` on whether they send now, then lets time pass.
    fn choose(&mut self, state: State, receives: Vec<bool>, rank: usize, now: u64) -> bool {
        let procs = state.held.len();
        if rank == procs {
            return self.advance(state, now);
        }
        if state.in_flight[rank].is_none() && state.held[rank] > 0 {
            let sides: &[Side] = match self.problem.direction() {
                Direction::Uni => &[Side::Right],
                Direction::Bi => &[Side::Right, Side::Left],
            };
            for &side in sides {
                let to = side.of(rank as u64, procs as u64) as usize;
                let wraps = (side == Side::Right && to < rank) || (side == Side::Left && to > rank);
                let link = if side == Side::Right { rank } else { to };
                let is_turned = self.kind == Ways::Net && state.ways[link].is_some_and(|way| way != side);
                if receives[to] || is_turned || (wraps && self.problem.is_ordered()) {
                    continue;
                }
                let (mut next, mut receives) = (state.clone(), receives.clone());
                if self.kind == Ways::Net {
                    next.ways[link] = Some(side);
                }
                next.held[rank] -= 1;
                next.in_flight[rank] = Some((side, self.problem.cost(rank, side)));
                receives[to] = true;
                self.sent.push((now, rank, side));
                if self.choose(next, receives, rank + 1, now) {
                    return true;
                }
                self.sent.pop();
            }
        }
        self.choose(state, receives, rank + 1, now)
    }

    /// Advances to the time of the next arrival and searches from there.
    fn advance(&mut self, mut state: State, now: u64) -> bool {
        let Some(wait) = state.in_flight.iter().flatten().map(|&(_, left)| left).min() else { return false };
        let procs = state.held.len();
        for rank in 0..procs {
            match &mut state.in_flight[rank] {
                Some((side, left)) if *left == wait => {
                    state.held[side.of(rank as u64, procs as u64) as usize] += 1;
                    state.in_flight[rank] = None;
                }
                Some((_, left)) => *left -= wait,
                None => (),
            }
        }
        self.from(&state, now + wait)
    }

    /// Lower bound of the time from a state on: the time of the busiest port, items in flight counted where they arrive.
    fn time_bound(&self, state: &State) -> u64 {
        let procs = state.held.len();
        let (mut held, mut sending, mut receiving) = (state.held.clone(), vec![0; procs], vec![0; procs]);
        for (rank, in_flight) in state.in_flight.iter().enumerate() {
            if let Some((side, left)) = *in_flight {
                let to = side.of(rank as u64, procs as u64) as usize;
                held[to] += 1;
                sending[rank] = left;
                receiving[to] = left;
            }
        }
        let mut prefix = 0;
        let prefixes: Vec<i64> = (0..procs)
            .map(|rank| {
                prefix += held[rank] as i64 - self.problem.targets()[rank] as i64;
                prefix
            })
            .collect();
        let (low, high) = (-prefixes.iter().max().unwrap_or(&0), -prefixes.iter().min().unwrap_or(&0));
        let (low, high) = match (self.problem.is_ordered(), self.problem.direction()) {
            (true, _) => (0, 0),
            (false, Direction::Uni) => (high, high),
            (false, Direction::Bi) => (low, high),
        };
        let busiest = |x: i64| {
            let items = |at: usize, way: i64| ((x + prefixes[at]) * way).max(0) as u64;
            (0..procs)
                .map(|rank| {
                    let (before, after) = ((rank + procs - 1) % procs, (rank + 1) % procs);
                    let (right, left) = (self.problem.right(), self.problem.left());
                    let sends = items(rank, 1) * right[rank] + items(before, -1) * left[rank];
                    let receives = items(before, 1) * right[before] + items(rank, -1) * left[after];
                    (sending[rank] + sends).max(receiving[rank] + receives)
                })
                .max()
                .unwrap_or(0)
        };
        (low..=high).map(busiest).min().unwrap_or(0)
    }
}
