//! Which solver to ask, and what is known of its answer.

use super::chains::Net;
use super::check::gap;
use super::closed;
use super::flow::Flows;
use super::problem::{Direction, RingProblem, Side};
use super::program::Program;
use super::stream::soonest;
use crate::error::Result;

/// How a program was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// One direction, by formula (Algorithms 1 and 2).
    OneWay,
    /// Equal links in both directions, by formula (in place of Algorithm 3).
    EqualLinks,
    /// Everybody holds at first what it sends, by formula (Lemma 9).
    Light,
    /// Every item as soon as possible, one direction before the other where they meet.
    Soonest,
}

impl Method {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneWay => "one way",
            Self::EqualLinks => "equal links",
            Self::Light => "light",
            Self::Soonest => "as soon as possible",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A program for a ring, and what is known of it.
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

    /// What all processes do.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How it was found.
    pub fn method(&self) -> Method {
        self.method
    }

    /// When the last item has arrived.
    pub fn makespan(&self) -> u64 {
        self.makespan
    }

    /// No program is faster than this.
    pub fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// True if no program is faster than this one; `None` if that is not known.
    pub fn optimal(&self) -> Option<bool> {
        (self.makespan == self.lower_bound).then_some(true)
    }

    /// How far it is from the bound: 0.1 if it takes a tenth longer.
    pub fn gap(&self) -> f64 {
        gap(self.makespan, self.lower_bound)
    }

    /// Items over each link `i -> i + 1`, those to the left counted negative.
    pub fn net_flow(&self) -> Vec<i64> {
        self.program.net_flow()
    }
}

/// The fastest program there is, or one that comes near, with what is known of it.
///
/// Always optimal in one direction; in both over equal links if no process that passes items on is empty at first or in
/// the end; and over any links if there is an optimal flow in which everybody holds at first what it sends.
///
/// ```
/// use reshard_plan::ring::{RingProblem, check, solve};
/// let ring = RingProblem::new(vec![1, 2, 3, 1], vec![4, 1, 1, 1])?;
/// let solution = solve(&ring)?;
/// assert_eq!((solution.makespan(), solution.optimal()), (3, Some(true)));
/// assert_eq!(check(&ring, solution.program())?.makespan, 3);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn solve(problem: &RingProblem) -> Result<Solution> {
    let flows = Flows::new(problem);
    if problem.direction() == Direction::Uni {
        let (x, bound) = flows.best();
        return Ok(one_way(&Net::new(problem, flows.at(x)), bound));
    }
    let (x, bound) = flows.best();
    if let Some((x, _)) = flows.best_light().filter(|&(_, time)| time == bound) {
        let net = Net::new(problem, flows.at(x));
        if let Some(program) = closed::right_then_left(&net, bound) {
            return Ok(Solution::new(program, Method::Light, bound));
        }
    }
    let net = Net::new(problem, flows.at(x));
    if let Some(program) = closed::right_then_left(&net, bound) {
        return Ok(Solution::new(program, Method::EqualLinks, bound));
    }
    let right_first = soonest(&net, Side::Right).program;
    let left_first = soonest(&net, Side::Left).program;
    let program = if right_first.makespan() <= left_first.makespan() { right_first } else { left_first };
    Ok(Solution::new(program, Method::Soonest, bound))
}

/// In one direction the flows are fixed, and as soon as possible is the best there is.
fn one_way(net: &Net<'_>, bound: u64) -> Solution {
    if let Some(program) = closed::one_way(net) {
        return Solution::new(program, Method::OneWay, bound);
    }
    let found = soonest(net, Side::Right);
    let bound = if found.exact { found.program.makespan() } else { bound };
    Solution::new(found.program, Method::Soonest, bound)
}
