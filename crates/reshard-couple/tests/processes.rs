//! Jobs of several processes, here threads: what one of them meets, all are told, and none is left alone.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{DEADLINE, layout, meeting, options, value};
use reshard::{Error, ErrorKind, Layout, Result};
use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Subscriber, Subscription};
use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of one rank: its own, or none.
fn own(layout: &Layout, rank: usize, step: u64) -> Vec<Vec<u64>> {
    match layout.distribution().grid().contains(rank as u64) {
        true => vec![layout.filled(rank as u64, |index| value(index, step)).unwrap()],
        false => Vec::new(),
    }
}

/// Runs a function on each rank of a job, and returns what each returns.
fn on_all<T: Send>(ranks: usize, run: impl Fn(Job, usize) -> T + Sync) -> Vec<T> {
    let communicators = in_process::group(ranks);
    std::thread::scope(|scope| {
        let run = &run;
        let one = |(rank, comm): (usize, Arc<Communicator>)| {
            scope.spawn(move || run(Job::of(&comm, DEADLINE).unwrap(), rank))
        };
        let threads: Vec<_> = communicators.into_iter().enumerate().map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A producer whose ranks are processes.
fn produce(
    job: Job,
    rank: usize,
    meeting: &Meeting,
    arrays: &[(&str, &Layout)],
    steps: u64,
) -> Result<usize> {
    let mut publisher = Publisher::new(job, options());
    let element = ElementType::of::<u64>();
    let publish = |(name, layout): &(&str, &Layout)| publisher.publish(name, layout, element);
    let ids = arrays.iter().map(publish).collect::<Result<Vec<_>>>()?;
    publisher.open(meeting)?;
    publisher.wait_for(1)?;
    for step in 0..steps {
        for (&id, (_, layout)) in ids.iter().zip(arrays) {
            publisher.put(id, step, b"", &own(layout, rank, step))?;
        }
    }
    publisher.finish()
}

/// A consumer whose ranks are processes: checks every element.
fn consume(job: Job, rank: usize, meeting: &Meeting, arrays: &[(&str, &Layout)]) -> Result<u64> {
    consume_with(options(), job, rank, meeting, arrays)
}

fn consume_with(
    options: Options,
    job: Job,
    rank: usize,
    meeting: &Meeting,
    arrays: &[(&str, &Layout)],
) -> Result<u64> {
    let mut subscriber = Subscriber::new(job, options);
    let element = ElementType::of::<u64>();
    let subscribe = |(name, layout): &(&str, &Layout)| subscriber.subscribe(name, layout, element);
    let ids = arrays.iter().map(subscribe).collect::<Result<Vec<_>>>()?;
    subscriber.connect(meeting)?;
    let mut parts: Vec<Vec<Vec<u64>>> =
        arrays.iter().map(|(_, layout)| own(layout, rank, u64::MAX)).collect();
    let mut steps = 0;
    loop {
        let mut ended = 0;
        for ((&id, (_, layout)), parts) in ids.iter().zip(arrays).zip(&mut parts) {
            match subscriber.get(id, parts)? {
                Some(info) => {
                    assert!(info.number == steps && *parts == own(layout, rank, steps), "step {steps}");
                }
                None => ended += 1,
            }
        }
        if ended > 0 {
            assert_eq!(ended, ids.len());
            subscriber.leave();
            return Ok(steps);
        }
        steps += 1;
    }
}

/// A matrix on all ranks, and a vector that only some have on either side.
#[test]
fn arrays_that_go_between_different_ranks() {
    let meeting = meeting();
    let (matrix, vector) = (layout("2x2/8x8 of 50x60"), layout("1/1 of 5"));
    let (rows, copy) = (layout("3x1/5x5 of 50x60"), layout("2/3 of 5"));
    let arrays = [("m", &matrix), ("v", &vector)];
    std::thread::scope(|scope| {
        let producers =
            scope.spawn(|| on_all(4, |job, rank| produce(job, rank, &meeting, &arrays, 300).unwrap()));
        let arrays = [("m", &rows), ("v", &copy)];
        let got = on_all(3, |job, rank| consume(job, rank, &meeting, &arrays).unwrap());
        assert_eq!(got, [300; 3]);
        assert_eq!(producers.join().unwrap(), [1; 4]);
    });
}

/// Fewer connections than there are processes to get something from: they are made anew in every step.
#[test]
fn few_connections_at_a_time() {
    let meeting = meeting();
    let (matrix, vector) = (layout("3x2/4x4 of 50x60"), layout("6/1 of 50"));
    let (columns, copy) = (layout("1x2/5x5 of 50x60"), layout("2/9 of 50"));
    for most in [1, 2, 5, 6] {
        let arrays = [("m", &matrix), ("v", &vector)];
        std::thread::scope(|scope| {
            let producers =
                scope.spawn(|| on_all(6, |job, rank| produce(job, rank, &meeting, &arrays, 20).unwrap()));
            let arrays = [("m", &columns), ("v", &copy)];
            let few = || options().with_connections(most);
            let got = on_all(2, |job, rank| consume_with(few(), job, rank, &meeting, &arrays).unwrap());
            assert_eq!(got, [20; 2], "{most}");
            assert_eq!(producers.join().unwrap(), [1; 6]);
        });
    }
}

/// Steps that take a while to pack, each put only when the one before was taken: who sleeps is woken as often as it must be.
#[test]
fn whole_steps_in_lockstep_do_not_wait_for_a_deadline() {
    let (meeting, from, to) = (meeting(), layout("2x1/64x64 of 1024x1024"), layout("1x2/50x50 of 1024x1024"));
    let (element, turn) = (ElementType::of::<u64>(), std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        let producers = scope.spawn(|| {
            on_all(2, |job, rank| {
                let mut publisher = Publisher::new(job, options());
                let id = publisher.publish("t", &from, element).unwrap();
                publisher.open(&meeting).unwrap();
                publisher.wait_for(1).unwrap();
                for step in 0..5 {
                    let part = own(&from, rank, step);
                    turn.wait();
                    publisher.put(id, step, b"", &part).unwrap();
                    turn.wait();
                }
                publisher.finish().unwrap()
            })
        });
        on_all(2, |job, rank| {
            let mut subscriber = Subscriber::new(job, options());
            let wanted = Subscription::new("t", &to, element).whole_steps();
            let id = subscriber.subscribe_to(wanted).unwrap();
            subscriber.connect(&meeting).unwrap();
            let mut parts = own(&to, rank, u64::MAX);
            for step in 0..5 {
                turn.wait();
                let began = Instant::now();
                subscriber.get(id, &mut parts).unwrap();
                assert!(began.elapsed() < DEADLINE / 2, "step {step} took {:?}", began.elapsed());
                assert!(parts == own(&to, rank, step), "step {step}");
                turn.wait();
            }
            assert!(subscriber.get(id, &mut parts).unwrap().is_none());
            subscriber.leave();
        });
        assert_eq!(producers.join().unwrap(), [1; 2]);
    });
}

/// More connections at once than strangers are let in.
#[test]
fn many_processes_come_at_once() {
    let (meeting, from, to) = (meeting(), layout("2/50 of 8000"), layout("100/7 of 8000"));
    let arrays = [("t", &from)];
    std::thread::scope(|scope| {
        let producers =
            scope.spawn(|| on_all(2, |job, rank| produce(job, rank, &meeting, &arrays, 3).unwrap()));
        let arrays = [("t", &to)];
        let got = on_all(100, |job, rank| consume(job, rank, &meeting, &arrays).unwrap());
        assert_eq!(got, [3; 100]);
        assert_eq!(producers.join().unwrap(), [1; 2]);
    });
}

/// One process cannot listen: all are told which and why, and nothing of the secret.
#[test]
fn an_address_that_is_taken_is_an_error_of_all() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let (meeting, array) = (meeting(), layout("2/3 of 12"));
    let errors = on_all(2, |job, rank| {
        let bind = if rank == 1 { taken } else { "127.0.0.1:0".parse().unwrap() };
        let mut publisher = Publisher::new(job, options().with_bind(bind));
        publisher.publish("t", &array, ElementType::of::<u64>()).unwrap();
        publisher.open(&meeting).unwrap_err()
    });
    for error in errors {
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::External, "{said}");
        assert!(said.starts_with(&format!("process 1: nothing can listen at {taken}")), "{said}");
    }
}

/// A wrong part on one process is an error of all, and the next step goes on.
#[test]
fn a_wrong_part_on_one_process_is_an_error_of_all() {
    let (meeting, from, to) = (meeting(), layout("2/3 of 12"), layout("3/1 of 12"));
    std::thread::scope(|scope| {
        let producers = scope.spawn(|| {
            on_all(2, |job, rank| {
                let mut publisher = Publisher::new(job, options());
                let id = publisher.publish("t", &from, ElementType::of::<u64>()).unwrap();
                publisher.open(&meeting).unwrap();
                publisher.wait_for(1).unwrap();
                let parts = own(&from, rank, 0);
                let short: Vec<&[u64]> = vec![&parts[0][..5]];
                let wrong = match rank {
                    0 => publisher.put(id, 0, b"", &parts),
                    _ => publisher.put(id, 0, b"", &short),
                };
                let error = wrong.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
                assert!(
                    error.to_string().starts_with("process 1: the part of rank 1 has 40 bytes"),
                    "{error}"
                );
                publisher.put(id, 0, b"", &parts).unwrap();
                publisher.finish().unwrap()
            })
        });
        let arrays = [("t", &to)];
        assert_eq!(on_all(3, |job, rank| consume(job, rank, &meeting, &arrays).unwrap()), [1; 3]);
        assert_eq!(producers.join().unwrap(), [1; 2]);
    });
}

/// One process of a consumer is gone: all processes of the producer are told at the same call, and so are the consumer's others.
#[test]
fn a_process_that_is_gone_is_an_error_of_all_at_the_same_step() {
    let (meeting, from, to) = (meeting(), layout("2/3 of 24"), layout("3/1 of 24"));
    std::thread::scope(|scope| {
        let producers = scope.spawn(|| {
            on_all(2, |job, rank| {
                let mut publisher = Publisher::new(job, options());
                let id = publisher.publish("t", &from, ElementType::of::<u64>()).unwrap();
                publisher.open(&meeting).unwrap();
                publisher.wait_for(1).unwrap();
                let (mut step, began) = (0, Instant::now());
                let error = loop {
                    match publisher.put(id, step, b"", &own(&from, rank, step)) {
                        Ok(()) => step += 1,
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), ErrorKind::Partner, "{error}");
                assert!(began.elapsed() < DEADLINE, "{error}");
                // The job goes on without it.
                assert_eq!(publisher.consumers(), 0);
                publisher.put(id, step, b"", &own(&from, rank, step)).unwrap();
                (step, error.to_string(), publisher.finish().unwrap())
            })
        });
        let short = Duration::from_secs(2);
        let consumers = on_all(3, |job, rank| {
            let mut subscriber = Subscriber::new(job, options().with_deadline(short));
            let id = subscriber.subscribe("t", &to, ElementType::of::<u64>()).unwrap();
            subscriber.connect(&meeting).unwrap();
            let mut parts = own(&to, rank, 0);
            for step in 0..5 {
                assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, step);
            }
            if rank == 2 {
                return None;
            }
            subscriber.get(id, &mut parts).err()
        });
        assert!(consumers[0].is_some() && consumers[1].is_some() && consumers[2].is_none());
        let told = producers.join().unwrap();
        assert_eq!(told[0], told[1]);
        assert!(told[0].1.contains("process 2 of consumer 1 is gone"), "{told:?}");
    });
}

/// A process that cannot make a call takes part in it, so that the others need not wait for it: to open, to put, to connect, to get.
#[test]
fn a_call_that_one_process_cannot_make_is_an_error_of_all() {
    let wrong = || Error::new(ErrorKind::Mismatch, "it was called wrongly");
    let (meeting, from, to) = (meeting(), layout("2/3 of 12"), layout("2/1 of 12"));
    let element = ElementType::of::<u64>();
    let said = |outcome: Result<()>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), "process 1: it was called wrongly");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let producers = scope.spawn(|| {
            on_all(2, |job, rank| {
                let mut publisher = Publisher::new(job, options());
                let id = publisher.publish("t", &from, element).unwrap();
                said(if rank == 1 { publisher.refuse(wrong()) } else { publisher.open(&meeting) });
                publisher.open(&meeting).unwrap();
                publisher.wait_for(1).unwrap();
                let part = own(&from, rank, 0);
                said(if rank == 1 { publisher.refuse(wrong()) } else { publisher.put(id, 0, b"", &part) });
                publisher.put(id, 0, b"", &part).unwrap();
                publisher.finish().unwrap()
            })
        });
        on_all(2, |job, rank| {
            let mut subscriber = Subscriber::new(job, options());
            let id = subscriber.subscribe("t", &to, element).unwrap();
            said(if rank == 1 { subscriber.refuse(wrong()) } else { subscriber.connect(&meeting).map(drop) });
            subscriber.connect(&meeting).unwrap();
            let mut parts = own(&to, rank, u64::MAX);
            said(if rank == 1 {
                subscriber.refuse(wrong())
            } else {
                subscriber.get(id, &mut parts).map(drop)
            });
            assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, 0);
            assert!(parts == own(&to, rank, 0));
            assert_eq!(subscriber.get(id, &mut parts), Ok(None));
            subscriber.leave();
        });
        assert_eq!(producers.join().unwrap(), [1; 2]);
    });
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
}
