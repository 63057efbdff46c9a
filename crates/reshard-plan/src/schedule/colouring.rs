//! Any traffic in the fewest steps: bipartite edge colouring by Kempe chains.
//!
//! König's theorem says that a bipartite graph needs no more colours than its busiest vertex has edges. The proof is
//! the algorithm: give each edge a colour that is free at its sender; if it is taken at the receiver, walk from there
//! along edges of the two colours in turn and swap them, which frees it. The walk cannot come back to the sender.
//! Chains stay short on redistributions, so this is fast; it is the fallback for whatever has no closed form.

use super::graph::Graph;

const NONE: u32 = u32::MAX;

/// A step for each edge, from 0 to the maximum degree less one.
pub(super) fn colour(graph: &Graph) -> Vec<u64> {
    let colours = graph.max_degree() as usize;
    let mut at_sender = Ports::new(graph.senders.len(), colours);
    let mut at_receiver = Ports::new(graph.receivers.len(), colours);
    let mut steps = vec![0_u32; graph.edges.len()];
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
    steps.into_iter().map(u64::from).collect()
}

/// Swaps the colours `taken` and `free` along the chain that begins at `receiver` with `taken`.
fn swap_chain(
    graph: &Graph,
    at_sender: &mut Ports,
    at_receiver: &mut Ports,
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

/// Which edge has which colour at each vertex of one side, and which colours are free.
struct Ports {
    colours: usize,
    edges: Vec<u32>,
    /// A bit for each colour in use; bits past the last colour are set.
    used: Vec<u64>,
    words: usize,
}

impl Ports {
    fn new(vertices: usize, colours: usize) -> Self {
        let words = colours.div_ceil(64);
        let mut used = vec![0_u64; vertices * words];
        if !colours.is_multiple_of(64) {
            used.iter_mut()
                .skip(words - 1)
                .step_by(words)
                .for_each(|word| *word = u64::MAX << (colours % 64));
        }
        Self { colours, edges: vec![NONE; vertices * colours], used, words }
    }

    fn edge(&self, vertex: usize, colour: usize) -> u32 {
        self.edges[vertex * self.colours + colour]
    }

    fn set(&mut self, vertex: usize, colour: usize, edge: u32) {
        self.edges[vertex * self.colours + colour] = edge;
        self.used[vertex * self.words + colour / 64] |= 1 << (colour % 64);
    }

    fn clear(&mut self, vertex: usize, colour: usize) {
        self.edges[vertex * self.colours + colour] = NONE;
        self.used[vertex * self.words + colour / 64] &= !(1 << (colour % 64));
    }

    fn free(&self, vertex: usize) -> usize {
        let words = &self.used[vertex * self.words..(vertex + 1) * self.words];
        let word = words.iter().position(|&word| word != u64::MAX).expect("fewer edges than colours");
        word * 64 + words[word].trailing_ones() as usize
    }
}
