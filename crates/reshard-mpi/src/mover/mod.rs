//! How bytes get from one process to another.
//!
//! | mover | how | when |
//! |---|---|---|
//! | `shared/` | each byte is read where it is, in memory all ranks of the node share, and written where it belongs; who copies what says `groups.rs`, who still reads `readers.rs` | sources are [`Shared`](crate::Shared), and destinations perhaps |
//! | `private/` | packed into small shared boxes (`queue.rs`), assembled from them | private arrays on one node |
//! | `messages/` | packed messages in the order of a schedule (`network.rs`, `barriers.rs`), those within a node through shared boxes (`in_node.rs`) | between nodes |
//!
//! A mover advances piece by piece and never waits: whoever runs it does, with [`Backoff`], which has an end. What
//! ranks of a node tell each other through shared memory is in types of its own (`word.rs`), which models drive, too.

mod backoff;
mod choice;
#[cfg(all(test, loom))]
mod loom_models;
pub mod messages;
#[allow(unsafe_code)]
pub mod private;
pub mod shared;
mod word;

pub use backoff::Backoff;
pub use choice::Mover;
pub use shared::array::Shared;

use reshard::engine::Buffers;
use reshard_plan::{Error, ErrorKind, Result};
use std::time::Duration;

/// What came of looking for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done, and there may be more.
    Moved,
    /// Others must do something first.
    Waits,
    /// The run is over.
    Done,
}

impl Progress {
    /// Of something that is not over.
    fn of(moved: bool) -> Self {
        if moved { Self::Moved } else { Self::Waits }
    }
}

/// What this rank did in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunCounters {
    /// Messages it sent, and steps of the whole schedule.
    pub messages: u64,
    pub steps: u64,
    pub pack: Duration,
    pub unpack: Duration,
    /// Where ranks share the copying: units that this one copied, whoever they were for.
    pub units: u64,
}

/// One rank's side of moving the arrays of a plan, again and again.
pub trait MoverBackend: Send {
    /// Whether a run is one call of MPI, which waits for the others.
    fn is_one_call(&self) -> bool {
        false
    }

    /// Refuses what it cannot do.
    fn check(&self, data: &Buffers<'_>) -> Result<()> {
        let _ = data;
        Ok(())
    }

    /// Begins a run. `call` stands for what the caller gave that must be alike on all ranks: numbers that scale, shared arrays.
    fn begin(&mut self, data: &mut Buffers<'_>, call: u64);

    /// Does a piece of it, if there is one to do. The data is the one the run began with, or one entered alike.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress>;

    /// The run failed, and nothing more will be done in it, or in any after it.
    fn give_up(&mut self) {}

    /// The run that would be next cannot be begun here, and neither can any after it.
    fn refuse(&mut self) {}

    /// The mover goes, after its last run has failed or not. False if a message of it may still be on its way, or MPI receive
    /// something for it.
    fn abandon(&mut self, failed: bool) -> bool {
        let _ = failed;
        true
    }

    /// Whom the run waits for.
    fn late(&self) -> String;

    /// What was done since the run began.
    fn tally(&self) -> RunCounters;

    /// Bytes this rank takes beside plan and data.
    fn scratch_bytes(&self) -> u64;
}

/// A mover that cannot do with the memory it was given.
pub fn too_little(memory: u64, needed: u64) -> Error {
    Error::new(
        ErrorKind::Memory,
        format!(
            "{memory} bytes were given for all ranks together; this mover needs at least {needed} bytes for this plan; give \
             more, or choose the mover `messages`, which can do with less"
        ),
    )
}

/// A run in which two ranks were called differently; said by the one that receives.
pub fn other_call(rank: usize, me: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {rank} gives other alpha, beta or arrays in this run than rank {me}; give the same on all ranks; the destination \
             is an unfinished mixture"
        ),
    )
}

/// "rank 3", "ranks 1 and 3", "ranks 1, 2 and 3": each once, in order.
pub fn named(ranks: impl IntoIterator<Item = usize>) -> String {
    let mut ranks: Vec<usize> = ranks.into_iter().collect();
    ranks.sort_unstable();
    ranks.dedup();
    let ranks: Vec<String> = ranks.into_iter().map(|rank| rank.to_string()).collect();
    match ranks.split_last() {
        None => "nobody".into(),
        Some((only, [])) => format!("rank {only}"),
        Some((last, before)) => format!("ranks {} and {last}", before.join(", ")),
    }
}
