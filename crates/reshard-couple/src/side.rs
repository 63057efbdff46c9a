//! One process's side of one array of a coupling: what each rank that it hosts sends or receives in every step. Planned once, by
//! each rank alone, at a cost that does not depend on how many ranks the other job has.

use crate::frame::data_bytes;
use crate::slots::Buffer;
use reshard::engine::{BufferTable, Buffers, MessagesOptions};
use reshard::rank::{Cursor, MessageRange, RankPacker, messages};
use reshard::{Error, ErrorKind, Move, Plan, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Which job a side is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

/// What the ranks that a process hosts send, or receive.
pub struct Side {
    pub ranks: Vec<RankSide>,
}

/// What one rank sends, or receives.
pub struct RankSide {
    /// In its own job.
    pub rank: u64,
    /// In the order of the schedule.
    pub messages: Vec<Planned>,
    /// Bytes of its part of the array.
    pub part_bytes: u64,
    packer: RankPacker,
    table: BufferTable,
    /// Where a peer's message stands.
    places: HashMap<u64, usize>,
    /// Its number in the plan.
    number: u64,
}

/// A message of every step.
pub struct Planned {
    /// The rank of the other job.
    pub peer: u64,
    pub bytes: u64,
    ranges: Vec<MessageRange>,
}

impl Planned {
    /// Frames of at most so many bytes that it may be cut into: they end at whole rows and elements, so that two of them have more.
    pub fn max_frames(&self, bytes: u64) -> u64 {
        2 * self.bytes.div_ceil(bytes.max(1)) + self.ranges.len() as u64
    }
}

impl Side {
    /// Plans for the ranks that this process hosts. The ranks of the consumer follow the `producer_ranks` of the producer.
    pub fn new(moved: &Move, role: Role, hosted: Range<u64>, producer_ranks: u64) -> Result<Self> {
        let frame_bytes = data_bytes(moved.elem_bytes());
        let layout = if role == Role::Producer { moved.from() } else { moved.to() };
        let shift = if role == Role::Producer { 0 } else { producer_ranks };
        let there = |rank: &u64| layout.distribution().grid().contains(rank + shift);
        let one = |rank: u64| RankSide::new(moved, role, rank, producer_ranks, frame_bytes);
        Ok(Self { ranks: hosted.filter(there).map(one).collect::<Result<_>>()? })
    }

    /// Fails unless there is a part for each rank, as long as its layout says.
    pub fn check_parts(&self, lengths: impl ExactSizeIterator<Item = usize>) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Mismatch, message));
        if lengths.len() != self.ranks.len() {
            return wrong(format!(
                "{} parts were given; this process hosts {} ranks of the array: give the part of each, in the order of ranks",
                lengths.len(),
                self.ranks.len()
            ));
        }
        for (side, length) in self.ranks.iter().zip(lengths) {
            if (length as u64) < side.part_bytes {
                return wrong(format!(
                    "the part of rank {} has {length} bytes; its layout needs {}",
                    side.rank, side.part_bytes
                ));
            }
        }
        Ok(())
    }
}

impl RankSide {
    fn new(moved: &Move, role: Role, rank: u64, producer_ranks: u64, frame_bytes: usize) -> Result<Self> {
        let (number, layout) = match role {
            Role::Producer => (rank, moved.from()),
            Role::Consumer => (rank + producer_ranks, moved.to()),
        };
        let part_bytes = layout.span(number)? * moved.elem_bytes();
        let plan = Arc::new(Plan::for_rank(vec![moved.clone()], number)?.with_peers()?);
        let (packer, program) = messages(&plan, number, &MessagesOptions::default(), frame_bytes)?;
        let ranges = if role == Role::Producer { program.sends } else { program.receives };
        let mut messages: Vec<Planned> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for range in ranges {
            let (from, to, _) = packer.ends(&range);
            let peer = if role == Role::Producer { to - producer_ranks } else { from };
            let bytes = packer.bytes(&range);
            let place = *places.entry(peer).or_insert(messages.len());
            if place == messages.len() {
                messages.push(Planned { peer, bytes: 0, ranges: Vec::new() });
            }
            messages[place].bytes += bytes;
            messages[place].ranges.push(range);
        }
        let table = BufferTable::new(Arc::clone(&plan));
        Ok(Self { rank, messages, part_bytes, packer, table, places, number })
    }

    /// Packs all messages, a frame of each in turn, so that all who receive have something to do.
    pub fn pack(&mut self, part: &[u8], frames: &mut impl Frames) -> Result<()> {
        let Self { packer, table, messages, number, .. } = self;
        let most = packer.fragment_bytes() as u64;
        let mut data = table.fill();
        data.enter_own_bytes(0, *number, part, &mut [])?;
        packer.begin(&data);
        let mut open: Vec<Packed<'_>> =
            messages.iter().filter_map(|message| Packed::new(message, packer, &data)).collect();
        loop {
            open.retain_mut(|one| one.advance(packer, &data));
            if open.is_empty() {
                return Ok(());
            }
            let mut waits = true;
            for one in &mut open {
                let peer = one.message.peer;
                let Some(mut frame) = frames.memory(peer, one.left.min(most) as usize) else { continue };
                let range = &one.message.ranges[one.range];
                let bytes = packer.pack(&data, range, &mut one.cursor, frame.bytes_mut());
                frame.truncate(bytes);
                one.left -= bytes as u64;
                frames.packed(peer, frame);
                waits = false;
            }
            if waits {
                frames.wait();
            }
        }
    }

    /// Begins to unpack a step into this rank's part.
    pub fn unpack<'s>(&'s mut self, part: &'s mut [u8]) -> Result<Unpacking<'s>> {
        let Self { packer, table, messages, places, number, rank, .. } = self;
        let mut data = table.fill();
        data.enter_own_bytes(0, *number, &[], part)?;
        packer.begin(&data);
        let came = || messages.iter().map(|_| Came::default()).collect();
        let (checked, came) = (came(), came());
        Ok(Unpacking { rank: *rank, packer, messages, places, data, came, checked })
    }
}

/// Where frames are packed, and where they go then.
pub trait Frames {
    /// Memory for so many bytes for a rank of the other job; none if it is to be waited for.
    fn memory(&mut self, peer: u64, bytes: usize) -> Option<Buffer>;

    fn packed(&mut self, peer: u64, frame: Buffer);

    /// There was no memory for anybody.
    fn wait(&mut self);
}

/// How far a message is packed.
struct Packed<'m> {
    message: &'m Planned,
    range: usize,
    cursor: Cursor,
    /// Bytes of the range.
    left: u64,
}

impl<'m> Packed<'m> {
    fn new(message: &'m Planned, packer: &mut RankPacker, data: &Buffers<'_>) -> Option<Self> {
        let range = message.ranges.first()?;
        let one = Self { message, range: 0, cursor: packer.open(data, range), left: packer.bytes(range) };
        Some(one)
    }

    /// Goes to the next range that has something, if this one has no more. False if there is none.
    fn advance(&mut self, packer: &mut RankPacker, data: &Buffers<'_>) -> bool {
        while self.cursor.finished() {
            self.range += 1;
            let Some(range) = self.message.ranges.get(self.range) else { return false };
            (self.cursor, self.left) = (packer.open(data, range), packer.bytes(range));
        }
        true
    }
}

/// A step that is being unpacked, as frames come: those of a message in their order, messages in any.
pub struct Unpacking<'s> {
    pub rank: u64,
    packer: &'s mut RankPacker,
    messages: &'s [Planned],
    places: &'s HashMap<u64, usize>,
    data: Buffers<'s>,
    came: Vec<Came>,
    /// How far they are known to fit, before any is unpacked.
    checked: Vec<Came>,
}

/// How far a message has come.
#[derive(Default)]
struct Came {
    range: usize,
    cursor: Option<Cursor>,
}

impl Unpacking<'_> {
    /// The next frame of a message.
    pub fn frame(&mut self, peer: u64, frame: &[u8]) -> Result<()> {
        let Self { packer, messages, places, data, came, rank, .. } = self;
        let wrong = || self::wrong(peer, *rank, IN_PLACES);
        let place = *places.get(&peer).ok_or_else(wrong)?;
        let (range, mut cursor) =
            came[place].next(&messages[place], packer, data, frame.len()).ok_or_else(wrong)?;
        let used = packer.unpack(data, range, &mut cursor, frame);
        came[place].cursor = Some(cursor);
        if used == frame.len() { Ok(()) } else { Err(wrong()) }
    }

    /// The next frame of a message has so many bytes: fails if that is not what both agreed on. Nothing is written.
    pub fn check(&mut self, peer: u64, bytes: usize) -> Result<()> {
        let Self { packer, messages, places, data, checked, rank, .. } = self;
        let wrong = || self::wrong(peer, *rank, "");
        let place = *places.get(&peer).ok_or_else(wrong)?;
        let (range, mut cursor) =
            checked[place].next(&messages[place], packer, data, bytes).ok_or_else(wrong)?;
        let used = packer.skip(data, range, &mut cursor, bytes);
        checked[place].cursor = Some(cursor);
        if used == bytes { Ok(()) } else { Err(wrong()) }
    }
}

impl Came {
    /// Where the next frame of a message goes, if one of so many bytes may come.
    fn next<'m>(
        &mut self,
        message: &'m Planned,
        packer: &RankPacker,
        data: &Buffers<'_>,
        bytes: usize,
    ) -> Option<(&'m MessageRange, Cursor)> {
        if (bytes as u64) < packer.max_elem_bytes() {
            return None;
        }
        loop {
            let range = message.ranges.get(self.range)?;
            let cursor = self.cursor.take().unwrap_or_else(|| packer.open(data, range));
            if !cursor.finished() {
                return Some((range, cursor));
            }
            self.range += 1;
        }
    }
}

/// What is said of a part that was begun.
const IN_PLACES: &str = "; the part is written only in places";

fn wrong(peer: u64, rank: u64, parts: &str) -> Error {
    Error::new(
        ErrorKind::Failed,
        format!(
            "rank {peer} of the producer sent rank {rank} frames of other lengths than both agreed on{parts}"
        ),
    )
}
