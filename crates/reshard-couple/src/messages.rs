//! Frames as messages of MPI, or of any other transport: for jobs that it connects already. There is no thread, as many MPIs allow one
//! only; frames move while the program waits or puts a step.

use crate::frame::{FrameKind, HEAD_BYTES, Head, MAX_DATA_BYTES};
use crate::greeting::Channel;
use crate::service::{ConnectionId, FIRST, Service};
use crate::side::Role;
use crate::watch::{Carrier, Watch};
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::transport::{MessageBuffer, Transport};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The first tag of couplings with the producer whose leader is rank 0.
const FIRST_TAG: u32 = 8;

/// The largest tag that all MPIs have.
const LARGEST_TAG: u32 = 32_767;

/// Messages that one connection has in flight at most.
const IN_FLIGHT: usize = 4;

/// The connection to a rank.
pub fn connection(rank: usize, data: bool) -> ConnectionId {
    FIRST + 2 * rank + usize::from(data)
}

/// The first frame of a connection.
pub fn opening(channel: Channel) -> Head {
    match channel {
        Channel::Control => Head::new(FrameKind::Open, 0, 0),
        Channel::Data { consumer, process } => {
            Head { from: process, ..Head::new(FrameKind::Open, 1, consumer) }
        }
    }
}

/// Messages in flight.
pub struct MessageIo {
    transport: Arc<dyn Transport>,
    watch: Option<Watch>,
    _lock: Option<Arc<std::fs::File>>,
    /// Of the connections between leaders and of those for data: what comes, and what goes.
    tags: [[u32; 2]; 2],
    sending: BTreeMap<ConnectionId, Outgoing>,
    receiving: BTreeMap<ConnectionId, VecDeque<Box<dyn MessageBuffer>>>,
    buffers: Buffers,
}

/// What goes out on a connection.
#[derive(Default)]
struct Outgoing {
    /// There may be more.
    asked: bool,
    closing: bool,
    in_flight: VecDeque<(Head, Vec<u8>, Box<dyn MessageBuffer>)>,
}

/// Buffers for frames of data, to be used again.
#[derive(Default)]
struct Buffers(Vec<Box<dyn MessageBuffer>>);

impl Buffers {
    const BYTES: usize = HEAD_BYTES + MAX_DATA_BYTES;

    fn take(&mut self, transport: &dyn Transport, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        match self.0.pop() {
            Some(buffer) if bytes <= Self::BYTES => Ok(buffer),
            other => {
                self.0.extend(other);
                transport.buffer(bytes.max(Self::BYTES))
            }
        }
    }

    fn keep(&mut self, mut buffer: Box<dyn MessageBuffer>) {
        if buffer.bytes().len() == Self::BYTES {
            self.0.push(buffer);
        }
    }
}

impl MessageIo {
    /// The messages of couplings with the producer whose leader is this rank, for that producer or for a consumer of it.
    pub fn new(carrier: Carrier, leader: usize, role: Role) -> Result<Self> {
        let first =
            u32::try_from(leader).ok().and_then(|leader| leader.checked_mul(4)).map(|tag| tag + FIRST_TAG);
        let Some(first) = first.filter(|first| first + 3 <= LARGEST_TAG) else {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the producer's first rank is {leader}; MPI has tags for those below {}",
                    (LARGEST_TAG - FIRST_TAG) / 4
                ),
            ));
        };
        let [to_producer, to_consumer] = [[first, first + 1], [first + 2, first + 3]];
        let tags = match role {
            Role::Producer => [to_producer, to_consumer],
            Role::Consumer => [to_consumer, to_producer],
        };
        Ok(Self {
            transport: carrier.transport,
            watch: carrier.watch,
            _lock: carrier.lock,
            tags,
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            buffers: Buffers::default(),
        })
    }

    /// Does what can be done at once. Returns whether something moved.
    pub fn progress(&mut self, service: &mut impl Service) -> bool {
        let received = self.receive(service);
        let orders = service.orders();
        for id in std::mem::take(&mut orders.write) {
            self.sending.entry(id).or_default().asked = true;
        }
        for id in std::mem::take(&mut orders.close) {
            self.sending.entry(id).or_default().closing = true;
        }
        let sent = self.send(service);
        if self.watch.as_mut().is_some_and(Watch::is_over) {
            self.watch = None;
            let all: BTreeSet<ConnectionId> =
                self.sending.keys().chain(self.receiving.keys()).copied().collect();
            all.into_iter().for_each(|id| service.closed(id, "its job has ended"));
        }
        received || sent
    }

    fn receive(&mut self, service: &mut impl Service) -> bool {
        let mut moved = false;
        for (data, tag) in [false, true].into_iter().zip(self.tags[0]) {
            while let Ok(Some((from, bytes))) = self.transport.probe(tag) {
                let id = connection(from, data);
                let posted = self.transport.buffer(bytes).and_then(|mut buffer| {
                    buffer.receive(from, tag)?;
                    Ok(buffer)
                });
                match posted {
                    Ok(buffer) => self.receiving.entry(id).or_default().push_back(buffer),
                    Err(error) => {
                        service.closed(id, &error.to_string());
                        return true;
                    }
                }
                moved = true;
            }
        }
        for (&id, buffers) in &mut self.receiving {
            // In the order in which they were sent.
            while let Some(buffer) = buffers.front_mut() {
                let taken = match buffer.test() {
                    Ok(None) => break,
                    Ok(Some(bytes)) => take(service, id, &buffer.bytes()[..bytes]),
                    Err(error) => Err(error.to_string()),
                };
                buffers.pop_front();
                if let Err(why) = taken {
                    service.closed(id, &why);
                }
                moved = true;
            }
        }
        moved
    }

    fn send(&mut self, service: &mut impl Service) -> bool {
        let mut moved = false;
        let Self { transport, sending, buffers, tags, .. } = self;
        for (&id, outgoing) in sending.iter_mut() {
            while let Some((_, _, buffer)) = outgoing.in_flight.front_mut() {
                let tested = buffer.test();
                if let Ok(None) = tested {
                    break;
                }
                if let Some((head, body, buffer)) = outgoing.in_flight.pop_front() {
                    service.sent(id, &head, body);
                    buffers.keep(buffer);
                }
                if let Err(error) = tested {
                    service.closed(id, &error.to_string());
                }
                moved = true;
            }
            while outgoing.asked && outgoing.in_flight.len() < IN_FLIGHT {
                let Some((head, body)) = service.next(id) else {
                    outgoing.asked = false;
                    break;
                };
                let head = head.with(&body);
                let bytes = HEAD_BYTES + body.len();
                let (rank, tag) = ((id - FIRST) / 2, tags[1][(id - FIRST) % 2]);
                let begun = buffers.take(&**transport, bytes).and_then(|mut buffer| {
                    buffer.bytes()[..HEAD_BYTES].copy_from_slice(&head.encode());
                    buffer.bytes()[HEAD_BYTES..bytes].copy_from_slice(&body);
                    buffer.send(0..bytes, rank, tag, false)?;
                    Ok(buffer)
                });
                match begun {
                    Ok(buffer) => outgoing.in_flight.push_back((head, body, buffer)),
                    Err(error) => service.closed(id, &error.to_string()),
                }
                moved = true;
            }
            if outgoing.closing && !outgoing.asked && outgoing.in_flight.is_empty() {
                outgoing.closing = false;
                service.closed(id, "this side closed it");
            }
        }
        moved
    }
}

/// Hands a message to whoever it is for.
fn take(service: &mut impl Service, id: ConnectionId, message: &[u8]) -> std::result::Result<(), String> {
    let Some((head, body)) = message.split_first_chunk::<HEAD_BYTES>() else {
        return Err("a message came that is no frame".into());
    };
    let head = Head::decode(head)?;
    if head.bytes as usize != body.len() {
        return Err("a message came that is longer or shorter than its head says".into());
    }
    head.check(body)?;
    if head.kind == FrameKind::Open {
        let channel = match head.array {
            0 => Channel::Control,
            _ => Channel::Data { consumer: head.sequence, process: head.from },
        };
        return service.greeted(id, channel);
    }
    let mut memory = service.room(id, &head)?;
    memory.resize(body.len(), 0);
    memory.copy_from_slice(body);
    service.received(id, &head, memory)
}
