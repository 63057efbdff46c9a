//! Messages that own their memory: single ones, for the few that are not worth a plan, and places for one after the other.
//!
//! What is dropped while it is under way leaves its memory behind, as the library may still use it.

use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard_plan::{Error, ErrorKind, Result};
use std::mem::take;
use std::ops::Range;

/// A message under way, to or from another rank.
pub struct Owned {
    bytes: Vec<u8>,
    request: Request,
}

impl Owned {
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
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.request.received().is_none() {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}

/// A place for messages, one after the other. While one is under way nobody sees its bytes.
pub struct Slot {
    bytes: Vec<u8>,
    under_way: Option<Request>,
}

impl Slot {
    pub fn new(bytes: usize) -> Result<Self> {
        let mut place = Vec::new();
        place.try_reserve_exact(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("{bytes} bytes for a message do not fit in memory"))
        })?;
        place.resize(bytes, 0);
        Ok(Self { bytes: place, under_way: None })
    }

    /// Begins to send some of its bytes; if it is to be acknowledged, that is done only when the receiver has begun to receive
    /// them.
    ///
    /// # Panics
    /// If something is under way.
    pub fn send(
        &mut self,
        comm: &Comm,
        bytes: Range<usize>,
        to: usize,
        tag: u32,
        acknowledged: bool,
    ) -> Result<()> {
        assert!(self.is_free(), "a place holds one message at a time");
        let bytes = &self.bytes[bytes];
        let send = if acknowledged { Comm::issend } else { Comm::isend };
        // SAFETY: until the request is done nobody gets at the bytes, and they are not freed: see `bytes` and `drop`. A
        // vector's bytes stay where they are when it is moved.
        self.under_way = Some(unsafe { send(comm, bytes.as_ptr(), bytes.len(), to, tag)? });
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
        Ok(())
    }

    /// Nothing while something is under way. Then, once, how many bytes were received; after that, and of what was sent, 0.
    pub fn settled(&mut self) -> Result<Option<usize>> {
        let Some(request) = &mut self.under_way else { return Ok(Some(0)) };
        let done = request.test()?;
        if done.is_some() {
            self.under_way = None;
        }
        Ok(done)
    }

    pub fn is_free(&self) -> bool {
        self.under_way.is_none()
    }

    /// Its bytes; none while something is under way.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.under_way.is_none() { &mut self.bytes } else { &mut [] }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.under_way.is_some() {
            std::mem::forget(take(&mut self.bytes));
        }
    }
}
