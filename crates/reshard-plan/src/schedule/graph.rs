//! All messages of a redistribution as a bipartite graph: senders on one side, receivers on the other.
//!
//! Strategies that need all messages at once use it. It exists only where all messages are listed; the closed form does not
//! need it.

use crate::error::{Error, Result};
use crate::memory;
use crate::problem::Problem;
use crate::traffic::{Message, Traffic};

/// The most messages of a graph.
const MAX_MESSAGES: u128 = 10_000_000;

/// The name of lists as long as the messages in errors.
pub(super) const MESSAGES: &str = "a list of all messages";

/// Senders and receivers by index, and every message between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    /// Ranks, ascending.
    pub senders: Vec<u64>,
    pub receivers: Vec<u64>,
    /// The messages, sorted by sender, then by receiver.
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
    /// The messages of a problem. With `shared_ranks` a rank is one process on both sides, and elements that stay on it
    /// are no message.
    pub fn new(problem: &Problem, shared_ranks: bool) -> Result<Self> {
        let grids = [problem.from().grid(), problem.to().grid()];
        if let Some(grid) = grids.iter().find(|grid| u128::from(grid.size()) > MAX_MESSAGES) {
            return Err(Error::too_large(format!(
                "a grid has {} processes, and at most {MAX_MESSAGES} are scheduled at once; ask for one rank at a time",
                grid.size()
            )));
        }
        let table = Traffic::new(problem).table()?;
        if table.message_count() > MAX_MESSAGES {
            return Err(too_many(table.message_count()));
        }
        let mut edges = memory::with_room(table.message_count() as usize, MESSAGES)?;
        let ranks = u128::from(grids[0].size()) + u128::from(grids[1].size());
        memory::check(ranks * 8, "the ranks of both grids")?;
        let (senders, receivers) = (grids[0].sorted_ranks(), grids[1].sorted_ranks());
        let messages = table.messages().filter(|message| !(shared_ranks && message.from == message.to));
        edges.extend(messages.map(|message| Edge {
            sender: senders.binary_search(&message.from).expect("senders are the source's ranks"),
            receiver: receivers.binary_search(&message.to).expect("receivers are the destination's ranks"),
            elems: message.elems,
        }));
        edges.sort_unstable_by_key(|edge| (edge.sender, edge.receiver));
        Ok(Self { senders, receivers, edges })
    }

    /// An edge as a message between ranks.
    pub fn message(&self, edge: &Edge) -> Message {
        Message { from: self.senders[edge.sender], to: self.receivers[edge.receiver], elems: edge.elems }
    }

    /// Messages of each sender and of each receiver.
    pub fn degrees(&self) -> Result<(Vec<usize>, Vec<usize>)> {
        let (mut sent, mut received) = self.of_each(0)?;
        for edge in &self.edges {
            sent[edge.sender] += 1;
            received[edge.receiver] += 1;
        }
        Ok((sent, received))
    }

    /// A value for each sender and for each receiver.
    pub fn of_each<T: Clone>(&self, value: T) -> Result<(Vec<T>, Vec<T>)> {
        let of = |count: usize| memory::filled(value.clone(), count, "what is known of each rank");
        Ok((of(self.senders.len())?, of(self.receivers.len())?))
    }

    /// The greatest number of messages of any process: no schedule has fewer steps.
    pub fn max_degree(&self) -> Result<u64> {
        let (sent, received) = self.degrees()?;
        Ok(sent.into_iter().chain(received).max().unwrap_or(0) as u64)
    }

    /// The greatest number of messages any process sends.
    pub fn max_sent(&self) -> Result<u64> {
        Ok(self.degrees()?.0.into_iter().max().unwrap_or(0) as u64)
    }

    /// The greatest number of elements any process sends or receives: W, a lower bound of every total cost.
    pub fn max_load(&self) -> Result<u64> {
        let (mut sent, mut received) = self.of_each(0)?;
        for edge in &self.edges {
            sent[edge.sender] += edge.elems;
            received[edge.receiver] += edge.elems;
        }
        Ok(sent.into_iter().chain(received).max().unwrap_or(0))
    }

    /// LB1: if every process's messages are sorted from longest to shortest, the i-th costliest step costs at least the
    /// longest of all i-th messages. The sum bounds the total cost of any schedule in steps; it is at least W.
    pub fn cost_bound(&self) -> Result<u128> {
        const WHAT: &str = "the bound of a schedule's cost";
        let mut longest: Vec<u64> = Vec::new();
        let (sent, received) = self.degrees()?;
        let of_side: [fn(&Edge) -> usize; 2] = [|edge| edge.sender, |edge| edge.receiver];
        for (mut ends, process) in [sent, received].into_iter().zip(of_side) {
            // All lists of a side one after the other; the beginning of each, which becomes its end as it is filled.
            let mut lengths = memory::filled(0_u64, self.edges.len(), WHAT)?;
            let mut begin = 0;
            for end in &mut ends {
                begin += std::mem::replace(end, begin);
            }
            for edge in &self.edges {
                let end = &mut ends[process(edge)];
                lengths[*end] = edge.elems;
                *end += 1;
            }
            let mut begin = 0;
            for end in ends {
                let list = &mut lengths[begin..end];
                list.sort_unstable_by(|a, b| b.cmp(a));
                if list.len() > longest.len() {
                    let more = list.len() - longest.len();
                    memory::reserve(&mut longest, more, WHAT)?;
                    longest.resize(list.len(), 0);
                }
                for (most, &elems) in longest.iter_mut().zip(list.iter()) {
                    *most = (*most).max(elems);
                }
                begin = end;
            }
        }
        Ok(longest.into_iter().map(u128::from).sum())
    }
}

fn too_many(count: u128) -> Error {
    Error::too_large(format!(
        "this redistribution has {count} messages, and at most {MAX_MESSAGES} are scheduled at once; \
         ask for one rank at a time"
    ))
}
