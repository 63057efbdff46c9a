//! Messages that own their memory: single ones, for the few that are not worth a plan, and places for one after the other.
//!
//! What is dropped while it is under way leaves its memory behind, as the library may still use it.

use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::mem::take;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A message under way, to or from another rank.
pub struct OwnedMessage {
    bytes: Vec<u8>,
    request: Request,
}

impl OwnedMessage {
    pub fn send(comm: &Comm, bytes: Vec<u8>, to: usize, tag: u32) -> Result<Self> {
        // SAFETY: the memory is kept until the request is done, here or for ever.
        let request = unsafe { comm.isend(bytes.as_ptr(), bytes.len(), to, tag)? };
        Ok(Self { bytes, request })
    }

    pub fn receive(comm: &Comm, bytes: usize, from: usize, tag: u32) -> Result<Self> {
        let mut bytes = vec![0; bytes];
        // SAFETY: as above, and nobody looks at it before.
        let request = unsafe { comm.irecv(bytes.as_mut_ptr(), bytes.len(), from, tag)? };
        Ok(Self { bytes, request })
    }

    /// Whether it has been sent, or has arrived.
    pub fn is_done(&mut self) -> Result<bool> {
        Ok(self.request.test()?.is_some())
    }

    /// What arrived. Empty if it was asked before, or nothing has arrived yet.
    pub fn take(&mut self) -> Vec<u8> {
        if self.request.received().is_some() { take(&mut self.bytes) } else { Vec::new() }
    }

    /// Nobody waits for it any more: what comes later is not for it.
    pub fn cancel(&mut self) {
        given_up([&mut self.request].into_iter());
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        if self.request.received().is_none() {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}

/// So long a receive that is given up may take to end.
const LAST_LOOKS: Duration = Duration::from_millis(100);

/// Gives receives up. False if MPI does not let go of one.
fn given_up<'r>(requests: impl Iterator<Item = &'r mut Request>) -> bool {
    let mut requests: Vec<&mut Request> = requests.collect();
    requests.retain_mut(|request| {
        let cancelled = request.cancel().is_ok();
        cancelled || request.received().is_none()
    });
    let end = Instant::now() + LAST_LOOKS;
    loop {
        // An error ends a request, too.
        requests.retain_mut(|request| matches!(request.test(), Ok(None)) || request.received().is_none());
        if requests.is_empty() || Instant::now() > end {
            return requests.is_empty();
        }
        std::thread::yield_now();
    }
}

/// What stands before the bytes of every message of an engine: whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The number of the engine on its communicator.
    pub engine: u64,
    /// The engine's run.
    pub run: u64,
    /// Stands for what the caller gave.
    pub call: u64,
    /// Which of the messages of this run from one rank to another.
    pub piece: u64,
}

impl Envelope {
    pub const BYTES: usize = 32;

    fn write(self, to: &mut [u8]) {
        let numbers = [self.engine, self.run, self.call, self.piece];
        to.chunks_exact_mut(8)
            .zip(numbers)
            .for_each(|(place, number)| place.copy_from_slice(&number.to_ne_bytes()));
    }

    fn read(from: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(from[at..at + 8].try_into().unwrap_or_default());
        Self { engine: number(0), run: number(8), call: number(16), piece: number(24) }
    }
}

/// A place for messages, one after the other, each with its head. While one is under way nobody sees its bytes.
pub struct Slot {
    /// MessageSizing for a head, then for the bytes of a message.
    bytes: Vec<u8>,
    under_way: Option<Request>,
    receives: bool,
}

impl Slot {
    /// For messages of at most so many bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        let bytes = memory::zeroed(bytes.saturating_add(Envelope::BYTES), "a message")?;
        Ok(Self { bytes, under_way: None, receives: false })
    }

    /// Begins to send some of its bytes; if it is to be acknowledged, that is done only when the receiver has begun to receive
    /// them.
    ///
    /// # Panics
    /// If something is under way.
    pub fn send(
        &mut self,
        comm: &Comm,
        head: Envelope,
        bytes: Range<usize>,
        (to, tag): (usize, u32),
        acknowledged: bool,
    ) -> Result<()> {
        assert!(self.is_free(), "a place holds one message at a time");
        // The head stands right before them.
        let message = &mut self.bytes[bytes.start..bytes.end + Envelope::BYTES];
        head.write(&mut message[..Envelope::BYTES]);
        let send = if acknowledged { Comm::issend } else { Comm::isend };
        // SAFETY: until the request is done nobody gets at the bytes, and they are not freed: see `bytes` and `drop`. A
        // vector's bytes stay where they are when it is moved.
        self.under_way = Some(unsafe { send(comm, message.as_ptr(), message.len(), to, tag)? });
        self.receives = false;
        Ok(())
    }

    /// Begins to receive a message of at most its length.
    ///
    /// # Panics
    /// If something is under way.
    pub fn receive(&mut self, comm: &Comm, from: usize, tag: u32) -> Result<()> {
        assert!(self.is_free(), "a place holds one message at a time");
        // SAFETY: as above.
        let request = unsafe { comm.irecv(self.bytes.as_mut_ptr(), self.bytes.len(), from, tag)? };
        self.under_way = Some(request);
        self.receives = true;
        Ok(())
    }

    /// Nothing while something is under way. Then, once, how many bytes were received without their head; after that, and of
    /// what was sent, 0.
    pub fn settled(&mut self) -> Result<Option<usize>> {
        let Some(request) = &mut self.under_way else { return Ok(Some(0)) };
        let Some(bytes) = request.test()? else { return Ok(None) };
        self.under_way = None;
        match bytes.checked_sub(Envelope::BYTES) {
            _ if !self.receives => Ok(Some(0)),
            Some(bytes) => Ok(Some(bytes)),
            None => Err(Error::new(
                ErrorKind::Mpi,
                format!("a message of {bytes} bytes came, and every one has a head of {}", Envelope::BYTES),
            )),
        }
    }

    /// The head of what was received last.
    pub fn head(&self) -> Envelope {
        if self.under_way.is_none() { Envelope::read(&self.bytes) } else { Envelope::default() }
    }

    pub fn is_free(&self) -> bool {
        self.under_way.is_none()
    }

    /// Its bytes; none while something is under way.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.under_way.is_none() { &mut self.bytes[Envelope::BYTES..] } else { &mut [] }
    }

    /// What is to be received will not be waited for. False if MPI may still put something there; what is sent may arrive, and
    /// says by its head whose it was.
    pub fn abandon<'s>(slots: impl Iterator<Item = &'s mut Self>) -> bool {
        given_up(slots.filter(|slot| slot.receives).filter_map(|slot| slot.under_way.as_mut()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.under_way.as_ref().is_some_and(|request| request.received().is_none()) {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}
