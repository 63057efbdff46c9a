//! Numbers that the ranks of a node write down for each other to see. They only grow.

use crate::ffi::comm::Comm;
use crate::shared::{Neighbours, Pages};
use reshard_plan::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a rank writes down: the number of a run.
#[derive(Clone, Copy)]
pub enum Note {
    /// It has begun: its source may be read, and its destination written to.
    Begun,
    /// It has everything it receives.
    Received,
    /// It took its source back before all had read it.
    TakenBack,
    /// It gave the run up.
    GivenUp,
}

/// Each note has a line of its own, so that those who wait for one do not disturb who writes another.
const LINE: usize = 64;

/// Beside the first note: the run for which the next number is about to be written, and what that run moves.
const COMING: usize = 8;
const MOVES: usize = 16;

/// After the notes: for which lot a rank copies now.
const BUSY: usize = 4 * LINE;

/// After that, two numbers for each lot that leads to a rank first.
const TICKETS: usize = 5 * LINE;

/// The numbers of all ranks.
pub struct Board {
    neighbours: Neighbours,
}

impl Board {
    /// With the tickets of so many lots at this rank. Collective.
    pub fn share(comm: &Comm, lots: usize, limit: Option<Duration>) -> Result<Self> {
        let neighbours = Neighbours::share(comm, Self::bytes(lots), Pages::Ordinary, limit)?;
        Ok(Self { neighbours })
    }

    /// Bytes it takes of this rank's memory.
    pub fn bytes(lots: usize) -> usize {
        TICKETS + lots * LINE
    }

    pub fn rank(&self) -> usize {
        self.neighbours.rank()
    }

    /// How many ranks see it.
    pub fn ranks(&self) -> usize {
        self.neighbours.ranks()
    }

    /// Writes a run down for the others, unless it is there, or a later one.
    pub fn write(&self, note: Note, run: u64) {
        self.neighbours.counter(self.rank(), note as usize * LINE).fetch_max(run, Ordering::AcqRel);
    }

    /// This rank begins a run, which moves the arrays that a number stands for.
    pub fn begin(&self, run: u64, arrays: u64) {
        let own = |at| self.neighbours.counter(self.rank(), at);
        own(COMING).store(run, Ordering::Release);
        own(MOVES).store(arrays, Ordering::Release);
        self.write(Note::Begun, run);
    }

    /// Whether a rank that has begun a run moves other arrays in it. If it has begun another since, nobody knows any more.
    pub fn moves_others(&self, rank: usize, run: u64, arrays: u64) -> bool {
        let moved = self.neighbours.counter(rank, MOVES).load(Ordering::Acquire);
        // A later run is announced before its arrays.
        moved != arrays && self.neighbours.counter(rank, COMING).load(Ordering::Acquire) == run
    }

    pub fn read(&self, rank: usize, note: Note) -> u64 {
        self.neighbours.counter(rank, note as usize * LINE).load(Ordering::Acquire)
    }

    /// Those of some ranks that have not written down a run.
    pub fn behind<'a>(
        &'a self,
        ranks: &'a [usize],
        note: Note,
        run: u64,
    ) -> impl Iterator<Item = usize> + 'a {
        ranks.iter().copied().filter(move |&rank| self.read(rank, note) < run)
    }

    /// This rank copies something of a lot, or nothing.
    pub fn work_on(&self, lot: Option<usize>) {
        let number = lot.map_or(0, |lot| lot as u64 + 1);
        self.neighbours.counter(self.rank(), BUSY).store(number, Ordering::Relaxed);
    }

    /// Whether a rank copies something of a lot.
    pub fn works_on(&self, rank: usize, lot: usize) -> bool {
        self.neighbours.counter(rank, BUSY).load(Ordering::Relaxed) == lot as u64 + 1
    }

    /// The tickets of a rank's lot.
    pub fn tickets(&self, rank: usize, lot: usize) -> Tickets<'_> {
        let at = TICKETS + lot * LINE;
        Tickets { next: self.neighbours.counter(rank, at), copied: self.neighbours.counter(rank, at + 8) }
    }
}

/// The unit of a lot to be taken next is in the low bits, above them the run.
const UNIT_BITS: u32 = 24;

/// In the highest of them: no more are to be taken.
const CLOSED: u64 = 1 << (UNIT_BITS - 1);

/// A lot has fewer units than this.
pub const MOST_UNITS: u64 = CLOSED;

/// By which the units of a lot are taken, each once in a run, by whoever comes.
#[derive(Clone, Copy)]
pub struct Tickets<'a> {
    next: &'a AtomicU64,
    /// Units of all runs.
    copied: &'a AtomicU64,
}

impl Tickets<'_> {
    /// The next unit of a run, if there is one for one of this run.
    pub fn next(self, run: u64, units: u64) -> Option<u64> {
        let seen = self.next.load(Ordering::Acquire);
        place(seen, run).filter(|&unit| unit < units)
    }

    /// Takes a unit, if there is one.
    pub fn take(self, run: u64, units: u64) -> Option<u64> {
        let mut seen = self.next.load(Ordering::Acquire);
        loop {
            let unit = place(seen, run).filter(|&unit| unit < units)?;
            let taken = (run << UNIT_BITS) + unit + 1;
            match self.next.compare_exchange_weak(seen, taken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(unit),
                Err(now) => seen = now,
            }
        }
    }

    /// A unit that was taken is copied.
    pub fn put_down(self) {
        self.copied.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether all units of a run, and of those before, are copied.
    pub fn are_through(self, run: u64, units: u64) -> bool {
        self.copied.load(Ordering::Acquire) >= run * units
    }

    /// Nobody takes a unit of this run any more. How many will have been copied, in all runs, when all that were taken are. May
    /// be asked again, and by others.
    pub fn close(self, run: u64, units: u64) -> u64 {
        let taken = |seen: u64| place(seen, run).map(|place| place % CLOSED);
        let closed = |seen: u64| taken(seen).map(|taken| (run << UNIT_BITS) + CLOSED + taken);
        let seen = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, closed);
        // None is closed if a later run has begun: then all of this one were copied.
        (run - 1) * units + seen.ok().and_then(taken).unwrap_or(units)
    }

    /// How many units were copied, in all runs.
    pub fn copied(self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }
}

/// How many units of a run were taken, or more than there are if it is closed; none if a later one has begun.
fn place(next: u64, run: u64) -> Option<u64> {
    match (next >> UNIT_BITS).cmp(&run) {
        std::cmp::Ordering::Less => Some(0),
        std::cmp::Ordering::Equal => Some(next % (1 << UNIT_BITS)),
        std::cmp::Ordering::Greater => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_unit_is_taken_once_in_every_run_whoever_comes() {
        const UNITS: u64 = 37;
        const RUNS: u64 = 300;
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let tickets = Tickets { next: &next, copied: &copied };
        let taken = Mutex::new(vec![[0_u32; UNITS as usize]; RUNS as usize]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for run in 1..=RUNS {
                        while let Some(unit) = tickets.take(run, UNITS) {
                            taken.lock().unwrap()[run as usize - 1][unit as usize] += 1;
                            tickets.put_down();
                        }
                        // Nobody begins a run before the one before is over.
                        while !tickets.are_through(run, UNITS) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert!(taken.lock().unwrap().iter().flatten().all(|&times| times == 1));
        assert_eq!(tickets.copied(), RUNS * UNITS);
    }

    #[test]
    fn who_is_late_takes_nothing_of_a_later_run() {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let tickets = Tickets { next: &next, copied: &copied };
        assert_eq!([tickets.take(1, 2), tickets.take(1, 2), tickets.take(1, 2)], [Some(0), Some(1), None]);
        assert_eq!(tickets.next(2, 2), Some(0));
        assert_eq!(tickets.take(2, 2), Some(0));
        assert_eq!([tickets.take(1, 2), tickets.next(1, 2)], [None, None]);
        assert!(!tickets.are_through(1, 2));
        (0..2).for_each(|_| tickets.put_down());
        assert!(tickets.are_through(1, 2) && !tickets.are_through(2, 2));
    }

    #[test]
    fn what_is_closed_is_not_taken_and_says_what_is_still_out() {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let tickets = Tickets { next: &next, copied: &copied };
        (0..4).for_each(|_| assert!(tickets.take(1, 4).is_some()));
        (0..4).for_each(|_| tickets.put_down());
        assert_eq!([tickets.take(2, 4), tickets.take(2, 4)], [Some(0), Some(1)]);
        tickets.put_down();
        assert_eq!((tickets.close(2, 4), tickets.copied()), (6, 5));
        assert_eq!([tickets.take(2, 4), tickets.next(2, 4)], [None, None]);
        assert_eq!(tickets.close(2, 4), 6, "whoever asks");
        // Of a run in which nobody has taken anything.
        let tickets = Tickets { next: &AtomicU64::new(0), copied: &copied };
        assert_eq!(tickets.close(2, 4), 4);
    }
}
