//! One connection: a greeting first, then frames.

use super::Shared;
use crate::frame::{FrameKind, HEAD_BYTES, Head};
use crate::greeting::{Greeter, Then};
use crate::service::{ConnectionId, Service};
use crate::slots::SlotMemory;
use crate::stream::PolledStream;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Frames that are read or written on one connection before others have their turn.
const TURN: usize = 4;

/// One connection.
pub struct Connection {
    pub stream: PolledStream,
    /// Memory that was passed, and not spoken of yet.
    passed: Option<OwnedFd>,
    /// As the system said last.
    pub readable: bool,
    pub writable: bool,
    pub stage: Reading,
    /// What is being written.
    pub output: Option<Output>,
    /// Why nothing can be written any more: it is closed when all is read.
    broken: Option<String>,
    /// There may be more to send.
    pub asked: bool,
    /// To be closed when all is sent, or at this time.
    pub closing: Option<Instant>,
}

pub enum Reading {
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

pub const NEXT_HEAD: Reading = Reading::Head { bytes: [0; HEAD_BYTES], read: 0 };

/// What came of a turn.
pub enum Turn {
    /// Nothing can be done until the system says so.
    Waits,
    /// There is more to do.
    Again,
    Closed(String),
}

impl Connection {
    pub fn new(stream: PolledStream, stage: Reading) -> Self {
        Self {
            stream,
            passed: None,
            readable: true,
            writable: true,
            stage,
            output: None,
            broken: None,
            asked: true,
            closing: None,
        }
    }

    /// When it is closed, unless it goes on before.
    pub fn limit(&self) -> Option<Instant> {
        match self.stage {
            Reading::Stranger { until, .. } => Some(until),
            _ => self.closing,
        }
    }

    /// Reads a few frames.
    pub fn read_some<S: Service>(&mut self, id: ConnectionId, shared: &Shared<S>) -> Turn {
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
                    let got = self.stream.receive(&mut bytes[*read..], &mut self.passed);
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
            if let Err(why) = self.advance(id, shared) {
                return Turn::Closed(why);
            }
        }
        Turn::Again
    }

    /// Goes on to the next stage if all bytes of this one are there.
    fn advance<S: Service>(
        &mut self,
        id: ConnectionId,
        shared: &Shared<S>,
    ) -> std::result::Result<(), String> {
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
                        shared.tell(|service| service.greeted(id, channel))
                    }
                }
            }
            Reading::Head { bytes, read } => {
                if *read < HEAD_BYTES {
                    return Ok(());
                }
                let head = Head::decode(bytes)?;
                if head.kind == FrameKind::Memory {
                    self.stage = NEXT_HEAD;
                    let memory = shared_memory(&head, self.passed.take())?;
                    return shared.tell(|service| service.shares(id, memory.map(Arc::new)));
                }
                let mut body = shared.tell(|service| service.room(id, &head))?;
                body.resize(head.bytes as usize, 0);
                self.stage = Reading::Body { head, body, read: 0 };
                if head.bytes == 0 { self.advance(id, shared) } else { Ok(()) }
            }
            Reading::Body { head, body, read } => {
                if *read < body.len() {
                    return Ok(());
                }
                head.check(body)?;
                let (head, body) = (*head, std::mem::take(body));
                self.stage = NEXT_HEAD;
                shared.tell(|service| service.received(id, &head, body))
            }
        }
    }

    /// Writes a few frames.
    pub fn write_some<S: Service>(&mut self, id: ConnectionId, shared: &Shared<S>) -> Turn {
        if matches!(self.stage, Reading::Stranger { .. }) {
            return Turn::Waits;
        }
        for _ in 0..TURN {
            if self.output.is_none() && self.asked {
                match shared.lock().next(id) {
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
                shared.tell(|service| service.sent(id, &head, body));
            }
        }
        Turn::Again
    }
}

/// The memory that was passed with a frame; none if the other process could not share it, or this one has no room to see it, or no number
/// for one more open file: all goes by the socket then.
fn shared_memory(head: &Head, passed: Option<OwnedFd>) -> std::result::Result<Option<SlotMemory>, String> {
    let Some(passed) = passed else { return Ok(None) };
    let slots = u32::try_from(head.sequence).map_err(|_| "it passed more slots than can be numbered")?;
    match SlotMemory::of(&passed, slots, head.array as usize) {
        Ok(memory) => Ok(Some(memory)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(format!("the memory that it passed cannot be shared: {error}"))
        }
        Err(_) => Ok(None),
    }
}

/// A frame that is being written.
pub struct Output {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::slots::passed_memory;

    #[test]
    fn memory_that_does_not_fit_here_is_not_shared() {
        let head = |slots, bytes| Head { array: bytes, ..Head::new(FrameKind::Memory, 0, slots) };
        let shared = |head: &Head, passed| shared_memory(head, passed).map(|memory| memory.is_some());
        let passed = || passed_memory(2, 4096).unwrap();
        assert_eq!(shared(&head(2, 4096), Some(passed())), Ok(true));
        let said = shared(&head(3, 4096), Some(passed())).err();
        assert!(said.as_ref().is_some_and(|why| why.contains("another size")), "{said:?}");
        assert_eq!(shared(&head(2, 4096), None), Ok(false));
        // More than any process can address, and little of it is there.
        let (slots, bytes) = (1 << 22, 1 << 30);
        assert_eq!(
            shared(&head(slots, bytes), Some(passed_memory(slots as u32, bytes as usize).unwrap())),
            Ok(false)
        );
    }
}
