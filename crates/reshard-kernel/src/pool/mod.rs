//! A thread pool whose threads live longer than one run, so that running a job starts no thread and allocates nothing.
//!
//! Redistributions that take microseconds cannot afford to start threads each time, as scoped threads would. The threads of
//! the pool wait between jobs instead, and a job is borrowed only while [`ThreadPool::run`] runs. The compiler cannot see
//! that longer-lived threads stop using the job in time; this file proves it.
//!
//! All state that matters for correctness is under one lock: the round, its job, the number of workers still running it.
//! The two atomics beside it are hints that let a thread spin for some microseconds before it blocks. A stale hint
//! costs time, never correctness.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, lock, thread, wait};
use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io, mem};

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

/// Iterations of a spin-wait before a thread blocks: 25 microseconds where a pause instruction takes 16 nanoseconds, and
/// at most three times that where it takes longer. Under loom nothing would change during a spin.
const SPIN_ITERATIONS: usize = if cfg!(all(test, loom)) { 0 } else { 1500 };

/// A job: called on every worker with the worker's index.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// A fixed set of worker threads. The thread that calls [`ThreadPool::run`] is one of them: worker 0.
pub struct ThreadPool {
    shared: Arc<PoolShared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// A worker panicked; all others completed the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The lowest worker that panicked.
    pub worker: usize,
    /// Its panic message.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} panicked: {}", self.worker, self.message)
    }
}

impl std::error::Error for Panicked {}

/// The data that the threads of a pool share.
struct PoolShared {
    state: Mutex<PoolState>,
    /// Notified when a round begins, or the pool is dropped.
    begin: Condvar,
    /// Notified when the last worker has finished the round.
    end: Condvar,
    /// Hint: the last round that has begun.
    begun: AtomicUsize,
    /// Hint: the last round that has ended.
    ended: AtomicUsize,
    /// Iterations of a spin-wait on a hint before a thread blocks.
    spins: usize,
}

/// The state under the pool's lock.
struct PoolState {
    /// Number of the current job; a worker compares it with the last round it has done.
    round: usize,
    job: Option<BorrowedJob>,
    /// Number of workers, without the caller, that have not finished this round.
    left: usize,
    first_panic: Option<Panicked>,
    /// The pool is being dropped.
    stopped: bool,
    /// Number of blocked workers, and whether the caller is blocked: without any, a notification's system call is saved.
    sleepers: usize,
    caller_sleeps: bool,
}

/// A job without its lifetime.
#[derive(Clone, Copy)]
struct BorrowedJob(*const Job<'static>);

// SAFETY: it points to a job, and jobs are `Sync`: a reference to one may be sent to any thread. That the job still exists
// is proved at the one place that dereferences the pointer.
unsafe impl Send for BorrowedJob {}

impl ThreadPool {
    /// Makes a pool of `workers` workers (at least one), of which the caller is the first: starts `workers - 1` threads.
    pub fn new(workers: usize) -> io::Result<Self> {
        // Oversubscribed threads must not spin: they would keep each other from running.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let shared = Arc::new(PoolShared::new(if workers <= cores { SPIN_ITERATIONS } else { 0 }));
        let mut pool = Self { shared, threads: Vec::new() };
        for worker in 1..workers {
            let shared = Arc::clone(&pool.shared);
            // The default stack size: kernels compiled without optimisation have one frame of hundreds of kilobytes.
            let builder = thread::Builder::new().name(format!("reshard-{worker}"));
            // If this thread cannot be started, dropping the pool ends those before it.
            pool.threads.push(builder.spawn(move || shared.work(worker))?);
        }
        // Threads allocate while they start. After an empty job all of them have.
        pool.run(&|_| ()).map_err(io::Error::other)?;
        Ok(pool)
    }

    /// Returns the number of workers, including the caller.
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `job(worker)` once on every worker, 0 being the calling thread, and returns when all calls have returned. A
    /// panic ends only the call of its worker; the panic of the lowest worker is reported when all have ended. Allocates
    /// nothing unless a worker panics.
    pub fn run(&mut self, job: &Job<'_>) -> Result<(), Panicked> {
        if self.threads.is_empty() {
            return catch(0, job);
        }
        // From here to the end of `finish` nothing unwinds: `catch` catches all panics of `job`, and the rest is locks,
        // which this thread never holds twice, and counting.
        let round = self.shared.begin(job, self.threads.len());
        let own = catch(0, job);
        let others = self.shared.finish(round);
        own.and(others)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.stopped = true;
        self.shared.begun.store(state.round.wrapping_add(1), Ordering::Release);
        drop(state);
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            // A worker's panics are caught and reported by the run they happened in.
            thread.join().ok();
        }
    }
}

impl PoolShared {
    fn new(spins: usize) -> Self {
        let state = PoolState {
            round: 0,
            job: None,
            left: 0,
            first_panic: None,
            stopped: false,
            sleepers: 0,
            caller_sleeps: false,
        };
        Self {
            state: Mutex::new(state),
            begin: Condvar::new(),
            end: Condvar::new(),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            spins,
        }
    }

    /// Publishes a job for `others` workers, with its lifetime erased. [`PoolShared::finish`] must be called before the job's
    /// lifetime ends.
    fn begin(&self, job: &Job<'_>, others: usize) -> usize {
        let job: *const Job<'_> = job;
        // SAFETY: the two types differ only in a lifetime, which does not affect the representation of a pointer.
        let job = BorrowedJob(unsafe { mem::transmute::<*const Job<'_>, *const Job<'static>>(job) });
        let mut state = lock(&self.state);
        state.round = state.round.wrapping_add(1);
        state.job = Some(job);
        state.left = others;
        let round = state.round;
        let blocked = state.sleepers > 0;
        drop(state);
        self.begun.store(round, Ordering::Release);
        if blocked {
            self.begin.notify_all();
        }
        round
    }

    /// Waits until all workers have finished `round`. No worker uses its job after that.
    fn finish(&self, round: usize) -> Result<(), Panicked> {
        self.spin_until(|| self.ended.load(Ordering::Acquire) == round);
        let mut state = lock(&self.state);
        while state.left > 0 {
            state.caller_sleeps = true;
            state = wait(&self.end, state);
            state.caller_sleeps = false;
        }
        state.job = None;
        state.first_panic.take().map_or(Ok(()), Err)
    }

    /// Main function of a worker thread: runs the job of each round, until the pool is dropped.
    fn work(&self, worker: usize) {
        let mut done = 0;
        while let Some((round, job)) = self.next_job(done) {
            // SAFETY: the job exists as long as `ThreadPool::run` has not returned, since it is borrowed from its caller.
            // `next_job` returned the job of a round this worker has not done yet, so this worker is counted in `left`
            // of that round until `worker_done` below subtracts it, and no later round begins before that: `run` borrows
            // the pool mutably and `finish` waits until `left` is 0. `run` returns through `finish` only, as nothing
            // unwinds out of it. So `run` has not returned when this reference is last used, which is in `catch`; the
            // lock in `worker_done` and `finish` orders that use before the return.
            let job: &Job<'_> = unsafe { &*job.0 };
            let outcome = catch(worker, job);
            self.worker_done(round, outcome);
            done = round;
        }
    }

    /// Waits for the next round after `done`. Returns it with its job, or `None` if the pool is being dropped.
    fn next_job(&self, done: usize) -> Option<(usize, BorrowedJob)> {
        self.spin_until(|| self.begun.load(Ordering::Acquire) != done);
        let mut state = lock(&self.state);
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.job.filter(|_| state.round != done) {
                return Some((state.round, job));
            }
            state.sleepers += 1;
            state = wait(&self.begin, state);
            state.sleepers -= 1;
        }
    }

    /// Records that one worker has finished `round` and does not use its job any more.
    fn worker_done(&self, round: usize, outcome: Result<(), Panicked>) {
        let mut state = lock(&self.state);
        if let Err(panicked) = outcome {
            let earlier = state.first_panic.take().filter(|earlier| earlier.worker < panicked.worker);
            state.first_panic = Some(earlier.unwrap_or(panicked));
        }
        state.left -= 1;
        let (last, blocked) = (state.left == 0, state.caller_sleeps);
        drop(state);
        if last {
            self.ended.store(round, Ordering::Release);
            if blocked {
                self.end.notify_one();
            }
        }
    }

    /// Spins until the condition is true or the iterations are used up.
    fn spin_until(&self, condition: impl Fn() -> bool) {
        for _ in 0..self.spins {
            if condition() {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// Calls `job(worker)`; a panic becomes an error. Never unwinds.
pub fn catch(worker: usize, job: &Job<'_>) -> Result<(), Panicked> {
    // Unwind safety: the owner of data that the job left half done is told of the panic.
    catch_unwind(AssertUnwindSafe(|| job(worker))).map_err(|payload| {
        let message = message(&*payload);
        // A payload can panic while it is dropped; the payload of that panic could do the same, so it is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(again);
        }
        Panicked { worker, message }
    })
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown panic").to_string()
}
