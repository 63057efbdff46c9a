//! The thread that moves frames: one in each process, whatever the number of connections. It reads and writes while the program
//! computes; what frames mean is the affair of a [`Service`].
//!
//! Strangers cost little: who has not proved the secret has a time limit, there are few of them at a time (the oldest makes room for
//! the next), and nothing is kept for them but a greeting of fixed length.

use crate::frame::{HEAD_BYTES, Head};
use crate::greeting::{Channel, Greeter, SessionId, Then};
use crate::secret::Secret;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use reshard::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A connection of this process. Numbers are not used again.
pub type ConnectionId = usize;

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
const FIRST: ConnectionId = 2;

/// Connections that have not proved the secret, at most.
const MAX_STRANGERS: usize = 64;

/// How long a stranger may take to prove it.
const STRANGER_LIMIT: Duration = Duration::from_secs(5);

/// Frames that are read or written on one connection before others have their turn.
const TURN: usize = 4;

/// What is done with frames. All of it is called with the lock held, so none of it takes long.
pub trait Service: Send + 'static {
    /// Somebody connected who knows the secret. An error closes the connection.
    fn greeted(&mut self, id: ConnectionId, channel: Channel) -> std::result::Result<(), String>;

    /// A frame is to be read: returns memory for what follows the head. An error closes the connection.
    fn room(&mut self, id: ConnectionId, head: &Head) -> std::result::Result<Vec<u8>, String>;

    /// A frame has come, with the right checksum. An error closes the connection.
    fn received(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>) -> std::result::Result<(), String>;

    /// The next frame to be sent, if there is one.
    fn next(&mut self, id: ConnectionId) -> Option<(Head, Vec<u8>)>;

    /// A frame was given to the system.
    fn sent(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>);

    /// A connection is closed.
    fn closed(&mut self, id: ConnectionId, why: &str);

    /// A stranger was turned away.
    fn refused(&mut self, why: String);

    /// What the thread is asked to do, since it was asked the last time.
    fn orders(&mut self) -> &mut Orders;
}

/// What the thread is asked to do.
#[derive(Default)]
pub struct Orders {
    /// Connections that were made elsewhere, and have been greeted.
    attach: Vec<(ConnectionId, std::net::TcpStream)>,
    /// Connections that have something to send.
    write: BTreeSet<ConnectionId>,
    /// Connections to be closed once all is sent that is waiting there.
    close: BTreeSet<ConnectionId>,
    stop: bool,
    numbers: ConnectionId,
}

impl Orders {
    /// Takes a connection over.
    pub fn attach(&mut self, stream: std::net::TcpStream) -> ConnectionId {
        let id = self.number();
        self.attach.push((id, stream));
        id
    }

    pub fn write(&mut self, id: ConnectionId) {
        self.write.insert(id);
    }

    pub fn close(&mut self, id: ConnectionId) {
        self.close.insert(id);
        self.write.insert(id);
    }

    fn number(&mut self) -> ConnectionId {
        self.numbers += 1;
        self.numbers + FIRST - 1
    }
}

/// What the thread and the program share.
pub struct Shared<S> {
    service: Mutex<S>,
    changed: Condvar,
    waker: Waker,
}

impl<S: Service> Shared<S> {
    pub fn lock(&self) -> MutexGuard<'_, S> {
        // What a panic left is a state like any other: connections are closed one by one.
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread see its orders.
    pub fn wake(&self) {
        // A pipe that is full wakes it as well.
        let _ = self.waker.wake();
    }

    /// Waits until something is there, or the deadline is over.
    pub fn wait<T>(&self, deadline: Instant, mut found: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
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
        let shared = Arc::new(Shared { service: Mutex::new(service), changed: Condvar::new(), waker });
        let mut turns = Turns {
            shared: Arc::clone(&shared),
            poll,
            door: None,
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

    pub fn shared(&self) -> &Arc<Shared<S>> {
        &self.shared
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
    /// Bytes that are being written: a head, and what follows it.
    output: Option<(Head, [u8; HEAD_BYTES], Vec<u8>, usize)>,
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
                    LISTENER => self.accept(),
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
                return;
            }
            self.end_late();
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
                return;
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
            asked: true,
            closing: None,
        };
        self.connections.insert(id, connection);
        self.work.insert(id);
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            let Some((listener, secret, session)) = &self.door else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Too many open files, say: who knocks will see it; a pause, so that it does not take all time.
                    self.tell(|service| service.refused(format!("a connection cannot be accepted: {error}")));
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            };
            let greeter = Box::new(Greeter::new(secret, *session));
            let stage =
                Reading::Stranger { greeter, input: Vec::new(), until: Instant::now() + STRANGER_LIMIT };
            let strangers =
                || self.connections.iter().filter(|(_, one)| matches!(one.stage, Reading::Stranger { .. }));
            if strangers().count() >= MAX_STRANGERS
                && let Some(oldest) = strangers().map(|(id, _)| *id).next()
            {
                self.close(oldest, "others knocked");
            }
            let id = self.shared.lock().orders().number();
            // One that cannot be registered is closed.
            let _ = self.add(id, stream, stage);
        }
    }

    /// The time until the first connection is closed.
    fn next_limit(&self) -> Option<Duration> {
        let limits = self.connections.values().filter_map(Connection::limit);
        limits.min().map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
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
                    return Turn::Waits;
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
                        self.output = Some((head, head.encode(), body, 0));
                    }
                    None => self.asked = false,
                }
            }
            let Some((_, head, body, written)) = &mut self.output else {
                return if self.closing.is_some() {
                    Turn::Closed("this side closed it".into())
                } else {
                    Turn::Waits
                };
            };
            if !self.writable {
                return Turn::Waits;
            }
            let slices = [&head[(*written).min(HEAD_BYTES)..], &body[written.saturating_sub(HEAD_BYTES)..]];
            match self.stream.write_vectored(&slices.map(IoSlice::new)) {
                Ok(0) => return Turn::Closed("the connection takes no more bytes".into()),
                Ok(more) => *written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Turn::Waits;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Turn::Closed(format!("the connection broke: {error}")),
            }
            if *written == HEAD_BYTES + body.len()
                && let Some((head, _, body, _)) = self.output.take()
            {
                turns.tell(|service| service.sent(id, &head, body));
            }
        }
        Turn::Again
    }
}
