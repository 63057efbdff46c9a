//! The turns of the thread: who may come in, whose time is over, and which connection reads and writes next.

use super::connection::{Connection, NEXT_HEAD, Reading, Turn};
use super::{LISTENER, LOCAL_LISTENER, Shared, WAKER};
use crate::greeting::{Greeter, SessionId};
use crate::secret::Secret;
use crate::service::{ConnectionId, Service};
use crate::stream::PolledStream;
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

pub struct Turns<S: Service> {
    pub shared: Arc<Shared<S>>,
    pub poll: Poll,
    pub door: Option<Listening>,
    /// Somebody may be waiting there: over TCP, on this machine.
    pub knocks: [bool; 2],
    pub first_way: usize,
    /// How long a partner may be silent, although it is asked whether it is there.
    pub silence: Duration,
    pub connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with something to do.
    pub work: BTreeSet<ConnectionId>,
}

/// Where strangers may knock, and what they must prove.
pub struct Listening {
    pub tcp: TcpListener,
    pub local: Option<UnixListener>,
    pub secret: Secret,
    pub session: SessionId,
}

impl Listening {
    fn accept(&self, way: usize) -> io::Result<PolledStream> {
        match (way, &self.local) {
            (0, _) => self.tcp.accept().map(|(stream, _)| PolledStream::Tcp(stream)),
            (_, Some(local)) => local.accept().map(|(stream, _)| PolledStream::Local(stream)),
            (_, None) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S: Service> Turns<S> {
    pub fn run(mut self) {
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
                    LISTENER => self.knocks[0] = true,
                    LOCAL_LISTENER => self.knocks[1] = true,
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
            // Those who knock in one way must not keep out those who knock in the other.
            self.first_way = 1 - self.first_way;
            for way in [self.first_way, 1 - self.first_way] {
                if self.knocks[way] {
                    self.accept(way);
                }
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
                let turn = connection.write_some(id, &self.shared);
                self.connections.insert(id, connection);
                matches!(turn, Turn::Again) || self.connections[&id].output.is_some()
            });
            if !open.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
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
            let attached = stream.polled().and_then(|stream| self.add(id, stream, NEXT_HEAD));
            if let Err(error) = attached {
                let why = format!("the connection cannot be waited for: {error}");
                self.shared.tell(|service| service.closed(id, &why));
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

    fn add(&mut self, id: ConnectionId, mut stream: PolledStream, stage: Reading) -> io::Result<()> {
        // A small frame is not to wait for a larger one.
        stream.set_nodelay();
        // Without it, deadlines notice a partner that has vanished.
        let _ = stream.notice_silence(self.silence);
        self.poll.registry().register(&mut stream, Token(id), Interest::READABLE | Interest::WRITABLE)?;
        self.connections.insert(id, Connection::new(stream, stage));
        self.work.insert(id);
        Ok(())
    }

    /// Takes those who wait at the door, as long as there is room for strangers: one that has been there for a while makes room.
    fn accept(&mut self, way: usize) {
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
            let Some(door) = &self.door else { return };
            let stream = match door.accept(way) {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.knocks[way] = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Too many open files, say: who knocks waits until there are fewer.
                Err(error) => {
                    let why = format!("a connection cannot be accepted: {error}");
                    return self.shared.tell(|service| service.refused(why));
                }
            };
            let greeter = Box::new(Greeter::new(&door.secret, door.session));
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
        if self.knocks != [false; 2] { Some(limit.unwrap_or(DOOR_PAUSE).min(DOOR_PAUSE)) } else { limit }
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
            Reading::Stranger { .. } => self.shared.tell(|service| service.refused(why.to_string())),
            _ => self.shared.tell(|service| service.closed(id, why)),
        }
    }

    fn turn(&mut self, id: ConnectionId) -> Turn {
        let Some(mut connection) = self.connections.remove(&id) else { return Turn::Waits };
        let mut turn = Turn::Waits;
        if connection.closing.is_none() {
            turn = connection.read_some(id, &self.shared);
        }
        if !matches!(turn, Turn::Closed(_)) {
            match connection.write_some(id, &self.shared) {
                Turn::Waits => {}
                other => turn = other,
            }
        }
        self.connections.insert(id, connection);
        turn
    }
}
