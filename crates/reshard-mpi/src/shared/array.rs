//! Arrays that the other ranks of a node can reach.

use super::{HEAD, Neighbours, Pages};
use crate::ffi::comm::Comm;
use crate::mover::readers::Readers;
use bytemuck::Pod;
use reshard_plan::Result;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// So long a rank waits for the others to share.
const LIMIT: Duration = Duration::from_secs(120);

/// This rank's part of an array, in memory that all ranks of the node can reach: moving it takes one copy instead of two, and if
/// the destination is such a part, too, any rank can make that copy.
///
/// A slice otherwise. A run ends when this rank has all it receives; others may still read this part then. Reading it,
/// moving it again and dropping it do not mind. Whoever writes to it waits for them first, by itself: if a reader does not
/// get through within the engine's deadline that panics, and [`Shared::settle`] is an error instead. It panics, too, to look at
/// the destination of a run that failed because a rank ended, or got stuck, in the middle of copying to it.
pub struct Shared<T> {
    neighbours: Neighbours,
    len: usize,
    /// Who may still read it.
    lent: Mutex<Vec<Lent>>,
    /// Another rank may write to it for ever.
    lost: bool,
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
        Ok(Self { neighbours, len, lent, lost: false, elements: PhantomData })
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

    /// The parts of all ranks.
    pub(crate) fn parts(&self) -> &Neighbours {
        &self.neighbours
    }

    /// This part, to be written to by all ranks, and those of all. It counts as lost until it is found.
    pub(crate) fn own_and_parts(&mut self) -> Result<(&mut [T], &Neighbours)> {
        self.settle()?;
        let first = self.first();
        self.lost = true;
        // SAFETY: as in `deref_mut`; the other parts are given out as addresses.
        let own = unsafe { std::slice::from_raw_parts_mut(first, self.len) };
        Ok((own, &self.neighbours))
    }

    /// No other rank writes to it any more.
    pub(crate) fn find(&mut self) {
        self.lost = false;
    }

    fn look(&self) {
        assert!(
            !self.lost,
            "a shared part was the destination of a run that failed, and a rank that copied to it did not come back: it may \
             still write to it; make a new one"
        );
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
