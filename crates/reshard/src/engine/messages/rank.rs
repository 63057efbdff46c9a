//! One rank's run: step by step, packing what goes out while unpacking what comes in.
//!
//! Why nobody waits for ever: take the earliest step that some rank has not finished. All letters of earlier steps have been
//! received, so each slot under way in a rank at this step holds a letter of this step, and so does the front of each queue
//! it looks at. A rank that sends in this step either has a free slot, or one of its letters waits for a rank that has not
//! finished this step, either: that one takes it as soon as it looks, and gives the slot back. A rank that receives waits for
//! a letter whose sender has not finished this step: see the sentence before. So somebody can go on until the step is
//! finished, and each letter and each slot that comes is news to the one who waits for it. Ranks that meet after the
//! step have finished it, and wait for those who have not.

use crate::program::{Program, Step};
use reshard_kernel::exchange::{Cursor, Exchange, RankHandle};
use reshard_kernel::sync::mailbox::Failed;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// What a rank writes down, and what it needs to know where it is.
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
    /// Why the rank could not go on.
    pub failure: Option<String>,
    sends: Vec<Cursor>,
    receives: Vec<Cursor>,
}

impl Log {
    /// With room for the cursors of the program's busiest step.
    pub fn new(program: &Program) -> Self {
        let most = |count: fn(&Step) -> usize| program.steps.iter().map(count).max().unwrap_or(0);
        Self {
            operations: 0,
            fail_at: None,
            step: 0,
            sent: 0,
            pack: Duration::ZERO,
            unpack: Duration::ZERO,
            wait: Duration::ZERO,
            failure: None,
            sends: vec![Cursor::default(); most(|step| step.sends.len())],
            receives: vec![Cursor::default(); most(|step| step.receives.len())],
        }
    }

    /// Nothing is done yet.
    pub fn begin(&mut self) {
        (self.operations, self.step, self.sent, self.failure) = (0, 0, 0, None);
        (self.pack, self.unpack, self.wait) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    }
}

/// Counts an operation; fails if it is the one at which a test wants it.
fn operate(operations: &mut u64, fail_at: &mut Option<u64>) {
    let this = *operations;
    *operations += 1;
    if *fail_at == Some(this) {
        fail(fail_at);
    }
}

fn fail(fail_at: &mut Option<u64>) -> ! {
    let operation = fail_at.take().unwrap_or_default();
    // As a panic, without the report that one makes.
    resume_unwind(Box::new(format!("a test made it fail at operation {operation}")))
}

/// Does all that a rank has to do. Ends early if another rank fails: who that was is known to the round.
pub fn play(round: &Exchange<'_>, program: &Program, rank: usize, log: &mut Log) {
    let mut station = round.station(rank);
    let all_steps = program.steps.iter().try_for_each(|step| {
        operate(&mut log.operations, &mut log.fail_at);
        log.step = step.number;
        take_step(round, &mut station, program, step, rank, log)
    });
    if all_steps.is_err() {
        return;
    }
    while work_alone(&mut station, log) {}
    if log.fail_at.is_some() {
        fail(&mut log.fail_at);
    }
}

fn take_step(
    round: &Exchange<'_>,
    station: &mut RankHandle<'_>,
    program: &Program,
    step: &Step,
    rank: usize,
    log: &mut Log,
) -> Result<(), Failed> {
    if let Some(rank) = round.failed() {
        return Err(Failed { rank });
    }
    let (sends, receives) = (&program.sends[step.sends.clone()], &program.receives[step.receives.clone()]);
    for (cursor, parcel) in log.sends.iter_mut().zip(sends) {
        *cursor = round.open(parcel);
        log.sent += u64::from(!cursor.finished());
    }
    log.receives.iter_mut().zip(receives).for_each(|(cursor, parcel)| *cursor = round.open(parcel));
    loop {
        // Before looking: what comes after this is seen by the next look, or is more news than this.
        let seen = round.news(rank);
        let Log { operations, fail_at, pack, unpack, sends: going, receives: coming, .. } = log;
        let (mut moved, mut left) = (false, false);
        for (cursor, parcel) in going.iter_mut().zip(sends).filter(|(cursor, _)| !cursor.finished()) {
            let began = Instant::now();
            if station.pack(parcel, cursor, || operate(operations, fail_at)) {
                moved = true;
                *pack += began.elapsed();
            }
            left |= !cursor.finished();
        }
        for (cursor, parcel) in coming.iter_mut().zip(receives).filter(|(cursor, _)| !cursor.finished()) {
            let began = Instant::now();
            if station.unpack(parcel, cursor, || operate(operations, fail_at)) {
                moved = true;
                *unpack += began.elapsed();
            }
            left |= !cursor.finished();
        }
        if !left {
            break;
        }
        if !moved && !work_alone(station, log) {
            wait(log, || round.wait(rank, seen))?;
        }
    }
    if program.meets { wait(log, || round.meet(rank)) } else { Ok(()) }
}

/// The next piece of what a rank does on its own.
fn work_alone(station: &mut RankHandle<'_>, log: &mut Log) -> bool {
    station.work_alone(|| operate(&mut log.operations, &mut log.fail_at))
}

fn wait(log: &mut Log, until: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    operate(&mut log.operations, &mut log.fail_at);
    let began = Instant::now();
    let waited = until();
    log.wait += began.elapsed();
    waited
}
