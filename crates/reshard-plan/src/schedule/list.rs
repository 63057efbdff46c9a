//! Without barriers: every message starts as soon as both its ends are free.
//!
//! Dense list scheduling: whenever a port falls idle, the waiting messages whose both ends are idle are started, most
//! urgent first. No port waits while it could work, so the last arrival comes within twice the greatest load W, and in
//! practice close to it. What is urgent can be told in several ways, none always best: the message whose ends have most
//! left to do, the longest one, or the earliest of some schedule in steps. We try them, and those schedules just in their
//! order, which can only gain by dropping the barriers; and we keep the one that ends first.

use super::Step;
use super::graph::Graph;
use crate::error::{Error, Result};
use std::cmp::Reverse;

/// Past this many messages looking through all that wait takes too long.
const MOST_MESSAGES: usize = 50_000;

/// Which waiting message goes first.
#[derive(Clone, Copy)]
enum Urgency<'a> {
    /// The one whose ends have most left to send and receive.
    Load,
    /// The longest.
    Length,
    /// The one with the earliest step.
    Order(&'a [u64]),
}

/// Messages grouped by the moment they start, and the moment the last arrives, in elements sent. `orders` are schedules in
/// steps worth following.
pub(super) fn steps(graph: &Graph, orders: &[Vec<u64>]) -> Result<(Vec<Step>, u64)> {
    if graph.edges.len() > MOST_MESSAGES {
        return Err(Error::too_large(format!(
            "async was asked for {} messages, and takes at most {MOST_MESSAGES}; use optimal",
            graph.edges.len()
        )));
    }
    let rules =
        [Urgency::Load, Urgency::Length].into_iter().chain(orders.iter().map(|order| Urgency::Order(order)));
    let in_order = orders.iter().map(|order| starts_in_order(graph, order));
    let runs = rules.map(|urgency| starts(graph, urgency)).chain(in_order);
    let (starts, makespan) = runs.min_by_key(|run| run.1).unwrap_or_default();
    let mut moments = starts.clone();
    moments.sort_unstable();
    moments.dedup();
    let mut steps = vec![Step::default(); moments.len()];
    for (edge, start) in graph.edges.iter().zip(starts) {
        let step = &mut steps[moments.partition_point(|&moment| moment < start)];
        step.cost = step.cost.max(edge.elems);
        step.messages.push(graph.message(edge));
    }
    Ok((steps, makespan))
}

/// When each message starts if every process keeps the order of the steps and nobody waits for a barrier, and when the last
/// arrives.
fn starts_in_order(graph: &Graph, steps: &[u64]) -> (Vec<u64>, u64) {
    let (mut sender_free, mut receiver_free) = (vec![0; graph.senders.len()], vec![0; graph.receivers.len()]);
    let mut starts = vec![0; graph.edges.len()];
    let mut order: Vec<usize> = (0..graph.edges.len()).collect();
    order.sort_by_key(|&index| steps[index]);
    for index in order {
        let edge = &graph.edges[index];
        let start: u64 = sender_free[edge.sender].max(receiver_free[edge.receiver]);
        starts[index] = start;
        // An order that leaves 64 bits is never the one that ends first.
        let end: u64 = start.saturating_add(edge.elems);
        (sender_free[edge.sender], receiver_free[edge.receiver]) = (end, end);
    }
    (starts, sender_free.into_iter().max().unwrap_or(0))
}

/// When each message starts, and when the last arrives.
fn starts(graph: &Graph, urgency: Urgency<'_>) -> (Vec<u64>, u64) {
    let (mut to_send, mut to_receive) =
        (vec![0_u64; graph.senders.len()], vec![0_u64; graph.receivers.len()]);
    for edge in &graph.edges {
        to_send[edge.sender] += edge.elems;
        to_receive[edge.receiver] += edge.elems;
    }
    let (mut sender_free, mut receiver_free) = (vec![0_u64; to_send.len()], vec![0_u64; to_receive.len()]);
    let mut starts = vec![u64::MAX; graph.edges.len()];
    let mut waiting: Vec<usize> = (0..graph.edges.len()).collect();
    let (mut now, mut makespan) = (0, 0);
    while !waiting.is_empty() {
        let idle = |index: &usize| {
            let edge = &graph.edges[*index];
            sender_free[edge.sender] <= now && receiver_free[edge.receiver] <= now
        };
        let mut ready: Vec<usize> = waiting.iter().copied().filter(idle).collect();
        ready.sort_by_key(|&index| {
            let edge = &graph.edges[index];
            let load = to_send[edge.sender] + to_receive[edge.receiver];
            match urgency {
                Urgency::Load => (0, Reverse(load), Reverse(edge.elems), index),
                Urgency::Length => (0, Reverse(edge.elems), Reverse(load), index),
                Urgency::Order(steps) => (steps[index], Reverse(load), Reverse(edge.elems), index),
            }
        });
        for index in ready {
            let edge = &graph.edges[index];
            // One that went before may have taken a port.
            if sender_free[edge.sender] > now || receiver_free[edge.receiver] > now {
                continue;
            }
            let end = now + edge.elems;
            (sender_free[edge.sender], receiver_free[edge.receiver]) = (end, end);
            to_send[edge.sender] -= edge.elems;
            to_receive[edge.receiver] -= edge.elems;
            starts[index] = now;
            makespan = makespan.max(end);
        }
        waiting.retain(|&index| starts[index] == u64::MAX);
        // The next moment a port falls idle.
        let next = sender_free.iter().chain(&receiver_free).copied().filter(|&free| free > now).min();
        now = next.unwrap_or(now);
    }
    (starts, makespan)
}
