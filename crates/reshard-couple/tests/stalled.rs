//! Programs of one world, one of which stops receiving, or gets frames that are cut elsewhere: the producer waits for it once, and the others get
//! every step.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)]

mod common;

use common::wrapped::{Rank, programs};
use common::{DEADLINE, layout, options, value};
use reshard::{ErrorKind, Layout};
use reshard_couple::{ElementType, Meeting, Publisher, Subscriber, Subscription, World};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

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
        let mut ranks = programs(&[producers, 1, 1], |message, _| message);
        let (from, to) = (layout(&format!("{producers}x1/8x8 of 60x50")), layout("1x1/50x50 of 60x50"));
        let (came, done) = (Barrier::new(producers + 2), Barrier::new(producers + 2));
        std::thread::scope(|scope| {
            let (still, viewer) = (ranks.pop().unwrap(), ranks.pop().unwrap());
            let (from, to, came, done) = (&from, &to, &came, &done);
            let produce = |(rank, end): (usize, Rank)| {
                scope.spawn(move || {
                    let found = produce(rank, &end.world("producer", DEADLINE), from, came);
                    done.wait();
                    found
                })
            };
            let produced: Vec<_> = ranks.pop().unwrap().into_iter().enumerate().map(produce).collect();
            let connect = |end: Rank, program: &str| {
                let world = end.world(program, DEADLINE);
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

/// Bytes before those of a frame, and where they say what it is, how many bytes follow, and the checksums of these and of the head.
const HEAD_BYTES: usize = 40;

fn word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A process gets the right elements in frames that are cut where none may be: all processes are told, and no part is touched.
#[test]
fn frames_of_wrong_lengths_are_an_error_of_all() {
    let (from, to) = (layout("1x1/100x100 of 5000x40"), layout("2x1/3x40 of 5000x40"));
    let held = Mutex::new(Vec::new());
    // From the first frame of elements to the last rank, one element goes to the next.
    let moved = move |mut message: Vec<u8>, to: usize| {
        let data = to == 2 && message.len() > HEAD_BYTES && message[4..8] == 1_u32.to_le_bytes();
        if data {
            let mut held = held.lock().unwrap();
            match held.len() {
                0 => *held = message.split_off(message.len() - 8),
                8 => {
                    let elements: Vec<u8> = held.clone();
                    message.splice(HEAD_BYTES..HEAD_BYTES, elements);
                    held.push(0); // once is enough
                }
                _ => {}
            }
            let body = (message.len() - HEAD_BYTES) as u32;
            let checksum = crc32fast::hash(&message[HEAD_BYTES..]);
            word(&mut message, 28, body);
            word(&mut message, 32, checksum);
            let checksum = crc32fast::hash(&message[..36]);
            word(&mut message, 36, checksum);
        }
        message
    };
    let mut ranks = programs(&[1, 2], moved);
    let [viewers, producer] = [(); 2].map(|()| ranks.pop().unwrap());
    std::thread::scope(|scope| {
        let (from, to) = (&from, &to);
        for end in producer {
            scope.spawn(move || {
                let world = end.world("producer", DEADLINE);
                let mut publisher = Publisher::new(world.job(), options());
                let id = publisher.publish("t", from, ElementType::of::<u64>()).unwrap();
                publisher.open(&Meeting::in_world(&world, "viewer")).unwrap();
                publisher.wait_for(1).unwrap();
                publisher.put(id, 0, b"", &own(from, 0, 0)).unwrap();
                let _ = publisher.finish();
            });
        }
        for (rank, end) in viewers.into_iter().enumerate() {
            scope.spawn(move || {
                let world = end.world("viewer", DEADLINE);
                let mut subscriber = Subscriber::new(world.job(), options());
                let wanted = Subscription::new("t", to, ElementType::of::<u64>()).whole_steps();
                let id = subscriber.subscribe_to(wanted).unwrap();
                subscriber.connect(&Meeting::in_world(&world, "producer")).unwrap();
                let before = own(to, rank, 77);
                let mut parts = before.clone();
                for _ in 0..2 {
                    let error = subscriber.get(id, &mut parts).unwrap_err();
                    assert!(error.to_string().contains("rank 1 frames of other lengths"), "{error}");
                    assert!(parts == before, "nothing is written");
                }
                subscriber.leave();
            });
        }
    });
}
