//! Ranks that are threads of one process: for tests, and to learn from. Everything between processes works on them, but what is
//! a call of MPI.

use crate::communicator::Communicator;
use crate::transport::{ThreadTransport, Transport};
use std::sync::Arc;

/// The communicators of one group of ranks, one for each; every thread takes its own.
///
/// ```
/// use reshard_mpi::in_process;
/// let ranks = in_process::group(3);
/// let sums: Vec<u64> = std::thread::scope(|scope| {
///     let sum = |rank: std::sync::Arc<reshard_mpi::communicator::Communicator>| {
///         rank.gather_numbers(rank.rank() as u64, None).map(|numbers| numbers.iter().sum())
///     };
///     let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || sum(rank))).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
/// });
/// assert_eq!(sums, [3, 3, 3]);
/// ```
pub fn group(ranks: usize) -> Vec<Arc<Communicator>> {
    two_groups([ranks, 0])
}

/// The communicators of two groups of ranks, a producer's and a consumer's, those of the first group first.
pub fn two_groups(groups: [usize; 2]) -> Vec<Arc<Communicator>> {
    with_handles(groups).into_iter().map(|(rank, _)| rank).collect()
}

/// The transports of one group of ranks, for messages that no engine sends.
pub fn transports(ranks: usize) -> Vec<Box<dyn Transport>> {
    ThreadTransport::groups([ranks, 0]).into_iter().map(|end| Box::new(end) as Box<dyn Transport>).collect()
}

/// As [`two_groups`], each with what a test can do to it.
#[doc(hidden)]
pub fn with_handles(groups: [usize; 2]) -> Vec<(Arc<Communicator>, ThreadRank)> {
    connected(ThreadTransport::groups(groups))
}

fn connected(ends: Vec<ThreadTransport>) -> Vec<(Arc<Communicator>, ThreadRank)> {
    ends.into_iter().map(|end| (Communicator::new(end.clone()), ThreadRank(end))).collect()
}

/// What a test can do to a rank that is a thread.
#[doc(hidden)]
pub struct ThreadRank(ThreadTransport);

impl ThreadRank {
    /// Cuts this rank off: what it sends from now on is lost, and so is what is sent to it.
    pub fn cut_off(&self) {
        self.0.cut_off();
    }

    /// Another group of the same ranks, in the order of a list: as a split communicator is.
    ///
    /// # Safety
    /// Each of the new ends is used by the rank whose it is, and that is named once.
    #[allow(unsafe_code)]
    pub unsafe fn regrouped(&self, order: &[usize]) -> Vec<(Arc<Communicator>, Self)> {
        connected(self.0.regrouped(order))
    }
}
