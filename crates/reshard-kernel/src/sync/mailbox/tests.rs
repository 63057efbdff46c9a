//! The post between real threads. `loom_models` tries all interleavings of a few letters.

use super::{Failed, Mailbox, SlotHandle};
use crate::pool::ThreadPool;
use crate::sync::patience::within_a_minute;
use reshard_testkit::allocations;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What slots would hold; only the post's own locks order the accesses to it.
struct Buffers {
    slots: usize,
    words: Vec<AtomicU64>,
}

impl Buffers {
    fn new(ranks: usize, slots: usize) -> Self {
        Self { slots, words: (0..ranks * slots).map(|_| AtomicU64::new(0)).collect() }
    }

    fn of(&self, rank: usize, slot: u32) -> &AtomicU64 {
        &self.words[rank * self.slots + slot as usize]
    }
}

/// A rank's share of an exchange in which every message consists of `chunks` letters: sends and receives whatever it can,
/// and sleeps when it can do neither.
fn exchange(
    post: &Mailbox,
    buffers: &Buffers,
    ends: &[(usize, usize)],
    rank: usize,
    chunks: u64,
) -> Result<(), Failed> {
    let count = |mine: fn(&(usize, usize)) -> usize| ends.iter().filter(|ends| mine(ends) == rank).count();
    let mut to_do = (count(|ends| ends.0) + count(|ends| ends.1)) as u64 * chunks;
    let (mut sent, mut received) = (vec![0; ends.len()], vec![0; ends.len()]);
    loop {
        let seen = post.news(rank);
        let before = to_do;
        for (message, &(sender, receiver)) in ends.iter().enumerate() {
            let content = |chunk: u64| message as u64 * chunks + chunk;
            if sender == rank
                && sent[message] < chunks
                && let Some(slot) = post.take_slot(rank)
            {
                buffers.of(rank, slot).store(content(sent[message]), Ordering::Relaxed);
                post.send(message, SlotHandle { slot, bytes: sent[message] });
                sent[message] += 1;
                to_do -= 1;
            }
            if receiver == rank
                && let Some(letter) = post.receive(message)
            {
                assert_eq!(letter.bytes, received[message], "in order");
                let found = buffers.of(sender, letter.slot).load(Ordering::Relaxed);
                assert_eq!(found, content(received[message]), "whole");
                post.give_back(message, letter.slot);
                received[message] += 1;
                to_do -= 1;
            }
        }
        if to_do == 0 {
            return Ok(());
        }
        if to_do == before {
            post.wait(rank, seen)?;
        }
    }
}

fn all_pairs(ranks: usize) -> Vec<(usize, usize)> {
    (0..ranks).flat_map(|sender| (0..ranks).map(move |receiver| (sender, receiver))).collect()
}

#[test]
fn many_chunks_through_one_slot_arrive_whole_and_in_order() {
    within_a_minute(|| {
        let ends = [(0, 1)];
        let (mut post, buffers) = (Mailbox::new(2, 1, &ends), Buffers::new(2, 1));
        for _ in 0..200 {
            thread::scope(|scope| {
                for rank in 0..2 {
                    let (post, buffers) = (&post, &buffers);
                    scope.spawn(move || exchange(post, buffers, &ends, rank, 20).unwrap());
                }
            });
            post.reset();
        }
    });
}

#[test]
fn everybody_to_everybody_and_to_itself() {
    within_a_minute(|| {
        for (ranks, slots, rounds) in [(1, 1, 10), (5, 1, 200), (16, 3, 50)] {
            let ends = all_pairs(ranks);
            let (mut post, buffers) = (Mailbox::new(ranks, slots, &ends), Buffers::new(ranks, slots));
            let mut crew = ThreadPool::new(ranks).unwrap();
            for _ in 0..rounds {
                crew.run(&|rank| exchange(&post, &buffers, &ends, rank, 3).unwrap()).unwrap();
                post.reset();
            }
        }
    });
}

#[test]
fn five_hundred_ranks_pass_letters_around_a_ring() {
    within_a_minute(|| {
        let ends: Vec<_> = (0..500).map(|rank| (rank, (rank + 1) % 500)).collect();
        let (post, buffers) = (Mailbox::new(500, 2, &ends), Buffers::new(500, 2));
        ThreadPool::new(500)
            .unwrap()
            .run(&|rank| exchange(&post, &buffers, &ends, rank, 10).unwrap())
            .unwrap();
    });
}

#[test]
fn slots_run_out_and_come_back() {
    let post = Mailbox::new(2, 3, &[(0, 1), (0, 1)]);
    let slots: Vec<u32> = std::iter::from_fn(|| post.take_slot(0)).collect();
    assert_eq!(slots, [0, 1, 2]);
    assert!(post.take_slot(1).is_some(), "each rank has its own");

    let letters = [2, 0, 1].map(|slot| SlotHandle { slot, bytes: 10 + u64::from(slot) });
    post.send(0, letters[0]);
    post.send(1, letters[1]);
    post.send(0, letters[2]);
    assert_eq!((post.news(0), post.news(1)), (0, 3));
    assert_eq!(post.take_slot(0), None, "all are travelling");

    assert_eq!(post.receive(0), Some(letters[0]));
    assert_eq!(post.receive(0), Some(letters[2]));
    assert_eq!(post.receive(0), None);
    assert_eq!(post.receive(1), Some(letters[1]));
    assert_eq!(post.take_slot(0), None, "all are with the receiver");

    post.give_back(0, 1);
    assert_eq!((post.news(0), post.news(1)), (1, 3));
    assert_eq!(post.take_slot(0), Some(1));
    assert_eq!(post.take_slot(0), None);
}

#[test]
fn ranks_without_slots_or_messages_are_possible() {
    let post = Mailbox::new(1, 0, &[]);
    assert_eq!(post.take_slot(0), None);
    assert_eq!(post.wait_all(post.arrive(0)), Ok(()));
    assert_eq!(Mailbox::new(0, 0, &[]).wait_all(0), Ok(()));
}

#[test]
#[should_panic(expected = "slot 1 is sent")]
fn a_slot_that_was_not_taken_cannot_be_sent() {
    Mailbox::new(2, 2, &[(0, 1)]).send(0, SlotHandle { slot: 1, bytes: 0 });
}

#[test]
#[should_panic(expected = "slot 0 is given back")]
fn a_slot_cannot_be_given_back_twice() {
    let post = Mailbox::new(2, 1, &[(0, 1)]);
    let slot = post.take_slot(0).unwrap();
    post.send(0, SlotHandle { slot, bytes: 0 });
    post.receive(0).unwrap();
    post.give_back(0, slot);
    post.give_back(0, slot);
}

#[test]
fn news_that_came_before_waiting_is_not_waited_for() {
    let post = Mailbox::new(2, 1, &[(0, 1)]);
    let seen = post.news(1);
    let slot = post.take_slot(0).unwrap();
    post.send(0, SlotHandle { slot, bytes: 0 });
    assert_eq!(post.wait(1, seen), Ok(()));
}

#[test]
fn a_failing_rank_wakes_everybody_and_reset_forgets_it() {
    within_a_minute(|| {
        let ranks = 6;
        let ends = all_pairs(ranks);
        let (mut post, buffers) = (Mailbox::new(ranks, 1, &ends), Buffers::new(ranks, 1));
        for round in 0..200 {
            let guilty = round % ranks;
            thread::scope(|scope| {
                for rank in 0..ranks {
                    let post = &post;
                    scope.spawn(move || {
                        if rank == guilty {
                            return post.fail(rank);
                        }
                        let outcome =
                            if rank % 2 == 0 { post.wait(rank, 0) } else { post.wait_all(post.arrive(rank)) };
                        assert_eq!(outcome, Err(Failed { rank: guilty }));
                    });
                }
            });
            assert_eq!(post.wait(guilty, 0), Err(Failed { rank: guilty }), "later, too");
            post.reset();
            assert_eq!(post.failed(), None);
            if round % 20 == 0 {
                thread::scope(|scope| {
                    for rank in 0..ranks {
                        let (post, buffers, ends) = (&post, &buffers, &ends);
                        scope.spawn(move || exchange(post, buffers, ends, rank, 2).unwrap());
                    }
                });
                post.reset();
            }
        }
    });
}

#[test]
fn the_first_failure_stays_named() {
    let post = Mailbox::new(3, 1, &[]);
    assert_eq!(post.failed(), None);
    post.fail(2);
    post.fail(0);
    assert_eq!(post.failed(), Some(2));
    assert_eq!(post.wait(1, 0), Err(Failed { rank: 2 }));
    assert_eq!(post.wait_all(0), Err(Failed { rank: 2 }));
    assert_eq!(Failed { rank: 2 }.to_string(), "rank 2 failed");
}

#[test]
fn nobody_begins_a_step_before_all_have_finished_the_last() {
    within_a_minute(|| {
        let ranks = 5;
        let mut post = Mailbox::new(ranks, 1, &[]);
        for _ in 0..200 {
            let finished: Vec<AtomicU64> = (0..ranks).map(|_| AtomicU64::new(0)).collect();
            thread::scope(|scope| {
                for rank in 0..ranks {
                    let (post, finished) = (&post, &finished);
                    scope.spawn(move || {
                        for step in 1..=5 {
                            finished[rank].store(step, Ordering::Relaxed);
                            assert_eq!(post.arrive(rank), step);
                            post.wait_all(step).unwrap();
                            assert!(finished.iter().all(|finished| finished.load(Ordering::Relaxed) >= step));
                        }
                    });
                }
            });
            post.reset();
        }
    });
}

#[test]
fn who_runs_ahead_does_not_finish_a_step_for_others() {
    let post = Mailbox::new(3, 1, &[]);
    let finished = |post: &Mailbox| post.meeting.hold(|meeting| meeting.finished);
    for (rank, expected) in [(0, 0), (0, 0), (0, 0), (1, 0), (2, 1), (2, 1), (1, 2), (2, 2), (1, 3), (0, 3)] {
        post.arrive(rank);
        assert_eq!(finished(&post), expected);
    }
}

#[test]
fn nothing_allocates_after_the_beginning() {
    let mut post = Mailbox::new(2, 4, &[(0, 1), (0, 1)]);
    let before = allocations::of_this_thread();
    for _ in 0..10 {
        for message in [0, 1, 0, 1] {
            let slot = post.take_slot(0).unwrap();
            post.send(message, SlotHandle { slot, bytes: 1 });
        }
        for message in [0, 0, 1, 1] {
            let letter = post.receive(message).unwrap();
            post.give_back(message, letter.slot);
        }
        post.wait(0, post.news(0) - 1).unwrap();
        let steps = post.arrive(0).min(post.arrive(1));
        post.wait_all(steps).unwrap();
        post.fail(1);
        post.reset();
    }
    assert_eq!(allocations::of_this_thread(), before);
}
