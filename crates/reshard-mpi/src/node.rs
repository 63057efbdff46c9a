//! The ranks of this rank's node: those whose memory it can map, and that can map its own. How that is found out is in
//! [`crate::shm`].

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The ranks that share this one's memory.
pub struct Node {
    /// By their rank in the communicator, ascending.
    ranks: Vec<usize>,
    largest: usize,
    /// A number for each rank's process that no other has, by rank.
    processes: Vec<u128>,
    /// Why not all ranks are on one node; nothing if they are.
    apart: Option<String>,
}

/// What tells a rank's process and its place from those of others.
#[derive(Clone, Copy)]
pub struct Identity {
    /// A number that no other process has.
    pub process: u128,
    pub machine: u64,
    /// The namespaces in which processes, and in which addresses, have their meaning.
    pub space: u64,
}

impl Identity {
    /// Two ranks may be able to see each other's files.
    pub fn is_near(&self, other: &Self) -> bool {
        (self.machine, self.space) == (other.machine, other.space)
    }
}

impl Node {
    /// Ranks with the same machine and namespaces are a node, if all of them could map each other's memory; else each is alone.
    pub fn new(me: usize, cards: &[Identity], failed: &[Option<String>]) -> Self {
        let mut nodes: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        for (rank, card) in cards.iter().enumerate() {
            nodes.entry((card.machine, card.space)).or_default().push(rank);
        }
        let is_whole = |ranks: &&Vec<usize>| ranks.iter().all(|&rank| failed[rank].is_none());
        let largest = nodes.values().filter(is_whole).map(Vec::len).max().unwrap_or(1);
        let mine = nodes.get(&(cards[me].machine, cards[me].space)).filter(is_whole);
        let ranks = mine.cloned().unwrap_or_else(|| vec![me]);
        let apart = failed.iter().flatten().next().cloned().or_else(|| {
            let other = cards.iter().position(|card| !card.is_near(&cards[0]))?;
            Some(match cards[other].machine == cards[0].machine {
                true => format!("ranks 0 and {other} are in different namespaces of one machine"),
                false => format!("ranks 0 and {other} are on different machines"),
            })
        });
        Self { ranks, largest, processes: cards.iter().map(|card| card.process).collect(), apart }
    }

    /// Its ranks, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Whether it has a rank.
    pub fn has(&self, rank: usize) -> bool {
        self.place(rank).is_some()
    }

    /// Which of its ranks a rank is.
    pub fn place(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }

    /// Whether it has more ranks than processors.
    pub fn is_oversubscribed(&self) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.ranks.len() > processors
    }

    /// Ranks of the node that has most, the same on all ranks.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Why not all ranks are on one node; nothing if they are.
    pub fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// The processes of all ranks.
    pub fn processes(&self) -> &[u128] {
        &self.processes
    }
}

/// A number that nobody else draws: the standard library's hashers are seeded by the system.
pub fn random() -> u128 {
    let seeded = RandomState::new();
    u128::from(seeded.hash_one(0)) << 64 | u128::from(seeded.hash_one(1))
}

/// This process's number.
pub fn process() -> u128 {
    static PROCESS: OnceLock<u128> = OnceLock::new();
    *PROCESS.get_or_init(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(machine: u64, space: u64) -> Identity {
        Identity { process: 0, machine, space }
    }

    #[test]
    fn ranks_are_on_a_node_if_they_say_so_and_can_map_each_other() {
        let cards = [card(1, 1), card(2, 1), card(1, 1), card(1, 2)];
        let well = vec![None; 4];
        let node = Node::new(0, &cards, &well);
        assert_eq!((node.ranks(), node.largest()), (&[0, 2][..], 2));
        assert!(node.apart().unwrap().contains("ranks 0 and 1 are on different machines"));
        assert!(Node::new(0, &[cards[0], cards[2]], &well).apart().is_none());
        assert!(Node::new(1, &[cards[0], cards[3]], &well).apart().unwrap().contains("namespaces"));
        let failed = [None, None, Some("rank 2 cannot".into()), None];
        let node = Node::new(0, &cards, &failed);
        assert_eq!((node.ranks(), node.largest(), node.apart()), (&[0][..], 1, Some("rank 2 cannot")));
    }
}
