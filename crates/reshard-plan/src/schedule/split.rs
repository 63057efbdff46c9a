//! Schedules that cut messages: the total cost is then the load of the busiest process, and no schedule can cost less.
//!
//! After Gonzalez and Sahni: fill the traffic matrix up until every row and column sums to the greatest load W; such a
//! matrix is W times a mixture of permutations (Birkhoff, von Neumann), so a perfect matching can be sent for as long as
//! its shortest edge lasts, again and again, until nothing is left. Taking at each step the matching whose shortest edge
//! is longest keeps the steps few.

use super::graph::Graph;
use super::{Step, busiest_port};
use crate::error::{Error, Result};
use crate::memory;
use crate::traffic::Message;

/// The most processes times messages: each step searches for a matching of all processes, and more takes minutes.
const MAX_WORK: usize = 4_000_000;

pub(super) fn steps(graph: &Graph) -> Result<Vec<Step>> {
    let (messages, processes) = (graph.edges.len(), graph.senders.len() + graph.receivers.len());
    if messages.saturating_mul(processes) > MAX_WORK {
        return Err(Error::too_large(format!(
            "split was asked for {messages} messages of {processes} processes, which would take minutes; use optimal or \
             async"
        )));
    }
    let mut filled = Filled::new(graph)?;
    let mut steps = Vec::new();
    while filled.load > 0 {
        let matching = filled.bottleneck_matching()?;
        let lasts = matching.iter().map(|&edge| filled.edges[edge].left).min().unwrap_or(0);
        let mut messages: Vec<Message> = memory::with_room(matching.len(), "the messages of a step")?;
        for edge in matching {
            let edge = &mut filled.edges[edge];
            edge.left -= lasts;
            if let Some(index) = edge.message {
                messages.push(Message { elems: lasts, ..graph.message(&graph.edges[index]) });
            }
        }
        filled.load -= lasts;
        messages.sort_unstable();
        messages.shrink_to_fit();
        let cost = busiest_port(&messages)?;
        memory::push(&mut steps, Step { cost, messages }, "the steps of cut messages")?;
    }
    Ok(steps)
}

/// The padded traffic matrix: rows are senders and then mirrors of receivers, columns the other way round.
struct Filled {
    size: usize,
    /// The sum of every row and column that is left.
    load: u64,
    edges: Vec<MessagePart>,
    of_row: Vec<Vec<usize>>,
    column_of: Vec<usize>,
}

struct MessagePart {
    left: u64,
    /// The message of the entry; `None` for padding.
    message: Option<usize>,
}

impl Filled {
    fn new(graph: &Graph) -> Result<Self> {
        const WHAT: &str = "the traffic filled up";
        let (p, q) = (graph.senders.len(), graph.receivers.len());
        let load = graph.max_load()?;
        let parts = 2 * graph.edges.len() + p + q;
        // Lists that grow as they are filled have up to twice the capacity, and at least four entries.
        memory::check((2 * parts + 4 * (p + q)) as u128 * 8, WHAT)?;
        let mut filled = Self {
            size: p + q,
            load,
            edges: memory::with_room(parts, WHAT)?,
            of_row: memory::filled(Vec::new(), p + q, WHAT)?,
            column_of: memory::with_room(parts, WHAT)?,
        };
        let (mut sent, mut received) = graph.of_each(0)?;
        for (index, edge) in graph.edges.iter().enumerate() {
            filled.add(edge.sender, edge.receiver, edge.elems, Some(index));
            // The mirrored entry balances the mirrors.
            filled.add(p + edge.receiver, q + edge.sender, edge.elems, None);
            sent[edge.sender] += edge.elems;
            received[edge.receiver] += edge.elems;
        }
        for (sender, sent) in sent.into_iter().enumerate() {
            filled.add(sender, q + sender, load - sent, None);
        }
        for (receiver, received) in received.into_iter().enumerate() {
            filled.add(p + receiver, receiver, load - received, None);
        }
        Ok(filled)
    }

    fn add(&mut self, row: usize, column: usize, left: u64, message: Option<usize>) {
        if left > 0 {
            self.of_row[row].push(self.edges.len());
            self.edges.push(MessagePart { left, message });
            self.column_of.push(column);
        }
    }

    /// The perfect matching whose shortest edge is longest.
    fn bottleneck_matching(&self) -> Result<Vec<usize>> {
        let lengths = self.edges.iter().map(|edge| edge.left).filter(|&left| left > 0);
        let mut lengths = memory::listed(lengths, "the lengths of cut messages")?;
        lengths.sort_unstable();
        lengths.dedup();
        // The shortest length always has a perfect matching, since all rows and columns sum to the load.
        let (mut feasible, mut beyond) = (0, lengths.len());
        let mut best =
            self.perfect_matching(lengths[0])?.expect("a doubly balanced matrix has a perfect matching");
        while feasible + 1 < beyond {
            let middle = feasible.midpoint(beyond);
            match self.perfect_matching(lengths[middle])? {
                Some(matching) => (feasible, best) = (middle, matching),
                None => beyond = middle,
            }
        }
        Ok(best)
    }

    /// A perfect matching among edges of at least a given length, by augmenting paths.
    fn perfect_matching(&self, least: u64) -> Result<Option<Vec<usize>>> {
        const WHAT: &str = "a matching of all ranks";
        let mut edge_of_column = memory::filled(usize::MAX, self.size, WHAT)?;
        let mut row_of_column = memory::filled(usize::MAX, self.size, WHAT)?;
        let mut seen = memory::filled(false, self.size, WHAT)?;
        for row in 0..self.size {
            seen.fill(false);
            if !self.augment(row, least, &mut seen, &mut edge_of_column, &mut row_of_column) {
                return Ok(None);
            }
        }
        Ok(Some(edge_of_column))
    }

    fn augment(
        &self,
        row: usize,
        least: u64,
        seen: &mut [bool],
        edge_of_column: &mut [usize],
        row_of_column: &mut [usize],
    ) -> bool {
        for &edge in &self.of_row[row] {
            let column = self.column_of[edge];
            if self.edges[edge].left < least || std::mem::replace(&mut seen[column], true) {
                continue;
            }
            let taken = row_of_column[column];
            if taken == usize::MAX || self.augment(taken, least, seen, edge_of_column, row_of_column) {
                edge_of_column[column] = edge;
                row_of_column[column] = row;
                return true;
            }
        }
        false
    }
}
