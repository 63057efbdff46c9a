//! The fragments that a rank of a ring sends to its two neighbours.
//!
//! Fragments are sent synchronously: a send completes only when the neighbour has begun to receive, so a
//! neighbour that is full makes its sender wait instead of filling up the transport's memory.

use super::{FragmentTag, Neighbours};
use crate::transport::{Envelope, Slot};
use reshard_plan::Result;
use reshard_ring::{RankProgress, Side};

/// The sending side of a rank.
pub struct RingSender {
    slots: Vec<Slot>,
    /// For each slot, the side its last fragment was sent to.
    sent_to: Vec<Side>,
    /// The fragment that is being packed.
    open: Option<OpenFragment>,
    /// Fragments sent to each side in this run: the next sequence numbers.
    sequence: [u64; 2],
    /// Fragments sent in this run.
    pub fragments: u64,
    /// Bytes sent in this run, without envelopes.
    pub bytes: u64,
}

/// A fragment that is being packed.
#[derive(Clone, Copy)]
struct OpenFragment {
    slot: usize,
    side: Side,
    /// Bytes packed so far.
    packed: usize,
}

impl RingSender {
    /// `max_slots`: the slots of a rank that sends anything; `slots` is empty if this one sends nothing.
    pub fn new(slots: Vec<Slot>, max_slots: usize) -> Self {
        Self {
            slots,
            sent_to: vec![Side::Right; max_slots],
            open: None,
            sequence: [0; 2],
            fragments: 0,
            bytes: 0,
        }
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        (self.sequence, self.fragments, self.bytes) = ([0; 2], 0, 0);
    }

    /// True if all sends are complete: the neighbours have begun to receive everything.
    pub fn is_done(&mut self) -> Result<bool> {
        self.slots.iter_mut().try_fold(true, |done, slot| Ok(slot.poll()?.is_some() && done))
    }

    /// Packs items that this rank holds and that go next, and sends fragments that are full or the last of their step.
    /// Returns whether any item was packed.
    pub fn pack(
        &mut self,
        memory: &[u8],
        progress: &mut RankProgress,
        neighbours: Neighbours,
        tag: FragmentTag,
    ) -> Result<bool> {
        let mut moved = false;
        while let Some(side) = progress.sends_to().filter(|_| progress.can_send()) {
            let open = match self.open {
                Some(open) => open,
                None => match self.free_slot()? {
                    Some(slot) => OpenFragment { slot, side, packed: 0 },
                    None => break,
                },
            };
            let buffer = self.slots[open.slot].bytes();
            let packed = progress.pack(memory, buffer, open.packed);
            let (full, open) = (packed == buffer.len(), OpenFragment { packed, ..open });
            moved = true;
            if full || progress.sends_to() != Some(side) {
                self.send(open, neighbours, tag)?;
                self.open = None;
            } else {
                self.open = Some(open);
            }
        }
        Ok(moved)
    }

    /// Sends the fragment that is being packed although it is not full. Returns whether there was one.
    pub fn flush(&mut self, neighbours: Neighbours, tag: FragmentTag) -> Result<bool> {
        let Some(open) = self.open.take() else { return Ok(false) };
        self.send(open, neighbours, tag)?;
        Ok(true)
    }

    /// A slot whose last send is complete, if there is one.
    fn free_slot(&mut self) -> Result<Option<usize>> {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.poll()?.is_some() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn send(&mut self, open: OpenFragment, neighbours: Neighbours, tag: FragmentTag) -> Result<()> {
        let slot = &mut self.slots[open.slot];
        let range = RankProgress::fragment_range(open.side, slot.bytes().len(), open.packed);
        let sequence = &mut self.sequence[open.side.index()];
        let envelope = Envelope { sequence: *sequence, ..tag.envelope };
        *sequence += 1;
        let to = (neighbours[open.side.index()], tag.of_side(open.side));
        slot.send(envelope, range, to, true)?;
        self.sent_to[open.slot] = open.side;
        self.fragments += 1;
        self.bytes += open.packed as u64;
        Ok(())
    }

    /// The sides whose neighbour has not begun to receive a fragment.
    pub fn awaited(&self) -> impl Iterator<Item = Side> {
        let in_flight = self.slots.iter().zip(&self.sent_to).filter(|(slot, _)| !slot.is_free());
        in_flight.map(|(_, &side)| side)
    }
}
