//! The messages of one rank that have arrived, and the receives it has posted, matched in the order of both; and which of its
//! own messages are being received. A transport that has no such thing of its own, as MPI has, uses this.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{HashMap, VecDeque};

/// A receive that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    from: usize,
    tag: u32,
    number: u64,
}

impl Ticket {
    /// The rank that the message comes from.
    pub fn from(self) -> usize {
        self.from
    }
}

/// Messages that arrived and receives that were posted. Each message comes with a receipt: what its sender is owed when it is
/// matched with a receive.
#[derive(Debug)]
pub struct Mailbox<R> {
    /// Those from one rank with one tag: either messages or receives wait for the other.
    queues: HashMap<(usize, u32), Queue<R>>,
    /// Messages that are matched and not taken yet.
    matched: HashMap<Ticket, Vec<u8>>,
    /// Receives posted so far.
    posted: u64,
    /// Numbers given to messages of this rank so far.
    numbers: u64,
    /// Those that somebody waits for, and whether the message is being received.
    awaited: HashMap<u64, bool>,
}

#[derive(Debug)]
struct Queue<R> {
    arrived: VecDeque<(Vec<u8>, R)>,
    posted: VecDeque<Ticket>,
}

impl<R> Default for Mailbox<R> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            matched: HashMap::new(),
            posted: 0,
            numbers: 0,
            awaited: HashMap::new(),
        }
    }
}

impl<R> Mailbox<R> {
    /// A message has arrived. Returns its receipt if a receive is waiting for it.
    pub fn deliver(&mut self, from: usize, tag: u32, bytes: Vec<u8>, receipt: R) -> Option<R> {
        let mut waiting = self.queue(from, tag);
        match waiting.get_mut().posted.pop_front() {
            Some(ticket) => {
                remove_if_empty(waiting);
                self.matched.insert(ticket, bytes);
                Some(receipt)
            }
            None => {
                waiting.get_mut().arrived.push_back((bytes, receipt));
                None
            }
        }
    }

    /// Posts a receive. Returns the receipt of the message that was waiting for it, if there was one.
    pub fn post(&mut self, from: usize, tag: u32) -> (Ticket, Option<R>) {
        let ticket = Ticket { from, tag, number: self.posted };
        self.posted += 1;
        let mut waiting = self.queue(from, tag);
        match waiting.get_mut().arrived.pop_front() {
            Some((bytes, receipt)) => {
                remove_if_empty(waiting);
                self.matched.insert(ticket, bytes);
                (ticket, Some(receipt))
            }
            None => {
                waiting.get_mut().posted.push_back(ticket);
                (ticket, None)
            }
        }
    }

    /// Takes the message that a receive was matched with, once.
    pub fn take(&mut self, ticket: Ticket) -> Option<Vec<u8>> {
        self.matched.remove(&ticket)
    }

    /// Withdraws a receive that has no message yet.
    pub fn cancel(&mut self, ticket: Ticket) {
        let mut waiting = self.queue(ticket.from, ticket.tag);
        waiting.get_mut().posted.retain(|&other| other != ticket);
        remove_if_empty(waiting);
    }

    /// The sender and the bytes of a message with this tag that waits for a receive, of the lowest rank.
    pub fn probe(&self, tag: u32) -> Option<(usize, usize)> {
        let waiting = self.queues.iter().filter(|((_, of), _)| *of == tag);
        let first = waiting.filter_map(|((from, _), queue)| Some((*from, queue.arrived.front()?.0.len())));
        first.min()
    }

    /// A number for a message of this rank that is to be acknowledged.
    pub fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.awaited.insert(self.numbers, false);
        self.numbers
    }

    /// The message of this number is being received.
    pub fn acknowledge(&mut self, number: u64) {
        if let Some(received) = self.awaited.get_mut(&number) {
            *received = true;
        }
    }

    /// True if the message of this number is being received.
    pub fn is_acknowledged(&self, number: u64) -> bool {
        self.awaited.get(&number) == Some(&true)
    }

    /// Nobody waits any more for the message of this number to be received.
    pub fn forget(&mut self, number: u64) {
        self.awaited.remove(&number);
    }

    fn queue(&mut self, from: usize, tag: u32) -> OccupiedEntry<'_, (usize, u32), Queue<R>> {
        let empty = Queue { arrived: VecDeque::new(), posted: VecDeque::new() };
        match self.queues.entry((from, tag)) {
            Entry::Occupied(queue) => queue,
            Entry::Vacant(place) => place.insert_entry(empty),
        }
    }
}

/// Engines come and go, with tags of their own: what nothing waits in is not kept.
fn remove_if_empty<R>(queue: OccupiedEntry<'_, (usize, u32), Queue<R>>) {
    if queue.get().arrived.is_empty() && queue.get().posted.is_empty() {
        queue.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_receives_are_matched_in_the_order_of_both() {
        let mut mailbox = Mailbox::default();
        let (first, none) = mailbox.post(1, 7);
        assert_eq!(none, None);
        let (second, _) = mailbox.post(1, 7);
        assert_eq!(mailbox.deliver(2, 7, vec![9], "of another rank"), None);
        assert_eq!(mailbox.deliver(1, 8, vec![8], "with another tag"), None);
        assert_eq!(mailbox.probe(7), Some((2, 1)));
        assert_eq!(mailbox.deliver(1, 7, vec![1], "one"), Some("one"));
        assert_eq!(mailbox.take(second), None);
        assert_eq!(mailbox.take(first), Some(vec![1]));
        assert_eq!(mailbox.take(first), None, "once");
        // A receive that is withdrawn leaves the message to the next one.
        mailbox.cancel(second);
        assert_eq!(mailbox.deliver(1, 7, vec![2, 2], "two"), None);
        assert_eq!(mailbox.probe(7), Some((1, 2)));
        let (third, receipt) = mailbox.post(1, 7);
        assert_eq!((mailbox.take(third), receipt), (Some(vec![2, 2]), Some("two")));
        // One that has its message keeps it.
        let (fourth, receipt) = mailbox.post(1, 8);
        assert_eq!(receipt, Some("with another tag"));
        mailbox.cancel(fourth);
        assert_eq!(mailbox.take(fourth), Some(vec![8]));
        assert_eq!((mailbox.queues.len(), mailbox.matched.len()), (1, 0), "only what waits is kept");
    }
}
