//! Boxes that wander: how a box gets from one rank of a node to another, and which one.
//!
//! A lane leads from a sender to a receiver. It has places for some boxes, used in turn, and each place says which box stands
//! there: any one that is large enough, in anybody's segment. The sender, when it is its turn, may put another box there and
//! pack into that; the receiver, when it has emptied it, may put another one back. So each rank has some boxes at hand, on a
//! [`Shelf`]: it packs into the one it emptied last, whose lines its own processor has, and gives back one that it has not
//! touched for long. If every box stayed on its lane, a sender would have to take each line back from the processor that
//! read it last.

use crate::shared::Neighbours;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache line, so that nobody's counter is another's neighbour.
pub const LINE: usize = 64;

const WORD: usize = size_of::<u64>();

/// A box: whose segment it lies in, where, and how many bytes it has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    pub rank: usize,
    pub at: usize,
    pub room: usize,
}

impl Spot {
    const WORDS: usize = 3;

    pub fn first(&self, neighbours: &Neighbours) -> *mut u8 {
        neighbours.place(self.rank, self.at, self.room)
    }
}

/// The way from one rank to another. Its head, in the sender's segment, has a counter of the boxes filled, and the places.
#[derive(Clone, Copy)]
pub struct Lane {
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

impl Lane {
    /// Bytes of the head of a lane with so many places.
    pub fn head(boxes: usize) -> usize {
        (WORD + boxes * Spot::WORDS * WORD).next_multiple_of(LINE)
    }

    /// Which place is used after so many others.
    pub fn number(&self, used: u64) -> usize {
        (used % self.boxes as u64) as usize
    }

    /// Boxes filled, in all runs.
    pub fn filled<'n>(&self, neighbours: &'n Neighbours) -> &'n AtomicU64 {
        neighbours.counter(self.sender, self.at)
    }

    /// The box at the place used after so many others. Whose turn it is, is told by counters, with everything before them.
    pub fn look(&self, neighbours: &Neighbours, used: u64) -> Spot {
        let word = |number| self.word(neighbours, used, number).load(Ordering::Relaxed) as usize;
        Spot { rank: word(0), at: word(1), room: word(2) }
    }

    /// Puts a box there.
    pub fn put(&self, neighbours: &Neighbours, used: u64, spot: Spot) {
        for (number, word) in [spot.rank, spot.at, spot.room].into_iter().enumerate() {
            self.word(neighbours, used, number).store(word as u64, Ordering::Relaxed);
        }
    }

    fn word<'n>(&self, neighbours: &'n Neighbours, used: u64, number: usize) -> &'n AtomicU64 {
        let place = self.at + WORD + self.number(used) * Spot::WORDS * WORD;
        neighbours.counter(self.sender, place + number * WORD)
    }
}

/// The boxes a rank has at hand, always as many. The one it emptied last is the last.
pub struct Shelf {
    spots: VecDeque<Spot>,
}

impl Shelf {
    pub fn new(spots: impl ExactSizeIterator<Item = Spot>) -> Self {
        // No more are ever there at once.
        Self { spots: spots.collect() }
    }

    /// For a box that came back, one with at least so much room to pack into: the one emptied last.
    pub fn hand_out(&mut self, back: Spot, room: usize) -> Spot {
        let last = self.spots.iter().rposition(|spot| spot.room >= room);
        let Some(last) = last.and_then(|last| self.spots.remove(last)) else { return back };
        self.spots.push_front(back);
        last
    }

    /// For a box that was emptied, one with at least so much room to give back: the one not touched for longest.
    pub fn take_in(&mut self, emptied: Spot, room: usize) -> Spot {
        let first = self.spots.iter().position(|spot| spot.room >= room);
        let Some(first) = first.and_then(|first| self.spots.remove(first)) else { return emptied };
        self.spots.push_back(emptied);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(at: usize, room: usize) -> Spot {
        Spot { rank: 0, at, room }
    }

    #[test]
    fn what_was_emptied_last_is_filled_next() {
        let mut shelf = Shelf::new([spot(0, 8), spot(1, 8)].into_iter());
        assert_eq!(shelf.take_in(spot(2, 8), 8), spot(0, 8), "not touched for longest");
        assert_eq!(shelf.take_in(spot(3, 8), 8), spot(1, 8));
        assert_eq!(shelf.hand_out(spot(4, 8), 8), spot(3, 8), "emptied last");
        assert_eq!(shelf.hand_out(spot(5, 8), 8), spot(2, 8));
        assert_eq!(shelf.take_in(spot(6, 8), 8), spot(5, 8), "came back, and nobody touched it");
    }

    #[test]
    fn no_box_is_too_small_for_its_lane() {
        let mut shelf = Shelf::new([spot(0, 8), spot(1, 16), spot(2, 8)].into_iter());
        assert_eq!(shelf.hand_out(spot(3, 32), 16), spot(1, 16));
        assert_eq!(shelf.hand_out(spot(4, 64), 64), spot(4, 64), "none at hand is large enough");
        assert_eq!(shelf.take_in(spot(5, 16), 16), spot(3, 32));
        assert_eq!(shelf.take_in(spot(6, 64), 64), spot(6, 64));
    }

    #[test]
    fn without_a_shelf_every_box_stays_on_its_lane() {
        let mut shelf = Shelf::new([].into_iter());
        assert_eq!(shelf.hand_out(spot(0, 8), 8), spot(0, 8));
        assert_eq!(shelf.take_in(spot(1, 8), 8), spot(1, 8));
    }
}
