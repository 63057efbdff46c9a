//! Every interleaving of a small pool, from its start to its end; `ThreadPool::new` ends with a job of its own, so there
//! is one more round than is seen here. Of larger pools, the interleavings with a few preemptions.

use super::{Panicked, ThreadPool};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::models::{every_interleaving, with_preemptions};

/// Counters of calls that only a lock makes visible to other threads.
fn calls() -> [AtomicUsize; 2] {
    [AtomicUsize::new(0), AtomicUsize::new(0)]
}

fn add_one(calls: &[AtomicUsize; 2], worker: usize) {
    calls[worker].store(calls[worker].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn read(calls: &[AtomicUsize; 2]) -> [usize; 2] {
    [calls[0].load(Ordering::Relaxed), calls[1].load(Ordering::Relaxed)]
}

#[test]
fn all_have_ended_when_run_returns() {
    every_interleaving(|| {
        let mut pool = ThreadPool::new(2).unwrap();
        let calls = calls();
        pool.run(&|worker| add_one(&calls, worker)).unwrap();
        assert_eq!(read(&calls), [1, 1]);
    });
}

#[test]
fn a_panic_is_reported_and_the_pool_goes_on() {
    with_preemptions(6, || {
        let mut pool = ThreadPool::new(2).unwrap();
        let calls = calls();
        let outcome = pool.run(&|worker| {
            add_one(&calls, worker);
            assert!(worker == 0, "enough");
        });
        assert_eq!(outcome, Err(Panicked { worker: 1, message: "enough".to_string() }));
        assert_eq!(read(&calls), [1, 1]);
        pool.run(&|worker| add_one(&calls, worker)).unwrap();
        assert_eq!(read(&calls), [2, 2]);
    });
}

#[test]
fn the_lowest_of_two_panics_is_reported() {
    with_preemptions(2, || {
        let mut pool = ThreadPool::new(3).unwrap();
        let outcome = pool.run(&|worker| assert!(worker == 0, "enough"));
        assert_eq!(outcome.map_err(|panicked| panicked.worker), Err(1));
    });
}
