//! Fragments that travel through the transport: those that leave a rank, and those that come to it.
//!
//! A step of the schedule sends ranges of messages ([`ScheduledRange`]); each range travels in fragments that fit a slot.
//! Ranges go in the order of the schedule, both ways independently: a rank sends its next step while something of an
//! earlier one is still in flight to it, as the papers' machines with one port each way do. Fragments are short enough for
//! MPI's eager protocol, and every few of them one is sent synchronously, so that it completes only when the receiver has
//! begun to receive: a slow receiver holds up its senders (flow control) instead of filling up with unexpected messages.
//!
//! Even contiguous data is packed into a slot. Sent in place, it would still be read by the transport after a rank has stopped
//! waiting and its owner has the memory back; a slot can be leaked. The copy is made in the caches while earlier fragments
//! travel.
//!
//! Why there is no deadlock: take the earliest step of which something has not arrived. Its sender has sent all before it,
//! its receiver has received all before it, so both are at it: receives are posted for all ranges of that step before any
//! later one gets a slot.

use super::super::{RunCounters, call_mismatch, rank_list};
use crate::transport::{Envelope, Slot};
use reshard::engine::Buffers;
use reshard::rank::{Cursor, MessageRange, RankPacker};
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::time::Instant;

/// Receives posted at a time for each range that is being received.
pub const MAX_POSTED_PER_RANGE: usize = 2;

/// Of this many fragments of a range one is sent synchronously: it completes only when the receiver has begun to receive it.
const SYNCHRONOUS_INTERVAL: usize = 8;

/// The range of a message that goes in a step of the schedule. (The kernel's type for it is `MessageRange`; here a fragment is
/// what fits a slot.)
#[derive(Clone)]
pub struct ScheduledRange {
    pub step: u64,
    pub range: MessageRange,
}

/// Identifies the fragments of one run of one engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTag {
    /// The tag of the engine's first group of arrays; the other groups follow.
    pub tag: u32,
    /// The tag of barriers, after those of all groups.
    pub barrier_tag: u32,
    /// The number of the engine on its communicator.
    pub engine: u64,
    pub run: u64,
    /// Fingerprint of the call.
    pub call: u64,
}

impl RunTag {
    /// The envelope of a fragment: which range between the two ranks, and which fragment of it.
    pub fn envelope(self, ordinal: u64, fragment: usize) -> Envelope {
        Envelope {
            engine: self.engine,
            run: self.run,
            call: self.call,
            sequence: ordinal << 32 | fragment as u64,
        }
    }
}

/// For each range, the number of earlier ones between the same ranks in the same group of arrays.
fn ordinals(ranges: &[ScheduledRange], peer: impl Fn(&MessageRange) -> (u64, usize)) -> Vec<u64> {
    let mut counts = HashMap::new();
    let mut next = |scheduled: &ScheduledRange| {
        let count = counts.entry(peer(&scheduled.range)).or_insert(0);
        *count += 1;
        *count - 1
    };
    ranges.iter().map(&mut next).collect()
}

/// The fragments that leave a rank.
pub struct NetworkSender {
    /// The ranges to send, in the order of the schedule.
    ranges: Vec<ScheduledRange>,
    /// For each range, its ordinal: see [`ordinals`].
    ordinals: Vec<u64>,
    /// The first range of the current step.
    first: usize,
    /// How far each range of the current step is sent.
    progress: Vec<SendProgress>,
    /// The number of ranges of the current step.
    open: usize,
    slots: Vec<Slot>,
    /// For each slot, the rank its last fragment was sent to.
    sent_to: Vec<usize>,
    /// A step ends only when the receivers have begun to receive all of it.
    lockstep: bool,
}

/// How far a range is sent.
#[derive(Clone, Copy, Default)]
struct SendProgress {
    cursor: Cursor,
    /// Fragments sent.
    fragments: usize,
}

impl SendProgress {
    /// True if all is sent. A range of which nothing travels is sent as an empty fragment, which carries its sender's call.
    fn is_done(&self) -> bool {
        self.cursor.finished() && self.fragments > 0
    }
}

impl NetworkSender {
    /// At most `max_ranges` ranges go in a step.
    pub fn new(
        packer: &RankPacker,
        ranges: Vec<ScheduledRange>,
        max_ranges: usize,
        slots: Vec<Slot>,
        lockstep: bool,
    ) -> Self {
        let to = |range: &MessageRange| (packer.ends(range).1, packer.ends(range).2);
        Self {
            ordinals: ordinals(&ranges, to),
            ranges,
            first: 0,
            progress: vec![SendProgress::default(); max_ranges],
            open: 0,
            sent_to: vec![0; slots.len()],
            slots,
            lockstep,
        }
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        (self.first, self.open) = (0, 0);
    }

    /// The current step, or the next; none if all is sent.
    pub fn step(&self) -> Option<u64> {
        self.ranges.get(self.first).map(|scheduled| scheduled.step)
    }

    /// True if everything is sent and every send is complete.
    pub fn is_done(&self) -> bool {
        self.step().is_none() && self.slots.iter().all(Slot::is_free)
    }

    /// Packs and sends one fragment of each range of the step, as long as there are free slots; begins no step beyond
    /// `last`.
    pub fn advance(
        &mut self,
        packer: &mut RankPacker,
        tag: RunTag,
        data: &Buffers<'_>,
        last: u64,
        counters: &mut RunCounters,
    ) -> Result<bool> {
        let mut free = self.reclaim_slots()?;
        let sent = self.progress[..self.open].iter().all(SendProgress::is_done);
        if sent && self.open > 0 && (free == self.slots.len() || !self.lockstep) {
            self.first += self.open;
            self.open = 0;
        }
        if self.open == 0 {
            let Some(step) = self.step().filter(|&step| step <= last) else { return Ok(false) };
            let ranges = self.ranges[self.first..].iter().take_while(|scheduled| scheduled.step == step);
            for (progress, scheduled) in self.progress.iter_mut().zip(ranges) {
                *progress = SendProgress { cursor: packer.open(data, &scheduled.range), fragments: 0 };
                counters.messages += u64::from(!progress.cursor.finished());
                self.open += 1;
            }
        }
        let mut moved = false;
        for k in 0..self.open {
            if free == 0 {
                break;
            }
            if self.progress[k].is_done() {
                continue;
            }
            let Some(number) = self.slots.iter().position(Slot::is_free) else { break };
            let slot = &mut self.slots[number];
            let began = Instant::now();
            let range = &self.ranges[self.first + k].range;
            let progress = &mut self.progress[k];
            let bytes = packer.pack(data, range, &mut progress.cursor, slot.bytes());
            let (_, to, group) = packer.ends(range);
            let synchronous =
                self.lockstep || progress.fragments % SYNCHRONOUS_INTERVAL == SYNCHRONOUS_INTERVAL - 1;
            let envelope = tag.envelope(self.ordinals[self.first + k], progress.fragments);
            slot.send(envelope, 0..bytes, (to as usize, tag.tag + group as u32), synchronous)?;
            self.sent_to[number] = to as usize;
            progress.fragments += 1;
            free -= 1;
            counters.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Frees slots whose sends are complete. Returns the number of free slots.
    fn reclaim_slots(&mut self) -> Result<usize> {
        self.slots.iter_mut().try_fold(0, |free, slot| Ok(free + usize::from(slot.poll()?.is_some())))
    }

    /// Ranks to which something is still to be sent, or in flight.
    pub fn awaited(&self, packer: &RankPacker) -> Vec<usize> {
        let open = self.ranges[self.first..].iter().take(self.open);
        let open = open.map(|scheduled| packer.ends(&scheduled.range).1 as usize);
        let sent = self.slots.iter().zip(&self.sent_to).filter(|(slot, _)| !slot.is_free());
        open.chain(sent.map(|(_, to)| *to)).collect()
    }
}

/// The fragments that come to a rank.
pub struct NetworkReceiver {
    /// The ranges to receive, in the order of the schedule.
    ranges: Vec<ScheduledRange>,
    /// For each range, the one before it in its queue.
    predecessor: Vec<Option<usize>>,
    /// For each range, its ordinal: see [`ordinals`].
    ordinals: Vec<u64>,
    /// For each range, the queue it comes through: that of its sender and group of arrays.
    queue_of: Vec<usize>,
    queues: Vec<ReceiveQueue>,
    /// The ranges `first..end` are being received.
    first: usize,
    end: usize,
    /// How far they are received: a ring, indexed modulo its length.
    progress: Vec<ReceiveProgress>,
    slots: Vec<Slot>,
    /// For each slot, the receive posted with it.
    posted: Vec<Option<PostedReceive>>,
}

/// How far a range is received, in fragments.
#[derive(Clone, Default)]
struct ReceiveProgress {
    cursor: Cursor,
    /// All fragments of the range.
    fragments: usize,
    posted: usize,
    unpacked: usize,
}

/// Receives with one source and tag: a transport completes them in the order they were posted, so only the next one is tested.
#[derive(Clone, Copy, Default)]
struct ReceiveQueue {
    posted: usize,
    completed: usize,
}

/// A receive in flight, or a received fragment that waits for those before it.
#[derive(Clone, Copy)]
struct PostedReceive {
    /// Index of the range it was posted for; of the range that came, once it has.
    range: usize,
    /// Its number in the queue.
    number: usize,
    /// Once complete: the index of the fragment in its range, and its bytes.
    arrived: Option<(usize, usize)>,
}

impl NetworkReceiver {
    /// At most `max_ranges` ranges are received at a time.
    pub fn new(
        packer: &RankPacker,
        ranges: Vec<ScheduledRange>,
        max_ranges: usize,
        slots: Vec<Slot>,
    ) -> Self {
        let from = |range: &MessageRange| (packer.ends(range).0, packer.ends(range).2);
        let ordinals = ordinals(&ranges, from);
        let (mut latest, mut numbers) = (HashMap::new(), HashMap::new());
        let mut queue_of = |scheduled: &ScheduledRange| {
            let next = numbers.len();
            *numbers.entry(from(&scheduled.range)).or_insert(next)
        };
        let queue_of: Vec<usize> = ranges.iter().map(&mut queue_of).collect();
        let predecessor = queue_of.iter().enumerate().map(|(at, queue)| latest.insert(*queue, at));
        Self {
            predecessor: predecessor.collect(),
            ordinals,
            queues: vec![ReceiveQueue::default(); numbers.len()],
            queue_of,
            ranges,
            first: 0,
            end: 0,
            progress: vec![ReceiveProgress::default(); max_ranges],
            posted: vec![None; slots.len()],
            slots,
        }
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        (self.first, self.end) = (0, 0);
        self.queues.fill(ReceiveQueue::default());
    }

    /// The earliest step of which something is still to be received; none if all is received.
    pub fn step(&self) -> Option<u64> {
        self.ranges.get(self.first).map(|scheduled| scheduled.step)
    }

    /// True if everything is received.
    pub fn is_done(&self) -> bool {
        self.step().is_none()
    }

    /// Posts receives for ranges of steps up to `last`, as long as there are free slots, and unpacks a fragment that has
    /// arrived.
    pub fn advance(
        &mut self,
        packer: &mut RankPacker,
        (tag, me): (RunTag, usize),
        data: &mut Buffers<'_>,
        last: u64,
        counters: &mut RunCounters,
    ) -> Result<bool> {
        let window = self.progress.len();
        while let Some(scheduled) = self.ranges.get(self.end)
            && self.end - self.first < window
            && scheduled.step <= last
        {
            let (cursor, fragments) =
                (packer.open(data, &scheduled.range), packer.fragment_count(data, &scheduled.range).max(1));
            self.progress[self.end % window] = ReceiveProgress { cursor, fragments, posted: 0, unpacked: 0 };
            self.end += 1;
        }
        self.post(packer, tag)?;
        let moved = self.unpack(packer, (tag, me), data, counters)?;
        while self.first < self.end {
            let progress = &self.progress[self.first % window];
            if progress.unpacked < progress.fragments {
                break;
            }
            self.first += 1;
        }
        Ok(moved)
    }

    /// Posts receives: one for each range before a second one for any, earlier ranges first.
    fn post(&mut self, packer: &RankPacker, tag: RunTag) -> Result<()> {
        let window = self.progress.len();
        for max_posted in 1..=MAX_POSTED_PER_RANGE {
            for at in self.first..self.end {
                let ReceiveProgress { fragments, posted, unpacked, .. } = self.progress[at % window];
                if posted == fragments || posted - unpacked >= max_posted {
                    continue;
                }
                let all_posted = |earlier: usize| {
                    let progress = &self.progress[earlier % window];
                    earlier < self.first || progress.posted == progress.fragments
                };
                if !self.predecessor[at].is_none_or(all_posted) {
                    continue;
                }
                let Some(slot) = self.posted.iter().position(Option::is_none) else { return Ok(()) };
                self.receive(slot, at, packer, tag)?;
                self.progress[at % window].posted += 1;
            }
        }
        Ok(())
    }

    /// Posts a receive with a slot, for the next fragment that comes through the queue of a range.
    fn receive(&mut self, slot: usize, range: usize, packer: &RankPacker, tag: RunTag) -> Result<()> {
        let (from, _, group) = packer.ends(&self.ranges[range].range);
        self.slots[slot].receive(from as usize, tag.tag + group as u32)?;
        let queue = &mut self.queues[self.queue_of[range]];
        self.posted[slot] = Some(PostedReceive { range, number: queue.posted, arrived: None });
        queue.posted += 1;
        Ok(())
    }

    /// Unpacks a fragment that has arrived and is the next of its range, if there is one.
    fn unpack(
        &mut self,
        packer: &mut RankPacker,
        (tag, me): (RunTag, usize),
        data: &mut Buffers<'_>,
        counters: &mut RunCounters,
    ) -> Result<bool> {
        let window = self.progress.len();
        for slot in 0..self.posted.len() {
            let Some((at, fragment, bytes)) = self.poll(slot, packer, tag, me)? else { continue };
            if fragment != self.progress[at % window].unpacked {
                continue;
            }
            let began = Instant::now();
            let range = &self.ranges[at].range;
            let progress = &mut self.progress[at % window];
            let unpacked = packer.unpack(data, range, &mut progress.cursor, self.slots[slot].bytes());
            if unpacked != bytes {
                let from = rank_list([packer.ends(range).0 as usize]);
                return Err(Error::new(
                    ErrorKind::External,
                    format!(
                        "{from} sent {bytes} bytes where {unpacked} were expected: it runs another plan or another version; \
                         give all ranks the same"
                    ),
                ));
            }
            progress.unpacked += 1;
            self.posted[slot] = None;
            counters.unpack += began.elapsed();
            return Ok(true);
        }
        Ok(false)
    }

    /// Tests a slot. For a fragment that has arrived returns, by its envelope, the index of its range, its index in the
    /// range, and its bytes. A fragment of an engine or a run that is over is dropped and its slot posted again: fragments
    /// behind it then arrive in other slots than they were expected in, which their envelopes resolve.
    fn poll(
        &mut self,
        slot: usize,
        packer: &RankPacker,
        tag: RunTag,
        me: usize,
    ) -> Result<Option<(usize, usize, usize)>> {
        let Some(PostedReceive { range, number, arrived }) = self.posted[slot] else { return Ok(None) };
        if let Some((fragment, bytes)) = arrived {
            return Ok(Some((range, fragment, bytes)));
        }
        let queue = &mut self.queues[self.queue_of[range]];
        if number != queue.completed {
            return Ok(None);
        }
        let Some(bytes) = self.slots[slot].poll()? else { return Ok(None) };
        queue.completed += 1;
        let envelope = self.slots[slot].envelope();
        if envelope.engine != tag.engine || envelope.run < tag.run {
            self.receive(slot, range, packer, tag)?;
            return Ok(None);
        }
        let (from, _, group) = packer.ends(&self.ranges[range].range);
        let refused = |what: &str| Error::new(ErrorKind::External, format!("rank {from} {what}"));
        if envelope.run != tag.run {
            return Err(refused(
                "is in a later run than this rank: all ranks must run an engine equally often; the destination is only partly \
                 written",
            ));
        }
        if envelope.call != tag.call {
            return Err(call_mismatch(from as usize, me));
        }
        let (ordinal, fragment) =
            (envelope.sequence >> 32, (envelope.sequence & u64::from(u32::MAX)) as usize);
        let found = (self.first..self.end).find(|&at| {
            let (sender, _, of_group) = packer.ends(&self.ranges[at].range);
            (sender, of_group, self.ordinals[at]) == (from, group, ordinal)
        });
        let range =
            found.ok_or_else(|| refused("sent something that is not expected: it runs another plan"))?;
        self.posted[slot] = Some(PostedReceive { range, number, arrived: Some((fragment, bytes)) });
        Ok(Some((range, fragment, bytes)))
    }

    /// Cancels the posted receives. False if the transport may still write to one.
    pub fn cancel_receives(&mut self) -> bool {
        Slot::cancel_receives(self.slots.iter_mut())
    }

    /// Ranks from which something is still to be received.
    pub fn awaited(&self, packer: &RankPacker) -> Vec<usize> {
        let open = self.ranges[self.first..self.end].iter();
        open.map(|scheduled| packer.ends(&scheduled.range).0 as usize).collect()
    }
}
