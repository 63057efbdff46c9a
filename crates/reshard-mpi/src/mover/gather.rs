//! An all-gather in shared memory: each rank of a node gives some bytes, and all see those of all.
//!
//! Small arrays take as long as it takes to meet. So all that ranks have to tell each other, and the data itself, goes into one round:
//! a rank writes to its own slot, says that it has *given*, and waits until all have. Each rank has two slots, used in turns: it
//! writes to one again two rounds later, when all have given in between, so nobody reads it any more.
//!
//! A rank that gives nothing any more *closes* the gather, and the others, which wait for it, see that. It says in which round it gave up, so
//! that all give up the same one, whenever they come; or that it has dropped the gather, in no round, so that all turn to
//! another way.

use super::backoff::Backoff;
use super::word::{OrderingSite, SharedMemory, Word};
use crate::communicator::Communicator;
use crate::shm::{NodeMemory, PageKind};
use reshard_plan::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Offsets in bytes of a rank's words, and of its first slot.
const GIVEN: usize = 0;
const CLOSED: usize = LINE;
const SLOTS: usize = 2 * LINE;

/// Polls between two looks at what MPI has to do.
const POLLS_PER_PROGRESS: u32 = 32;

/// What a rank has done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    NotYet,
    Yes,
    /// It never will: it gave this round up, or, if not, has dropped the gather or given up before.
    Closed {
        this: bool,
    },
}

/// What *closed* holds if no round was given up.
const DROPPED: u64 = u64::MAX;

/// The rounds of all ranks.
pub struct Rounds<M> {
    memory: M,
    /// Rounds in which this rank has given.
    round: u64,
}

impl<M: SharedMemory> Rounds<M> {
    pub fn new(memory: M) -> Self {
        Self { memory, round: 0 }
    }

    /// The slot of the next round.
    pub fn next_slot(&self) -> usize {
        (self.round as usize + 1) % 2
    }

    /// The slot of the round in which this rank has given last.
    pub fn slot(&self) -> usize {
        self.round as usize % 2
    }

    /// Says that this rank's slot of the next round is written, and that it has read all slots of the last one.
    pub fn give(&mut self) {
        self.round += 1;
        let own = self.memory.word(self.memory.rank(), GIVEN);
        own.store(self.round, OrderingSite::GatherGives.order());
    }

    /// What a rank has done in the round in which this one has given last.
    pub fn given(&self, rank: usize) -> Given {
        // First: what was given before it was closed counts.
        let closed = self.closed_by(rank);
        match self.memory.word(rank, GIVEN).load(OrderingSite::GatherSees.order()) >= self.round {
            true => Given::Yes,
            false if closed == 0 => Given::NotYet,
            false => Given::Closed { this: closed == self.round },
        }
    }

    fn closed_by(&self, rank: usize) -> u64 {
        self.memory.word(rank, CLOSED).load(OrderingSite::GatherSeesClosed.order())
    }

    /// Closes it for this rank, unless it is closed: nothing is given after that.
    fn close(&self, why: u64) {
        let own = self.memory.word(self.memory.rank(), CLOSED);
        if own.load(Ordering::Relaxed) == 0 {
            own.store(why, OrderingSite::GatherCloses.order());
        }
    }

    /// Gives up the round in which this rank has given last.
    pub fn give_up(&self) {
        self.close(self.round);
    }

    /// Gives up the next round.
    pub fn give_up_next(&self) {
        self.close(self.round + 1);
    }

    /// Drops it, in no round.
    pub fn drop_it(&self) {
        self.close(DROPPED);
    }

    /// The first rank that has closed it, and whether it gave up the next round of this one.
    pub fn closed(&self) -> Option<(usize, bool)> {
        let all = || (0..self.memory.ranks()).map(|rank| (rank, self.closed_by(rank)));
        let given_up = all().find(|(_, closed)| *closed == self.round + 1).map(|(rank, _)| (rank, true));
        given_up.or_else(|| all().find(|(_, closed)| *closed != 0).map(|(rank, _)| (rank, false)))
    }
}

/// The all-gather of the ranks of a communicator that are all on one node.
#[doc(hidden)]
pub struct NodeGather {
    rounds: Rounds<NodeMemory>,
    /// Bytes of a slot.
    bytes: usize,
    comm: Arc<Communicator>,
    oversubscribed: bool,
}

/// Why a round has not come about.
#[doc(hidden)]
#[derive(Debug)]
pub enum NotGathered {
    /// A rank has dropped the gather: all turn to another way.
    Dropped,
    /// A rank gave this very round up.
    GivenUp { rank: usize },
    /// Nobody came in time, or MPI failed: this rank gave the round up.
    Failed(Error),
}

impl NodeGather {
    /// Makes slots of at least `bytes` bytes. None if the ranks are not all on one node, or one has no memory for it. Collective.
    pub fn new(comm: &Arc<Communicator>, bytes: usize, limit: Option<Duration>) -> Result<Option<Self>> {
        let node = comm.node(limit)?;
        if node.apart().is_some() {
            return Ok(None);
        }
        let oversubscribed = node.is_oversubscribed();
        let bytes = bytes.next_multiple_of(LINE);
        let memory = match NodeMemory::share(comm, SLOTS + 2 * bytes, PageKind::Ordinary, limit) {
            Ok(memory) => memory,
            // All know that one has no memory for it: they do without.
            Err(_) if comm.check_usable().is_ok() => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(Self { rounds: Rounds::new(memory), bytes, comm: Arc::clone(comm), oversubscribed }))
    }

    /// This rank's slot for the next round.
    pub fn slot(&mut self) -> &mut [u8] {
        let at = SLOTS + self.rounds.next_slot() * self.bytes;
        let place = self.rounds.memory.place(self.rounds.memory.rank(), at, self.bytes);
        // SAFETY: memory of this rank, which lives as long as `self`. Others read this slot two rounds ago, and have given since.
        unsafe { std::slice::from_raw_parts_mut(place, self.bytes) }
    }

    /// Gives this rank's slot, and waits for all others. After an error the gather is closed.
    pub fn round(&mut self, limit: Option<Duration>) -> std::result::Result<Gathered<'_>, NotGathered> {
        self.rounds.give();
        match self.wait(limit) {
            Ok(()) => Ok(Gathered(self)),
            Err(why) => {
                match why {
                    NotGathered::Dropped => self.rounds.drop_it(),
                    NotGathered::GivenUp { .. } | NotGathered::Failed(_) => self.rounds.give_up(),
                }
                Err(why)
            }
        }
    }

    fn wait(&self, limit: Option<Duration>) -> std::result::Result<(), NotGathered> {
        let mut backoff = Backoff::before_a_run(limit, self.oversubscribed);
        let (ranks, mut rank, mut polls) = (self.rounds.memory.ranks(), 0, 0_u32);
        while rank < ranks {
            // Now and then at those after it, too: one that has closed need not be the one waited for.
            let looks = polls % POLLS_PER_PROGRESS == POLLS_PER_PROGRESS - 1;
            let last = if looks { ranks } else { rank + 1 };
            for (other, given) in (rank..last).map(|other| (other, self.rounds.given(other))) {
                match given {
                    Given::Closed { this: true } => return Err(NotGathered::GivenUp { rank: other }),
                    Given::Closed { this: false } => return Err(NotGathered::Dropped),
                    Given::Yes if other == rank => rank += 1,
                    Given::Yes | Given::NotYet => {}
                }
            }
            if rank == last {
                continue;
            }
            polls = polls.wrapping_add(1);
            // The others may need MPI to go on, which it does only when it is called.
            let progressed = if looks { self.comm.progress() } else { Ok(()) };
            let waited = progressed.and_then(|()| backoff.wait(|| format!("rank {rank}")));
            waited.map_err(NotGathered::Failed)?;
        }
        Ok(())
    }

    /// Fails if a rank has given up the round that comes next, or has dropped the gather; in a fork of a rank, too.
    pub fn check(&self) -> std::result::Result<(), NotGathered> {
        self.comm.check_open().map_err(NotGathered::Failed)?;
        match self.rounds.closed() {
            None => Ok(()),
            Some((_, false)) => Err(NotGathered::Dropped),
            Some((rank, true)) => {
                self.give_up();
                Err(NotGathered::GivenUp { rank })
            }
        }
    }

    /// Gives up the round that comes next: the others see that instead of waiting.
    pub fn give_up(&self) {
        self.rounds.give_up_next();
    }
}

impl Drop for NodeGather {
    fn drop(&mut self) {
        if !crate::fork::is_forked() {
            self.rounds.drop_it();
        }
    }
}

/// What all ranks have given in a round, until the next one.
#[doc(hidden)]
pub struct Gathered<'a>(&'a NodeGather);

impl Gathered<'_> {
    /// The slot of a rank.
    pub fn of(&self, rank: usize) -> &[u8] {
        let NodeGather { rounds, bytes, .. } = self.0;
        let place = rounds.memory.place(rank, SLOTS + rounds.slot() * bytes, *bytes);
        // SAFETY: its rank has given it, and writes to it when this one has given the next but one round, for which `self` must be gone.
        unsafe { std::slice::from_raw_parts(place, *bytes) }
    }
}
