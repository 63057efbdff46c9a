//! The fragments that a rank of a ring receives over one link.
//!
//! A receiver knows how many items come over a link, not in how many fragments. It never posts a second receive before it
//! knows how many items the fragment of the first has brought, so no receive is left over when all have come. A receive is
//! posted only with a slot whose fragment is unpacked.

use super::FragmentTag;
use crate::transport::{Envelope, Slot};
use reshard_plan::{Error, ErrorKind, Result};
use reshard_ring::{RankProgress, Side};

/// The receiving side of one link.
pub struct LinkReceiver {
    pub slots: Vec<Slot>,
    /// Items that come over the link in a run.
    items: usize,
    /// Items of this run that are in no fragment which has arrived.
    awaited: usize,
    /// The slot of the posted receive.
    posted: Option<usize>,
    /// The fragment that is being unpacked.
    arrived: Option<ArrivedFragment>,
    /// Fragments that have arrived in this run: the sequence number of the next.
    sequence: u64,
}

/// A fragment that is being unpacked.
#[derive(Clone, Copy)]
struct ArrivedFragment {
    slot: usize,
    bytes: usize,
    /// Bytes unpacked so far.
    unpacked: usize,
}

impl LinkReceiver {
    /// A link over which `items` items come in a run.
    pub fn new(slots: Vec<Slot>, items: usize) -> Self {
        Self { slots, items, awaited: items, posted: None, arrived: None, sequence: 0 }
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        (self.awaited, self.sequence) = (self.items, 0);
    }

    /// True if items are in no fragment that has arrived.
    pub fn is_waiting(&self) -> bool {
        self.awaited > 0
    }

    /// Unpacks what has arrived from `from`, the neighbour on `side`, as far as there is room, and posts a receive for more.
    /// Returns whether any item was unpacked.
    pub fn unpack(
        &mut self,
        memory: &mut [u8],
        progress: &mut RankProgress,
        (side, from): (Side, usize),
        (tag, item_bytes): (FragmentTag, usize),
    ) -> Result<bool> {
        let link_tag = tag.of_side(side.opposite());
        let mut moved = false;
        loop {
            if self.arrived.is_none()
                && let Some(slot) = self.posted
                && let Some(bytes) = self.slots[slot].poll()?
            {
                let envelope = self.slots[slot].envelope();
                if envelope.engine != tag.envelope.engine || envelope.run < tag.envelope.run {
                    // A stray fragment of a ring, or a run, that is over.
                    self.slots[slot].receive(from, link_tag)?;
                    continue;
                }
                if envelope != (Envelope { sequence: self.sequence, ..tag.envelope }) {
                    return Err(out_of_step(from));
                }
                self.sequence += 1;
                let items = bytes / item_bytes;
                if bytes == 0 || !bytes.is_multiple_of(item_bytes) || items > self.awaited {
                    return Err(unexpected(from, bytes, item_bytes, self.awaited));
                }
                self.awaited -= items;
                self.posted = None;
                self.arrived = Some(ArrivedFragment { slot, bytes, unpacked: 0 });
            }
            if self.posted.is_none() && self.awaited > 0 {
                let taken = self.arrived.map(|fragment| fragment.slot);
                if let Some(slot) = (0..self.slots.len()).find(|&slot| Some(slot) != taken) {
                    self.slots[slot].receive(from, link_tag)?;
                    self.posted = Some(slot);
                }
            }
            let Some(ArrivedFragment { slot, bytes, unpacked }) = &mut self.arrived else { return Ok(moved) };
            let now = progress.unpack(memory, side, &self.slots[*slot].bytes()[..*bytes], *unpacked);
            moved |= now > *unpacked;
            *unpacked = now;
            if now < *bytes {
                return Ok(moved);
            }
            self.arrived = None;
        }
    }
}

fn out_of_step(from: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {from} is in another run than this rank: all ranks must run a ring equally often; what was moved in place is \
             only partly written"
        ),
    )
}

fn unexpected(from: usize, bytes: usize, item_bytes: usize, awaited: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {from} sent {bytes} bytes where at most {awaited} items of {item_bytes} bytes were expected: it runs another \
             plan or another version; give all ranks the same"
        ),
    )
}
