//! Programs of one world, one of which stops receiving: the producer waits for it once, and the others get every step.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{DEADLINE, layout, options, value};
use reshard::{ErrorKind, Layout, Result};
use reshard_couple::{ElementType, Meeting, Publisher, Subscriber, World};
use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use reshard_mpi::transport::{MessageBuffer, Transport};
use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Messages that are complete when they are received, as long ones of MPI are.
struct Rendezvous(Box<dyn Transport>);

// SAFETY: all of it is done by the transport within.
#[allow(unsafe_code)]
unsafe impl Transport for Rendezvous {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn groups(&self) -> [usize; 2] {
        self.0.groups()
    }

    fn number(&self, limit: Option<Duration>) -> Result<u64> {
        self.0.number(limit)
    }

    fn identity(&self) -> u128 {
        self.0.identity()
    }

    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        Ok(Box::new(Synchronous(self.0.buffer(bytes)?)))
    }

    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        self.0.probe(tag)
    }
}

struct Synchronous(Box<dyn MessageBuffer>);

impl MessageBuffer for Synchronous {
    fn bytes(&mut self) -> &mut [u8] {
        self.0.bytes()
    }

    fn send(&mut self, bytes: Range<usize>, to: usize, tag: u32, _: bool) -> Result<()> {
        self.0.send(bytes, to, tag, true)
    }

    fn receive(&mut self, from: usize, tag: u32) -> Result<()> {
        self.0.receive(from, tag)
    }

    fn test(&mut self) -> Result<Option<usize>> {
        self.0.test()
    }

    fn is_free(&self) -> bool {
        self.0.is_free()
    }

    fn cancel(&mut self) {
        self.0.cancel();
    }
}

/// A rank of a program: its communicators, of all and of its own program, and what carries frames.
type Rank = (Arc<Communicator>, Arc<Communicator>, Box<dyn Transport>);

/// The ranks of several programs of one world.
fn programs(sizes: &[usize]) -> Vec<Vec<Rank>> {
    let all: usize = sizes.iter().sum();
    let mut ends = in_process::group(all).into_iter().zip(in_process::transports(all));
    let mut program = |size: &usize| {
        let own = in_process::group(*size).into_iter();
        let rank = |own| {
            let (all, transport) = ends.next().unwrap();
            (all, own, Box::new(Rendezvous(transport)) as Box<dyn Transport>)
        };
        own.map(rank).collect()
    };
    sizes.iter().map(&mut program).collect()
}

fn world((all, own, transport): Rank, program: &str) -> World {
    World::over(&all, &own, transport, program, DEADLINE).unwrap()
}

const SHORT: Duration = Duration::from_millis(500);
const STEPS: u64 = 30;

fn own(layout: &Layout, rank: usize, step: u64) -> Vec<Vec<u64>> {
    vec![layout.filled(rank as u64, |index| value(index, step)).unwrap()]
}

/// Returns how long each put took, and what the errors were.
fn produce(rank: usize, world: &World, from: &Layout, came: &Barrier) -> (Vec<Duration>, Vec<String>) {
    let options = options().with_consumers(2);
    let mut publisher = Publisher::new(world.job(), options.with_deadline(SHORT));
    let id = publisher.publish("t", from, ElementType::of::<u64>()).unwrap();
    publisher.open(&Meeting::in_world(world, "viewer")).unwrap();
    came.wait();
    publisher.wait_for(2).unwrap();
    let (mut times, mut lost) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let part = own(from, rank, step);
        let began = Instant::now();
        if let Err(error) = publisher.put(id, step, b"", &part) {
            assert_eq!(error.kind(), ErrorKind::Partner, "{error}");
            lost.push(error.to_string());
        }
        times.push(began.elapsed());
    }
    assert_eq!(publisher.consumers(), 1);
    assert_eq!(publisher.finish().unwrap(), 1);
    (times, lost)
}

#[test]
fn who_stops_receiving_costs_the_producer_one_deadline() {
    for producers in [1, 2] {
        let mut ranks = programs(&[producers, 1, 1]);
        let (from, to) = (layout(&format!("{producers}x1/8x8 of 60x50")), layout("1x1/50x50 of 60x50"));
        let (came, done) = (Barrier::new(producers + 2), Barrier::new(producers + 2));
        std::thread::scope(|scope| {
            let (still, viewer) = (ranks.pop().unwrap(), ranks.pop().unwrap());
            let (from, to, came, done) = (&from, &to, &came, &done);
            let produce = |(rank, end)| {
                scope.spawn(move || {
                    let found = produce(rank, &world(end, "producer"), from, came);
                    done.wait();
                    found
                })
            };
            let produced: Vec<_> = ranks.pop().unwrap().into_iter().enumerate().map(produce).collect();
            let connect = |end: Rank, program: &str| {
                let world = world(end, program);
                let mut subscriber = Subscriber::new(world.job(), options());
                let id = subscriber.subscribe("t", to, ElementType::of::<u64>()).unwrap();
                came.wait();
                subscriber.connect(&Meeting::in_world(&world, "producer")).unwrap();
                (subscriber, id, world)
            };
            let still = still.into_iter().map(|end| {
                scope.spawn(move || {
                    let (mut subscriber, id, _world) = connect(end, "still");
                    let mut parts = own(to, 0, u64::MAX);
                    assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, 0);
                    // From now on it does something else.
                    done.wait();
                })
            });
            let still: Vec<_> = still.collect();
            for end in viewer {
                let (mut subscriber, id, _world) = connect(end, "viewer");
                let mut parts = own(to, 0, u64::MAX);
                for step in 0..STEPS {
                    assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, step);
                    assert!(parts == own(to, 0, step), "step {step}");
                }
                assert!(subscriber.get(id, &mut parts).unwrap().is_none());
                subscriber.leave();
                done.wait();
            }
            for produced in produced {
                let (times, lost) = produced.join().unwrap();
                // Which of the two consumers came first is not said.
                assert!(matches!(&lost[..], [why] if why.ends_with("took no step within 0.5 s")), "{lost:?}");
                let late = times.iter().filter(|time| **time >= SHORT / 2).count();
                assert!(late <= 2, "{late} puts waited: {times:?}");
            }
            still.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
