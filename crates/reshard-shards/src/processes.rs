//! The processes that work on a set together: one, or the ranks of a communicator.

use crate::checksum::Digest;
use reshard::Result;

/// The processes that work on a set together.
#[derive(Clone)]
pub enum Processes {
    /// This one.
    One,
    /// The ranks of a communicator, and how long they wait for each other.
    #[cfg(feature = "mpi")]
    Ranks(std::sync::Arc<reshard_mpi::communicator::Communicator>, std::time::Duration),
}

impl Processes {
    /// This process among them.
    pub fn mine(&self) -> usize {
        match self {
            Self::One => 0,
            #[cfg(feature = "mpi")]
            Self::Ranks(comm, _) => comm.rank(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::One => 1,
            #[cfg(feature = "mpi")]
            Self::Ranks(comm, _) => comm.size(),
        }
    }

    /// True on the process that makes the staging directory and gives it its name.
    pub fn leads(&self) -> bool {
        self.mine() == 0
    }

    /// What each of them says, on all of them. Collective.
    pub fn gather(&self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::One => Ok(vec![mine]),
            #[cfg(feature = "mpi")]
            Self::Ranks(comm, deadline) => comm.gather_texts(&mine, Some(*deadline)),
        }
    }

    /// What the leader has made, or why it could not, on all of them. Collective.
    pub fn broadcast(&self, made: Result<Vec<u8>>) -> Result<Vec<u8>> {
        let made = self.agree(if self.leads() { made } else { Ok(Vec::new()) })?;
        Ok(self.gather(made)?.swap_remove(0))
    }

    /// The result of this process if all have one, else an error that names the first that has none. Collective.
    pub fn agree<T>(&self, mine: Result<T>) -> Result<T> {
        match self {
            Self::One => mine,
            #[cfg(feature = "mpi")]
            Self::Ranks(comm, deadline) => comm.agree_on(mine, Some(*deadline), |rank, kind, said| {
                let who = if rank == 0 { String::new() } else { format!("rank {rank}: ") };
                reshard::Error::new(kind, format!("{who}{said}"))
            }),
        }
    }

    /// Fails on all of them if they were not given the same. Collective.
    pub fn must_agree(&self, given: &str) -> Result<()> {
        let all = self.gather(Digest::of(given.as_bytes()).as_bytes().to_vec())?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(rank) => Err(reshard::Error::new(
                reshard::ErrorKind::Mismatch,
                format!(
                    "rank {rank} was given another source, destination, layout or options than rank 0, or sees other files under the same name; \
                     give all ranks the same"
                ),
            )),
        }
    }

    /// The items of `0..items` that fall to this process: every process has about as many, and they follow each other.
    pub fn share(&self, items: u64) -> std::ops::Range<u64> {
        let (mine, count) = (self.mine() as u128, self.count() as u128);
        // No more than `items`, which fits.
        let at = |process: u128| (u128::from(items) * process / count) as u64;
        at(mine)..at(mine + 1)
    }
}
