//! Buffers of transports that match messages with receives by a [`Mailbox`]: all that is theirs is a [`Carrier`].

use super::mailbox::{Mailbox, Ticket};
use super::{MessageBuffer, too_long};
use crate::fork::is_forked;
use reshard_plan::{Result, memory};
use std::ops::Range;

/// What brings messages from one rank's end to another's mailbox.
pub trait Carrier: Send {
    /// What tells a sender that its message is being received.
    type Receipt;

    /// Makes progress, then acts on this rank's mailbox.
    fn with_mailbox<T>(&self, act: impl FnOnce(&mut Mailbox<Self::Receipt>) -> T) -> Result<T>;

    /// Brings a message to the mailbox of a rank. With a number, the receiver acknowledges it.
    fn carry(&self, bytes: &[u8], to: usize, tag: u32, number: Option<u64>) -> Result<()>;

    /// A message with this receipt has been matched with a receive: its sender's mailbox must be told so.
    fn acknowledge(&self, receipt: Self::Receipt) -> Result<()>;

    /// How much was carried to a rank and acknowledged to it so far, in a measure of the carrier's own.
    fn carried(&self, peer: usize) -> Result<u64> {
        let _ = peer;
        Ok(0)
    }

    /// True if so much of it arrives without further calls, or the rank is gone and it never will.
    fn has_left(&self, peer: usize, carried: u64) -> Result<bool> {
        let _ = (peer, carried);
        Ok(true)
    }
}

/// A buffer of a transport that has mailboxes.
pub struct MailboxBuffer<C: Carrier> {
    carrier: C,
    bytes: Vec<u8>,
    state: BufferState,
}

enum BufferState {
    /// No message is in flight; the last one brought so many bytes.
    Free(usize),
    /// The message, or the acknowledgement of one, is on its way to a peer; free once the carrier has sent this much to that
    /// peer.
    Leaving {
        bytes: usize,
        peer: usize,
        carried: u64,
    },
    /// Until the message of this number is acknowledged.
    Sending(u64),
    Receiving(Ticket),
    /// Cancelled, unless it had its message before.
    Cancelled(Ticket),
}

impl<C: Carrier> MailboxBuffer<C> {
    /// A buffer of this many bytes.
    pub fn new(carrier: C, bytes: usize) -> Result<Self> {
        Ok(Self { carrier, bytes: memory::zeroed(bytes, "a message")?, state: BufferState::Free(0) })
    }

    fn leaving(&self, bytes: usize, peer: usize) -> Result<BufferState> {
        Ok(BufferState::Leaving { bytes, peer, carried: self.carrier.carried(peer)? })
    }

    fn forget(&self, number: Option<u64>) -> Result<()> {
        number.map_or(Ok(()), |number| self.carrier.with_mailbox(|mailbox| mailbox.forget(number)))
    }
}

impl<C: Carrier> MessageBuffer for MailboxBuffer<C> {
    fn bytes(&mut self) -> &mut [u8] {
        if self.is_free() { &mut self.bytes } else { &mut [] }
    }

    fn send(&mut self, bytes: Range<usize>, to: usize, tag: u32, synchronous: bool) -> Result<()> {
        assert!(self.is_free(), "a buffer holds one message at a time");
        let number = match synchronous {
            true => Some(self.carrier.with_mailbox(Mailbox::next_number)?),
            false => None,
        };
        if let Err(error) = self.carrier.carry(&self.bytes[bytes], to, tag, number) {
            self.forget(number)?;
            return Err(error);
        }
        self.state = match number {
            Some(number) => BufferState::Sending(number),
            None => self.leaving(0, to)?,
        };
        self.test().map(drop)
    }

    fn receive(&mut self, from: usize, tag: u32) -> Result<()> {
        assert!(self.is_free(), "a buffer holds one message at a time");
        let (ticket, matched) = self.carrier.with_mailbox(|mailbox| mailbox.post(from, tag))?;
        self.state = BufferState::Receiving(ticket);
        matched.map_or(Ok(()), |receipt| self.carrier.acknowledge(receipt))
    }

    fn test(&mut self) -> Result<Option<usize>> {
        let from = match &self.state {
            BufferState::Receiving(ticket) => Some(ticket.from()),
            _ => None,
        };
        let done = match self.state {
            BufferState::Free(bytes) => return Ok(Some(bytes)),
            BufferState::Leaving { .. } => None,
            BufferState::Sending(number) => self.carrier.with_mailbox(|mailbox| {
                let received = mailbox.is_acknowledged(number);
                received.then(|| mailbox.forget(number)).map(|()| Vec::new())
            })?,
            BufferState::Receiving(ticket) => self.carrier.with_mailbox(|mailbox| mailbox.take(ticket))?,
            BufferState::Cancelled(ticket) => {
                Some(self.carrier.with_mailbox(|mailbox| mailbox.take(ticket))?.unwrap_or_default())
            }
        };
        if let Some(message) = done {
            // A receive that fails is complete, with nothing in it.
            self.state = BufferState::Free(0);
            let room = self.bytes.len();
            let place = self.bytes.get_mut(..message.len()).ok_or_else(|| too_long(message.len(), room))?;
            place.copy_from_slice(&message);
            self.state = match from {
                Some(from) => self.leaving(message.len(), from)?,
                None => BufferState::Free(message.len()),
            };
        }
        if let BufferState::Leaving { bytes, peer, carried } = self.state
            && self.carrier.has_left(peer, carried)?
        {
            self.state = BufferState::Free(bytes);
        }
        match self.state {
            BufferState::Free(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    fn is_free(&self) -> bool {
        matches!(self.state, BufferState::Free(_))
    }

    fn cancel(&mut self) {
        if let BufferState::Receiving(ticket) = self.state
            && self.carrier.with_mailbox(|mailbox| mailbox.cancel(ticket)).is_ok()
        {
            self.state = BufferState::Cancelled(ticket);
        }
    }
}

impl<C: Carrier> Drop for MailboxBuffer<C> {
    fn drop(&mut self) {
        // In a fork, the mailbox is the parent's.
        if is_forked() {
            return;
        }
        if let BufferState::Sending(number) = self.state {
            let _ = self.forget(Some(number));
        }
        self.cancel();
        // Takes the message that it may have got.
        let _ = self.test();
    }
}
