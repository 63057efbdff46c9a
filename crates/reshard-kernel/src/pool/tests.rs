//! Crews of real threads. `loom_models` tries all interleavings of small ones.

use super::{Panicked, ThreadPool};
use crate::sync::patience::within_a_minute;
use reshard_testkit::allocations;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

fn counters(workers: usize) -> Vec<AtomicU64> {
    (0..workers).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn every_worker_gets_every_job_once() {
    within_a_minute(|| {
        for workers in [1, 2, 3, 8] {
            let mut crew = ThreadPool::new(workers).unwrap();
            assert_eq!(crew.workers(), workers);
            let calls = counters(workers);
            for round in 0..200 {
                crew.run(&|worker| _ = calls[worker].fetch_add(1, Ordering::Relaxed)).unwrap();
                assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == round + 1));
            }
        }
    });
}

#[test]
fn workers_stay_on_their_threads_and_the_caller_is_the_first() {
    within_a_minute(|| {
        let mut crew = ThreadPool::new(3).unwrap();
        let identities = || Mutex::new(vec![None::<ThreadId>; 3]);
        let seen = [identities(), identities()];
        for seen in &seen {
            crew.run(&|worker| {
                let thread = std::thread::current();
                assert!(worker == 0 || thread.name() == Some(&format!("reshard-{worker}")));
                seen.lock().unwrap()[worker] = Some(thread.id());
            })
            .unwrap();
        }
        let [first, second] = seen.map(|seen| seen.into_inner().unwrap());
        assert_eq!(first, second);
        assert_eq!(first[0], Some(std::thread::current().id()));
    });
}

#[test]
fn nobody_is_a_crew_of_one() {
    let mut crew = ThreadPool::new(0).unwrap();
    assert_eq!(crew.workers(), 1);
    crew.run(&|worker| assert_eq!(worker, 0)).unwrap();
}

#[test]
fn run_returns_after_the_slowest_worker() {
    within_a_minute(|| {
        let mut crew = ThreadPool::new(3).unwrap();
        for slow in 0..3 {
            let ended = AtomicUsize::new(0);
            crew.run(&|worker| {
                // Long enough for the others to give up spinning and sleep.
                std::thread::sleep(Duration::from_millis(if worker == slow { 20 } else { 0 }));
                ended.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(ended.into_inner(), 3);
        }
    });
}

#[test]
fn the_lowest_panic_is_reported_when_all_have_ended_and_the_crew_goes_on() {
    within_a_minute(|| {
        let mut crew = ThreadPool::new(4).unwrap();
        for round in 0..200 {
            let guilty = round % 4;
            let ended = AtomicUsize::new(0);
            let outcome = crew.run(&|worker| {
                ended.fetch_add(1, Ordering::Relaxed);
                assert!(worker < guilty, "worker {worker} had enough in round {round}");
            });
            let message = format!("worker {guilty} had enough in round {round}");
            assert_eq!(outcome, Err(Panicked { worker: guilty, message }));
            assert_eq!(ended.into_inner(), 4);
            assert_eq!(crew.run(&|_| ()), Ok(()));
        }
    });
}

/// Panics again when its panic is dealt with.
struct Grudge;

impl Drop for Grudge {
    fn drop(&mut self) {
        std::panic::panic_any(Grudge);
    }
}

#[test]
fn any_payload_is_survived() {
    within_a_minute(|| {
        for workers in [1, 2] {
            let mut crew = ThreadPool::new(workers).unwrap();
            let worker = workers - 1;
            let mut said = |speak: fn()| {
                let job = |who: usize| {
                    if who == worker {
                        speak();
                    }
                };
                crew.run(&job).map_err(|panicked| panicked.message)
            };
            assert_eq!(said(|| panic!("plain")), Err("plain".to_string()));
            assert_eq!(said(|| panic!("number {}", std::hint::black_box(7))), Err("number 7".to_string()));
            assert_eq!(said(|| std::panic::panic_any(7)), Err("unknown panic".to_string()));
            assert_eq!(said(|| std::panic::panic_any(Grudge)), Err("unknown panic".to_string()));
            assert_eq!(said(|| ()), Ok(()));
        }
        let panicked = Panicked { worker: 3, message: "plain".to_string() };
        assert_eq!(panicked.to_string(), "worker 3 panicked: plain");
    });
}

#[test]
fn a_job_allocates_nothing_on_any_thread() {
    within_a_minute(|| {
        for workers in [1, 2, 5] {
            let mut crew = ThreadPool::new(workers).unwrap();
            let (before, after) = (counters(workers), counters(workers));
            let note = |counts: &[AtomicU64], worker: usize| {
                counts[worker].store(allocations::of_this_thread(), Ordering::Relaxed);
            };
            // The first job notes and the last job notes: between lie the end of one, ninety-eight, and the beginning of
            // another, some while workers spin and some while they sleep.
            crew.run(&|worker| note(&before, worker)).unwrap();
            for round in 0..98 {
                if round % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                crew.run(&|_| ()).unwrap();
            }
            crew.run(&|worker| note(&after, worker)).unwrap();
            let counts = |counts: Vec<AtomicU64>| -> Vec<u64> {
                counts.into_iter().map(AtomicU64::into_inner).collect()
            };
            assert_eq!(counts(before), counts(after));
        }
        // The count counts.
        let before = allocations::of_this_thread();
        drop(std::hint::black_box(Box::new(1)));
        assert_eq!(allocations::of_this_thread(), before + 1);
    });
}

#[test]
fn five_hundred_workers_share_few_processors() {
    within_a_minute(|| {
        let mut crew = ThreadPool::new(500).unwrap();
        let calls = counters(500);
        for _ in 0..20 {
            crew.run(&|worker| _ = calls[worker].fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 20));
    });
}

#[test]
fn dropping_ends_the_threads_whether_they_spin_or_sleep() {
    within_a_minute(|| {
        for round in 0..200 {
            let crew = ThreadPool::new(1 + round % 4).unwrap();
            if round % 8 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let shared = crew.shared.clone();
            drop(crew);
            assert_eq!(std::sync::Arc::strong_count(&shared), 1);
        }
    });
}
