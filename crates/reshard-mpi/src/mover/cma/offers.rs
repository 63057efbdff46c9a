//! What ranks tell each other while one reads the memory of another: a source is offered, read, and confirmed.
//!
//! A rank *offers* its source with the number of the run. Its readers read it, and publish that they have. When all have, its run
//! may end; it *confirms* that the source was there until then. A reader's run ends only with the confirmation of every source
//! it read: an owner that gives up, dies or forgets its run never confirms, so nobody takes for data what was in its memory
//! afterwards.
//!
//! Where another mover can do the run again, a rank that cannot read a source publishes that instead, *unreadable*, and nobody's run ends
//! before all ranks that are connected have published one of the two: either all have read, or nobody finds that all have.

use super::super::word::{OrderingSite, SharedMemory, Word};
use std::sync::atomic::Ordering;

/// Bytes of a cache line: words that different ranks poll are this far apart.
const LINE: usize = 64;

/// Offsets in bytes of a rank's words.
const OFFERED: usize = 0;
const READ: usize = LINE;
const CALLS: usize = READ + WORD;
const UNREADABLE: usize = READ + 2 * WORD;
const CONFIRMED: usize = 2 * LINE;
const TIMES: usize = 3 * LINE;
const CHOICE: usize = 4 * LINE;
const ADDRESSES: usize = 5 * LINE;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// What a rank says of its source in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Nothing yet.
    NotYet,
    /// It may be read.
    Open,
    /// It is, or was, moved otherwise in this run.
    Refused,
}

/// The words of all ranks.
pub struct Offers<M> {
    memory: M,
}

impl<M> Offers<M> {
    /// Bytes of a rank's words for so many arrays.
    pub fn bytes(arrays: usize) -> usize {
        ADDRESSES + arrays * WORD
    }
}

impl<M: SharedMemory> Offers<M> {
    pub fn new(memory: M) -> Self {
        Self { memory }
    }

    pub fn rank(&self) -> usize {
        self.memory.rank()
    }

    fn own(&self, at: usize) -> &M::Word {
        self.memory.word(self.rank(), at)
    }

    /// Offers this rank's source for `run`: the addresses of its parts, one for each array.
    pub fn offer(&self, run: u64, addresses: impl Iterator<Item = u64>) {
        for (array, address) in addresses.enumerate() {
            self.own(ADDRESSES + array * WORD).store(address, Ordering::Relaxed);
        }
        self.own(OFFERED).store(2 * run + 1, OrderingSite::SourceOffered.order());
    }

    /// Says that this rank's source is moved otherwise in `run`.
    pub fn refuse(&self, run: u64) {
        self.own(OFFERED).store(2 * run, Ordering::Relaxed);
    }

    /// What `rank` says of its source in `run`.
    pub fn offer_of(&self, rank: usize, run: u64) -> Offer {
        let said = self.memory.word(rank, OFFERED).load(OrderingSite::SeesSourceOffered.order());
        match said {
            said if said == 2 * run + 1 => Offer::Open,
            said if said < 2 * run => Offer::NotYet,
            _ => Offer::Refused,
        }
    }

    /// The address of the source of `rank`, whose offer is open.
    pub fn address(&self, rank: usize, array: usize) -> u64 {
        self.memory.word(rank, ADDRESSES + array * WORD).load(Ordering::Relaxed)
    }

    /// Publishes that this rank has read all sources it needs in `run`.
    pub fn publish_read(&self, run: u64) {
        self.own(READ).store(run, OrderingSite::SourceRead.order());
    }

    /// True if `rank` has read all sources it needs in `run`.
    pub fn has_read(&self, rank: usize, run: u64) -> bool {
        self.memory.word(rank, READ).load(OrderingSite::SeesSourceRead.order()) >= run
    }

    /// Publishes, instead of having read, that this rank cannot read in `run`. Carries no data with it.
    pub fn publish_unreadable(&self, run: u64) {
        self.own(UNREADABLE).store(run, Ordering::Relaxed);
    }

    /// True if `rank` cannot read in `run`.
    pub fn is_unreadable(&self, rank: usize, run: u64) -> bool {
        self.memory.word(rank, UNREADABLE).load(Ordering::Relaxed) == run
    }

    /// Publishes how often this rank has read something: it goes on.
    pub fn publish_calls(&self, calls: u64) {
        self.own(CALLS).store(calls, Ordering::Relaxed);
    }

    /// How often `rank` has read something.
    pub fn calls(&self, rank: usize) -> u64 {
        self.memory.word(rank, CALLS).load(Ordering::Relaxed)
    }

    /// Confirms that this rank's source was there until all had read it. Carries no data with it.
    pub fn confirm(&self, run: u64) {
        self.own(CONFIRMED).store(run, Ordering::Relaxed);
    }

    /// True if `rank` has confirmed its source for `run`.
    pub fn is_confirmed(&self, rank: usize, run: u64) -> bool {
        self.memory.word(rank, CONFIRMED).load(Ordering::Relaxed) >= run
    }

    /// Publishes how long this rank copied, in nanoseconds, the other way and by this mover.
    pub fn publish_times(&self, nanoseconds: [u64; 2]) {
        for (k, time) in nanoseconds.into_iter().enumerate() {
            self.own(TIMES + k * WORD).store(time.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// The times of `rank`, if it has published both.
    pub fn times(&self, rank: usize) -> Option<[u64; 2]> {
        let time = |k: usize| self.memory.word(rank, TIMES + k * WORD).load(Ordering::Relaxed).checked_sub(1);
        Some([time(0)?, time(1)?])
    }

    /// Publishes what this rank has chosen for all that are connected: this mover or not.
    pub fn publish_choice(&self, this: bool) {
        self.own(CHOICE).store(1 + u64::from(this), Ordering::Relaxed);
    }

    /// What `rank` has chosen.
    pub fn choice(&self, rank: usize) -> Option<bool> {
        self.memory.word(rank, CHOICE).load(Ordering::Relaxed).checked_sub(1).map(|choice| choice == 1)
    }
}
