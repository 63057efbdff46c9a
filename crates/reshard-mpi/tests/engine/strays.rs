//! Messages of another engine, or of another run, under the tag of an engine that lives. Tags are given out so that this does not
//! happen; if it does all the same, the envelope of a message says whose it is.
//!
//! Rank 0 takes a message of rank 1's before the engine does, and rank 1 sends it once more where it does not belong.

#![allow(unsafe_code)]

use crate::world::World;
use reshard::engine::MessagesOptions;
use reshard::schedule::Strategy;
use reshard::{Layout, MemoryOrder, Move, Plan, Result};
use reshard_mpi::transport::{MessageBuffer, Transport};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, MpiRing, MpiRingOptions, Own};
use reshard_plan::Distribution;
use reshard_ring::RingProblem;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Option<Duration> = Some(Duration::from_secs(300));
const ITEMS: usize = 100;

/// Something that brings a hundred numbers from rank 1 to rank 0.
enum Carrier {
    Engine(Box<MpiEngine>),
    Ring(Box<MpiRing>),
}

impl Carrier {
    fn new(world: &dyn World, what: &str) -> Self {
        if what == "ring" {
            let items = ITEMS as u64;
            let problem = RingProblem::new(vec![0, items], vec![items, 0]);
            let options = MpiRingOptions::default().with_deadline(LIMIT);
            return Self::Ring(Box::new(MpiRing::of_problem(problem, 8, world, options).unwrap()));
        }
        Self::Engine(Box::new(engine(world, what.parse().unwrap(), false)))
    }

    /// The tags of its messages to rank 0.
    fn tags(&self) -> Vec<u32> {
        match self {
            Self::Engine(engine) => vec![engine.tag()],
            Self::Ring(ring) => vec![ring.tag(), ring.tag() + 1],
        }
    }

    /// Rank 1 sends this number; whether it is all that came to rank 0.
    fn run(&mut self, sends: bool, number: u64) -> Result<bool> {
        match self {
            Self::Engine(engine) => {
                let from = vec![number; engine.source_len(0)];
                let mut to = vec![0; engine.target_len(0)];
                engine.run(Own::new(&from, &mut to))?;
                Ok(to.iter().all(|&value| value == number))
            }
            Self::Ring(ring) => {
                let mut part = vec![if sends { number } else { 0 }; ring.room()];
                ring.run(&mut part)?;
                Ok(sends || part.iter().filter(|&&value| value == number).count() == ITEMS)
            }
        }
    }
}

fn engine(world: &dyn World, mover: Mover, barriers: bool) -> MpiEngine {
    let layout = |text: String| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let [from, to] = [" ranks=1", ""].map(|ranks| layout(format!("1/{ITEMS}{ranks} of {ITEMS}")));
    let plan = Arc::new(Plan::new(vec![Move::of::<f64>(from, to).unwrap()]).unwrap());
    let messages = MessagesOptions::default().with_barriers(barriers).with_strategy(Strategy::Optimal);
    MpiEngine::new(
        plan,
        world,
        MpiOptions::default().with_mover(mover).with_messages(messages).with_deadline(LIMIT),
    )
    .unwrap()
}

/// Takes the next message that comes with one of these tags.
fn take(transport: &dyn Transport, tags: &[u32]) -> (usize, Vec<u8>) {
    let begin = Instant::now();
    loop {
        assert!(Some(begin.elapsed()) < LIMIT, "nothing comes");
        for (at, &tag) in tags.iter().enumerate() {
            if let Some((from, length)) = transport.probe(tag).unwrap() {
                let mut buffer = transport.buffer(length).unwrap();
                buffer.receive(from, tag).unwrap();
                finish(&mut *buffer);
                return (at, buffer.bytes().to_vec());
            }
        }
    }
}

fn send(transport: &dyn Transport, bytes: &[u8], to: usize, tag: u32) {
    let mut buffer = transport.buffer(bytes.len()).unwrap();
    buffer.bytes().copy_from_slice(bytes);
    buffer.send(0..bytes.len(), to, tag, false).unwrap();
    finish(&mut *buffer);
}

fn finish(buffer: &mut dyn MessageBuffer) {
    let begin = Instant::now();
    while buffer.test().unwrap().is_none() {
        assert!(Some(begin.elapsed()) < LIMIT, "it does not arrive");
    }
}

/// A tag of nobody.
const HANDED_BACK: u32 = 32_100;

/// Rank 0 takes a message with one of the first tags; rank 1 sends it so often with the same of the other tags.
fn astray(world: &dyn World, taken: &[u32], sent: &[u32], times: usize) {
    let communicator = world.communicator();
    // SAFETY: all parts are private, and what is sent astray is what the test is about.
    let transport = unsafe { communicator.transport_of_engines() };
    if world.rank() == 0 {
        let (at, bytes) = take(transport, taken);
        send(transport, &[&[at as u8], &bytes[..]].concat(), 1, HANDED_BACK);
    } else {
        let (_, bytes) = take(transport, &[HANDED_BACK]);
        (0..times).for_each(|_| send(transport, &bytes[1..], 0, sent[usize::from(bytes[0])]));
    }
    world.meet();
}

/// Of another engine or ring, of an earlier run and of a later one.
pub fn of_fragments(world: &dyn World, what: &str) {
    let (mut other, mut carrier) = (Carrier::new(world, what), Carrier::new(world, what));
    let (others, tags) = (other.tags(), carrier.tags());
    let sends = world.rank() == 1;
    // The first run of the other, in the first of this.
    if sends {
        other.run(sends, 1).unwrap();
    }
    astray(world, &others, &tags, 1);
    assert!(carrier.run(sends, 2).unwrap(), "elements of another engine");
    // The second run, twice: once too often for the third.
    if sends {
        carrier.run(sends, 3).unwrap();
    }
    astray(world, &tags, &tags, 2);
    assert!(sends || carrier.run(sends, 3).unwrap());
    assert!(carrier.run(sends, 4).unwrap(), "elements of the run before");
    // The fourth is lost in flight, and the fifth is not taken for it.
    if sends {
        carrier.run(sends, 5).unwrap();
    }
    astray(world, &tags, &tags, 0);
    match (sends, carrier.run(sends, 6)) {
        (true, outcome) => {
            let said = outcome.err().map(|error| error.to_string());
            assert!(said.as_ref().is_none_or(|said| said.contains("rank 0")), "{said:?}");
        }
        (false, outcome) => {
            let said = outcome.expect_err("elements of the next run").to_string();
            assert!(said.contains("rank 1 is "), "{said}");
        }
    }
    world.meet();
}

/// Of another engine's barrier.
pub fn of_barriers(world: &dyn World) {
    let [mut other, mut engine] = [0; 2].map(|_| engine(world, Mover::Messages, true));
    // Behind the tag of the only group.
    let (others, tags) = ([other.tag() + 1], [engine.tag() + 1]);
    let from = vec![1_u64; engine.source_len(0)];
    let mut to = vec![0; engine.target_len(0)];
    if world.rank() == 1 {
        let mut running = other.start(Own::new(&from, &mut to)).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            assert!(!running.test().unwrap(), "rank 0 is not at the barrier");
        }
        // To drop it would be to wait for rank 0.
        std::mem::forget(running);
    }
    astray(world, &others, &tags, 1);
    engine.run(Own::new(&from, &mut to)).unwrap();
    assert!(to.iter().all(|&value| value == 1));
}
