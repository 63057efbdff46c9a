//! Discrete-event simulation of net flows, item by item: every send starts as soon as it can, and a priority decides where two
//! links contend for one port.
//!
//! Only the ends of chains have a choice: a process that sends to both sides, or receives from both. Their order makes a
//! program good or bad where the optimum is not known, so several priorities are tried. Very many items are sent in bursts,
//! as many as a sender holds up to a limit, and a burst is passed on only when all of it has arrived: later than necessary,
//! never too early.

use super::chains::Net;
use super::problem::Side;
use super::program::Program;
use super::record::Record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Decides which of two links that contend for a port gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The link towards this side.
    First(Side),
    /// The link with the most time of items still to send.
    Remaining,
    /// The link whose chain, from this link on, has the link with the most time of items still to send.
    Chain,
    /// As `Chain`, plus the time of one item from this link to that one.
    Path,
    /// As `Chain`, with a random weight for every link, from this seed.
    Weighted(u64),
}

/// One link that carries items.
#[derive(Clone, Debug)]
struct Link {
    from: usize,
    to: usize,
    side: Side,
    cost: u64,
    /// Items still to send.
    left: u64,
    weight: u64,
    /// True if its sender sends to both sides, or its receiver receives from both: only then is there a choice.
    contends: bool,
    /// The next link of the chain.
    next: Option<usize>,
}

/// The simulation of net flows under one priority.
struct EventRun<'a> {
    links: Vec<Option<Link>>,
    /// Items that each process holds.
    held: Vec<u64>,
    /// For each process, whether it is sending.
    sends: Vec<bool>,
    /// For each process, whether it is receiving.
    receives: Vec<bool>,
    /// Bursts in flight: time of arrival, link, items.
    in_flight: BinaryHeap<Reverse<(u64, usize, u64)>>,
    priority: Priority,
    /// The most items of a burst.
    burst: u64,
    record: Record<'a>,
}

/// Simulates net flows under one priority, in bursts of up to `burst` items. Returns the program, or `None` if it does not end
/// before `deadline`.
pub(crate) fn run(net: &Net<'_>, priority: Priority, burst: u64, deadline: u64) -> Option<Program> {
    let procs = net.flow.len();
    let mut run = EventRun {
        links: links(net, priority),
        held: net.problem.loads().to_vec(),
        sends: vec![false; procs],
        receives: vec![false; procs],
        in_flight: BinaryHeap::new(),
        priority,
        burst,
        record: Record::new(net.problem),
    };
    let mut candidates: Vec<usize> = (0..procs).collect();
    let mut now = 0;
    loop {
        run.start(&mut candidates, now);
        let Some(&Reverse((then, ..))) = run.in_flight.peek() else { break };
        now = then;
        if now >= deadline {
            return None;
        }
        candidates.clear();
        while let Some(&Reverse((_, at, items))) =
            run.in_flight.peek().filter(|Reverse((end, ..))| *end == now)
        {
            run.in_flight.pop();
            run.arrive(at, items);
            candidates.extend([(at + procs - 1) % procs, at, (at + 1) % procs]);
        }
    }
    let done = run.links.iter().flatten().all(|link| link.left == 0);
    done.then(|| run.record.program())
}

/// The link between processes i and i + 1 at index i, in the direction of its items; none if it carries no items.
fn links(net: &Net<'_>, priority: Priority) -> Vec<Option<Link>> {
    let procs = net.flow.len();
    let mut random = match priority {
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
            // The generator xorshift; weights from 16 to 47.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let weight = 16 + random % 32;
            let contends = net.sends(from, side.opposite()) > 0 || net.receives(to, side.opposite()) > 0;
            let (cost, left) = (net.problem.cost(from, side), net.sends(from, side));
            Some(Link { from, to, side, cost, left, weight, contends, next })
        })
        .collect()
}

impl EventRun<'_> {
    /// Ends a burst of `items` items over link `at`.
    fn arrive(&mut self, at: usize, items: u64) {
        if let Some(link) = &self.links[at] {
            self.held[link.to] += items;
            (self.sends[link.from], self.receives[link.to]) = (false, false);
        }
    }

    /// Starts all sends over the links `candidates` that can start, the most urgent first.
    fn start(&mut self, candidates: &mut Vec<usize>, now: u64) {
        let is_ready = |run: &Self, at: usize| {
            run.links[at].as_ref().is_some_and(|link| {
                link.left > 0 && run.held[link.from] > 0 && !run.sends[link.from] && !run.receives[link.to]
            })
        };
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|&at| is_ready(self, at));
        candidates.sort_by_cached_key(|&at| Reverse(self.urgency(at)));
        for &at in &*candidates {
            if !is_ready(self, at) {
                continue;
            }
            let Some(link) = &mut self.links[at] else { continue };
            let items = link.left.min(self.held[link.from]).min(self.burst);
            link.left -= items;
            self.held[link.from] -= items;
            (self.sends[link.from], self.receives[link.to]) = (true, true);
            self.in_flight.push(Reverse((now + items * link.cost, at, items)));
            self.record.send(link.from, link.side, items, now);
        }
    }

    /// The priority of link `at`: larger goes first.
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
