//! Arrays that the other ranks of a node can reach.

use super::readers::Readers;
use crate::agree::agree;
use crate::ffi::comm::Comm;
use crate::ffi::library::is_forked;
use crate::ffi::wait::DEADLINE;
use crate::shm::{HEAD, NodeMemory, PageKind, too_large};
use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// This rank's part of an array, in memory that all ranks of the node can reach: moving it takes one copy instead of two, and if
/// the destination is such a part, too, any rank can make that copy.
///
/// A slice otherwise. A run ends when this rank has all it receives; others may still read this part then. Reading it,
/// moving it again and dropping it do not mind. Whoever writes to it waits for them first, by itself: if a reader does not
/// get through within the engine's deadline that panics, and [`Shared::settle`] is an error instead. It panics, too, to look at
/// the destination of a run that failed because a rank ended, or got stuck, in the middle of copying to it.
pub struct Shared<T> {
    neighbours: NodeMemory,
    len: usize,
    /// Who may still read it.
    lent: Mutex<Vec<Lent>>,
    /// The last run that had it as its destination: until that has ended, other ranks may write to it, and if it ended with one
    /// of them stuck, for ever.
    written: Option<Lent>,
    elements: PhantomData<T>,
}

/// A run of an engine in which other ranks have to do with it.
struct Lent {
    readers: Arc<Readers>,
    run: u64,
}

impl<T: Pod> Shared<T> {
    /// Zeros, as many as this rank wants. Collective over the communicator, whose ranks must be on one node. A rank waits for
    /// the others, but no longer than two minutes: see [`Shared::zeroed_within`].
    pub fn zeroed(comm: &Comm, len: usize) -> Result<Self> {
        Self::zeroed_within(comm, len, Some(DEADLINE))
    }

    /// As [`Shared::zeroed`], but fails if the other ranks do not come in time.
    pub fn zeroed_within(comm: &Comm, len: usize, limit: Option<Duration>) -> Result<Self> {
        const { assert!(align_of::<T>() <= HEAD, "elements of ordinary alignment") };
        let comm = comm.private_within(limit)?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize - HEAD);
        let fits = bytes.map(|_| ()).ok_or_else(|| too_large(len, size_of::<T>()));
        agree(&comm, "a shared array", &[], fits, 0, limit)?;
        if let Some(apart) = comm.node(limit)?.apart() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("an array cannot be shared, because {apart}; use messages"),
            ));
        }
        let neighbours = NodeMemory::share(&comm, bytes.unwrap_or(0), PageKind::Huge, limit)?;
        // Mostly it is lent to the readers of one engine, and that takes no memory then.
        let lent = Mutex::new(Vec::with_capacity(1));
        Ok(Self { neighbours, len, lent, written: None, elements: PhantomData })
    }

    /// Waits until no other rank reads this part any more, so that it may be written to without waiting. Fails if one does not
    /// get through within the engine's deadline, and names it.
    pub fn settle(&mut self) -> Result<()> {
        if is_forked() {
            return Err(Error::new(
                ErrorKind::Mpi,
                "this process was forked off the one that shares the array; write to it in the parent",
            ));
        }
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

    /// The parts of all ranks.
    pub(crate) fn parts(&self) -> &NodeMemory {
        &self.neighbours
    }

    /// This part, to be written to by all ranks in the next run of an engine, and those of all. Nobody looks at it until that
    /// run has ended.
    pub(crate) fn own_and_parts(&mut self, readers: &Arc<Readers>) -> Result<(&mut [T], &NodeMemory)> {
        self.check()?;
        self.settle()?;
        let first = self.first();
        self.written = Some(Lent { readers: Arc::clone(readers), run: readers.run() + 1 });
        // SAFETY: as in `deref_mut`; the other parts are given out as addresses.
        let own = unsafe { std::slice::from_raw_parts_mut(first, self.len) };
        Ok((own, &self.neighbours))
    }

    /// Fails if another rank may write to it.
    pub(crate) fn check(&self) -> Result<()> {
        let writes = |written: &Lent| !written.readers.has_ended(written.run);
        match self.written.as_ref().is_some_and(writes) {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Mpi,
                "a shared part was the destination of a run that failed or was forgotten, and a rank that copied to it did not \
                 come back: it may still write to it; make a new one",
            )),
        }
    }

    fn look(&self) {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
    }

    fn first(&self) -> *mut T {
        self.look();
        self.neighbours.place(self.neighbours.rank(), 0, self.len * size_of::<T>()).cast()
    }
}

impl<T: Pod> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: this rank's own part: mapped, zeroed at first, of a type that any bytes are a value of, aligned to `HEAD` as
        // mappings begin at pages. Other ranks only read it, or write to it during a run, which borrows it.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T: Pod> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if let Err(error) = self.settle() {
            panic!("a shared part is to be written to: {error}");
        }
        // SAFETY: as above. Other ranks read it only during a run, which borrows it, and until they are through: that was
        // waited for.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}
