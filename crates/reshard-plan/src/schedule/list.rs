//! Without barriers: every message starts as soon as both its ends are free.
//!
//! Dense list scheduling: whenever a port falls idle, the waiting messages whose both ends are idle are started, the one
//! whose ends have most left to do first. No port waits while it could work, so the last arrival comes within twice the
//! greatest load W, and in practice close to it.

use super::Step;
use super::graph::Graph;
use crate::error::{Error, Result};

/// Past this many messages looking through all that wait takes too long.
const MOST_MESSAGES: usize = 50_000;

/// Messages grouped by the moment they start, and the moment the last arrives, in elements sent.
pub(super) fn steps(graph: &Graph) -> Result<(Vec<Step>, u64)> {
    if graph.edges.len() > MOST_MESSAGES {
        return Err(Error::too_large(format!(
            "async was asked for {} messages, and takes at most {MOST_MESSAGES}; use optimal",
            graph.edges.len()
        )));
    }
    let (mut to_send, mut to_receive) =
        (vec![0_u64; graph.senders.len()], vec![0_u64; graph.receivers.len()]);
    for edge in &graph.edges {
        to_send[edge.sender] += edge.elems;
        to_receive[edge.receiver] += edge.elems;
    }
    let (mut sender_free, mut receiver_free) = (vec![0_u64; to_send.len()], vec![0_u64; to_receive.len()]);
    let mut waiting: Vec<usize> = (0..graph.edges.len()).collect();
    let (mut steps, mut now, mut makespan) = (Vec::new(), 0, 0);
    while !waiting.is_empty() {
        let urgency = |edge: &super::graph::Edge| to_send[edge.sender] + to_receive[edge.receiver];
        let mut ready: Vec<usize> = waiting
            .iter()
            .copied()
            .filter(|&index| {
                let edge = &graph.edges[index];
                sender_free[edge.sender] <= now && receiver_free[edge.receiver] <= now
            })
            .collect();
        ready.sort_by_key(|&index| {
            let edge = &graph.edges[index];
            (std::cmp::Reverse((urgency(edge), edge.elems)), index)
        });
        let mut step = Step::default();
        let mut started = vec![false; graph.edges.len()];
        for index in ready {
            let edge = &graph.edges[index];
            if sender_free[edge.sender] > now || receiver_free[edge.receiver] > now {
                continue;
            }
            let end = now + edge.elems;
            (sender_free[edge.sender], receiver_free[edge.receiver]) = (end, end);
            makespan = makespan.max(end);
            step.cost = step.cost.max(edge.elems);
            step.messages.push(graph.message(edge));
            started[index] = true;
        }
        for message in &step.messages {
            let (sender, receiver) =
                (graph.senders.binary_search(&message.from), graph.receivers.binary_search(&message.to));
            if let (Ok(sender), Ok(receiver)) = (sender, receiver) {
                to_send[sender] -= message.elems;
                to_receive[receiver] -= message.elems;
            }
        }
        waiting.retain(|&index| !started[index]);
        step.messages.sort_unstable();
        if !step.messages.is_empty() {
            steps.push(step);
        }
        // The next moment a port falls idle.
        let next = sender_free.iter().chain(&receiver_free).copied().filter(|&free| free > now).min();
        now = next.unwrap_or(now);
    }
    Ok((steps, makespan))
}
