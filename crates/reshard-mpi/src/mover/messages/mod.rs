//! Packed messages in the order of a schedule: how data travels between nodes.
//!
//! A step of the schedule sends ranges of messages, and a range travels in fragments of at most a slot's length: through
//! [the network](network), or, between ranks of one node, through [buffers that both map](in_node). While nothing can be sent or
//! received, a rank copies what it keeps.

mod barriers;
pub(super) mod double_buffer;
#[allow(unsafe_code)]
mod in_node;
mod network;

use super::{MoverBackend, Progress, RunCounters, rank_list};
use crate::communicator::{Communicator, Registration};
use crate::node::Node;
use crate::transport::{Envelope, Slot};
use barriers::Barriers;
use in_node::{BUFFERS_PER_PAIR, HEADER_BYTES, NodeChannels};
use network::{MAX_POSTED_PER_RANGE, NetworkReceiver, NetworkSender, RunTag, ScheduledRange};
use reshard::engine::{Buffers, MessagesOptions};
use reshard::rank::{Program, RankPacker, Step, messages};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Duration;

/// The longest fragment between nodes: short enough for MPI's eager protocol (Open MPI between nodes: below 64 KiB), long
/// enough to make the cost of a message small.
const MAX_FRAGMENT_BYTES: usize = 1 << 15;

/// The longest fragment where all ranks are on one node: there MPI copies out of the sender's memory, and the rendezvous
/// is what costs.
const MAX_FRAGMENT_BYTES_ON_ONE_NODE: usize = 1 << 18;

/// Fragments shorter than this cost more time than the memory they save is worth.
const MIN_EFFICIENT_FRAGMENT_BYTES: usize = 1 << 13;

/// Fragments that one rank may have in flight to others.
const MAX_SENDS_IN_FLIGHT: usize = 16;

/// When a rank may go on to the next step of the schedule.
enum Pace {
    /// As soon as it can: sends and receives advance independently.
    Free,
    /// When it has received all of a step, and its receivers have begun to receive what it sent.
    Lockstep,
    /// When all ranks have finished the step.
    Barriers(Barriers),
}

/// What a rank sends and receives, and the sizes of its slots: what is decided before all ranks agree on the fragment size.
pub struct MessageSizing {
    packer: RankPacker,
    program: Program,
    mixed: bool,
    counts: SlotCounts,
    /// The longest fragment this rank has memory for, in bytes. All ranks must use the smallest of all ranks' values.
    pub fragment_bytes: usize,
}

/// How many ranges, slots and channels a rank has at a time.
#[derive(Clone, Copy)]
struct SlotCounts {
    /// The most ranges sent in a step.
    sent_ranges: usize,
    /// The most ranges received at a time.
    received_ranges: usize,
    /// Slots for fragments to send.
    send_slots: usize,
    /// Slots for fragments to receive.
    receive_slots: usize,
    /// Channels out of this rank, within the node.
    channels: usize,
}

impl MessageSizing {
    /// Sizes the slots for this rank's share of the memory, if that is limited. If `mixed`, ranges within a node do not
    /// take the network. Collective the first time for a communicator.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &Communicator,
        options: &MessagesOptions,
        mixed: bool,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let node = comm.node(limit)?;
        let one_node = node.largest() == comm.size();
        // The buffers within a node should stay in the caches, slots of the transport need not.
        let max_bytes = if one_node && !mixed { MAX_FRAGMENT_BYTES_ON_ONE_NODE } else { MAX_FRAGMENT_BYTES };
        let made = messages(plan, comm.rank() as u64, options, max_bytes);
        let node = mixed.then_some(node);
        let (packer, program) = made?;
        let (network, in_node) = split_by_node(&packer, &program, node);
        let most = |ranges: &[ScheduledRange]| {
            ranges.chunk_by(|a, b| a.step == b.step).map(<[ScheduledRange]>::len).max().unwrap_or(0)
        };
        let (sent_ranges, received_ranges) = (most(&network[0]), most(&network[1]));
        // A range of the next step may begin while the last one of this step is still coming.
        let received_ranges =
            if received_ranges < network[1].len() { received_ranges + 1 } else { received_ranges };
        let mut receivers: Vec<u64> =
            in_node[0].iter().map(|scheduled| packer.ends(&scheduled.range).1).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let sender = usize::from(sent_ranges > 0);
        let mut counts = SlotCounts {
            sent_ranges,
            received_ranges,
            send_slots: sender * MAX_SENDS_IN_FLIGHT,
            receive_slots: received_ranges * MAX_POSTED_PER_RANGE,
            channels: receivers.len(),
        };
        let mut fragment_bytes = packer.fragment_bytes();
        if let Some(memory) = options.memory {
            // Each rank has an equal share: so the plan's ranks together stay within the limit.
            let ranks = plan.rank_count().max(1);
            let barriers = if program.barriers { Barriers::BYTES } else { 0 };
            let fixed = packer.scratch_bytes() + (counts.channels * HEADER_BYTES + barriers) as u64;
            let mine = (memory / ranks).saturating_sub(fixed);
            let buffers = counts.channels * BUFFERS_PER_PAIR;
            let slots = sender + received_ranges + buffers;
            let least = slots as u64 * (packer.max_elem_bytes() + Envelope::BYTES as u64);
            if mine < least || memory / ranks < fixed {
                return Err(Error::new(
                    ErrorKind::Memory,
                    format!(
                        "{memory} bytes were given for the messages of {ranks} ranks; this plan needs at least {} bytes, so much \
                         for each rank as the one that needs most: an envelope and one element for each of {slots} messages in flight, \
                         and {fixed} beside them",
                        (least + fixed) * ranks,
                    ),
                ));
            }
            // First shorter fragments, down to a few pages; then fewer; then as short as it takes.
            let fit = |counts: &SlotCounts| {
                let slots = counts.send_slots + counts.receive_slots + buffers;
                let each = (mine / slots.max(1) as u64) as usize;
                each.saturating_sub(Envelope::BYTES)
            };
            if fit(&counts) < MIN_EFFICIENT_FRAGMENT_BYTES {
                (counts.send_slots, counts.receive_slots) = (sender * 2, received_ranges);
            }
            if fit(&counts) < MIN_EFFICIENT_FRAGMENT_BYTES {
                counts.send_slots = sender;
            }
            fragment_bytes = fragment_bytes.min(fit(&counts));
        }
        if network.iter().chain(&in_node).all(Vec::is_empty) {
            // Nothing is sent or received: any length will do.
            fragment_bytes = usize::MAX;
        }
        Ok(Self { packer, program, mixed, counts, fragment_bytes })
    }
}

/// The ranges a rank sends and receives, in this order: through the network, and within its node.
fn split_by_node(
    packer: &RankPacker,
    program: &Program,
    node: Option<&Node>,
) -> ([Vec<ScheduledRange>; 2], [Vec<ScheduledRange>; 2]) {
    let (mut network, mut in_node): ([Vec<ScheduledRange>; 2], [Vec<ScheduledRange>; 2]) = Default::default();
    let is_near = |rank: u64| node.is_some_and(|node| node.has(rank as usize));
    for Step { number, sends, receives } in &program.steps {
        for range in &program.sends[sends.clone()] {
            let ranges = if is_near(packer.ends(range).1) { &mut in_node } else { &mut network };
            ranges[0].push(ScheduledRange { step: *number, range: range.clone() });
        }
        for range in &program.receives[receives.clone()] {
            let ranges = if is_near(packer.ends(range).0) { &mut in_node } else { &mut network };
            ranges[1].push(ScheduledRange { step: *number, range: range.clone() });
        }
    }
    (network, in_node)
}

/// The movers `messages`, `mixed` and `lockstep`.
pub struct MessagesMover {
    packer: RankPacker,
    comm: Arc<Communicator>,
    tag: RunTag,
    sender: NetworkSender,
    receiver: NetworkReceiver,
    /// The channels within the node; none unless `mixed`.
    channels: Option<NodeChannels>,
    /// Bytes of all slots.
    slot_bytes: u64,
    /// Bytes of the buffers within the node that are used.
    channel_bytes: u64,
    pace: Pace,
    /// Steps of the whole schedule.
    steps: u64,
    counters: RunCounters,
}

impl MessagesMover {
    /// Allocates the slots and shares the buffers within the node. All ranks must give the same `fragment_bytes`.
    /// Collective.
    pub fn new(
        registration: &Registration,
        MessageSizing { packer, program, mixed, counts, fragment_bytes }: MessageSizing,
        groups: usize,
        lockstep: bool,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let comm = registration.comm();
        let fragment_bytes = fragment_bytes.min(packer.fragment_bytes());
        let packer = packer.with_fragment_bytes(fragment_bytes);
        let node = mixed.then(|| comm.node(limit)).transpose()?;
        let (network, in_node) = split_by_node(&packer, &program, node);
        let fragment_bytes = packer.fragment_bytes();
        let channels = node
            .map(|node| NodeChannels::new(comm, node, &packer, in_node, fragment_bytes, limit))
            .transpose()?;
        let pace = match (program.barriers, lockstep) {
            (true, _) => Pace::Barriers(Barriers::new(comm.transport())?),
            (false, true) => Pace::Lockstep,
            (false, false) => Pace::Free,
        };
        let [sends, receives] = network;
        let SlotCounts { sent_ranges, received_ranges, send_slots, receive_slots, .. } = counts;
        let slots = |count| -> Result<Vec<Slot>> {
            (0..count).map(|_| Slot::new(comm.transport(), fragment_bytes)).collect()
        };
        let sender = NetworkSender::new(&packer, sends, sent_ranges, slots(send_slots)?, lockstep);
        let receiver = NetworkReceiver::new(&packer, receives, received_ranges, slots(receive_slots)?);
        let barriers = if program.barriers { Barriers::BYTES } else { 0 };
        let slot_bytes =
            ((send_slots + receive_slots) * (fragment_bytes + Envelope::BYTES) + barriers) as u64;
        let channel_bytes = (counts.channels * (HEADER_BYTES + BUFFERS_PER_PAIR * fragment_bytes)) as u64;
        let comm = Arc::clone(comm);
        let tag = RunTag {
            tag: registration.tag(),
            barrier_tag: registration.tag() + groups as u32,
            engine: registration.number(),
            ..RunTag::default()
        };
        Ok(Self {
            packer,
            comm,
            tag,
            sender,
            receiver,
            channels,
            slot_bytes,
            channel_bytes,
            pace,
            steps: program.all_steps,
            counters: RunCounters::default(),
        })
    }

    /// The last step of which anything may be sent or received now.
    fn last_step(&mut self) -> Result<u64> {
        let at = |step: Option<u64>| step.unwrap_or(u64::MAX);
        let at = at(self.sender.step()).min(at(self.receiver.step()));
        match &mut self.pace {
            Pace::Free => Ok(u64::MAX),
            Pace::Lockstep => Ok(at),
            // A rank with nothing to do in a step, or in any, takes part in the barriers all the same.
            Pace::Barriers(barriers) => barriers.advance(&self.comm, self.tag, at.min(self.steps)),
        }
    }
}

impl MoverBackend for MessagesMover {
    fn begin(&mut self, data: &mut Buffers<'_>, call: u64) {
        self.packer.begin(data);
        self.sender.begin();
        self.receiver.begin();
        if let Some(channels) = &mut self.channels {
            channels.begin(call);
        }
        if let Pace::Barriers(barriers) = &mut self.pace {
            barriers.begin();
        }
        self.tag = RunTag { run: self.tag.run + 1, call, ..self.tag };
        self.counters = RunCounters { steps: self.steps, ..RunCounters::default() };
    }

    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let last = self.last_step()?;
        let Self { packer, comm, tag, sender, receiver, channels, counters, .. } = self;
        let mut moved = receiver.advance(packer, (*tag, comm.rank()), data, last, counters)?
            || sender.advance(packer, *tag, data, last, counters)?;
        if !moved && let Some(channels) = channels {
            moved = channels.advance(packer, data, counters)?;
        }
        moved = moved || packer.copy_local(data);
        let done =
            sender.is_done() && receiver.is_done() && channels.as_ref().is_none_or(NodeChannels::is_done);
        match &self.pace {
            // The last steps may be those of other ranks.
            Pace::Barriers(barriers) if done && barriers.passed() < self.steps => Ok(Progress::of(moved)),
            _ if done && !moved => Ok(Progress::Done),
            _ => Ok(Progress::of(moved)),
        }
    }

    fn shut_down(&mut self, failed: bool) -> bool {
        let barriers = match &mut self.pace {
            Pace::Barriers(barriers) => barriers.cancel_receives(),
            Pace::Free | Pace::Lockstep => true,
        };
        self.receiver.cancel_receives() && barriers && !failed
    }

    fn awaited(&self) -> String {
        let in_node = self.channels.as_ref().map_or_else(Vec::new, NodeChannels::awaited);
        let late = [self.sender.awaited(&self.packer), self.receiver.awaited(&self.packer), in_node].concat();
        match &self.pace {
            Pace::Barriers(barriers) if late.is_empty() => rank_list([barriers.waits_for(&self.comm)]),
            _ => rank_list(late),
        }
    }

    fn counters(&self) -> RunCounters {
        self.counters
    }

    fn scratch_bytes(&self) -> u64 {
        self.slot_bytes + self.channel_bytes + self.packer.scratch_bytes()
    }
}
