//! Boxes that wander: how a box gets from one rank of a node to another, and which one.
//!
//! A lane leads from a sender to a receiver. It has places for some boxes, used in turn, and each place says which box stands
//! there: any one that is large enough, in anybody's segment. The sender, when it is its turn, may put another box there and
//! pack into that; the receiver, when it has emptied it, may put another one back. So each rank has some boxes at hand, on a
//! [`WarmBuffers`]: it packs into the one it emptied last, whose lines its own processor has, and gives back one that it has not
//! touched for long. If every box stayed on its lane, a sender would have to take each line back from the processor that
//! read it last.

use super::super::word::{OrderingSite, SharedMemory, Word};
use crate::shm::NodeMemory;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// A cache line, so that nobody's counter is another's neighbour.
pub const LINE: usize = 64;

const WORD: usize = size_of::<u64>();

/// A box: whose segment it lies in, where, and how many bytes it has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferHandle {
    pub rank: usize,
    pub at: usize,
    pub room: usize,
}

impl BufferHandle {
    const WORDS: usize = 3;

    pub fn first(&self, neighbours: &NodeMemory) -> *mut u8 {
        neighbours.place(self.rank, self.at, self.room)
    }
}

/// The most places of a lane.
pub const MANY: usize = 8;

/// Where a rank writes down how far it has emptied the boxes of all its lanes.
const EMPTIED: usize = 0;

/// The way from one rank to another. Its head, in the sender's segment, has a counter of the boxes filled, and the places: which
/// box stands there, and the number of the call in which it was filled.
#[derive(Clone, Copy)]
pub struct BufferRing {
    /// Whose segment the head lies in, and where.
    pub sender: usize,
    pub at: usize,
    /// The other rank: for the sender the receiver, for the receiver the sender.
    pub other: usize,
    /// Bytes of the smallest box that will do.
    pub room: usize,
    /// How many places there are.
    pub boxes: usize,
}

/// Words of a place: a spot, and a call.
const PLACE: usize = BufferHandle::WORDS + 1;
const CALL: usize = BufferHandle::WORDS;

impl BufferRing {
    /// Bytes of the head of a lane with so many places.
    pub fn head(boxes: usize) -> usize {
        (WORD + boxes * PLACE * WORD).next_multiple_of(LINE)
    }

    /// Puts a box to a place, at first.
    pub fn furnish<M: SharedMemory>(&self, memory: &M, place: u64, spot: BufferHandle) {
        self.put(memory, place, spot);
    }

    /// Which place is used after so many others.
    fn number(&self, used: u64) -> usize {
        (used % self.boxes as u64) as usize
    }

    /// Boxes filled, in all runs.
    fn filled<'m, M: SharedMemory>(&self, memory: &'m M) -> &'m M::Word {
        memory.word(self.sender, self.at)
    }

    /// The box at the place used after so many others. Whose turn it is, is told by counters, with everything before them.
    fn look<M: SharedMemory>(&self, memory: &M, used: u64) -> BufferHandle {
        let word = |number| self.word(memory, used, number).load(Ordering::Relaxed) as usize;
        BufferHandle { rank: word(0), at: word(1), room: word(2) }
    }

    /// Puts a box there.
    fn put<M: SharedMemory>(&self, memory: &M, used: u64, spot: BufferHandle) {
        for (number, word) in [spot.rank, spot.at, spot.room].into_iter().enumerate() {
            self.word(memory, used, number).store(word as u64, Ordering::Relaxed);
        }
    }

    fn word<'m, M: SharedMemory>(&self, memory: &'m M, used: u64, number: usize) -> &'m M::Word {
        let place = self.at + WORD + self.number(used) * PLACE * WORD;
        memory.word(self.sender, place + number * WORD)
    }
}

/// The sender's side of a lane.
pub struct Producer {
    pub lane: BufferRing,
    /// Boxes filled, in all runs.
    filled: u64,
    /// How far the receiver must be for a box to be free.
    held: [u64; MANY],
}

impl Producer {
    pub fn new(lane: BufferRing) -> Self {
        Self { lane, filled: 0, held: [0; MANY] }
    }

    /// Whether there is a box to fill: the receiver has emptied it.
    pub fn is_free<M: SharedMemory>(&self, memory: &M) -> bool {
        let emptied = memory.word(self.lane.other, EMPTIED).load(OrderingSite::LaneSeesEmptied.order());
        emptied >= self.held[self.lane.number(self.filled)]
    }

    /// The box to fill, if there is one. It stands in its place now.
    pub fn choose<M: SharedMemory>(&self, memory: &M, shelf: &mut WarmBuffers) -> BufferHandle {
        let spot = shelf.hand_out(self.lane.look(memory, self.filled), self.lane.room);
        self.lane.put(memory, self.filled, spot);
        spot
    }

    /// It is filled, in a call with this number, and free again when the receiver has told so much.
    pub fn pass<M: SharedMemory>(&mut self, memory: &M, call: u64, until: u64) {
        self.lane.word(memory, self.filled, CALL).store(call, Ordering::Relaxed);
        self.held[self.lane.number(self.filled)] = until;
        self.filled += 1;
        self.lane.filled(memory).store(self.filled, OrderingSite::LaneFills.order());
    }
}

/// The receiver's side of a lane.
pub struct Consumer {
    pub lane: BufferRing,
    /// Boxes emptied, in all runs.
    emptied: u64,
}

impl Consumer {
    pub fn new(lane: BufferRing) -> Self {
        Self { lane, emptied: 0 }
    }

    /// Whether there is a box to empty.
    pub fn is_filled<M: SharedMemory>(&self, memory: &M) -> bool {
        self.lane.filled(memory).load(OrderingSite::LaneSeesFilled.order()) > self.emptied
    }

    /// That box.
    pub fn look<M: SharedMemory>(&self, memory: &M) -> BufferHandle {
        self.lane.look(memory, self.emptied)
    }

    /// The number of the call it was filled in.
    pub fn call<M: SharedMemory>(&self, memory: &M) -> u64 {
        self.lane.word(memory, self.emptied, CALL).load(Ordering::Relaxed)
    }

    /// It is emptied. The sender is told by [`tell_emptied`].
    pub fn give_back<M: SharedMemory>(&mut self, memory: &M, shelf: &mut WarmBuffers) {
        self.lane.put(memory, self.emptied, shelf.take_in(self.look(memory), self.lane.room));
        self.emptied += 1;
    }
}

/// This rank has given back boxes, and tells all senders how far it is.
pub fn tell_emptied<M: SharedMemory>(memory: &M, told: u64) {
    memory.word(memory.rank(), EMPTIED).store(told, OrderingSite::LaneEmpties.order());
}

/// The boxes a rank has at hand, always as many. The one it emptied last is the last.
pub struct WarmBuffers {
    spots: VecDeque<BufferHandle>,
}

impl WarmBuffers {
    pub fn new(spots: impl ExactSizeIterator<Item = BufferHandle>) -> Self {
        // No more are ever there at once.
        Self { spots: spots.collect() }
    }

    /// For a box that came back, one with at least so much room to pack into: the one emptied last.
    pub fn hand_out(&mut self, back: BufferHandle, room: usize) -> BufferHandle {
        let last = self.spots.iter().rposition(|spot| spot.room >= room);
        let Some(last) = last.and_then(|last| self.spots.remove(last)) else { return back };
        self.spots.push_front(back);
        last
    }

    /// For a box that was emptied, one with at least so much room to give back: the one not touched for longest.
    pub fn take_in(&mut self, emptied: BufferHandle, room: usize) -> BufferHandle {
        let first = self.spots.iter().position(|spot| spot.room >= room);
        let Some(first) = first.and_then(|first| self.spots.remove(first)) else { return emptied };
        self.spots.push_back(emptied);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(at: usize, room: usize) -> BufferHandle {
        BufferHandle { rank: 0, at, room }
    }

    #[test]
    fn what_was_emptied_last_is_filled_next() {
        let mut shelf = WarmBuffers::new([spot(0, 8), spot(1, 8)].into_iter());
        assert_eq!(shelf.take_in(spot(2, 8), 8), spot(0, 8), "not touched for longest");
        assert_eq!(shelf.take_in(spot(3, 8), 8), spot(1, 8));
        assert_eq!(shelf.hand_out(spot(4, 8), 8), spot(3, 8), "emptied last");
        assert_eq!(shelf.hand_out(spot(5, 8), 8), spot(2, 8));
        assert_eq!(shelf.take_in(spot(6, 8), 8), spot(5, 8), "came back, and nobody touched it");
    }

    #[test]
    fn no_box_is_too_small_for_its_lane() {
        let mut shelf = WarmBuffers::new([spot(0, 8), spot(1, 16), spot(2, 8)].into_iter());
        assert_eq!(shelf.hand_out(spot(3, 32), 16), spot(1, 16));
        assert_eq!(shelf.hand_out(spot(4, 64), 64), spot(4, 64), "none at hand is large enough");
        assert_eq!(shelf.take_in(spot(5, 16), 16), spot(3, 32));
        assert_eq!(shelf.take_in(spot(6, 64), 64), spot(6, 64));
    }

    #[test]
    fn without_a_shelf_every_box_stays_on_its_lane() {
        let mut shelf = WarmBuffers::new([].into_iter());
        assert_eq!(shelf.hand_out(spot(0, 8), 8), spot(0, 8));
        assert_eq!(shelf.take_in(spot(1, 8), 8), spot(1, 8));
    }
}
