//! What carries messages between ranks, behind one small trait: everything above it (agreement, messages, rings) works the
//! same over MPI, between threads of one process, or over sockets.
//!
//! A [`Transport`] is one rank's end of it. It makes [`MessageBuffer`]s, which own their memory: a buffer holds one message
//! at a time, its bytes cannot be touched while that is in flight, and what becomes of memory that is dropped in flight is the
//! transport's own affair. So the trait is safe to use. To implement it is a promise: ranks that share memory agree over it
//! who writes where.
//!
//! | who | where |
//! |---|---|
//! | MPI | `mpi_transport.rs` |
//! | threads of one process | `in_process.rs`, behind [`in_process`](crate::in_process) |
//! | sockets | `tests/tcp.rs`, a sketch |
//!
//! Above it, a [`Communicator`](crate::communicator::Communicator) keeps what engines share: numbers, tags and failures.

mod buffer;
mod in_process;
mod mailbox;
mod slot;

pub use buffer::{Carrier, MailboxBuffer};
pub(crate) use in_process::ThreadTransport;
pub use mailbox::{Mailbox, Ticket};
pub(crate) use slot::{Envelope, Slot};

use reshard_plan::{Error, ErrorKind, Result};
use std::any::Any;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The most bytes of a message, over any transport.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// One rank's end of what carries messages between the ranks of one group, or of two: a producer's and a consumer's.
///
/// Ranks are numbered from 0; those of the second group follow those of the first. Between two ranks, messages with one tag
/// are received in the order they were sent. Messages make progress whenever anything is tested or probed.
///
/// # Safety
/// A message is received at most once, whole and unchanged, by the rank and with the tag it was sent to, and its sender is who
/// the receiver is told. [`number`](Self::number) and [`identity`](Self::identity) give what they promise, and nothing but one
/// [`Communicator`](crate::communicator::Communicator) uses it.
#[allow(unsafe_code)]
pub unsafe trait Transport: Any + Send + Sync {
    /// This rank.
    fn rank(&self) -> usize;

    /// The number of ranks in each group; 0 in the second if there is one group only.
    fn groups(&self) -> [usize; 2];

    /// The number of ranks.
    fn size(&self) -> usize {
        self.groups().iter().sum()
    }

    /// A number that is equal on all ranks, and random: messages of a transport that is gone never carry it. Below 2^63, and a
    /// multiple of 2^32. Collective the first time.
    fn number(&self, limit: Option<Duration>) -> Result<u64>;

    /// A number of this rank's place in the machine: equal on two transports exactly if the rank of the one is the rank of the
    /// other. Memory that was shared over one may be used over the other if that holds for all ranks.
    fn identity(&self) -> u128;

    /// A buffer of this many bytes, at most [`MAX_MESSAGE_BYTES`].
    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>>;

    /// Probes for a message with this tag that no receive has been posted for: returns its sender and its bytes.
    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>>;

    /// Fails if nothing can be sent or received any more, or not from this thread.
    fn check_open(&self) -> Result<()> {
        Ok(())
    }

    /// Fails if this thread may not send or receive, while another one of the process may.
    fn check_thread(&self) -> Result<()> {
        Ok(())
    }

    /// A message may be in flight for ever: nothing that is made later may receive it.
    fn poison(&self) {}

    /// Nothing more is sent by this rank. It has sent `sent` messages with this tag to each other rank and received `received`; those that are
    /// still on their way must not be received by anything that is made later.
    fn retire(&self, tag: u32, sent: u64, received: u64) {
        let _ = (tag, sent, received);
    }
}

/// Memory for one message at a time.
pub trait MessageBuffer: Send {
    /// The bytes; none while a message is in flight.
    fn bytes(&mut self) -> &mut [u8];

    /// Begins to send a range of the bytes. If `synchronous`, the send is complete only when the receiver has begun to
    /// receive; else it may be complete before that. A message whose send is complete arrives without further calls on this
    /// rank.
    ///
    /// # Panics
    /// If a message is in flight.
    fn send(&mut self, bytes: Range<usize>, to: usize, tag: u32, synchronous: bool) -> Result<()>;

    /// Begins to receive. Receives from one rank with one tag get messages in the order they were posted. A message longer than
    /// the buffer is an error of [`test`](Self::test).
    ///
    /// # Panics
    /// If a message is in flight.
    fn receive(&mut self, from: usize, tag: u32) -> Result<()>;

    /// None while a message is in flight; then the bytes received, 0 for a send. May be called again.
    fn test(&mut self) -> Result<Option<usize>>;

    /// True if no message is in flight, as far as the last test showed.
    fn is_free(&self) -> bool;

    /// Begins to cancel a receive in flight: once it is complete, a message that comes later is received by another. A send is
    /// left alone.
    fn cancel(&mut self);
}

/// How long a cancelled receive may take to complete.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(100);

/// Cancels receives. False if one is still in flight after the timeout.
pub(crate) fn cancel_all<'b>(buffers: impl Iterator<Item = &'b mut Box<dyn MessageBuffer>>) -> bool {
    let mut buffers: Vec<&mut Box<dyn MessageBuffer>> = buffers.filter(|buffer| !buffer.is_free()).collect();
    buffers.iter_mut().for_each(|buffer| buffer.cancel());
    let end = Instant::now() + CANCEL_TIMEOUT;
    loop {
        // A receive that failed is complete, too.
        buffers.retain_mut(|buffer| matches!(buffer.test(), Ok(None)) || !buffer.is_free());
        if buffers.is_empty() || Instant::now() > end {
            return buffers.is_empty();
        }
        std::thread::yield_now();
    }
}

/// The error of a message that is longer than the buffer it was received with.
pub(crate) fn too_long(bytes: usize, room: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!("a message of {bytes} bytes came for a buffer of {room}: the ranks do not run the same"),
    )
}
