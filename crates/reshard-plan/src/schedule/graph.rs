//! All messages of a redistribution as a bipartite graph: senders on one side, receivers on the other.
//!
//! Strategies that need to see everything at once work on this. It exists only where all messages are asked for; the
//! closed form does without.

use crate::error::{Error, Result};
use crate::problem::Problem;
use crate::traffic::{Message, Traffic};

/// The most messages a graph may hold.
const MOST_MESSAGES: u128 = 10_000_000;

/// Senders and receivers by index, and every message between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    /// Ranks, ascending.
    pub senders: Vec<u64>,
    pub receivers: Vec<u64>,
    /// Sorted by sender, then by receiver.
    pub edges: Vec<Edge>,
}

/// One message: indices into senders and receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub sender: usize,
    pub receiver: usize,
    pub elems: u64,
}

impl Graph {
    /// The messages of a problem. With `shared_ranks` a rank is one process on both sides, and what stays on it is no
    /// message.
    pub fn new(problem: &Problem, shared_ranks: bool) -> Result<Self> {
        let grids = [problem.from().grid(), problem.to().grid()];
        if let Some(grid) = grids.iter().find(|grid| u128::from(grid.size()) > MOST_MESSAGES) {
            return Err(Error::too_large(format!(
                "a grid has {} processes, and at most {MOST_MESSAGES} are scheduled at once; ask for one rank at a time",
                grid.size()
            )));
        }
        let table = Traffic::new(problem).table()?;
        if table.message_count() > MOST_MESSAGES {
            return Err(too_many(table.message_count()));
        }
        let (senders, receivers) = (grids[0].sorted_ranks(), grids[1].sorted_ranks());
        let messages = table.messages().filter(|message| !(shared_ranks && message.from == message.to));
        let mut edges: Vec<Edge> = messages
            .map(|message| Edge {
                sender: senders.binary_search(&message.from).expect("senders are the source's ranks"),
                receiver: receivers
                    .binary_search(&message.to)
                    .expect("receivers are the destination's ranks"),
                elems: message.elems,
            })
            .collect();
        edges.sort_unstable_by_key(|edge| (edge.sender, edge.receiver));
        Ok(Self { senders, receivers, edges })
    }

    /// An edge as a message between ranks.
    pub fn message(&self, edge: &Edge) -> Message {
        Message { from: self.senders[edge.sender], to: self.receivers[edge.receiver], elems: edge.elems }
    }

    /// Messages of each sender and of each receiver.
    pub fn degrees(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut sent, mut received) = (vec![0; self.senders.len()], vec![0; self.receivers.len()]);
        for edge in &self.edges {
            sent[edge.sender] += 1;
            received[edge.receiver] += 1;
        }
        (sent, received)
    }

    /// The greatest number of messages of any process: no schedule has fewer steps.
    pub fn max_degree(&self) -> u64 {
        let (sent, received) = self.degrees();
        sent.into_iter().chain(received).max().unwrap_or(0) as u64
    }

    /// The greatest number of messages any process sends.
    pub fn max_sent(&self) -> u64 {
        self.degrees().0.into_iter().max().unwrap_or(0) as u64
    }

    /// The greatest number of elements any process sends or receives: W, which nothing can beat.
    pub fn max_load(&self) -> u64 {
        let (mut sent, mut received) = (vec![0; self.senders.len()], vec![0; self.receivers.len()]);
        for edge in &self.edges {
            sent[edge.sender] += edge.elems;
            received[edge.receiver] += edge.elems;
        }
        sent.into_iter().chain(received).max().unwrap_or(0)
    }

    /// LB1: if every process's messages are sorted from longest to shortest, the i-th costliest step costs at least the
    /// longest of all i-th messages. The sum bounds the total cost of any schedule in steps; it is at least W.
    pub fn cost_bound(&self) -> u128 {
        let mut lists = vec![Vec::new(); self.senders.len() + self.receivers.len()];
        for edge in &self.edges {
            lists[edge.sender].push(edge.elems);
            lists[self.senders.len() + edge.receiver].push(edge.elems);
        }
        let mut longest: Vec<u64> = Vec::new();
        for list in &mut lists {
            list.sort_unstable_by(|a, b| b.cmp(a));
            if list.len() > longest.len() {
                longest.resize(list.len(), 0);
            }
            for (most, &elems) in longest.iter_mut().zip(list.iter()) {
                *most = (*most).max(elems);
            }
        }
        longest.into_iter().map(u128::from).sum()
    }
}

fn too_many(count: u128) -> Error {
    Error::too_large(format!(
        "this redistribution has {count} messages, and at most {MOST_MESSAGES} are scheduled at once; \
         ask for one rank at a time"
    ))
}
