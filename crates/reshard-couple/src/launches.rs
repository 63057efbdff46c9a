//! Jobs that were launched apart, joined by MPI: the producer opens a port and writes its name into the meeting file.
//!
//! MPI joins jobs by two calls that block without a deadline, so neither job calls them before both are known to be there. The
//! consumer's leader *knocks*: it puts a file beside the meeting file. The producer's leader takes the knock by renaming it, which is the answer.
//! A rename and a removal cannot both succeed: at its deadline the consumer removes its knock, or finds that it was taken.

use crate::job::Job;
use crate::meeting::{FILE_VERSION, check_version, hex};
use crate::options::LONGEST;
use crate::private_file::{WrittenFile, read_private, wrong};
use crate::secret::random;
use crate::watch::Watch;
use crate::world::World;
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::mpi::Port;
use reshard_mpi::{Comm, Mpi};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The names of the two programs of such a world.
const PRODUCER: &str = "producer";
const CONSUMER: &str = "consumer";

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(20);

/// The meeting file of a producer that meets over MPI.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFile {
    reshard: u32,
    /// None in the file of a producer that meets over TCP.
    port: Option<String>,
    session: String,
    #[serde(default)]
    mpi: String,
    server: Option<String>,
}

/// What a consumer says when it is ready to connect.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    reshard: u32,
    session: String,
    /// A random number of this consumer.
    from: String,
}

impl World {
    /// Joins the calling job, a producer's, with a consumer's that was launched apart and calls [`connect`](Self::connect) with the same path: writes a
    /// meeting file there, and removes it when the consumer has come. In the world of both the programs are named `producer` and
    /// `consumer`. Collective over the job.
    ///
    /// MPI must have been begun with at least `MPI_THREAD_SERIALIZED`, as [`Mpi::init`] does. The deadline is for the consumer to come, and once
    /// more for MPI to join the jobs. If MPI does not, it cannot be called any more in this process.
    ///
    /// ```no_run
    /// use reshard_couple::{Meeting, Options, Publisher, World};
    /// # let deadline = std::time::Duration::from_secs(10);
    /// let session = reshard_mpi::Mpi::load(None)?.init()?;
    /// let world = World::accept(session.world(), "run.meet", deadline)?;
    /// let mut simulation = Publisher::new(world.job(), Options::default());
    /// // publish arrays, then
    /// simulation.open(&Meeting::in_world(&world, "consumer"))?;
    /// # Ok::<(), reshard::Error>(())
    /// ```
    pub fn accept(comm: &Comm, path: impl AsRef<Path>, deadline: Duration) -> Result<Self> {
        let deadline = deadline.min(LONGEST);
        let job = Job::of(comm, deadline)?;
        let server = job.agree(server(comm, &job), deadline)?;
        let port = match job.leads() {
            true => invite(comm.mpi(), server, path.as_ref(), deadline).map(Some),
            false => Ok(None),
        };
        let port = job.agree(port, deadline)?;
        let name = port.as_ref().map_or("", Port::name).as_bytes().to_vec();
        let name = job.broadcast(name, deadline)?;
        let (_, answer) = beside(path.as_ref());
        let watch = Watch::new(&answer);
        // All have opened it before the leader removes it.
        job.gather(b"", deadline)?;
        let both = comm.accept(&String::from_utf8_lossy(&name), deadline);
        if job.leads() {
            let _ = fs::remove_file(&answer);
        }
        joined(both, job, PRODUCER, watch, None)
    }

    /// Joins the calling job, a consumer's, with a producer's that calls [`accept`](Self::accept) with the same path. Waits for its meeting file.
    /// Collective over the job.
    pub fn connect(comm: &Comm, path: impl AsRef<Path>, deadline: Duration) -> Result<Self> {
        let deadline = deadline.min(LONGEST);
        let job = Job::of(comm, deadline)?;
        // What MPI cannot do here is said before the other job is told to come.
        let server = job.agree(server(comm, &job), deadline)?;
        let found = match job.leads() {
            true => knock(comm.mpi(), server.as_deref(), path.as_ref(), deadline),
            false => Ok((String::new(), None)),
        };
        let (name, lock) = job.agree(found, deadline)?;
        let name = job.broadcast(name.into_bytes(), deadline)?;
        let both = comm.connect(&String::from_utf8_lossy(&name), deadline);
        joined(both, job, CONSUMER, None, lock)
    }
}

/// The server that MPI joins launches with. The leader alone asks it; all find out whether their MPI can join.
fn server(comm: &Comm, job: &Job) -> Result<Option<String>> {
    match job.leads() {
        true => comm.mpi().joining_server(),
        false => comm.mpi().can_join().map(|()| None),
    }
}

/// The world of both jobs.
fn joined(
    both: Result<Comm>,
    job: Job,
    program: &str,
    watch: Option<Watch>,
    lock: Option<File>,
) -> Result<World> {
    let other = if program == PRODUCER { CONSUMER } else { PRODUCER };
    let both =
        both.map_err(|error| partner(format!("the {other} came, and MPI did not join it: {error}")))?;
    let own = job.processes();
    let (size, rank) = (both.size(), both.rank());
    let producers = if program == PRODUCER { own } else { size.saturating_sub(own) };
    let expected = if program == PRODUCER { job.process() } else { producers + job.process() };
    if rank != expected || size <= own {
        return Err(Error::new(
            ErrorKind::External,
            format!(
                "MPI made process {} of the {program} rank {rank} of {size}; {expected} was expected",
                job.process()
            ),
        ));
    }
    let name = |rank| if rank < producers { PRODUCER } else { CONSUMER };
    let programs = (0..size).map(|rank| name(rank).to_string()).collect();
    Ok(World::of_launches(both, programs, job, watch, lock))
}

/// Waits for a consumer, and lets it connect.
fn invite(mpi: &'static Mpi, server: Option<String>, path: &Path, deadline: Duration) -> Result<Port> {
    let end = Instant::now() + deadline;
    let port = mpi.open_port()?;
    let (knock, answer) = beside(path);
    // Of jobs that were here before.
    for old in [&knock, &answer] {
        let _ = fs::remove_file(old);
    }
    let session = hex(&random()?);
    let written = PortFile {
        reshard: FILE_VERSION,
        port: Some(port.name().into()),
        session: session.clone(),
        mpi: mpi.version().into(),
        server,
    };
    let _file = WrittenFile::write(path, text(&written))?;
    loop {
        // What others put there is none.
        let came = read_private(&knock).ok().flatten().and_then(|text| Knock::parse(&text));
        let ours = came.is_some_and(|came| came.reshard == FILE_VERSION && came.session == session);
        if ours && fs::rename(&knock, &answer).is_ok() {
            return Ok(port);
        }
        if Instant::now() >= end {
            return Err(partner(format!("no consumer came within {} s", deadline.as_secs_f64())));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the producer, and until it is ready. Returns the name of its port, and a lock that this job holds until it ends.
fn knock(
    mpi: &'static Mpi,
    server: Option<&str>,
    path: &Path,
    deadline: Duration,
) -> Result<(String, Option<File>)> {
    let end = Instant::now() + deadline;
    let (knock, answer) = beside(path);
    let from = hex(&random()?);
    // Of the last producer that was found: its session and port, and the knock.
    let mut knocked: Option<(String, String, WrittenFile)> = None;
    let taken = || {
        let said = read_private(&answer).ok().flatten().and_then(|text| Knock::parse(&text));
        said.is_some_and(|said| said.from == from)
    };
    loop {
        if knocked.is_some()
            && taken()
            && let Some((_, port, mut written)) = knocked.take()
        {
            return Ok((port, written.take_lock()));
        }
        if let Some(found) = read_port_file(path)?
            && knocked.as_ref().is_none_or(|(session, ..)| *session != found.session)
        {
            check_same(&found, mpi.version(), server)?;
            let said = Knock { reshard: FILE_VERSION, session: found.session.clone(), from: from.clone() };
            // A producer that is gone has not taken the last one.
            drop(knocked.take());
            let written = WrittenFile::write(&knock, text(&said))?;
            knocked = Some((found.session, found.port.unwrap_or_default(), written));
        }
        if Instant::now() >= end {
            return match knocked {
                None => Err(partner(format!(
                    "no producer wrote the meeting file {}; start the producer, or give a longer deadline",
                    path.display()
                ))),
                // It was taken at the last moment.
                Some((_, port, mut written)) if !written.remove() && taken() => {
                    Ok((port, written.take_lock()))
                }
                Some(_) => Err(partner(format!(
                    "the producer that wrote the meeting file {} did not answer within {} s; it is gone, or another consumer came first",
                    path.display(),
                    deadline.as_secs_f64()
                ))),
            };
        }
        std::thread::sleep(PAUSE);
    }
}

/// Fails if MPI cannot join this job with the producer's.
pub fn check_same(found: &PortFile, version: &str, server: Option<&str>) -> Result<()> {
    if found.mpi != version {
        return Err(partner(format!(
            "the producer runs with {}, and this job with {version}; MPI joins jobs of one library only: use the same, or meet over TCP",
            found.mpi.escape_debug()
        )));
    }
    match (&found.server, server) {
        (Some(theirs), Some(ours)) if theirs != ours => Err(partner(format!(
            "the producer was launched with the server {}, and this job with {ours}; give both launches the same --ompi-server",
            theirs.escape_debug()
        ))),
        _ => Ok(()),
    }
}

fn read_port_file(path: &Path) -> Result<Option<PortFile>> {
    let Some(text) = read_private(path)? else { return Ok(None) };
    PortFile::parse(&text).map(Some).map_err(|why| wrong(path, &why))
}

impl PortFile {
    /// Reads the text of a meeting file. The error says what is wrong with it.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let found: Self = serde_json::from_str(text)
            .map_err(|error| format!("is not one that a producer wrote: {error}"))?;
        check_version(found.reshard)?;
        if found.port.is_none() {
            return Err(
                "is of a producer that meets over TCP, and here it is to be MPI; let both meet the same way"
                    .into(),
            );
        }
        Ok(found)
    }
}

impl Knock {
    /// Reads the text of a knock; none if it is another file.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Where a consumer knocks, and where it finds the answer.
fn beside(path: &Path) -> (PathBuf, PathBuf) {
    let with = |end: &str| {
        let mut name = path.as_os_str().to_os_string();
        name.push(end);
        PathBuf::from(name)
    };
    (with(".knock"), with(".answer"))
}

pub fn text(said: &impl Serialize) -> String {
    serde_json::to_string(said).expect("texts and numbers") + "\n"
}

fn partner(message: String) -> Error {
    Error::new(ErrorKind::Partner, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A terminal obeys control characters, and a file may have some.
    #[test]
    fn what_a_file_says_is_repeated_in_one_line() {
        let file = |mpi: &str, server: &str| {
            let text = format!(
                r#"{{"reshard":1,"port":"p","session":"s","mpi":"MPICH 4.2.0{mpi}","server":"a{server}"}}"#
            );
            PortFile::parse(&text).unwrap()
        };
        let check = |mpi, server| check_same(&file(mpi, server), "MPICH 4.2.0", Some("a"));
        check("", "").unwrap();
        for (mpi, server) in [("\\u001b[2J", ""), ("", "\\u001b[2J"), ("\\n", "")] {
            let said = check(mpi, server).unwrap_err().to_string();
            assert!(!said.contains(char::is_control), "{said:?}");
        }
    }
}
