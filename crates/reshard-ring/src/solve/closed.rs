//! Optimal programs by formula, one transfer for each link: in one direction, over equal links, or light.
//!
//! **One direction** (Algorithms 1 and 2). A chain takes the time `T` of its slowest link, though processes pass items on
//! that they do not have yet. The paper proves that no link is ever delayed enough to matter; this timetable shows it: a
//! process that holds all it sends does so without pauses, every other spreads its items evenly over `[0, T]`. With
//! `f` items to send, `g` to receive, `L >= 1` items at first and `R >= 1` in the end (`f + R = g + L`, `f > L`), item
//! `k` leaves at `k * (T - c) / (f - 1)`, and the item it needs is there at the first such item and at the last: that is
//! `c' <= L * (T - c) / (f - 1)` and `c <= R * (T - c') / (g - 1)`, which follow from `T >= f c` and `T >= g c'`. Both
//! sides grow evenly, so it is there in between.
//!
//! **Equal links, both directions** (in place of Algorithm 3). Items to the right start at once, items to the left end
//! together at `T`, neither with a pause: process `i` holds at least one item all the time, and the two never overlap at
//! a port because `T` is at least the time of every port.
//!
//! **Light** (Lemma 9). To the right at once, to the left when both ports are free.
//!
//! A process that is empty at first or in the end, and has to pass items on, can break the first two; then there is no
//! formula here, and another solver is used.

use super::chains::{Chain, Net};
use super::problem::Side;
use super::program::{Program, Transfer};

/// Returns the program of flows to the right, if no process that waits for items is empty at first or in the end.
pub(crate) fn one_way(net: &Net<'_>) -> Option<Program> {
    let mut transfers = Vec::with_capacity(net.flow.len());
    for chain in net.chains(Side::Right) {
        let time = net.senders(chain).map(|rank| net.time(rank, Side::Right)).max()?;
        for rank in net.senders(chain) {
            if net.waits(rank) && is_empty_once(net, rank) {
                return None;
            }
            let items = net.sends(rank, Side::Right);
            let cost = net.problem.right()[rank];
            let end = if net.waits(rank) && items > 1 { time } else { items * cost };
            transfers.push(Transfer { from: rank as u64, side: Side::Right, items, start: 0, end });
        }
    }
    Some(Program::new(net.flow.len(), transfers))
}

/// Returns the program of flows to both sides that takes the time of its busiest port, if every process holds what it sends,
/// or links are equal and no process that waits for items is empty at first or in the end.
pub(crate) fn right_then_left(net: &Net<'_>, time: u64) -> Option<Program> {
    let mut transfers = Vec::with_capacity(net.flow.len());
    let equal = net.problem.is_homogeneous();
    for (rank, &items) in net.flow.iter().enumerate().filter(|&(_, &items)| items > 0) {
        if net.waits(rank) && (!equal || is_empty_once(net, rank)) {
            return None;
        }
        let end = net.time(rank, Side::Right);
        transfers.push(Transfer { from: rank as u64, side: Side::Right, items: items as u64, start: 0, end });
    }
    for chain in net.chains(Side::Left) {
        let light = !net.senders(chain).any(|rank| net.waits(rank));
        if !light && (!equal || net.senders(chain).any(|rank| net.waits(rank) && is_empty_once(net, rank))) {
            return None;
        }
        let idle = if light { 0 } else { idle_before(net, chain, time) };
        for rank in net.senders(chain) {
            let taken = net.time(rank, Side::Left);
            let start = if light { ports_free(net, rank) } else { time - taken - idle };
            let (from, items) = (rank as u64, net.sends(rank, Side::Left));
            transfers.push(Transfer { from, side: Side::Left, items, start, end: start + taken });
        }
    }
    Some(Program::new(net.flow.len(), transfers))
}

/// True if a process is empty at first or in the end.
fn is_empty_once(net: &Net<'_>, rank: usize) -> bool {
    net.problem.loads()[rank] == 0 || net.problem.targets()[rank] == 0
}

/// Time at which a process has sent, and its left neighbour has received, all that moves right.
fn ports_free(net: &Net<'_>, rank: usize) -> u64 {
    let other = net.next(net.next(rank, Side::Left), Side::Left);
    net.time(rank, Side::Right).max(net.time(other, Side::Right))
}

/// Time by which a whole chain to the left can start before its latest possible start.
fn idle_before(net: &Net<'_>, chain: Chain, time: u64) -> u64 {
    let slack = |rank| time - net.time(rank, Side::Left) - ports_free(net, rank);
    net.senders(chain).map(slack).min().unwrap_or(0)
}
