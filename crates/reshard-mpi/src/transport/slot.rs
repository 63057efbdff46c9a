//! Slots: buffers that are used again and again for the fragments of an engine, each with an envelope that says whose it is.

use super::{MessageBuffer, Transport, cancel_all};
use reshard_plan::{Error, ErrorKind, Result};
use std::ops::Range;

/// The header in front of the bytes of every fragment of an engine: to which engine, run and call it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The number of the engine on its communicator.
    pub engine: u64,
    /// The engine's run.
    pub run: u64,
    /// Fingerprint of the arguments of the call.
    pub call: u64,
    /// Sequence number of the fragment among those of this run from one rank to another.
    pub sequence: u64,
}

impl Envelope {
    /// Bytes of an envelope.
    pub const BYTES: usize = 32;

    fn write(self, to: &mut [u8]) {
        let numbers = [self.engine, self.run, self.call, self.sequence];
        to.chunks_exact_mut(8)
            .zip(numbers)
            .for_each(|(place, number)| place.copy_from_slice(&number.to_ne_bytes()));
    }

    fn read(from: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(from[at..at + 8].try_into().unwrap_or_default());
        Self { engine: number(0), run: number(8), call: number(16), sequence: number(24) }
    }
}

/// A buffer for one fragment at a time, with its envelope. While a fragment is in flight its bytes cannot be borrowed.
pub struct Slot {
    /// Room for an envelope, then for the bytes of a fragment.
    buffer: Box<dyn MessageBuffer>,
    state: SlotState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    Sending,
    Receiving,
}

impl Slot {
    /// A slot for fragments of at most `bytes` bytes.
    pub fn new(transport: &dyn Transport, bytes: usize) -> Result<Self> {
        let buffer = transport.buffer(bytes.saturating_add(Envelope::BYTES))?;
        Ok(Self { buffer, state: SlotState::Free })
    }

    /// Begins to send a range of the slot's bytes: see [`MessageBuffer::send`].
    pub fn send(
        &mut self,
        envelope: Envelope,
        bytes: Range<usize>,
        (to, tag): (usize, u32),
        synchronous: bool,
    ) -> Result<()> {
        // The envelope is written right before the bytes.
        let message = bytes.start..bytes.end + Envelope::BYTES;
        envelope.write(&mut self.buffer.bytes()[message.clone()][..Envelope::BYTES]);
        self.buffer.send(message, to, tag, synchronous)?;
        self.state = SlotState::Sending;
        Ok(())
    }

    /// Begins to receive a fragment of at most the slot's length: see [`MessageBuffer::receive`].
    pub fn receive(&mut self, from: usize, tag: u32) -> Result<()> {
        self.buffer.receive(from, tag)?;
        self.state = SlotState::Receiving;
        Ok(())
    }

    /// Tests the slot. None while a fragment is in flight. When a receive completes: once the number of bytes received, without
    /// the envelope; 0 after that, and for a send.
    pub fn poll(&mut self) -> Result<Option<usize>> {
        if self.state == SlotState::Free {
            return Ok(Some(0));
        }
        let Some(bytes) = self.buffer.test()? else { return Ok(None) };
        let received = self.state == SlotState::Receiving;
        self.state = SlotState::Free;
        match bytes.checked_sub(Envelope::BYTES) {
            _ if !received => Ok(Some(0)),
            Some(bytes) => Ok(Some(bytes)),
            None => Err(Error::new(
                ErrorKind::External,
                format!(
                    "a message of {bytes} bytes came, and every one has an envelope of {}",
                    Envelope::BYTES
                ),
            )),
        }
    }

    /// The envelope of the fragment received last.
    pub fn envelope(&mut self) -> Envelope {
        if self.is_free() { Envelope::read(self.buffer.bytes()) } else { Envelope::default() }
    }

    /// True if no fragment is in flight.
    pub fn is_free(&self) -> bool {
        self.state == SlotState::Free && self.buffer.is_free()
    }

    /// The bytes of the slot; none while a fragment is in flight.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.is_free() { &mut self.buffer.bytes()[Envelope::BYTES..] } else { &mut [] }
    }

    /// Cancels the receives of the slots. False if the transport may still write to one. Sends are left alone: what arrives
    /// says by its envelope whose it was.
    pub fn cancel_receives<'s>(slots: impl Iterator<Item = &'s mut Self>) -> bool {
        let receiving = slots.filter(|slot| slot.state == SlotState::Receiving);
        cancel_all(receiving.map(|slot| &mut slot.buffer))
    }
}
