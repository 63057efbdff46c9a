//! Memory that all ranks of a node reach, without a name that could be left behind.
//!
//! Each rank makes a segment of its own, anonymous and sized as it likes, and the others map it through the kernel's view of
//! its open files. When the last process goes, however it goes, the memory goes. A cookie at the beginning of each
//! segment tells whether the others really found it: on different nodes, or in containers that hide processes from each
//! other, they do not, and are told so.

mod array;
mod segment;

pub use array::Shared;
pub(crate) use segment::Pages;

use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use reshard_plan::{Error, ErrorKind, Result};
use segment::Segment;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Segments this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Bytes at the beginning of a segment that are not the caller's.
const HEAD: usize = 64;

/// The segments of all ranks of a communicator.
pub(crate) struct Neighbours {
    rank: usize,
    /// The same on all ranks, and another for other segments.
    number: u64,
    segments: Vec<Segment>,
}

/// What the others must know to map a segment.
#[derive(Clone, Copy, Default)]
struct Card {
    pid: u64,
    fd: u64,
    bytes: u64,
    cookie: u64,
}

impl Card {
    const BYTES: usize = 32;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.pid, self.fd, self.bytes, self.cookie]) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Self { pid: number(0), fd: number(8), bytes: number(16), cookie: number(24) }
    }
}

impl Neighbours {
    /// Makes a segment of so many bytes, all zero, and maps those of all others. Collective; fails on all ranks if it fails
    /// on one.
    pub fn share(comm: &Comm, bytes: usize, pages: Pages, limit: Option<Duration>) -> Result<Self> {
        let all_bytes = bytes.checked_add(HEAD).ok_or_else(|| too_large(bytes))?;
        let made = Segment::create(all_bytes, pages);
        let mut card = Card::default();
        if let Ok((segment, fd)) = &made {
            let cookie = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (segment.first().addr() as u64).rotate_left(20)
                ^ (MADE.fetch_add(1, Ordering::Relaxed) << 1)
                ^ 1;
            segment.counter(0).store(cookie, Ordering::Release);
            card = Card {
                pid: u64::from(std::process::id()),
                fd: fd.as_raw_fd() as u64,
                bytes: all_bytes as u64,
                cookie,
            };
        }
        let mut cards = vec![0; Card::BYTES * comm.size()];
        comm.all_gather_within(&card.to_bytes(), &mut cards, limit)?;
        let mapped = made.and_then(|(own, fd)| {
            let mut own = Some(own);
            let segments = cards
                .chunks_exact(Card::BYTES)
                .enumerate()
                .map(|(rank, card)| match own.take_if(|_| rank == comm.rank()) {
                    Some(own) => Ok(own),
                    None => map(rank, Card::from_bytes(card), pages),
                })
                .collect::<Result<Vec<_>>>()?;
            Ok((segments, fd))
        });
        let mut failed = [mapped.as_ref().err().map_or(0, |_| comm.rank() as u64 + 1)];
        // Also tells that everybody has mapped what it needs: the file may be closed now.
        comm.all_reduce_within(&mut failed, Reduce::Max, limit)?;
        let (segments, _) = mapped?;
        if failed[0] > 0 {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "rank {} could not share memory with the others: they are not on one node, or hidden from each other; \
                     use messages",
                    failed[0] - 1
                ),
            ));
        }
        // Now that nobody waits for it any more.
        segments[comm.rank()].make_huge();
        let mut hasher = DefaultHasher::new();
        cards.hash(&mut hasher);
        Ok(Self { rank: comm.rank(), number: hasher.finish(), segments })
    }

    /// What stands for a source and a destination, if that is shared, too.
    pub fn number(from: &Self, to: Option<&Self>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (from.number, to.map(|to| to.number)).hash(&mut hasher);
        hasher.finish()
    }

    /// Bytes of memory that a segment of so many takes.
    pub fn taken(bytes: usize, pages: Pages) -> usize {
        pages.taken(bytes.saturating_add(HEAD))
    }

    /// A counter in the segment of a rank, at a multiple of 8.
    pub fn counter(&self, rank: usize, at: usize) -> &AtomicU64 {
        self.segments[rank].counter(HEAD + at)
    }

    /// Where a byte of a rank's segment lies, with at least `bytes` behind it.
    pub fn place(&self, rank: usize, at: usize, bytes: usize) -> *mut u8 {
        let segment = &self.segments[rank];
        assert!(
            HEAD + at + bytes <= segment.bytes(),
            "{bytes} bytes at {at} of rank {rank}'s {}",
            segment.bytes()
        );
        segment.first().wrapping_add(HEAD + at)
    }

    /// Where the bytes of a rank's segment begin, if it has at least so many.
    pub fn part(&self, rank: usize, bytes: u64) -> Result<*mut u8> {
        let has = (self.segments[rank].bytes() - HEAD) as u64;
        if has < bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "rank {rank} shares {has} bytes, but its layout reaches over {bytes}; let it make a longer part"
                ),
            ));
        }
        Ok(self.place(rank, 0, bytes as usize))
    }

    /// How many ranks have one.
    pub fn ranks(&self) -> usize {
        self.segments.len()
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

fn map(rank: usize, card: Card, pages: Pages) -> Result<Segment> {
    let refused = |why: String| {
        Error::new(
            ErrorKind::Mpi,
            format!(
                "the memory of rank {rank} cannot be shared ({why}): it is on another node, or hidden; use messages"
            ),
        )
    };
    if card.bytes == 0 {
        return Err(refused("it could not make any".into()));
    }
    let segment = Segment::open(card.pid, card.fd, card.bytes as usize, pages)
        .map_err(|error| refused(error.to_string()))?;
    if segment.counter(0).load(Ordering::Acquire) != card.cookie {
        return Err(refused("what was found is something else".into()));
    }
    Ok(segment)
}

fn too_large(bytes: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("{bytes} bytes of shared memory are more than can be addressed"))
}
