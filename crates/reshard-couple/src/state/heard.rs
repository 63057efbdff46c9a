//! What the I/O thread tells of consumers: who connected, what they said and asked for, who is gone.

use super::{COMING_LIMIT, Consumer, ConsumerId, ConsumerLink, MAX_WANTED, Stage, State};
use crate::frame::{FrameKind, Head, MAX_TEXT_BYTES};
use crate::greeting::Channel;
use crate::service::{ConnectionId, Orders, Service};
use crate::slots::{SlotMemory, SlotWriter};
use crate::terms::{Hello, MAX_REASON, Text, Welcome, check};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The most bytes of a text of a consumer that has said what it wants, and on connections for data.
const MAX_LATER_TEXT_BYTES: usize = 1 << 16;

impl State {
    /// What a consumer says.
    pub(super) fn text(&mut self, id: ConnectionId, text: Text) -> Result<(), String> {
        let consumer = self.connections.get(&id).and_then(|connection| connection.consumer);
        match (text, consumer) {
            (Text::Hello(hello), None) if self.leads => {
                match self.welcome(id, hello) {
                    Ok(welcome) => self.send_text(id, &Text::Welcome(welcome)),
                    Err(why) => {
                        // It may name what the consumer named, however long that is.
                        let why: String = why.chars().take(MAX_REASON).collect();
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
                    if self.ended {
                        self.end_ready(consumer);
                    }
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
            (Text::Pause, Some(consumer)) => self.pause(id, consumer),
            (Text::Bye { why }, Some(consumer)) => {
                let why: String = why.chars().take(MAX_REASON).collect();
                self.end(consumer, Stage::Lost(format!("consumer {consumer} is gone: {why}")));
                Ok(())
            }
            _ => Err("it said something out of turn".into()),
        }
    }

    /// A consumer closes a connection for now.
    fn pause(&mut self, id: ConnectionId, consumer: ConsumerId) -> Result<(), String> {
        let pauses = |one: &&mut Consumer| one.few_connections;
        let one = self.consumers.get_mut(&consumer).filter(pauses);
        let link = self.connections.get_mut(&id).filter(|link| link.process.is_some());
        let (Some(one), Some(link)) = (one, link) else { return Err("it said something out of turn".into()) };
        if !link.output.is_empty() || link.in_flight > 0 {
            return Err("it closed a connection on which it had asked for more".into());
        }
        one.data.retain(|_, other| *other != id);
        link.consumer = None;
        self.orders.close(id);
        Ok(())
    }

    /// A consumer waits for the next step of an array that may drop steps, or has taken one that has no elements.
    pub(super) fn next_asked(&mut self, id: ConsumerId, array: u32) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if consumer.stage != Stage::Admitted {
            if self.ended {
                self.tell(id, &Text::End { array });
            } else if !consumer.asked.contains(&array) && consumer.asks_for(array) {
                consumer.asked.push(array);
            }
            return;
        }
        let Some(steps) = consumer.arrays.get_mut(array as usize) else { return };
        if !steps.queue.drops {
            // It has taken the oldest of those without elements.
            let oldest = steps.waiting.iter().find(|step| step.untaken).map(|step| step.announced.sequence);
            if let Some(sequence) = oldest {
                self.with_step(id, array, sequence, |step| step.untaken = false);
            }
            return;
        }
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

    /// Gives up those that came long ago and never made all their connections, or never said what they want.
    pub(super) fn end_late(&mut self, but: ConnectionId) {
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

    pub(super) fn welcome(&mut self, id: ConnectionId, hello: Hello) -> Result<Welcome, String> {
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
            slots: None,
        };
        if let Channel::Data { consumer, process } = channel {
            (connection.consumer, connection.process) = (Some(consumer), Some(process));
            let one = self.consumer(consumer);
            let again = one.data.contains_key(&process) && !one.few_connections;
            if matches!(one.stage, Stage::Left | Stage::Lost(_)) || again {
                return Err("it came for a consumer that has gone, or has this connection already".into());
            }
            // That the one before is closed may not have been heard yet.
            if let Some(before) = one.data.insert(process, id) {
                self.connections.get_mut(&before).into_iter().for_each(|link| link.consumer = None);
                self.orders.close(before);
            }
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
        let link = self.connections.get(&id);
        let data = link.is_some_and(|connection| connection.process.is_some());
        // Lists of cuts come in the first text alone.
        let most = match link.is_some_and(|connection| connection.consumer.is_some()) {
            true => MAX_LATER_TEXT_BYTES,
            false => MAX_TEXT_BYTES,
        };
        match (head.kind, data) {
            (FrameKind::Want, true) => Ok(Vec::new()),
            (FrameKind::Text, _) if head.bytes as usize <= most => Ok(Vec::new()),
            (FrameKind::Text, _) => {
                Err(format!("it sent a text of {} bytes, and {most} is the most", head.bytes))
            }
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
            let held = step.held.remove(&process).into_iter().flatten();
            for (head, buffer) in held {
                self.dispatch(id, head, buffer);
            }
        }
        Ok(())
    }

    fn shares(&mut self, id: ConnectionId, memory: Option<Arc<SlotMemory>>) -> Result<(), String> {
        match self.connections.get_mut(&id) {
            Some(one) if one.process.is_some() && one.slots.is_none() => {
                // So that the consumer knows that all of it goes there from now on, or that all of it goes by this connection.
                let answer = if memory.is_some() { FrameKind::Open } else { FrameKind::Memory };
                one.slots = memory.map(SlotWriter::new);
                one.output.push_back((Head::new(answer, 0, 0), Vec::new()));
                self.orders.write(id);
                Ok(())
            }
            _ => Err("it shared memory that nothing is sent through".into()),
        }
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
        if let Some(one) = connection.consumer.and_then(|consumer| self.consumers.get_mut(&consumer)) {
            one.moved = Instant::now();
        }
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
