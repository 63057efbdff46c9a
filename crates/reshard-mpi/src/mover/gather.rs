//! An all-gather in shared memory: each rank of a node gives some bytes, and all see those of all.
//!
//! Small arrays take as long as it takes to meet. So all that ranks have to tell each other, and the data itself, goes into one round:
//! a rank writes to its own slot, says that it has *given*, and waits until all have. Each rank has two slots, used in turns: it
//! writes to one again two rounds later, when all have given in between, so nobody reads it any more. A rank that gives up
//! *closes* the gather, and the others, which wait for it, see that.

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
    /// It never will.
    Closed,
}

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
        let closed = self.is_closed_by(rank);
        match self.memory.word(rank, GIVEN).load(OrderingSite::GatherSees.order()) >= self.round {
            true => Given::Yes,
            false if closed => Given::Closed,
            false => Given::NotYet,
        }
    }

    /// Says that this rank gives nothing any more. Carries no data with it.
    pub fn close(&self) {
        self.memory.word(self.memory.rank(), CLOSED).store(1, Ordering::Relaxed);
    }

    fn is_closed_by(&self, rank: usize) -> bool {
        self.memory.word(rank, CLOSED).load(Ordering::Relaxed) != 0
    }

    /// True if some rank gives nothing any more.
    pub fn is_closed(&self) -> bool {
        (0..self.memory.ranks()).any(|rank| self.is_closed_by(rank))
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
    /// A rank gives nothing any more.
    Closed { rank: usize },
    /// Nobody came in time, or MPI failed.
    Failed(Error),
}

impl NodeGather {
    /// Makes slots of at least `bytes` bytes. None if the ranks are not all on one node. Collective.
    pub fn new(comm: &Arc<Communicator>, bytes: usize, limit: Option<Duration>) -> Result<Option<Self>> {
        let node = comm.node(limit)?;
        if node.apart().is_some() {
            return Ok(None);
        }
        let oversubscribed = node.is_oversubscribed();
        let bytes = bytes.next_multiple_of(LINE);
        let memory = NodeMemory::share(comm, SLOTS + 2 * bytes, PageKind::Ordinary, limit)?;
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
                self.rounds.close();
                Err(why)
            }
        }
    }

    fn wait(&self, limit: Option<Duration>) -> std::result::Result<(), NotGathered> {
        let mut backoff = Backoff::before_a_run(limit, self.oversubscribed);
        let (mut rank, mut polls) = (0, 0_u32);
        while rank < self.rounds.memory.ranks() {
            match self.rounds.given(rank) {
                Given::Yes => rank += 1,
                Given::Closed => return Err(NotGathered::Closed { rank }),
                Given::NotYet => {
                    polls = polls.wrapping_add(1);
                    // The others may need MPI to go on, which it does only when it is called.
                    let progressed = match polls.is_multiple_of(POLLS_PER_PROGRESS) {
                        true => self.comm.progress(),
                        false => Ok(()),
                    };
                    progressed
                        .and_then(|()| backoff.wait(|| format!("rank {rank}")))
                        .map_err(NotGathered::Failed)?;
                }
            }
        }
        Ok(())
    }

    /// True if a rank has closed it: no round comes about any more.
    pub fn is_closed(&self) -> bool {
        self.rounds.is_closed()
    }

    /// Gives nothing any more: the others see that instead of waiting.
    pub fn close(&self) {
        self.rounds.close();
    }
}

impl Drop for NodeGather {
    fn drop(&mut self) {
        if !crate::fork::is_forked() {
            self.close();
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
