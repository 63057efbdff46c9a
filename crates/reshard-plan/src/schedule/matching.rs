//! `stepwise` and `greedy` of Desprez et al.: one heaviest matching after another.
//!
//! Greedy takes the matching of greatest total length among all that is left. Stepwise takes the heaviest among those
//! that meet every process with most messages left; since that lowers the greatest number by one each time, it ends
//! after the fewest steps possible. Both are heuristics for the total cost: long messages travel together.
//!
//! A heaviest matching is an assignment problem, solved exactly in integers ([`transportation`](crate::transportation)). Stepwise
//! only changes the weights: a busiest process that is met outweighs all lengths together.

use super::STEPS;
use super::graph::{Edge, Graph, MESSAGES};
use crate::error::{Error, Result};
use crate::memory;
use crate::transportation::cheapest;

/// The most steps times processes squared: each step solves an assignment problem, and more takes minutes.
const MAX_WORK: usize = 100_000_000;

/// The step of each edge.
pub(super) fn stepwise(graph: &Graph) -> Result<Vec<u64>> {
    peel(graph, true)
}

/// The step of each edge.
pub(super) fn greedy(graph: &Graph) -> Result<Vec<u64>> {
    peel(graph, false)
}

fn peel(graph: &Graph, fewest_steps: bool) -> Result<Vec<u64>> {
    let size = graph.senders.len().max(graph.receivers.len());
    let least_steps = graph.max_degree()? as usize;
    if least_steps.saturating_mul(size).saturating_mul(size) > MAX_WORK {
        return Err(Error::too_large(format!(
            "{least_steps} matchings of {size} processes were asked for, which would take minutes; use optimal"
        )));
    }
    let mut steps = memory::filled(u64::MAX, graph.edges.len(), STEPS)?;
    let mut left = memory::listed(0..graph.edges.len(), MESSAGES)?;
    let (mut sent, mut received) = graph.degrees()?;
    // Between equal lengths, messages of processes with many left are better: at most 2 x size for each of size edges.
    let length_weight = (2 * size * size) as u128 + 1;
    // A busiest process that is met is worth more than all lengths together.
    let total: u128 = graph.edges.iter().map(|edge| u128::from(edge.elems)).sum();
    let busy_weight = (total + 1) * length_weight;
    for step in 0.. {
        if left.is_empty() {
            break;
        }
        let busiest = sent.iter().chain(&received).copied().max().unwrap_or(0);
        let weight = |edge: &Edge| {
            let busy =
                u128::from(sent[edge.sender] == busiest) + u128::from(received[edge.receiver] == busiest);
            let left = (sent[edge.sender] + received[edge.receiver]) as u128;
            let weight = u128::from(edge.elems) * length_weight + left;
            if fewest_steps { weight + busy * busy_weight } else { weight }
        };
        for index in heaviest_matching(graph, &left, &weight)? {
            steps[index] = step;
        }
        for &index in left.iter().filter(|&&index| steps[index] != u64::MAX) {
            sent[graph.edges[index].sender] -= 1;
            received[graph.edges[index].receiver] -= 1;
        }
        left.retain(|&index| steps[index] == u64::MAX);
    }
    Ok(steps)
}

/// The heaviest matching among the edges `left`.
fn heaviest_matching(graph: &Graph, left: &[usize], weight: &impl Fn(&Edge) -> u128) -> Result<Vec<usize>> {
    // The smaller side is assigned to the larger; a pair without an edge weighs nothing.
    let by_senders = graph.senders.len() <= graph.receivers.len();
    let ends =
        |edge: &Edge| if by_senders { (edge.sender, edge.receiver) } else { (edge.receiver, edge.sender) };
    let (rows, columns) = if by_senders {
        (graph.senders.len(), graph.receivers.len())
    } else {
        (graph.receivers.len(), graph.senders.len())
    };
    // Lists that grow as they are filled have up to twice the capacity, and at least four entries.
    memory::check((2 * left.len() + 4 * rows) as u128 * 8, "the messages of each rank")?;
    let mut of_row: Vec<Vec<usize>> = memory::filled(Vec::new(), rows, "the messages of each rank")?;
    for &index in left {
        of_row[ends(&graph.edges[index]).0].push(index);
    }
    let most = left.iter().map(|&index| weight(&graph.edges[index])).max().unwrap_or(0);
    let mut fill = |row: usize, costs: &mut [u128]| {
        costs.fill(most);
        for &index in &of_row[row] {
            let edge = &graph.edges[index];
            costs[ends(edge).1] = most - weight(edge);
        }
        Ok(())
    };
    let each = memory::filled(1, columns.max(rows), "what is known of each rank")?;
    let assigned = cheapest(&each[..rows], &each[..columns], most, &mut fill)?;
    let edge_of = |row: usize, column: usize| {
        of_row[row].iter().copied().find(|&index| ends(&graph.edges[index]).1 == column)
    };
    memory::listed(
        assigned.iter().filter_map(|shipment| edge_of(shipment.row, shipment.column)),
        "the messages of a step",
    )
}
