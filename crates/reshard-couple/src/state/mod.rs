//! What the publisher's I/O thread and its program share: connections, consumers, and the steps that wait to be sent.

mod heard;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod waiting;

use crate::frame::{FrameKind, Head};
use crate::service::{ConnectionId, Orders};
use crate::slots::{Buffer, Filled, SlotWriter};
use crate::terms::{Announced, Hello, MAX_QUEUED, Process, Published, Queue, Text, Wanted};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use waiting::took_no_step;

/// Frames that are kept for the next step, in bytes.
const MAX_SPARE_BYTES: usize = 1 << 30;

/// Steps that a consumer may ask for before they are there.
const MAX_WANTED: usize = 2 * MAX_QUEUED as usize;

/// Where the consumer reads as fast as this side packs, frames that are packed ahead of it: few, so that they stay in the caches.
const AHEAD: usize = 2;

/// How long a consumer may take from its first word until it is ready.
const COMING_LIMIT: Duration = Duration::from_secs(60);

/// Whom to wait for where frames are ahead, although there is memory for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    None,
    /// Those who take a step right now.
    Awaited,
    /// All: who has taken a step may take the next in a moment.
    Always,
}

/// The number of a consumer.
pub type ConsumerId = u64;

/// What the thread and the program of a publisher share.
pub struct State {
    orders: Orders,
    connections: BTreeMap<ConnectionId, ConsumerLink>,
    pub consumers: BTreeMap<ConsumerId, Consumer>,
    pub published: Vec<Published>,
    pub processes: Vec<Process>,
    pub max_consumers: usize,
    /// This process speaks with consumers.
    pub leads: bool,
    last_consumer: ConsumerId,
    /// There are no more steps.
    ended: bool,
    /// Consumers that left after they had taken all.
    pub complete: usize,
    /// Why somebody was turned away last.
    pub last_refusal: Option<String>,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

/// A connection that has proved the secret.
struct ConsumerLink {
    consumer: Option<ConsumerId>,
    /// Of the consumer; none for the leaders' connection.
    process: Option<u32>,
    output: VecDeque<(Head, Vec<u8>)>,
    since: Instant,
    /// Frames that are being sent.
    in_flight: usize,
    /// Steps that were asked for and are not there yet.
    wanted: HashSet<(u32, u64)>,
    /// Memory that both processes share.
    slots: Option<SlotWriter>,
}

/// A consumer, as one process sees it.
pub struct Consumer {
    pub hello: Option<Arc<Hello>>,
    /// The places of its arrays among those published.
    pub places: Vec<usize>,
    control: Option<ConnectionId>,
    data: BTreeMap<u32, ConnectionId>,
    pub stage: Stage,
    pub arrays: Vec<Steps>,
    /// Arrays of which it waits for a step since before it was admitted.
    asked: Vec<u32>,
    /// Its connections for data come and go.
    few_connections: bool,
    since: Instant,
    /// When something was sent to it last.
    moved: Instant,
}

impl Consumer {
    /// True if it wants an array of this number.
    fn asks_for(&self, array: u32) -> bool {
        self.hello.as_ref().is_some_and(|hello| (array as usize) < hello.arrays.len())
    }
}

/// How far a consumer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was welcomed, and makes its connections.
    Comes,
    /// It has all its connections.
    Ready,
    /// It gets steps.
    Admitted,
    /// It said that it wants no more.
    Left,
    Lost(String),
}

/// The steps of one array that go to one consumer.
pub struct Steps {
    pub queue: Queue,
    /// The number of the next step.
    pub next: u64,
    pub waiting: VecDeque<Step>,
    /// The consumer waits for one; only where steps may be dropped.
    asked: bool,
    /// There will be no more.
    ended: bool,
    /// They have no elements, so only what the consumer says makes room for more.
    empty: bool,
}

/// A step that has not been sent whole.
pub struct Step {
    pub announced: Announced,
    /// The consumer has been told of it: it is not dropped any more.
    pub taken: bool,
    /// Frames that were not asked for yet, by process.
    held: BTreeMap<u32, Vec<(Head, Buffer)>>,
    /// Frames that were not given to the system yet.
    unsent: usize,
    /// There will be more of them.
    packing: bool,
    /// The consumer will say that it took it.
    untaken: bool,
}

impl State {
    pub fn new(
        published: Vec<Published>,
        processes: Vec<Process>,
        max_consumers: usize,
        leads: bool,
    ) -> Self {
        Self {
            orders: Orders::default(),
            connections: BTreeMap::new(),
            consumers: BTreeMap::new(),
            published,
            processes,
            max_consumers,
            leads,
            last_consumer: 0,
            ended: false,
            complete: 0,
            last_refusal: None,
            spare: Vec::new(),
            spare_bytes: 0,
        }
    }

    /// Memory for a frame of so many bytes that goes to a process of a consumer: shared with it, if that is possible. None if it is to be
    /// waited for: nothing is free or, if one is patient, a little will have been sent or read in a moment.
    pub fn memory(
        &mut self,
        id: ConsumerId,
        process: u32,
        bytes: usize,
        patience: Patience,
    ) -> Option<Buffer> {
        // What is for one that is gone is packed in vain.
        let consumer = self.consumers.get(&id).filter(|one| one.stage == Stage::Admitted);
        let connection = consumer.and_then(|one| one.data.get(&process));
        let mut link = connection.and_then(|connection| self.connections.get_mut(connection));
        if patience != Patience::None && link.as_ref().is_some_and(|link| link.output.len() >= AHEAD) {
            return None;
        }
        if let Some(slots) = link.as_mut().and_then(|link| link.slots.as_mut()) {
            let waits = match patience {
                Patience::None => false,
                Patience::Awaited => slots.is_awaited(),
                Patience::Always => true,
            };
            let slot = slots.taken().and_then(|taken| match waits && taken >= AHEAD {
                true => Ok(None),
                false => slots.take(bytes),
            });
            match slot {
                Ok(slot) => return slot.map(Buffer::Slot),
                Err(why) => self.end(id, Stage::Lost(format!("process {process} of consumer {id}: {why}"))),
            }
        }
        let mut memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        memory.resize(bytes, 0);
        Some(Buffer::Own(memory))
    }

    /// The memory of a frame that was sent, or is not to be sent, may be used again.
    fn keep(&mut self, memory: Vec<u8>) {
        if memory.capacity() > 0 && self.spare_bytes + memory.capacity() <= MAX_SPARE_BYTES {
            self.spare_bytes += memory.capacity();
            self.spare.push(memory);
        }
    }

    fn keep_buffer(&mut self, buffer: Buffer) {
        // Slots end with their connection.
        if let Buffer::Own(memory) = buffer {
            self.keep(memory);
        }
    }

    /// Sends a frame that was asked for. True if the thread has something to send.
    fn dispatch(&mut self, connection: ConnectionId, head: Head, buffer: Buffer) -> bool {
        let Some(link) = self.connections.get_mut(&connection) else {
            self.keep_buffer(buffer);
            return false;
        };
        let frame = match (buffer, &mut link.slots) {
            (Buffer::Own(memory), _) => Some((head, memory)),
            (Buffer::Slot(slot), Some(slots)) => {
                let (slot, bytes) = slot.filled();
                let Head { sequence, array, from, to, .. } = head;
                let wake = slots.send(Filled { sequence, array, from, to, slot, bytes, unused: 0 });
                wake.then(|| (Head::new(FrameKind::Wake, 0, 0), Vec::new()))
            }
            (Buffer::Slot(_), None) => None,
        };
        let by_socket = matches!(&frame, Some((head, _)) if head.kind == FrameKind::Data);
        let queued = frame.is_some();
        if let Some(frame) = frame {
            link.output.push_back(frame);
            self.orders.write(connection);
        }
        if let Some(consumer) = link.consumer.filter(|_| !by_socket) {
            self.with_step(consumer, head.array, head.sequence, |step| step.unsent -= 1);
        }
        queued
    }

    fn send_text(&mut self, id: ConnectionId, text: &Text) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.output.push_back((Head::new(FrameKind::Text, 0, 0), text.encode()));
            self.orders.write(id);
        }
    }

    /// Says something to a consumer, if it is there.
    pub fn tell(&mut self, consumer: ConsumerId, text: &Text) {
        if let Some(control) = self.consumers.get(&consumer).and_then(|one| one.control) {
            self.send_text(control, text);
        }
    }

    /// Ends the coupling with a consumer. Its connections are closed after what is said; its steps are dropped.
    pub fn end(&mut self, id: ConsumerId, stage: Stage) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if matches!(consumer.stage, Stage::Left | Stage::Lost(_)) {
            return;
        }
        let why = match &stage {
            Stage::Lost(why) => Some(why.clone()),
            _ => None,
        };
        if let (Stage::Comes | Stage::Ready, Some(why)) = (&consumer.stage, &why) {
            // It never got a step: whoever waits for it is to know.
            self.last_refusal = Some(why.clone());
        }
        consumer.stage = stage;
        consumer.hello = None;
        let connections: Vec<ConnectionId> =
            consumer.control.into_iter().chain(consumer.data.values().copied()).collect();
        let steps: Vec<Step> = consumer.arrays.iter_mut().flat_map(|steps| steps.waiting.drain(..)).collect();
        for connection in connections {
            if let Some(why) = &why {
                let output = self.connections.get_mut(&connection).map(|one| std::mem::take(&mut one.output));
                output.into_iter().flatten().for_each(|(_, memory)| self.keep(memory));
                self.send_text(connection, &Text::Bye { why: why.clone() });
            }
            self.orders.close(connection);
        }
        steps
            .into_iter()
            .flat_map(|step| step.held.into_values().flatten())
            .for_each(|(_, buffer)| self.keep_buffer(buffer));
    }

    /// Begins a step for a consumer: frames follow. Returns its number.
    pub fn begin_step(&mut self, id: ConsumerId, array: u32, number: u64, header: &[u8]) -> Option<u64> {
        let steps = self.consumers.get_mut(&id)?.arrays.get_mut(array as usize)?;
        let sequence = steps.next;
        let announced = Announced { array, sequence, number, header: header.to_vec() };
        let (drops, asked) = (steps.queue.drops, std::mem::take(&mut steps.asked));
        let untaken = self.leads && steps.empty && !drops;
        steps.next += 1;
        steps.waiting.push_back(Step {
            announced: announced.clone(),
            taken: !drops || asked,
            held: BTreeMap::new(),
            unsent: 0,
            packing: true,
            untaken,
        });
        if self.leads && (!drops || asked) {
            self.tell(id, &Text::Step(announced));
        }
        Some(sequence)
    }

    /// A frame of a step that was begun. True if the thread has something to send: what goes through shared memory is there already.
    pub fn add_frame(&mut self, id: ConsumerId, process: u32, head: Head, buffer: Buffer) -> bool {
        let key = (head.array, head.sequence);
        let found = self.consumers.get_mut(&id).and_then(|consumer| {
            let connection = consumer.data.get(&process).copied();
            if connection.is_none() && !consumer.few_connections {
                return None;
            }
            let steps = consumer.arrays.get_mut(head.array as usize)?;
            let step = steps.waiting.iter_mut().find(|step| step.announced.sequence == head.sequence)?;
            step.unsent += 1;
            Some((connection, step))
        });
        let Some((connection, step)) = found else {
            self.keep_buffer(buffer);
            return false;
        };
        let wants = |id: &ConnectionId| self.connections.get(id).is_some_and(|one| one.wanted.contains(&key));
        match connection.filter(wants) {
            Some(connection) => self.dispatch(connection, head, buffer),
            None => {
                step.held.entry(process).or_default().push((head, buffer));
                false
            }
        }
    }

    /// All frames of a step were added.
    pub fn end_step(&mut self, id: ConsumerId, array: u32, sequence: u64) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            for connection in consumer.data.values() {
                if let Some(one) = self.connections.get_mut(connection) {
                    one.wanted.remove(&(array, sequence));
                }
            }
        }
        self.with_step(id, array, sequence, |step| step.packing = false);
    }

    /// Does something with a step, and forgets those that were sent.
    fn with_step(&mut self, id: ConsumerId, array: u32, sequence: u64, change: impl FnOnce(&mut Step)) {
        let Some(steps) = self.consumers.get_mut(&id).and_then(|one| one.arrays.get_mut(array as usize))
        else {
            return;
        };
        if let Some(step) = steps.waiting.iter_mut().find(|step| step.announced.sequence == sequence) {
            change(step);
        }
        // What the consumer was not told of may still be asked for, where the leader is.
        let leads = self.leads;
        steps
            .waiting
            .retain(|step| step.packing || step.unsent > 0 || step.untaken || (leads && !step.taken));
    }

    /// Drops a step that the consumer was not told of.
    pub fn drop_step(&mut self, id: ConsumerId, array: u32, sequence: u64) {
        let Some(steps) = self.consumers.get_mut(&id).and_then(|one| one.arrays.get_mut(array as usize))
        else {
            return;
        };
        let place = steps.waiting.iter().position(|step| step.announced.sequence == sequence);
        let dropped = place.and_then(|place| steps.waiting.remove(place));
        for (process, frames) in dropped.into_iter().flat_map(|step| step.held) {
            let connection = self.consumers.get(&id).and_then(|one| one.data.get(&process)).copied();
            for (_, buffer) in frames {
                match buffer {
                    Buffer::Own(memory) => self.keep(memory),
                    Buffer::Slot(slot) => {
                        let link = connection.and_then(|connection| self.connections.get_mut(&connection));
                        if let Some(slots) = link.and_then(|link| link.slots.as_mut()) {
                            slots.give_back(slot.filled().0);
                        }
                    }
                }
            }
        }
    }

    /// There are no more steps: tells those who wait for one.
    pub fn end_all(&mut self) {
        self.ended = true;
        let mut told = Vec::new();
        for (id, consumer) in self.consumers.iter_mut().filter(|(_, one)| one.stage == Stage::Admitted) {
            for (array, steps) in (0..).zip(&mut consumer.arrays) {
                steps.ended = true;
                if !steps.queue.drops || std::mem::take(&mut steps.asked) {
                    told.push((*id, array));
                }
            }
        }
        if self.leads {
            told.into_iter().for_each(|(id, array)| self.tell(id, &Text::End { array }));
            let ready = self.consumers.iter().filter(|(_, one)| one.stage == Stage::Ready);
            let ready: Vec<ConsumerId> = ready.map(|(id, _)| *id).collect();
            ready.into_iter().for_each(|id| self.end_ready(id));
        }
    }

    /// Tells a consumer that came when there were no more steps.
    fn end_ready(&mut self, id: ConsumerId) {
        let Some(one) = self.consumers.get(&id) else { return };
        let wanted = one.hello.iter().flat_map(|hello| &hello.arrays);
        let waits = |(array, wanted): &(u32, &Wanted)| !wanted.queue.drops || one.asked.contains(array);
        let told: Vec<u32> = (0..).zip(wanted).filter(waits).map(|(array, _)| array).collect();
        told.into_iter().for_each(|array| self.tell(id, &Text::End { array }));
    }

    /// True once there are no more steps: nobody is to come in any more.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn consumer(&mut self, id: ConsumerId) -> &mut Consumer {
        self.consumers.entry(id).or_insert_with(|| Consumer {
            hello: None,
            places: Vec::new(),
            control: None,
            data: BTreeMap::new(),
            stage: Stage::Comes,
            arrays: Vec::new(),
            asked: Vec::new(),
            few_connections: false,
            since: Instant::now(),
            moved: Instant::now(),
        })
    }

    /// From now on a consumer gets steps.
    pub fn admit(&mut self, id: ConsumerId, hello: &Arc<Hello>) {
        let published = &self.published;
        let place = |name: &str| published.iter().position(|one| one.name == name);
        let places = hello.arrays.iter().filter_map(|wanted| place(&wanted.name)).collect();
        let ended = self.ended;
        let consumer = self.consumer(id);
        let steps = |(array, wanted): (u32, &Wanted)| Steps {
            queue: wanted.queue,
            next: 0,
            waiting: VecDeque::new(),
            asked: consumer.asked.contains(&array),
            ended,
            empty: wanted.is_empty(),
        };
        consumer.places = places;
        consumer.arrays = (0..).zip(&hello.arrays).map(steps).collect();
        consumer.hello = Some(Arc::clone(hello));
        consumer.few_connections = hello.few_connections;
        if matches!(consumer.stage, Stage::Comes | Stage::Ready) {
            consumer.stage = Stage::Admitted;
        }
    }

    /// True if something is sent through shared memory.
    pub fn shares_memory(&self) -> bool {
        self.connections.values().any(|connection| connection.slots.is_some())
    }

    /// The processes of a consumer that have a connection to this one.
    pub fn has_connection(&self, id: ConsumerId, process: u32) -> bool {
        self.consumers.get(&id).is_some_and(|consumer| consumer.data.contains_key(&process))
    }
}
