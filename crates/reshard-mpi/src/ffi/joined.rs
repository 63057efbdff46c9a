//! Jobs that were launched apart, joined in one communicator: a port of one, and the calls by which both meet there.
//!
//! `MPI_Comm_accept` and `MPI_Comm_connect` have no deadline, and MPI cannot cancel them. So they run on a thread of their own while
//! the caller waits, which MPI allows from `MPI_THREAD_SERIALIZED` on. If the deadline passes the thread stays in its call, and MPI is given up:
//! every later call of this process fails with the reason, and MPI is not ended.

use super::calls::{Calls, Handle, call, each, name};
use super::comm::Comm;
use super::library::Mpi;
use crate::abi::{Handles, PORT_NAME_BYTES, Raw, SUCCESS};
use crate::launch::launched;
use crate::server;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{CString, c_int};
use std::sync::mpsc;
use std::time::Duration;

/// A port of this process, to which another job can connect. It is closed when dropped.
#[derive(Debug)]
pub struct Port {
    mpi: &'static Mpi,
    name: String,
}

impl Port {
    /// What the other job must know.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let close = || -> Result<()> {
            let name = port_name(&self.name)?;
            // SAFETY: the name of an open port, with room for the longest.
            unsafe { call!(self.mpi, close_port(name.as_ptr().cast())) }
        };
        // A port that cannot be closed goes with the process.
        let _ = close();
    }
}

impl Mpi {
    /// The server through which this MPI joins jobs that were launched apart, if it is known to need one: both jobs must have the same. Fails
    /// if it needs one and there is none, or if MPI was begun for one thread only.
    pub fn joining_server(&'static self) -> Result<Option<String>> {
        self.can_join()?;
        server::joining_server(self.version(), launched().map(|launcher| launcher.family))
    }

    /// Fails if MPI was begun for one thread only, which cannot join jobs that were launched apart within a deadline. Asks no server.
    pub fn can_join(&'static self) -> Result<()> {
        self.check_threads("joining jobs that were launched apart")
    }

    /// Opens a port. One process of a job does that, the one whose rank is 0 in the communicator that accepts.
    pub fn open_port(&'static self) -> Result<Port> {
        let mut name = [0_u8; PORT_NAME_BYTES];
        let none = self.abi.handles.info_null;
        // SAFETY: the handle is predefined, and there is room for the longest name.
        unsafe { call!(self, open_port(Handle::of(none), name.as_mut_ptr().cast())) }.map_err(|error| {
            Error::new(
                ErrorKind::External,
                format!(
                    "{} as it is built here cannot join jobs that were launched apart; meet over TCP, or start both in one launch ({error})",
                    self.version()
                ),
            )
        })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Port { mpi: self, name: String::from_utf8_lossy(name).into_owned() })
    }

    /// Fails unless another thread than the one that began MPI may call it.
    fn check_threads(&'static self, what: &str) -> Result<()> {
        let mut level = 0;
        // SAFETY: may be called by any thread once MPI has begun.
        unsafe { call!(self, query_thread(&raw mut level))? };
        match level < self.abi.numbers.thread_serialized {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{what} has no deadline, so it is called by a thread of its own, and MPI was begun for one thread only; begin it with \
                     MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
                ),
            )),
        }
    }

    /// Runs a call that may never return on a thread of its own, at most so long. Other threads are kept out as for any other call.
    fn within<T: Send + 'static>(
        &'static self,
        what: &str,
        time: Duration,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.check_threads(what)?;
        let _guard = self.enter()?;
        let (tell, told) = mpsc::channel();
        let act = move || drop(tell.send(act()));
        std::thread::Builder::new().name("reshard-join".into()).spawn(act).map_err(|error| {
            Error::new(ErrorKind::External, format!("the system gives no thread for {what}: {error}"))
        })?;
        told.recv_timeout(time).map_err(|_| {
            let why = format!(
                "{what} has not returned within {} s, and MPI cannot cancel it: this process must not call MPI any more, and ends without \
                 MPI_Finalize",
                time.as_secs_f64()
            );
            self.give_up(why.clone());
            Error::new(ErrorKind::External, why)
        })
    }
}

impl Comm {
    /// Lets another job connect, and returns the communicator of both: first the ranks of this job, then those of the other. Collective over this
    /// job, while all ranks of the other call [`Comm::connect`].
    ///
    /// `port` is the name of a [`Port`] that rank 0 has opened. After the deadline MPI cannot be called any more in this process, so
    /// call it only when the other job is known to come.
    pub fn accept(&self, port: &str, time: Duration) -> Result<Comm> {
        self.join(port, true, time)
    }

    /// Connects to a job that calls [`Comm::accept`], and returns the communicator of both: first the ranks of the other job, then those of this
    /// one. Collective over this job.
    pub fn connect(&self, port: &str, time: Duration) -> Result<Comm> {
        self.join(port, false, time)
    }

    fn join(&self, port: &str, accepts: bool, time: Duration) -> Result<Comm> {
        let mpi = self.mpi();
        let port = port_name(port)?;
        // Its errors are returned, whatever the host program does with those of its own.
        let own = self.duplicate(Some(time))?;
        let (what, raw) = (if accepts { name::comm_accept } else { name::comm_connect }, own.raw);
        let joined = mpi.within(what, time, move || {
            // SAFETY: the handle is valid: it is freed only after this, or never.
            each!(mpi, calls => unsafe { joined(calls, &mpi.abi.handles, raw, &port, accepts) })
        });
        match joined {
            Ok(Ok(raw)) => Comm::made(mpi, raw),
            Ok(Err((what, code))) => mpi.check(what, code).and_then(|()| Err(not_joined())),
            // The thread still uses it.
            Err(error) => {
                own.leak();
                Err(error)
            }
        }
    }
}

/// Joins both jobs in one communicator, those that accept first. Or the call that failed, and its code.
///
/// # Safety
/// The communicator is valid.
unsafe fn joined<H: Handle>(
    calls: &Calls<H>,
    handles: &Handles,
    comm: Raw,
    port: &[u8; PORT_NAME_BYTES],
    accepts: bool,
) -> std::result::Result<Raw, (&'static str, c_int)> {
    let (mut between, mut merged) = (H::of(handles.comm_null), H::of(handles.comm_null));
    let (port, none, comm) = (port.as_ptr().cast(), H::of(handles.info_null), H::of(comm));
    let check = |name, code| if code == SUCCESS { Ok(()) } else { Err((name, code)) };
    // SAFETY: the handles are valid or predefined, the name ends with a zero, and results have places of their own.
    unsafe {
        match accepts {
            true => check(name::comm_accept, (calls.comm_accept)(port, none, 0, comm, &raw mut between)),
            false => check(name::comm_connect, (calls.comm_connect)(port, none, 0, comm, &raw mut between)),
        }?;
        check(name::comm_set_errhandler, (calls.comm_set_errhandler)(between, H::of(handles.errors_return)))?;
        let second = c_int::from(!accepts);
        check(name::intercomm_merge, (calls.intercomm_merge)(between, second, &raw mut merged))?;
        // Not disconnected: between two launches Open MPI 4 never returns from that.
        check(name::comm_free, (calls.comm_free)(&raw mut between))?;
    }
    Ok(merged.raw())
}

/// A name with room for the longest: libraries may read all of it.
fn port_name(name: &str) -> Result<[u8; PORT_NAME_BYTES]> {
    let mut bytes = [0; PORT_NAME_BYTES];
    match CString::new(name) {
        Ok(text) if text.as_bytes().len() < PORT_NAME_BYTES => {
            bytes[..name.len()].copy_from_slice(text.as_bytes());
            Ok(bytes)
        }
        _ => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the name of a port was given with {} bytes; it has less than {PORT_NAME_BYTES}, and no zero among them",
                name.len()
            ),
        )),
    }
}

fn not_joined() -> Error {
    Error::new(ErrorKind::External, "MPI joined the two jobs and gave no communicator")
}
