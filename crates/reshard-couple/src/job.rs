//! A job: the processes that call together, and what they tell each other. One process that hosts all ranks, or one process for
//! each rank.

use reshard::{Error, ErrorKind, Result};
use std::ops::Range;
use std::time::Duration;

/// The processes of one side of a coupling.
///
/// ```
/// use reshard_couple::Job;
/// let job = Job::hosting_all(); // one process, all ranks; under MPI: Job::of(session.world(), deadline)
/// assert_eq!((job.process(), job.processes()), (0, 1));
/// ```
#[derive(Clone)]
pub struct Job(Processes);

#[derive(Clone)]
enum Processes {
    /// This process hosts all ranks.
    One,
    /// Each process is a rank.
    #[cfg(feature = "mpi")]
    Communicator(std::sync::Arc<reshard_mpi::communicator::Communicator>),
}

impl Job {
    /// This process alone: it hosts all ranks of its layouts, and gives the parts of all.
    pub fn hosting_all() -> Self {
        Self(Processes::One)
    }

    /// The processes of a communicator, each of which is one rank. Collective, and so is everything that is done with it.
    #[cfg(feature = "mpi")]
    pub fn of(comm: &impl reshard_mpi::communicator::ToCommunicator, deadline: Duration) -> Result<Self> {
        Ok(Self(Processes::Communicator(comm.to_communicator(Some(deadline))?)))
    }

    /// This process among those of the job.
    pub fn process(&self) -> usize {
        match &self.0 {
            Processes::One => 0,
            #[cfg(feature = "mpi")]
            Processes::Communicator(comm) => comm.rank(),
        }
    }

    /// The number of processes.
    pub fn processes(&self) -> usize {
        match &self.0 {
            Processes::One => 1,
            #[cfg(feature = "mpi")]
            Processes::Communicator(comm) => comm.size(),
        }
    }

    /// True on the process that speaks with the other job.
    pub(crate) fn leads(&self) -> bool {
        self.process() == 0
    }

    /// The ranks that a process hosts, if all layouts together have `ranks`.
    pub(crate) fn hosted(&self, process: usize, ranks: u64) -> Range<u64> {
        let _ = process;
        match &self.0 {
            Processes::One => 0..ranks,
            #[cfg(feature = "mpi")]
            Processes::Communicator(_) => process as u64..process as u64 + 1,
        }
    }

    /// What each process says, on all of them.
    pub(crate) fn gather(&self, mine: &[u8], deadline: Duration) -> Result<Vec<Vec<u8>>> {
        match &self.0 {
            Processes::One => {
                let _ = deadline;
                Ok(vec![mine.to_vec()])
            }
            #[cfg(feature = "mpi")]
            Processes::Communicator(comm) => comm.gather_texts(mine, Some(patience(deadline))),
        }
    }

    /// The result of all processes: that of this one, or, if another failed, an error with its kind and reason, on all of them.
    pub(crate) fn agree<T>(&self, mine: Result<T>, deadline: Duration) -> Result<T> {
        match &self.0 {
            Processes::One => {
                let _ = deadline;
                mine
            }
            #[cfg(feature = "mpi")]
            Processes::Communicator(comm) => {
                let told = |process, kind: ErrorKind, said: &str| error_of(process, kind.code() as u32, said);
                comm.agree_on(mine, Some(patience(deadline)), told)
            }
        }
    }

    /// What the leader says, on all processes.
    pub(crate) fn broadcast(&self, mine: Vec<u8>, deadline: Duration) -> Result<Vec<u8>> {
        if self.processes() == 1 {
            return Ok(mine);
        }
        let text = if self.leads() { mine } else { Vec::new() };
        Ok(self.gather(&text, deadline)?.swap_remove(0))
    }
}

/// How long processes wait for each other: another may wait for the other job as long as the deadline before it comes.
#[cfg(feature = "mpi")]
fn patience(deadline: Duration) -> Duration {
    deadline * 2 + Duration::from_secs(2)
}

/// The error that a process had, as the others tell it.
pub(crate) fn error_of(process: usize, kind: u32, said: &str) -> Error {
    let kind = ErrorKind::from_code(kind as i32);
    // What two processes agreed on is not said by a third once more.
    let who = if said.starts_with("process ") { String::new() } else { format!("process {process}: ") };
    Error::new(kind.unwrap_or(ErrorKind::Failed), format!("{who}{said}"))
}
