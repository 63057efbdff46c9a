//! Requests: operations in flight, a message or a collective.
//!
//! Dropping a request does nothing. MPI may still read or write its memory, so that must not be freed: a request that is
//! dropped in flight is leaked on purpose, and its memory with it.

use super::calls::{Status, call};
use super::library::Mpi;
use crate::abi::Raw;
use reshard_plan::Result;
use std::ffi::c_int;

/// An operation in flight. [`wait`](crate::mpi::wait) waits for several.
#[derive(Debug)]
#[must_use = "a request in flight must be waited for"]
pub struct Request {
    mpi: &'static Mpi,
    raw: Raw,
    /// The operation is a receive.
    receives: bool,
    /// Once complete: the bytes received, 0 for anything but a receive.
    done: Option<usize>,
}

impl Request {
    pub(super) fn new(mpi: &'static Mpi, raw: Raw, receives: bool) -> Self {
        Self { mpi, raw, receives, done: None }
    }

    /// Tests the request: none while it is in flight, then the bytes received, 0 for anything but a receive. May be called
    /// again.
    ///
    /// A request that fails is complete, too: its memory is free again, with unknown contents.
    pub fn test(&mut self) -> Result<Option<usize>> {
        if self.done.is_some() {
            return Ok(self.done);
        }
        let (mut flag, mut status): (c_int, _) = (0, Status::new());
        // SAFETY: the handle is valid, and the status is long enough for any library.
        let outcome = unsafe { call!(self.mpi, &mut self.raw, test(&raw mut flag, &raw mut status)) };
        if let Err(error) = outcome {
            if self.raw == self.mpi.abi.handles.request_null {
                self.done = Some(0);
            }
            return Err(error);
        }
        if flag != 0 {
            self.done = Some(if self.receives { self.mpi.bytes_of(&status)? } else { 0 });
        }
        Ok(self.done)
    }

    /// True if the operation is a receive.
    pub(crate) fn is_receive(&self) -> bool {
        self.receives
    }

    /// The bytes received; none while the request is in flight.
    pub fn received(&self) -> Option<usize> {
        self.done
    }

    /// Asks MPI to cancel the request. It must still be tested until it is complete: a message in flight may yet arrive.
    pub fn cancel(&mut self) -> Result<()> {
        if self.done.is_some() {
            return Ok(());
        }
        // SAFETY: the handle is valid, and its operation in flight.
        unsafe { call!(self.mpi, &mut self.raw, cancel()) }
    }
}
