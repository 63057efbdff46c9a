//! The memory of messages: number and size of each sender's slots, as large as is useful, within the memory limit.

use crate::program::Program;
use reshard_kernel::exchange::{Message, MessageSet};
use reshard_plan::{Error, ErrorKind, Result};

/// Bytes of a slot at most: longer fragments gain nothing and do not stay in the caches.
const MAX_SLOT_BYTES: u64 = 1 << 17;

/// Bytes of all slots of a sender, roughly: more bytes in flight gain nothing.
const SENDER_BYTES: u64 = 1 << 18;

/// Slots of a sender at most.
const MAX_SLOTS: u64 = 16;

/// What the messages of a plan need.
pub struct Needs {
    senders: u64,
    /// Bytes of scratch of all ranks.
    scratch_bytes: u64,
    /// Bytes of the largest element.
    max_elem_bytes: u64,
    /// Bytes of the largest range that is sent in one step.
    max_range_bytes: u64,
    /// Ranges sent by one rank at most.
    max_ranges: u64,
}

/// The slots of each sender.
#[derive(Debug, PartialEq, Eq)]
pub struct SlotSize {
    pub slots: usize,
    /// Bytes of a slot.
    pub slot_bytes: usize,
}

impl Needs {
    pub fn of(messages: &MessageSet, programs: &[Program]) -> Self {
        let ranges = programs.iter().flat_map(|program| &program.sends);
        let bytes = ranges.map(|range| messages.messages()[range.message].bytes(&range.positions));
        let sends = programs.iter().map(|program| program.sends.len() as u64);
        Self {
            senders: programs.iter().filter(|program| !program.sends.is_empty()).count() as u64,
            scratch_bytes: (0..programs.len()).map(|rank| messages.scratch_bytes(rank)).sum(),
            max_elem_bytes: messages.messages().iter().map(Message::max_elem_bytes).max().unwrap_or(0),
            max_range_bytes: bytes.max().unwrap_or(0),
            max_ranges: sends.max().unwrap_or(0),
        }
    }

    /// Returns the smallest memory in bytes: one slot of one element for each sender, and the scratch of all ranks.
    pub fn min_bytes(&self) -> u64 {
        self.scratch_bytes + self.senders * self.max_elem_bytes
    }

    /// Returns the slots and their size, within a memory limit if one is given.
    pub fn slot_size(&self, memory: Option<u64>) -> Result<SlotSize> {
        let slot_bytes = self.max_range_bytes.min(MAX_SLOT_BYTES).max(self.max_elem_bytes);
        let fragments = self.max_ranges.saturating_mul(self.max_range_bytes.div_ceil(slot_bytes.max(1)));
        let slots = (SENDER_BYTES / slot_bytes.max(1)).clamp(2, MAX_SLOTS).min(fragments).max(1);
        let sized = |slots: u64, slot_bytes: u64| {
            Ok(SlotSize { slots: slots as usize, slot_bytes: slot_bytes as usize })
        };
        let Some(memory) = memory else { return sized(slots, slot_bytes) };
        if memory < self.min_bytes() {
            return Err(Error::new(
                ErrorKind::Memory,
                format!(
                    "{memory} bytes were given for messages; this plan needs at least {} bytes, one element for each of {} \
                     senders and {} for the kernels",
                    self.min_bytes(),
                    self.senders,
                    self.scratch_bytes
                ),
            ));
        }
        let Some(each) = (memory - self.scratch_bytes).checked_div(self.senders) else {
            return sized(slots, slot_bytes);
        };
        // Fewer slots first, down to two; then smaller ones, of whole cache lines if they are long; one if two do not fit.
        let fit = (each / slot_bytes).min(slots);
        let half = each / 2;
        match fit {
            _ if slots == 1 || half < self.max_elem_bytes => sized(1, each.min(slot_bytes)),
            0 | 1 => sized(2, if half > 4096 { half / 64 * 64 } else { half }.max(self.max_elem_bytes)),
            _ => sized(fit, slot_bytes),
        }
    }
}
