//! MPI as a transport: a private duplicate of the host's communicator, and buffers for its messages.
//!
//! MPI may use the memory of a request after a call has returned with an error or a rank has stopped waiting. So memory
//! that is dropped while its request is in flight is leaked, never freed.

use crate::communicator::{Communicator, DEADLINE, ToCommunicator};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use crate::ffi::retired::retire;
use crate::node::{process_number, random};
use crate::transport::{MessageBuffer, Transport};
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::any::Any;
use std::mem::take;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The private duplicate of a communicator of MPI, and the [`Communicator`] over it.
pub struct PrivateComm {
    comm: Arc<Comm>,
    communicator: Arc<Communicator>,
}

impl Deref for PrivateComm {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

impl PrivateComm {
    fn new(comm: Comm) -> Self {
        let comm = Arc::new(comm);
        let transport = MpiTransport { comm: Arc::clone(&comm), number: OnceLock::new() };
        Self { comm, communicator: Communicator::new(transport) }
    }

    /// What engines are made on.
    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.communicator
    }
}

impl Comm {
    /// The private duplicate of this communicator: made once, then always the same, wherever the handle comes from. Its
    /// errors are returned. Collective the first time, with a timeout of two minutes: see [`Comm::private_within`].
    ///
    /// One limit is MPICH's: an error that shows only when a request is tested, such as a message longer than its buffer,
    /// goes to the error handler of the world, which is the host's where the host began MPI.
    ///
    /// The parent keeps it until the parent is freed or MPI ends. A clone that lives longer keeps it alive, but not beyond
    /// the end of MPI.
    pub fn private(&self) -> Result<Arc<PrivateComm>> {
        self.private_within(Some(DEADLINE))
    }

    /// A duplicate of this communicator for the caller alone: it stays when this one is freed, and goes when it is dropped. Collective.
    pub fn private_duplicate(&self, time: Option<Duration>) -> Result<PrivateComm> {
        self.duplicate(time).map(PrivateComm::new)
    }

    /// A transport over a duplicate of this communicator, for the caller alone: for messages that no engine sends. Collective.
    pub fn transport(&self, time: Option<Duration>) -> Result<Box<dyn Transport>> {
        let comm = Arc::new(self.duplicate(time)?);
        Ok(Box::new(MpiTransport { comm, number: OnceLock::new() }))
    }

    /// A transport over this communicator itself, on which nothing else may be sent.
    pub fn into_transport(self) -> Box<dyn Transport> {
        Box::new(MpiTransport { comm: Arc::new(self), number: OnceLock::new() })
    }

    /// As [`Comm::private`], with a timeout of the caller's choice. A later call goes on waiting for the same duplicate.
    pub fn private_within(&self, time: Option<Duration>) -> Result<Arc<PrivateComm>> {
        let private = self.cached_duplicate(time, PrivateComm::new)?;
        private.communicator.to_communicator(time)?;
        Ok(private)
    }
}

impl ToCommunicator for Comm {
    fn to_communicator(&self, limit: Option<Duration>) -> Result<Arc<Communicator>> {
        Ok(Arc::clone(&self.private_within(limit)?.communicator))
    }
}

/// The communicator of MPI below a communicator of engines; an error if that is over another transport.
pub fn mpi_of(communicator: &Communicator) -> Result<&Comm> {
    let transport: &dyn Any = communicator.transport();
    match transport.downcast_ref::<MpiTransport>() {
        Some(transport) => Ok(&transport.comm),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            "the movers `alltoallv` and `alltoallw` are calls of MPI, and these ranks are connected by something else; use messages",
        )),
    }
}

/// The ranks of a communicator that nothing else is sent on.
struct MpiTransport {
    comm: Arc<Comm>,
    /// MPI may give the context of a freed communicator to a new one, which then finds messages that were left in flight:
    /// they carry another number.
    number: OnceLock<u64>,
}

// SAFETY: MPI promises it of messages on one communicator, and this one is used for nothing else. The number is reduced over all
// ranks; a process is one rank.
unsafe impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn groups(&self) -> [usize; 2] {
        [self.comm.size(), 0]
    }

    fn number(&self, limit: Option<Duration>) -> Result<u64> {
        if let Some(number) = self.number.get() {
            return Ok(*number);
        }
        // By a collective: messages cannot be told from those in flight yet.
        let mut number = [random() as u64 >> 1 & !0xffff_ffff];
        self.comm.all_reduce_within(&mut number, Reduce::Max, limit)?;
        Ok(*self.number.get_or_init(|| number[0]))
    }

    fn identity(&self) -> u128 {
        process_number()
    }

    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        let bytes = memory::zeroed(bytes, "a message")?;
        Ok(Box::new(MpiBuffer { comm: Arc::clone(&self.comm), bytes, request: None, received: 0 }))
    }

    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        self.comm.iprobe(None, tag)
    }

    fn check_open(&self) -> Result<()> {
        self.comm.mpi().check_open()
    }

    fn check_thread(&self) -> Result<()> {
        self.comm.mpi().check_thread()
    }

    fn poison(&self) {
        self.comm.leak();
    }

    fn retire(&self, tag: u32, sent: u64, received: u64) {
        retire(&self.comm, tag, sent, received);
    }
}

/// A buffer, and the request in flight that uses it.
struct MpiBuffer {
    comm: Arc<Comm>,
    bytes: Vec<u8>,
    /// None if no message is in flight.
    request: Option<Request>,
    /// Bytes received by the last request.
    received: usize,
}

impl MessageBuffer for MpiBuffer {
    fn bytes(&mut self) -> &mut [u8] {
        if self.is_free() { &mut self.bytes } else { &mut [] }
    }

    fn send(&mut self, bytes: Range<usize>, to: usize, tag: u32, synchronous: bool) -> Result<()> {
        assert!(self.is_free(), "a buffer holds one message at a time");
        let message = &self.bytes[bytes];
        let send = if synchronous { Comm::issend } else { Comm::isend };
        // SAFETY: until the request is complete nobody can borrow the bytes, and they are not freed: see `bytes` and
        // `drop`. A vector's bytes stay where they are when it is moved.
        self.request = Some(unsafe { send(&self.comm, message.as_ptr(), message.len(), to, tag)? });
        Ok(())
    }

    fn receive(&mut self, from: usize, tag: u32) -> Result<()> {
        assert!(self.is_free(), "a buffer holds one message at a time");
        // SAFETY: as in `send`.
        self.request =
            Some(unsafe { self.comm.irecv(self.bytes.as_mut_ptr(), self.bytes.len(), from, tag)? });
        Ok(())
    }

    fn test(&mut self) -> Result<Option<usize>> {
        if let Some(request) = &mut self.request {
            let Some(received) = request.test()? else { return Ok(None) };
            (self.received, self.request) = (received, None);
        }
        Ok(Some(self.received))
    }

    fn is_free(&self) -> bool {
        self.request.as_ref().is_none_or(|request| request.received().is_some())
    }

    fn cancel(&mut self) {
        if let Some(request) = self.request.as_mut().filter(|request| request.is_receive()) {
            // If MPI refuses, the request stays in flight, which the caller sees.
            let _ = request.cancel();
        }
    }
}

impl Drop for MpiBuffer {
    fn drop(&mut self) {
        if !self.is_free() {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}
