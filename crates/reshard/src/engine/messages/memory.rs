//! How much memory messages travel in: slots for each sender, as large as is useful and as small as is asked for.

use crate::program::Program;
use reshard_kernel::exchange::{Message, MessageSet};
use reshard_plan::{Error, ErrorKind, Result};

/// A slot has at most so many bytes: longer pieces gain nothing and leave the caches.
const CHUNK: u64 = 1 << 17;

/// A sender's slots have together about so many: more letters on their way gain nothing.
const PER_SENDER: u64 = 1 << 18;

/// The most slots of a sender.
const MOST_SLOTS: u64 = 16;

/// What the messages of a plan need.
pub struct Needs {
    senders: u64,
    /// Bytes of all ranks' kernels.
    workers: u64,
    longest_elem: u64,
    /// Bytes of the longest parcel, and parcels of the rank that has most.
    longest: u64,
    most_parcels: u64,
}

/// What each sender gets.
#[derive(Debug, PartialEq, Eq)]
pub struct Room {
    pub slots: usize,
    /// Bytes of a slot.
    pub chunk: usize,
}

impl Needs {
    pub fn of(cargo: &MessageSet, programs: &[Program]) -> Self {
        let parcels = programs.iter().flat_map(|program| &program.sends);
        let bytes = parcels.map(|parcel| cargo.messages()[parcel.message].bytes(&parcel.positions));
        let sends = programs.iter().map(|program| program.sends.len() as u64);
        Self {
            senders: programs.iter().filter(|program| !program.sends.is_empty()).count() as u64,
            workers: (0..programs.len()).map(|rank| cargo.worker_bytes(rank)).sum(),
            longest_elem: cargo.messages().iter().map(Message::longest_elem).max().unwrap_or(0),
            longest: bytes.max().unwrap_or(0),
            most_parcels: sends.max().unwrap_or(0),
        }
    }

    /// Fewer bytes are not enough: one slot of one element for each sender, and the kernels' own.
    pub fn least(&self) -> u64 {
        self.workers + self.senders * self.longest_elem
    }

    /// Slots and their size, within an amount of memory if one is given.
    pub fn room(&self, memory: Option<u64>) -> Result<Room> {
        let chunk = self.longest.min(CHUNK).max(self.longest_elem);
        let letters = self.most_parcels.saturating_mul(self.longest.div_ceil(chunk.max(1)));
        let slots = (PER_SENDER / chunk.max(1)).clamp(2, MOST_SLOTS).min(letters).max(1);
        let ready = |slots: u64, chunk: u64| Ok(Room { slots: slots as usize, chunk: chunk as usize });
        let Some(memory) = memory else { return ready(slots, chunk) };
        if memory < self.least() {
            return Err(Error::new(
                ErrorKind::Memory,
                format!(
                    "{memory} bytes were given for messages; this plan needs at least {} bytes, one element for each of {} \
                     senders and {} for the kernels",
                    self.least(),
                    self.senders,
                    self.workers
                ),
            ));
        }
        let Some(each) = (memory - self.workers).checked_div(self.senders) else {
            return ready(slots, chunk);
        };
        // Fewer slots first, down to two; then smaller ones, on whole lines if they are long; one if two are too many.
        let fit = (each / chunk).min(slots);
        let half = each / 2;
        match fit {
            _ if slots == 1 || half < self.longest_elem => ready(1, each.min(chunk)),
            0 | 1 => ready(2, if half > 4096 { half / 64 * 64 } else { half }.max(self.longest_elem)),
            _ => ready(fit, chunk),
        }
    }
}
