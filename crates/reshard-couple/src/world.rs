//! Jobs that one launch began: several programs in one world of MPI, which is split among them. MPI carries the frames.

use crate::job::Job;
use crate::watch::{Carrier, Watch};
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::Comm;
use reshard_mpi::communicator::{Communicator, ToCommunicator};
use reshard_mpi::transport::Transport;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most bytes of a program's name.
const NAME_BYTES: usize = 64;

/// A world of MPI in which several programs run, as `mpirun -n 4 simulation : -n 3 viewer` begins them: each is a job. A program can be a
/// producer once, and a consumer of each other program once.
///
/// ```no_run
/// use reshard_couple::{Meeting, Options, Publisher, World};
/// # let deadline = std::time::Duration::from_secs(10);
/// let session = reshard_mpi::Mpi::load(None)?.init()?;
/// let world = World::split(session.world(), "simulation", deadline)?;
/// let mut simulation = Publisher::new(world.job(), Options::default());
/// // publish arrays, then
/// simulation.open(&Meeting::in_world(&world, "viewer"))?;
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone)]
pub struct World(Arc<Programs>);

struct Programs {
    transport: Arc<dyn Transport>,
    /// The program of each rank.
    programs: Vec<String>,
    job: Job,
    /// Leaders of producers that this program is, or gets something from.
    used: Mutex<Vec<usize>>,
    /// What the job's communicator was made of.
    _comm: Option<Comm>,
    /// What notices the end of a job that was launched apart, or what tells that job of ours.
    watch: Option<Watch>,
    lock: Option<Arc<File>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("programs", &self.0.programs).finish()
    }
}

impl World {
    /// Splits a communicator among the programs whose ranks call this, each with its name. Collective over all of them.
    pub fn split(comm: &Comm, program: &str, deadline: Duration) -> Result<Self> {
        let all = comm.to_communicator(Some(deadline))?;
        let programs = programs(&all, program, deadline)?;
        let transport = comm.transport(Some(deadline))?;
        let colour = programs.iter().position(|other| other == program).unwrap_or(0);
        let own = comm.split(Some(colour as u32), all.rank() as u32)?;
        let own =
            own.ok_or_else(|| Error::new(ErrorKind::External, "MPI gave this rank no part of the world"))?;
        let job = Job::of(&own, deadline)?;
        Ok(Self::new(transport, programs, job, Some(own)))
    }

    /// As [`split`](Self::split), for ranks that something else than MPI connects: `all` connects those of all programs, `own` those of this one, and the
    /// transport carries frames.
    #[doc(hidden)]
    pub fn over(
        all: &Arc<Communicator>,
        own: &Arc<Communicator>,
        transport: Box<dyn Transport>,
        program: &str,
        deadline: Duration,
    ) -> Result<Self> {
        let programs = programs(all, program, deadline)?;
        Ok(Self::new(transport, programs, Job::of(own, deadline)?, None))
    }

    fn new(transport: Box<dyn Transport>, programs: Vec<String>, job: Job, comm: Option<Comm>) -> Self {
        let (transport, used) = (transport.into(), Mutex::new(Vec::new()));
        Self(Arc::new(Programs { transport, programs, job, used, _comm: comm, watch: None, lock: None }))
    }

    /// The world of this job and one that was launched apart.
    pub(crate) fn of_launches(
        both: Comm,
        programs: Vec<String>,
        job: Job,
        watch: Option<Watch>,
        lock: Option<File>,
    ) -> Self {
        let (transport, used) = (both.into_transport().into(), Mutex::new(Vec::new()));
        Self(Arc::new(Programs {
            transport,
            programs,
            job,
            used,
            _comm: None,
            watch,
            lock: lock.map(Arc::new),
        }))
    }

    /// The job of this program.
    pub fn job(&self) -> Job {
        self.0.job.clone()
    }

    /// True if a program of this name is in the world.
    pub fn has(&self, program: &str) -> bool {
        self.0.programs.iter().any(|other| other == program)
    }

    /// What carries frames, with the producer whose leader is this rank.
    pub(crate) fn transport(&self, leader: usize) -> Result<Carrier> {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains(&leader) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "two couplings with one producer were to be made in one world; split the world once for each",
            ));
        }
        used.push(leader);
        Ok(Carrier {
            transport: Arc::clone(&self.0.transport),
            watch: self.0.watch.clone(),
            lock: self.0.lock.clone(),
        })
    }

    /// This rank.
    pub(crate) fn rank(&self) -> usize {
        self.0.transport.rank()
    }

    /// The first rank of this program.
    pub(crate) fn own_leader(&self) -> usize {
        let own = &self.0.programs[self.rank()];
        self.0.programs.iter().position(|program| program == own).unwrap_or(0)
    }

    /// The first rank of another program.
    pub(crate) fn leader(&self, program: &str) -> Result<usize> {
        self.0.programs.iter().position(|other| other == program).ok_or_else(|| {
            let mut names: Vec<String> = self.0.programs.iter().map(|name| format!("'{name}'")).collect();
            names.dedup();
            Error::new(
                ErrorKind::Partner,
                format!("the program '{program}' is not in this world; there are {}", names.join(", ")),
            )
        })
    }
}

/// The name of each rank's program. Collective.
fn programs(all: &Arc<Communicator>, program: &str, deadline: Duration) -> Result<Vec<String>> {
    let wrong = program.is_empty() || program.len() > NAME_BYTES || program.contains('\0');
    let fits = match wrong {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Mismatch,
            format!("the name of a program was given with {} bytes; it has 1 to {NAME_BYTES}", program.len()),
        )),
    };
    // Whoever was called wrongly must not leave the others alone.
    let told = |rank, kind, said: &str| Error::new(kind, format!("rank {rank}: {said}"));
    all.agree_on(fits, Some(deadline), told)?;
    let mut name = [0; NAME_BYTES];
    name[..program.len()].copy_from_slice(program.as_bytes());
    let names = all.gather(&name, Some(deadline))?;
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
    Ok(names.chunks_exact(NAME_BYTES).map(name).collect())
}
