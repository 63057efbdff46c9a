//! The heaviest subgraph within degree bounds: which messages go into a block of steps.
//!
//! Given a bipartite graph and, for each vertex, the least and the greatest number of its edges to take, find the set
//! of edges of greatest total weight. This is a flow from senders to receivers whose matrix is totally unimodular, so
//! successive cheapest paths find the integer optimum. Lower bounds are met by paying for them more than all edges
//! together are worth; if some are still not met, nothing meets them.

use crate::error::Result;
use crate::memory;
use std::collections::VecDeque;

/// The least and the greatest number of edges to take at a vertex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub least: u64,
    pub most: u64,
}

/// Returns whether each edge (sender, receiver, weight) is taken; `None` if the bounds cannot all be met.
pub(super) fn heaviest_within(
    senders: &[Range],
    receivers: &[Range],
    edges: &[(usize, usize, u64)],
) -> Result<Option<Vec<bool>>> {
    if senders.iter().chain(receivers).any(|range| range.least > range.most) {
        return Ok(None);
    }
    let total: i128 = edges.iter().map(|edge| i128::from(edge.2)).sum();
    let reward = total + 1;
    let (source, sink) = (senders.len() + receivers.len(), senders.len() + receivers.len() + 1);
    const WHAT: &str = "the flow of a block of steps";
    let arcs = 2 * (2 * (senders.len() + receivers.len()) + edges.len());
    // Lists that grow as they are filled have up to twice the capacity, and at least four entries.
    memory::check((2 * arcs + 4 * sink) as u128 * 8, WHAT)?;
    let mut network = FlowNetwork {
        arcs: memory::with_room(arcs, WHAT)?,
        of_node: memory::filled(Vec::new(), sink + 1, WHAT)?,
        distance: memory::filled(i128::MAX, sink + 1, WHAT)?,
        arrived_by: memory::filled(usize::MAX, sink + 1, WHAT)?,
        waits: memory::filled(false, sink + 1, WHAT)?,
    };
    for (vertex, range) in senders.iter().enumerate() {
        network.add(source, vertex, range.least, -reward);
        network.add(source, vertex, range.most - range.least, 0);
    }
    for (vertex, range) in receivers.iter().enumerate() {
        network.add(senders.len() + vertex, sink, range.least, -reward);
        network.add(senders.len() + vertex, sink, range.most - range.least, 0);
    }
    let first = network.arcs.len();
    for &(sender, receiver, weight) in edges {
        network.add(sender, senders.len() + receiver, 1, -i128::from(weight));
    }
    while network.augment(source, sink) {}
    // Arcs come in pairs, forward and back; the first of each vertex is its lower bound.
    let unmet = |arcs: &[Arc]| arcs.chunks(4).any(|arcs| arcs[0].left > 0);
    if unmet(&network.arcs[..first]) {
        return Ok(None);
    }
    memory::listed(network.arcs[first..].chunks(2).map(|arcs| arcs[0].left == 0), WHAT).map(Some)
}

struct Arc {
    to: usize,
    left: u64,
    cost: i128,
}

struct FlowNetwork {
    arcs: Vec<Arc>,
    of_node: Vec<Vec<usize>>,
    /// For each node during the search for a path: its distance, the arc it is reached by, and whether it is in the queue.
    distance: Vec<i128>,
    arrived_by: Vec<usize>,
    waits: Vec<bool>,
}

impl FlowNetwork {
    fn add(&mut self, from: usize, to: usize, capacity: u64, cost: i128) {
        self.of_node[from].push(self.arcs.len());
        self.arcs.push(Arc { to, left: capacity, cost });
        self.of_node[to].push(self.arcs.len());
        self.arcs.push(Arc { to: from, left: 0, cost: -cost });
    }

    /// Sends one unit along a cheapest path, if that lowers the total cost.
    fn augment(&mut self, source: usize, sink: usize) -> bool {
        let (distance, arrived_by, waits) = (&mut self.distance, &mut self.arrived_by, &mut self.waits);
        distance.fill(i128::MAX);
        arrived_by.fill(usize::MAX);
        waits.fill(false);
        let mut queue = VecDeque::from([source]);
        distance[source] = 0;
        while let Some(node) = queue.pop_front() {
            waits[node] = false;
            for &index in &self.of_node[node] {
                let arc = &self.arcs[index];
                if arc.left > 0 && distance[node] + arc.cost < distance[arc.to] {
                    distance[arc.to] = distance[node] + arc.cost;
                    arrived_by[arc.to] = index;
                    if !std::mem::replace(&mut waits[arc.to], true) {
                        queue.push_back(arc.to);
                    }
                }
            }
        }
        if distance[sink] >= 0 {
            return false;
        }
        let mut node = sink;
        while node != source {
            let index = arrived_by[node];
            self.arcs[index].left -= 1;
            self.arcs[index ^ 1].left += 1;
            node = self.arcs[index ^ 1].to;
        }
        true
    }
}
