//! The mailbox between real threads. `loom_models` tries all interleavings of a few fragments.

use super::{Failed, Mailbox, SlotHandle};
use crate::pool::ThreadPool;
use crate::sync::timeout::within_minutes;
use reshard_testkit::allocations;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The contents of slots; only the locks of the mailbox order the accesses to them.
struct SlotWords {
    slots: usize,
    words: Vec<AtomicU64>,
}

impl SlotWords {
    fn new(ranks: usize, slots: usize) -> Self {
        Self { slots, words: (0..ranks * slots).map(|_| AtomicU64::new(0)).collect() }
    }

    fn of(&self, rank: usize, slot: u32) -> &AtomicU64 {
        &self.words[rank * self.slots + slot as usize]
    }
}

/// One rank's part of an exchange in which every message consists of `fragments` fragments: sends and receives whatever it
/// can, and waits when it can do neither.
fn exchange(
    mailbox: &Mailbox,
    buffers: &SlotWords,
    endpoints: &[(usize, usize)],
    rank: usize,
    fragments: u64,
) -> Result<(), Failed> {
    let count = |mine: fn(&(usize, usize)) -> usize| {
        endpoints.iter().filter(|endpoints| mine(endpoints) == rank).count()
    };
    let mut to_do = (count(|endpoints| endpoints.0) + count(|endpoints| endpoints.1)) as u64 * fragments;
    let (mut sent, mut received) = (vec![0; endpoints.len()], vec![0; endpoints.len()]);
    loop {
        let seen = mailbox.event_count(rank);
        let before = to_do;
        for (message, &(sender, receiver)) in endpoints.iter().enumerate() {
            let content = |fragment: u64| message as u64 * fragments + fragment;
            if sender == rank
                && sent[message] < fragments
                && let Some(slot) = mailbox.take_slot(rank)
            {
                buffers.of(rank, slot).store(content(sent[message]), Ordering::Relaxed);
                mailbox.send(message, SlotHandle { slot, bytes: sent[message] });
                sent[message] += 1;
                to_do -= 1;
            }
            if receiver == rank
                && let Some(handle) = mailbox.receive(message)
            {
                assert_eq!(handle.bytes, received[message], "in order");
                let found = buffers.of(sender, handle.slot).load(Ordering::Relaxed);
                assert_eq!(found, content(received[message]), "whole");
                mailbox.release_slot(message, handle.slot);
                received[message] += 1;
                to_do -= 1;
            }
        }
        if to_do == 0 {
            return Ok(());
        }
        if to_do == before {
            mailbox.wait(rank, seen)?;
        }
    }
}

fn all_pairs(ranks: usize) -> Vec<(usize, usize)> {
    (0..ranks).flat_map(|sender| (0..ranks).map(move |receiver| (sender, receiver))).collect()
}

#[test]
fn many_fragments_through_one_slot_arrive_whole_and_in_order() {
    within_minutes(|| {
        let endpoints = [(0, 1)];
        let (mut mailbox, buffers) = (Mailbox::new(2, 1, &endpoints), SlotWords::new(2, 1));
        for _ in 0..200 {
            thread::scope(|scope| {
                for rank in 0..2 {
                    let (mailbox, buffers) = (&mailbox, &buffers);
                    scope.spawn(move || exchange(mailbox, buffers, &endpoints, rank, 20).unwrap());
                }
            });
            mailbox.reset();
        }
    });
}

#[test]
fn everybody_to_everybody_and_to_itself() {
    within_minutes(|| {
        for (ranks, slots, rounds) in [(1, 1, 10), (5, 1, 200), (16, 3, 50)] {
            let endpoints = all_pairs(ranks);
            let (mut mailbox, buffers) =
                (Mailbox::new(ranks, slots, &endpoints), SlotWords::new(ranks, slots));
            let mut pool = ThreadPool::new(ranks).unwrap();
            for _ in 0..rounds {
                pool.run(&|rank| exchange(&mailbox, &buffers, &endpoints, rank, 3).unwrap()).unwrap();
                mailbox.reset();
            }
        }
    });
}

#[test]
fn five_hundred_ranks_pass_fragments_around_a_ring() {
    within_minutes(|| {
        let endpoints: Vec<_> = (0..500).map(|rank| (rank, (rank + 1) % 500)).collect();
        let (mailbox, buffers) = (Mailbox::new(500, 2, &endpoints), SlotWords::new(500, 2));
        ThreadPool::new(500)
            .unwrap()
            .run(&|rank| exchange(&mailbox, &buffers, &endpoints, rank, 10).unwrap())
            .unwrap();
    });
}

#[test]
fn slots_run_out_and_come_back() {
    let mailbox = Mailbox::new(2, 3, &[(0, 1), (0, 1)]);
    let slots: Vec<u32> = std::iter::from_fn(|| mailbox.take_slot(0)).collect();
    assert_eq!(slots, [0, 1, 2]);
    assert!(mailbox.take_slot(1).is_some(), "each rank has its own");

    let handles = [2, 0, 1].map(|slot| SlotHandle { slot, bytes: 10 + u64::from(slot) });
    mailbox.send(0, handles[0]);
    mailbox.send(1, handles[1]);
    mailbox.send(0, handles[2]);
    assert_eq!((mailbox.event_count(0), mailbox.event_count(1)), (0, 3));
    assert_eq!(mailbox.take_slot(0), None, "all are in flight");

    assert_eq!(mailbox.receive(0), Some(handles[0]));
    assert_eq!(mailbox.receive(0), Some(handles[2]));
    assert_eq!(mailbox.receive(0), None);
    assert_eq!(mailbox.receive(1), Some(handles[1]));
    assert_eq!(mailbox.take_slot(0), None, "all are with the receiver");

    mailbox.release_slot(0, 1);
    assert_eq!((mailbox.event_count(0), mailbox.event_count(1)), (1, 3));
    assert_eq!(mailbox.take_slot(0), Some(1));
    assert_eq!(mailbox.take_slot(0), None);
}

#[test]
fn ranks_without_slots_or_messages_are_possible() {
    let mailbox = Mailbox::new(1, 0, &[]);
    assert_eq!(mailbox.take_slot(0), None);
    assert_eq!(mailbox.wait_all(mailbox.arrive(0)), Ok(()));
    assert_eq!(Mailbox::new(0, 0, &[]).wait_all(0), Ok(()));
}

#[test]
#[should_panic(expected = "slot 1 is sent")]
fn a_slot_that_was_not_taken_cannot_be_sent() {
    Mailbox::new(2, 2, &[(0, 1)]).send(0, SlotHandle { slot: 1, bytes: 0 });
}

#[test]
#[should_panic(expected = "slot 0 is sent")]
fn a_slot_in_flight_cannot_be_sent_again() {
    let mailbox = Mailbox::new(2, 1, &[(0, 1)]);
    let slot = mailbox.take_slot(0).unwrap();
    mailbox.send(0, SlotHandle { slot, bytes: 0 });
    mailbox.send(0, SlotHandle { slot, bytes: 0 });
}

#[test]
#[should_panic(expected = "slot 0 is released")]
fn a_slot_cannot_be_released_twice() {
    let mailbox = Mailbox::new(2, 1, &[(0, 1)]);
    let slot = mailbox.take_slot(0).unwrap();
    mailbox.send(0, SlotHandle { slot, bytes: 0 });
    mailbox.receive(0).unwrap();
    mailbox.release_slot(0, slot);
    mailbox.release_slot(0, slot);
}

#[test]
fn events_before_a_wait_end_it_at_once() {
    let mailbox = Mailbox::new(2, 1, &[(0, 1)]);
    let seen = mailbox.event_count(1);
    let slot = mailbox.take_slot(0).unwrap();
    mailbox.send(0, SlotHandle { slot, bytes: 0 });
    assert_eq!(mailbox.wait(1, seen), Ok(()));
}

#[test]
fn a_failing_rank_wakes_everybody_and_reset_forgets_it() {
    within_minutes(|| {
        let ranks = 6;
        let endpoints = all_pairs(ranks);
        let (mut mailbox, buffers) = (Mailbox::new(ranks, 1, &endpoints), SlotWords::new(ranks, 1));
        for round in 0..200 {
            let failing_rank = round % ranks;
            thread::scope(|scope| {
                for rank in 0..ranks {
                    let mailbox = &mailbox;
                    scope.spawn(move || {
                        if rank == failing_rank {
                            return mailbox.fail(rank);
                        }
                        let outcome = if rank % 2 == 0 {
                            mailbox.wait(rank, 0)
                        } else {
                            mailbox.wait_all(mailbox.arrive(rank))
                        };
                        assert_eq!(outcome, Err(Failed { rank: failing_rank }));
                    });
                }
            });
            assert_eq!(mailbox.wait(failing_rank, 0), Err(Failed { rank: failing_rank }), "later, too");
            mailbox.reset();
            assert_eq!(mailbox.failed(), None);
            if round % 20 == 0 {
                thread::scope(|scope| {
                    for rank in 0..ranks {
                        let (mailbox, buffers, endpoints) = (&mailbox, &buffers, &endpoints);
                        scope.spawn(move || exchange(mailbox, buffers, endpoints, rank, 2).unwrap());
                    }
                });
                mailbox.reset();
            }
        }
    });
}

#[test]
fn the_first_failure_stays_named() {
    let mailbox = Mailbox::new(3, 1, &[]);
    assert_eq!(mailbox.failed(), None);
    mailbox.fail(2);
    mailbox.fail(0);
    assert_eq!(mailbox.failed(), Some(2));
    assert_eq!(mailbox.wait(1, 0), Err(Failed { rank: 2 }));
    assert_eq!(mailbox.wait_all(0), Err(Failed { rank: 2 }));
    assert_eq!(Failed { rank: 2 }.to_string(), "rank 2 failed");
}

#[test]
fn nobody_begins_a_step_before_all_have_finished_the_last() {
    within_minutes(|| {
        let ranks = 5;
        let mut mailbox = Mailbox::new(ranks, 1, &[]);
        for _ in 0..200 {
            let finished: Vec<AtomicU64> = (0..ranks).map(|_| AtomicU64::new(0)).collect();
            thread::scope(|scope| {
                for rank in 0..ranks {
                    let (mailbox, finished) = (&mailbox, &finished);
                    scope.spawn(move || {
                        for step in 1..=5 {
                            finished[rank].store(step, Ordering::Relaxed);
                            assert_eq!(mailbox.arrive(rank), step);
                            mailbox.wait_all(step).unwrap();
                            assert!(finished.iter().all(|finished| finished.load(Ordering::Relaxed) >= step));
                        }
                    });
                }
            });
            mailbox.reset();
        }
    });
}

#[test]
fn a_rank_ahead_does_not_finish_a_step_for_others() {
    let mailbox = Mailbox::new(3, 1, &[]);
    let finished = |mailbox: &Mailbox| mailbox.barrier.with(|barrier| barrier.finished);
    for (rank, expected) in [(0, 0), (0, 0), (0, 0), (1, 0), (2, 1), (2, 1), (1, 2), (2, 2), (1, 3), (0, 3)] {
        mailbox.arrive(rank);
        assert_eq!(finished(&mailbox), expected);
    }
}

#[test]
fn nothing_allocates_after_the_beginning() {
    let mut mailbox = Mailbox::new(2, 4, &[(0, 1), (0, 1)]);
    let before = allocations::of_this_thread();
    for _ in 0..10 {
        for message in [0, 1, 0, 1] {
            let slot = mailbox.take_slot(0).unwrap();
            mailbox.send(message, SlotHandle { slot, bytes: 1 });
        }
        for message in [0, 0, 1, 1] {
            let handle = mailbox.receive(message).unwrap();
            mailbox.release_slot(message, handle.slot);
        }
        mailbox.wait(0, mailbox.event_count(0) - 1).unwrap();
        let steps = mailbox.arrive(0).min(mailbox.arrive(1));
        mailbox.wait_all(steps).unwrap();
        mailbox.fail(1);
        mailbox.reset();
    }
    assert_eq!(allocations::of_this_thread(), before);
}
