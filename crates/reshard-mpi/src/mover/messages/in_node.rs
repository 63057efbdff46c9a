//! Letters between ranks of one node: packed into boxes that both can reach, and unpacked out of them.
//!
//! Each sender has a lane of two boxes for each of its receivers, so one is filled while the other is emptied: whose turn it
//! is say [`DoubleBuffer`]. No network is used, so no schedule is followed: these letters go whenever nothing else is to be done.

use super::super::{RunCounters, other_call};
use super::double_buffer::DoubleBuffer;
pub use super::double_buffer::{BOXES, HEAD};
use super::network::ScheduledRange;
use crate::node::Node;
use crate::private_comm::PrivateComm;
use crate::shm::{NodeMemory, PageKind};
use reshard::engine::Buffers;
use reshard::rank::{Cursor, Fragment, RankPacker};
use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

const LINE: usize = 64;

/// All lanes of a rank.
pub struct NodeChannels {
    neighbours: NodeMemory,
    out: Vec<NodeChannel>,
    into: Vec<NodeChannel>,
    /// Bytes of a box.
    letter: usize,
    /// This rank, in the whole job.
    rank: usize,
    /// What stands for what the caller gave for this run.
    call: u64,
}

/// What goes from one rank of the node to another.
struct NodeChannel {
    /// The rank of the other side, in the whole job.
    other: usize,
    turns: DoubleBuffer,
    parcels: Vec<Fragment>,
    /// Which of the parcels is under way, and how far it is.
    next: usize,
    cursor: Option<Cursor>,
}

impl NodeChannels {
    /// Collective. `sends` and `receives` stay within it.
    pub fn new(
        comm: &PrivateComm,
        node: &Node,
        porter: &RankPacker,
        [sends, receives]: [Vec<ScheduledRange>; 2],
        letter: usize,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let size = (HEAD + BOXES * letter).next_multiple_of(LINE);
        // A place for every rank of the node: one that is not used takes no memory.
        let bytes = size.checked_mul(node.ranks().len()).ok_or_else(|| {
            Error::new(ErrorKind::TooLarge, format!("{} boxes of {letter} bytes", node.ranks().len()))
        })?;
        let neighbours = NodeMemory::share(comm, bytes, PageKind::Ordinary, limit)?;
        let lanes = |legs: Vec<ScheduledRange>, outwards: bool| {
            let mut lanes: Vec<NodeChannel> = Vec::new();
            for leg in legs {
                let (from, to, _) = porter.ends(&leg.parcel);
                let other = if outwards { to } else { from } as usize;
                if let Some(lane) = lanes.iter_mut().find(|lane| lane.other == other) {
                    lane.parcels.push(leg.parcel);
                } else if let Some(receiver) = node.place(to as usize) {
                    let turns = DoubleBuffer::new(from as usize, receiver * size);
                    lanes.push(NodeChannel {
                        other,
                        turns,
                        parcels: vec![leg.parcel],
                        next: 0,
                        cursor: None,
                    });
                }
            }
            lanes
        };
        let (out, into) = (lanes(sends, true), lanes(receives, false));
        Ok(Self { neighbours, out, into, letter, rank: comm.rank(), call: 0 })
    }

    pub fn begin(&mut self, call: u64) {
        self.call = call;
        self.out.iter_mut().chain(&mut self.into).for_each(|lane| (lane.next, lane.cursor) = (0, None));
    }

    /// Everything is filled, and everything emptied.
    pub fn is_done(&self) -> bool {
        self.out.iter().chain(&self.into).all(NodeChannel::is_done)
    }

    /// Empties and fills one box of each lane, where there is one to empty or to fill.
    pub fn advance(
        &mut self,
        porter: &mut RankPacker,
        data: &mut Buffers<'_>,
        tally: &mut RunCounters,
    ) -> Result<bool> {
        let Self { neighbours, out, into, letter, rank, call } = self;
        let mut moved = false;
        for lane in into {
            let Some(parcel) = lane.parcel(porter, data) else { continue };
            match lane.turns.filled(neighbours) {
                None => continue,
                Some(given) if given != *call => return Err(other_call(lane.other, *rank)),
                Some(_) => {}
            }
            let began = Instant::now();
            let place = lane.place(neighbours, *letter);
            // SAFETY: the sender's number says that it has filled this box; it writes there again only when ours says that
            // it is emptied, which is below.
            let filled = unsafe { std::slice::from_raw_parts(place, *letter) };
            let mut cursor = lane.cursor.unwrap_or_default();
            porter.unpack(data, &parcel, &mut cursor, filled);
            lane.go_on(cursor);
            lane.turns.give_back(neighbours);
            tally.unpack += began.elapsed();
            moved = true;
        }
        for lane in out {
            let Some(parcel) = lane.parcel(porter, data) else { continue };
            if !lane.turns.is_free(neighbours) {
                continue;
            }
            let began = Instant::now();
            let place = lane.place(neighbours, *letter);
            // SAFETY: a box in our own segment. The receiver has emptied it (its number says so) and reads it again only when
            // ours says that it is filled, which is below.
            let room = unsafe { std::slice::from_raw_parts_mut(place, *letter) };
            let mut cursor = lane.cursor.unwrap_or_default();
            porter.pack(data, &parcel, &mut cursor, room);
            tally.messages += u64::from(cursor.finished());
            lane.go_on(cursor);
            lane.turns.pass(neighbours, *call);
            tally.pack += began.elapsed();
            moved = true;
        }
        Ok(moved)
    }

    /// Ranks that are waited for.
    pub fn late(&self) -> Vec<usize> {
        let lanes = self.out.iter().chain(&self.into);
        lanes.filter(|lane| !lane.is_done()).map(|lane| lane.other).collect()
    }
}

impl NodeChannel {
    fn is_done(&self) -> bool {
        self.next == self.parcels.len()
    }

    /// The parcel under way, opened if it is new; nothing if all are through. One of which nothing travels goes in an empty
    /// box, which tells how its sender was called.
    fn parcel(&mut self, porter: &RankPacker, data: &Buffers<'_>) -> Option<Fragment> {
        let parcel = self.parcels.get(self.next)?;
        self.cursor.get_or_insert_with(|| porter.open(data, parcel));
        Some(parcel.clone())
    }

    /// The box that is filled or emptied next.
    fn place(&self, neighbours: &NodeMemory, letter: usize) -> *mut u8 {
        let DoubleBuffer { sender, at, .. } = self.turns;
        neighbours.place(sender, at + HEAD + self.turns.number() * letter, letter)
    }

    /// A box is filled, or emptied.
    fn go_on(&mut self, cursor: Cursor) {
        self.cursor = Some(cursor);
        if cursor.finished() {
            (self.next, self.cursor) = (self.next + 1, None);
        }
    }
}
