//! Arrays that the other ranks of a node can read.

use super::{HEAD, Neighbours, Pages};
use crate::ffi::comm::Comm;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// So long a rank waits for the others to share.
const LIMIT: Duration = Duration::from_secs(120);

/// This rank's part of an array, in memory that all ranks of the node can read: moving it takes one copy instead of two.
///
/// A slice otherwise. While a redistribution runs on it, the engine sees to it that others read only what is not being
/// written: the run borrows it, and ends when nobody reads any more.
pub struct Shared<T> {
    neighbours: Neighbours,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> Shared<T> {
    /// Zeros, as many as this rank wants. Collective over the communicator, whose ranks must be on one node.
    pub fn zeroed(comm: &Comm, len: usize) -> Result<Self> {
        assert!(align_of::<T>() <= HEAD, "elements of ordinary alignment");
        let bytes = len.saturating_mul(size_of::<T>());
        let neighbours = Neighbours::share(&*comm.private()?, bytes, Pages::Huge, Some(LIMIT))?;
        Ok(Self { neighbours, len, elements: PhantomData })
    }

    /// Where the part of a rank begins, if it has at least so many bytes.
    pub(crate) fn part(&self, rank: usize, bytes: usize) -> Result<*const u8> {
        let has = self.neighbours.segments[rank].bytes() - HEAD;
        if has < bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "rank {rank} shares {has} bytes, but its layout reaches over {bytes}; let it make a longer part"
                ),
            ));
        }
        Ok(self.neighbours.place(rank, 0, bytes).cast_const())
    }

    /// How many ranks share it.
    pub(crate) fn ranks(&self) -> usize {
        self.neighbours.segments.len()
    }
}

impl<T: Pod> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let first = self.neighbours.place(self.neighbours.rank(), 0, self.len * size_of::<T>());
        // SAFETY: this rank's own part: mapped, zeroed at first, of a type that any bytes are a value of, aligned to `HEAD` as
        // mappings begin at pages. Other ranks only read it.
        unsafe { std::slice::from_raw_parts(first.cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let first = self.neighbours.place(self.neighbours.rank(), 0, self.len * size_of::<T>());
        // SAFETY: as above. Other ranks read it only during a run, which borrows it.
        unsafe { std::slice::from_raw_parts_mut(first.cast(), self.len) }
    }
}
