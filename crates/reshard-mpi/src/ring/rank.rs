//! One rank of a ring: a sender, a receiver for each link, and the loop that drives them through a run.

use super::receiving::LinkReceiver;
use super::sending::RingSender;
use super::{FragmentTag, Neighbours};
use crate::communicator::{Communicator, Registration};
use crate::mover::{Backoff, rank_list};
use crate::transport::{Envelope, Slot};
use reshard_plan::Result;
use reshard_ring::{FragmentSize, RankProgress, RingPlan, Side};

/// Polls without progress between two checks for a failure notice of another rank.
const POLLS_PER_NOTICE_CHECK: u32 = 16;

const SIDES: [Side; 2] = [Side::Left, Side::Right];

/// One rank of the ring, with its slots.
pub struct RingRank {
    /// What this rank still has to send and to get.
    progress: RankProgress,
    neighbours: Neighbours,
    item_bytes: usize,
    pub sender: RingSender,
    receivers: [LinkReceiver; 2],
    tag: FragmentTag,
}

impl RingRank {
    /// Allocates the slots of this rank. `size` gives their number and length in bytes.
    pub fn new(plan: &RingPlan, comm: &Communicator, size: &FragmentSize) -> Result<Self> {
        let rank = comm.rank();
        let slots = |bytes: usize| {
            let count = if bytes == 0 { 0 } else { size.slots };
            (0..count).map(|_| Slot::new(comm.transport(), bytes)).collect::<Result<Vec<Slot>>>()
        };
        let progress = RankProgress::new(plan, rank);
        let receiver = |side: Side| -> Result<LinkReceiver> {
            Ok(LinkReceiver::new(slots(size.received_bytes(plan, rank, side))?, progress.incoming(side)))
        };
        Ok(Self {
            sender: RingSender::new(slots(size.sent_bytes(plan, rank))?, size.slots),
            receivers: [receiver(Side::Left)?, receiver(Side::Right)?],
            neighbours: SIDES.map(|side| side.of(rank as u64, plan.procs() as u64) as usize),
            item_bytes: plan.item_bytes(),
            progress,
            tag: FragmentTag::default(),
        })
    }

    /// Does a whole run on this rank's part.
    pub fn run(
        &mut self,
        registration: &Registration,
        run: u64,
        memory: &mut [u8],
        mut backoff: Backoff,
    ) -> Result<()> {
        self.progress.begin();
        self.sender.begin();
        self.receivers.iter_mut().for_each(LinkReceiver::begin);
        let envelope = Envelope { engine: registration.number(), run, call: 0, sequence: 0 };
        self.tag = FragmentTag { envelope, first_tag: registration.tag() };
        let mut polls = 0_u32;
        while !self.is_over()? {
            if self.advance(memory)? {
                backoff.reset();
            } else {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(POLLS_PER_NOTICE_CHECK) {
                    registration.check(run, true)?;
                }
                backoff.wait(|| self.awaited())?;
            }
        }
        self.progress.finish(memory);
        Ok(())
    }

    /// True if everything is unpacked, and the neighbours have begun to receive everything.
    fn is_over(&mut self) -> Result<bool> {
        if !self.progress.is_over() {
            return Ok(false);
        }
        self.sender.is_done()
    }

    /// Does what can be done without waiting. Returns whether there was anything.
    fn advance(&mut self, memory: &mut [u8]) -> Result<bool> {
        let Self { progress, neighbours, item_bytes, sender, receivers, tag } = self;
        let mut moved = false;
        for side in SIDES {
            let from = neighbours[side.index()];
            let receiver = &mut receivers[side.index()];
            moved |= receiver.unpack(memory, progress, (side, from), (*tag, *item_bytes))?;
        }
        moved |= sender.pack(memory, progress, *neighbours, *tag)?;
        if !moved {
            moved = sender.flush(*neighbours, *tag)?;
        }
        Ok(moved)
    }

    /// Cancels the posted receives. False if the transport may still write to one.
    pub fn cancel_receives(&mut self) -> bool {
        Slot::cancel_receives(self.receivers.iter_mut().flat_map(|receiver| &mut receiver.slots))
    }

    /// The ranks this rank waits for, in words: those that items are to come from, and those that have not begun to
    /// receive a fragment.
    fn awaited(&self) -> String {
        let senders = SIDES.into_iter().filter(|&side| self.receivers[side.index()].is_waiting());
        let sides = senders.chain(self.sender.awaited());
        rank_list(sides.map(|side| self.neighbours[side.index()]))
    }
}
