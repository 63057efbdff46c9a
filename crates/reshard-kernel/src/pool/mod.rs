//! A crew: threads that outlive single runs, so that running a job starts nothing and allocates nothing.
//!
//! Redistributions that take microseconds cannot pay for starting threads each time, and scoped threads would have to.
//! A crew's threads wait between jobs instead, and a job is borrowed only for as long as [`ThreadPool::run`] runs. The
//! compiler cannot see that threads which live longer let go of it in time; that is what this file proves.
//!
//! Everything that must be right is under one lock: which round it is, its job, how many workers still owe their share.
//! The two atomics beside it are hints that let a thread spin for some microseconds before it sleeps. A stale hint
//! costs time, never correctness.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, lock, sleep, thread};
use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io, mem};

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

/// How often to look before going to sleep: for 25 microseconds where a pause of the processor takes 16 nanoseconds, and
/// for no more than three times that where it pauses longer. Under loom nothing would change while one looks.
const LOOKS: usize = if cfg!(all(test, loom)) { 0 } else { 1500 };

/// What workers are given: the number of the worker goes in.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

/// A fixed set of threads that wait for jobs. The thread that calls [`ThreadPool::run`] is one of them: worker 0.
pub struct ThreadPool {
    shared: Arc<PoolShared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// A worker panicked, while all others went on to their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The lowest worker that did.
    pub worker: usize,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} panicked: {}", self.worker, self.message)
    }
}

impl std::error::Error for Panicked {}

/// What the threads of a crew share.
struct PoolShared {
    board: Mutex<PoolState>,
    /// Rings when a round begins, or the crew ends.
    begin: Condvar,
    /// Rings when the last worker has done its share.
    end: Condvar,
    /// A hint: the round that has begun.
    begun: AtomicUsize,
    /// A hint: the round that has ended.
    ended: AtomicUsize,
    /// How often to look at a hint before going to sleep.
    looks: usize,
}

/// What the lock guards.
struct PoolState {
    /// Counts the jobs; workers know by it whether they have done this one.
    round: usize,
    job: Option<BorrowedJob>,
    /// Workers other than the caller that have not done their share of this round.
    left: usize,
    first_panic: Option<Panicked>,
    /// The crew is dropped.
    over: bool,
    /// How many workers sleep, and whether the caller does: who rings for nobody pays for a system call.
    sleepers: usize,
    caller_sleeps: bool,
}

/// A job without its lifetime.
#[derive(Clone, Copy)]
struct BorrowedJob(*const Job<'static>);

// SAFETY: it points to a job, and jobs are `Sync`: a reference to one may go to any thread. Whether the job still exists
// is for the one place to prove that follows the pointer.
unsafe impl Send for BorrowedJob {}

impl ThreadPool {
    /// A crew of `workers` (one, if none are asked for), of which the caller is the first: starts `workers - 1` threads.
    pub fn new(workers: usize) -> io::Result<Self> {
        // More threads than can run at once must not spin: they would keep each other from running.
        let room = std::thread::available_parallelism().map_or(1, NonZero::get);
        let shared = Arc::new(PoolShared::new(if workers <= room { LOOKS } else { 0 }));
        let mut crew = Self { shared, threads: Vec::new() };
        for worker in 1..workers {
            let shared = Arc::clone(&crew.shared);
            // The usual stack: kernels that are compiled without optimisation are one frame of hundreds of kilobytes.
            let builder = thread::Builder::new().name(format!("reshard-{worker}"));
            // If this one cannot be had, dropping the crew ends those before it.
            crew.threads.push(builder.spawn(move || shared.work(worker))?);
        }
        // Threads allocate while they start. After this they have.
        crew.run(&|_| ()).map_err(io::Error::other)?;
        Ok(crew)
    }

    /// How many workers a job is given to, the caller included.
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `job(worker)` once on every worker, 0 being the calling thread, and returns when all have returned. A panic
    /// ends the share of its worker alone; the one of the lowest worker is reported when all have ended. Allocates
    /// nothing unless somebody panics.
    pub fn run(&mut self, job: &Job<'_>) -> Result<(), Panicked> {
        if self.threads.is_empty() {
            return catch(0, job);
        }
        // From here to the end of `finish` nothing unwinds: `catch` catches all that `job` does, and the rest is locks,
        // which are not held by this thread twice, and counting.
        let round = self.shared.begin(job, self.threads.len());
        let own = catch(0, job);
        let others = self.shared.finish(round);
        own.and(others)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut board = lock(&self.shared.board);
        board.over = true;
        self.shared.begun.store(board.round.wrapping_add(1), Ordering::Release);
        drop(board);
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            // A worker's panics are caught and reported by the run they happened in.
            thread.join().ok();
        }
    }
}

impl PoolShared {
    fn new(looks: usize) -> Self {
        let board = PoolState {
            round: 0,
            job: None,
            left: 0,
            first_panic: None,
            over: false,
            sleepers: 0,
            caller_sleeps: false,
        };
        Self {
            board: Mutex::new(board),
            begin: Condvar::new(),
            end: Condvar::new(),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            looks,
        }
    }

    /// Puts up a job for `others` workers; they are told and the lifetime is forgotten. [`PoolShared::finish`] must be called
    /// before the job ends.
    fn begin(&self, job: &Job<'_>, others: usize) -> usize {
        let job: *const Job<'_> = job;
        // SAFETY: the two types differ in nothing but a lifetime, which has no part in how a pointer looks.
        let job = BorrowedJob(unsafe { mem::transmute::<*const Job<'_>, *const Job<'static>>(job) });
        let mut board = lock(&self.board);
        board.round = board.round.wrapping_add(1);
        board.job = Some(job);
        board.left = others;
        let round = board.round;
        let asleep = board.sleepers > 0;
        drop(board);
        self.begun.store(round, Ordering::Release);
        if asleep {
            self.begin.notify_all();
        }
        round
    }

    /// Waits until all workers have done their share of `round`. Nobody looks at its job after that.
    fn finish(&self, round: usize) -> Result<(), Panicked> {
        self.look_until(|| self.ended.load(Ordering::Acquire) == round);
        let mut board = lock(&self.board);
        while board.left > 0 {
            board.caller_sleeps = true;
            board = sleep(&self.end, board);
            board.caller_sleeps = false;
        }
        board.job = None;
        board.first_panic.take().map_or(Ok(()), Err)
    }

    /// The life of a thread: its share of each round, until the crew is dropped.
    fn work(&self, worker: usize) {
        let mut done = 0;
        while let Some((round, job)) = self.next_job(done) {
            // SAFETY: the job exists for as long as `ThreadPool::run` has not returned, since it is borrowed from its caller.
            // `next_job` gave out the job of a round this worker has not done yet, so this worker is among the `left`
            // of that round until `share_done` takes it off below, and there is no later round before that: `run` takes
            // the crew mutably and `finish` waits until `left` is 0. `run` returns through `finish` only, as nothing
            // unwinds out of it. So `run` has not returned when this reference is last used, which is in `catch`; the
            // lock in `share_done` and `finish` orders that use before the return.
            let job: &Job<'_> = unsafe { &*job.0 };
            let outcome = catch(worker, job);
            self.share_done(round, outcome);
            done = round;
        }
    }

    /// The next round after `done` and its job, or nothing if the crew is dropped.
    fn next_job(&self, done: usize) -> Option<(usize, BorrowedJob)> {
        self.look_until(|| self.begun.load(Ordering::Acquire) != done);
        let mut board = lock(&self.board);
        loop {
            if board.over {
                return None;
            }
            if let Some(job) = board.job.filter(|_| board.round != done) {
                return Some((board.round, job));
            }
            board.sleepers += 1;
            board = sleep(&self.begin, board);
            board.sleepers -= 1;
        }
    }

    /// One worker has done its share of `round` and does not look at its job any more.
    fn share_done(&self, round: usize, outcome: Result<(), Panicked>) {
        let mut board = lock(&self.board);
        if let Err(panicked) = outcome {
            let earlier = board.first_panic.take().filter(|earlier| earlier.worker < panicked.worker);
            board.first_panic = Some(earlier.unwrap_or(panicked));
        }
        board.left -= 1;
        let (last, asleep) = (board.left == 0, board.caller_sleeps);
        drop(board);
        if last {
            self.ended.store(round, Ordering::Release);
            if asleep {
                self.end.notify_one();
            }
        }
    }

    /// Looks for a while, and returns when it is so or time is up.
    fn look_until(&self, is_so: impl Fn() -> bool) {
        for _ in 0..self.looks {
            if is_so() {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// Calls `job(worker)`; a panic becomes an error. Never unwinds.
pub fn catch(worker: usize, job: &Job<'_>) -> Result<(), Panicked> {
    // What the job leaves half done is its owner's to judge: the owner is told of the panic.
    catch_unwind(AssertUnwindSafe(|| job(worker))).map_err(|payload| {
        let message = message(&*payload);
        // A payload can panic while it is dropped; what it panics with could do the same, and is left alone.
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
