//! Net flows item by item in virtual time: whatever can start does, and a priority decides where two links want one port.
//!
//! Only the ends of chains have anything to decide: a process that gives to both sides, one that takes from both. In
//! which order they do it is what makes a program good or bad where nobody knows the optimum, so several priorities are
//! tried. Where there are very many items they go in bursts, whatever a sender has up to a limit, and a burst can be
//! passed on when all of it is there: later than need be, never too early.

use super::chains::Net;
use super::problem::Side;
use super::program::Program;
use super::record::Record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which of two links that want the same port gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The one to this side.
    First(Side),
    /// The one that still has most to do.
    Remaining,
    /// The one whose chain, from here on, has a link that still has most to do.
    Chain,
    /// The same, where the way there counts as well.
    Path,
    /// As `Chain`, every link weighted by chance.
    Weighted(u64),
}

/// One link that carries items.
#[derive(Clone, Debug)]
struct Link {
    from: usize,
    to: usize,
    side: Side,
    cost: u64,
    left: u64,
    weight: u64,
    /// True if its sender gives to both sides, or its receiver takes from both: only then is there anything to decide.
    contends: bool,
    /// The link of the same chain that comes next.
    next: Option<usize>,
}

/// The run of some flows under one priority.
struct EventRun<'a> {
    links: Vec<Option<Link>>,
    stock: Vec<u64>,
    sends: Vec<bool>,
    receives: Vec<bool>,
    /// What is under way: when it arrives, over which link, how many items.
    coming: BinaryHeap<Reverse<(u64, usize, u64)>>,
    priority: Priority,
    burst: u64,
    record: Record<'a>,
}

/// The program of some net flows under one priority, in bursts of so many items; `None` if it would not be done before
/// `deadline`.
pub(crate) fn run(net: &Net<'_>, priority: Priority, burst: u64, deadline: u64) -> Option<Program> {
    let procs = net.flow.len();
    let mut run = EventRun {
        links: links(net, priority),
        stock: net.problem.loads().to_vec(),
        sends: vec![false; procs],
        receives: vec![false; procs],
        coming: BinaryHeap::new(),
        priority,
        burst,
        record: Record::new(net.problem),
    };
    let mut wanted: Vec<usize> = (0..procs).collect();
    let mut now = 0;
    loop {
        run.start(&mut wanted, now);
        let Some(&Reverse((then, ..))) = run.coming.peek() else { break };
        now = then;
        if now >= deadline {
            return None;
        }
        wanted.clear();
        while let Some(&Reverse((_, at, items))) = run.coming.peek().filter(|Reverse((end, ..))| *end == now)
        {
            run.coming.pop();
            run.arrive(at, items);
            wanted.extend([(at + procs - 1) % procs, at, (at + 1) % procs]);
        }
    }
    let done = run.links.iter().flatten().all(|link| link.left == 0);
    done.then(|| run.record.program())
}

/// The link `i -> i + 1` at place i, whichever way it carries items, if it does.
fn links(net: &Net<'_>, priority: Priority) -> Vec<Option<Link>> {
    let procs = net.flow.len();
    let mut chance = match priority {
        Priority::Weighted(seed) => seed,
        _ => 0,
    };
    (0..procs)
        .map(|at| {
            let after = (at + 1) % procs;
            let (side, from, to) = match net.flow[at] {
                0 => return None,
                1.. => (Side::Right, at, after),
                _ => (Side::Left, after, at),
            };
            let beyond = match side {
                Side::Right => after,
                Side::Left => (at + procs - 1) % procs,
            };
            let next = (net.sends(to, side) > 0).then_some(beyond);
            // A small generator of its own: xorshift, weights from 16 to 47.
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let weight = 16 + chance % 32;
            let contends = net.sends(from, side.opposite()) > 0 || net.receives(to, side.opposite()) > 0;
            let (cost, left) = (net.problem.cost(from, side), net.sends(from, side));
            Some(Link { from, to, side, cost, left, weight, contends, next })
        })
        .collect()
}

impl EventRun<'_> {
    fn arrive(&mut self, at: usize, items: u64) {
        if let Some(link) = &self.links[at] {
            self.stock[link.to] += items;
            (self.sends[link.from], self.receives[link.to]) = (false, false);
        }
    }

    /// Starts what can start, the most urgent first.
    fn start(&mut self, wanted: &mut Vec<usize>, now: u64) {
        let is_ready = |run: &Self, at: usize| {
            run.links[at].as_ref().is_some_and(|link| {
                link.left > 0 && run.stock[link.from] > 0 && !run.sends[link.from] && !run.receives[link.to]
            })
        };
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|&at| is_ready(self, at));
        wanted.sort_by_cached_key(|&at| Reverse(self.urgency(at)));
        for &at in &*wanted {
            if !is_ready(self, at) {
                continue;
            }
            let Some(link) = &mut self.links[at] else { continue };
            let items = link.left.min(self.stock[link.from]).min(self.burst);
            link.left -= items;
            self.stock[link.from] -= items;
            (self.sends[link.from], self.receives[link.to]) = (true, true);
            self.coming.push(Reverse((now + items * link.cost, at, items)));
            self.record.send(link.from, link.side, items, now);
        }
    }

    fn urgency(&self, at: usize) -> u128 {
        let Some(link) = self.links[at].as_ref().filter(|link| link.contends) else { return 0 };
        let remaining = |link: &Link| u128::from(link.left) * u128::from(link.cost);
        let downstream = || {
            std::iter::successors(Some(link), |link| link.next.and_then(|next| self.links[next].as_ref()))
                .take(self.links.len())
        };
        match self.priority {
            Priority::First(side) => u128::from(link.side == side),
            Priority::Remaining => remaining(link),
            Priority::Chain => downstream().map(remaining).max().unwrap_or(0),
            Priority::Path => {
                let mut way = 0;
                let mut farthest = 0;
                for link in downstream() {
                    farthest = farthest.max(way + remaining(link));
                    way += u128::from(link.cost);
                }
                farthest
            }
            Priority::Weighted(_) => {
                downstream().map(|link| remaining(link) * u128::from(link.weight)).max().unwrap_or(0)
            }
        }
    }
}
