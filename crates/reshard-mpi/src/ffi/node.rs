//! The ranks of this rank's node: found out once for each communicator, because asking is collective and slow where ranks
//! outnumber processors.

use super::comm::Comm;
use reshard_plan::Result;
use std::time::Duration;

/// The ranks that share this one's memory.
#[derive(Debug)]
pub struct Node {
    comm: Box<Comm>,
    /// By their rank in the communicator that was asked.
    ranks: Vec<usize>,
    largest: usize,
}

impl Comm {
    /// This rank's node. Collective the first time.
    pub(crate) fn node(&self, limit: Option<Duration>) -> Result<&Node> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let comm = self.split_shared()?;
        let mut cards = vec![0; 16 * self.size()];
        // Each says which of the node's it is, and who is the node's first.
        let mut first = (self.rank() as u64).to_ne_bytes();
        if comm.size() > 1 {
            let mut all = vec![0; 8 * comm.size()];
            comm.all_gather_within(&first, &mut all, limit)?;
            first.copy_from_slice(&all[..8]);
        }
        let card = [first, (comm.size() as u64).to_ne_bytes()].concat();
        self.all_gather_within(&card, &mut cards, limit)?;
        let number = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap_or_default()) as usize;
        let ranks = (0..self.size()).filter(|rank| cards[rank * 16..rank * 16 + 8] == first).collect();
        let largest = cards.chunks_exact(16).map(|card| number(&card[8..])).max().unwrap_or(1);
        Ok(self.node.get_or_init(|| Node { comm: Box::new(comm), ranks, largest }))
    }
}

impl Node {
    /// Its ranks among themselves, in the same order.
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Which of the node's ranks this is, if it is one.
    pub fn find(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }

    /// Whether it has more ranks than processors.
    pub fn is_crowded(&self) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.ranks.len() > processors
    }

    /// Ranks of the node that has most, the same on all ranks.
    pub fn largest(&self) -> usize {
        self.largest
    }
}
