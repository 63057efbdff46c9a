//! The transport of ranks that are threads of one process. Messages are copied into the receiver's [`Mailbox`], under a lock: simple rather
//! than fast, and obviously right. All that is above a transport can be tested with it, without a launcher, a network or MPI;
//! and ranks can be cut off, as if they had been killed.

use super::buffer::{Carrier, MailboxBuffer};
use super::mailbox::Mailbox;
use super::{MessageBuffer, Transport};
use crate::node::random;
use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One rank among threads of this process.
#[derive(Clone)]
pub struct ThreadTransport {
    rank: usize,
    ranks: Arc<Ranks>,
}

/// What all ranks share.
struct Ranks {
    groups: [usize; 2],
    number: u64,
    /// By rank.
    ends: Vec<End>,
}

/// What all ranks share of one.
struct End {
    mailbox: Mutex<Mailbox<Receipt>>,
    /// Nothing reaches it any more, and nothing of it the others.
    cut: AtomicBool,
    /// Of the rank itself, whatever it communicates with.
    identity: u128,
}

/// The sender of a message and its number, if it is to be acknowledged.
type Receipt = Option<(usize, u64)>;

impl ThreadTransport {
    /// The ranks of two groups, those of the first group first.
    pub fn groups(groups: [usize; 2]) -> Vec<Self> {
        Self::with_identities(groups, (0..groups[0] + groups[1]).map(|_| random()).collect())
    }

    /// Another group of the same ranks, in the order of a list: as a split communicator is.
    pub fn regrouped(&self, order: &[usize]) -> Vec<Self> {
        let identities = order.iter().map(|&rank| self.ranks.ends[rank].identity).collect();
        Self::with_identities([order.len(), 0], identities)
    }

    fn with_identities(groups: [usize; 2], identities: Vec<u128>) -> Vec<Self> {
        let end = |identity| End { mailbox: Mutex::default(), cut: AtomicBool::new(false), identity };
        let ends: Vec<End> = identities.into_iter().map(end).collect();
        let number = random() as u64 >> 1 & !0xffff_ffff;
        let size = ends.len();
        let ranks = Arc::new(Ranks { groups, number, ends });
        (0..size).map(|rank| Self { rank, ranks: Arc::clone(&ranks) }).collect()
    }

    /// Cuts this rank off: what it sends from now on is lost, and so is what is sent to it.
    pub fn cut_off(&self) {
        self.ranks.ends[self.rank].cut.store(true, Ordering::Relaxed);
    }
}

impl Ranks {
    fn mailbox(&self, rank: usize) -> MutexGuard<'_, Mailbox<Receipt>> {
        self.ends[rank].mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self, rank: usize) -> bool {
        self.ends[rank].cut.load(Ordering::Relaxed)
    }
}

// SAFETY: messages are put into the receiver's mailbox under its lock, with rank and tag, and taken from there once. The number
// is one for all ranks; identities are drawn once for each.
#[allow(unsafe_code)]
unsafe impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn groups(&self) -> [usize; 2] {
        self.ranks.groups
    }

    fn number(&self, _: Option<Duration>) -> Result<u64> {
        Ok(self.ranks.number)
    }

    fn identity(&self) -> u128 {
        self.ranks.ends[self.rank].identity
    }

    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        Ok(Box::new(MailboxBuffer::new(self.clone(), bytes)?))
    }

    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        Ok(self.ranks.mailbox(self.rank).probe(tag))
    }
}

impl Carrier for ThreadTransport {
    type Receipt = Receipt;

    fn with_mailbox<T>(&self, act: impl FnOnce(&mut Mailbox<Receipt>) -> T) -> Result<T> {
        Ok(act(&mut self.ranks.mailbox(self.rank)))
    }

    fn carry(&self, bytes: &[u8], to: usize, tag: u32, number: Option<u64>) -> Result<()> {
        let end = self.ranks.ends.get(to).ok_or_else(|| {
            let what =
                format!("rank {to} was given, and there are {}", counted(self.ranks.ends.len(), "rank"));
            Error::new(ErrorKind::OutOfRange, what)
        })?;
        if self.ranks.is_cut(self.rank) || end.cut.load(Ordering::Relaxed) {
            return Ok(());
        }
        let receipt = number.map(|number| (self.rank, number));
        let matched = self.ranks.mailbox(to).deliver(self.rank, tag, bytes.to_vec(), receipt);
        matched.map_or(Ok(()), |receipt| self.acknowledge(receipt))
    }

    fn acknowledge(&self, receipt: Receipt) -> Result<()> {
        if let Some((sender, number)) = receipt
            && !self.ranks.is_cut(self.rank)
            && !self.ranks.is_cut(sender)
        {
            self.ranks.mailbox(sender).acknowledge(number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(from: &ThreadTransport, to: usize, tag: u32, synchronous: bool) -> Box<dyn MessageBuffer> {
        let mut buffer = from.buffer(4).unwrap();
        buffer.bytes().copy_from_slice(&[1, 2, 3, 4]);
        buffer.send(1..4, to, tag, synchronous).unwrap();
        buffer
    }

    #[test]
    fn a_synchronous_send_ends_when_its_receive_begins() {
        let ranks = ThreadTransport::groups([1, 2]);
        assert_eq!((ranks[2].rank(), ranks[2].groups(), ranks[2].size()), (2, [1, 2], 3));
        assert_eq!(ranks[0].number(None).unwrap(), ranks[2].number(None).unwrap());
        let (mut at_once, mut synchronous) = (sent(&ranks[0], 2, 5, false), sent(&ranks[0], 2, 5, true));
        assert_eq!(at_once.test().unwrap(), Some(0));
        assert_eq!(synchronous.test().unwrap(), None);
        assert!(synchronous.bytes().is_empty(), "not while it is in flight");
        assert_eq!(ranks[2].probe(5).unwrap(), Some((0, 3)));
        let mut buffer = ranks[2].buffer(8).unwrap();
        for _ in 0..2 {
            assert_eq!(synchronous.test().unwrap(), None);
            buffer.receive(0, 5).unwrap();
            assert_eq!(buffer.test().unwrap(), Some(3));
            assert_eq!(buffer.bytes()[..3], [2, 3, 4]);
        }
        assert_eq!(synchronous.test().unwrap(), Some(0));
        assert_eq!(ranks[2].probe(5).unwrap(), None);
    }

    #[test]
    fn receives_are_cancelled_and_messages_may_be_too_long() {
        let ranks = ThreadTransport::groups([2, 0]);
        let [mut first, mut second] = [0, 1].map(|_| ranks[1].buffer(2).unwrap());
        first.receive(0, 0).unwrap();
        first.cancel();
        assert_eq!(first.test().unwrap(), Some(0));
        second.receive(0, 0).unwrap();
        drop(sent(&ranks[0], 1, 0, false));
        let error = second.test().unwrap_err();
        assert!(error.to_string().contains("3 bytes came for a buffer of 2"), "{error}");
        assert!(second.is_free(), "a receive that failed is complete");
        let said = second.send(0..1, 2, 0, false).unwrap_err().to_string();
        assert!(said.contains("there are 2 ranks"), "{said}");
    }

    #[test]
    fn nothing_goes_to_or_from_a_rank_that_is_cut_off() {
        let ranks = ThreadTransport::groups([3, 0]);
        ranks[1].cut_off();
        let mut to = sent(&ranks[0], 1, 0, true);
        drop(sent(&ranks[1], 0, 0, false));
        assert_eq!(
            (to.test().unwrap(), ranks[0].probe(0).unwrap(), ranks[1].probe(0).unwrap()),
            (None, None, None)
        );
        drop(sent(&ranks[2], 0, 0, false));
        assert_eq!(ranks[0].probe(0).unwrap(), Some((2, 3)));
    }
}
