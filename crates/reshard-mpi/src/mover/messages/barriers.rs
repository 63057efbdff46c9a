//! All ranks meet after each step, without waiting: in rounds, each rank tells another, twice as far away in each round, that it has
//! come so far, and hears it of one. Messages of the engine's own, as MPI's barriers cannot be left by a rank that gives up.

use super::network::RunTag;
use crate::owned::{Envelope, Slot};
use crate::private_comm::PrivateComm;
use reshard_plan::{Error, ErrorKind, Result};

/// One rank's side of all barriers of a run.
pub struct Barriers {
    /// So many steps are over.
    over: u64,
    /// The round of the barrier under way, and what is done of it.
    round: u32,
    told: bool,
    listens: bool,
    out: Slot,
    into: Slot,
}

impl Barriers {
    /// What they take: two messages without content.
    pub const BYTES: usize = 2 * Envelope::BYTES;

    pub fn new() -> Result<Self> {
        let (out, into) = (Slot::new(0)?, Slot::new(0)?);
        Ok(Self { over: 0, round: 0, told: false, listens: false, out, into })
    }

    pub fn begin(&mut self) {
        (self.over, self.round, self.told, self.listens) = (0, 0, false, false);
    }

    pub fn over(&self) -> u64 {
        self.over
    }

    /// Meets the others as often as it takes to be at a step, without waiting for them. How many steps are over.
    pub fn meet(&mut self, comm: &PrivateComm, marks: RunTag, step: u64) -> Result<u64> {
        while self.over < step {
            let ahead = 1 << self.round;
            if ahead >= comm.size() {
                (self.over, self.round) = (self.over + 1, 0);
                continue;
            }
            let head = marks.head(self.over, self.round as usize);
            if !self.told {
                if self.out.settled()?.is_none() {
                    break;
                }
                let to = (comm.rank() + ahead) % comm.size();
                self.out.send(comm, head, 0..0, (to, marks.barriers), false)?;
                self.told = true;
            }
            let from = self.waits_for(comm);
            if !self.listens {
                self.into.receive(comm, from, marks.barriers)?;
                self.listens = true;
            }
            if self.into.settled()?.is_none() {
                break;
            }
            self.listens = false;
            let said = self.into.head();
            // Of an engine, or a run, that is over.
            if said.engine != head.engine || said.run < head.run {
                continue;
            }
            if said != head {
                return Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "rank {from} is at another step, or was called otherwise: give all ranks the same, and run the engine \
                         equally often on all; the destination is an unfinished mixture"
                    ),
                ));
            }
            (self.round, self.told) = (self.round + 1, false);
        }
        Ok(self.over)
    }

    /// Whom it hears next.
    pub fn waits_for(&self, comm: &PrivateComm) -> usize {
        (comm.rank() + comm.size() - (1 << self.round) % comm.size()) % comm.size()
    }

    /// Nobody waits for what is still to come. False if MPI may still receive it.
    pub fn abandon(&mut self) -> bool {
        Slot::abandon([&mut self.into].into_iter())
    }
}
