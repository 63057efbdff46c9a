//! Schedules without barriers: every message starts as soon as both its ends are free.
//!
//! Dense list scheduling: whenever a port falls idle, the waiting messages whose both ends are idle are started, most
//! urgent first. No port waits while it could work, so the last arrival comes within twice the greatest load W, and in
//! practice close to it. There are several measures of urgency, none always best: the message whose ends have most left to
//! do, the longest message, or the earliest of some schedule in steps. All are tried, and these schedules in their own
//! order, too, which can only gain by dropping the barriers; the one that ends first is kept.

use super::Step;
use super::graph::Graph;
use crate::error::{Error, Result};
use crate::memory;
use crate::traffic::Message;
use std::cmp::Reverse;

/// The most messages: with more, searching all that wait takes too long.
const MAX_MESSAGES: usize = 50_000;

/// The name of lists of start times in errors.
const STARTS: &str = "the moments at which messages start";

/// Decides which waiting message goes first.
#[derive(Clone, Copy)]
enum Urgency<'a> {
    /// The message whose ends have most left to send and receive.
    Load,
    /// The longest message.
    Length,
    /// The message with the earliest step.
    Order(&'a [u64]),
}

/// Groups messages by the time they start, and returns the time the last arrives, in elements sent. `orders` are schedules in
/// steps whose order is tried.
pub(super) fn steps(graph: &Graph, orders: &[Vec<u64>]) -> Result<(Vec<Step>, u64)> {
    if graph.edges.len() > MAX_MESSAGES {
        return Err(Error::too_large(format!(
            "async was asked for {} messages, and takes at most {MAX_MESSAGES}; use optimal",
            graph.edges.len()
        )));
    }
    let rules =
        [Urgency::Load, Urgency::Length].into_iter().chain(orders.iter().map(|order| Urgency::Order(order)));
    let in_order = orders.iter().map(|order| starts_in_order(graph, order));
    let mut best: Option<(Vec<u64>, u64)> = None;
    for run in rules.map(|urgency| starts(graph, urgency)).chain(in_order) {
        let run = run?;
        // Of equally fast schedules, the first.
        if best.as_ref().is_none_or(|best| run.1 < best.1) {
            best = Some(run);
        }
    }
    let (starts, makespan) = best.unwrap_or_default();
    let mut moments = memory::listed(starts.iter().copied(), STARTS)?;
    moments.sort_unstable();
    moments.dedup();
    // Lists that grow as they are filled have up to twice the capacity, and at least four entries.
    memory::check((2 * starts.len() + 4 * moments.len()) as u128 * size_of::<Message>() as u128, STARTS)?;
    let mut steps = memory::filled(Step::default(), moments.len(), STARTS)?;
    for (edge, start) in graph.edges.iter().zip(starts) {
        let step = &mut steps[moments.partition_point(|&moment| moment < start)];
        step.cost = step.cost.max(edge.elems);
        step.messages.push(graph.message(edge));
    }
    Ok((steps, makespan))
}

/// The time at which each message starts if every process keeps the order of the steps without barriers, and the time at which
/// the last arrives.
fn starts_in_order(graph: &Graph, steps: &[u64]) -> Result<(Vec<u64>, u64)> {
    let (mut sender_free, mut receiver_free) = graph.of_each(0)?;
    let mut starts = memory::filled(0, graph.edges.len(), STARTS)?;
    let mut order = memory::listed(0..graph.edges.len(), STARTS)?;
    order.sort_unstable_by_key(|&index| (steps[index], index));
    for index in order {
        let edge = &graph.edges[index];
        let start: u64 = sender_free[edge.sender].max(receiver_free[edge.receiver]);
        starts[index] = start;
        // An order whose times overflow 64 bits is never the one that ends first.
        let end: u64 = start.saturating_add(edge.elems);
        (sender_free[edge.sender], receiver_free[edge.receiver]) = (end, end);
    }
    Ok((starts, sender_free.into_iter().max().unwrap_or(0)))
}

/// The time at which each message starts, and the time at which the last arrives.
fn starts(graph: &Graph, urgency: Urgency<'_>) -> Result<(Vec<u64>, u64)> {
    let (mut to_send, mut to_receive) = graph.of_each(0_u64)?;
    for edge in &graph.edges {
        to_send[edge.sender] += edge.elems;
        to_receive[edge.receiver] += edge.elems;
    }
    let (mut sender_free, mut receiver_free) = graph.of_each(0_u64)?;
    let mut starts = memory::filled(u64::MAX, graph.edges.len(), STARTS)?;
    let mut waiting = memory::listed(0..graph.edges.len(), STARTS)?;
    let mut ready: Vec<usize> = memory::with_room(graph.edges.len(), STARTS)?;
    let (mut now, mut makespan) = (0, 0);
    while !waiting.is_empty() {
        let idle = |index: &usize| {
            let edge = &graph.edges[*index];
            sender_free[edge.sender] <= now && receiver_free[edge.receiver] <= now
        };
        ready.clear();
        ready.extend(waiting.iter().copied().filter(idle));
        // No two have the same key.
        ready.sort_unstable_by_key(|&index| {
            let edge = &graph.edges[index];
            let load = to_send[edge.sender] + to_receive[edge.receiver];
            match urgency {
                Urgency::Load => (0, Reverse(load), Reverse(edge.elems), index),
                Urgency::Length => (0, Reverse(edge.elems), Reverse(load), index),
                Urgency::Order(steps) => (steps[index], Reverse(load), Reverse(edge.elems), index),
            }
        });
        for &index in &ready {
            let edge = &graph.edges[index];
            // A message that started before may have taken a port.
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
        // The next time a port becomes idle.
        let next = sender_free.iter().chain(&receiver_free).copied().filter(|&free| free > now).min();
        now = next.unwrap_or(now);
    }
    Ok((starts, makespan))
}
