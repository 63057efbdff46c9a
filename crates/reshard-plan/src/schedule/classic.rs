//! Schedules of other libraries, for comparison: the caterpillar, Walker and Otto's schedule, and all messages at once.

use super::STEPS;
use super::graph::Graph;
use crate::error::{Error, Result};
use crate::memory;
use crate::problem::Problem;

/// ScaLAPACK's exchange as Desprez et al. count it (their Table 19): of N processes, number i sends to number i - d in
/// step d. It takes N steps, some of them perhaps empty.
pub(super) fn caterpillar(graph: &Graph) -> Result<Vec<u64>> {
    let processes = graph.senders.len().max(graph.receivers.len());
    let step = |sender: usize, receiver: usize| (processes + sender - receiver) % processes;
    memory::listed(graph.edges.iter().map(|edge| step(edge.sender, edge.receiver) as u64), STEPS)
}

/// All messages at once: each sender begins with the receiver after itself and keeps `in_flight` messages in flight.
pub(super) fn eager(graph: &Graph, in_flight: u64) -> Result<Vec<u64>> {
    if in_flight == 0 {
        return Err(Error::out_of_range(
            "0 messages in flight were allowed; at least 1 is needed to get anywhere",
        ));
    }
    let mut steps = memory::filled(0, graph.edges.len(), STEPS)?;
    let mut begin = 0;
    for edges in graph.edges.chunk_by(|a, b| a.sender == b.sender) {
        // Sorted by receiver: rotate to begin after the sender's own number.
        let first = edges.partition_point(|edge| edge.receiver <= edge.sender);
        for (order, at) in (first..edges.len()).chain(0..first).enumerate() {
            steps[begin + at] = order as u64 / in_flight;
        }
        begin += edges.len();
    }
    Ok(steps)
}

/// Walker and Otto: P = Q processes, from blocks of r to blocks of K r (or back). Source block b = K m + j goes to
/// receiver m; in step t receiver m takes its block number t plus m's group, so that all senders differ too.
pub(super) fn walker_otto(problem: &Problem, graph: &Graph) -> Result<Vec<u64>> {
    let refused = || {
        Error::unsupported(
            "walker-otto needs one dimension, as many senders as receivers, one block size a multiple of the other, \
             and no window; use the strategy optimal",
        )
    };
    if problem.from().dims() != 1
        || problem.from().shape() != problem.shape()
        || problem.to().shape() != problem.shape()
    {
        return Err(refused());
    }
    let (from, to) = (&problem.from().axes()[0], &problem.to().axes()[0]);
    let (Some((r, first)), Some((s, to_first))) = (from.cyclic_parameters(), to.cyclic_parameters()) else {
        return Err(refused());
    };
    let processes = from.procs();
    let (factor, grows) = if s % r == 0 { (s / r, true) } else { (r / s, false) };
    if processes != to.procs() || (s % r != 0 && r % s != 0) {
        return Err(refused());
    }
    let coordinate = |problem: &crate::distribution::Distribution, rank: u64, first: u64| {
        let coords = problem.grid().coords(rank).unwrap_or_default();
        (coords.first().copied().unwrap_or(0) + processes - first) % processes
    };
    let group = processes / crate::axis::gcd(factor, processes);
    let steps = graph.edges.iter().map(|edge| {
        let sender = coordinate(problem.from(), graph.senders[edge.sender], first);
        let receiver = coordinate(problem.to(), graph.receivers[edge.receiver], to_first);
        // The side with the long blocks is m; the other owns block K m + j for some j.
        let (long, short) = if grows { (receiver, sender) } else { (sender, receiver) };
        if factor >= processes {
            return (long + short) % processes;
        }
        let wide = u128::from;
        let j =
            (wide(short) + wide(processes) - wide(long) * wide(factor) % wide(processes)) % wide(processes);
        (j as u64 + factor - (long / group) % factor) % factor
    });
    memory::listed(steps, STEPS)
}
