//! Arrays in memory that all ranks of a node map, so that others can read and write them without an intermediate copy.

use super::readers::Readers;
use crate::agree::agree;
use crate::communicator::{DEADLINE, ToCommunicator};
use crate::fork::is_forked;
use crate::shm::{NodeMemory, PageKind, SEGMENT_HEADER_BYTES, too_large};
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// This rank's part of an array, in memory that all ranks of the node map: moving it takes one copy instead of two, and if
/// the destination is such a part, too, any rank can make that copy.
///
/// Dereferences to a slice. A run ends when this rank has received everything; other ranks may still read this part then.
/// Reading it, moving it again and dropping it are possible all the same. Borrowing it mutably first waits for the readers:
/// if one does not finish within the engine's deadline that panics; call [`Shared::wait_for_readers`] before to get an error
/// instead. Borrowing the destination of a run that failed because a rank exited, or got stuck, while copying to it panics,
/// too: the part is poisoned.
///
/// ```no_run
/// # fn f(engine: &mut reshard_mpi::MpiEngine, world: &reshard_mpi::Comm) -> reshard::Result<()> {
/// use reshard_mpi::{Own, Shared};
/// let mut from: Shared<f64> = Shared::zeroed(world, engine.source_len(0))?;
/// let mut to: Shared<f64> = Shared::zeroed(world, engine.target_len(0))?;
/// from.fill(1.0);
/// engine.run(Own::shared(&from, &mut to))?; // an engine with `Mover::Shared`
/// # Ok(()) }
/// ```
pub struct Shared<T> {
    memory: NodeMemory,
    len: usize,
    /// The runs in which other ranks may still read this part.
    read_by: Mutex<Vec<PartUse>>,
    /// The last run that had this part as its destination. Other ranks may write to it until that run has ended; if it
    /// failed with one of them stuck, it never ends and the part stays poisoned.
    written_by: Option<PartUse>,
    elements: PhantomData<T>,
}

/// A run of an engine in which other ranks read or write a part.
struct PartUse {
    readers: Arc<Readers>,
    run: u64,
}

impl<T: Pod> Shared<T> {
    /// Allocates `len` zeros on this rank; each rank chooses its own `len`. Collective over the communicator, whose ranks
    /// must be on one node. Fails if the other ranks do not come within two minutes: see [`Shared::zeroed_within`].
    pub fn zeroed(comm: &dyn ToCommunicator, len: usize) -> Result<Self> {
        Self::zeroed_within(comm, len, Some(DEADLINE))
    }

    /// As [`Shared::zeroed`], with a timeout of the caller's choice; `None` waits without one.
    pub fn zeroed_within(comm: &dyn ToCommunicator, len: usize, limit: Option<Duration>) -> Result<Self> {
        const { assert!(align_of::<T>() <= SEGMENT_HEADER_BYTES, "elements of ordinary alignment") };
        let comm = comm.to_communicator(limit)?;
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize - SEGMENT_HEADER_BYTES);
        let fits = bytes.map(|_| ()).ok_or_else(|| too_large(len, size_of::<T>()));
        agree(&comm, "a shared array", &[], fits, 0, limit)?;
        if let Some(apart) = comm.node(limit)?.apart() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("an array cannot be shared, because {apart}; use messages"),
            ));
        }
        let memory = NodeMemory::share(&comm, bytes.unwrap_or(0), PageKind::Huge, limit)?;
        // One engine is the usual case: then a run allocates nothing.
        let read_by = Mutex::new(Vec::with_capacity(1));
        Ok(Self { memory, len, read_by, written_by: None, elements: PhantomData })
    }

    /// Waits until no other rank reads this part any more, so that borrowing it mutably does not wait. Fails if a reader
    /// does not finish within the engine's deadline, and names it.
    pub fn wait_for_readers(&mut self) -> Result<()> {
        if is_forked() {
            return Err(Error::new(
                ErrorKind::External,
                "this process was forked off the one that shares the array; write to it in the parent",
            ));
        }
        let uses = self.read_by.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Wait for the readers of every run, even if one wait fails.
        let mut outcome = Ok(());
        for PartUse { readers, run } in uses.drain(..) {
            outcome = outcome.and(readers.wait(run));
        }
        outcome
    }

    /// Records that other ranks read this part in the run that has just begun.
    pub(crate) fn add_readers(&self, readers: &Arc<Readers>) {
        let mut uses = self.read_by.lock().unwrap_or_else(PoisonError::into_inner);
        let run = readers.run();
        uses.retain(|used| !Arc::ptr_eq(&used.readers, readers) && !used.readers.are_done(used.run));
        uses.push(PartUse { readers: Arc::clone(readers), run });
    }

    /// The memory of all ranks' parts.
    pub(crate) fn parts(&self) -> &NodeMemory {
        &self.memory
    }

    /// Own slice and all ranks' segments, for the next run of an engine, in which any rank may write. The part counts as
    /// poisoned until that run has ended.
    pub(crate) fn own_and_parts(&mut self, readers: &Arc<Readers>) -> Result<(&mut [T], &NodeMemory)> {
        self.check_not_poisoned()?;
        self.wait_for_readers()?;
        let first = self.first();
        self.written_by = Some(PartUse { readers: Arc::clone(readers), run: readers.run() + 1 });
        // SAFETY: as in `deref_mut`; the other ranks' parts are given out as addresses only.
        let own = unsafe { std::slice::from_raw_parts_mut(first, self.len) };
        Ok((own, &self.memory))
    }

    /// Fails if another rank may still write to this part.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        let in_use = |used: &PartUse| !used.readers.has_ended(used.run);
        match self.written_by.as_ref().is_some_and(in_use) {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::External,
                "a shared part was the destination of a run that failed or was forgotten, and a rank that copied to it did not \
                 come back: it may still write to it; make a new one",
            )),
        }
    }

    /// The address of the first element. Panics if the part is poisoned.
    fn first(&self) -> *mut T {
        if let Err(error) = self.check_not_poisoned() {
            panic!("{error}");
        }
        self.memory.place(self.memory.rank(), 0, self.len * size_of::<T>()).cast()
    }
}

impl<T: Pod> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: this rank's own part: mapped, zeroed at first, of a type for which all bytes are valid (`Pod`), aligned to
        // `SEGMENT_HEADER_BYTES` as mappings begin at pages. Other ranks only read it, or write to it during a run, which
        // borrows it mutably.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T: Pod> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if let Err(error) = self.wait_for_readers() {
            panic!("a shared part cannot be borrowed mutably: {error}");
        }
        // SAFETY: as in `deref`. Other ranks read it only during a run, which borrows it, and until they have received
        // everything, which was waited for.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}
