//! The item slots of a process's memory: which of them hold items, while some are sent and others received.
//!
//! This is arithmetic on indices only; the caller copies the items. Items in order are kept in a ring buffer: those sent right
//! are removed at the right end and those from the left neighbour inserted at the left end, so nothing in between moves, and
//! one rotation at the end of a run brings the first item to slot 0. Items without an order are kept in a stack that begins at
//! slot 0.

use crate::solve::Side;
use std::ops::Range;

/// The item slots of one process, as a ring buffer (in order) or a stack (without order).
#[derive(Clone, Debug)]
pub(crate) struct ItemSlots {
    ordered: bool,
    /// Number of slots.
    room: usize,
    /// The slot of the first item.
    head: usize,
    /// Number of items.
    held: usize,
}

impl ItemSlots {
    /// `room` slots, of which the first `held` hold items.
    pub fn new(ordered: bool, room: usize, held: usize) -> Self {
        debug_assert!(held <= room, "{held} items in room for {room}");
        Self { ordered, room, head: 0, held }
    }

    /// Number of items held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Number of free slots.
    pub fn free(&self) -> usize {
        self.room - self.held
    }

    /// The index behind the last item, not reduced modulo `room`.
    fn tail(&self) -> usize {
        self.head + self.held
    }

    /// Removes the next items that are sent to `side`: at most `most`, fewer where the ring buffer wraps around. Returns
    /// their slots, ascending.
    pub fn remove(&mut self, side: Side, most: usize) -> Range<usize> {
        let range = match side {
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
        self.held -= range.len();
        if side == Side::Left && self.ordered {
            self.head = if range.end == self.room { 0 } else { range.end };
        }
        range
    }

    /// Inserts the next items that are received from `side`: at most `most`, fewer where the ring buffer wraps around or is
    /// full. Returns their slots, ascending.
    pub fn insert(&mut self, side: Side, most: usize) -> Range<usize> {
        let range = match side {
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
        self.held += range.len();
        if side == Side::Left && self.ordered && !range.is_empty() {
            self.head = range.start;
        }
        range
    }

    /// Moves the items so that the first is in slot 0. `memory` has `room` slots of `item_bytes` bytes.
    pub fn move_to_front(&mut self, memory: &mut [u8], item_bytes: usize) {
        let [head, tail, room] = [self.head, self.tail(), self.room].map(|slot| slot * item_bytes);
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

    /// Compares with a deque; an item is one byte of memory.
    #[test]
    fn items_are_removed_and_inserted_as_in_a_deque() {
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
            let mut deque: VecDeque<u8> = memory[..held].iter().copied().collect();
            let mut slots = ItemSlots::new(ordered, room, held);
            let mut name = 100;
            for _ in 0..random(30) {
                let side = [Side::Left, Side::Right][random(2)];
                let most = random(5);
                let (at_left, before) = (ordered && side == Side::Left, slots.held());
                if random(2) == 0 {
                    let range = slots.remove(side, most);
                    let mut left: Vec<u8> = memory[range.clone()].to_vec();
                    if !at_left {
                        left.reverse();
                    }
                    assert!(left.len() <= most && (most.min(before) == 0) == left.is_empty());
                    for item in left {
                        assert_eq!(if at_left { deque.pop_front() } else { deque.pop_back() }, Some(item));
                    }
                    memory[range].fill(255);
                } else {
                    let free = slots.free();
                    let range = slots.insert(side, most);
                    assert!(range.len() <= most && (most.min(free) == 0) == range.is_empty());
                    for slot in range.clone() {
                        memory[if at_left { range.end - 1 - (slot - range.start) } else { slot }] = name;
                        if at_left {
                            deque.push_front(name);
                        } else {
                            deque.push_back(name);
                        }
                        name = if name == 250 { 100 } else { name + 1 };
                    }
                }
                assert_eq!(slots.held(), deque.len());
            }
            slots.move_to_front(&mut memory, 1);
            assert_eq!(memory[..deque.len()], deque.make_contiguous()[..], "{case}");
        }
    }
}
