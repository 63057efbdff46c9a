//! Two jobs in one process, each with all its ranks, over connections of the loopback: every element of every step.
#![allow(clippy::unwrap_used)]

mod common;

use common::{layout, meeting, options, value};
use reshard::{ErrorKind, Layout, Result};
use reshard_couple::{
    ElementType, Job, Meeting, Options, Publisher, Secret, StepInfo, Subscriber, Subscription,
};
use std::net::SocketAddr;
use std::time::Duration;

/// A producer of one array.
fn produce(meeting: &Meeting, name: &str, from: &Layout, steps: u64, options: Options) -> Result<()> {
    let mut publisher = Publisher::new(Job::hosting_all(), options);
    let array = publisher.publish(name, from, ElementType::of::<u64>())?;
    publisher.open(meeting)?;
    publisher.wait_for(1)?;
    for step in 0..steps {
        let parts = from.parts(|index| value(index, step))?;
        publisher.put(array, step, &step.to_le_bytes(), &parts)?;
    }
    publisher.finish().map(|complete| assert_eq!(complete, 1))
}

/// A consumer of all of an array, which checks every element.
fn consume(meeting: &Meeting, name: &str, to: &Layout, options: Options) -> Result<u64> {
    let mut subscriber = Subscriber::new(Job::hosting_all(), options);
    let array = subscriber.subscribe(name, to, ElementType::of::<u64>())?;
    subscriber.connect(meeting)?;
    let mut parts = to.parts(|_| u64::MAX)?;
    let mut steps = 0_u64;
    while let Some(StepInfo { number, header, dropped }) = subscriber.get(array, &mut parts)? {
        assert_eq!((number, dropped, header), (steps, 0, steps.to_le_bytes().to_vec()));
        assert!(parts == to.parts(|index| value(index, number))?, "step {number}");
        steps += 1;
    }
    subscriber.leave();
    Ok(steps)
}

fn both(from: &str, to: &str, steps: u64) {
    let (meeting, from, to) = (meeting(), layout(from), layout(to));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&meeting, "t", &from, steps, options()));
        assert_eq!(consume(&meeting, "t", &to, options()).unwrap(), steps, "{from} to {to}");
        producer.join().unwrap().unwrap();
    });
}

#[test]
fn every_element_of_every_step_comes() {
    both("2x2/64x64 of 300x200", "3x1/50x50 of 300x200", 100);
    both("4x4/7x3 of 120x90", "3x3/5x8 of 120x90", 20);
    both("1/1000 of 1000", "8/10 of 1000", 10);
    both("8/10 of 1000", "1/1000 of 1000", 10);
    // Several frames in a message, and ranks that have nothing.
    both("2x2/500x400 of 1000x800", "1x3/1000x300 of 1000x800", 3);
    both("16/100 of 300", "9/1 of 300", 5);
    both("2x3x2/4x5x6 of 30x31x32", "3x1x2/7x9x3 of 30x31x32 memory=row", 5);
}

#[test]
fn many_arrays_windows_and_transposes_go_through_one_coupling() {
    let meeting = meeting();
    let (matrix, vector) = (layout("2x2/16x16 of 100x80"), layout("4/9 of 500"));
    let (turned, part) = (layout("3x2/8x9 of 80x100"), layout("2/20 of 60"));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<()> {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let v = publisher.publish("v", &vector, ElementType::of::<u64>())?;
            let m = publisher.publish("m", &matrix, ElementType::of::<u64>())?;
            publisher.open(&meeting)?;
            publisher.wait_for(1)?;
            for step in 0..20 {
                publisher.put(m, step, b"matrix", &matrix.parts(|index| value(index, step))?)?;
                if step % 2 == 0 {
                    publisher.put(v, step, b"vector", &vector.parts(|index| value(index, step))?)?;
                }
            }
            publisher.finish().map(|complete| assert_eq!(complete, 1))
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let whole = Subscription::new("m", &turned, ElementType::of::<u64>());
        let m = subscriber
            .subscribe_to(whole.of_window(&[100, 80], &[0, 0], &[0, 0], &[1, 0]).with_depth(3))
            .unwrap();
        let some = Subscription::new("v", &part, ElementType::of::<u64>());
        let v = subscriber.subscribe_to(some.of_window(&[40], &[450], &[10], &[0]).with_depth(30)).unwrap();
        let setup = subscriber.connect(&meeting).unwrap();
        assert_eq!(setup.connections, 2);
        let (mut matrices, mut vectors) = (turned.parts(|_| 0).unwrap(), part.parts(|_| 7).unwrap());
        for step in 0..20 {
            assert_eq!(subscriber.get(m, &mut matrices).unwrap().unwrap().header, b"matrix");
            let expected = turned.parts(|index| value(&[index[1], index[0]], step)).unwrap();
            assert!(matrices == expected, "step {step}");
        }
        for step in (0..20).step_by(2) {
            assert_eq!(subscriber.get(v, &mut vectors).unwrap().unwrap().number, step);
            // What is outside the window stays as it was.
            let window =
                |index: &[u64]| if (10..50).contains(&index[0]) { value(&[index[0] + 440], step) } else { 7 };
            assert!(vectors == part.parts(window).unwrap(), "step {step}");
        }
        assert_eq!((subscriber.get(m, &mut matrices), subscriber.get(v, &mut vectors)), (Ok(None), Ok(None)));
        subscriber.leave();
        producer.join().unwrap().unwrap();
    });
}

#[test]
fn a_slow_consumer_that_drops_steps_slows_nobody() {
    let (meeting, from, to) = (meeting(), layout("2x2/8x8 of 64x64"), layout("3x1/5x5 of 64x64"));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<()> {
            let mut publisher = Publisher::new(Job::hosting_all(), options().with_consumers(2));
            let array = publisher.publish("t", &from, ElementType::of::<u64>())?;
            publisher.open(&meeting)?;
            publisher.wait_for(2)?;
            for step in 0..200 {
                publisher.put(array, step, &step.to_le_bytes(), &from.parts(|index| value(index, step))?)?;
            }
            publisher.finish().map(|complete| assert_eq!(complete, 2))
        });
        let slow = scope.spawn(|| -> Result<(u64, u64)> {
            let mut subscriber = Subscriber::new(Job::hosting_all(), options());
            let wanted =
                Subscription::new("t", &to, ElementType::of::<u64>()).with_depth(2).dropping_oldest();
            let array = subscriber.subscribe_to(wanted)?;
            subscriber.connect(&meeting)?;
            let mut parts = to.parts(|_| 0_u64)?;
            let (mut steps, mut dropped, mut last) = (0, 0, None);
            while let Some(info) = subscriber.get(array, &mut parts)? {
                assert!(parts == to.parts(|index| value(index, info.number))?, "step {}", info.number);
                assert!(last < Some(info.number), "{last:?} before {}", info.number);
                assert_eq!(info.number, last.map_or(0, |last| last + 1) + info.dropped);
                (steps, dropped, last) = (steps + 1, dropped + info.dropped, Some(info.number));
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(last, Some(199), "the last step is there");
            subscriber.leave();
            Ok((steps, dropped))
        });
        assert_eq!(consume(&meeting, "t", &to, options()).unwrap(), 200);
        let (steps, dropped) = slow.join().unwrap().unwrap();
        assert_eq!(steps + dropped, 200);
        // Nothing would be dropped if it slowed the other.
        assert!(dropped > 0, "{steps} steps came");
        producer.join().unwrap().unwrap();
    });
}

/// A producer that waits for a consumer that is refused, and what both are told.
fn refused(name: &str, from: &str, consumer: impl FnOnce(&Meeting) -> String) -> (String, String) {
    let (meeting, from) = (meeting(), layout(from));
    let short = Options::default().with_deadline(Duration::from_millis(1_500));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&meeting, name, &from, 1, short.clone()).unwrap_err());
        let said = consumer(&meeting);
        let error = producer.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Partner, "{error}");
        (error.to_string(), said)
    })
}

#[test]
fn what_does_not_fit_is_said_on_both_sides() {
    type Wrong = (&'static str, fn(&mut Subscriber) -> Result<()>);
    let wrong: [Wrong; 4] = [
        ("'u', and the producer has 't'", |one| {
            one.subscribe("u", &layout("2/5 of 100"), ElementType::of::<u64>()).map(drop)
        }),
        ("type u64 at the producer, and the consumer wants f64", |one| {
            one.subscribe("t", &layout("2/5 of 100"), ElementType::of::<f64>()).map(drop)
        }),
        ("101", |one| one.subscribe("t", &layout("2/5 of 101"), ElementType::of::<u64>()).map(drop)),
        ("0 steps", |one| {
            one.subscribe_to(
                Subscription::new("t", &layout("2/5 of 100"), ElementType::of::<u64>()).with_depth(0),
            )
            .map(drop)
        }),
    ];
    for (expected, subscribe) in wrong {
        let (producer, consumer) = refused("t", "3/4 of 100", |meeting| {
            let mut subscriber = Subscriber::new(Job::hosting_all(), options());
            subscribe(&mut subscriber).unwrap();
            let error = subscriber.connect(meeting).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Partner);
            error.to_string()
        });
        assert!(consumer.contains(expected) && consumer.starts_with("the producer refused"), "{consumer}");
        assert!(
            producer.contains(expected) && producer.contains("no consumer came within 1.5 s"),
            "{producer}"
        );
    }
}

#[test]
fn another_secret_is_refused() {
    let from = layout("3/4 of 100");
    let short = Options::default().with_deadline(Duration::from_millis(1_500));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = |secret: &str| Meeting::At {
        address: format!("127.0.0.1:{port}"),
        secret: Secret::new(secret).unwrap(),
    };
    std::thread::scope(|scope| {
        let producer = scope
            .spawn(|| produce(&at("the secret of this test"), "t", &from, 1, short.clone()).unwrap_err());
        let said = consume(&at("another secret than that"), "t", &from, options()).unwrap_err().to_string();
        assert!(said.contains("the producer has another secret"), "{said}");
        let said = producer.join().unwrap().to_string();
        assert!(said.contains("does not know the secret"), "{said}");
    });
}

#[test]
fn jobs_meet_over_ipv6_at_an_address() {
    let array = layout("3/4 of 100");
    let any: SocketAddr = "[::1]:0".parse().unwrap();
    // Not every machine has it.
    let Ok(listener) = std::net::TcpListener::bind(any) else { return };
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let meeting = Meeting::At { address, secret: Secret::new("the secret of this test").unwrap() };
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&meeting, "t", &array, 3, options().with_bind(any)));
        assert_eq!(consume(&meeting, "t", &array, options()).unwrap(), 3);
        producer.join().unwrap().unwrap();
    });
}

#[test]
fn a_partner_that_does_not_come_is_named() {
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    let short = Options::default().with_deadline(Duration::from_millis(300));
    let said = produce(&meeting, "t", &array, 1, short.clone()).unwrap_err().to_string();
    assert_eq!(said, "no consumer came within 0.3 s");
    let said = consume(&meeting, "t", &array, short).unwrap_err().to_string();
    assert!(said.starts_with("no producer wrote the meeting file"), "{said}");
}

#[test]
fn a_producer_that_is_gone_is_an_error_and_a_new_one_is_found() {
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
            publisher.open(&meeting).unwrap();
            publisher.wait_for(1).unwrap();
            publisher
                .put(id, 0, &0_u64.to_le_bytes(), &array.parts(|index| value(index, 0)).unwrap())
                .unwrap();
            std::thread::sleep(Duration::from_millis(200));
            // Dropped without a word.
        });
        let error = consume(&meeting, "t", &array, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Partner);
        assert!(error.to_string().contains("the producer is gone"), "{error}");
        producer.join().unwrap();
        let producer = scope.spawn(|| produce(&meeting, "t", &array, 2, options()));
        assert_eq!(consume(&meeting, "t", &array, options()).unwrap(), 2);
        producer.join().unwrap().unwrap();
    });
}

#[test]
fn a_consumer_that_is_gone_is_an_error_and_another_may_come() {
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    let noticed = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
            publisher.open(&meeting).unwrap();
            let mut step = 0_u64;
            let mut lost = Vec::new();
            for round in 0..2 {
                publisher.wait_for(1).unwrap();
                // Steps begin anew for each consumer.
                step = 0;
                while let Ok(()) = publisher
                    .put(id, step, &step.to_le_bytes(), &array.parts(|index| value(index, step)).unwrap())
                    .map_err(|error| lost.push(error.to_string()))
                {
                    step += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    if lost.len() == 1 && step == 50 {
                        break;
                    }
                }
                if round == 0 {
                    noticed.wait();
                }
            }
            publisher.finish().unwrap();
            (lost, step)
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        let mut parts = array.parts(|_| 0_u64).unwrap();
        for step in 0..5 {
            assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, step);
        }
        drop(subscriber); // without a word
        // One that comes before this is noticed gets the step of the call that fails.
        noticed.wait();
        let steps = consume(&meeting, "t", &array, options()).unwrap();
        let (lost, put) = producer.join().unwrap();
        assert_eq!(lost.len(), 1);
        assert!(lost[0].contains("consumer 1") && lost[0].contains("is gone"), "{lost:?}");
        assert_eq!((steps, put), (50, 50));
    });
}

#[test]
fn a_consumer_that_takes_no_step_is_given_up() {
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    let short = Options::default().with_deadline(Duration::from_millis(500));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| produce(&meeting, "t", &array, 100, short.clone()).unwrap_err());
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        let error = producer.join().unwrap();
        assert_eq!(error.to_string(), "consumer 1 took no step within 0.5 s");
        let mut parts = array.parts(|_| 0_u64).unwrap();
        let mut step = 0;
        let error = loop {
            match subscriber.get(id, &mut parts) {
                Ok(info) => assert_eq!(info.unwrap().number, step),
                Err(error) => break error,
            }
            step += 1;
        };
        assert!(
            (2..=4).contains(&step) && error.to_string().contains("took no step"),
            "{step} steps, {error}"
        );
    });
}

/// However deep its queue is, and however its frames are cut: the producer is told, and does not wait for ever.
#[test]
fn a_consumer_of_long_steps_that_takes_none_is_given_up() {
    let [from, to] = ["1x2/32769x1 of 32769x6", "1x3/32769x1 of 32769x6"].map(layout);
    let short = Options::default().with_deadline(Duration::from_millis(500));
    for (depth, shared) in [(1, true), (2, true), (3, true), (6, true), (3, false)] {
        let meeting = meeting();
        std::thread::scope(|scope| {
            let given = short.clone().with_shared_memory(shared);
            let producer = scope.spawn(|| produce(&meeting, "t", &from, 100, given).unwrap_err());
            let mut subscriber = Subscriber::new(Job::hosting_all(), options().with_shared_memory(shared));
            let wanted = Subscription::new("t", &to, ElementType::of::<u64>()).with_depth(depth);
            let id = subscriber.subscribe_to(wanted).unwrap();
            subscriber.connect(&meeting).unwrap();
            assert_eq!(producer.join().unwrap().to_string(), "consumer 1 took no step within 0.5 s");
            let (mut parts, mut step) = (to.parts(|_| 0_u64).unwrap(), 0);
            while let Ok(info) = subscriber.get(id, &mut parts) {
                assert_eq!(info.unwrap().number, step);
                assert!(parts == to.parts(|index| value(index, step)).unwrap(), "step {step}");
                step += 1;
            }
            // A queue that was sent, and as many that waited to be asked for.
            assert!((u64::from(depth)..=2 * u64::from(depth) + 1).contains(&step), "{step} of {depth}");
        });
    }
}

#[test]
fn garbage_and_silence_at_the_door_harm_nobody() {
    use std::io::Write;
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    let mut publisher = Publisher::new(Job::hosting_all(), options());
    let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
    publisher.open(&meeting).unwrap();
    let address: SocketAddr = publisher.address().unwrap().parse().unwrap();
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&meeting, "t", &array, options()));
        publisher.wait_for(1).unwrap();
        let mut strangers = Vec::new();
        for step in 0..300_u64 {
            let mut stranger = std::net::TcpStream::connect(address).unwrap();
            match step % 3 {
                0 => {}
                1 => stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap(),
                _ => drop(stranger.write_all(&[b'R'; 5000])),
            }
            strangers.push(stranger);
            publisher
                .put(id, step, &step.to_le_bytes(), &array.parts(|index| value(index, step)).unwrap())
                .unwrap();
        }
        assert_eq!(publisher.finish().unwrap(), 1);
        assert_eq!(consumer.join().unwrap().unwrap(), 300);
    });
}

#[test]
fn wrong_calls_are_told_so() {
    let array = layout("3/4 of 100");
    let mut publisher = Publisher::new(Job::hosting_all(), options());
    let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
    let again = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap_err().to_string();
    assert!(again.contains("'t' was published twice"), "{again}");
    let parts = array.parts(|_| 0_u64).unwrap();
    let early = publisher.put(id, 0, b"", &parts).unwrap_err().to_string();
    assert!(early.contains("before open()"), "{early}");
    publisher.open(&meeting()).unwrap();
    publisher.put(id, 0, b"", &parts).unwrap(); // nobody is there: that is no error
    let few = publisher.put(id, 0, b"", &parts[1..]).unwrap_err().to_string();
    assert!(few.contains("2 parts were given") && few.contains("3 ranks"), "{few}");
    let short: Vec<&[u64]> = vec![&parts[0], &parts[1], &parts[2][1..]];
    let short = publisher.put(id, 0, b"", &short).unwrap_err().to_string();
    assert!(short.contains("the part of rank 2 has"), "{short}");
    let small = publisher.put(id, 0, b"", &[[0_u32; 100]; 3]).unwrap_err().to_string();
    assert!(small.contains("elements of 4 bytes"), "{small}");
    let long = publisher.put(id, 0, &[0; 5000], &parts).unwrap_err().to_string();
    assert!(long.contains("header of 5000 bytes"), "{long}");
    publisher.finish().unwrap();
}

/// A consumer that leaves early is no error, and did not take all.
#[test]
fn who_leaves_early_has_not_taken_all() {
    let (meeting, array) = (meeting(), layout("3/4 of 100"));
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let id = publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
            publisher.open(&meeting).unwrap();
            publisher.wait_for(1).unwrap();
            for step in 0..50 {
                publisher.put(id, step, b"", &array.parts(|index| value(index, step)).unwrap()).unwrap();
            }
            publisher.finish().unwrap()
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let id = subscriber.subscribe("t", &array, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        let mut parts = array.parts(|_| 0_u64).unwrap();
        for _ in 0..5 {
            subscriber.get(id, &mut parts).unwrap().unwrap();
        }
        subscriber.leave();
        assert_eq!(producer.join().unwrap(), 0);
    });
}

/// Elements that do not fill a frame evenly, and some that are longer than one.
#[test]
fn long_elements_and_many_small_messages() {
    let meeting = meeting();
    let (from, to) = (layout("2/3 of 10"), layout("3/1 of 10"));
    let (many, few) = (layout("40x5/1x1 of 120x60"), layout("1x1/7x7 of 120x60"));
    let long = |index: u64, step: u64| vec![(7 * index + step) as u8; 300_000];
    let parts_of = |step: u64| -> Vec<Vec<u8>> {
        let elements = from.parts(|index| index[0]).unwrap();
        elements.iter().map(|part| part.iter().flat_map(|&index| long(index, step)).collect()).collect()
    };
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<usize> {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let a = publisher.publish("long", &from, "bytes(300000)".parse()?)?;
            let b = publisher.publish("small", &many, ElementType::of::<u64>())?;
            publisher.open(&meeting)?;
            publisher.wait_for(1)?;
            for step in 0..3 {
                let parts = parts_of(step);
                publisher.put_bytes(a, step, b"", &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
                publisher.put(b, step, b"", &many.parts(|index| value(index, step))?)?;
            }
            publisher.finish()
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let a = subscriber.subscribe("long", &to, "bytes(300000)".parse().unwrap()).unwrap();
        let b = subscriber.subscribe("small", &few, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        let indices = to.parts(|index| index[0]).unwrap();
        let mut parts: Vec<Vec<u8>> = indices.iter().map(|part| vec![0; part.len() * 300_000]).collect();
        let mut small = few.parts(|_| 0_u64).unwrap();
        for step in 0..3 {
            let mut slices: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
            subscriber.get_bytes(a, &mut slices).unwrap().unwrap();
            let expected: Vec<Vec<u8>> = indices
                .iter()
                .map(|part| part.iter().flat_map(|&index| long(index, step)).collect())
                .collect();
            assert!(parts == expected, "step {step}");
            subscriber.get(b, &mut small).unwrap().unwrap();
            assert!(small == few.parts(|index| value(index, step)).unwrap(), "step {step}");
        }
        assert_eq!(subscriber.get(b, &mut small), Ok(None));
        let mut slices: Vec<&mut [u8]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
        assert_eq!(subscriber.get_bytes(a, &mut slices), Ok(None));
        subscriber.leave();
        assert_eq!(producer.join().unwrap(), Ok(1));
    });
}
