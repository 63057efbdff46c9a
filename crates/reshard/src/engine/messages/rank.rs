//! One rank's run: step by step, packing outgoing fragments while unpacking incoming ones.
//!
//! Why there is no deadlock: take the earliest step that some rank has not finished. All fragments of earlier steps have
//! been received, so each slot in flight of a rank at this step holds a fragment of this step, and so does the front of each
//! queue it looks at. A rank that sends in this step either has a free slot, or one of its fragments waits for a rank that
//! has not finished this step, either: that rank takes it as soon as it looks, and releases the slot. A rank that receives
//! waits for a fragment whose sender has not finished this step, so the sentence before applies to that sender. So some rank
//! can make progress until the step is finished, and each fragment that arrives and each slot that is released raises the
//! event count of the rank that waits for it. Ranks at the barrier after the step have finished it, and wait for those that
//! have not.

use crate::program::{Program, Step};
use reshard_kernel::exchange::{Cursor, Exchange, RankHandle};
use reshard_kernel::sync::mailbox::Failed;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// Counters and times of a rank's run, and its progress.
pub struct Log {
    pub operations: u64,
    /// The operation at which to fail, in tests.
    pub fail_at: Option<u64>,
    /// The last step begun.
    pub step: u64,
    /// Messages sent.
    pub sent: u64,
    pub pack: Duration,
    pub unpack: Duration,
    pub wait: Duration,
    /// Panic message of the rank, if it failed.
    pub failure: Option<String>,
    sends: Vec<Cursor>,
    receives: Vec<Cursor>,
}

impl Log {
    /// Makes a log with cursors for the step with max ranges.
    pub fn new(program: &Program) -> Self {
        let max = |count: fn(&Step) -> usize| program.steps.iter().map(count).max().unwrap_or(0);
        Self {
            operations: 0,
            fail_at: None,
            step: 0,
            sent: 0,
            pack: Duration::ZERO,
            unpack: Duration::ZERO,
            wait: Duration::ZERO,
            failure: None,
            sends: vec![Cursor::default(); max(|step| step.sends.len())],
            receives: vec![Cursor::default(); max(|step| step.receives.len())],
        }
    }

    /// Resets counters and times for a new run.
    pub fn begin(&mut self) {
        (self.operations, self.step, self.sent, self.failure) = (0, 0, 0, None);
        (self.pack, self.unpack, self.wait) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    }
}

/// Counts an operation; panics if a test asked for a failure at it.
fn count_operation(operations: &mut u64, fail_at: &mut Option<u64>) {
    let this = *operations;
    *operations += 1;
    if *fail_at == Some(this) {
        fail(fail_at);
    }
}

fn fail(fail_at: &mut Option<u64>) -> ! {
    let operation = fail_at.take().unwrap_or_default();
    // A panic without the report of the panic hook.
    resume_unwind(Box::new(format!("a test made it fail at operation {operation}")))
}

/// Runs the program of a rank. Returns early if another rank fails, which the exchange records.
pub fn run(exchange: &Exchange<'_>, program: &Program, rank: usize, log: &mut Log) {
    let mut handle = exchange.handle(rank);
    let all_steps = program.steps.iter().try_for_each(|step| {
        count_operation(&mut log.operations, &mut log.fail_at);
        log.step = step.number;
        take_step(exchange, &mut handle, program, step, rank, log)
    });
    if all_steps.is_err() {
        return;
    }
    while copy_local(&mut handle, log) {}
    if log.fail_at.is_some() {
        fail(&mut log.fail_at);
    }
}

fn take_step(
    exchange: &Exchange<'_>,
    handle: &mut RankHandle<'_>,
    program: &Program,
    step: &Step,
    rank: usize,
    log: &mut Log,
) -> Result<(), Failed> {
    if let Some(rank) = exchange.failed() {
        return Err(Failed { rank });
    }
    let (sends, receives) = (&program.sends[step.sends.clone()], &program.receives[step.receives.clone()]);
    for (cursor, range) in log.sends.iter_mut().zip(sends) {
        *cursor = exchange.open(range);
        log.sent += u64::from(!cursor.finished());
    }
    log.receives.iter_mut().zip(receives).for_each(|(cursor, range)| *cursor = exchange.open(range));
    loop {
        // Read before looking for work: later events are found by the next look, or raise the count above this.
        let seen = exchange.event_count(rank);
        let Log { operations, fail_at, pack, unpack, sends: outgoing, receives: incoming, .. } = log;
        let (mut moved, mut left) = (false, false);
        for (cursor, range) in outgoing.iter_mut().zip(sends).filter(|(cursor, _)| !cursor.finished()) {
            let began = Instant::now();
            if handle.pack(range, cursor, || count_operation(operations, fail_at)) {
                moved = true;
                *pack += began.elapsed();
            }
            left |= !cursor.finished();
        }
        for (cursor, range) in incoming.iter_mut().zip(receives).filter(|(cursor, _)| !cursor.finished()) {
            let began = Instant::now();
            if handle.unpack(range, cursor, || count_operation(operations, fail_at)) {
                moved = true;
                *unpack += began.elapsed();
            }
            left |= !cursor.finished();
        }
        if !left {
            break;
        }
        if !moved && !copy_local(handle, log) {
            wait(log, || exchange.wait(rank, seen))?;
        }
    }
    if program.barriers { wait(log, || exchange.barrier(rank)) } else { Ok(()) }
}

/// Does the next piece of a rank's local work; false if all is done.
fn copy_local(handle: &mut RankHandle<'_>, log: &mut Log) -> bool {
    handle.copy_local(|| count_operation(&mut log.operations, &mut log.fail_at))
}

fn wait(log: &mut Log, until: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    count_operation(&mut log.operations, &mut log.fail_at);
    let began = Instant::now();
    let waited = until();
    log.wait += began.elapsed();
    waited
}
