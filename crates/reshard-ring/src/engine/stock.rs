//! Which places of a process's memory hold its items, while some leave and others arrive.
//!
//! Numbers only: whoever has the memory copies, and says so here. Items in order lie in a circle of places: those sent
//! right leave from the right end and those from the left neighbour arrive at the left end, so nothing in between moves, and
//! one rotation at the end brings the slice to its beginning. Items without an order leave from the end of a heap that
//! begins at place 0, and arrive there.

use crate::solve::Side;
use std::ops::Range;

/// The places of one process.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    ordered: bool,
    room: usize,
    /// The place of the first item.
    head: usize,
    held: usize,
}

impl Stock {
    /// Room for so many items, of which the first `held` are there.
    pub fn new(ordered: bool, room: usize, held: usize) -> Self {
        debug_assert!(held <= room, "{held} items in room for {room}");
        Self { ordered, room, head: 0, held }
    }

    /// How many items there are.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many more there is room for.
    pub fn free(&self) -> usize {
        self.room - self.held
    }

    /// The place behind the last item: in a circle it may lie beyond the end.
    fn tail(&self) -> usize {
        self.head + self.held
    }

    /// The next items that leave to this side, at most `most`, fewer where the circle is cut: their places, in memory's
    /// order. They are gone now.
    pub fn leaving(&mut self, side: Side, most: usize) -> Range<usize> {
        let places = match side {
            Side::Left if self.ordered => {
                let count = most.min(self.held).min(self.room - self.head);
                self.head..self.head + count
            }
            _ => {
                let (begin, end) = match self.tail().checked_sub(self.room) {
                    Some(end) if end > 0 => (0, end),
                    _ => (self.head, self.tail()),
                };
                end - most.min(end - begin)..end
            }
        };
        self.held -= places.len();
        if side == Side::Left && self.ordered {
            self.head = if places.end == self.room { 0 } else { places.end };
        }
        places
    }

    /// Places for the next items that arrive from this side, at most `most`, fewer where the circle is cut or room ends: in
    /// memory's order. They are here now.
    pub fn arriving(&mut self, side: Side, most: usize) -> Range<usize> {
        let places = match side {
            Side::Left if self.ordered => {
                let (low, high) = match self.head {
                    0 => (self.tail(), self.room),
                    head => (self.tail().saturating_sub(self.room), head),
                };
                high - most.min(high - low)..high
            }
            _ => {
                let (low, high) = match self.tail().checked_sub(self.room) {
                    Some(low) => (low, self.head),
                    None => (self.tail(), self.room),
                };
                low..low + most.min(high - low)
            }
        };
        self.held += places.len();
        if side == Side::Left && self.ordered && !places.is_empty() {
            self.head = places.start;
        }
        places
    }

    /// Brings the first item to place 0. The memory has this stock's room, in items of so many bytes.
    pub fn settle(&mut self, memory: &mut [u8], item_bytes: usize) {
        let [head, tail, room] = [self.head, self.tail(), self.room].map(|place| place * item_bytes);
        self.head = 0;
        if tail > room {
            memory[..room].rotate_left(head);
        } else if head > 0 {
            memory.copy_within(head..tail, 0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A deque, the slow twin, and memory of one byte for each item.
    #[test]
    fn items_leave_and_arrive_as_from_a_deque() {
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for case in 0..3_000 {
            let ordered = case % 2 == 0;
            let room = random(7);
            let held = random(room + 1);
            let mut memory: Vec<u8> = (0..room as u8).collect();
            let mut twin: VecDeque<u8> = memory[..held].iter().copied().collect();
            let mut stock = Stock::new(ordered, room, held);
            let mut name = 100;
            for _ in 0..random(30) {
                let side = [Side::Left, Side::Right][random(2)];
                let most = random(5);
                let (at_left, before) = (ordered && side == Side::Left, stock.held());
                if random(2) == 0 {
                    let places = stock.leaving(side, most);
                    let mut left: Vec<u8> = memory[places.clone()].to_vec();
                    if !at_left {
                        left.reverse();
                    }
                    assert!(left.len() <= most && (most.min(before) == 0) == left.is_empty());
                    for item in left {
                        assert_eq!(if at_left { twin.pop_front() } else { twin.pop_back() }, Some(item));
                    }
                    memory[places].fill(255);
                } else {
                    let free = stock.free();
                    let places = stock.arriving(side, most);
                    assert!(places.len() <= most && (most.min(free) == 0) == places.is_empty());
                    for place in places.clone() {
                        memory[if at_left { places.end - 1 - (place - places.start) } else { place }] = name;
                        if at_left {
                            twin.push_front(name);
                        } else {
                            twin.push_back(name);
                        }
                        name = if name == 250 { 100 } else { name + 1 };
                    }
                }
                assert_eq!(stock.held(), twin.len());
            }
            stock.settle(&mut memory, 1);
            assert_eq!(memory[..twin.len()], twin.make_contiguous()[..], "{case}");
        }
    }
}
