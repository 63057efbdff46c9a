//! The size of fragments and the number of slots for them: decided before anything moves, with the same result on every rank.

use super::plan::RingPlan;
use crate::solve::Side;
use reshard_plan::{Error, ErrorKind, Result};

/// Bytes of a fragment, about: enough that the fixed cost of a message matters little, few enough that the next process soon
/// has something to pass on.
const FRAGMENT_BYTES: usize = 1 << 16;

/// The size of a ring's fragments, and the number of slots that hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentSize {
    /// The most items in a fragment.
    pub max_items: usize,
    /// Slots of each sender, and, if receivers have slots of their own, of each link of a receiver: 1 or 2.
    pub slots: usize,
    /// True if receivers have slots of their own.
    receive_slots: bool,
    /// Bytes of the header in front of each fragment.
    header_bytes: usize,
}

impl FragmentSize {
    /// Chooses fragments as large as is useful whose slots take at most `memory` bytes, for all processes together.
    /// `receive_slots` says that receivers have slots of their own, as between processes; each slot has `header_bytes`
    /// bytes more for a header.
    pub fn within(
        memory: Option<u64>,
        plan: &RingPlan,
        receive_slots: bool,
        header_bytes: usize,
    ) -> Result<Self> {
        let max_items = (FRAGMENT_BYTES / plan.item_bytes()).max(1);
        let largest = Self { max_items, slots: 2, receive_slots, header_bytes };
        let Some(memory) = memory else { return Ok(largest) };
        let fits = |size: &Self| size.bytes(plan) <= memory;
        let smallest = Self { max_items: 1, slots: 1, receive_slots, header_bytes };
        if !fits(&smallest) {
            return Err(Error::new(
                ErrorKind::Memory,
                format!(
                    "{memory} bytes were given for the message buffers of all processes together; this ring needs at least {} \
                     bytes, one item for each buffer; give more",
                    smallest.bytes(plan)
                ),
            ));
        }
        // Halved until it fits, with two slots if that is possible.
        let mut lengths = std::iter::successors(Some(max_items), |&items| (items > 1).then_some(items / 2));
        let found = lengths.find_map(|max_items| {
            let size = Self { max_items, ..largest };
            fits(&size).then_some(size)
        });
        Ok(found.unwrap_or(smallest))
    }

    /// Bytes of a slot in which `rank` packs fragments, without the header; 0 if it sends nothing.
    pub fn sent_bytes(&self, plan: &RingPlan, rank: usize) -> usize {
        let sent = plan.program().sends(rank as u64).iter().map(|transfer| transfer.items);
        let all = sent.fold(0, u64::saturating_add);
        plan.item_bytes() * self.max_items.min(usize::try_from(all).unwrap_or(usize::MAX))
    }

    /// Bytes of a slot for fragments that `rank` receives from `side`, without the header; 0 if it receives none there, or
    /// receivers have no slots.
    pub fn received_bytes(&self, plan: &RingPlan, rank: usize, side: Side) -> usize {
        if self.receive_slots { plan.item_bytes() * self.max_items.min(plan.incoming(rank, side)) } else { 0 }
    }

    /// Bytes of all slots of `rank`, with headers.
    pub fn rank_bytes(&self, plan: &RingPlan, rank: usize) -> u64 {
        let received = [Side::Left, Side::Right].map(|side| self.received_bytes(plan, rank, side));
        let slots = received.into_iter().chain([self.sent_bytes(plan, rank)]).filter(|&bytes| bytes > 0);
        self.slots as u64 * slots.map(|bytes| (bytes + self.header_bytes) as u64).sum::<u64>()
    }

    /// Bytes of all slots of all processes, with headers.
    pub fn bytes(&self, plan: &RingPlan) -> u64 {
        (0..plan.procs()).map(|rank| self.rank_bytes(plan, rank)).fold(0, u64::saturating_add)
    }
}
