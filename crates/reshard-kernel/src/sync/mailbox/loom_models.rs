//! Every interleaving of a few letters, failures and steps.

use super::{Failed, Mailbox, SlotHandle};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::models::{every_interleaving, with_preemptions};
use crate::sync::{Arc, thread};

/// The next letter of message 0, by its receiver, rank 1.
fn await_letter(post: &Mailbox) -> SlotHandle {
    loop {
        let seen = post.news(1);
        match post.receive(0) {
            Some(letter) => return letter,
            None => post.wait(1, seen).expect("nobody fails"),
        }
    }
}

/// A free slot of rank 0.
fn await_slot(post: &Mailbox) -> u32 {
    loop {
        let seen = post.news(0);
        match post.take_slot(0) {
            Some(slot) => return slot,
            None => post.wait(0, seen).expect("nobody fails"),
        }
    }
}

#[test]
fn a_letter_wakes_its_receiver() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let sender = {
            let post = Arc::clone(&post);
            thread::spawn(move || {
                let slot = await_slot(&post);
                post.send(0, SlotHandle { slot, bytes: 8 });
            })
        };
        assert_eq!(await_letter(&post), SlotHandle { slot: 0, bytes: 8 });
        sender.join().unwrap();
    });
}

#[test]
fn a_slot_that_comes_back_wakes_its_sender() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let slot = await_slot(&post);
        post.send(0, SlotHandle { slot, bytes: 8 });
        let receiver = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.give_back(0, post.receive(0).unwrap().slot))
        };
        assert_eq!(await_slot(&post), slot);
        receiver.join().unwrap();
    });
}

/// Rank 0 sends `chunks` letters to rank 1, with one slot.
fn pass_through_one_slot(chunks: u64) {
    let post = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
    // What the slot holds; nothing but the post's locks makes it visible.
    let buffer = Arc::new(AtomicU64::new(0));
    let sender = {
        let (post, buffer) = (Arc::clone(&post), Arc::clone(&buffer));
        thread::spawn(move || {
            for chunk in 1..=chunks {
                let slot = await_slot(&post);
                buffer.store(chunk, Ordering::Relaxed);
                post.send(0, SlotHandle { slot, bytes: chunk });
            }
        })
    };
    for chunk in 1..=chunks {
        let letter = await_letter(&post);
        assert_eq!(letter, SlotHandle { slot: 0, bytes: chunk });
        assert_eq!(buffer.load(Ordering::Relaxed), chunk);
        post.give_back(0, letter.slot);
    }
    sender.join().expect("the sender sent all");
}

#[test]
fn two_chunks_through_one_slot_arrive_whole_and_in_order() {
    every_interleaving(|| pass_through_one_slot(2));
}

#[test]
fn four_chunks_through_one_slot_arrive_whole_and_in_order() {
    with_preemptions(3, || pass_through_one_slot(4));
}

#[test]
fn two_senders_and_their_receiver() {
    with_preemptions(3, || {
        let post = Arc::new(Mailbox::new(3, 1, &[(0, 2), (1, 2)]));
        let senders = [0, 1].map(|rank| {
            let post = Arc::clone(&post);
            thread::spawn(move || {
                let slot = post.take_slot(rank).unwrap();
                post.send(rank, SlotHandle { slot, bytes: 8 });
            })
        });
        let mut missing = 2;
        while missing > 0 {
            let seen = post.news(2);
            let arrived = [0, 1].into_iter().filter(|&message| post.receive(message).is_some()).count();
            missing -= arrived;
            if missing > 0 && arrived == 0 {
                post.wait(2, seen).unwrap();
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_failing_rank_ends_every_wait() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let failing = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.fail(0))
        };
        let seen = post.news(1);
        assert_eq!(post.wait(1, seen), Err(Failed { rank: 0 }));
        failing.join().unwrap();
    });
}

#[test]
fn a_rank_that_fails_after_its_letter_ends_the_wait_for_the_next() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let failing = {
            let post = Arc::clone(&post);
            thread::spawn(move || {
                let slot = post.take_slot(0).unwrap();
                post.send(0, SlotHandle { slot, bytes: 8 });
                post.fail(0);
            })
        };
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let seen = post.news(1);
            post.receive(0);
            outcome = post.wait(1, seen);
        }
        assert_eq!(outcome, Err(Failed { rank: 0 }));
        failing.join().unwrap();
    });
}

#[test]
fn all_are_told_the_same_failure() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(3, 1, &[]));
        let failing = [0, 1].map(|rank| {
            let post = Arc::clone(&post);
            thread::spawn(move || {
                post.fail(rank);
                post.failed()
            })
        });
        let told = post.wait(2, 0).unwrap_err().rank;
        for failing in failing {
            assert_eq!(failing.join().unwrap(), Some(told));
        }
    });
}

#[test]
fn nobody_begins_a_step_before_all_have_finished_the_last() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(2, 1, &[]));
        let finished = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let take_steps = |rank: usize| {
            let (post, finished) = (Arc::clone(&post), Arc::clone(&finished));
            move || {
                for step in 1..=2 {
                    finished[rank].store(step, Ordering::Relaxed);
                    assert_eq!(post.arrive(rank), step);
                    post.wait_all(step).unwrap();
                    assert!(finished[1 - rank].load(Ordering::Relaxed) >= step);
                }
            }
        };
        let other = thread::spawn(take_steps(1));
        take_steps(0)();
        other.join().unwrap();
    });
}

#[test]
fn a_failing_rank_ends_the_meeting_for_all() {
    every_interleaving(|| {
        let post = Arc::new(Mailbox::new(3, 1, &[]));
        let waiting = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.wait_all(post.arrive(0)))
        };
        let failing = {
            let post = Arc::clone(&post);
            thread::spawn(move || post.fail(2))
        };
        assert_eq!(post.wait_all(post.arrive(1)), Err(Failed { rank: 2 }));
        assert_eq!(waiting.join().unwrap(), Err(Failed { rank: 2 }));
        failing.join().unwrap();
    });
}
