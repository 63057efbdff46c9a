//! Something under way: a message, or a collective operation.
//!
//! Dropping a request does nothing. The library may still read or write the memory behind it, so it can neither be freed nor
//! forgotten: a lost request, and with it its memory, is leaked on purpose.

use super::calls::{Status, call};
use super::library::Mpi;
use crate::abi::Raw;
use reshard_plan::Result;
use std::ffi::c_int;

/// Something under way. [`crate::wait`] waits for many.
#[derive(Debug)]
#[must_use = "what is under way must be waited for"]
pub struct Request {
    mpi: &'static Mpi,
    raw: Raw,
    receives: bool,
    done: Option<usize>,
}

impl Request {
    pub(super) fn new(mpi: &'static Mpi, raw: Raw, receives: bool) -> Self {
        Self { mpi, raw, receives, done: None }
    }

    /// Whether it is done: then the bytes that were received, 0 for anything but a receive. May be asked again.
    ///
    /// An error ends a request, too: its memory is free again, and what it holds is unknown.
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

    /// The bytes that were received; nothing while it is under way.
    pub fn received(&self) -> Option<usize> {
        self.done
    }

    /// Asks MPI to give it up. It must still be tested until it is done: a message that was on its way may yet arrive.
    pub fn cancel(&mut self) -> Result<()> {
        if self.done.is_some() {
            return Ok(());
        }
        // SAFETY: the handle is valid, and under way.
        unsafe { call!(self.mpi, &mut self.raw, cancel()) }
    }
}
