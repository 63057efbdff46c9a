//! Chooses the solvers for a problem, and keeps the best program with the lower bound.

use super::chains::Net;
use super::check::gap;
use super::closed;
use super::events::{self, Priority};
use super::exact::{self, Ways};
use super::flow::Flows;
use super::problem::{Direction, RingProblem, Side};
use super::program::{Program, Transfer};
use super::reverse::Reversed;
use super::stream::soonest;
use reshard_plan::Result;
use reshard_plan::memory;

/// The most processes of a ring that is simulated item by item.
const MAX_SIMULATED_PROCS: usize = 1_000;
/// Number of random weightings tried besides the other priorities.
const WEIGHTINGS: u64 = 200;
/// Items (or bursts) simulated for one problem, over all priorities and flows: about half a second.
const MAX_SIMULATED_ITEMS: u64 = 1_500_000;
/// The most bursts over all links in a simulation; with more items, several items make a burst.
const MAX_BURSTS: u64 = 50_000;
/// The most processes of a ring that is searched exhaustively.
const MAX_SEARCHED_PROCS: usize = 6;
/// The most items of a ring that is searched exhaustively.
const MAX_SEARCHED_ITEMS: u64 = 24;
/// The most states that a search expands.
const MAX_STATES: u64 = 200_000;

/// How a program was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// One direction, by formula (Algorithms 1 and 2).
    OneWay,
    /// Equal links in both directions, by formula (in place of Algorithm 3).
    EqualLinks,
    /// Every process holds at first what it sends, by formula (Lemma 9).
    Light,
    /// Every item as soon as possible, one direction before the other where chains meet.
    Soonest,
    /// Every item as soon as possible, by a priority where two links contend for a port.
    Events,
    /// By exhaustive search.
    Search,
}

impl Method {
    /// Returns the name of the method, in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::EqualLinks => "equal links",
            Self::Light => "light",
            Self::Soonest => "as soon as possible",
            Self::Events => "by priorities",
            Self::Search => "by search",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A program for a ring, with the method that found it and a lower bound of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    pub(super) program: Program,
    pub(super) method: Method,
    pub(super) lower_bound: u64,
    pub(super) makespan: u64,
}

impl Solution {
    pub(super) fn new(program: Program, method: Method, lower_bound: u64) -> Self {
        let makespan = program.makespan();
        Self { program, method, lower_bound, makespan }
    }

    /// The transfers of all processes.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The method that found the program.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Time at which the last item has arrived.
    pub fn makespan(&self) -> u64 {
        self.makespan
    }

    /// Lower bound: no program for the ring is faster than this.
    pub fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// True if no program is faster than this one; `None` if that is not known.
    pub fn optimal(&self) -> Option<bool> {
        (self.makespan == self.lower_bound).then_some(true)
    }

    /// Relative distance to the lower bound: 0.1 if the program takes a tenth longer.
    pub fn gap(&self) -> f64 {
        gap(self.makespan, self.lower_bound)
    }

    /// Net number of items over each link `i -> i + 1`; items to the left count negative.
    pub fn net_flow(&self) -> Vec<i64> {
        self.program.net_flow()
    }
}

/// Finds an optimal program, or one near the optimum, with a lower bound of the time.
///
/// Always optimal in one direction (but for chains of many hundred links with empty processes on the way, which may be
/// proven to a small gap only); in both over equal links if no process that passes items on is empty at first or in
/// the end; and over any links if there is an optimal flow in which every process holds at first what it sends.
///
/// ```
/// use reshard_ring::{RingProblem, check, solve};
/// let ring = RingProblem::new(vec![1, 2, 3, 1], vec![4, 1, 1, 1])?;
/// let solution = solve(&ring)?;
/// assert_eq!((solution.makespan(), solution.optimal()), (3, Some(true)));
/// assert_eq!(check(&ring, solution.program())?.makespan, 3);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn solve(problem: &RingProblem) -> Result<Solution> {
    // Prefix sums of imbalances, flows twice, and up to two programs of two transfers for each link.
    let each = 4 * size_of::<i64>() + 4 * size_of::<Transfer>();
    memory::check(problem.procs() as u128 * each as u128, "the flows and transfers of a ring")?;
    let flows = Flows::new(problem);
    if problem.direction() == Direction::Uni {
        let (x, bound) = flows.best();
        return one_way(&Net::new(problem, flows.at(x)), bound);
    }
    let (x, bound) = flows.best();
    if let Some((x, _)) = flows.best_light((x, bound)).filter(|&(_, time)| time == bound) {
        let net = Net::new(problem, flows.at(x));
        if let Some(program) = closed::right_then_left(&net, bound) {
            return Ok(Solution::new(program, Method::Light, bound));
        }
    }
    let net = Net::new(problem, flows.at(x));
    if let Some(program) = closed::right_then_left(&net, bound) {
        return Ok(Solution::new(program, Method::EqualLinks, bound));
    }
    general(problem, &flows, x, bound)
}

/// Solves a ring in one direction: the flows are fixed, and as soon as possible is optimal.
fn one_way(net: &Net<'_>, bound: u64) -> Result<Solution> {
    if let Some(program) = closed::one_way(net) {
        return Ok(Solution::new(program, Method::OneWay, bound));
    }
    let found = soonest(net, Side::Right)?;
    let bound = if found.exact { found.program.makespan() } else { bound };
    Ok(Solution::new(found.program, Method::Soonest, bound))
}

/// Solves a ring for which no formula holds: makes several programs and keeps the best.
fn general(problem: &RingProblem, flows: &Flows<'_>, x: i64, bound: u64) -> Result<Solution> {
    let mut best = soonest_either(&Net::new(problem, flows.at(x)), bound)?;
    if let Some((x, time)) = flows.best_light((x, bound)).filter(|&(_, time)| time < best.makespan)
        && let Some(program) = closed::right_then_left(&Net::new(problem, flows.at(x)), time)
    {
        best = Solution::new(program, Method::Light, bound);
    }
    if problem.procs() <= MAX_SIMULATED_PROCS {
        by_priorities(problem, flows, x, &mut best);
    }
    if best.makespan > bound && is_tiny(problem) {
        let mut found = exact::search(problem, Ways::Any, (bound, best.makespan), MAX_STATES);
        best.lower_bound = found.lower_bound;
        // A program with items both ways over a link would need more room to run: search for another as fast.
        if found.program.as_ref().is_some_and(|program| !program.is_net()) {
            found = exact::search(problem, Ways::Net, (found.lower_bound, best.makespan), MAX_STATES);
        }
        if let Some(program) = found.program {
            best = Solution::new(program, Method::Search, best.lower_bound);
        }
    }
    Ok(best)
}

/// Returns the better of two programs as soon as possible: right first, and left first.
fn soonest_either(net: &Net<'_>, bound: u64) -> Result<Solution> {
    let right_first = Solution::new(soonest(net, Side::Right)?.program, Method::Soonest, bound);
    if right_first.makespan == bound {
        return Ok(right_first);
    }
    let left_first = Solution::new(soonest(net, Side::Left)?.program, Method::Soonest, bound);
    Ok(if right_first.makespan <= left_first.makespan { right_first } else { left_first })
}

/// Simulates all flows that could be better than the best program so far, item by item, until one is as fast as the bound.
fn by_priorities(problem: &RingProblem, flows: &Flows<'_>, x: i64, best: &mut Solution) {
    use Priority::{Chain, First, Path, Remaining, Weighted};
    let rules = [Chain, Remaining, Path, First(Side::Right), First(Side::Left)];
    let rules = rules.into_iter().chain((1..=WEIGHTINGS).map(|seed| Weighted(seed * 0x9e37_79b9)));
    let (lowest, highest) = flows.range();
    let (mut below, mut above) = (x, x);
    let mut next = Some(x);
    let mut work = MAX_SIMULATED_ITEMS;
    while let Some(x) = next {
        if flows.time(x) >= best.makespan {
            break;
        }
        let net = Net::new(problem, flows.at(x));
        let items: u64 = net.flow.iter().map(|flow| flow.unsigned_abs()).sum();
        let burst = (items / MAX_BURSTS).max(1);
        let reversed = Reversed::new(&net);
        // The time of a simulated item grows with its chain, as its priority depends on all links of it.
        let chains = net.chains(Side::Right).chain(net.chains(Side::Left));
        let longest = chains.map(|chain| chain.links as u64).max().unwrap_or(0);
        let procs = problem.procs() as u64;
        for rule in rules.clone() {
            if best.makespan == best.lower_bound || work == 0 {
                return;
            }
            work = work.saturating_sub(2 * (items / burst + procs) * (1 + longest / 64));
            if let Some(program) = events::run(&net, rule, burst, best.makespan) {
                *best = Solution::new(program, Method::Events, best.lower_bound);
            }
            if let Some(program) = events::run(&reversed.net(), rule, burst, best.makespan) {
                *best = Solution::new(Reversed::backwards(&program), Method::Events, best.lower_bound);
            }
        }
        // The next `x` on either side of those tried, by its lower bound.
        let lower = (below > lowest).then(|| (flows.time(below - 1), below - 1));
        let higher = (above < highest).then(|| (flows.time(above + 1), above + 1));
        next = lower.into_iter().chain(higher).min().map(|(_, x)| x);
        match next {
            Some(x) if x < below => below = x,
            Some(x) => above = x,
            None => (),
        }
    }
}

/// True if the ring is small enough for an exhaustive search.
fn is_tiny(problem: &RingProblem) -> bool {
    problem.procs() <= MAX_SEARCHED_PROCS && problem.loads().iter().sum::<u64>() <= MAX_SEARCHED_ITEMS
}
