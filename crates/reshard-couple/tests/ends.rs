//! What happens at the edges: arrays without elements, and consumers that come while the producer ends.
#![allow(clippy::unwrap_used)]

mod common;

use common::{layout, meeting, options};
use reshard_couple::{ElementType, Job, Publisher, Subscriber};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A producer of an array without elements does not run ahead of its consumer by more than the queue.
#[test]
fn steps_without_elements_are_waited_for() {
    let (meeting, array) = (meeting(), layout("2x2/3x3 of 0x12"));
    let steps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
            publisher.open(&meeting).unwrap();
            publisher.wait_for(1).unwrap();
            for step in 0..2000 {
                publisher.put(id, step, b"", &array.parts(|_| 0_u64).unwrap()).unwrap();
                steps.store(step + 1, Ordering::Relaxed);
            }
            assert_eq!(publisher.finish().unwrap(), 1);
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        let mut parts = array.parts(|_| 0_u64).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(steps.load(Ordering::Relaxed), 2, "two are kept");
        for step in 0..2000 {
            assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, step);
        }
        assert_eq!(subscriber.get(id, &mut parts), Ok(None));
        subscriber.leave();
    });
}

/// Whoever was let in gets the end, at whichever moment that was.
#[test]
fn who_comes_while_the_producer_finishes_gets_the_end() {
    let array = layout("3/4 of 100");
    let mut ends = 0;
    for round in 0..60 {
        let meeting = meeting();
        let mut publisher = Publisher::new(Job::hosting_all(), options());
        publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
        publisher.open(&meeting).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(50 * round));
                publisher.finish().unwrap();
            });
            let short = options().with_deadline(Duration::from_secs(2));
            let mut subscriber = Subscriber::new(Job::hosting_all(), short);
            let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
            if subscriber.connect(&meeting).is_ok() {
                let mut parts = array.parts(|_| 0_u64).unwrap();
                assert_eq!(subscriber.get(id, &mut parts), Ok(None), "round {round}");
                subscriber.leave();
                ends += 1;
            }
        });
    }
    assert!(ends > 0);
}

/// The producer's sentence has it, in a put or at the end.
#[test]
fn why_a_consumer_goes_is_told() {
    let array = layout("3/4 of 100");
    for after in [1, 5] {
        let meeting = meeting();
        std::thread::scope(|scope| {
            let producer = scope.spawn(|| {
                let mut publisher = Publisher::new(Job::hosting_all(), options());
                let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
                publisher.open(&meeting).unwrap();
                publisher.wait_for(1).unwrap();
                let parts = array.parts(|_| 0_u64).unwrap();
                let put = (0..5).try_for_each(|step| publisher.put(id, step, b"", &parts));
                put.and_then(|()| publisher.finish().map(drop)).unwrap_err().to_string()
            });
            let mut subscriber = Subscriber::new(Job::hosting_all(), options());
            let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
            subscriber.connect(&meeting).unwrap();
            let mut parts = array.parts(|_| 0_u64).unwrap();
            (0..after).for_each(|_| assert!(subscriber.get(id, &mut parts).unwrap().is_some()));
            subscriber.leave_because("its disk is full");
            let said = producer.join().unwrap();
            assert!(said.contains("consumer 1 is gone: its disk is full"), "{said}");
        });
    }
}
