//! What one process of a ring still has to send and to receive, whichever engine transports its fragments.
//!
//! A process makes its sends in order, every item as soon as it holds one, and receives as long as it has room. Items travel
//! in fragments, each with as many as are at hand. A fragment to the right holds its items in the order of the slice, so it
//! is packed from its end to its beginning and unpacked from its end, too: what left first arrives first. A fragment to the
//! left is packed and unpacked from its beginning. An engine runs this loop:
//!
//! ```text
//! unpack what has arrived, as far as there is room
//! pack what is held into the open fragment; send it when it is full, or the step is over
//! if neither did anything: send the open fragment, or wait
//! ```
//!
//! So fragments are long where there is much to send, nothing waits for a fragment to become full, and a process with room
//! for a single item still passes on fragments as long as those it receives.

use super::item_slots::ItemSlots;
use super::plan::RingPlan;
use crate::solve::Side;
use std::ops::Range;

/// What one process still has to send and to receive in a run. It holds no items: their memory is the caller's.
#[derive(Clone, Debug)]
pub struct RankProgress {
    item_bytes: usize,
    /// The item slots before a run.
    initial: ItemSlots,
    steps: Vec<SendStep>,
    /// Items that are received in a run: from the left, from the right.
    expected: [usize; 2],
    slots: ItemSlots,
    /// Index of the step that is being sent.
    step: usize,
    /// Items of that step that are sent.
    sent: usize,
    /// Items still to be received: from the left, from the right.
    incoming: [usize; 2],
}

/// Items to one side, one after the other.
#[derive(Clone, Copy, Debug)]
struct SendStep {
    side: Side,
    items: usize,
}

impl RankProgress {
    /// The state of `rank` before its first run.
    pub fn new(plan: &RingPlan, rank: usize) -> Self {
        let items = |items: u64| usize::try_from(items).unwrap_or(usize::MAX);
        let load = items(plan.problem().loads()[rank]);
        let initial = ItemSlots::new(plan.problem().is_ordered(), plan.room(rank), load);
        let expected = [Side::Left, Side::Right].map(|side| plan.incoming(rank, side));
        let sends = plan.program().of_rank(rank as u64).sends;
        let steps = sends.iter().map(|step| SendStep { side: step.side, items: items(step.items) }).collect();
        let (slots, incoming) = (initial.clone(), expected);
        Self { item_bytes: plan.item_bytes(), initial, steps, expected, slots, step: 0, sent: 0, incoming }
    }

    /// Begins a run: the process holds its load, and nothing is sent or received.
    pub fn begin(&mut self) {
        (self.slots, self.incoming) = (self.initial.clone(), self.expected);
        (self.step, self.sent) = (0, 0);
    }

    /// The side to which the next item is sent; `None` if all are sent.
    pub fn sends_to(&self) -> Option<Side> {
        self.steps.get(self.step).map(|step| step.side)
    }

    /// True if there is an item to send, and the process holds it.
    pub fn can_send(&self) -> bool {
        self.sends_to().is_some() && self.slots.held() > 0
    }

    /// Items from `side` that are not unpacked yet.
    pub fn incoming(&self, side: Side) -> usize {
        self.incoming[side.index()]
    }

    /// True if all is sent and all is received.
    pub fn is_over(&self) -> bool {
        self.sends_to().is_none() && self.incoming == [0; 2]
    }

    /// The range of a slot of `slot_bytes` bytes that a fragment to `side` takes, if `packed` bytes are packed.
    pub fn fragment_range(side: Side, slot_bytes: usize, packed: usize) -> Range<usize> {
        match side {
            Side::Right => slot_bytes - packed..slot_bytes,
            Side::Left => 0..packed,
        }
    }

    /// Packs items of the current step into `slot`, of which `packed` bytes are filled: as many as are held and fit. Returns
    /// the bytes that are filled then.
    pub fn pack(&mut self, memory: &[u8], slot: &mut [u8], mut packed: usize) -> usize {
        let Some(&SendStep { side, items }) = self.steps.get(self.step) else { return packed };
        let mut left = (items - self.sent).min((slot.len() - packed) / self.item_bytes);
        while left > 0 {
            let taken = self.slots.remove(side, left);
            let bytes = taken.len() * self.item_bytes;
            if bytes == 0 {
                break;
            }
            let free = match side {
                Side::Right => slot.len() - packed - bytes..slot.len() - packed,
                Side::Left => packed..packed + bytes,
            };
            slot[free].copy_from_slice(&memory[self.bytes(&taken)]);
            packed += bytes;
            left -= taken.len();
            self.count_sent(taken.len());
        }
        packed
    }

    /// Counts `items` items of the current step as sent.
    fn count_sent(&mut self, items: usize) {
        self.sent += items;
        if self.steps.get(self.step).is_some_and(|step| step.items == self.sent) {
            (self.step, self.sent) = (self.step + 1, 0);
        }
    }

    /// Unpacks items of a fragment from `side`, as far as there is room; `unpacked` bytes of it were unpacked before.
    /// Returns the bytes that are unpacked then.
    pub fn unpack(&mut self, memory: &mut [u8], side: Side, fragment: &[u8], mut unpacked: usize) -> usize {
        while unpacked < fragment.len() {
            let most = ((fragment.len() - unpacked) / self.item_bytes).min(self.incoming[side.index()]);
            let filled = self.slots.insert(side, most);
            let bytes = filled.len() * self.item_bytes;
            if bytes == 0 {
                break;
            }
            let next = match side {
                Side::Left => fragment.len() - unpacked - bytes..fragment.len() - unpacked,
                Side::Right => unpacked..unpacked + bytes,
            };
            let filled_bytes = self.bytes(&filled);
            memory[filled_bytes].copy_from_slice(&fragment[next]);
            unpacked += bytes;
            self.incoming[side.index()] -= filled.len();
        }
        unpacked
    }

    /// Copies items of the current step straight into the neighbour's memory, as many as are held and fit there. Returns
    /// their number.
    pub(crate) fn copy_to(&mut self, memory: &[u8], to: &mut RankProgress, to_memory: &mut [u8]) -> usize {
        let Some(&SendStep { side, items }) = self.steps.get(self.step) else { return 0 };
        let all = (items - self.sent).min(self.slots.held()).min(to.slots.free());
        let mut left = all;
        while left > 0 {
            let mut taken = self.slots.remove(side, left);
            left -= taken.len();
            while !taken.is_empty() {
                let filled = to.slots.insert(side.opposite(), taken.len());
                let from = match side {
                    Side::Right => taken.end - filled.len()..taken.end,
                    Side::Left => taken.start..taken.start + filled.len(),
                };
                match side {
                    Side::Right => taken.end = from.start,
                    Side::Left => taken.start = from.end,
                }
                let filled_bytes = self.bytes(&filled);
                to_memory[filled_bytes].copy_from_slice(&memory[self.bytes(&from)]);
            }
        }
        to.incoming[side.opposite().index()] -= all;
        self.count_sent(all);
        all
    }

    /// Ends a run in which all is sent and received: moves the items to the beginning of the memory.
    pub fn finish(&mut self, memory: &mut [u8]) {
        self.slots.move_to_front(memory, self.item_bytes);
    }

    /// The bytes of a range of item slots.
    fn bytes(&self, slots: &Range<usize>) -> Range<usize> {
        slots.start * self.item_bytes..slots.end * self.item_bytes
    }
}
