//! A transport between threads whose messages are as slow as MPI's: complete when they are received. And may be changed on their way.

#![allow(clippy::unwrap_used, dead_code)]

use reshard::Result;
use reshard_couple::World;
use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use reshard_mpi::transport::{MessageBuffer, Transport};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of a message to a rank.
pub type Change = Arc<dyn Fn(Vec<u8>, usize) -> Vec<u8> + Send + Sync>;

pub struct Wrapped {
    within: Arc<dyn Transport>,
    change: Change,
}

// SAFETY: all of it is done by the transport within.
#[allow(unsafe_code)]
unsafe impl Transport for Wrapped {
    fn rank(&self) -> usize {
        self.within.rank()
    }

    fn groups(&self) -> [usize; 2] {
        self.within.groups()
    }

    fn number(&self, limit: Option<Duration>) -> Result<u64> {
        self.within.number(limit)
    }

    fn identity(&self) -> u128 {
        self.within.identity()
    }

    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        let buffer = self.within.buffer(bytes)?;
        Ok(Box::new(Buffer { buffer, within: Arc::clone(&self.within), change: Arc::clone(&self.change) }))
    }

    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        self.within.probe(tag)
    }
}

struct Buffer {
    buffer: Box<dyn MessageBuffer>,
    within: Arc<dyn Transport>,
    change: Change,
}

impl MessageBuffer for Buffer {
    fn bytes(&mut self) -> &mut [u8] {
        self.buffer.bytes()
    }

    fn send(&mut self, bytes: Range<usize>, to: usize, tag: u32, _: bool) -> Result<()> {
        let message = (self.change)(self.buffer.bytes()[bytes].to_vec(), to);
        if message.len() > self.buffer.bytes().len() {
            self.buffer = self.within.buffer(message.len())?;
        }
        self.buffer.bytes()[..message.len()].copy_from_slice(&message);
        self.buffer.send(0..message.len(), to, tag, true)
    }

    fn receive(&mut self, from: usize, tag: u32) -> Result<()> {
        self.buffer.receive(from, tag)
    }

    fn test(&mut self) -> Result<Option<usize>> {
        self.buffer.test()
    }

    fn is_free(&self) -> bool {
        self.buffer.is_free()
    }

    fn cancel(&mut self) {
        self.buffer.cancel();
    }
}

/// A rank of a program: its communicators, of all and of its own program, and what carries frames.
pub struct Rank {
    all: Arc<Communicator>,
    own: Arc<Communicator>,
    frames: Wrapped,
}

impl Rank {
    /// Joins the others. Collective.
    pub fn world(self, program: &str, deadline: Duration) -> World {
        World::over(&self.all, &self.own, Box::new(self.frames), program, deadline).unwrap()
    }
}

/// The ranks of several programs of one world.
pub fn programs(
    sizes: &[usize],
    change: impl Fn(Vec<u8>, usize) -> Vec<u8> + Send + Sync + 'static,
) -> Vec<Vec<Rank>> {
    let all: usize = sizes.iter().sum();
    let change: Change = Arc::new(change);
    let mut ends = in_process::group(all).into_iter().zip(in_process::transports(all));
    let mut program = |size: &usize| {
        let rank = |own| {
            let (all, transport) = ends.next().unwrap();
            Rank { all, own, frames: Wrapped { within: transport.into(), change: Arc::clone(&change) } }
        };
        in_process::group(*size).into_iter().map(rank).collect()
    };
    sizes.iter().map(&mut program).collect()
}
