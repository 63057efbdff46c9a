//! Messages that own their memory, for the few short ones that are not worth a plan.
//!
//! One that is dropped while it is under way leaves its memory behind, as the library may still use it.

use crate::ffi::comm::Comm;
use crate::ffi::request::Request;
use reshard_plan::Result;
use std::mem::take;

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
