//! The ranks of this rank's node: those whose memory it can map, and that can map its own.
//!
//! Found out once for each communicator, by exchanging what tells machines apart and by trying: ranks in containers may be on
//! one machine and still hidden from each other. MPI would have to be asked by a call that waits for ever.

use crate::private::Private;
use crate::shared::{Pages, Segment};
use reshard_plan::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes in which a rank says what it could not map.
const WORDS: usize = 256;

/// The ranks that share this one's memory.
pub struct Node {
    /// By their rank in the communicator, ascending.
    ranks: Vec<usize>,
    largest: usize,
    /// A number for each rank's process that no other has, by rank.
    processes: Vec<u128>,
    /// Why not all ranks are on one node; nothing if they are.
    apart: Option<String>,
}

/// What a rank says of itself.
#[derive(Clone, Copy)]
struct Card {
    process: u128,
    machine: u64,
    /// The namespaces in which processes, and in which addresses, have their meaning.
    space: u64,
    pid: u64,
    /// The file of a piece of its memory; none if it could not make any.
    fd: Option<u64>,
}

/// Stands for no file.
const NONE: u64 = u64::MAX;

impl Card {
    const BYTES: usize = 48;

    fn bytes(self) -> Vec<u8> {
        let numbers = [self.machine, self.space, self.pid, self.fd.unwrap_or(NONE)];
        let numbers = numbers.into_iter().flat_map(u64::to_ne_bytes);
        self.process.to_ne_bytes().into_iter().chain(numbers).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let process = u128::from_ne_bytes(bytes[..16].try_into().unwrap_or_default());
        let fd = Some(number(40)).filter(|&fd| fd != NONE);
        Self { process, machine: number(16), space: number(24), pid: number(32), fd }
    }

    /// Two ranks may be able to see each other's files.
    fn is_near(&self, other: &Self) -> bool {
        (self.machine, self.space) == (other.machine, other.space)
    }

    /// Whether the memory of a rank with this card can be mapped, and is really its.
    fn try_mapping(&self) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Mpi, why);
        let fd = self.fd.ok_or_else(|| refused("it could not make any".into()))?;
        let segment =
            Segment::open(self.pid, fd, 16, Pages::Ordinary).map_err(|error| refused(error.to_string()))?;
        let [low, high] = [0, 8].map(|at| segment.counter(at).load(Ordering::Acquire));
        if u128::from(high) << 64 | u128::from(low) != self.process {
            return Err(refused("what was found there is another process's".into()));
        }
        Ok(())
    }
}

impl Private {
    /// This rank's node. Collective the first time.
    pub(crate) fn node(&self, limit: Option<Duration>) -> Result<&Node> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let process = process();
        let made = Segment::create(16, Pages::Ordinary);
        let mut card = Card {
            process,
            machine: machine().unwrap_or(process as u64),
            space: namespaces(),
            pid: u64::from(std::process::id()),
            fd: None,
        };
        if let Ok((segment, file)) = &made {
            segment.counter(0).store(process as u64, Ordering::Release);
            segment.counter(8).store((process >> 64) as u64, Ordering::Release);
            card.fd = Some(file.as_raw_fd() as u64);
        }
        let cards = self.gather(&card.bytes(), limit)?;
        let cards: Vec<Card> = cards.chunks_exact(Card::BYTES).map(Card::from_bytes).collect();
        let near = |&(_, other): &(usize, &Card)| other.is_near(&card);
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
        Ok(self.node.get_or_init(|| Node::new(self.rank(), &cards, &failed)))
    }
}

impl Node {
    /// Ranks with the same machine and namespaces are a node, if all of them could map each other's memory; else each is alone.
    fn new(me: usize, cards: &[Card], failed: &[Option<String>]) -> Self {
        let mut nodes: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        for (rank, card) in cards.iter().enumerate() {
            nodes.entry((card.machine, card.space)).or_default().push(rank);
        }
        let is_whole = |ranks: &&Vec<usize>| ranks.iter().all(|&rank| failed[rank].is_none());
        let largest = nodes.values().filter(is_whole).map(Vec::len).max().unwrap_or(1);
        let mine = nodes.get(&(cards[me].machine, cards[me].space)).filter(is_whole);
        let ranks = mine.cloned().unwrap_or_else(|| vec![me]);
        let apart = failed.iter().flatten().next().cloned().or_else(|| {
            let other = cards.iter().position(|card| !card.is_near(&cards[0]))?;
            Some(match cards[other].machine == cards[0].machine {
                true => format!("ranks 0 and {other} are in different namespaces of one machine"),
                false => format!("ranks 0 and {other} are on different machines"),
            })
        });
        Self { ranks, largest, processes: cards.iter().map(|card| card.process).collect(), apart }
    }

    /// Its ranks, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Whether it has a rank.
    pub fn has(&self, rank: usize) -> bool {
        self.place(rank).is_some()
    }

    /// Which of its ranks a rank is.
    pub fn place(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }

    /// Whether it has more ranks than processors.
    pub fn is_crowded(&self) -> bool {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.ranks.len() > processors
    }

    /// Ranks of the node that has most, the same on all ranks.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Why not all ranks are on one node; nothing if they are.
    pub fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// The processes of all ranks.
    pub fn processes(&self) -> &[u128] {
        &self.processes
    }
}

/// A number that nobody else draws: the standard library's hashers are seeded by the system.
pub fn random() -> u128 {
    let seeded = RandomState::new();
    u128::from(seeded.hash_one(0)) << 64 | u128::from(seeded.hash_one(1))
}

/// This process's number.
fn process() -> u128 {
    static PROCESS: OnceLock<u128> = OnceLock::new();
    *PROCESS.get_or_init(random)
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

    fn card(machine: u64, space: u64) -> Card {
        Card { process: 0, machine, space, pid: 0, fd: None }
    }

    #[test]
    fn ranks_are_on_a_node_if_they_say_so_and_can_map_each_other() {
        let cards = [card(1, 1), card(2, 1), card(1, 1), card(1, 2)];
        let well = vec![None; 4];
        let node = Node::new(0, &cards, &well);
        assert_eq!((node.ranks(), node.largest()), (&[0, 2][..], 2));
        assert!(node.apart().unwrap().contains("ranks 0 and 1 are on different machines"));
        assert!(Node::new(0, &[cards[0], cards[2]], &well).apart().is_none());
        assert!(Node::new(1, &[cards[0], cards[3]], &well).apart().unwrap().contains("namespaces"));
        let failed = [None, None, Some("rank 2 cannot".into()), None];
        let node = Node::new(0, &cards, &failed);
        assert_eq!((node.ranks(), node.largest(), node.apart()), (&[0][..], 1, Some("rank 2 cannot")));
    }

    #[test]
    fn cards_read_as_they_were_written() {
        let card = Card { process: 7 << 90 | 3, machine: 1, space: 2, pid: 3, fd: Some(4) };
        let read = Card::from_bytes(&card.bytes());
        assert_eq!(
            (read.process, read.machine, read.space, read.pid, read.fd),
            (7 << 90 | 3, 1, 2, 3, Some(4))
        );
        assert_eq!(Card::from_bytes(&Card { fd: None, ..card }.bytes()).fd, None);
    }
}
