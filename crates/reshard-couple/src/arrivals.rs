//! What the subscriber's I/O thread and its program share: connections, and the frames that have come.

use crate::frame::{FrameKind, Head, data_bytes};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::terms::{Announced, Text};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Frames that are kept for the next step, in bytes.
const MAX_SPARE_BYTES: usize = 1 << 30;

/// What the thread and the program of a subscriber share.
#[derive(Default)]
pub struct Arrivals {
    orders: Orders,
    outputs: BTreeMap<ConnectionId, VecDeque<(Head, Vec<u8>)>>,
    /// The connection of the leaders, and those to processes of the producer.
    pub control: Option<ConnectionId>,
    pub data: BTreeMap<u32, ConnectionId>,
    /// Connections for data that the other side has.
    pub opened: usize,
    pub arrays: Vec<Arriving>,
    /// What the producer's leader answered first.
    pub answer: Option<Text>,
    /// Why the coupling is over, if it is.
    pub over: Option<String>,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

/// The steps of one array.
#[derive(Default)]
pub struct Arriving {
    /// Bytes of the message from each rank to each that this process hosts.
    pub expected: HashMap<(u32, u32), u64>,
    pub element: u64,
    /// The processes of the producer from which something comes.
    pub processes: Vec<u32>,
    /// Steps that were asked for, and what has come of them.
    pub steps: BTreeMap<u64, Arrived>,
    /// Steps that were announced, and not taken yet.
    pub announced: VecDeque<Announced>,
    /// There are no more.
    pub ended: bool,
    /// The producer was asked for the next, where steps may be dropped.
    pub asked: bool,
}

/// What has come of a step.
#[derive(Default)]
pub struct Arrived {
    messages: HashMap<(u32, u32), ArrivedMessage>,
    complete: usize,
}

/// What has come of a message: bytes, and frames.
type ArrivedMessage = (u64, Vec<Vec<u8>>);

impl Arriving {
    /// True if all messages of a step are there.
    pub fn is_complete(&self, sequence: u64) -> bool {
        self.expected.is_empty()
            || self.steps.get(&sequence).is_some_and(|step| step.complete == self.expected.len())
    }

    /// A message of a step that is not there.
    pub fn missing(&self, sequence: u64) -> Option<(u32, u32)> {
        let step = self.steps.get(&sequence);
        let there = |key: &(u32, u32), bytes: u64| {
            step.and_then(|step| step.messages.get(key)).is_some_and(|(got, _)| *got == bytes)
        };
        self.expected.iter().filter(|(key, bytes)| !there(key, **bytes)).map(|(key, _)| *key).min()
    }
}

impl Arrived {
    /// The frames of a message.
    pub fn frames(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        self.messages
            .get(&(from as u32, to as u32))
            .into_iter()
            .flat_map(|(_, frames)| frames.iter().map(Vec::as_slice))
    }
}

impl Arrivals {
    /// Takes a connection over.
    pub fn attach(&mut self, stream: std::net::TcpStream) -> ConnectionId {
        let id = self.orders.attach(stream);
        self.outputs.insert(id, VecDeque::new());
        id
    }

    /// Opens a connection over MPI.
    #[cfg(feature = "mpi")]
    pub fn open(&mut self, id: ConnectionId, opening: Head) {
        self.outputs.insert(id, VecDeque::new());
        self.send(id, opening, Vec::new());
    }

    fn send(&mut self, id: ConnectionId, head: Head, body: Vec<u8>) {
        if let Some(output) = self.outputs.get_mut(&id) {
            output.push_back((head, body));
            self.orders.write(id);
        }
    }

    /// Says something to the producer's leader.
    pub fn tell(&mut self, text: &Text) {
        if let Some(control) = self.control {
            self.send(control, Head::new(FrameKind::Text, 0, 0), text.encode());
        }
    }

    /// Says the last to all processes of the producer, and closes the connections.
    pub fn leave(&mut self, text: &Text) {
        let all: Vec<ConnectionId> = self.outputs.keys().copied().collect();
        for id in all {
            self.send(id, Head::new(FrameKind::Text, 0, 0), text.encode());
            self.orders.close(id);
        }
    }

    /// True if nothing waits to be sent.
    pub fn is_silent(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Asks for a step: there is room for it.
    pub fn want(&mut self, array: usize, sequence: u64) {
        self.arrays[array].steps.entry(sequence).or_default();
        let processes = self.arrays[array].processes.iter();
        let connections: Vec<ConnectionId> =
            processes.filter_map(|process| self.data.get(process).copied()).collect();
        for id in connections {
            self.send(id, Head::new(FrameKind::Want, array as u32, sequence), Vec::new());
        }
    }

    /// Takes a step out; it is to be given back.
    pub fn take(&mut self, array: usize, sequence: u64) -> Arrived {
        self.arrays[array].steps.remove(&sequence).unwrap_or_default()
    }

    /// Keeps the memory of a step for the next.
    pub fn keep(&mut self, step: Arrived) {
        for frame in step.messages.into_values().flat_map(|(_, frames)| frames) {
            if self.spare_bytes + frame.capacity() <= MAX_SPARE_BYTES {
                self.spare_bytes += frame.capacity();
                self.spare.push(frame);
            }
        }
    }

    fn text(&mut self, text: Text) -> Result<(), String> {
        match text {
            Text::Welcome(_) | Text::Refused { .. } if self.answer.is_none() => self.answer = Some(text),
            Text::Step(announced) => {
                let Some(array) = self.arrays.get_mut(announced.array as usize) else {
                    return Err("the producer announced a step of an array that it does not send".into());
                };
                array.announced.push_back(announced);
            }
            Text::End { array } => {
                if let Some(array) = self.arrays.get_mut(array as usize) {
                    array.ended = true;
                }
            }
            Text::Bye { why } => self.end(why),
            _ => return Err("the producer said something out of turn".into()),
        }
        Ok(())
    }

    fn end(&mut self, why: String) {
        self.over.get_or_insert(why);
    }
}

impl Service for Arrivals {
    fn greeted(&mut self, _: ConnectionId, _: Channel) -> Result<(), String> {
        // Nobody calls a consumer: over MPI a producer answers so.
        self.opened += 1;
        Ok(())
    }

    fn room(&mut self, _: ConnectionId, head: &Head) -> Result<Vec<u8>, String> {
        if matches!(head.kind, FrameKind::Text | FrameKind::Open) {
            return Ok(Vec::new());
        }
        let out_of_turn = || "the producer sent something that was not asked for".to_string();
        let array = self.arrays.get(head.array as usize).ok_or_else(out_of_turn)?;
        let step = array.steps.get(&head.sequence).ok_or_else(out_of_turn)?;
        let expected = array.expected.get(&(head.from, head.to)).ok_or_else(out_of_turn)?;
        let got = step.messages.get(&(head.from, head.to)).map_or(0, |(bytes, _)| *bytes);
        let bytes = u64::from(head.bytes);
        let fits =
            bytes > 0 && bytes % array.element == 0 && head.bytes as usize <= data_bytes(array.element);
        if head.kind != FrameKind::Data || !fits || got + bytes > *expected {
            return Err(out_of_turn());
        }
        let memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        Ok(memory)
    }

    fn received(&mut self, _: ConnectionId, head: &Head, body: Vec<u8>) -> Result<(), String> {
        match head.kind {
            FrameKind::Text => return self.text(Text::decode(&body)?),
            FrameKind::Open => {
                self.opened += 1;
                return Ok(());
            }
            _ => {}
        }
        let Some(array) = self.arrays.get_mut(head.array as usize) else { return Ok(()) };
        let expected = array.expected.get(&(head.from, head.to)).copied().unwrap_or(0);
        // Given up meanwhile, if it is not there.
        let Some(step) = array.steps.get_mut(&head.sequence) else { return Ok(()) };
        let (bytes, frames) = step.messages.entry((head.from, head.to)).or_default();
        *bytes += body.len() as u64;
        frames.push(body);
        step.complete += usize::from(*bytes == expected);
        Ok(())
    }

    fn next(&mut self, id: ConnectionId) -> Option<(Head, Vec<u8>)> {
        self.outputs.get_mut(&id)?.pop_front()
    }

    fn sent(&mut self, _: ConnectionId, _: &Head, _: Vec<u8>) {}

    fn closed(&mut self, id: ConnectionId, why: &str) {
        self.outputs.remove(&id);
        let process = self.data.iter().find(|(_, other)| **other == id).map(|(process, _)| *process);
        let who =
            process.map_or("the producer".into(), |process| format!("process {process} of the producer"));
        self.end(format!("{who} is gone: {why}"));
    }

    fn refused(&mut self, _: String) {}

    fn orders(&mut self) -> &mut Orders {
        &mut self.orders
    }
}
