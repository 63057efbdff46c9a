//! Fragments between ranks of one node: packed into buffers that both map, and unpacked from them.
//!
//! Each sender has a [`DoubleBuffer`] for each of its receivers, so one buffer is filled while the other is emptied. No
//! network is used, so no schedule is followed: these fragments go whenever nothing else can be done.

use super::super::{RunCounters, call_mismatch};
use super::double_buffer::DoubleBuffer;
pub use super::double_buffer::{BUFFERS_PER_PAIR, HEADER_BYTES};
use super::network::ScheduledRange;
use crate::communicator::Communicator;
use crate::node::Node;
use crate::shm::{NodeMemory, PageKind};
use reshard::engine::Buffers;
use reshard::rank::{Cursor, MessageRange, RankPacker};
use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Bytes of a cache line.
const LINE: usize = 64;

/// All channels of a rank to and from other ranks of its node.
pub struct NodeChannels {
    memory: NodeMemory,
    out: Vec<NodeChannel>,
    into: Vec<NodeChannel>,
    /// Bytes of a buffer.
    fragment_bytes: usize,
    /// This rank's number in the whole job.
    rank: usize,
    /// Fingerprint of the current call.
    call: u64,
}

/// What one rank of the node sends another in a run, and the double buffer it goes through.
struct NodeChannel {
    /// The peer's rank in the whole job.
    peer: usize,
    queue: DoubleBuffer,
    /// The ranges of messages that are sent, in order.
    ranges: Vec<MessageRange>,
    /// Index of the current range.
    next: usize,
    /// How far the current range is packed or unpacked.
    cursor: Option<Cursor>,
}

impl NodeChannels {
    /// Shares the double buffers of the node. `sends` and `receives` are the ranges that stay within the node. Collective.
    pub fn new(
        comm: &Communicator,
        node: &Node,
        packer: &RankPacker,
        [sends, receives]: [Vec<ScheduledRange>; 2],
        fragment_bytes: usize,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let size = (HEADER_BYTES + BUFFERS_PER_PAIR * fragment_bytes).next_multiple_of(LINE);
        // Address space for every rank of the node: buffers that are not used take no memory.
        let bytes = size.checked_mul(node.ranks().len()).ok_or_else(|| {
            Error::new(
                ErrorKind::TooLarge,
                format!("{} buffers of {fragment_bytes} bytes", node.ranks().len()),
            )
        })?;
        let memory = NodeMemory::share(comm, bytes, PageKind::Ordinary, limit)?;
        let channels = |scheduled: Vec<ScheduledRange>, outwards: bool| {
            let mut channels: Vec<NodeChannel> = Vec::new();
            for ScheduledRange { range, .. } in scheduled {
                let (from, to, _) = packer.ends(&range);
                let peer = if outwards { to } else { from } as usize;
                if let Some(channel) = channels.iter_mut().find(|channel| channel.peer == peer) {
                    channel.ranges.push(range);
                } else if let Some(receiver) = node.place(to as usize) {
                    let queue = DoubleBuffer::new(from as usize, receiver * size);
                    channels.push(NodeChannel { peer, queue, ranges: vec![range], next: 0, cursor: None });
                }
            }
            channels
        };
        let (out, into) = (channels(sends, true), channels(receives, false));
        Ok(Self { memory, out, into, fragment_bytes, rank: comm.rank(), call: 0 })
    }

    /// Begins a run.
    pub fn begin(&mut self, call: u64) {
        self.call = call;
        let channels = self.out.iter_mut().chain(&mut self.into);
        channels.for_each(|channel| (channel.next, channel.cursor) = (0, None));
    }

    /// True if everything is sent and received.
    pub fn is_done(&self) -> bool {
        self.out.iter().chain(&self.into).all(NodeChannel::is_done)
    }

    /// Empties and fills at most one buffer of each channel. Returns whether any was.
    pub fn advance(
        &mut self,
        packer: &mut RankPacker,
        data: &mut Buffers<'_>,
        counters: &mut RunCounters,
    ) -> Result<bool> {
        let Self { memory, out, into, fragment_bytes, rank, call } = self;
        let mut moved = false;
        for channel in into {
            let Some(range) = channel.range(packer, data) else { continue };
            match channel.queue.filled(memory) {
                None => continue,
                Some(given) if given != *call => return Err(call_mismatch(channel.peer, *rank)),
                Some(_) => {}
            }
            let began = Instant::now();
            let buffer = channel.buffer(memory, *fragment_bytes);
            // SAFETY: the sender's counter says that it has filled this buffer; it writes there again only when ours says
            // that it is emptied, which is below.
            let filled = unsafe { std::slice::from_raw_parts(buffer, *fragment_bytes) };
            let mut cursor = channel.cursor.unwrap_or_default();
            packer.unpack(data, &range, &mut cursor, filled);
            channel.set_cursor(cursor);
            channel.queue.pop(memory);
            counters.unpack += began.elapsed();
            moved = true;
        }
        for channel in out {
            let Some(range) = channel.range(packer, data) else { continue };
            if !channel.queue.is_free(memory) {
                continue;
            }
            let began = Instant::now();
            let buffer = channel.buffer(memory, *fragment_bytes);
            // SAFETY: a buffer in our own segment. The receiver has emptied it (its counter says so) and reads it again
            // only when ours says that it is filled, which is below.
            let free = unsafe { std::slice::from_raw_parts_mut(buffer, *fragment_bytes) };
            let mut cursor = channel.cursor.unwrap_or_default();
            packer.pack(data, &range, &mut cursor, free);
            counters.messages += u64::from(cursor.finished());
            channel.set_cursor(cursor);
            channel.queue.push(memory, *call);
            counters.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Ranks that the run waits for.
    pub fn awaited(&self) -> Vec<usize> {
        let channels = self.out.iter().chain(&self.into);
        channels.filter(|channel| !channel.is_done()).map(|channel| channel.peer).collect()
    }
}

impl NodeChannel {
    fn is_done(&self) -> bool {
        self.next == self.ranges.len()
    }

    /// The current range, with a cursor if it is new; none if all are sent or received. A range of which nothing travels
    /// goes as an empty buffer, which carries its sender's call.
    fn range(&mut self, packer: &RankPacker, data: &Buffers<'_>) -> Option<MessageRange> {
        let range = self.ranges.get(self.next)?;
        self.cursor.get_or_insert_with(|| packer.open(data, range));
        Some(range.clone())
    }

    /// The address of the buffer that is filled or emptied next.
    fn buffer(&self, memory: &NodeMemory, fragment_bytes: usize) -> *mut u8 {
        let DoubleBuffer { sender, at, .. } = self.queue;
        memory.place(sender, at + HEADER_BYTES + self.queue.number() * fragment_bytes, fragment_bytes)
    }

    /// Records how far the current range is, after a buffer was filled or emptied.
    fn set_cursor(&mut self, cursor: Cursor) {
        self.cursor = Some(cursor);
        if cursor.finished() {
            (self.next, self.cursor) = (self.next + 1, None);
        }
    }
}
