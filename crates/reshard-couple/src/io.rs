//! The thread that moves frames: one in each process, whatever the number of connections. It reads and writes while the program
//! computes; what frames mean is the affair of a [`Service`].
//!
//! Strangers cost little: who has not proved the secret has a time limit, there are few of them at a time (the oldest makes room for
//! the next), and nothing is kept for them but a greeting of fixed length.

use crate::frame::{HEAD_BYTES, Head};
use crate::greeting::{Greeter, SessionId, Then};
#[cfg(feature = "mpi")]
use crate::messages::MessageIo;
use crate::secret::Secret;
use crate::service::{ConnectionId, Service};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use reshard::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);

/// Connections that have not proved the secret, at most.
const MAX_STRANGERS: usize = 64;

/// How long one may stay while others wait at the door.
const STRANGER_GRACE: Duration = Duration::from_millis(250);

/// How often to look whether there is room for who waits at the door.
const DOOR_PAUSE: Duration = Duration::from_millis(10);

/// How long last words may take to be sent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a stranger may take to prove it.
const STRANGER_LIMIT: Duration = Duration::from_secs(5);

/// Frames that are read or written on one connection before others have their turn.
const TURN: usize = 4;

/// What the thread and the program share.
pub struct Shared<S> {
    service: Mutex<S>,
    changed: Condvar,
    driver: Driver,
}

/// Who moves frames.
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
    pub secret: Secret,
    pub session: SessionId,
}

impl<S: Service> IoThread<S> {
    pub fn start(service: S, door: Option<Door>) -> Result<Self> {
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
            knocks: false,
            connections: BTreeMap::new(),
            work: BTreeSet::new(),
        };
        if let Some(door) = door {
            door.listener.set_nonblocking(true).map_err(failed)?;
            let mut listener = TcpListener::from_std(door.listener);
            turns.poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(failed)?;
            turns.door = Some((listener, door.secret, door.session));
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

    /// Where there is no thread that sends while the program computes, sends all there is to send.
    pub fn hand_over(&self, deadline: Duration, done: fn(&S) -> bool) {
        if self.thread.is_none() {
            self.shared.wait(Instant::now() + deadline, |service| done(service).then_some(()));
        }
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

/// One connection.
struct Connection {
    stream: TcpStream,
    /// As the system said last.
    readable: bool,
    writable: bool,
    stage: Reading,
    /// What is being written.
    output: Option<Output>,
    /// Why nothing can be written any more: it is closed when all is read.
    broken: Option<String>,
    /// There may be more to send.
    asked: bool,
    /// To be closed when all is sent, or at this time.
    closing: Option<Instant>,
}

enum Reading {
    /// Has to prove the secret before this time.
    Stranger {
        greeter: Box<Greeter>,
        input: Vec<u8>,
        until: Instant,
    },
    Head {
        bytes: [u8; HEAD_BYTES],
        read: usize,
    },
    Body {
        head: Head,
        body: Vec<u8>,
        read: usize,
    },
}

const NEXT_HEAD: Reading = Reading::Head { bytes: [0; HEAD_BYTES], read: 0 };

/// What came of a turn.
enum Turn {
    /// Nothing can be done until the system says so.
    Waits,
    /// There is more to do.
    Again,
    Closed(String),
}

struct Turns<S: Service> {
    shared: Arc<Shared<S>>,
    poll: Poll,
    door: Option<(TcpListener, Secret, SessionId)>,
    /// Somebody may be waiting there.
    knocks: bool,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with something to do.
    work: BTreeSet<ConnectionId>,
}

impl<S: Service> Turns<S> {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        loop {
            let wait = if self.work.is_empty() { self.next_limit() } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
                    for id in all {
                        self.close(id, &format!("the system cannot wait for connections any more: {error}"));
                    }
                    return;
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.knocks = true,
                    Token(id) => {
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.readable |=
                                event.is_readable() || event.is_read_closed() || event.is_error();
                            connection.writable |= event.is_writable() || event.is_error();
                            self.work.insert(id);
                        }
                    }
                }
            }
            if self.take_orders() {
                return self.last_words();
            }
            self.end_late();
            if self.knocks {
                self.accept();
            }
            for id in std::mem::take(&mut self.work) {
                match self.turn(id) {
                    Turn::Waits => {}
                    Turn::Again => {
                        self.work.insert(id);
                    }
                    Turn::Closed(why) => self.close(id, &why),
                }
            }
            // What came may have been answered.
            if self.take_orders() {
                return self.last_words();
            }
        }
    }

    /// Sends what waits to be sent, for a short time: why this side ends is worth knowing.
    fn last_words(mut self) {
        let end = Instant::now() + LAST_WORDS;
        let mut open: BTreeSet<ConnectionId> = self.connections.keys().copied().collect();
        while !open.is_empty() && Instant::now() < end {
            open.retain(|&id| {
                let Some(mut connection) = self.connections.remove(&id) else { return false };
                connection.closing = Some(end);
                // As it may be by now.
                connection.writable = true;
                let turn = connection.write_some(id, &self);
                self.connections.insert(id, connection);
                matches!(turn, Turn::Again) || self.connections[&id].output.is_some()
            });
            if !open.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Calls the service, and tells those who wait that something may have changed.
    fn tell<T>(&self, call: impl FnOnce(&mut S) -> T) -> T {
        let value = call(&mut self.shared.lock());
        self.shared.changed.notify_all();
        value
    }

    fn take_orders(&mut self) -> bool {
        let (attach, write, close, stop) = {
            let mut service = self.shared.lock();
            let orders = service.orders();
            let take = |set: &mut BTreeSet<ConnectionId>| std::mem::take(set);
            (
                std::mem::take(&mut orders.attach),
                take(&mut orders.write),
                take(&mut orders.close),
                orders.stop,
            )
        };
        for (id, stream) in attach {
            let attached = stream
                .set_nonblocking(true)
                .and_then(|()| self.add(id, TcpStream::from_std(stream), NEXT_HEAD));
            if let Err(error) = attached {
                let why = format!("the connection cannot be waited for: {error}");
                self.tell(|service| service.closed(id, &why));
            }
        }
        for id in close {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.closing.get_or_insert_with(|| Instant::now() + STRANGER_LIMIT);
            }
        }
        for id in write {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.asked = true;
                self.work.insert(id);
            }
        }
        stop
    }

    fn add(&mut self, id: ConnectionId, mut stream: TcpStream, stage: Reading) -> io::Result<()> {
        // A small frame is not to wait for a larger one.
        let _ = stream.set_nodelay(true);
        self.poll.registry().register(&mut stream, Token(id), Interest::READABLE | Interest::WRITABLE)?;
        let connection = Connection {
            stream,
            readable: true,
            writable: true,
            stage,
            output: None,
            broken: None,
            asked: true,
            closing: None,
        };
        self.connections.insert(id, connection);
        self.work.insert(id);
        Ok(())
    }

    /// Takes those who wait at the door, as long as there is room for strangers: one that has been there for a while makes room.
    fn accept(&mut self) {
        for _ in 0..MAX_STRANGERS {
            let strangers = self.connections.iter().filter_map(|(id, one)| match one.stage {
                Reading::Stranger { until, .. } => Some((until, *id)),
                _ => None,
            });
            let (count, oldest) = (strangers.clone().count(), strangers.min());
            if let Some((until, id)) = oldest.filter(|_| count >= MAX_STRANGERS) {
                if until > Instant::now() + STRANGER_LIMIT - STRANGER_GRACE {
                    return;
                }
                self.close(id, "others knocked");
            }
            let Some((listener, secret, session)) = &self.door else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.knocks = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Too many open files, say: who knocks waits until there are fewer.
                Err(error) => {
                    let why = format!("a connection cannot be accepted: {error}");
                    return self.tell(|service| service.refused(why));
                }
            };
            let greeter = Box::new(Greeter::new(secret, *session));
            let until = Instant::now() + STRANGER_LIMIT;
            let id = self.shared.lock().orders().new_connection();
            // One that cannot be registered is closed.
            let _ = self.add(id, stream, Reading::Stranger { greeter, input: Vec::new(), until });
        }
    }

    /// The time until the first connection is closed.
    fn next_limit(&self) -> Option<Duration> {
        let limits = self.connections.values().filter_map(Connection::limit);
        let limit = limits
            .min()
            .map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        // There was no room for who waits at the door.
        if self.knocks { Some(limit.unwrap_or(DOOR_PAUSE).min(DOOR_PAUSE)) } else { limit }
    }

    /// Closes connections whose time is over.
    fn end_late(&mut self) {
        let now = Instant::now();
        let late =
            |(id, one): (&ConnectionId, &Connection)| one.limit().filter(|limit| *limit <= now).map(|_| *id);
        let late: Vec<ConnectionId> = self.connections.iter().filter_map(late).collect();
        for id in late {
            self.close(id, "it did not prove the secret, or read the last words, in time");
        }
    }

    fn close(&mut self, id: ConnectionId, why: &str) {
        self.work.remove(&id);
        let Some(mut connection) = self.connections.remove(&id) else { return };
        let _ = self.poll.registry().deregister(&mut connection.stream);
        match connection.stage {
            Reading::Stranger { .. } => self.tell(|service| service.refused(why.to_string())),
            _ => self.tell(|service| service.closed(id, why)),
        }
    }

    fn turn(&mut self, id: ConnectionId) -> Turn {
        let Some(mut connection) = self.connections.remove(&id) else { return Turn::Waits };
        let mut turn = Turn::Waits;
        if connection.closing.is_none() {
            turn = connection.read_some(id, self);
        }
        if !matches!(turn, Turn::Closed(_)) {
            match connection.write_some(id, self) {
                Turn::Waits => {}
                other => turn = other,
            }
        }
        self.connections.insert(id, connection);
        turn
    }
}

impl Connection {
    /// When it is closed, unless it goes on before.
    fn limit(&self) -> Option<Instant> {
        match self.stage {
            Reading::Stranger { until, .. } => Some(until),
            _ => self.closing,
        }
    }

    /// Reads a few frames.
    fn read_some<S: Service>(&mut self, id: ConnectionId, turns: &Turns<S>) -> Turn {
        for _ in 0..TURN {
            if !self.readable {
                return Turn::Waits;
            }
            let (read, wanted) = match &mut self.stage {
                Reading::Stranger { greeter, input, .. } => {
                    let (have, wants) = (input.len(), greeter.wants());
                    input.resize(wants, 0);
                    let read = self.stream.read(&mut input[have..]);
                    input.truncate(have + *read.as_ref().unwrap_or(&0));
                    (read, wants > have)
                }
                Reading::Head { bytes, read } => {
                    let got = self.stream.read(&mut bytes[*read..]);
                    *read += got.as_ref().unwrap_or(&0);
                    (got, true)
                }
                Reading::Body { body, read, .. } if body.len() > *read => {
                    let got = self.stream.read(&mut body[*read..]);
                    *read += got.as_ref().unwrap_or(&0);
                    (got, true)
                }
                Reading::Body { .. } => (Ok(0), false),
            };
            match read {
                Ok(0) if wanted => return Turn::Closed("it closed the connection".into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return self.broken.take().map_or(Turn::Waits, Turn::Closed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Turn::Closed(format!("the connection broke: {error}")),
            }
            if let Err(why) = self.advance(id, turns) {
                return Turn::Closed(why);
            }
        }
        Turn::Again
    }

    /// Goes on to the next stage if all bytes of this one are there.
    fn advance<S: Service>(&mut self, id: ConnectionId, turns: &Turns<S>) -> std::result::Result<(), String> {
        match &mut self.stage {
            Reading::Stranger { greeter, input, .. } => {
                if input.len() < greeter.wants() {
                    return Ok(());
                }
                let reply = greeter.take(input).map_err(|error| error.to_string())?;
                input.clear();
                // Short, and the first bytes of this side: they fit into the buffers of the system, or the stranger is none worth waiting for.
                if !reply.send.is_empty()
                    && !matches!(self.stream.write(&reply.send), Ok(all) if all == reply.send.len())
                {
                    return Err("it does not read its greeting".into());
                }
                match reply.then {
                    Then::Waits => Ok(()),
                    Then::Refused(why) => Err(why),
                    Then::Greeted(channel) => {
                        self.stage = NEXT_HEAD;
                        turns.tell(|service| service.greeted(id, channel))
                    }
                }
            }
            Reading::Head { bytes, read } => {
                if *read < HEAD_BYTES {
                    return Ok(());
                }
                let head = Head::decode(bytes)?;
                let mut body = turns.tell(|service| service.room(id, &head))?;
                body.resize(head.bytes as usize, 0);
                self.stage = Reading::Body { head, body, read: 0 };
                if head.bytes == 0 { self.advance(id, turns) } else { Ok(()) }
            }
            Reading::Body { head, body, read } => {
                if *read < body.len() {
                    return Ok(());
                }
                head.check(body)?;
                let (head, body) = (*head, std::mem::take(body));
                self.stage = NEXT_HEAD;
                turns.tell(|service| service.received(id, &head, body))
            }
        }
    }

    /// Writes a few frames.
    fn write_some<S: Service>(&mut self, id: ConnectionId, turns: &Turns<S>) -> Turn {
        if matches!(self.stage, Reading::Stranger { .. }) {
            return Turn::Waits;
        }
        for _ in 0..TURN {
            if self.output.is_none() && self.asked {
                match turns.shared.lock().next(id) {
                    Some((head, body)) => {
                        let head = head.with(&body);
                        self.output = Some(Output::new(head, body));
                    }
                    None => self.asked = false,
                }
            }
            let Some(output) = &mut self.output else {
                return if self.closing.is_some() {
                    Turn::Closed("this side closed it".into())
                } else {
                    Turn::Waits
                };
            };
            if !self.writable || self.broken.is_some() {
                return Turn::Waits;
            }
            match self.stream.write(output.rest()) {
                Ok(0) => self.broken = Some("the connection takes no more bytes".into()),
                Ok(more) => output.written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Turn::Waits;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.broken = Some(format!("the connection broke: {error}")),
            }
            if let Some(why) = &self.broken {
                // What came before is read first: it may say why.
                if self.closing.is_some() {
                    return Turn::Closed(why.clone());
                }
                self.readable = true;
                return Turn::Again;
            }
            if output.is_done()
                && let Some(Output { head, body, .. }) = self.output.take()
            {
                turns.tell(|service| service.sent(id, &head, body));
            }
        }
        Turn::Again
    }
}

/// A frame that is being written.
struct Output {
    head: Head,
    /// The head, and what follows it if that is short.
    first: Vec<u8>,
    body: Vec<u8>,
    written: usize,
}

impl Output {
    /// What is sent with its head in one piece.
    const SHORT: usize = 1 << 14;

    fn new(head: Head, body: Vec<u8>) -> Self {
        let mut first = head.encode().to_vec();
        if body.len() <= Self::SHORT {
            first.extend_from_slice(&body);
        }
        Self { head, first, body, written: 0 }
    }

    /// What is not written yet, or a part of it.
    fn rest(&self) -> &[u8] {
        match self.first.get(self.written..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => &self.body[self.written - HEAD_BYTES..],
        }
    }

    fn is_done(&self) -> bool {
        self.written == HEAD_BYTES + self.body.len()
    }
}
