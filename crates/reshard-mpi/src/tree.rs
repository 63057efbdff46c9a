//! An exchange of all ranks over a tree, with a timeout that names who is missing: every rank's bytes go up, joined on the
//! way; what the root makes of them goes down to all. Agreements and gathers are such exchanges.
//!
//! A collective of MPI would be a call without a name for the rank that does not come, and other transports have none. Each
//! exchange has a sequence number, so that no late message is taken for one of another.

use crate::transport::{MessageBuffer, Transport, cancel_all};
use reshard_plan::{Error, ErrorKind, Result};
use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// Children of a rank in the tree.
const TREE_ARITY: usize = 8;

/// Added to the timeout for each level of the tree below a rank, so that the parent of a missing rank reports it first.
const GRACE_PER_LEVEL: Duration = Duration::from_millis(500);

/// More exchanges than any communicator has; the sequence numbers of two communicators are further apart.
const MAX_EXCHANGES: u64 = 1 << 32;

/// Bytes before those of a message: its sequence number, and the first rank that did not answer, plus one.
pub const HEAD_BYTES: usize = 16;

/// Polls before a rank yields the processor.
const MAX_SPINS: u32 = 100;

/// One rank's side of an exchange.
pub struct TreeExchange<'t> {
    pub transport: &'t dyn Transport,
    pub sequence: u64,
    /// The tag of messages up the tree; the next one is that of messages down.
    pub tag: u32,
    pub limit: Option<Duration>,
}

/// What has come up to a rank, or down to it.
struct Message {
    missing: u64,
    bytes: Vec<u8>,
}

impl TreeExchange<'_> {
    /// Exchanges. `own` goes up, after `join` has joined it with what each child sent; a rank sends `up_bytes(rank)` bytes. The
    /// root sends `root(joined)`, of `down_bytes` bytes, down to all. Returns that, or the first rank that did not answer in
    /// time.
    pub fn run(
        &self,
        own: Vec<u8>,
        up_bytes: impl Fn(usize) -> usize,
        join: impl Fn(&mut Vec<u8>, &[u8]),
        root: impl FnOnce(Vec<u8>) -> Vec<u8>,
        down_bytes: usize,
    ) -> Result<std::result::Result<Vec<u8>, usize>> {
        let (begin, rank, size) = (Instant::now(), self.transport.rank(), self.transport.size());
        let left = |levels: u32| {
            self.limit
                .map(|limit| limit.saturating_add(GRACE_PER_LEVEL * levels).saturating_sub(begin.elapsed()))
        };
        let mut joined = Message { missing: 0, bytes: own };
        let mut silent = Vec::new();
        for child in children(rank, size) {
            match self.receive(child, self.tag, up_bytes(child), || left(levels(rank, size)))? {
                Some(said) => {
                    joined.missing = if joined.missing == 0 { said.missing } else { joined.missing };
                    join(&mut joined.bytes, &said.bytes);
                }
                None => {
                    silent.push(child);
                    joined.missing = if joined.missing == 0 { child as u64 + 1 } else { joined.missing };
                }
            }
        }
        if rank > 0 {
            let parent = (rank - 1) / TREE_ARITY;
            // Shorter only if somebody is missing, and then nobody reads it.
            joined.bytes.resize(up_bytes(rank), 0);
            let mut said = self.send(&joined, parent, self.tag)?;
            joined = match self.receive(parent, self.tag + 1, down_bytes, || left(levels(0, size) + 2))? {
                Some(found) => found,
                None if joined.missing == 0 => Message { missing: parent as u64 + 1, bytes: Vec::new() },
                None => joined,
            };
            wait_within(&mut *said, left(levels(0, size) + 2))?;
        } else if joined.missing == 0 {
            joined.bytes = root(joined.bytes);
        }
        joined.bytes.resize(down_bytes, 0);
        for child in children(rank, size) {
            let mut said = self.send(&joined, child, self.tag + 1)?;
            if !silent.contains(&child) {
                wait_within(&mut *said, left(levels(0, size) + 2))?;
            }
        }
        Ok(match joined.missing.checked_sub(1) {
            None => Ok(joined.bytes),
            Some(missing) => Err(missing as usize),
        })
    }

    fn send(&self, message: &Message, to: usize, tag: u32) -> Result<Box<dyn MessageBuffer>> {
        let head = [self.sequence.to_ne_bytes(), message.missing.to_ne_bytes()];
        send_once(self.transport, &[head.as_flattened(), &message.bytes].concat(), to, tag)
    }

    /// Receives the message of a rank for this exchange; none on timeout. Late messages of earlier exchanges are dropped.
    fn receive(
        &self,
        from: usize,
        tag: u32,
        bytes: usize,
        left: impl Fn() -> Option<Duration>,
    ) -> Result<Option<Message>> {
        let mut buffer = self.transport.buffer(HEAD_BYTES + bytes)?;
        loop {
            buffer.receive(from, tag)?;
            if !wait_within(&mut *buffer, left())? {
                cancel_all([&mut buffer].into_iter());
                return Ok(None);
            }
            let length = buffer.test()?.unwrap_or(0);
            let (head, rest) = buffer.bytes().split_at(HEAD_BYTES);
            let number = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
            let sequence = number(0);
            if length < HEAD_BYTES || (sequence == self.sequence && length != HEAD_BYTES + bytes) {
                return Err(Error::new(
                    ErrorKind::External,
                    format!(
                        "rank {from} makes something else on this communicator than this rank: all ranks must make engines, rings and \
                         shared arrays in the same order; nothing was moved"
                    ),
                ));
            }
            match sequence.cmp(&self.sequence) {
                Ordering::Equal => return Ok(Some(Message { missing: number(8), bytes: rest.to_vec() })),
                Ordering::Greater if sequence - self.sequence < MAX_EXCHANGES => {
                    return Err(Error::new(
                        ErrorKind::External,
                        format!(
                            "rank {from} has made more on this communicator than this rank: all ranks must make engines, rings and \
                             shared arrays in the same order; nothing was moved"
                        ),
                    ));
                }
                // A late message, or one of another communicator.
                Ordering::Less | Ordering::Greater => {}
            }
        }
    }
}

/// The error of an exchange in which a rank did not answer.
pub fn no_answer(rank: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {rank} did not answer in time: it has exited, is stuck, or never made the call; call this on all ranks of the \
             communicator, or allow more time; nothing was moved"
        ),
    )
}

/// Gathers the bytes of all ranks on all ranks, in the order of ranks; all know how many those of each rank are. Returns them, or the first
/// rank that did not answer in time.
pub fn gather(
    exchange: &TreeExchange<'_>,
    mine: &[u8],
    length: impl Fn(usize) -> usize,
) -> Result<std::result::Result<Vec<u8>, usize>> {
    let size = exchange.transport.size();
    let subtree = |rank: usize| {
        let mut list = Vec::new();
        list_subtree(rank, size, &mut list);
        list
    };
    let join = |joined: &mut Vec<u8>, said: &[u8]| joined.extend_from_slice(said);
    // Each rank's own comes before those of its children.
    let in_order = |joined: Vec<u8>| {
        let mut begins: Vec<usize> = (0..size).map(&length).collect();
        let mut begin = 0;
        begins.iter_mut().for_each(|one| begin += std::mem::replace(one, begin));
        let (mut all, mut rest) = (vec![0; joined.len()], joined.as_slice());
        for rank in subtree(0) {
            let (own, after) = rest.split_at(length(rank));
            all[begins[rank]..][..own.len()].copy_from_slice(own);
            rest = after;
        }
        all
    };
    let up_bytes = |rank: usize| subtree(rank).into_iter().map(&length).sum();
    exchange.run(mine.to_vec(), up_bytes, join, in_order, (0..size).map(&length).sum())
}

/// Begins to send a message with a buffer of its own.
pub fn send_once(
    transport: &dyn Transport,
    bytes: &[u8],
    to: usize,
    tag: u32,
) -> Result<Box<dyn MessageBuffer>> {
    let mut buffer = transport.buffer(bytes.len())?;
    buffer.bytes().copy_from_slice(bytes);
    buffer.send(0..bytes.len(), to, tag, false)?;
    Ok(buffer)
}

fn children(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (rank * TREE_ARITY + 1..).take(TREE_ARITY).take_while(move |&child| child < size)
}

/// Levels of the tree below a rank.
fn levels(mut rank: usize, size: usize) -> u32 {
    let mut levels = 0;
    while rank * TREE_ARITY + 1 < size {
        rank = rank * TREE_ARITY + 1;
        levels += 1;
    }
    levels
}

/// Lists the ranks of a subtree, each before its children.
fn list_subtree(rank: usize, size: usize, list: &mut Vec<usize>) {
    list.push(rank);
    children(rank, size).for_each(|child| list_subtree(child, size, list));
}

/// Waits for a message; false on timeout.
pub fn wait_within(message: &mut dyn MessageBuffer, within: Option<Duration>) -> Result<bool> {
    let begin = Instant::now();
    let mut polls = 0_u32;
    while message.test()?.is_none() {
        if within.is_some_and(|within| begin.elapsed() > within) {
            return Ok(false);
        }
        polls = polls.saturating_add(1);
        if polls < MAX_SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ThreadTransport;

    fn gathered(
        ranks: Vec<ThreadTransport>,
        limit: Duration,
    ) -> Vec<Result<std::result::Result<Vec<u8>, usize>>> {
        std::thread::scope(|scope| {
            let gather = |rank: ThreadTransport| {
                let exchange = TreeExchange { transport: &rank, sequence: 5, tag: 1, limit: Some(limit) };
                gather(&exchange, &[rank.rank() as u8, 7], |_| 2)
            };
            let all: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || gather(rank))).collect();
            all.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_gather_the_bytes_of_all_in_the_order_of_ranks() {
        for size in [1, 2, 8, 9, 10, 30, 75] {
            let all: Vec<u8> = (0..size as u8).flat_map(|rank| [rank, 7]).collect();
            for (rank, found) in
                gathered(ThreadTransport::groups([size, 0]), Duration::from_secs(20)).into_iter().enumerate()
            {
                assert_eq!(found.unwrap().unwrap(), all, "rank {rank} of {size}");
            }
        }
    }

    /// As many bytes of each rank as it has, some none.
    #[test]
    fn ranks_may_have_bytes_of_other_lengths() {
        let length = |rank: usize| if rank.is_multiple_of(3) { 0 } else { 5 * rank };
        for size in [1, 2, 9, 10, 75] {
            let all: Vec<u8> = (0..size).flat_map(|rank| vec![rank as u8; length(rank)]).collect();
            std::thread::scope(|scope| {
                for rank in ThreadTransport::groups([size, 0]) {
                    let all = &all;
                    scope.spawn(move || {
                        let limit = Some(Duration::from_secs(20));
                        let exchange = TreeExchange { transport: &rank, sequence: 5, tag: 1, limit };
                        let mine = vec![rank.rank() as u8; length(rank.rank())];
                        let found = gather(&exchange, &mine, length).unwrap().unwrap();
                        assert!(found == *all, "rank {} of {size}", rank.rank());
                    });
                }
            });
        }
    }

    /// Bytes of two lengths are not taken for each other, on whichever rank the longer ones are.
    #[test]
    fn a_gather_of_other_lengths_is_refused() {
        for longer in 0..2 {
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let gather = |rank: ThreadTransport| {
                    let limit = Some(Duration::from_millis(200));
                    let exchange = TreeExchange { transport: &rank, sequence: 5, tag: 1, limit };
                    let mine = if rank.rank() == longer { &[1; 8][..] } else { &[1; 4] };
                    gather(&exchange, mine, |_| mine.len())
                };
                let ranks = ThreadTransport::groups([2, 0]).into_iter();
                let all: Vec<_> = ranks.map(|rank| scope.spawn(move || gather(rank))).collect();
                all.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            let named = outcomes[0].as_ref().expect_err("rank 1 gives another length").to_string();
            assert!(named.contains("rank 1 makes something else") || named.contains("bytes came"), "{named}");
            assert!(!matches!(outcomes[1], Ok(Ok(_))), "nobody has gathered anything");
        }
    }

    #[test]
    fn all_ranks_name_the_one_that_does_not_come() {
        // A leaf below rank 1.
        let mut ranks = ThreadTransport::groups([12, 0]);
        ranks.remove(10);
        for found in gathered(ranks, Duration::from_millis(100)) {
            assert_eq!(found.unwrap(), Err(10));
        }
    }
}
