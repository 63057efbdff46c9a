//! What the subscriber's I/O thread and its program share: connections, and the frames that have come.

use crate::frame::{FrameKind, Head, data_bytes};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::slots::{Filled, ReadSlot, SlotMemory, SlotReader};
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
    shared: BTreeMap<ConnectionId, SlotReader>,
    /// Connections for data that the other side has.
    pub opened: usize,
    pub arrays: Vec<Arriving>,
    /// What the producer's leader answered first.
    pub answer: Option<Text>,
    /// Why the coupling is over, if it is.
    pub over: Option<String>,
    /// Why no step can be taken any more, not even what has come: parts of one were unpacked, and the rest did not come in time.
    pub torn: Option<String>,
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
    /// Steps before this one are taken, or were given up.
    pub first: u64,
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
    /// Bytes that have come of each message.
    messages: HashMap<(u32, u32), u64>,
    complete: usize,
    /// Where connections come and go: messages that are complete, by process, and processes of which all are.
    complete_of: HashMap<u32, usize>,
    done: Vec<u32>,
    /// Frames that were not unpacked yet; those of a message are in their order.
    frames: Vec<ArrivedFrame>,
}

/// A frame that has come.
pub struct ArrivedFrame {
    pub from: u32,
    pub to: u32,
    memory: FrameMemory,
}

enum FrameMemory {
    Own(Vec<u8>),
    /// Shared with the other end of this connection.
    Slot(ReadSlot, ConnectionId),
}

impl ArrivedFrame {
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            FrameMemory::Own(bytes) => bytes,
            FrameMemory::Slot(slot, _) => slot,
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

    /// Fails unless so many bytes of a message were asked for, and have not come yet.
    fn check(&self, sequence: u64, message: (u32, u32), bytes: u32) -> Result<(), String> {
        let step = self.steps.get(&sequence).ok_or_else(out_of_turn)?;
        let expected = self.expected.get(&message).ok_or_else(out_of_turn)?;
        let got = step.messages.get(&message).copied().unwrap_or(0);
        let whole = bytes > 0 && u64::from(bytes).is_multiple_of(self.element);
        let fits = whole && bytes as usize <= data_bytes(self.element) && got + u64::from(bytes) <= *expected;
        if fits { Ok(()) } else { Err(out_of_turn()) }
    }

    /// Counts bytes of a message that have come, and takes note of messages and processes of which all have.
    fn count(&mut self, sequence: u64, message: (u32, u32), bytes: u64) {
        let step = self.steps.entry(sequence).or_default();
        let got = step.messages.entry(message).or_default();
        *got += bytes;
        if Some(&*got) != self.expected.get(&message) {
            return;
        }
        step.complete += 1;
        if let Some(&process) = self.process_of.get(&message.0) {
            let complete = step.complete_of.entry(process).or_default();
            *complete += 1;
            step.done.extend((self.messages_of.get(&process) == Some(complete)).then_some(process));
        }
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
            step.and_then(|step| step.messages.get(key)).is_some_and(|got| *got == bytes)
        };
        self.expected.iter().filter(|(key, bytes)| !there(key, **bytes)).map(|(key, _)| *key).min()
    }
}

fn out_of_turn() -> String {
    "the producer sent something that was not asked for".into()
}

/// Takes note of a slot that was filled.
fn take_slot(
    arrays: &mut [Arriving],
    reader: &mut SlotReader,
    connection: ConnectionId,
    filled: &Filled,
    slot: ReadSlot,
) -> Result<(), String> {
    let array = arrays.get_mut(filled.array as usize).ok_or_else(out_of_turn)?;
    if filled.sequence < array.first && !array.steps.contains_key(&filled.sequence) {
        // Given up meanwhile.
        reader.free(&slot);
        return Ok(());
    }
    let message = (filled.from, filled.to);
    array.check(filled.sequence, message, filled.bytes)?;
    array.count(filled.sequence, message, u64::from(filled.bytes));
    let step = array.steps.entry(filled.sequence).or_default();
    let memory = FrameMemory::Slot(slot, connection);
    step.frames.push(ArrivedFrame { from: filled.from, to: filled.to, memory });
    Ok(())
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
        self.shared.insert(id, SlotReader::new(memory));
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

    /// What has come of a step since the last time; if it is to be `whole`, only that all of it has.
    pub fn coming(&mut self, array: usize, sequence: u64, whole: bool) -> Option<Coming> {
        if let Some(why) = &self.torn {
            return Some(Coming::Over(why.clone()));
        }
        self.look();
        let arriving = &mut self.arrays[array];
        let complete = arriving.is_complete(sequence);
        if let Some(step) = arriving.steps.get_mut(&sequence) {
            if !whole && !step.frames.is_empty() {
                return Some(Coming::Frames(std::mem::take(&mut step.frames)));
            }
            if let Some(process) = step.done.pop() {
                return Some(Coming::Done(process));
            }
        }
        if complete { Some(Coming::Complete) } else { self.over.clone().map(Coming::Over) }
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

    /// Takes note of what has come through shared memory.
    fn look(&mut self) {
        let Self { shared, arrays, over, .. } = self;
        for (&connection, reader) in shared {
            loop {
                let took = match reader.next() {
                    Ok(None) => break,
                    Ok(Some((filled, slot))) => take_slot(arrays, reader, connection, &filled, slot),
                    Err(why) => Err(why),
                };
                if let Err(why) = took {
                    over.get_or_insert(why);
                    break;
                }
            }
        }
    }

    /// Gives a frame back that was unpacked.
    pub fn give_back(&mut self, frame: ArrivedFrame) {
        match frame.memory {
            FrameMemory::Slot(slot, connection) => {
                self.shared.get_mut(&connection).into_iter().for_each(|reader| reader.free(&slot));
            }
            FrameMemory::Own(bytes) => {
                if self.spare_bytes + bytes.capacity() <= MAX_SPARE_BYTES {
                    self.spare_bytes += bytes.capacity();
                    self.spare.push(bytes);
                }
            }
        }
    }

    /// Says to those that share memory whether a step is taken right now.
    pub fn receives(&self, receives: bool) {
        self.shared.values().for_each(|reader| reader.receives(receives));
    }

    /// Those that share memory are to wake this process from now on.
    pub fn sleeps(&self) {
        self.shared.values().for_each(SlotReader::sleeps);
    }

    /// Takes a step: what of it was not unpacked yet.
    pub fn take(&mut self, array: usize, sequence: u64) -> Vec<ArrivedFrame> {
        self.arrays[array].first = sequence + 1;
        self.arrays[array].steps.remove(&sequence).map_or(Vec::new(), |step| step.frames)
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
            FrameKind::Text | FrameKind::Open | FrameKind::Wake => return Ok(Vec::new()),
            FrameKind::Data if !self.shared.contains_key(&id) => {
                let array = self.arrays.get(head.array as usize).ok_or_else(out_of_turn)?;
                array.check(head.sequence, (head.from, head.to), head.bytes)?;
            }
            _ => return Err("the producer sent a frame that producers do not send".into()),
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
            FrameKind::Data => {}
            // Whoever waits looks now.
            _ => return Ok(()),
        }
        let array = self.arrays.get_mut(head.array as usize);
        // Given up meanwhile, if it is not there.
        if let Some(array) = array.filter(|array| array.steps.contains_key(&head.sequence)) {
            array.count(head.sequence, (head.from, head.to), body.len() as u64);
            let step = array.steps.entry(head.sequence).or_default();
            step.frames.push(ArrivedFrame { from: head.from, to: head.to, memory: FrameMemory::Own(body) });
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
        // What it sent before is there.
        self.look();
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
    use crate::slots::SlotWriter;

    const DATA: ConnectionId = 3;

    /// A consumer that waits for a step of two messages through shared memory, and the producer's end of it.
    fn arrivals() -> (Arrivals, SlotWriter) {
        let (memory, passed) = SlotMemory::new(2, 4096).unwrap();
        let writer = SlotWriter::new(Arc::new(SlotMemory::of(&passed, 2, 4096).unwrap()));
        let mut arrivals = Arrivals::default();
        let expected = [((0, 0), 8), ((1, 0), 4)].into_iter().collect();
        arrivals.arrays = vec![Arriving { expected, element: 4, ..Arriving::default() }];
        arrivals.outputs.insert(DATA, VecDeque::new());
        arrivals.share(DATA, Arc::new(memory));
        arrivals.want(0, 0);
        (arrivals, writer)
    }

    fn send(writer: &mut SlotWriter, from: u32, bytes: &[u8]) {
        let mut slot = writer.take(bytes.len()).unwrap().unwrap();
        slot.copy_from_slice(bytes);
        let (slot, bytes) = slot.filled();
        writer.send(Filled { sequence: 0, array: 0, from, to: 0, slot, bytes, unused: 0 });
    }

    #[test]
    fn what_comes_through_shared_memory_is_handed_out_as_it_comes() {
        let (mut arrivals, mut writer) = arrivals();
        assert!(arrivals.coming(0, 0, false).is_none());
        send(&mut writer, 0, b"elements");
        let Some(Coming::Frames(frames)) = arrivals.coming(0, 0, false) else { panic!("it is there") };
        assert_eq!((frames.len(), frames[0].from, frames[0].bytes()), (1, 0, &b"elements"[..]));
        assert_eq!(writer.taken(), Ok(1));
        frames.into_iter().for_each(|frame| arrivals.give_back(frame));
        assert_eq!(writer.taken(), Ok(0));
        assert_eq!(arrivals.arrays[0].missing(0), Some((1, 0)));
        // What was sent before a producer is gone is there.
        send(&mut writer, 1, b"four");
        arrivals.closed(DATA, "the end");
        assert!(
            matches!(arrivals.coming(0, 0, false), Some(Coming::Frames(frames)) if frames[0].bytes() == b"four")
        );
        assert!(matches!(arrivals.coming(0, 0, false), Some(Coming::Complete)));
    }

    #[test]
    fn who_wants_whole_steps_gets_them_when_all_is_there() {
        let (mut arrivals, mut writer) = arrivals();
        send(&mut writer, 0, b"elements");
        assert!(arrivals.coming(0, 0, true).is_none());
        send(&mut writer, 1, b"four");
        assert!(matches!(arrivals.coming(0, 0, true), Some(Coming::Complete)));
        let frames = arrivals.take(0, 0);
        assert_eq!(frames.iter().map(ArrivedFrame::bytes).collect::<Vec<_>>(), [&b"elements"[..], b"four"]);
    }

    /// What was unpacked elsewhere is not to be taken for a part of the next attempt.
    #[test]
    fn of_a_step_that_was_torn_nothing_is_handed_out() {
        let (mut arrivals, mut writer) = arrivals();
        send(&mut writer, 0, b"elements");
        send(&mut writer, 1, b"four");
        arrivals.torn = Some("late".into());
        assert!(matches!(arrivals.coming(0, 0, false), Some(Coming::Over(why)) if why == "late"));
    }

    #[test]
    fn what_was_not_asked_for_ends_the_coupling() {
        for (from, bytes) in [(0, &b"twelve bytes"[..]), (2, b"four"), (1, b"odd")] {
            let (mut arrivals, mut writer) = arrivals();
            send(&mut writer, from, bytes);
            assert!(
                matches!(arrivals.coming(0, 0, false), Some(Coming::Over(why)) if why.contains("not asked for"))
            );
        }
        // Nor does data come by the socket of who shares memory.
        let (mut arrivals, _) = arrivals();
        let head = Head::new(FrameKind::Data, 0, 0).with(b"elements");
        assert!(arrivals.room(DATA, &head).is_err());
        arrivals.shared.clear();
        assert_eq!(arrivals.room(DATA, &head), Ok(Vec::new()));
    }
}
