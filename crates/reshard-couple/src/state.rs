//! What the publisher's I/O thread and its program share: connections, consumers, and the steps that wait to be sent.

use crate::frame::{FrameKind, Head, MAX_TEXT_BYTES};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::terms::{Announced, Hello, Process, Published, Queue, Text, Welcome, check};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames that are kept for the next step, in bytes.
const MAX_SPARE_BYTES: usize = 1 << 30;

/// Steps that a consumer may ask for before they are there.
const MAX_WANTED: usize = 1 << 16;

/// How long a consumer may take from its first word until it is ready.
const COMING_LIMIT: Duration = Duration::from_secs(60);

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
    since: Instant,
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
}

/// A step that has not been sent whole.
pub struct Step {
    pub announced: Announced,
    /// The consumer has been told of it: it is not dropped any more.
    pub taken: bool,
    /// Frames that were not asked for yet, by process.
    held: BTreeMap<u32, Vec<(Head, Vec<u8>)>>,
    /// Frames that were not given to the system yet.
    unsent: usize,
    /// There will be more of them.
    packing: bool,
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

    /// Memory for a frame, of any length.
    pub fn memory(&mut self) -> Vec<u8> {
        let memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        memory
    }

    fn keep(&mut self, memory: Vec<u8>) {
        if memory.capacity() > 0 && self.spare_bytes + memory.capacity() <= MAX_SPARE_BYTES {
            self.spare_bytes += memory.capacity();
            self.spare.push(memory);
        }
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
            .for_each(|(_, memory)| self.keep(memory));
    }

    /// Begins a step for a consumer: frames follow. Returns its number.
    pub fn begin_step(&mut self, id: ConsumerId, array: u32, number: u64, header: &[u8]) -> Option<u64> {
        let steps = self.consumers.get_mut(&id)?.arrays.get_mut(array as usize)?;
        let sequence = steps.next;
        let announced = Announced { array, sequence, number, header: header.to_vec() };
        let (drops, asked) = (steps.queue.drops, std::mem::take(&mut steps.asked));
        steps.next += 1;
        steps.waiting.push_back(Step {
            announced: announced.clone(),
            taken: !drops || asked,
            held: BTreeMap::new(),
            unsent: 0,
            packing: true,
        });
        if self.leads && (!drops || asked) {
            self.tell(id, &Text::Step(announced));
        }
        Some(sequence)
    }

    /// A frame of a step that was begun.
    pub fn add_frame(&mut self, id: ConsumerId, process: u32, head: Head, memory: Vec<u8>) {
        let key = (head.array, head.sequence);
        let found = self.consumers.get_mut(&id).and_then(|consumer| {
            let connection = *consumer.data.get(&process)?;
            let steps = consumer.arrays.get_mut(head.array as usize)?;
            let step = steps.waiting.iter_mut().find(|step| step.announced.sequence == head.sequence)?;
            step.unsent += 1;
            Some((connection, step))
        });
        let Some((connection, step)) = found else { return self.keep(memory) };
        match self.connections.get_mut(&connection) {
            Some(one) if one.wanted.contains(&key) => {
                one.output.push_back((head, memory));
                self.orders.write(connection);
            }
            _ => step.held.entry(process).or_default().push((head, memory)),
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
        steps.waiting.retain(|step| step.packing || step.unsent > 0 || (leads && !step.taken));
    }

    /// Drops a step that the consumer was not told of.
    pub fn drop_step(&mut self, id: ConsumerId, array: u32, sequence: u64) {
        let Some(steps) = self.consumers.get_mut(&id).and_then(|one| one.arrays.get_mut(array as usize))
        else {
            return;
        };
        let place = steps.waiting.iter().position(|step| step.announced.sequence == sequence);
        let dropped = place.and_then(|place| steps.waiting.remove(place));
        let held = dropped.into_iter().flat_map(|step| step.held.into_values().flatten());
        held.for_each(|(_, memory)| self.keep(memory));
    }

    /// The oldest step of each consumer's queue that is full and may drop steps: they make room for the next step of the array.
    pub fn full(&self, place: usize) -> Vec<(ConsumerId, u32, u64)> {
        let mut found = Vec::new();
        for (id, consumer) in self.consumers.iter().filter(|(_, one)| one.stage == Stage::Admitted) {
            for (array, steps) in (0..).zip(&consumer.arrays) {
                let of_array = consumer.places.get(array as usize) == Some(&place);
                let mut free = steps.waiting.iter().filter(|step| !step.taken);
                let count = free.clone().count();
                if of_array
                    && steps.queue.drops
                    && count >= steps.queue.depth as usize
                    && let Some(oldest) = free.next()
                {
                    found.push((*id, array, oldest.announced.sequence));
                }
            }
        }
        found
    }

    /// A consumer for whose array there is no room, and which does not drop steps.
    pub fn without_room(&self, place: usize) -> Option<ConsumerId> {
        let full = |consumer: &Consumer| {
            let arrays = consumer.arrays.iter().zip(&consumer.places).filter(|(_, of)| **of == place);
            arrays
                .into_iter()
                .any(|(steps, _)| !steps.queue.drops && steps.waiting.len() >= steps.queue.depth as usize)
        };
        let mut admitted = self.consumers.iter().filter(|(_, one)| one.stage == Stage::Admitted);
        admitted.find(|(_, consumer)| full(consumer)).map(|(id, _)| *id)
    }

    /// What a consumer says.
    fn text(&mut self, id: ConnectionId, text: Text) -> Result<(), String> {
        let consumer = self.connections.get(&id).and_then(|connection| connection.consumer);
        match (text, consumer) {
            (Text::Hello(hello), None) if self.leads => {
                match self.welcome(id, hello) {
                    Ok(welcome) => self.send_text(id, &Text::Welcome(welcome)),
                    Err(why) => {
                        self.last_refusal = Some(why.clone());
                        self.send_text(id, &Text::Refused { why });
                        self.orders.close(id);
                    }
                }
                Ok(())
            }
            (Text::Ready, Some(consumer)) => {
                if let Some(one) = self.consumers.get_mut(&consumer).filter(|one| one.stage == Stage::Comes) {
                    one.stage = Stage::Ready;
                }
                Ok(())
            }
            (Text::Next { array }, Some(consumer)) => {
                self.next_asked(consumer, array);
                Ok(())
            }
            (Text::Leave { complete }, Some(consumer)) => {
                // All its connections say so; the first counts.
                let first = self.consumers.get(&consumer).is_some_and(|one| one.stage == Stage::Admitted);
                self.complete += usize::from(complete && first);
                self.end(consumer, Stage::Left);
                Ok(())
            }
            (Text::Bye { why }, Some(consumer)) => {
                self.end(consumer, Stage::Lost(why));
                Ok(())
            }
            _ => Err("it said something out of turn".into()),
        }
    }

    /// A consumer waits for the next step of an array that may drop steps.
    fn next_asked(&mut self, id: ConsumerId, array: u32) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if consumer.stage != Stage::Admitted {
            consumer.asked.push(array);
            return;
        }
        let Some(steps) = consumer.arrays.get_mut(array as usize).filter(|steps| steps.queue.drops) else {
            return;
        };
        let waiting = steps.waiting.iter().find(|step| !step.taken).map(|step| step.announced.clone());
        match waiting {
            Some(announced) => {
                self.with_step(id, array, announced.sequence, |step| step.taken = true);
                self.tell(id, &Text::Step(announced));
            }
            None if steps.ended => self.tell(id, &Text::End { array }),
            None => steps.asked = true,
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
        }
    }

    /// True if nothing waits to be sent that was asked for.
    pub fn is_handed_over(&self) -> bool {
        self.connections.values().all(|connection| connection.output.is_empty() && connection.in_flight == 0)
    }

    /// True if nobody is left who gets steps from this process.
    pub fn all_left(&self) -> bool {
        let mut admitted = self.consumers.values().filter(|one| one.stage == Stage::Admitted);
        admitted.all(|consumer| consumer.control.is_none() && consumer.data.is_empty())
    }

    /// Gives up those that came long ago and never made all their connections, or never said what they want.
    fn end_late(&mut self, but: ConnectionId) {
        let late = |since: Instant| since.elapsed() > COMING_LIMIT;
        let coming = |(id, one): (&ConsumerId, &Consumer)| {
            (one.stage == Stage::Comes && late(one.since)).then_some(*id)
        };
        let coming: Vec<ConsumerId> = self.consumers.iter().filter_map(coming).collect();
        for id in coming {
            self.end(id, Stage::Lost(format!("consumer {id} did not make its connections in time")));
        }
        let silent = |(id, one): (&ConnectionId, &ConsumerLink)| {
            (one.consumer.is_none() && late(one.since) && *id != but).then_some(*id)
        };
        let silent: Vec<ConnectionId> = self.connections.iter().filter_map(silent).collect();
        silent.into_iter().for_each(|id| self.orders.close(id));
    }

    fn welcome(&mut self, id: ConnectionId, hello: Hello) -> Result<Welcome, String> {
        if self.ended {
            return Err("the producer has put its last step".into());
        }
        self.end_late(id);
        let there = |one: &&Consumer| !matches!(one.stage, Stage::Left | Stage::Lost(_));
        if self.consumers.values().filter(there).count() >= self.max_consumers {
            return Err(format!(
                "the producer has {} already, and was told to have no more at a time",
                if self.max_consumers == 1 {
                    "a consumer".into()
                } else {
                    format!("{} consumers", self.max_consumers)
                }
            ));
        }
        let places = check(&self.published, &hello, &self.processes)?;
        let layouts = places.iter().map(|&place| self.published[place].layout.clone()).collect();
        self.last_consumer += 1;
        let welcome = Welcome { consumer: self.last_consumer, processes: self.processes.clone(), layouts };
        let consumer = self.consumer(self.last_consumer);
        consumer.control = Some(id);
        consumer.places = places;
        consumer.hello = Some(Arc::new(hello));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.consumer = Some(welcome.consumer);
        }
        Ok(welcome)
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
            since: Instant::now(),
        })
    }

    /// From now on a consumer gets steps.
    pub fn admit(&mut self, id: ConsumerId, hello: &Arc<Hello>) {
        let published = &self.published;
        let place = |name: &str| published.iter().position(|one| one.name == name);
        let places = hello.arrays.iter().filter_map(|wanted| place(&wanted.name)).collect();
        let ended = self.ended;
        let consumer = self.consumer(id);
        let steps = |(array, queue): (u32, Queue)| Steps {
            queue,
            next: 0,
            waiting: VecDeque::new(),
            asked: consumer.asked.contains(&array),
            ended,
        };
        consumer.places = places;
        consumer.arrays = (0..).zip(hello.arrays.iter().map(|wanted| wanted.queue)).map(steps).collect();
        consumer.hello = Some(Arc::clone(hello));
        if matches!(consumer.stage, Stage::Comes | Stage::Ready) {
            consumer.stage = Stage::Admitted;
        }
    }

    /// The processes of a consumer that have a connection to this one.
    pub fn has_connection(&self, id: ConsumerId, process: u32) -> bool {
        self.consumers.get(&id).is_some_and(|consumer| consumer.data.contains_key(&process))
    }
}

impl Service for State {
    fn greeted(&mut self, id: ConnectionId, channel: Channel) -> Result<(), String> {
        let mut connection = ConsumerLink {
            consumer: None,
            process: None,
            output: VecDeque::new(),
            in_flight: 0,
            since: Instant::now(),
            wanted: HashSet::new(),
        };
        if let Channel::Data { consumer, process } = channel {
            (connection.consumer, connection.process) = (Some(consumer), Some(process));
            let one = self.consumer(consumer);
            if matches!(one.stage, Stage::Left | Stage::Lost(_)) || one.data.contains_key(&process) {
                return Err("it came for a consumer that has gone, or has this connection already".into());
            }
            one.data.insert(process, id);
        } else if !self.leads {
            return Err("the first process speaks for the producer, and this is another".into());
        }
        if connection.process.is_some() {
            // So that the consumer knows that it is there.
            connection.output.push_back((Head::new(FrameKind::Open, 0, 0), Vec::new()));
            self.orders.write(id);
        }
        self.connections.insert(id, connection);
        Ok(())
    }

    fn room(&mut self, id: ConnectionId, head: &Head) -> Result<Vec<u8>, String> {
        let data = self.connections.get(&id).is_some_and(|connection| connection.process.is_some());
        match (head.kind, data) {
            (FrameKind::Want, true) => Ok(Vec::new()),
            (FrameKind::Text, _) if head.bytes as usize <= MAX_TEXT_BYTES => Ok(Vec::new()),
            _ => Err("it sent a frame that consumers do not send".into()),
        }
    }

    fn received(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>) -> Result<(), String> {
        if head.kind == FrameKind::Text {
            return self.text(id, Text::decode(&body)?);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let (Some(consumer), Some(process)) = (connection.consumer, connection.process) else {
            return Ok(());
        };
        if connection.wanted.len() >= MAX_WANTED {
            return Err("it asked for more steps than it can have room for".into());
        }
        let key = (head.array, head.sequence);
        let one = self.consumers.get_mut(&consumer);
        let steps = one.and_then(|one| one.arrays.get_mut(head.array as usize));
        // One that was begun before and is not there any more was sent, or dropped.
        let comes = steps.as_ref().is_none_or(|steps| head.sequence >= steps.next);
        let step =
            steps.and_then(|steps| steps.waiting.iter_mut().find(|step| step.announced.sequence == key.1));
        // What is packed later goes out at once.
        if comes || step.as_ref().is_some_and(|step| step.packing) {
            connection.wanted.insert(key);
        }
        if let Some(step) = step {
            step.taken = true;
            connection.output.extend(step.held.remove(&process).into_iter().flatten());
            self.orders.write(id);
        }
        Ok(())
    }

    fn next(&mut self, id: ConnectionId) -> Option<(Head, Vec<u8>)> {
        let connection = self.connections.get_mut(&id)?;
        let frame = connection.output.pop_front()?;
        connection.in_flight += 1;
        Some(frame)
    }

    fn sent(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.in_flight -= 1;
        if let (FrameKind::Data, Some(consumer)) = (head.kind, connection.consumer) {
            self.with_step(consumer, head.array, head.sequence, |step| step.unsent -= 1);
            self.keep(body);
        }
    }

    fn closed(&mut self, id: ConnectionId, why: &str) {
        let Some(connection) = self.connections.remove(&id) else { return };
        connection.output.into_iter().for_each(|(_, memory)| self.keep(memory));
        let Some(consumer) = connection.consumer else { return };
        if let Some(one) = self.consumers.get_mut(&consumer) {
            one.data.retain(|_, other| *other != id);
            one.control = one.control.filter(|control| *control != id);
        }
        let who = match connection.process {
            Some(process) => format!("process {process} of consumer {consumer}"),
            None => format!("consumer {consumer}"),
        };
        self.end(consumer, Stage::Lost(format!("{who} is gone: {why}")));
    }

    fn refused(&mut self, why: String) {
        self.last_refusal = Some(why);
    }

    fn orders(&mut self) -> &mut Orders {
        &mut self.orders
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::terms::Wanted;

    const CONTROL: ConnectionId = 2;
    const DATA: ConnectionId = 3;

    /// A producer of one array with one consumer.
    fn state(queue: Queue) -> State {
        let process = |ranks| Process { address: "127.0.0.1:1".into(), ranks };
        let published = Published {
            name: "t".into(),
            element: "u32".parse().unwrap(),
            layout: "3/2 of 12".parse().unwrap(),
        };
        let wanted = Wanted {
            name: "t".into(),
            element: published.element,
            layout: "2/3 of 12".parse().unwrap(),
            window: None,
            queue,
        };
        let byte_order = crate::terms::BYTE_ORDER.into();
        let hello = Hello { byte_order, processes: vec![process(0..2)], arrays: vec![wanted] };
        let mut state = State::new(vec![published], vec![process(0..3)], 1, true);
        state.greeted(CONTROL, Channel::Control).unwrap();
        state.text(CONTROL, Text::Hello(hello.clone())).unwrap();
        state.greeted(DATA, Channel::Data { consumer: 1, process: 0 }).unwrap();
        state.text(CONTROL, Text::Ready).unwrap();
        state.admit(1, &Arc::new(hello));
        state
    }

    fn want(state: &mut State, sequence: u64) {
        let head = Head::new(FrameKind::Want, 0, sequence);
        state.received(DATA, &head, Vec::new()).unwrap();
    }

    fn put(state: &mut State, number: u64, frames: usize) {
        let sequence = state.begin_step(1, 0, number, b"").unwrap();
        for _ in 0..frames {
            state.add_frame(1, 0, Head::new(FrameKind::Data, 0, sequence), vec![7; 8]);
        }
        state.end_step(1, 0, sequence);
    }

    /// Sends all there is to send; returns the steps of the data.
    fn send_all(state: &mut State) -> Vec<u64> {
        let mut sent = Vec::new();
        for id in [CONTROL, DATA] {
            while let Some((head, body)) = state.next(id) {
                state.sent(id, &head, body);
                sent.extend((head.kind == FrameKind::Data).then_some(head.sequence));
            }
        }
        sent
    }

    #[test]
    fn a_step_is_sent_when_it_is_wanted_before_or_after_it_is_put() {
        let mut state = state(Queue { depth: 2, drops: false });
        want(&mut state, 0);
        put(&mut state, 0, 2);
        put(&mut state, 1, 2);
        assert_eq!(send_all(&mut state), [0, 0]);
        assert_eq!(state.without_room(0), None);
        put(&mut state, 2, 1);
        assert_eq!(state.without_room(0), Some(1));
        want(&mut state, 1);
        assert_eq!(send_all(&mut state), [1, 1]);
        assert_eq!(state.without_room(0), None);
    }

    #[test]
    fn nothing_is_kept_of_steps_of_which_this_process_sends_nothing() {
        for drops in [false, true] {
            let mut state = state(Queue { depth: 2, drops });
            for number in 0..1000 {
                if drops {
                    state.text(CONTROL, Text::Next { array: 0 }).unwrap();
                }
                put(&mut state, number, 0);
                // As late as a consumer's are.
                want(&mut state, number);
                send_all(&mut state);
            }
            assert_eq!(
                (state.connections[&DATA].wanted.len(), state.consumers[&1].arrays[0].waiting.len()),
                (0, 0)
            );
        }
    }

    #[test]
    fn the_oldest_step_that_was_not_announced_is_dropped() {
        let mut state = state(Queue { depth: 2, drops: true });
        put(&mut state, 0, 1);
        put(&mut state, 1, 1);
        assert_eq!(state.full(0), [(1, 0, 0)]);
        state.text(CONTROL, Text::Next { array: 0 }).unwrap();
        // Step 0 was announced: it stays, and there is room.
        assert_eq!(state.full(0), []);
        put(&mut state, 2, 1);
        assert_eq!(state.full(0), [(1, 0, 1)]);
        state.drop_step(1, 0, 1);
        want(&mut state, 0);
        assert_eq!(send_all(&mut state), [0]);
        state.text(CONTROL, Text::Next { array: 0 }).unwrap();
        want(&mut state, 2);
        assert_eq!(send_all(&mut state), [2]);
        assert_eq!(state.consumers[&1].arrays[0].waiting.len(), 0);
    }

    #[test]
    fn another_consumer_is_refused_while_there_is_one_and_after_the_end() {
        let mut state = state(Queue { depth: 1, drops: false });
        let hello = Hello::clone(state.consumers[&1].hello.as_ref().unwrap());
        assert!(state.welcome(9, hello.clone()).unwrap_err().contains("a consumer already"));
        state.text(CONTROL, Text::Leave { complete: false }).unwrap();
        assert_eq!(state.welcome(9, hello.clone()).unwrap().consumer, 2);
        state.end(2, Stage::Left);
        state.end_all();
        assert!(state.welcome(9, hello).unwrap_err().contains("last step"));
        assert_eq!(state.complete, 0);
    }
}
