//! How long letters are, and how many each process has: decided before anything moves, alike wherever it is asked.

use super::plan::RingPlan;
use crate::solve::Side;
use reshard_plan::{Error, ErrorKind, Result};

/// About so many bytes to a letter: enough to make little of what a letter costs, few enough that the next process soon has
/// something to pass on.
const BYTES: usize = 1 << 16;

/// The letters of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letters {
    /// A letter holds at most so many items.
    pub items: usize,
    /// For each sender so many, and where letters are copied on arrival as many for each link of a receiver: 1 or 2.
    pub slots: usize,
    /// Whether letters are copied on arrival.
    arrive: bool,
    /// Bytes in front of each letter that say whose it is.
    head: usize,
}

impl Letters {
    /// As long as is useful, in at most so much memory for all processes together. `arrive` says that a receiver has places
    /// of its own, as between processes; each place has so many bytes more for a head.
    pub fn within(memory: Option<u64>, plan: &RingPlan, arrive: bool, head: usize) -> Result<Self> {
        let most = (BYTES / plan.item_bytes()).max(1);
        let letters = Self { items: most, slots: 2, arrive, head };
        let Some(memory) = memory else { return Ok(letters) };
        let fits = |letters: &Self| letters.bytes(plan) <= memory;
        let least = Self { items: 1, slots: 1, arrive, head };
        if !fits(&least) {
            return Err(Error::new(
                ErrorKind::Memory,
                format!(
                    "{memory} bytes were given for the letters of all processes together; this ring needs at least {} bytes, \
                     one item for each letter; give more",
                    least.bytes(plan)
                ),
            ));
        }
        // Halved until it fits, with two letters if that is possible.
        let mut lengths = std::iter::successors(Some(most), |&items| (items > 1).then_some(items / 2));
        let found = lengths.find_map(|items| {
            let two = Self { items, ..letters };
            fits(&two).then_some(two)
        });
        Ok(found.unwrap_or(least))
    }

    /// Bytes of a letter that a process writes; 0 if it sends nothing.
    pub fn sent_bytes(&self, plan: &RingPlan, rank: usize) -> usize {
        let sent = plan.program().sends(rank as u64).iter().map(|transfer| transfer.items);
        let all = sent.fold(0, u64::saturating_add);
        plan.item_bytes() * self.items.min(usize::try_from(all).unwrap_or(usize::MAX))
    }

    /// Bytes of the place for a letter that comes to a process from a side; 0 if nothing does.
    pub fn received_bytes(&self, plan: &RingPlan, rank: usize, side: Side) -> usize {
        if self.arrive { plan.item_bytes() * self.items.min(plan.coming(rank, side)) } else { 0 }
    }

    /// Bytes of all letters of a process.
    pub fn rank_bytes(&self, plan: &RingPlan, rank: usize) -> u64 {
        let received = [Side::Left, Side::Right].map(|side| self.received_bytes(plan, rank, side));
        let places = received.into_iter().chain([self.sent_bytes(plan, rank)]).filter(|&bytes| bytes > 0);
        self.slots as u64 * places.map(|bytes| (bytes + self.head) as u64).sum::<u64>()
    }

    /// Bytes of all letters of all processes.
    pub fn bytes(&self, plan: &RingPlan) -> u64 {
        (0..plan.procs()).map(|rank| self.rank_bytes(plan, rank)).fold(0, u64::saturating_add)
    }
}
