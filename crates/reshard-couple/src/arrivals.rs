//! What the subscriber's I/O thread and its program share: connections, and the frames that have come.

use crate::frame::{FrameKind, Head, data_bytes};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::slots::{ReadSlot, SlotMemory, decode};
use crate::stream::Stream;
use crate::terms::{Announced, Text};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

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
    /// Connections that are closed for now.
    paused: BTreeSet<ConnectionId>,
    /// Memory that is shared with processes of the producer.
    shared: BTreeMap<ConnectionId, Arc<SlotMemory>>,
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
    /// Where connections come and go: the process of each rank from which something comes, and how many messages come from each process.
    pub process_of: HashMap<u32, u32>,
    pub messages_of: HashMap<u32, usize>,
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
    /// Where connections come and go: messages that are complete, by process, and processes of which all are.
    complete_of: HashMap<u32, usize>,
    done: Vec<u32>,
    /// Frames of processes that share memory with this one: they are unpacked as they come, to make room for the next.
    early: Vec<ArrivedFrame>,
}

/// What has come of a message: bytes, and frames.
type ArrivedMessage = (u64, Vec<Vec<u8>>);

/// A frame of a process that shares memory with this one.
pub struct ArrivedFrame {
    pub from: u32,
    pub to: u32,
    memory: FrameMemory,
    connection: ConnectionId,
}

enum FrameMemory {
    Own(Vec<u8>),
    Slot(ReadSlot),
}

impl ArrivedFrame {
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            FrameMemory::Own(bytes) => bytes,
            FrameMemory::Slot(slot) => slot,
        }
    }
}

/// What there is to do about a step that is wanted.
pub enum Coming {
    /// These frames are to be unpacked, and given back.
    Frames(Vec<ArrivedFrame>),
    /// All is there that this process of the producer sends.
    Done(u32),
    Complete,
    Over(String),
}

impl Arriving {
    /// Messages come from these ranks, in the order of the schedule.
    pub fn comes_from(&mut self, ranks: impl Iterator<Item = u64>, process_of: impl Fn(u64) -> u32) {
        for rank in ranks {
            let process = process_of(rank);
            self.process_of.insert(rank as u32, process);
            let messages = self.messages_of.entry(process).or_default();
            if *messages == 0 {
                self.processes.push(process);
            }
            *messages += 1;
        }
    }

    /// True if all messages of a step are there.
    pub fn is_complete(&self, sequence: u64) -> bool {
        self.expected.is_empty()
            || self.steps.get(&sequence).is_some_and(|step| step.complete == self.expected.len())
    }

    /// The processes of which not all of a step is there, in the order of the schedule.
    pub fn not_done(&self, sequence: u64) -> Vec<u32> {
        let step = self.steps.get(&sequence);
        let complete = |process: &u32| step.and_then(|step| step.complete_of.get(process)).copied();
        let done = |process: &u32| complete(process) == self.messages_of.get(process).copied();
        self.processes.iter().copied().filter(|process| !done(process)).collect()
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
    /// All frames that were not unpacked early: rank of the producer, rank of the consumer, bytes. Those of a message are in their order.
    pub fn frames(&self) -> impl Iterator<Item = (u32, u32, &[u8])> {
        let messages = self.messages.iter();
        messages.flat_map(|(&(from, to), (_, frames))| frames.iter().map(move |frame| (from, to, &frame[..])))
    }
}

impl Arrivals {
    /// Takes a connection over.
    pub fn attach(&mut self, stream: Stream) -> ConnectionId {
        let id = self.orders.attach(stream);
        self.outputs.insert(id, VecDeque::new());
        id
    }

    /// A process of the producer has memory of this one.
    pub fn share(&mut self, id: ConnectionId, memory: Arc<SlotMemory>) {
        self.shared.insert(id, memory);
    }

    /// How many connections share memory.
    pub fn shared_count(&self) -> usize {
        self.shared.len()
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

    /// What has come of a step since the last time.
    pub fn coming(&mut self, array: usize, sequence: u64) -> Option<Coming> {
        let arriving = &mut self.arrays[array];
        if let Some(step) = arriving.steps.get_mut(&sequence).filter(|step| !step.early.is_empty()) {
            return Some(Coming::Frames(std::mem::take(&mut step.early)));
        }
        if let Some(process) = arriving.steps.get_mut(&sequence).and_then(|step| step.done.pop()) {
            return Some(Coming::Done(process));
        }
        if arriving.is_complete(sequence) {
            return Some(Coming::Complete);
        }
        self.over.clone().map(Coming::Over)
    }

    /// A process of the producer was connected to for this step of this array.
    pub fn connected(&mut self, process: u32, id: ConnectionId, array: usize, sequence: u64) {
        self.data.insert(process, id);
        self.arrays[array].steps.entry(sequence).or_default();
        self.send(id, Head::new(FrameKind::Want, array as u32, sequence), Vec::new());
    }

    /// Closes a connection for now.
    pub fn pause(&mut self, process: u32) {
        if let Some(id) = self.data.remove(&process) {
            self.paused.insert(id);
            self.send(id, Head::new(FrameKind::Text, 0, 0), Text::Pause.encode());
            self.orders.close(id);
        }
    }

    /// Gives frames back that were unpacked.
    pub fn give_back(&mut self, frames: Vec<ArrivedFrame>) {
        for ArrivedFrame { memory, connection, .. } in frames {
            match memory {
                FrameMemory::Own(bytes) => self.keep_frame(bytes),
                FrameMemory::Slot(slot) => {
                    self.send(connection, Head::new(FrameKind::Free, slot.number(), 0), Vec::new());
                }
            }
        }
    }

    /// Takes a step out; it is to be given back.
    pub fn take(&mut self, array: usize, sequence: u64) -> Arrived {
        self.arrays[array].steps.remove(&sequence).unwrap_or_default()
    }

    /// Keeps the memory of a step for the next.
    pub fn keep(&mut self, step: Arrived) {
        step.messages.into_values().flat_map(|(_, frames)| frames).for_each(|frame| self.keep_frame(frame));
    }

    fn keep_frame(&mut self, frame: Vec<u8>) {
        if self.spare_bytes + frame.capacity() <= MAX_SPARE_BYTES {
            self.spare_bytes += frame.capacity();
            self.spare.push(frame);
        }
    }

    /// Fails unless so many bytes of a message were asked for, and have not come yet.
    fn check(&self, head: &Head, bytes: usize) -> Result<(), String> {
        let out_of_turn = || "the producer sent something that was not asked for".to_string();
        let array = self.arrays.get(head.array as usize).ok_or_else(out_of_turn)?;
        let step = array.steps.get(&head.sequence).ok_or_else(out_of_turn)?;
        let expected = array.expected.get(&(head.from, head.to)).ok_or_else(out_of_turn)?;
        let got = step.messages.get(&(head.from, head.to)).map_or(0, |(bytes, _)| *bytes);
        let fits =
            bytes > 0 && (bytes as u64).is_multiple_of(array.element) && bytes <= data_bytes(array.element);
        if fits && got + bytes as u64 <= *expected { Ok(()) } else { Err(out_of_turn()) }
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

    fn room(&mut self, id: ConnectionId, head: &Head) -> Result<Vec<u8>, String> {
        match head.kind {
            FrameKind::Text | FrameKind::Open => return Ok(Vec::new()),
            FrameKind::Slot if self.shared.contains_key(&id) => return Ok(Vec::new()),
            FrameKind::Data => self.check(head, head.bytes as usize)?,
            _ => return Err("the producer sent a frame that producers do not send".into()),
        }
        let memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        Ok(memory)
    }

    fn received(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>) -> Result<(), String> {
        match head.kind {
            FrameKind::Text => return self.text(Text::decode(&body)?),
            FrameKind::Open => {
                self.opened += 1;
                return Ok(());
            }
            _ => {}
        }
        let memory = match (head.kind, self.shared.get(&id)) {
            (FrameKind::Slot, Some(shared)) => {
                let slot = decode(&body).and_then(|(slot, bytes)| shared.read(slot, bytes));
                let slot = slot.ok_or("the producer named memory that is not shared")?;
                self.check(head, slot.len())?;
                FrameMemory::Slot(slot)
            }
            _ => FrameMemory::Own(body),
        };
        let early = self.shared.contains_key(&id);
        let frame = ArrivedFrame { from: head.from, to: head.to, memory, connection: id };
        let bytes_come = frame.bytes().len() as u64;
        let array = self.arrays.get_mut(head.array as usize);
        let Some(array) = array.filter(|array| array.steps.contains_key(&head.sequence)) else {
            // Given up meanwhile.
            self.give_back(vec![frame]);
            return Ok(());
        };
        let expected = array.expected.get(&(head.from, head.to)).copied();
        let step = array.steps.entry(head.sequence).or_default();
        let (bytes, frames) = step.messages.entry((head.from, head.to)).or_default();
        *bytes += bytes_come;
        if Some(*bytes) == expected {
            step.complete += 1;
            if let Some(&process) = array.process_of.get(&head.from) {
                let complete = step.complete_of.entry(process).or_default();
                *complete += 1;
                step.done.extend((array.messages_of.get(&process) == Some(complete)).then_some(process));
            }
        }
        match frame.memory {
            FrameMemory::Own(bytes) if !early => frames.push(bytes),
            _ => step.early.push(frame),
        }
        Ok(())
    }

    fn shares(&mut self, _: ConnectionId, _: Arc<SlotMemory>) -> Result<(), String> {
        Err("the producer shared memory, which consumers do".into())
    }

    fn next(&mut self, id: ConnectionId) -> Option<(Head, Vec<u8>)> {
        self.outputs.get_mut(&id)?.pop_front()
    }

    fn sent(&mut self, _: ConnectionId, _: &Head, _: Vec<u8>) {}

    fn closed(&mut self, id: ConnectionId, why: &str) {
        self.outputs.remove(&id);
        self.shared.remove(&id);
        if self.paused.remove(&id) {
            return;
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::slots::SlotPool;

    const DATA: ConnectionId = 3;

    #[test]
    fn what_comes_through_shared_memory_is_handed_out_as_it_comes() {
        let memory = Arc::new(SlotMemory::new(2, 4096).unwrap().0);
        let mut pool = SlotPool::new(Arc::clone(&memory));
        let mut arrivals = Arrivals::default();
        let expected = [((0, 0), 8), ((1, 0), 4)].into_iter().collect();
        arrivals.arrays = vec![Arriving { expected, element: 4, ..Arriving::default() }];
        arrivals.outputs.insert(DATA, VecDeque::new());
        arrivals.share(DATA, memory);
        arrivals.want(0, 0);
        assert!(arrivals.coming(0, 0).is_none());
        let mut send = |arrivals: &mut Arrivals, from: u32, bytes: &[u8]| {
            let mut slot = pool.take(bytes.len()).unwrap();
            slot.copy_from_slice(bytes);
            let head = Head { from, ..Head::new(FrameKind::Slot, 0, 0) };
            arrivals.received(DATA, &head, slot.encode())
        };
        send(&mut arrivals, 0, b"elements").unwrap();
        let Some(Coming::Frames(frames)) = arrivals.coming(0, 0) else { panic!("it is there") };
        assert_eq!((frames.len(), frames[0].from, frames[0].bytes()), (1, 0, &b"elements"[..]));
        arrivals.give_back(frames);
        let freed = arrivals.next(DATA).unwrap().0;
        assert_eq!((freed.kind, freed.array), (FrameKind::Free, 0));
        assert_eq!(arrivals.arrays[0].missing(0), Some((1, 0)));
        assert!(send(&mut arrivals, 0, b"more").is_err(), "all of it has come");
        // What is short comes with its head, and is handed out as well.
        let head = Head { from: 1, ..Head::new(FrameKind::Data, 0, 0) }.with(b"four");
        arrivals.room(DATA, &head).unwrap();
        arrivals.received(DATA, &head, b"four".to_vec()).unwrap();
        assert!(matches!(arrivals.coming(0, 0), Some(Coming::Frames(frames)) if frames.len() == 1));
        assert!(matches!(arrivals.coming(0, 0), Some(Coming::Complete)));
    }

    #[test]
    fn memory_that_is_not_shared_is_not_looked_at() {
        let mut arrivals = Arrivals::default();
        let expected = [((0, 0), 8)].into_iter().collect();
        arrivals.arrays = vec![Arriving { expected, element: 4, ..Arriving::default() }];
        arrivals.want(0, 0);
        let head = Head { bytes: 8, ..Head::new(FrameKind::Slot, 0, 0) };
        assert!(arrivals.room(DATA, &head).is_err());
        arrivals.share(DATA, Arc::new(SlotMemory::new(2, 4096).unwrap().0));
        assert_eq!(arrivals.room(DATA, &head), Ok(Vec::new()));
        let slot = |number: u32, bytes: u32| [number.to_le_bytes(), bytes.to_le_bytes()].concat();
        for (wrong, why) in
            [(slot(2, 8), "no such slot"), (slot(0, 4097), "too long"), (slot(0, 12), "not asked for")]
        {
            assert!(arrivals.received(DATA, &head, wrong).is_err(), "{why}");
        }
        arrivals.received(DATA, &head, slot(1, 8)).unwrap();
    }
}
