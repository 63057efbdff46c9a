//! Finds out, once for each communicator, whose memory a rank can map: by exchanging what tells machines apart and by trying,
//! as ranks in containers may be on one machine and still hidden from each other. MPI would have to be asked by a call that
//! waits for ever.

use super::{PageKind, Segment};
use crate::node::{Identity, Node, process};
use crate::private_comm::PrivateComm;
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes in which a rank says what it could not map.
const WORDS: usize = 256;

/// What a rank says of itself.
#[derive(Clone, Copy)]
struct Card {
    who: Identity,
    pid: u64,
    /// The file of a piece of its memory; none if it could not make any.
    fd: Option<u64>,
}

/// Stands for no file.
const NONE: u64 = u64::MAX;

impl Card {
    const BYTES: usize = 48;

    fn bytes(self) -> Vec<u8> {
        let Identity { process, machine, space } = self.who;
        let numbers = [machine, space, self.pid, self.fd.unwrap_or(NONE)];
        let numbers = numbers.into_iter().flat_map(u64::to_ne_bytes);
        process.to_ne_bytes().into_iter().chain(numbers).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let process = u128::from_ne_bytes(bytes[..16].try_into().unwrap_or_default());
        let fd = Some(number(40)).filter(|&fd| fd != NONE);
        let who = Identity { process, machine: number(16), space: number(24) };
        Self { who, pid: number(32), fd }
    }

    /// Whether the memory of a rank with this card can be mapped, and is really its.
    fn try_mapping(&self) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Mpi, why);
        let fd = self.fd.ok_or_else(|| refused("it could not make any".into()))?;
        let segment = Segment::open(self.pid, fd, 16, PageKind::Ordinary)
            .map_err(|error| refused(error.to_string()))?;
        let [low, high] = [0, 8].map(|at| segment.counter(at).load(Ordering::Acquire));
        if u128::from(high) << 64 | u128::from(low) != self.who.process {
            return Err(refused("what was found there is another process's".into()));
        }
        Ok(())
    }
}

impl PrivateComm {
    /// Whether all ranks are on one node and can map each other's memory. Collective the first time.
    pub fn is_one_node(&self, time: Option<Duration>) -> Result<bool> {
        Ok(self.node(time)?.apart().is_none())
    }

    /// This rank's node. Collective the first time.
    pub(crate) fn node(&self, limit: Option<Duration>) -> Result<&Node> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let process = process();
        let made = Segment::create(16, PageKind::Ordinary);
        let who = Identity { process, machine: machine().unwrap_or(process as u64), space: namespaces() };
        let mut card = Card { who, pid: u64::from(std::process::id()), fd: None };
        if let Ok((segment, file)) = &made {
            segment.counter(0).store(process as u64, Ordering::Release);
            segment.counter(8).store((process >> 64) as u64, Ordering::Release);
            card.fd = Some(file.as_raw_fd() as u64);
        }
        let cards = self.gather(&card.bytes(), limit)?;
        let cards: Vec<Card> = cards.chunks_exact(Card::BYTES).map(Card::from_bytes).collect();
        let near = |&(_, other): &(usize, &Card)| other.who.is_near(&who);
        let failed = cards.iter().enumerate().filter(near).find_map(|(rank, other)| {
            let why = other.try_mapping().err()?;
            Some(format!("rank {} cannot map the memory of rank {rank} ({why})", self.rank()))
        });
        let mut words = failed.unwrap_or_default().into_bytes();
        words.resize(WORDS, 0);
        // Also tells that all have tried: the file may be closed now.
        let words = self.gather(&words, limit)?;
        let failed: Vec<Option<String>> = words
            .chunks_exact(WORDS)
            .map(|words| {
                let text = String::from_utf8_lossy(words).trim_end_matches('\0').to_string();
                Some(text).filter(|text| !text.is_empty())
            })
            .collect();
        drop(made);
        let known: Vec<Identity> = cards.iter().map(|card| card.who).collect();
        Ok(self.node.get_or_init(|| Node::new(self.rank(), &known, &failed)))
    }
}

/// Stands for this machine since it was started.
fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut hasher = DefaultHasher::new();
    text.trim().hash(&mut hasher);
    Some(hasher.finish())
}

/// Stands for the namespaces of this process: of processes, because the others find its memory by its number, and of the
/// network, because hosts that were made of one machine are meant to be several.
fn namespaces() -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in ["pid", "net"] {
        std::fs::read_link(format!("/proc/self/ns/{name}")).ok().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_read_as_they_were_written() {
        let card = Card { who: Identity { process: 7 << 90 | 3, machine: 1, space: 2 }, pid: 3, fd: Some(4) };
        let read = Card::from_bytes(&card.bytes());
        assert_eq!(
            (read.who.process, read.who.machine, read.who.space, read.pid, read.fd),
            (7 << 90 | 3, 1, 2, 3, Some(4))
        );
        assert_eq!(Card::from_bytes(&Card { fd: None, ..card }.bytes()).fd, None);
    }
}
