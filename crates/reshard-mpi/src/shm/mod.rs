//! Shared memory of the ranks of a node, without a name that could be left behind.
//!
//! Each rank makes a segment of its own, anonymous and of any size, and the others map it through `/proc/<pid>/fd`. When
//! the last process exits, however it does, the memory is freed. A random number at the beginning of each segment, and its
//! owner's rank, prove that the others really found it: on different nodes, or in containers that hide processes from each
//! other, they do not, and get an error.

mod discovery;
mod segment;

use segment::longest_file;
pub(crate) use segment::{PageKind, Segment};

use crate::agree::agree_on_result;
use crate::communicator::Communicator;
use crate::node::random;
use reshard_plan::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes at the beginning of a segment that identify it and are not the caller's.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;

/// The segments of all ranks of a node, by their rank in the communicator.
pub(crate) struct NodeMemory {
    rank: usize,
    /// A fingerprint of the segments: equal on all ranks, different for other segments.
    fingerprint: u64,
    /// By rank; none for ranks on other nodes.
    segments: Vec<Option<Segment>>,
    /// The unique process numbers of all ranks, by rank.
    processes: Vec<u128>,
}

/// What other ranks must know to map a segment.
#[derive(Clone, Copy, Default)]
struct SegmentInfo {
    pid: u64,
    fd: u64,
    bytes: u64,
    /// The random number at the beginning of the segment.
    identity: u128,
}

impl SegmentInfo {
    const BYTES: usize = 40;

    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.pid, self.fd, self.bytes].into_iter().flat_map(u64::to_ne_bytes);
        self.identity.to_ne_bytes().into_iter().chain(numbers).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let identity = u128::from_ne_bytes(bytes[..16].try_into().unwrap_or_default());
        Self { pid: number(16), fd: number(24), bytes: number(32), identity }
    }
}

impl NodeMemory {
    /// Makes a segment of `bytes` bytes, all zero, and maps those of all other ranks of this node. Collective over the whole
    /// communicator; fails on all ranks if it fails on one.
    pub fn share(
        comm: &Communicator,
        bytes: usize,
        pages: PageKind,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let node = comm.node(limit)?;
        let all_bytes = bytes.checked_add(SEGMENT_HEADER_BYTES).ok_or_else(|| too_large(bytes, 1));
        let made = all_bytes.and_then(|bytes| Segment::create(bytes, pages).map(|made| (made, bytes)));
        let mut info = SegmentInfo::default();
        if let Ok(((segment, fd), bytes)) = &made {
            let identity = random();
            segment.counter(0).store(identity as u64, Ordering::Release);
            segment.counter(8).store((identity >> 64) as u64, Ordering::Release);
            segment.counter(16).store(comm.rank() as u64, Ordering::Release);
            info = SegmentInfo {
                pid: u64::from(std::process::id()),
                fd: fd.as_raw_fd() as u64,
                bytes: *bytes as u64,
                identity,
            };
        }
        let infos = comm.gather(&info.to_bytes(), limit)?;
        let mapped = made.and_then(|((own, fd), _)| {
            let mut segments: Vec<Option<Segment>> = (0..comm.size()).map(|_| None).collect();
            for &rank in node.ranks().iter().filter(|&&rank| rank != comm.rank()) {
                let info = SegmentInfo::from_bytes(
                    &infos[rank * SegmentInfo::BYTES..(rank + 1) * SegmentInfo::BYTES],
                );
                segments[rank] = Some(map(rank, info, pages)?);
            }
            segments[comm.rank()] = Some(own);
            Ok((segments, fd))
        });
        // Also a barrier: every rank has mapped what it needs, and the file may be closed now.
        let (segments, _) = agree_on_result("shared memory", mapped, comm, limit)?;
        // Only now, as no rank waits for this one any more.
        if let Some(own) = &segments[comm.rank()] {
            own.make_huge();
        }
        let mut hasher = DefaultHasher::new();
        infos.hash(&mut hasher);
        let processes = node.processes().to_vec();
        Ok(Self { rank: comm.rank(), fingerprint: hasher.finish(), segments, processes })
    }

    /// A fingerprint of a source, and of the destination if that is shared, too.
    pub fn fingerprint(from: &Self, to: Option<&Self>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (from.fingerprint, to.map(|to| to.fingerprint)).hash(&mut hasher);
        hasher.finish()
    }

    /// True if the ranks of a communicator are these processes, in the same order.
    pub fn belong_to(&self, comm: &Communicator) -> bool {
        comm.node.get().is_some_and(|node| node.processes() == self.processes)
    }

    /// Bytes of memory that a segment of `bytes` bytes takes.
    pub fn taken(bytes: usize, pages: PageKind) -> usize {
        pages.taken(bytes.saturating_add(SEGMENT_HEADER_BYTES))
    }

    /// The segment of a rank of this node.
    fn segment(&self, rank: usize) -> &Segment {
        self.segments[rank].as_ref().expect("a rank of this node")
    }

    /// The counter at byte offset `at`, a multiple of 8, of a rank's segment.
    pub fn counter(&self, rank: usize, at: usize) -> &AtomicU64 {
        self.segment(rank).counter(SEGMENT_HEADER_BYTES + at)
    }

    /// The address of byte offset `at` of a rank's segment. Panics unless `bytes` bytes follow.
    pub fn place(&self, rank: usize, at: usize, bytes: usize) -> *mut u8 {
        let segment = self.segment(rank);
        let end = SEGMENT_HEADER_BYTES.checked_add(at).and_then(|at| at.checked_add(bytes));
        assert!(
            end.is_some_and(|end| end <= segment.bytes()),
            "{bytes} bytes at {at} of rank {rank}'s {}",
            segment.bytes()
        );
        segment.first().wrapping_add(SEGMENT_HEADER_BYTES + at)
    }

    /// The address of a rank's segment. Fails unless it holds `elems` elements of `elem_bytes` bytes.
    pub fn part(&self, rank: usize, elems: u64, elem_bytes: u64) -> Result<*mut u8> {
        let has =
            self.segments[rank].as_ref().map_or(0, |segment| (segment.bytes() - SEGMENT_HEADER_BYTES) as u64);
        let bytes = u128::from(elems) * u128::from(elem_bytes);
        if u128::from(has) < bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "rank {rank} shares {has} bytes, but its layout spans {bytes}; let it make a longer part"
                ),
            ));
        }
        Ok(self.place(rank, 0, bytes as usize))
    }

    /// Ranks of the communicator.
    pub fn ranks(&self) -> usize {
        self.segments.len()
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

/// Maps a rank's segment and checks that it is the one the rank meant.
fn map(rank: usize, info: SegmentInfo, pages: PageKind) -> Result<Segment> {
    let refused = |why: String| {
        Error::new(
            ErrorKind::External,
            format!(
                "the memory of rank {rank} cannot be shared ({why}): it is on another node, or hidden; use messages"
            ),
        )
    };
    if info.bytes == 0 {
        return Err(refused("it could not make any".into()));
    }
    let segment = Segment::open(info.pid, info.fd, info.bytes as usize, pages)
        .map_err(|error| refused(error.to_string()))?;
    let [low, high, owner] = [0, 8, 16].map(|at| segment.counter(at).load(Ordering::Acquire));
    let identity = u128::from(high) << 64 | u128::from(low);
    if (identity, owner) != (info.identity, rank as u64) {
        return Err(refused("what was found is something else".into()));
    }
    Ok(segment)
}

pub(crate) fn too_large(elems: usize, elem_bytes: usize) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "{elems} elements of {elem_bytes} bytes were asked for in shared memory, more than can be addressed; ask for less"
        ),
    )
}
