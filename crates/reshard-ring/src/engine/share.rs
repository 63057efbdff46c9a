//! One process's share of a ring program, whoever carries its letters.
//!
//! A process makes its sends in order, every item as soon as it holds one, and takes what comes as long as it has room.
//! Items travel in letters, as many as are at hand. A letter to the right holds them as the slice did, so it is written
//! from its end to its beginning and read from its end, too: what left first arrives first. One to the left is written and
//! read from its beginning. Whoever carries letters loops over this:
//!
//! ```text
//! read what has come, as far as there is room
//! write what is held into the open letter; send it when it is full, or the step is over
//! if neither did anything: send the open letter, or wait
//! ```
//!
//! So letters are long where there is much to send, nothing waits for a letter to become full, and a process with room for
//! a single item still passes on letters as long as those it gets.

use super::plan::RingPlan;
use super::stock::Stock;
use crate::solve::Side;
use std::ops::Range;

/// What one process still has to do. It has no memory of its own: the items are the caller's.
#[derive(Clone, Debug)]
pub struct Share {
    item_bytes: usize,
    first: Stock,
    steps: Vec<Leg>,
    expected: [usize; 2],
    stock: Stock,
    /// The step under way, and what of it is sent.
    step: usize,
    sent: usize,
    /// Items still to come: from the left, from the right.
    coming: [usize; 2],
}

/// Items to one side, one after the other.
#[derive(Clone, Copy, Debug)]
struct Leg {
    side: Side,
    items: usize,
}

impl Share {
    /// The share of a process, before its first run.
    pub fn new(plan: &RingPlan, rank: usize) -> Self {
        let items = |items: u64| usize::try_from(items).unwrap_or(usize::MAX);
        let first =
            Stock::new(plan.problem().is_ordered(), plan.room(rank), items(plan.problem().loads()[rank]));
        let expected = [Side::Left, Side::Right].map(|side| plan.coming(rank, side));
        let sends = plan.program().of_rank(rank as u64).sends;
        let steps = sends.iter().map(|step| Leg { side: step.side, items: items(step.items) }).collect();
        let (stock, coming) = (first.clone(), expected);
        Self { item_bytes: plan.item_bytes(), first, steps, expected, stock, step: 0, sent: 0, coming }
    }

    /// Back to the beginning: all items the process has at first are there.
    pub fn begin(&mut self) {
        (self.stock, self.coming) = (self.first.clone(), self.expected);
        (self.step, self.sent) = (0, 0);
    }

    /// Where the next item goes that is to be sent; `None` if all are sent.
    pub fn sends_to(&self) -> Option<Side> {
        self.steps.get(self.step).map(|leg| leg.side)
    }

    /// True if there is an item to send, and it is here.
    pub fn can_send(&self) -> bool {
        self.sends_to().is_some() && self.stock.held() > 0
    }

    /// Items that are still to come from a side and have not been read.
    pub fn coming(&self, side: Side) -> usize {
        self.coming[side.index()]
    }

    /// True if all is sent and all has come.
    pub fn is_over(&self) -> bool {
        self.sends_to().is_none() && self.coming == [0; 2]
    }

    /// Where a letter to a side lies in its place, if so many bytes are written.
    pub fn letter(side: Side, place: usize, written: usize) -> Range<usize> {
        match side {
            Side::Right => place - written..place,
            Side::Left => 0..written,
        }
    }

    /// Takes items of the step under way into a letter's place, in which `written` bytes are: as many as are here and fit.
    /// Returns what is written now.
    pub fn write(&mut self, memory: &[u8], place: &mut [u8], mut written: usize) -> usize {
        let Some(&Leg { side, items }) = self.steps.get(self.step) else { return written };
        let mut left = (items - self.sent).min((place.len() - written) / self.item_bytes);
        while left > 0 {
            let places = self.stock.leaving(side, left);
            let bytes = places.len() * self.item_bytes;
            if bytes == 0 {
                break;
            }
            let free = match side {
                Side::Right => place.len() - written - bytes..place.len() - written,
                Side::Left => written..written + bytes,
            };
            place[free].copy_from_slice(&memory[self.bytes(&places)]);
            written += bytes;
            left -= places.len();
            self.count(places.len());
        }
        written
    }

    /// So many items of the step under way are sent.
    fn count(&mut self, items: usize) {
        self.sent += items;
        if self.steps.get(self.step).is_some_and(|leg| leg.items == self.sent) {
            (self.step, self.sent) = (self.step + 1, 0);
        }
    }

    /// Puts items of a letter that came from a side where they belong, as far as there is room; `read` bytes of it were read
    /// before. Returns what is read now.
    pub fn read(&mut self, memory: &mut [u8], side: Side, letter: &[u8], mut read: usize) -> usize {
        while read < letter.len() {
            let most = ((letter.len() - read) / self.item_bytes).min(self.coming[side.index()]);
            let places = self.stock.arriving(side, most);
            let bytes = places.len() * self.item_bytes;
            if bytes == 0 {
                break;
            }
            let next = match side {
                Side::Left => letter.len() - read - bytes..letter.len() - read,
                Side::Right => read..read + bytes,
            };
            let places_bytes = self.bytes(&places);
            memory[places_bytes].copy_from_slice(&letter[next]);
            read += bytes;
            self.coming[side.index()] -= places.len();
        }
        read
    }

    /// Passes items of the step under way straight into the neighbour's memory, as many as are here and fit there. Returns
    /// how many.
    pub(crate) fn pass(&mut self, memory: &[u8], to: &mut Share, to_memory: &mut [u8]) -> usize {
        let Some(&Leg { side, items }) = self.steps.get(self.step) else { return 0 };
        let all = (items - self.sent).min(self.stock.held()).min(to.stock.free());
        let mut left = all;
        while left > 0 {
            let mut places = self.stock.leaving(side, left);
            left -= places.len();
            while !places.is_empty() {
                let free = to.stock.arriving(side.opposite(), places.len());
                let from = match side {
                    Side::Right => places.end - free.len()..places.end,
                    Side::Left => places.start..places.start + free.len(),
                };
                match side {
                    Side::Right => places.end = from.start,
                    Side::Left => places.start = from.end,
                }
                let free_bytes = self.bytes(&free);
                to_memory[free_bytes].copy_from_slice(&memory[self.bytes(&from)]);
            }
        }
        to.coming[side.opposite().index()] -= all;
        self.count(all);
        all
    }

    /// All has come and gone: brings the items to the beginning of the memory.
    pub fn settle(&mut self, memory: &mut [u8]) {
        self.stock.settle(memory, self.item_bytes);
    }

    fn bytes(&self, places: &Range<usize>) -> Range<usize> {
        places.start * self.item_bytes..places.end * self.item_bytes
    }
}
