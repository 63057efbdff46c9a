//! What a rank's lock guards: its slots, the queues of the messages it sends, and the count of its news.
//!
//! Plain data, changed by one thread at a time. Slots are linked into lists, free ones into a stack and travelling ones
//! into the queue of their message, so nothing is allocated after the beginning, and every slot is in one place.

use super::SlotHandle;

/// The end of a list of slots.
pub(crate) const NONE: u32 = u32::MAX;

/// What a rank's lock guards.
pub(crate) struct RankQueue {
    /// Letters that have arrived here and slots that have come back.
    pub news: u64,
    /// The first free slot; the last one to come back, which is the likeliest to be in a cache.
    free: u32,
    slots: Vec<Slot>,
    /// The letters on their way, for each message sent from here.
    queues: Vec<Queue>,
}

#[derive(Clone, Copy)]
struct Slot {
    bytes: u64,
    /// The slot behind this one, in the list of free slots or in a queue.
    next: u32,
    stage: SlotState,
}

/// Who holds a slot. Engines rest their claim to a buffer on this order, so it is checked in release builds too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    /// The sender.
    Taken,
    /// A queue.
    Travelling,
    /// The receiver.
    Received,
}

#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
}

impl RankQueue {
    pub fn new(slots: usize, queues: u32) -> Self {
        let slot = Slot { bytes: 0, next: NONE, stage: SlotState::Free };
        let queue = Queue { first: NONE, last: NONE };
        let mut desk =
            Self { news: 0, free: NONE, slots: vec![slot; slots], queues: vec![queue; queues as usize] };
        desk.reset();
        desk
    }

    /// All slots free, no letters, no news.
    pub fn reset(&mut self) {
        self.news = 0;
        self.queues.fill(Queue { first: NONE, last: NONE });
        self.free = NONE;
        for (number, slot) in self.slots.iter_mut().enumerate().rev() {
            *slot = Slot { bytes: 0, next: self.free, stage: SlotState::Free };
            self.free = number as u32;
        }
    }

    /// A free slot for the sender to fill.
    pub fn take_slot(&mut self) -> Option<u32> {
        let number = self.free;
        let slot = self.slots.get_mut(number as usize)?;
        self.free = slot.next;
        slot.stage = SlotState::Taken;
        Some(number)
    }

    /// A filled slot joins the end of a queue.
    pub fn append(&mut self, queue: usize, letter: SlotHandle) {
        let slot = &mut self.slots[letter.slot as usize];
        assert_eq!(slot.stage, SlotState::Taken, "slot {} is sent", letter.slot);
        *slot = Slot { bytes: letter.bytes, next: NONE, stage: SlotState::Travelling };
        let queue = &mut self.queues[queue];
        match self.slots.get_mut(queue.last as usize) {
            Some(last) => last.next = letter.slot,
            None => queue.first = letter.slot,
        }
        queue.last = letter.slot;
    }

    /// The first letter of a queue goes to its receiver.
    pub fn take_letter(&mut self, queue: usize) -> Option<SlotHandle> {
        let queue = &mut self.queues[queue];
        let number = queue.first;
        let slot = self.slots.get_mut(number as usize)?;
        slot.stage = SlotState::Received;
        queue.first = slot.next;
        if slot.next == NONE {
            queue.last = NONE;
        }
        Some(SlotHandle { slot: number, bytes: slot.bytes })
    }

    /// An emptied slot is free.
    pub fn free_slot(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        assert_eq!(slot.stage, SlotState::Received, "slot {number} is given back");
        *slot = Slot { bytes: 0, next: self.free, stage: SlotState::Free };
        self.free = number;
    }
}
