//! Every interleaving of a few fragments, failures and steps.

use super::{Failed, Mailbox, SlotHandle};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::models::{every_interleaving, with_preemptions};
use crate::sync::{Arc, thread};

/// Waits for the next fragment of message 0, as its receiver, rank 1.
fn await_fragment(mailbox: &Mailbox) -> SlotHandle {
    loop {
        let seen = mailbox.event_count(1);
        match mailbox.receive(0) {
            Some(handle) => return handle,
            None => mailbox.wait(1, seen).expect("nobody fails"),
        }
    }
}

/// Waits for a free slot of rank 0.
fn await_slot(mailbox: &Mailbox) -> u32 {
    loop {
        let seen = mailbox.event_count(0);
        match mailbox.take_slot(0) {
            Some(slot) => return slot,
            None => mailbox.wait(0, seen).expect("nobody fails"),
        }
    }
}

#[test]
fn a_fragment_wakes_its_receiver() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                let slot = await_slot(&mailbox);
                mailbox.send(0, SlotHandle { slot, bytes: 8 });
            })
        };
        assert_eq!(await_fragment(&mailbox), SlotHandle { slot: 0, bytes: 8 });
        sender.join().unwrap();
    });
}

#[test]
fn a_slot_that_comes_back_wakes_its_sender() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let slot = await_slot(&mailbox);
        mailbox.send(0, SlotHandle { slot, bytes: 8 });
        let receiver = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.release_slot(0, mailbox.receive(0).unwrap().slot))
        };
        assert_eq!(await_slot(&mailbox), slot);
        receiver.join().unwrap();
    });
}

/// Rank 0 sends `fragments` fragments to rank 1, with one slot.
fn pass_through_one_slot(fragments: u64) {
    let mailbox = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
    // The contents of the slot; nothing but the mailbox's locks makes them visible.
    let buffer = Arc::new(AtomicU64::new(0));
    let sender = {
        let (mailbox, buffer) = (Arc::clone(&mailbox), Arc::clone(&buffer));
        thread::spawn(move || {
            for fragment in 1..=fragments {
                let slot = await_slot(&mailbox);
                buffer.store(fragment, Ordering::Relaxed);
                mailbox.send(0, SlotHandle { slot, bytes: fragment });
            }
        })
    };
    for fragment in 1..=fragments {
        let handle = await_fragment(&mailbox);
        assert_eq!(handle, SlotHandle { slot: 0, bytes: fragment });
        assert_eq!(buffer.load(Ordering::Relaxed), fragment);
        mailbox.release_slot(0, handle.slot);
    }
    sender.join().expect("the sender sent all");
}

#[test]
fn two_fragments_through_one_slot_arrive_whole_and_in_order() {
    every_interleaving(|| pass_through_one_slot(2));
}

#[test]
fn four_fragments_through_one_slot_arrive_whole_and_in_order() {
    with_preemptions(3, || pass_through_one_slot(4));
}

#[test]
fn two_senders_and_their_receiver() {
    with_preemptions(3, || {
        let mailbox = Arc::new(Mailbox::new(3, 1, &[(0, 2), (1, 2)]));
        let senders = [0, 1].map(|rank| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                let slot = mailbox.take_slot(rank).unwrap();
                mailbox.send(rank, SlotHandle { slot, bytes: 8 });
            })
        });
        let mut missing = 2;
        while missing > 0 {
            let seen = mailbox.event_count(2);
            let arrived = [0, 1].into_iter().filter(|&message| mailbox.receive(message).is_some()).count();
            missing -= arrived;
            if missing > 0 && arrived == 0 {
                mailbox.wait(2, seen).unwrap();
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
        let mailbox = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let failing = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.fail(0))
        };
        let seen = mailbox.event_count(1);
        assert_eq!(mailbox.wait(1, seen), Err(Failed { rank: 0 }));
        failing.join().unwrap();
    });
}

#[test]
fn a_rank_that_fails_after_its_fragment_ends_the_wait_for_the_next() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(2, 1, &[(0, 1)]));
        let failing = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                let slot = mailbox.take_slot(0).unwrap();
                mailbox.send(0, SlotHandle { slot, bytes: 8 });
                mailbox.fail(0);
            })
        };
        let mut outcome = Ok(());
        while outcome.is_ok() {
            let seen = mailbox.event_count(1);
            mailbox.receive(0);
            outcome = mailbox.wait(1, seen);
        }
        assert_eq!(outcome, Err(Failed { rank: 0 }));
        failing.join().unwrap();
    });
}

#[test]
fn all_are_told_the_same_failure() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(3, 1, &[]));
        let failing = [0, 1].map(|rank| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                mailbox.fail(rank);
                mailbox.failed()
            })
        });
        let reported = mailbox.wait(2, 0).unwrap_err().rank;
        for failing in failing {
            assert_eq!(failing.join().unwrap(), Some(reported));
        }
    });
}

#[test]
fn nobody_begins_a_step_before_all_have_finished_the_last() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(2, 1, &[]));
        let finished = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let take_steps = |rank: usize| {
            let (mailbox, finished) = (Arc::clone(&mailbox), Arc::clone(&finished));
            move || {
                for step in 1..=2 {
                    finished[rank].store(step, Ordering::Relaxed);
                    assert_eq!(mailbox.arrive(rank), step);
                    mailbox.wait_all(step).unwrap();
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
fn a_failing_rank_ends_the_barrier_for_all() {
    every_interleaving(|| {
        let mailbox = Arc::new(Mailbox::new(3, 1, &[]));
        let waiting = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.wait_all(mailbox.arrive(0)))
        };
        let failing = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.fail(2))
        };
        assert_eq!(mailbox.wait_all(mailbox.arrive(1)), Err(Failed { rank: 2 }));
        assert_eq!(waiting.join().unwrap(), Err(Failed { rank: 2 }));
        failing.join().unwrap();
    });
}
