//! Discrete-event simulation: messages become ready, take their ports, share their links and end.
//!
//! Before anything runs, every send is joined with its receive (`matched.rs`). Then time jumps from event to event. At
//! each time, messages that end release their ports first, then programs continue, then waiting messages start where both
//! ports are free, and last the bandwidth of links is divided again. If no event is left and some programs have not ended,
//! each of them waits for another one, and the chain of waits must close a cycle: the deadlock.
//!
//! Times are seconds as `f64`. The queue compares their bits, which for numbers that are not negative is the same order.

use super::matched::Matched;
use super::network::{Fitted, Link};
use super::{Fault, Machine, Program, Sent, Timeline};
use crate::cost::{CostModel, Duplex};
use crate::error::{Error, Result as Planned};
use crate::memory;
use crate::traffic::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The most links that all messages together cross: sharing takes time for each.
const MAX_HOPS: u64 = 2_000_000;

/// Runs all programs on a machine until every one has ended, or returns the fault that prevents it.
pub fn run(programs: &[Program], machine: &Machine) -> Result<Timeline, Fault> {
    let matched = Matched::new(programs)?;
    let last = matched.messages.iter().map(|message| message.from.max(message.to)).max();
    let nodes = last.map_or(Some(0), |last| last.checked_add(1)).ok_or_else(|| {
        Error::out_of_range("rank 2^64 - 1 takes part, one more than can be counted; number the ranks from 0")
    })?;
    let network = machine.network.fitted(nodes)?;
    let hops = matched.messages.iter().map(|message| network.hops(message.from, message.to));
    let hops = hops.fold(0, u64::saturating_add);
    if hops > MAX_HOPS {
        return Err(Fault::Refused(Error::too_large(format!(
            "the messages cross {hops} links of the network {} in all, and at most {MAX_HOPS} are simulated; \
             take fewer ranks or the network flat",
            machine.network
        ))));
    }
    let mut engine = Engine::new(&matched, &machine.cost, network)?;
    engine.run();
    match engine.circle(programs) {
        Some(ranks) => Err(Fault::Deadlock { ranks }),
        None => Ok(Timeline::new(engine.sent, engine.now, machine.cost.ports())),
    }
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message has started up and enters its links.
    Enters(usize),
    /// The last element of a message has left its links, if its speed has not changed since.
    Leaves(usize, u32),
    /// A message is unpacked, and its ports are free.
    Ends(usize),
    /// A barrier opens.
    Opens,
}

/// The ports of a rank.
#[derive(Default)]
struct Ports {
    sending: u64,
    receiving: u64,
    /// Messages whose ends are both ready, by the moment that happened (as bits) and number.
    waiting: BTreeSet<(u64, usize)>,
}

/// A message that flows through links.
struct Flow {
    path: Vec<usize>,
    /// Seconds it still needs at full speed, as of `since`.
    left: f64,
    /// Its fraction of full speed since then.
    speed: f64,
    since: f64,
    /// Events of earlier speeds are void.
    version: u32,
}

struct Engine<'a> {
    of: &'a Matched,
    cost: &'a CostModel,
    network: Fitted,
    now: f64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// The index of each program's current operation.
    next_op: Vec<usize>,
    at_barrier: usize,
    /// Number of ends (sender, receiver) that have come to each message: it is ready when both have.
    come: Vec<u8>,
    ports: BTreeMap<u64, Ports>,
    /// Ranks where a port was freed or a message became ready since messages were last started.
    stirred: BTreeSet<u64>,
    links: BTreeMap<Link, usize>,
    /// The messages on each link.
    crossing: Vec<Vec<usize>>,
    flows: BTreeMap<usize, Flow>,
    /// Links whose messages have changed since speeds were last divided.
    changed: BTreeSet<usize>,
    started: Vec<f64>,
    sent: Vec<Sent>,
}

impl<'a> Engine<'a> {
    fn new(of: &'a Matched, cost: &'a CostModel, network: Fitted) -> Planned<Self> {
        const WHAT: &str = "the state of a simulation";
        let messages = of.messages.len();
        // Every message may wait at both its ends, and be looked at there, before it starts.
        memory::check_tree::<(u64, usize), ()>(3 * messages, WHAT)?;
        Ok(Self {
            of,
            cost,
            network,
            now: 0.0,
            events: BinaryHeap::from(memory::with_room(messages + 1, WHAT)?),
            next_op: memory::filled(0, of.operations.len(), WHAT)?,
            at_barrier: 0,
            come: memory::filled(0, messages, WHAT)?,
            ports: BTreeMap::new(),
            stirred: BTreeSet::new(),
            links: BTreeMap::new(),
            crossing: Vec::new(),
            flows: BTreeMap::new(),
            changed: BTreeSet::new(),
            started: memory::filled(0.0, messages, WHAT)?,
            sent: memory::with_room(messages, WHAT)?,
        })
    }

    fn run(&mut self) {
        (0..self.of.operations.len()).for_each(|program| self.arrive(program));
        loop {
            self.start_ready();
            self.divide_links();
            let Some(&Reverse((moment, _))) = self.events.peek() else { return };
            self.now = f64::from_bits(moment);
            while let Some(&Reverse((at, event))) = self.events.peek() {
                if at != moment {
                    break;
                }
                self.events.pop();
                self.happen(event);
            }
        }
    }

    fn at(&mut self, time: f64, event: Event) {
        self.events.push(Reverse((time.to_bits(), event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Enters(message) => {
                if let Some(flow) = self.flows.get_mut(&message) {
                    flow.since = self.now;
                    for &link in &flow.path {
                        self.crossing[link].push(message);
                        self.changed.insert(link);
                    }
                }
            }
            Event::Leaves(message, version) => {
                if self.flows.get(&message).is_none_or(|flow| flow.version != version) {
                    return;
                }
                if let Some(flow) = self.flows.remove(&message) {
                    for link in flow.path {
                        self.crossing[link].retain(|&other| other != message);
                        self.changed.insert(link);
                    }
                }
                let unpacking = self.cost.pack() * self.of.messages[message].elems as f64;
                self.at(self.now + unpacking, Event::Ends(message));
            }
            Event::Ends(message) => self.end(message),
            Event::Opens => {
                self.at_barrier = 0;
                (0..self.of.operations.len()).for_each(|program| self.go_on(program));
            }
        }
    }

    /// A program has ended its operation and goes on to the next.
    fn go_on(&mut self, program: usize) {
        self.next_op[program] += 1;
        self.arrive(program);
    }

    /// A program comes to its next operation.
    fn arrive(&mut self, program: usize) {
        match self.of.operations[program].get(self.next_op[program]) {
            None => {}
            Some(None) => {
                self.at_barrier += 1;
                if self.at_barrier == self.of.operations.len() {
                    self.at(self.now + self.cost.barrier(), Event::Opens);
                }
            }
            Some(&Some(message)) => {
                self.come[message] += 1;
                if self.come[message] == 2 {
                    let Message { from, to, .. } = self.of.messages[message];
                    for rank in [from, to] {
                        let ports = self.ports.entry(rank).or_default();
                        ports.waiting.insert((self.now.to_bits(), message));
                        self.stirred.insert(rank);
                    }
                }
            }
        }
    }

    /// Starts waiting messages whose ports are free, those that became ready first before others.
    fn start_ready(&mut self) {
        let stirred = std::mem::take(&mut self.stirred);
        let mut candidates = BTreeSet::new();
        for rank in &stirred {
            candidates.extend(self.ports.get(rank).into_iter().flat_map(|ports| &ports.waiting).copied());
        }
        for (ready, message) in candidates {
            let Message { from, to, .. } = self.of.messages[message];
            if self.has_room(from, to) {
                self.take_ports(from, to, true);
                for rank in [from, to] {
                    self.ports.entry(rank).or_default().waiting.remove(&(ready, message));
                }
                self.start(message);
            }
        }
    }

    fn has_room(&self, from: u64, to: u64) -> bool {
        let used = |rank: u64, sending: bool| {
            let ports = self.ports.get(&rank);
            ports.map_or(0, |ports| match (self.cost.duplex(), sending) {
                (Duplex::Half, _) => ports.sending + ports.receiving,
                (Duplex::Full, true) => ports.sending,
                (Duplex::Full, false) => ports.receiving,
            })
        };
        used(from, true) < self.cost.ports() && used(to, false) < self.cost.ports()
    }

    fn take_ports(&mut self, from: u64, to: u64, take: bool) {
        let change = |used: &mut u64| *used = if take { *used + 1 } else { used.saturating_sub(1) };
        change(&mut self.ports.entry(from).or_default().sending);
        // A message that stays on its rank needs only one port, if a port does both.
        if from != to || self.cost.duplex() == Duplex::Full {
            change(&mut self.ports.entry(to).or_default().receiving);
        }
    }

    fn start(&mut self, message: usize) {
        let Message { from, to, elems } = self.of.messages[message];
        self.started[message] = self.now;
        let mut path = Vec::new();
        let (links, crossing) = (&mut self.links, &mut self.crossing);
        self.network.walk(from, to, |link| {
            let next = links.len();
            let index = *links.entry(link).or_insert(next);
            if index == crossing.len() {
                crossing.push(Vec::new());
            }
            path.push(index);
        });
        if path.is_empty() {
            return self.at(self.now + self.cost.message(elems), Event::Ends(message));
        }
        let left = self.cost.beta() * elems as f64;
        let packed = self.now + self.cost.alpha() + self.cost.pack() * elems as f64;
        self.flows.insert(message, Flow { path, left, speed: 0.0, since: packed, version: 0 });
        self.at(packed, Event::Enters(message));
    }

    fn end(&mut self, message: usize) {
        let Message { from, to, elems } = self.of.messages[message];
        self.take_ports(from, to, false);
        self.stirred.extend([from, to]);
        self.sent.push(Sent { from, to, elems, start: self.started[message], end: self.now });
        let (sender, receiver) = self.of.ends[message];
        self.go_on(sender);
        self.go_on(receiver);
    }

    /// Gives every message on a changed link its new speed: the least of its shares of links, at most full speed.
    fn divide_links(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let touched: BTreeSet<usize> =
            changed.iter().flat_map(|&link| &self.crossing[link]).copied().collect();
        for message in touched {
            let Some(flow) = self.flows.get_mut(&message) else { continue };
            let share = |&link: &usize| self.network.capacity() / self.crossing[link].len() as f64;
            let speed = flow.path.iter().map(share).fold(1.0, f64::min);
            if speed == flow.speed {
                continue;
            }
            flow.left = (flow.left - (self.now - flow.since) * flow.speed).max(0.0);
            (flow.since, flow.speed) = (self.now, speed);
            flow.version += 1;
            let (end, version) = (self.now + flow.left / speed, flow.version);
            self.at(end, Event::Leaves(message, version));
        }
    }

    /// The ranks of a cycle of waiting programs, from the lowest on, if some program has not ended.
    fn circle(&self, programs: &[Program]) -> Option<Vec<u64>> {
        let is_waiting = |program: &usize| self.next_op[*program] < self.of.operations[*program].len();
        let waits_for = |program: usize| match self.of.operations[program][self.next_op[program]] {
            Some(message) => {
                let (sender, receiver) = self.of.ends[message];
                if program == sender { receiver } else { sender }
            }
            // At a barrier, the program waits for the first that is not there. All have equally many barriers, so none has ended.
            None => (0..programs.len())
                .find(|&other| matches!(self.of.operations[other].get(self.next_op[other]), Some(Some(_))))
                .unwrap_or(program),
        };
        let mut program = (0..programs.len()).find(is_waiting)?;
        let mut seen = BTreeSet::new();
        while seen.insert(program) {
            program = waits_for(program);
        }
        let (first, mut ranks) = (program, Vec::new());
        loop {
            // Two programs of one rank in sequence are one waiting rank.
            if ranks.last() != Some(&programs[program].rank) {
                ranks.push(programs[program].rank);
            }
            program = waits_for(program);
            if program == first {
                break;
            }
        }
        let lowest = (0..ranks.len()).min_by_key(|&at| ranks[at]).unwrap_or(0);
        ranks.rotate_left(lowest);
        Some(ranks)
    }
}
