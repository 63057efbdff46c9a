//! `stepwise` and `greedy` of Desprez et al.: one heaviest matching after another.
//!
//! Greedy takes the matching of greatest total length among all that is left. Stepwise takes the heaviest among those
//! that meet every process with most messages left; since that lowers the greatest number by one each time, it ends
//! after the fewest steps possible. Both are heuristics for the total cost: long messages travel together.
//!
//! A heaviest matching is an assignment problem, solved exactly in integers by shortest augmenting paths with
//! potentials. Stepwise only changes the weights: a busiest process that is met outweighs all lengths together.

use super::graph::Graph;
use crate::error::{Error, Result};

/// Each step solves an assignment problem in cubic time: past this many processes a side that takes minutes.
const MOST_PROCESSES: usize = 512;

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
    if size > MOST_PROCESSES {
        return Err(Error::too_large(format!(
            "matchings of {size} processes were asked for, and at most {MOST_PROCESSES} a side are tried; use optimal"
        )));
    }
    let mut steps = vec![u64::MAX; graph.edges.len()];
    let mut left: Vec<usize> = (0..graph.edges.len()).collect();
    let (mut sent, mut received) = graph.degrees();
    // Between equal lengths, messages of processes with many left are better: at most 2 x size for each of size edges.
    let length_weight = (2 * size * size) as i128 + 1;
    // And a busiest process that is met is worth more than all lengths together.
    let total: i128 = graph.edges.iter().map(|edge| i128::from(edge.elems)).sum();
    let busy_weight = (total + 1) * length_weight;
    for step in 0.. {
        if left.is_empty() {
            break;
        }
        let busiest = sent.iter().chain(&received).copied().max().unwrap_or(0);
        let mut weights = vec![0_i128; size * size];
        let mut edge_at = vec![usize::MAX; size * size];
        for &index in &left {
            let edge = &graph.edges[index];
            let at = edge.sender * size + edge.receiver;
            let busy =
                i128::from(sent[edge.sender] == busiest) + i128::from(received[edge.receiver] == busiest);
            let left = (sent[edge.sender] + received[edge.receiver]) as i128;
            weights[at] = i128::from(edge.elems) * length_weight + left;
            if fewest_steps {
                weights[at] += busy * busy_weight;
            }
            edge_at[at] = index;
        }
        for (row, column) in heaviest_assignment(size, &weights).into_iter().enumerate() {
            let index = edge_at[row * size + column];
            if index != usize::MAX {
                steps[index] = step;
                sent[graph.edges[index].sender] -= 1;
                received[graph.edges[index].receiver] -= 1;
            }
        }
        left.retain(|&index| steps[index] == u64::MAX);
    }
    Ok(steps)
}

/// A column for each row of a square matrix such that the sum of the weights is greatest.
fn heaviest_assignment(size: usize, weights: &[i128]) -> Vec<usize> {
    // Rows and columns count from 1; column 0 is where each new row begins its search.
    let cost = |row: usize, column: usize| -weights[(row - 1) * size + column - 1];
    let (mut row_potential, mut column_potential) = (vec![0_i128; size + 1], vec![0_i128; size + 1]);
    let mut row_of = vec![0_usize; size + 1];
    let mut before = vec![0_usize; size + 1];
    for row in 1..=size {
        row_of[0] = row;
        let mut column = 0;
        let mut slack = vec![i128::MAX; size + 1];
        let mut seen = vec![false; size + 1];
        while row_of[column] != 0 {
            seen[column] = true;
            let here = row_of[column];
            let (mut step, mut nearest) = (i128::MAX, 0);
            for next in (1..=size).filter(|&next| !seen[next]) {
                let reduced = cost(here, next) - row_potential[here] - column_potential[next];
                if reduced < slack[next] {
                    slack[next] = reduced;
                    before[next] = column;
                }
                if slack[next] < step {
                    step = slack[next];
                    nearest = next;
                }
            }
            for other in 0..=size {
                if seen[other] {
                    row_potential[row_of[other]] += step;
                    column_potential[other] -= step;
                } else if slack[other] != i128::MAX {
                    slack[other] -= step;
                }
            }
            column = nearest;
        }
        while column != 0 {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    let mut columns = vec![0; size];
    for column in 1..=size {
        columns[row_of[column] - 1] = column - 1;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_as_heavy_as_brute_force_finds() {
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as i128 % 20
        };
        for size in 1..=6 {
            for _ in 0..50 {
                let weights: Vec<i128> = (0..size * size).map(|_| random()).collect();
                let found = heaviest_assignment(size, &weights);
                let sum = |columns: &[usize]| -> i128 {
                    columns.iter().enumerate().map(|(row, column)| weights[row * size + column]).sum()
                };
                let mut best = 0;
                permutations(&mut (0..size).collect(), 0, &mut |columns| best = best.max(sum(columns)));
                assert_eq!(sum(&found), best);
            }
        }
    }

    fn permutations(items: &mut Vec<usize>, from: usize, visit: &mut impl FnMut(&[usize])) {
        if from == items.len() {
            return visit(items);
        }
        for at in from..items.len() {
            items.swap(from, at);
            permutations(items, from + 1, visit);
            items.swap(from, at);
        }
    }
}
