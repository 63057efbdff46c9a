//! All processes of a ring in one, a thread for each, and items travel in letters all the same.
//!
//! The twin of the engine between processes. A letter is one of its sender's slots. The post says who has which, and a lock
//! for each slot, which nobody ever waits for, lets the compiler see it.
//!
//! Why nobody waits for ever: a process waits if it has nothing to read or no room, and nothing to write or no slot. If a
//! letter that has come cannot be read, its receiver is full, so it holds something to send (see [`RingPlan::room`]) and has
//! no slot: its letters wait elsewhere, at a process that is full, too. Such a row has no end and no circle, so there is
//! none. If no letter waits, nobody lacks a slot or room, and a program that works always has a next send.

use super::letters::Letters;
use super::plan::RingPlan;
use super::share::Share;
use super::{Report, bytes_of};
use crate::solve::Side;
use bytemuck::Pod;
use reshard_kernel::pool::{ThreadPool, catch};
use reshard_kernel::sync::mailbox::{Failed, Mailbox, SlotHandle};
use reshard_kernel::sync::{Mutex, get_mut, lock};
use reshard_plan::{Error, ErrorKind, Result, memory};
use std::sync::Arc;
use std::time::Instant;

/// The most processes: each is a thread.
const MOST_PROCS: usize = 4096;

/// The engine for rings that sends letters between threads.
///
/// ```
/// use reshard_ring::{RingMessages, RingPlan, RingProblem};
/// use std::sync::Arc;
/// let plan = RingPlan::solved(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?.in_order()?, 2)?;
/// let mut engine = RingMessages::new(Arc::new(plan), None)?;
/// let mut parts = [vec![1_u16, 2, 3, 4, 5], vec![0; 2], vec![6, 0]];
/// engine.run(&mut parts)?;
/// assert_eq!(parts, [vec![1, 2, 3, 4, 5], vec![3, 4], vec![5, 6]]); // the first two of process 0 are its own
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub struct RingMessages {
    plan: Arc<RingPlan>,
    letters: Letters,
    scratch_bytes: u64,
    post: Mailbox,
    /// The slots of all processes, one process after the other.
    slots: Vec<Mutex<Vec<u8>>>,
    shares: Vec<Mutex<Share>>,
    /// Letters each has sent, and why it could not go on.
    logs: Vec<Mutex<Log>>,
    crew: ThreadPool,
}

#[derive(Default)]
struct Log {
    letters: u64,
    failure: Option<String>,
}

impl RingMessages {
    /// Ready to run the plan, in at most so many bytes for the letters of all processes together.
    pub fn new(plan: Arc<RingPlan>, memory: Option<u64>) -> Result<Self> {
        let procs = plan.procs();
        if procs > MOST_PROCS {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the ring has {procs} processes, and each would be a thread; at most {MOST_PROCS} are started"
                ),
            ));
        }
        let letters = Letters::within(memory, &plan, false, 0)?;
        let ends: Vec<(usize, usize)> = (0..procs)
            .flat_map(|rank| {
                [Side::Left, Side::Right].map(|side| (rank, side.of(rank as u64, procs as u64) as usize))
            })
            .collect();
        let post = Mailbox::new(procs, letters.slots, &ends);
        let mut slots = Vec::with_capacity(procs * letters.slots);
        for rank in 0..procs {
            for _ in 0..letters.slots {
                slots.push(Mutex::new(memory::zeroed(letters.sent_bytes(&plan, rank), "a letter")?));
            }
        }
        let shares = (0..procs).map(|rank| Mutex::new(Share::new(&plan, rank))).collect();
        let logs = (0..procs).map(|_| Mutex::new(Log::default())).collect();
        let crew = ThreadPool::new(procs).map_err(|error| {
            Error::new(
                ErrorKind::Memory,
                format!("{procs} threads, one for each process, could not be started: {error}"),
            )
        })?;
        let scratch_bytes = letters.bytes(&plan);
        Ok(Self { plan, letters, scratch_bytes, post, slots, shares, logs, crew })
    }

    /// What it runs.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// Bytes it takes beside plan and items: its letters.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Moves the items, in place: a part for each process, with its [room](RingPlan::room). Allocates nothing.
    pub fn run<T: Pod, P: AsMut<[T]> + Send>(&mut self, parts: &mut [P]) -> Result<Report> {
        self.plan.check_parts(parts)?;
        let begin = Instant::now();
        self.post.reset();
        self.logs.iter_mut().for_each(|log| *get_mut(log) = Log::default());
        // Each thread takes the next process, whichever that is.
        let next = Mutex::new(parts.iter_mut().enumerate());
        let Self { plan, letters, post, slots, shares, logs, crew, .. } = self;
        let round = Exchange { post, slots, per_rank: letters.slots, procs: plan.procs() };
        let share_of = |_: usize| {
            let Some((rank, part)) = lock(&next).next() else { return };
            let part = Mutex::new(part);
            let played = catch(rank, &|rank| {
                let mut share = lock(&shares[rank]);
                round.play(rank, &mut share, bytes_of(&mut **lock(&part)), &logs[rank]);
            });
            if let Err(panicked) = played {
                // Nobody waits any longer for what this process will not do.
                lock(&logs[rank]).failure = Some(panicked.message);
                round.post.fail(rank);
            }
        };
        let ended = crew.run(&share_of);
        ended.map_err(|panicked| {
            Error::new(ErrorKind::Failed, format!("a thread of the engine failed: {panicked}"))
        })?;
        if let Some(rank) = post.failed() {
            let reason = get_mut(&mut logs[rank]).failure.take().unwrap_or_default();
            return Err(Error::new(
                ErrorKind::Failed,
                format!("process {rank} panicked: {reason}; the items are an unfinished mixture"),
            ));
        }
        let sent = logs.iter_mut().map(|log| get_mut(log).letters).sum();
        Ok(Report::new(plan, sent, begin))
    }
}

/// What all processes see of a run.
struct Exchange<'a> {
    post: &'a Mailbox,
    slots: &'a [Mutex<Vec<u8>>],
    per_rank: usize,
    procs: usize,
}

/// A letter that is being written: its slot, where it goes, and what is written.
#[derive(Clone, Copy)]
struct Open {
    slot: u32,
    side: Side,
    written: usize,
}

/// A letter that is being read.
#[derive(Clone, Copy)]
struct Reading {
    letter: SlotHandle,
    read: usize,
}

impl Exchange<'_> {
    /// Does all that a process has to do. Ends early if another fails: the post knows who that was.
    fn play(&self, rank: usize, share: &mut Share, memory: &mut [u8], log: &Mutex<Log>) {
        share.begin();
        let mut letters = 0;
        let outcome = self.take_part(rank, share, memory, &mut letters);
        lock(log).letters = letters;
        if outcome.is_ok() {
            share.settle(memory);
        }
    }

    fn take_part(
        &self,
        rank: usize,
        share: &mut Share,
        memory: &mut [u8],
        letters: &mut u64,
    ) -> std::result::Result<(), Failed> {
        let mut open: Option<Open> = None;
        let mut reading = [None; 2];
        while !share.is_over() {
            // Before looking: what comes after this is seen by the next look, or is more news than this.
            let seen = self.post.event_count(rank);
            let mut moved = false;
            for side in [Side::Left, Side::Right] {
                moved |= self.read(rank, share, memory, side, &mut reading[side.index()]);
            }
            moved |= self.write(rank, share, memory, &mut open, letters);
            if moved {
                continue;
            }
            match open.take() {
                Some(written) => self.send(rank, written, letters),
                None => self.post.wait(rank, seen)?,
            }
        }
        Ok(())
    }

    /// Reads what has come from a side, as far as there is room. Whether there was anything.
    fn read(
        &self,
        rank: usize,
        share: &mut Share,
        memory: &mut [u8],
        side: Side,
        reading: &mut Option<Reading>,
    ) -> bool {
        let sender = side.of(rank as u64, self.procs as u64) as usize;
        let message = 2 * sender + side.opposite().index();
        let mut moved = false;
        while share.coming(side) > 0 {
            if reading.is_none() {
                *reading = self.post.receive(message).map(|letter| Reading { letter, read: 0 });
            }
            let Some(Reading { letter, read }) = reading else { break };
            let slot = lock(&self.slots[sender * self.per_rank + letter.slot as usize]);
            let lies = Share::letter(side.opposite(), slot.len(), letter.bytes as usize);
            let now = share.read(memory, side, &slot[lies], *read);
            drop(slot);
            moved |= now > *read;
            *read = now;
            if (now as u64) < letter.bytes {
                break;
            }
            self.post.release_slot(message, letter.slot);
            *reading = None;
        }
        moved
    }

    /// Writes what is held and goes next, and sends letters that are full or the last of their step. Whether there was
    /// anything.
    fn write(
        &self,
        rank: usize,
        share: &mut Share,
        memory: &[u8],
        open: &mut Option<Open>,
        letters: &mut u64,
    ) -> bool {
        let mut moved = false;
        while let Some(side) = share.sends_to().filter(|_| share.can_send()) {
            if open.is_none() {
                *open = self.post.take_slot(rank).map(|slot| Open { slot, side, written: 0 });
            }
            let Some(letter) = open else { break };
            let mut slot = lock(&self.slots[rank * self.per_rank + letter.slot as usize]);
            letter.written = share.write(memory, &mut slot, letter.written);
            let full = slot.len() == letter.written;
            drop(slot);
            moved = true;
            if full || share.sends_to() != Some(side) {
                self.send(rank, *letter, letters);
                *open = None;
            }
        }
        moved
    }

    fn send(&self, rank: usize, open: Open, letters: &mut u64) {
        let letter = SlotHandle { slot: open.slot, bytes: open.written as u64 };
        self.post.send(2 * rank + open.side.index(), letter);
        *letters += 1;
    }
}
