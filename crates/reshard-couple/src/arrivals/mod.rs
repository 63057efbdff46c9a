//! What the subscriber's I/O thread and its program share: connections, and the frames that have come.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

mod steps;

use crate::frame::{FrameKind, Head};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::slots::{SlotMemory, SlotReader};
use crate::stream::Stream;
use crate::terms::{MAX_HEADER_BYTES, Text};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
pub use steps::{ArrivedFrame, Arriving, Coming};
use steps::{FrameMemory, out_of_turn, take_slot};

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
                // In each queue as many as were asked for, as many that wait to be, one that is packed and one that is taken.
                let room: usize = self.arrays.iter().map(|array| 2 * array.depth as usize + 2).sum();
                let announced_before: usize = self.arrays.iter().map(|array| array.announced.len()).sum();
                let Some(array) = self.arrays.get_mut(announced.array as usize) else {
                    return Err("the producer announced a step of an array that it does not send".into());
                };
                if announced_before >= room || announced.header.len() > MAX_HEADER_BYTES {
                    return Err("the producer announced more than the queues have room for".into());
                }
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

    fn shares(&mut self, id: ConnectionId, memory: Option<Arc<SlotMemory>>) -> Result<(), String> {
        // Once it was asked for a step it is too late.
        let asked = self.arrays.iter().any(|array| !array.steps.is_empty());
        match memory {
            None if !asked && self.shared.remove(&id).is_some() => Ok(()),
            _ => Err("the producer shared memory, which consumers do".into()),
        }
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
