//! Begins and ends MPI.
//!
//! A session that is dropped by a panic aborts the whole job: `MPI_Finalize` would deadlock with the ranks that wait for
//! this one.

use super::calls::{Handle, call, each};
use super::comm::Comm;
use super::library::{Mpi, Threads, this_thread};
use crate::fork::{is_forked, watch_forks};
use crate::launch::launched;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The exit code of a job when one of its ranks panics: that of any Rust program.
const PANIC_EXIT_CODE: c_int = 101;

/// Time for the launcher to forward standard error before a job is aborted.
const FORWARD_TIME: Duration = Duration::from_millis(200);

/// MPI between its beginning and its end. Ends MPI when dropped, if it began it; aborts the job if dropped by a panic.
#[derive(Debug)]
pub struct Session {
    world: Comm,
    began: bool,
}

impl Mpi {
    /// True if somebody has begun MPI.
    pub fn has_begun(&self) -> Result<bool> {
        let mut flag: c_int = 0;
        // SAFETY: may be called at any time.
        unsafe { call!(self, initialized(&raw mut flag)).map(|()| flag != 0) }
    }

    /// Begins MPI if nobody has, for calls by this thread. Fails if launcher and library do not fit: each process would
    /// believe to be the only one.
    pub fn init(&'static self) -> Result<Session> {
        // One thread at a time: two would both find that nobody has begun it.
        static BEGINNING: Mutex<()> = Mutex::new(());
        let _alone = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_ended()? {
            self.note_end();
            self.enter()?;
        }
        let begun = self.has_begun()?;
        let began = !begun || self.sessions.load(Ordering::Relaxed) > 0;
        if !begun {
            // One thread calls it, but for calls that have no deadline: see `joined.rs`. That costs no locks.
            let (mut given, wanted) = (0, self.abi.numbers.thread_serialized);
            let null = std::ptr::null_mut();
            // SAFETY: not begun and not ended; MPI lets a program pass no arguments.
            unsafe { call!(self, init_thread(null, std::ptr::null_mut(), wanted, &raw mut given))? };
        }
        self.init_threads(began)?;
        let handles = &self.abi.handles;
        // SAFETY: the world is there from beginning to end; it is not ours to free.
        let world = unsafe { Comm::borrowed(self, handles.comm_world)? };
        if began {
            self.sessions.fetch_add(1, Ordering::Relaxed);
        }
        let session = Session { world, began };
        if !begun {
            for comm in [handles.comm_world, handles.comm_self] {
                // SAFETY: both are there from beginning to end, and the handler is predefined.
                unsafe {
                    call!(self, comm_set_errhandler(Handle::of(comm), Handle::of(handles.errors_return)))?;
                }
            }
        }
        match launched() {
            Some(launcher) if launcher.size > 1 && session.world.size() == 1 => Err(Error::new(
                ErrorKind::External,
                format!(
                    "{} started {} processes, but with {} each of them is alone (rank {} of the launcher is 0 of 1): launcher and \
                     library do not fit; use the mpirun that belongs to the library, or set RESHARD_MPI to openmpi, mpich, abi or the path of the \
                     library that belongs to the launcher",
                    launcher.family,
                    launcher.size,
                    self.version(),
                    launcher.rank
                ),
            )),
            _ => Ok(session),
        }
    }

    /// True if MPI has ended, by this library or by the host program.
    pub(super) fn has_ended(&self) -> Result<bool> {
        let mut flag: c_int = 0;
        // SAFETY: may be called at any time.
        unsafe { call!(self, finalized(&raw mut flag))? };
        Ok(flag != 0)
    }

    /// Fails if the host program has not begun MPI, or has ended it: hardly a call is allowed then.
    pub(super) fn check_begun(&self) -> Result<()> {
        let mut flag: c_int = 0;
        // SAFETY: may be called at any time.
        unsafe { call!(self, initialized(&raw mut flag))? };
        if flag == 0 {
            return Err(Error::new(
                ErrorKind::External,
                "a communicator was passed, but MPI has not begun in this process; call MPI_Init first",
            ));
        }
        if self.has_ended()? {
            self.note_end();
        }
        self.enter().map(drop)
    }

    /// Determines once which threads may call MPI. MPI must have begun.
    pub(super) fn init_threads(&'static self, began: bool) -> Result<()> {
        if self.threads.get().is_some() {
            return self.enter().map(drop);
        }
        let numbers = &self.abi.numbers;
        let (mut level, mut main) = (0, 0);
        // SAFETY: both may be called by any thread once MPI has begun.
        unsafe {
            call!(self, query_thread(&raw mut level))?;
            call!(self, is_thread_main(&raw mut main))?;
        }
        // Thread levels are ordered in all interfaces. A host that began MPI as `SERIALIZED` serializes its own calls with
        // ours; here our own are serialized.
        let (any, serialized) =
            (level >= numbers.thread_multiple, level >= numbers.thread_serialized && !began);
        if !any && !serialized && main == 0 {
            return Err(Error::new(
                ErrorKind::External,
                "MPI was begun for one thread and is called by another; call it from the thread that began it, or begin it with \
                 MPI_THREAD_MULTIPLE",
            ));
        }
        let threads = match (any, serialized) {
            (true, _) => Threads::Multiple,
            (false, true) => Threads::Serialized,
            (false, false) => Threads::Funneled(this_thread()),
        };
        self.threads.get_or_init(|| threads);
        watch_forks();
        // The attribute notices when the host ends MPI.
        self.keys().map(drop)
    }
}

impl Session {
    /// All processes that were launched together.
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// The library.
    pub fn mpi(&self) -> &'static Mpi {
        self.world.mpi()
    }

    /// Aborts all processes of the job, after the launcher has had time to forward the error message.
    pub fn abort(&self, code: i32) -> ! {
        // Launchers drop output that they have not yet forwarded when a job is aborted.
        std::thread::sleep(FORWARD_TIME);
        let mpi = self.mpi();
        if let Ok(_guard) = mpi.enter() {
            let world = mpi.abi.handles.comm_world;
            // SAFETY: MPI has begun and not ended.
            each!(mpi, calls => unsafe { (calls.abort)(Handle::of(world), code) });
        }
        // MPI has ended, or its abort has returned.
        std::process::exit(if code == 0 { 1 } else { code })
    }

    fn end(&self) -> Result<()> {
        let mpi = self.mpi();
        if !mpi.has_ended()? {
            mpi.is_ending.store(true, Ordering::Relaxed);
            mpi.delete_duplicate(&self.world)?;
            // SAFETY: begun and not ended, by the thread that began it.
            unsafe { call!(mpi, finalize())? };
        }
        mpi.note_end();
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if std::thread::panicking() {
            let (rank, size) = (self.world.rank(), self.world.size());
            // If standard error cannot be written to there is no other way to report.
            let _ = std::io::stderr()
                .write_all(format!("rank {rank} of {size} panicked: the job is aborted\n").as_bytes());
            self.abort(PANIC_EXIT_CODE);
        }
        if self.began && self.mpi().sessions.fetch_sub(1, Ordering::Relaxed) == 1 {
            // MPI reports its own failure to end.
            let _ = self.end();
        }
    }
}
