//! The thread that moves frames: one in each process, whatever the number of connections. It reads and writes while the program
//! computes; what frames mean is the affair of a [`Service`].
//!
//! Strangers cost little: who has not proved the secret has a time limit, there are few of them at a time (the oldest makes room for
//! the next), and nothing is kept for them but a greeting of fixed length.

mod connection;
mod turns;

use crate::greeting::SessionId;
#[cfg(feature = "mpi")]
use crate::messages::MessageIo;
use crate::secret::Secret;
use crate::service::Service;
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Poll, Token, Waker};
use reshard::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use turns::{Listening, Turns};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const LOCAL_LISTENER: Token = Token(2);

/// What the thread and the program share.
pub struct Shared<S> {
    service: Mutex<S>,
    changed: Condvar,
    driver: Driver,
}

/// What moves frames between a service and its connections: a thread, or the program itself.
enum Driver {
    /// A thread, which is woken.
    Thread(Waker),
    /// Whoever waits: messages of MPI make progress only in calls of the program.
    #[cfg(feature = "mpi")]
    Caller(Mutex<MessageIo>),
}

impl<S: Service> Shared<S> {
    pub fn lock(&self) -> MutexGuard<'_, S> {
        // What a panic left is a state like any other: connections are closed one by one.
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the service, and tells those who wait that something may have changed.
    fn tell<T>(&self, call: impl FnOnce(&mut S) -> T) -> T {
        let value = call(&mut self.lock());
        self.changed.notify_all();
        value
    }

    /// Lets the thread see its orders; where there is none, does what can be done at once.
    pub fn wake(&self) {
        match &self.driver {
            // A pipe that is full wakes it as well.
            Driver::Thread(waker) => drop(waker.wake()),
            #[cfg(feature = "mpi")]
            Driver::Caller(io) => {
                let mut service = self.lock();
                io.lock().unwrap_or_else(PoisonError::into_inner).progress(&mut *service);
            }
        }
    }

    /// Waits until something is there, or the deadline is over.
    pub fn wait<T>(&self, deadline: Instant, mut found: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        #[cfg(feature = "mpi")]
        if let Driver::Caller(io) = &self.driver {
            let mut idle = 0;
            loop {
                let mut service = self.lock();
                let moved = io.lock().unwrap_or_else(PoisonError::into_inner).progress(&mut *service);
                if let Some(value) = found(&mut service) {
                    return Some(value);
                }
                drop(service);
                deadline.checked_duration_since(Instant::now())?;
                idle = if moved { 0 } else { idle + 1 };
                pause(idle);
            }
        }
        let mut service = self.lock();
        loop {
            if let Some(value) = found(&mut service) {
                return Some(value);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let (locked, _) =
                self.changed.wait_timeout(service, left).unwrap_or_else(PoisonError::into_inner);
            service = locked;
        }
    }
}

/// Gives others the processor, for longer the longer nothing has moved.
#[cfg(feature = "mpi")]
fn pause(idle: u32) {
    match idle {
        0..100 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from(idle.min(1000)))),
    }
}

/// The thread. It ends when this is dropped.
pub struct IoThread<S: Service> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

/// Where strangers may knock, and what they must prove.
pub struct Door {
    pub listener: std::net::TcpListener,
    /// For processes of the same machine.
    pub local: Option<std::os::unix::net::UnixListener>,
    pub secret: Secret,
    pub session: SessionId,
}

impl<S: Service> IoThread<S> {
    /// A connection is closed when nothing has been heard of the other machine for `silence`.
    pub fn start(service: S, door: Option<Door>, silence: Duration) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::new(
                ErrorKind::External,
                format!("the system gives nothing to wait for connections with: {error}"),
            )
        };
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(failed)?;
        let shared = Arc::new(Shared {
            service: Mutex::new(service),
            changed: Condvar::new(),
            driver: Driver::Thread(waker),
        });
        let mut turns = Turns {
            shared: Arc::clone(&shared),
            poll,
            door: None,
            knocks: [false; 2],
            first_way: 0,
            silence,
            connections: BTreeMap::new(),
            work: BTreeSet::new(),
        };
        if let Some(door) = door {
            door.listener.set_nonblocking(true).map_err(failed)?;
            let mut tcp = TcpListener::from_std(door.listener);
            turns.poll.registry().register(&mut tcp, LISTENER, Interest::READABLE).map_err(failed)?;
            let mut local = None;
            if let Some(listener) = door.local {
                listener.set_nonblocking(true).map_err(failed)?;
                let listener = local.insert(UnixListener::from_std(listener));
                turns
                    .poll
                    .registry()
                    .register(listener, LOCAL_LISTENER, Interest::READABLE)
                    .map_err(failed)?;
            }
            turns.door = Some(Listening { tcp, local, secret: door.secret, session: door.session });
        }
        let thread = std::thread::Builder::new().name("reshard-couple".into()).spawn(move || turns.run());
        Ok(Self { shared, thread: Some(thread.map_err(failed)?) })
    }

    /// No thread: over MPI, frames move while the program waits.
    #[cfg(feature = "mpi")]
    pub fn without_thread(service: S, io: MessageIo) -> Self {
        let driver = Driver::Caller(Mutex::new(io));
        let shared = Arc::new(Shared { service: Mutex::new(service), changed: Condvar::new(), driver });
        Self { shared, thread: None }
    }

    pub fn shared(&self) -> &Arc<Shared<S>> {
        &self.shared
    }

    /// True if frames move while the program computes.
    pub fn has_thread(&self) -> bool {
        self.thread.is_some()
    }
}

impl<S: Service> Drop for IoThread<S> {
    fn drop(&mut self) {
        self.shared.lock().orders().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
