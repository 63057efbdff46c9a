//! The optimum of a tiny ring, by looking at everything that can be done.
//!
//! Some optimal program starts every item at the beginning or when another item arrives, so it is enough to decide at
//! those moments which idle processes send to which side, nobody being a choice too. States that cannot end in time by
//! the bound of the ports are cut off, and a state is not looked at again unless it comes earlier. Items may go any way,
//! also both ways over one link: what this finds to be impossible is.

use super::problem::{Direction, RingProblem, Side};
use super::program::Program;
use super::record::Record;
use std::collections::HashMap;

/// What a search found out.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    /// No program of those looked for is faster than this.
    pub lower_bound: u64,
    /// A program with that time, if one was found.
    pub program: Option<Program>,
}

/// An item under way from a process: to which side, and for how long still.
type Underway = Option<(Side, u64)>;

/// What all processes hold, and what is under way from each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    stock: Vec<u64>,
    underway: Vec<Underway>,
    /// If links may carry items one way only: which way each has, so far.
    ways: Vec<Option<Side>>,
}

/// Which programs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ways {
    /// All.
    Any,
    /// Those in which no link carries items both ways.
    Net,
}

struct Search<'a> {
    problem: &'a RingProblem,
    wanted: Ways,
    deadline: u64,
    /// The earliest moment at which a state was met.
    seen: HashMap<State, u64>,
    budget: u64,
    /// What was sent when, on the way to the present state.
    sent: Vec<(u64, usize, Side)>,
}

/// Raises the lower bound by one after the other, until a program is found, `upper_bound` is reached, or so many states
/// were looked at.
pub(crate) fn search(
    problem: &RingProblem,
    wanted: Ways,
    (lower_bound, upper_bound): (u64, u64),
    budget: u64,
) -> Searched {
    let mut budget = budget;
    for deadline in lower_bound..upper_bound {
        let mut search = Search { problem, wanted, deadline, seen: HashMap::new(), budget, sent: Vec::new() };
        let start = State {
            stock: problem.loads().to_vec(),
            underway: vec![None; problem.procs()],
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
    /// True if all can be done from this state on; then `sent` has all that was.
    fn from(&mut self, state: &State, now: u64) -> bool {
        if self.budget == 0 || now > self.deadline {
            return false;
        }
        if state.stock == self.problem.targets() && state.underway.iter().all(Option::is_none) {
            return true;
        }
        if self.seen.get(state).is_some_and(|&before| before <= now)
            || now + self.least(state) > self.deadline
        {
            return false;
        }
        self.budget -= 1;
        self.seen.insert(state.clone(), now);
        let receives = (0..state.stock.len()).map(|rank| self.is_receiving(state, rank)).collect();
        self.choose(state.clone(), receives, 0, now)
    }

    fn is_receiving(&self, state: &State, rank: usize) -> bool {
        let procs = state.stock.len();
        let (before, after) = ((rank + procs - 1) % procs, (rank + 1) % procs);
        matches!(state.underway[before], Some((Side::Right, _)))
            || matches!(state.underway[after], Some((Side::Left, _)))
    }

    /// Decides for the processes from `rank` on whether they send now, then lets time pass.
    fn choose(&mut self, state: State, receives: Vec<bool>, rank: usize, now: u64) -> bool {
        let procs = state.stock.len();
        if rank == procs {
            return self.pass(state, now);
        }
        if state.underway[rank].is_none() && state.stock[rank] > 0 {
            let sides: &[Side] = match self.problem.direction() {
                Direction::Uni => &[Side::Right],
                Direction::Bi => &[Side::Right, Side::Left],
            };
            for &side in sides {
                let to = side.of(rank as u64, procs as u64) as usize;
                let wraps = (side == Side::Right && to < rank) || (side == Side::Left && to > rank);
                let link = if side == Side::Right { rank } else { to };
                let turned = self.wanted == Ways::Net && state.ways[link].is_some_and(|way| way != side);
                if receives[to] || turned || (wraps && self.problem.is_ordered()) {
                    continue;
                }
                let (mut next, mut receives) = (state.clone(), receives.clone());
                if self.wanted == Ways::Net {
                    next.ways[link] = Some(side);
                }
                next.stock[rank] -= 1;
                next.underway[rank] = Some((side, self.problem.cost(rank, side)));
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

    /// To the moment of the next arrival.
    fn pass(&mut self, mut state: State, now: u64) -> bool {
        let Some(wait) = state.underway.iter().flatten().map(|&(_, left)| left).min() else { return false };
        let procs = state.stock.len();
        for rank in 0..procs {
            match &mut state.underway[rank] {
                Some((side, left)) if *left == wait => {
                    state.stock[side.of(rank as u64, procs as u64) as usize] += 1;
                    state.underway[rank] = None;
                }
                Some((_, left)) => *left -= wait,
                None => (),
            }
        }
        self.from(&state, now + wait)
    }

    /// The time the ports need at least from a state on, what is under way counted where it arrives.
    fn least(&self, state: &State) -> u64 {
        let procs = state.stock.len();
        let (mut stock, mut sending, mut receiving) = (state.stock.clone(), vec![0; procs], vec![0; procs]);
        for (rank, underway) in state.underway.iter().enumerate() {
            if let Some((side, left)) = *underway {
                let to = side.of(rank as u64, procs as u64) as usize;
                stock[to] += 1;
                sending[rank] = left;
                receiving[to] = left;
            }
        }
        let mut prefix = 0;
        let prefixes: Vec<i64> = (0..procs)
            .map(|rank| {
                prefix += stock[rank] as i64 - self.problem.targets()[rank] as i64;
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
