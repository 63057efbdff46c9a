//! Packed messages in the order of a schedule: what travels between nodes.
//!
//! Parcels between ranks of one node may take the short way, through [`Boxes`]; all others are [letters](network).
//! While nothing can be sent or received, a rank does what it can do alone.

mod barriers;
pub(super) mod double_buffer;
#[allow(unsafe_code)]
mod in_node;
mod network;

use super::{MoverBackend, Progress, RunCounters, named};
use crate::ffi::comm::Comm;
use crate::node::Node;
use crate::owned::Envelope;
use crate::private_comm::{PrivateComm, Registration};
use barriers::Barriers;
use in_node::{BOXES, HEAD, NodeChannels};
use network::{AHEAD, NetworkReceiver, NetworkSender, RunTag, ScheduledRange};
use reshard::engine::{Buffers, MessagesOptions};
use reshard::rank::{Program, RankPacker, Step, messages};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::time::Duration;

/// A letter has at most so many bytes: few enough for MPI to send it without asking first (Open MPI between nodes: below
/// 64 KiB), enough to make nothing of what a message costs.
const LETTER: usize = 1 << 15;

/// The same where all ranks are on one node: there MPI copies out of the sender's memory, and asking is what costs.
const LETTER_ON_ONE_NODE: usize = 1 << 18;

/// Letters shorter than this cost more than they save.
const FEW_PAGES: usize = 1 << 13;

/// Letters of one rank under way to others.
const SENDS: usize = 16;

/// When a rank may go on to the next step.
enum Pace {
    /// As soon as it can: sending and receiving each on their own.
    Free,
    /// When it has received all of a step, and what it sent is being received.
    Lockstep,
    /// When all ranks have.
    Barriers(Barriers),
}

/// What a rank has room for.
pub struct MessageSizing {
    porter: RankPacker,
    program: Program,
    mixed: bool,
    counts: Counts,
    /// Bytes of a letter. All ranks must cut alike: the shortest of all ranks' counts.
    pub letter: usize,
}

/// How much there is to do at a time.
#[derive(Clone, Copy)]
struct Counts {
    /// The most parcels that go and come in a step.
    going: usize,
    coming: usize,
    /// Slots for letters that go and come.
    sends: usize,
    receives: usize,
    /// Lanes out of this rank, within the node.
    lanes: usize,
}

impl MessageSizing {
    /// For this rank's share of the memory, if it is limited. If it is `mixed`, parcels within a node do not take the network.
    /// Collective the first time for a communicator.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &PrivateComm,
        options: &MessagesOptions,
        mixed: bool,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let node = comm.node(limit)?;
        let one_node = node.largest() == comm.size();
        // Boxes stay in the caches, letters need not.
        let letter = if one_node && !mixed { LETTER_ON_ONE_NODE } else { LETTER };
        let made = messages(plan, comm.rank() as u64, options, letter);
        let node = mixed.then_some(node);
        let (porter, program) = made?;
        let (abroad, near) = sorted(&porter, &program, node);
        let most = |legs: &[ScheduledRange]| {
            legs.chunk_by(|a, b| a.step == b.step).map(<[ScheduledRange]>::len).max().unwrap_or(0)
        };
        let (going, coming) = (most(&abroad[0]), most(&abroad[1]));
        // A parcel of the next step may begin while the last is still coming.
        let coming = if coming < abroad[1].len() { coming + 1 } else { coming };
        let mut receivers: Vec<u64> = near[0].iter().map(|leg| porter.ends(&leg.parcel).1).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let sender = usize::from(going > 0);
        let mut counts =
            Counts { going, coming, sends: sender * SENDS, receives: coming * AHEAD, lanes: receivers.len() };
        let mut letter = porter.letter();
        if let Some(memory) = options.memory {
            // Each rank has its share: the plan's ranks together keep to the amount.
            let ranks = plan.ranks().len().max(1) as u64;
            let meets = if program.meets { Barriers::BYTES } else { 0 };
            let fixed = porter.scratch_bytes() + (counts.lanes * HEAD + meets) as u64;
            let mine = (memory / ranks).saturating_sub(fixed);
            let boxes = counts.lanes * BOXES;
            let slots = sender + coming + boxes;
            let least = slots as u64 * (porter.longest_elem() + Envelope::BYTES as u64);
            if mine < least || memory / ranks < fixed {
                return Err(Error::new(
                    ErrorKind::Memory,
                    format!(
                        "{memory} bytes were given for the messages of {ranks} ranks; this plan needs at least {} bytes, so much \
                         for each rank as the one that needs most: a head and one element for each of {slots} messages under way, \
                         and {fixed} beside them",
                        (least + fixed) * ranks,
                    ),
                ));
            }
            // Shorter letters first, down to a few pages; then fewer; then as short as it takes.
            let fit = |counts: &Counts| {
                let each = (mine / (counts.sends + counts.receives + boxes).max(1) as u64) as usize;
                each.saturating_sub(Envelope::BYTES)
            };
            if fit(&counts) < FEW_PAGES {
                (counts.sends, counts.receives) = (sender * 2, coming);
            }
            if fit(&counts) < FEW_PAGES {
                counts.sends = sender;
            }
            letter = letter.min(fit(&counts));
        }
        if abroad.iter().chain(&near).all(Vec::is_empty) {
            // Nothing is sent or received: any length will do.
            letter = usize::MAX;
        }
        Ok(Self { porter, program, mixed, counts, letter })
    }
}

/// What a porter sends and receives, in this order: between nodes, and within this one.
fn sorted(
    porter: &RankPacker,
    program: &Program,
    node: Option<&Node>,
) -> ([Vec<ScheduledRange>; 2], [Vec<ScheduledRange>; 2]) {
    let (mut abroad, mut near): ([Vec<ScheduledRange>; 2], [Vec<ScheduledRange>; 2]) = Default::default();
    let is_near = |rank: u64| node.is_some_and(|node| node.has(rank as usize));
    for Step { number, sends, receives } in &program.steps {
        for parcel in &program.sends[sends.clone()] {
            let legs = if is_near(porter.ends(parcel).1) { &mut near } else { &mut abroad };
            legs[0].push(ScheduledRange { step: *number, parcel: parcel.clone() });
        }
        for parcel in &program.receives[receives.clone()] {
            let legs = if is_near(porter.ends(parcel).0) { &mut near } else { &mut abroad };
            legs[1].push(ScheduledRange { step: *number, parcel: parcel.clone() });
        }
    }
    (abroad, near)
}

pub struct MessagesMover {
    porter: RankPacker,
    comm: Arc<PrivateComm>,
    marks: RunTag,
    outbox: NetworkSender,
    inbox: NetworkReceiver,
    boxes: Option<NodeChannels>,
    /// Bytes of letters, and of the boxes that are used.
    letter_bytes: u64,
    boxes_bytes: u64,
    pace: Pace,
    /// Steps of all ranks.
    steps: u64,
    tally: RunCounters,
}

impl MessagesMover {
    /// With the room this rank has, and letters of a length all agree on. Collective.
    pub fn new(
        registration: &Registration,
        MessageSizing { porter, program, mixed, counts, letter }: MessageSizing,
        groups: usize,
        lockstep: bool,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let comm = registration.comm();
        let letter = letter.min(porter.letter());
        let porter = porter.with_letters(letter);
        let node = mixed.then(|| comm.node(limit)).transpose()?;
        let (abroad, near) = sorted(&porter, &program, node);
        let letter = porter.letter();
        let boxes =
            node.map(|node| NodeChannels::new(comm, node, &porter, near, letter, limit)).transpose()?;
        let pace = match (program.meets, lockstep) {
            (true, _) => Pace::Barriers(Barriers::new()?),
            (false, true) => Pace::Lockstep,
            (false, false) => Pace::Free,
        };
        let [sends, receives] = abroad;
        let outbox = NetworkSender::new(&porter, sends, counts.going, counts.sends, letter, lockstep)?;
        let inbox = NetworkReceiver::new(&porter, receives, counts.coming, counts.receives, letter)?;
        let meets = if program.meets { Barriers::BYTES } else { 0 };
        let letter_bytes = ((counts.sends + counts.receives) * (letter + Envelope::BYTES) + meets) as u64;
        let boxes_bytes = (counts.lanes * (HEAD + BOXES * letter)) as u64;
        let tally = RunCounters::default();
        let comm = Arc::clone(comm);
        let marks = RunTag {
            tag: registration.tag(),
            barriers: registration.tag() + groups as u32,
            engine: registration.number(),
            ..RunTag::default()
        };
        Ok(Self {
            porter,
            comm,
            marks,
            outbox,
            inbox,
            boxes,
            letter_bytes,
            boxes_bytes,
            pace,
            steps: program.all_steps,
            tally,
        })
    }

    /// The last step anything may be done of.
    fn last_step(&mut self) -> Result<u64> {
        let at = |step: Option<u64>| step.unwrap_or(u64::MAX);
        let at = at(self.outbox.step()).min(at(self.inbox.step()));
        match &mut self.pace {
            Pace::Free => Ok(u64::MAX),
            Pace::Lockstep => Ok(at),
            // A rank without anything to do in a step, or in any, meets the others all the same.
            Pace::Barriers(barriers) => barriers.meet(&self.comm, self.marks, at.min(self.steps)),
        }
    }
}

impl MoverBackend for MessagesMover {
    fn begin(&mut self, data: &mut Buffers<'_>, call: u64) {
        self.porter.begin(data);
        self.outbox.begin();
        self.inbox.begin();
        if let Some(boxes) = &mut self.boxes {
            boxes.begin(call);
        }
        if let Pace::Barriers(barriers) = &mut self.pace {
            barriers.begin();
        }
        self.marks = RunTag { run: self.marks.run + 1, call, ..self.marks };
        self.tally = RunCounters { steps: self.steps, ..RunCounters::default() };
    }

    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let last = self.last_step()?;
        let Self { porter, comm, marks, outbox, inbox, boxes, tally, .. } = self;
        let comm: (&Comm, RunTag) = (comm, *marks);
        let mut moved = inbox.advance(porter, comm, data, last, tally)?
            || outbox.advance(porter, comm, data, last, tally)?;
        if !moved && let Some(boxes) = boxes {
            moved = boxes.advance(porter, data, tally)?;
        }
        moved = moved || porter.work_alone(data);
        let done = outbox.is_done() && inbox.is_done() && boxes.as_ref().is_none_or(NodeChannels::is_done);
        match &self.pace {
            // The last steps may be the others'.
            Pace::Barriers(barriers) if done && barriers.over() < self.steps => Ok(Progress::of(moved)),
            _ if done && !moved => Ok(Progress::Done),
            _ => Ok(Progress::of(moved)),
        }
    }

    fn abandon(&mut self, failed: bool) -> bool {
        let barriers = match &mut self.pace {
            Pace::Barriers(barriers) => barriers.abandon(),
            Pace::Free | Pace::Lockstep => true,
        };
        self.inbox.abandon() && barriers && !failed
    }

    fn late(&self) -> String {
        let near = self.boxes.as_ref().map_or_else(Vec::new, NodeChannels::late);
        let abroad = [self.outbox.late(&self.porter), self.inbox.late(&self.porter)].concat();
        let late = [abroad, near].concat();
        match &self.pace {
            Pace::Barriers(barriers) if late.is_empty() => named([barriers.waits_for(&self.comm)]),
            _ => named(late),
        }
    }

    fn tally(&self) -> RunCounters {
        self.tally
    }

    fn scratch_bytes(&self) -> u64 {
        self.letter_bytes + self.boxes_bytes + self.porter.scratch_bytes()
    }
}
