//! MPI messages that own their memory: single ones ([`OwnedMessage`]), and slots that are used again and again ([`Slot`]).
//!
//! MPI may use the memory of a request after a call has returned with an error or a rank has stopped waiting. So memory
//! that is dropped while its request is in flight is leaked, never freed.

use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::mem::take;
use std::ops::Range;
use std::time::{Duration, Instant};

/// One message in flight, to or from another rank.
pub struct OwnedMessage {
    bytes: Vec<u8>,
    request: Request,
}

impl OwnedMessage {
    /// Begins to send `bytes`.
    pub fn send(comm: &Comm, bytes: Vec<u8>, to: usize, tag: u32) -> Result<Self> {
        // SAFETY: the memory is kept until the request is complete, or leaked: see `drop`.
        let request = unsafe { comm.isend(bytes.as_ptr(), bytes.len(), to, tag)? };
        Ok(Self { bytes, request })
    }

    /// Begins to receive at most `bytes` bytes.
    pub fn receive(comm: &Comm, bytes: usize, from: usize, tag: u32) -> Result<Self> {
        let mut bytes = vec![0; bytes];
        // SAFETY: as in `send`, and nobody reads the memory before the request is complete.
        let request = unsafe { comm.irecv(bytes.as_mut_ptr(), bytes.len(), from, tag)? };
        Ok(Self { bytes, request })
    }

    /// True if the message has been sent, or has arrived.
    pub fn is_done(&mut self) -> Result<bool> {
        Ok(self.request.test()?.is_some())
    }

    /// Takes the bytes that arrived. Empty if they were taken before, or nothing has arrived yet.
    pub fn take(&mut self) -> Vec<u8> {
        if self.request.received().is_some() { take(&mut self.bytes) } else { Vec::new() }
    }

    /// Cancels the receive: a message that comes later is matched by another receive.
    pub fn cancel(&mut self) {
        cancel_all([&mut self.request].into_iter());
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        if self.request.received().is_none() {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}

/// How long a cancelled receive may take to complete.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(100);

/// Cancels receives. False if one is still in flight after the timeout.
fn cancel_all<'r>(requests: impl Iterator<Item = &'r mut Request>) -> bool {
    let mut requests: Vec<&mut Request> = requests.collect();
    requests.retain_mut(|request| {
        let cancelled = request.cancel().is_ok();
        cancelled || request.received().is_none()
    });
    let end = Instant::now() + CANCEL_TIMEOUT;
    loop {
        // A request that failed is complete, too.
        requests.retain_mut(|request| matches!(request.test(), Ok(None)) || request.received().is_none());
        if requests.is_empty() || Instant::now() > end {
            return requests.is_empty();
        }
        std::thread::yield_now();
    }
}

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
    bytes: Vec<u8>,
    in_flight: Option<Request>,
    /// The request in flight, or the last one, is a receive.
    receives: bool,
}

impl Slot {
    /// A slot for fragments of at most `bytes` bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        let bytes = memory::zeroed(bytes.saturating_add(Envelope::BYTES), "a message")?;
        Ok(Self { bytes, in_flight: None, receives: false })
    }

    /// Begins to send a range of the slot's bytes. With `synchronous` (`MPI_Issend`) the send is complete only when the
    /// receiver has begun to receive.
    ///
    /// # Panics
    /// If a fragment is in flight.
    pub fn send(
        &mut self,
        comm: &Comm,
        envelope: Envelope,
        bytes: Range<usize>,
        (to, tag): (usize, u32),
        synchronous: bool,
    ) -> Result<()> {
        assert!(self.is_free(), "a slot holds one fragment at a time");
        // The envelope is written right before the bytes.
        let message = &mut self.bytes[bytes.start..bytes.end + Envelope::BYTES];
        envelope.write(&mut message[..Envelope::BYTES]);
        let send = if synchronous { Comm::issend } else { Comm::isend };
        // SAFETY: until the request is complete nobody can borrow the bytes, and they are not freed: see `bytes` and
        // `drop`. A vector's bytes stay where they are when it is moved.
        self.in_flight = Some(unsafe { send(comm, message.as_ptr(), message.len(), to, tag)? });
        self.receives = false;
        Ok(())
    }

    /// Begins to receive a fragment of at most the slot's length.
    ///
    /// # Panics
    /// If a fragment is in flight.
    pub fn receive(&mut self, comm: &Comm, from: usize, tag: u32) -> Result<()> {
        assert!(self.is_free(), "a slot holds one fragment at a time");
        // SAFETY: as in `send`.
        let request = unsafe { comm.irecv(self.bytes.as_mut_ptr(), self.bytes.len(), from, tag)? };
        self.in_flight = Some(request);
        self.receives = true;
        Ok(())
    }

    /// Tests the request. None while it is in flight. When a receive completes: once the number of bytes received, without
    /// the envelope; 0 after that, and for a send.
    pub fn poll(&mut self) -> Result<Option<usize>> {
        let Some(request) = &mut self.in_flight else { return Ok(Some(0)) };
        let Some(bytes) = request.test()? else { return Ok(None) };
        self.in_flight = None;
        match bytes.checked_sub(Envelope::BYTES) {
            _ if !self.receives => Ok(Some(0)),
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
    pub fn envelope(&self) -> Envelope {
        if self.in_flight.is_none() { Envelope::read(&self.bytes) } else { Envelope::default() }
    }

    /// True if no fragment is in flight.
    pub fn is_free(&self) -> bool {
        self.in_flight.is_none()
    }

    /// The bytes of the slot; none while a fragment is in flight.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.in_flight.is_none() { &mut self.bytes[Envelope::BYTES..] } else { &mut [] }
    }

    /// Cancels the receives of the slots. False if MPI may still write to one. Sends are left alone: what arrives says by
    /// its envelope whose it was.
    pub fn cancel_receives<'s>(slots: impl Iterator<Item = &'s mut Self>) -> bool {
        cancel_all(slots.filter(|slot| slot.receives).filter_map(|slot| slot.in_flight.as_mut()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.in_flight.as_ref().is_some_and(|request| request.received().is_none()) {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}
