//! Barriers between the steps of a schedule, without blocking: a dissemination barrier over messages of the engine's own.
//!
//! In each round a rank tells another one, twice as far away as in the round before, that it has come so far, and is told so
//! by one. MPI's own barriers would not do: a rank that aborts cannot leave them, and other transports have none.

use super::network::RunTag;
use crate::communicator::Communicator;
use crate::transport::{Envelope, Slot, Transport};
use reshard_plan::{Error, ErrorKind, Result};

/// One rank's side of all barriers of a run.
pub struct Barriers {
    /// Steps whose barrier is passed.
    passed: u64,
    /// The round of the current barrier.
    round: u32,
    /// The message of this round is sent.
    sent: bool,
    /// A receive for this round is posted.
    posted: bool,
    send_slot: Slot,
    receive_slot: Slot,
}

impl Barriers {
    /// Bytes of the barriers' slots: two messages without content.
    pub const BYTES: usize = 2 * Envelope::BYTES;

    pub fn new(transport: &dyn Transport) -> Result<Self> {
        let (send_slot, receive_slot) = (Slot::new(transport, 0)?, Slot::new(transport, 0)?);
        Ok(Self { passed: 0, round: 0, sent: false, posted: false, send_slot, receive_slot })
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        (self.passed, self.round, self.sent, self.posted) = (0, 0, false, false);
    }

    /// Steps whose barrier is passed.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Passes barriers until `step` is reached, without blocking. Returns the number of barriers passed.
    pub fn advance(&mut self, comm: &Communicator, tag: RunTag, step: u64) -> Result<u64> {
        while self.passed < step {
            let distance = 1 << self.round;
            if distance >= comm.size() {
                (self.passed, self.round) = (self.passed + 1, 0);
                continue;
            }
            let expected = tag.envelope(self.passed, self.round as usize);
            if !self.sent {
                if self.send_slot.poll()?.is_none() {
                    break;
                }
                let to = (comm.rank() + distance) % comm.size();
                self.send_slot.send(expected, 0..0, (to, tag.barrier_tag), false)?;
                self.sent = true;
            }
            let from = self.waits_for(comm);
            if !self.posted {
                self.receive_slot.receive(from, tag.barrier_tag)?;
                self.posted = true;
            }
            if self.receive_slot.poll()?.is_none() {
                break;
            }
            self.posted = false;
            let envelope = self.receive_slot.envelope();
            // A stray message of an engine, or a run, that is over.
            if envelope.engine != expected.engine || envelope.run < expected.run {
                continue;
            }
            if envelope != expected {
                return Err(Error::new(
                    ErrorKind::External,
                    format!(
                        "rank {from} is at another step, or was called otherwise: give all ranks the same, and run the engine \
                         equally often on all; the destination is only partly written"
                    ),
                ));
            }
            (self.round, self.sent) = (self.round + 1, false);
        }
        Ok(self.passed)
    }

    /// The rank whose message of this round is awaited.
    pub fn waits_for(&self, comm: &Communicator) -> usize {
        (comm.rank() + comm.size() - (1 << self.round) % comm.size()) % comm.size()
    }

    /// Cancels the posted receive. False if the transport may still write to it.
    pub fn cancel_receives(&mut self) -> bool {
        Slot::cancel_receives([&mut self.receive_slot].into_iter())
    }
}
