//! Schedules any traffic in the fewest steps: bipartite edge colouring by Kempe chains.
//!
//! König's theorem says that a bipartite graph needs no more colours than its busiest vertex has edges. The proof is
//! the algorithm: give each edge a colour that is free at its sender; if it is taken at the receiver, walk from there
//! along edges of the two colours in turn and swap them, which frees it. The walk cannot come back to the sender.
//! Chains stay short on redistributions, so this is fast; it is the fallback for traffic without a closed form.

use super::STEPS;
use super::graph::Graph;
use crate::error::{Error, Result};
use crate::memory;
use std::collections::HashMap;

const NONE: u32 = u32::MAX;

/// The most cells of a table of one side: 256 MiB.
const MAX_TABLE_CELLS: usize = 1 << 26;

/// The most edges of a vertex without a bitmap of its colours; a vertex with more keeps a bit for each colour.
const MAX_EDGES_WITHOUT_BITMAP: usize = 16;

/// The most bytes of all bitmaps of colours together: 512 MiB.
const MAX_BITMAP_BYTES: usize = 1 << 29;

/// Returns a step for each edge, from 0 to the maximum degree less one.
pub(super) fn colour(graph: &Graph) -> Result<Vec<u64>> {
    let colours = graph.max_degree()? as usize;
    let (sent, received) = graph.degrees()?;
    let busy = sent.iter().chain(&received).filter(|&&degree| degree > MAX_EDGES_WITHOUT_BITMAP).count();
    if busy.saturating_mul(colours / 8) > MAX_BITMAP_BYTES {
        return Err(Error::too_large(format!(
            "{busy} processes have many messages each, the busiest {colours}; they cannot all be scheduled at once"
        )));
    }
    let mut at_sender = VertexColours::new(&sent, colours)?;
    let mut at_receiver = VertexColours::new(&received, colours)?;
    let mut steps = memory::filled(0_u32, graph.edges.len(), STEPS)?;
    for (index, edge) in graph.edges.iter().enumerate() {
        let (sender, receiver) = (edge.sender, edge.receiver);
        // Both have a free colour: fewer than `colours` of their edges are coloured yet.
        let (mine, theirs) = (at_sender.free(sender), at_receiver.free(receiver));
        let mut colour = mine;
        if at_receiver.edge(receiver, mine) != NONE {
            if at_sender.edge(sender, theirs) == NONE {
                colour = theirs;
            } else {
                swap_chain(graph, &mut at_sender, &mut at_receiver, &mut steps, receiver, mine, theirs);
            }
        }
        steps[index] = colour as u32;
        at_sender.set(sender, colour, index as u32);
        at_receiver.set(receiver, colour, index as u32);
    }
    memory::listed(steps.into_iter().map(u64::from), STEPS)
}

/// Swaps the colours `taken` and `free` along the chain that begins at `receiver` with `taken`.
fn swap_chain(
    graph: &Graph,
    at_sender: &mut VertexColours,
    at_receiver: &mut VertexColours,
    steps: &mut [u32],
    receiver: usize,
    taken: usize,
    free: usize,
) {
    let mut chain = Vec::new();
    let mut edge = at_receiver.edge(receiver, taken);
    let (mut colour, mut from_receiver) = (taken, true);
    while edge != NONE {
        chain.push((edge, colour));
        let next = &graph.edges[edge as usize];
        colour = if colour == taken { free } else { taken };
        edge = if from_receiver {
            at_sender.edge(next.sender, colour)
        } else {
            at_receiver.edge(next.receiver, colour)
        };
        from_receiver = !from_receiver;
    }
    for &(edge, colour) in &chain {
        let ends = &graph.edges[edge as usize];
        at_sender.clear(ends.sender, colour);
        at_receiver.clear(ends.receiver, colour);
    }
    for &(edge, colour) in &chain {
        let ends = &graph.edges[edge as usize];
        let swapped = if colour == taken { free } else { taken };
        at_sender.set(ends.sender, swapped, edge);
        at_receiver.set(ends.receiver, swapped, edge);
        steps[edge as usize] = swapped as u32;
    }
}

/// The edge of each colour at each vertex of one side, and the colours that are free.
struct VertexColours {
    colours: usize,
    edges: Edges,
    /// A bit for each colour in use, for vertices with many edges; bits past the last colour are set.
    used: Vec<Vec<u64>>,
}

/// A table where that fits in memory, or a map for each vertex: one vertex with many edges must not make the rows of all long.
enum Edges {
    Table(Vec<u32>),
    Maps(Vec<HashMap<u32, u32>>),
}

impl VertexColours {
    fn new(degrees: &[usize], colours: usize) -> Result<Self> {
        const WHAT: &str = "the steps each rank has taken";
        let edges = if degrees.len().saturating_mul(colours) <= MAX_TABLE_CELLS {
            Edges::Table(memory::filled(NONE, degrees.len() * colours, WHAT)?)
        } else {
            // A map grows when it is seven eighths full, and has a byte more for each entry.
            let entries = degrees.iter().map(|&degree| 4 * degree as u128 + 4).sum::<u128>();
            memory::check(entries * 9, WHAT)?;
            Edges::Maps(memory::filled(HashMap::new(), degrees.len(), WHAT)?)
        };
        let busy = degrees.iter().filter(|&&degree| degree > MAX_EDGES_WITHOUT_BITMAP).count();
        memory::check(busy as u128 * (colours / 8 + 32) as u128, WHAT)?;
        let words = |degree: &usize| {
            if *degree <= MAX_EDGES_WITHOUT_BITMAP {
                return Vec::new();
            }
            let mut words = vec![0_u64; colours.div_ceil(64)];
            if let Some(last) = words.last_mut().filter(|_| !colours.is_multiple_of(64)) {
                *last = u64::MAX << (colours % 64);
            }
            words
        };
        Ok(Self { colours, edges, used: memory::listed(degrees.iter().map(words), WHAT)? })
    }

    fn edge(&self, vertex: usize, colour: usize) -> u32 {
        match &self.edges {
            Edges::Table(table) => table[vertex * self.colours + colour],
            Edges::Maps(maps) => maps[vertex].get(&(colour as u32)).copied().unwrap_or(NONE),
        }
    }

    fn set(&mut self, vertex: usize, colour: usize, edge: u32) {
        match &mut self.edges {
            Edges::Table(table) => table[vertex * self.colours + colour] = edge,
            Edges::Maps(maps) => drop(maps[vertex].insert(colour as u32, edge)),
        }
        if let Some(word) = self.used[vertex].get_mut(colour / 64) {
            *word |= 1 << (colour % 64);
        }
    }

    fn clear(&mut self, vertex: usize, colour: usize) {
        match &mut self.edges {
            Edges::Table(table) => table[vertex * self.colours + colour] = NONE,
            Edges::Maps(maps) => drop(maps[vertex].remove(&(colour as u32))),
        }
        if let Some(word) = self.used[vertex].get_mut(colour / 64) {
            *word &= !(1 << (colour % 64));
        }
    }

    fn free(&self, vertex: usize) -> usize {
        let words = &self.used[vertex];
        match words.iter().position(|&word| word != u64::MAX) {
            Some(word) => word * 64 + words[word].trailing_ones() as usize,
            // A vertex with few edges: compares its colours one by one.
            None => (0..self.colours)
                .find(|&colour| self.edge(vertex, colour) == NONE)
                .expect("fewer edges than colours"),
        }
    }
}
