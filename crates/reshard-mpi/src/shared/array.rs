//! Arrays that the other ranks of a node can read.

use super::{HEAD, Neighbours, Pages};
use crate::ffi::comm::Comm;
use crate::mover::direct::Readers;
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// So long a rank waits for the others to share.
const LIMIT: Duration = Duration::from_secs(120);

/// This rank's part of an array, in memory that all ranks of the node can read: moving it takes one copy instead of two.
///
/// A slice otherwise. A run ends when this rank has all it receives; others may still read this part then. Reading it,
/// moving it again and dropping it do not mind. Whoever writes to it waits for them first, by itself: if a reader does not
/// get through within the engine's deadline that panics, and [`Shared::settle`] is an error instead.
pub struct Shared<T> {
    neighbours: Neighbours,
    len: usize,
    /// Who may still read it.
    lent: Mutex<Vec<Lent>>,
    elements: PhantomData<T>,
}

/// The last run in which it was lent to the ranks that read it with an engine.
struct Lent {
    readers: Arc<Readers>,
    run: u64,
}

impl<T: Pod> Shared<T> {
    /// Zeros, as many as this rank wants. Collective over the communicator, whose ranks must be on one node.
    pub fn zeroed(comm: &Comm, len: usize) -> Result<Self> {
        assert!(align_of::<T>() <= HEAD, "elements of ordinary alignment");
        let bytes = len.saturating_mul(size_of::<T>());
        let neighbours = Neighbours::share(&*comm.private()?, bytes, Pages::Huge, Some(LIMIT))?;
        // Mostly it is lent to the readers of one engine, and that takes no memory then.
        let lent = Mutex::new(Vec::with_capacity(1));
        Ok(Self { neighbours, len, lent, elements: PhantomData })
    }

    /// Waits until no other rank reads this part any more, so that it may be written to without waiting. Fails if one does not
    /// get through within the engine's deadline, and names it.
    pub fn settle(&mut self) -> Result<()> {
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Each is waited for, whatever became of the others.
        let mut settled = Ok(());
        for Lent { readers, run } in lent.drain(..) {
            settled = settled.and(readers.wait(run));
        }
        settled
    }

    /// Others read it, in the run that has just begun.
    pub(crate) fn lend(&self, readers: &Arc<Readers>) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let run = readers.run();
        lent.retain(|lent| !Arc::ptr_eq(&lent.readers, readers) && !lent.readers.are_through(lent.run));
        lent.push(Lent { readers: Arc::clone(readers), run });
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
        if let Err(error) = self.settle() {
            panic!("a shared part is to be written to: {error}");
        }
        let first = self.neighbours.place(self.neighbours.rank(), 0, self.len * size_of::<T>());
        // SAFETY: as above. Other ranks read it only during a run, which borrows it, and until they are through: that was
        // waited for.
        unsafe { std::slice::from_raw_parts_mut(first.cast(), self.len) }
    }
}
