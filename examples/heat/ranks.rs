//! The ranks of one job: threads of this process or, under a launcher of MPI, processes. What runs on a rank cannot tell the difference.

use reshard::{Error, ErrorKind, Result};
use reshard_mpi::communicator::{Communicator, ToCommunicator};
use reshard_mpi::mpi::launched;
use reshard_mpi::transport::Transport;
use reshard_mpi::{Mpi, in_process};
use std::sync::Arc;
use std::time::Duration;

/// How long a rank waits for another, and a job for the other job.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// One rank of a job.
pub struct Rank {
    /// What engines and couplings are made on.
    pub comm: Arc<Communicator>,
    /// For messages of our own.
    pub transport: Box<dyn Transport>,
}

/// The two jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

/// Runs a function on each of `ranks` threads, and returns what they return; under MPI on this process's rank only, of as many ranks as
/// were launched for this role.
pub fn on_ranks<T: Send>(ranks: usize, role: Role, run: impl Fn(Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    if launched().is_some() {
        let session = Mpi::load(None)?.init()?;
        // Both jobs may be of one launch: `mpirun -n 4 heat produce : -n 2 heat consume`.
        let own = session.world().split(Some(role as u32), 0)?;
        let own = own.ok_or_else(|| Error::new(ErrorKind::External, "MPI gave this rank no communicator"))?;
        let (comm, transport) = (own.to_communicator(Some(DEADLINE))?, own.transport(Some(DEADLINE))?);
        return Ok(vec![run(Rank { comm, transport })?]);
    }
    let ends = in_process::group(ranks).into_iter().zip(in_process::transports(ranks));
    std::thread::scope(|scope| {
        let run = &run;
        let threads = ends.map(|(comm, transport)| scope.spawn(move || run(Rank { comm, transport })));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}
