//! Pools of real threads. `loom_models` tries all interleavings of small ones.

use super::{Panicked, ThreadPool};
use crate::sync::timeout::within_minutes;
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
    within_minutes(|| {
        for workers in [1, 2, 3, 8] {
            let mut pool = ThreadPool::new(workers).unwrap();
            assert_eq!(pool.workers(), workers);
            let calls = counters(workers);
            for round in 0..200 {
                pool.run(&|worker| _ = calls[worker].fetch_add(1, Ordering::Relaxed)).unwrap();
                assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == round + 1));
            }
        }
    });
}

#[test]
fn workers_stay_on_their_threads_and_the_caller_is_the_first() {
    within_minutes(|| {
        let mut pool = ThreadPool::new(3).unwrap();
        let identities = || Mutex::new(vec![None::<ThreadId>; 3]);
        let seen = [identities(), identities()];
        for seen in &seen {
            pool.run(&|worker| {
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
fn a_pool_of_no_workers_has_one() {
    let mut pool = ThreadPool::new(0).unwrap();
    assert_eq!(pool.workers(), 1);
    pool.run(&|worker| assert_eq!(worker, 0)).unwrap();
}

#[test]
fn run_returns_after_the_slowest_worker() {
    within_minutes(|| {
        let mut pool = ThreadPool::new(3).unwrap();
        for slow in 0..3 {
            let ended = AtomicUsize::new(0);
            pool.run(&|worker| {
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
fn the_lowest_panic_is_reported_when_all_have_ended_and_the_pool_goes_on() {
    within_minutes(|| {
        let mut pool = ThreadPool::new(4).unwrap();
        for round in 0..200 {
            let panicking = round % 4;
            let ended = AtomicUsize::new(0);
            let outcome = pool.run(&|worker| {
                ended.fetch_add(1, Ordering::Relaxed);
                assert!(worker < panicking, "worker {worker} had enough in round {round}");
            });
            let message = format!("worker {panicking} had enough in round {round}");
            assert_eq!(outcome, Err(Panicked { worker: panicking, message }));
            assert_eq!(ended.into_inner(), 4);
            assert_eq!(pool.run(&|_| ()), Ok(()));
        }
    });
}

/// A panic payload that panics again when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        std::panic::panic_any(PanicOnDrop);
    }
}

#[test]
fn any_payload_is_survived() {
    within_minutes(|| {
        for workers in [1, 2] {
            let mut pool = ThreadPool::new(workers).unwrap();
            let worker = workers - 1;
            let mut message_of = |panic: fn()| {
                let job = |who: usize| {
                    if who == worker {
                        panic();
                    }
                };
                pool.run(&job).map_err(|panicked| panicked.message)
            };
            assert_eq!(message_of(|| panic!("plain")), Err("plain".to_string()));
            assert_eq!(
                message_of(|| panic!("number {}", std::hint::black_box(7))),
                Err("number 7".to_string())
            );
            assert_eq!(message_of(|| std::panic::panic_any(7)), Err("unknown panic".to_string()));
            assert_eq!(message_of(|| std::panic::panic_any(PanicOnDrop)), Err("unknown panic".to_string()));
            assert_eq!(message_of(|| ()), Ok(()));
        }
        let panicked = Panicked { worker: 3, message: "plain".to_string() };
        assert_eq!(panicked.to_string(), "worker 3 panicked: plain");
    });
}

#[test]
fn a_job_allocates_nothing_on_any_thread() {
    within_minutes(|| {
        for workers in [1, 2, 5] {
            let mut pool = ThreadPool::new(workers).unwrap();
            let (before, after) = (counters(workers), counters(workers));
            let note = |counts: &[AtomicU64], worker: usize| {
                counts[worker].store(allocations::of_this_thread(), Ordering::Relaxed);
            };
            // The first job and the last job record the counts. Between them are 98 jobs, some of which begin while workers
            // spin and some while they are blocked.
            pool.run(&|worker| note(&before, worker)).unwrap();
            for round in 0..98 {
                if round % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                pool.run(&|_| ()).unwrap();
            }
            pool.run(&|worker| note(&after, worker)).unwrap();
            let counts = |counts: Vec<AtomicU64>| -> Vec<u64> {
                counts.into_iter().map(AtomicU64::into_inner).collect()
            };
            assert_eq!(counts(before), counts(after));
        }
        // The counter does count allocations.
        let before = allocations::of_this_thread();
        drop(std::hint::black_box(Box::new(1)));
        assert_eq!(allocations::of_this_thread(), before + 1);
    });
}

#[test]
fn five_hundred_workers_share_few_processors() {
    within_minutes(|| {
        let mut pool = ThreadPool::new(500).unwrap();
        let calls = counters(500);
        for _ in 0..20 {
            pool.run(&|worker| _ = calls[worker].fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 20));
    });
}

#[test]
fn dropping_ends_the_threads_whether_they_spin_or_sleep() {
    within_minutes(|| {
        for round in 0..200 {
            let pool = ThreadPool::new(1 + round % 4).unwrap();
            if round % 8 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let shared = pool.shared.clone();
            drop(pool);
            assert_eq!(std::sync::Arc::strong_count(&shared), 1);
        }
    });
}
