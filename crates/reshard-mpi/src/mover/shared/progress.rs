//! Numbers that the ranks of a node write down for each other to see. They only grow.

use super::super::word::{OrderingSite, SharedMemory, Word};
use crate::private_comm::PrivateComm;
use crate::shm::{NodeMemory, PageKind};
use reshard_plan::Result;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a rank writes down: the number of a run.
#[derive(Clone, Copy)]
pub enum Milestone {
    /// It has begun: its source may be read, and its destination written to.
    Begun,
    /// It has everything it receives.
    Received,
    /// It took its source back before all had read it.
    TakenBack,
    /// It gave the run up.
    GivenUp,
}

impl Milestone {
    /// With which orderings it is written and read. The last two tell nothing but themselves.
    fn ties(self) -> [Ordering; 2] {
        match self {
            Self::Begun => [OrderingSite::Begins.order(), OrderingSite::SeesBegun.order()],
            Self::Received => [OrderingSite::Receives.order(), OrderingSite::SeesReceived.order()],
            Self::TakenBack | Self::GivenUp => [Ordering::Relaxed; 2],
        }
    }
}

/// Each note has a line of its own, so that those who wait for one do not disturb who writes another.
const LINE: usize = 64;

/// Beside the last note: the lot a rank copied something of when it panicked.
const PANICKED: usize = Milestone::GivenUp as usize * LINE + 8;

/// After the notes: for which lot a rank copies now.
const BUSY: usize = 4 * LINE;

/// After that: the calls of the last runs.
const CALLS: usize = 5 * LINE;

/// So many are kept. A rank does not begin a run before those that need its call of so many runs ago have seen it.
pub const KEPT: u64 = if cfg!(all(test, loom)) { 2 } else { 8 };

/// After that, two numbers for each lot that leads to a rank first.
const TICKETS: usize = 6 * LINE;

/// The rank that keeps the tickets of a lot, and as which of its lots: by this all ranks know it.
pub type Home = (usize, usize);

/// That as a number, not 0.
fn name((rank, lot): Home) -> u64 {
    ((rank as u64) << 32 | lot as u64) + 1
}

/// The numbers of all ranks.
pub struct ProgressBoard<M = NodeMemory> {
    memory: M,
}

impl ProgressBoard {
    /// With the tickets of so many lots at this rank. Collective.
    pub fn share(comm: &PrivateComm, lots: usize, limit: Option<Duration>) -> Result<Self> {
        let memory = NodeMemory::share(comm, Self::bytes(lots), PageKind::Ordinary, limit)?;
        Ok(Self { memory })
    }

    /// Bytes it takes of this rank's memory.
    pub fn bytes(lots: usize) -> usize {
        TICKETS + lots * LINE
    }
}

impl<M: SharedMemory> ProgressBoard<M> {
    /// In memory that is shared already.
    #[cfg(test)]
    pub fn within(memory: M) -> Self {
        Self { memory }
    }

    pub fn rank(&self) -> usize {
        self.memory.rank()
    }

    /// How many ranks see it.
    pub fn ranks(&self) -> usize {
        self.memory.ranks()
    }

    /// Writes a run down for the others, unless it is there, or a later one.
    pub fn write(&self, note: Milestone, run: u64) {
        self.memory.word(self.rank(), note as usize * LINE).fetch_max(run, note.ties()[0]);
    }

    /// This rank begins a run, in a call that a number stands for.
    pub fn begin(&self, run: u64, call: u64) {
        self.call(self.rank(), run).store(call, Ordering::Relaxed);
        self.write(Milestone::Begun, run);
    }

    /// Whether a rank that has begun a run does so in another call. Asked before this rank takes a unit of a lot that the other
    /// belongs to: if that can still be taken, what the other wrote down is still there, see [`KEPT`].
    pub fn is_called_otherwise(&self, rank: usize, run: u64, call: u64) -> bool {
        self.call(rank, run).load(Ordering::Relaxed) != call
    }

    fn call(&self, rank: usize, run: u64) -> &M::Word {
        self.memory.word(rank, CALLS + (run % KEPT) as usize * size_of::<u64>())
    }

    pub fn read(&self, rank: usize, note: Milestone) -> u64 {
        self.memory.word(rank, note as usize * LINE).load(note.ties()[1])
    }

    /// Those of some ranks that have not written down a run.
    pub fn behind<'a>(
        &'a self,
        ranks: &'a [usize],
        note: Milestone,
        run: u64,
    ) -> impl Iterator<Item = usize> + 'a {
        ranks.iter().copied().filter(move |&rank| self.read(rank, note) < run)
    }

    /// This rank took its source back: before anything is written to it.
    pub fn take_back(&self, run: u64) {
        self.write(Milestone::TakenBack, run);
        M::Word::fence(OrderingSite::TakesBack.order());
    }

    /// This rank has copied a unit that it took.
    pub fn put_down(&self, tickets: TaskCounter<'_, M::Word>) {
        // Whoever hears of it also hears of those that took back what was read.
        M::Word::fence(OrderingSite::HasRead.order());
        tickets.put_down();
    }

    /// This rank copies something of a lot, known by its home, or nothing.
    pub fn work_on(&self, lot: Option<Home>) {
        self.memory.word(self.rank(), BUSY).store(lot.map_or(0, name), Ordering::Relaxed);
    }

    /// Whether a rank copies something of a lot.
    pub fn works_on(&self, rank: usize, lot: Home) -> bool {
        self.memory.word(rank, BUSY).load(Ordering::Relaxed) == name(lot)
    }

    /// This rank panicked while it copied something of a lot, and will not put it down.
    pub fn drop_work(&self, lot: Home) {
        self.memory.word(self.rank(), PANICKED).store(name(lot), Ordering::Relaxed);
    }

    /// The first rank that did so.
    pub fn dropped_by(&self, lot: Home) -> Option<usize> {
        let dropped = |rank: &usize| self.memory.word(*rank, PANICKED).load(Ordering::Relaxed) == name(lot);
        (0..self.ranks()).find(dropped)
    }

    /// The tickets of a lot.
    pub fn tickets(&self, (rank, lot): Home) -> TaskCounter<'_, M::Word> {
        let at = TICKETS + lot * LINE;
        TaskCounter { next: self.memory.word(rank, at), copied: self.memory.word(rank, at + 8) }
    }
}

/// The unit of a lot to be taken next is in the low bits, above them the run.
const UNIT_BITS: u32 = 24;

/// In the highest of them: no more are to be taken.
const CLOSED: u64 = 1 << (UNIT_BITS - 1);

/// A lot has fewer units than this.
pub const MOST_UNITS: u64 = CLOSED;

/// By which the units of a lot are taken, each once in a run, by whoever comes. Who takes one learns nothing by that but its
/// number: what may be read and written is known from the notes.
pub struct TaskCounter<'a, W> {
    next: &'a W,
    /// Units of all runs.
    copied: &'a W,
}

impl<W> Clone for TaskCounter<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for TaskCounter<'_, W> {}

impl<W: Word> TaskCounter<'_, W> {
    /// The next unit of a run, if there is one for one of this run.
    pub fn next(self, run: u64, units: u64) -> Option<u64> {
        let seen = self.next.load(Ordering::Relaxed);
        place(seen, run).filter(|&unit| unit < units)
    }

    /// Takes a unit, if there is one.
    pub fn take(self, run: u64, units: u64) -> Option<u64> {
        let mut seen = self.next.load(Ordering::Relaxed);
        loop {
            let unit = place(seen, run).filter(|&unit| unit < units)?;
            match self.next.replace(seen, (run << UNIT_BITS) + unit + 1) {
                Ok(_) => return Some(unit),
                Err(now) => seen = now,
            }
        }
    }

    /// A unit that was taken is copied.
    fn put_down(self) {
        self.copied.fetch_add(1, OrderingSite::PutsDown.order());
    }

    /// Whether all units of a run, and of those before, are copied.
    pub fn are_through(self, run: u64, units: u64) -> bool {
        self.copied.load(OrderingSite::SeesThrough.order()) >= run * units
    }

    /// Nobody takes a unit of this run any more. How many will have been copied, in all runs, when all that were taken are. May
    /// be asked again, and by others.
    pub fn close(self, run: u64, units: u64) -> u64 {
        let mut seen = self.next.load(Ordering::Relaxed);
        // None is closed if a later run has begun: then all of this one were copied.
        while let Some(taken) = place(seen, run).map(|place| place % CLOSED) {
            match self.next.replace(seen, (run << UNIT_BITS) + CLOSED + taken) {
                Ok(_) => return (run - 1) * units + taken,
                Err(now) => seen = now,
            }
        }
        run * units
    }

    /// Whether so many units were copied, in all runs: those that were taken when it was closed.
    pub fn are_back(self, taken: u64) -> bool {
        self.copied.load(OrderingSite::SeesLast.order()) >= taken
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
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_unit_is_taken_once_in_every_run_whoever_comes() {
        const UNITS: u64 = 37;
        const RUNS: u64 = 300;
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let tickets = TaskCounter { next: &next, copied: &copied };
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
        assert!(tickets.are_back(RUNS * UNITS) && !tickets.are_back(RUNS * UNITS + 1));
    }

    #[test]
    fn who_is_late_takes_nothing_of_a_later_run() {
        let (next, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        let tickets = TaskCounter { next: &next, copied: &copied };
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
        let tickets = TaskCounter { next: &next, copied: &copied };
        (0..4).for_each(|_| assert!(tickets.take(1, 4).is_some()));
        (0..4).for_each(|_| tickets.put_down());
        assert_eq!([tickets.take(2, 4), tickets.take(2, 4)], [Some(0), Some(1)]);
        tickets.put_down();
        assert_eq!(tickets.close(2, 4), 6);
        assert!(tickets.are_back(5) && !tickets.are_back(6));
        assert_eq!([tickets.take(2, 4), tickets.next(2, 4)], [None, None]);
        assert_eq!(tickets.close(2, 4), 6, "whoever asks");
        // Of a run in which nobody has taken anything.
        let tickets = TaskCounter { next: &AtomicU64::new(0), copied: &copied };
        assert_eq!(tickets.close(2, 4), 4);
    }
}
