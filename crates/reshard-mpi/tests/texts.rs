//! What one rank says at length costs the others its length once, and not once for each rank: counted where messages are made.
#![allow(clippy::unwrap_used)]

use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use reshard_mpi::transport::{MessageBuffer, Transport};
use reshard_plan::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts the bytes of the longest message.
struct Counted(Box<dyn Transport>, Arc<AtomicUsize>);

// SAFETY: all of it is done by the transport within.
#[allow(unsafe_code)]
unsafe impl Transport for Counted {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn groups(&self) -> [usize; 2] {
        self.0.groups()
    }

    fn number(&self, limit: Option<Duration>) -> Result<u64> {
        self.0.number(limit)
    }

    fn identity(&self) -> u128 {
        self.0.identity()
    }

    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        self.1.fetch_max(bytes, Ordering::Relaxed);
        self.0.buffer(bytes)
    }

    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        self.0.probe(tag)
    }
}

#[test]
fn texts_are_gathered_in_as_many_bytes_as_they_have() {
    let text = |rank: usize| match rank {
        3 => vec![7; 1 << 20],
        5 => vec![9; 153],
        _ => vec![rank as u8; 10 * rank],
    };
    for size in [4, 6, 20] {
        let longest = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for end in in_process::transports(size) {
                let longest = Arc::clone(&longest);
                scope.spawn(move || {
                    let rank = end.rank();
                    let comm = Communicator::new(Counted(end, longest));
                    let texts = comm.gather_texts(&text(rank), Some(Duration::from_secs(1200))).unwrap();
                    assert!(texts == (0..size).map(text).collect::<Vec<_>>(), "rank {rank} of {size}");
                });
            }
        });
        let longest = longest.load(Ordering::Relaxed);
        assert!(longest < (1 << 20) + 160 * size + 1000, "{longest} bytes for {size} ranks");
    }
}
