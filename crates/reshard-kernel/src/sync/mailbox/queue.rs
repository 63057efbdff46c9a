//! The data under a rank's lock: its slots, the queues of the messages it sends, and its event count.
//!
//! Plain data, changed by one thread at a time. Slots are linked into lists, free ones into a stack and those in flight
//! into the queue of their message, so nothing is allocated after construction, and every slot is in at most one list.

use super::SlotHandle;

/// Marks the end of a list of slots.
pub(crate) const NONE: u32 = u32::MAX;

/// Slots, queues and event count of one rank.
pub(crate) struct RankQueue {
    /// Event count: fragments that have arrived and slots that have come back.
    pub event_count: u64,
    /// The first free slot: the last one to come back, which is most likely still in a cache.
    free: u32,
    slots: Vec<Slot>,
    /// The fragments in flight, for each message this rank sends.
    queues: Vec<Queue>,
}

#[derive(Clone, Copy)]
struct Slot {
    bytes: u64,
    /// The next slot in the list of free slots, or in a queue.
    next: u32,
    state: SlotState,
}

/// The owner of a slot. The safety of engines depends on the order of these states, so it is checked in release builds too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    /// Owned by the sender, which fills it.
    Taken,
    /// In a queue.
    InFlight,
    /// Owned by the receiver, which reads it.
    Received,
}

#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
}

impl RankQueue {
    pub fn new(slots: usize, queues: u32) -> Self {
        let slot = Slot { bytes: 0, next: NONE, state: SlotState::Free };
        let queue = Queue { first: NONE, last: NONE };
        let mut rank = Self {
            event_count: 0,
            free: NONE,
            slots: vec![slot; slots],
            queues: vec![queue; queues as usize],
        };
        rank.reset();
        rank
    }

    /// Resets to the initial state: all slots free, queues empty, no events.
    pub fn reset(&mut self) {
        self.event_count = 0;
        self.queues.fill(Queue { first: NONE, last: NONE });
        self.free = NONE;
        for (number, slot) in self.slots.iter_mut().enumerate().rev() {
            *slot = Slot { bytes: 0, next: self.free, state: SlotState::Free };
            self.free = number as u32;
        }
    }

    /// Takes a free slot, for the sender to fill.
    pub fn take_slot(&mut self) -> Option<u32> {
        let number = self.free;
        let slot = self.slots.get_mut(number as usize)?;
        self.free = slot.next;
        slot.state = SlotState::Taken;
        Some(number)
    }

    /// Appends a filled slot to a queue.
    pub fn push(&mut self, queue: usize, handle: SlotHandle) {
        let slot = &mut self.slots[handle.slot as usize];
        assert_eq!(slot.state, SlotState::Taken, "slot {} is sent", handle.slot);
        *slot = Slot { bytes: handle.bytes, next: NONE, state: SlotState::InFlight };
        let queue = &mut self.queues[queue];
        match self.slots.get_mut(queue.last as usize) {
            Some(last) => last.next = handle.slot,
            None => queue.first = handle.slot,
        }
        queue.last = handle.slot;
    }

    /// Takes the first fragment of a queue, for its receiver.
    pub fn pop(&mut self, queue: usize) -> Option<SlotHandle> {
        let queue = &mut self.queues[queue];
        let number = queue.first;
        let slot = self.slots.get_mut(number as usize)?;
        slot.state = SlotState::Received;
        queue.first = slot.next;
        if slot.next == NONE {
            queue.last = NONE;
        }
        Some(SlotHandle { slot: number, bytes: slot.bytes })
    }

    /// Puts a slot that was read back into the list of free slots.
    pub fn free_slot(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        assert_eq!(slot.state, SlotState::Received, "slot {number} is released");
        *slot = Slot { bytes: 0, next: self.free, state: SlotState::Free };
        self.free = number;
    }
}
