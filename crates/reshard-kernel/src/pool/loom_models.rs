//! Every interleaving of a small crew, from its first thread to its last; `ThreadPool::new` ends with a job of its own, so there
//! is one more round than is seen here. Of larger ones, those with a few preemptions.

use super::{Panicked, ThreadPool};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::models::{every_interleaving, with_preemptions};

/// Counts calls in such a way that only a lock can make them visible.
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
        let mut crew = ThreadPool::new(2).unwrap();
        let calls = calls();
        crew.run(&|worker| add_one(&calls, worker)).unwrap();
        assert_eq!(read(&calls), [1, 1]);
    });
}

#[test]
fn a_panic_is_reported_and_the_crew_goes_on() {
    with_preemptions(6, || {
        let mut crew = ThreadPool::new(2).unwrap();
        let calls = calls();
        let outcome = crew.run(&|worker| {
            add_one(&calls, worker);
            assert!(worker == 0, "enough");
        });
        assert_eq!(outcome, Err(Panicked { worker: 1, message: "enough".to_string() }));
        assert_eq!(read(&calls), [1, 1]);
        crew.run(&|worker| add_one(&calls, worker)).unwrap();
        assert_eq!(read(&calls), [2, 2]);
    });
}

#[test]
fn the_lowest_of_two_panics_is_reported() {
    with_preemptions(2, || {
        let mut crew = ThreadPool::new(3).unwrap();
        let outcome = crew.run(&|worker| assert!(worker == 0, "enough"));
        assert_eq!(outcome.map_err(|panicked| panicked.worker), Err(1));
    });
}
