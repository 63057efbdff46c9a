//! How bytes get from one process to another: one folder for each kind of mover, named as the flag is.
//!
//! | folder | how | when |
//! |---|---|---|
//! | `shared/` | one copy: each byte is read where it is, in memory that all ranks of the node map, and written where it belongs; `groups.rs` says who copies which tasks, `readers.rs` who still reads | sources are [`Shared`](crate::Shared), and perhaps destinations |
//! | `private/` | two copies: packed into small staging buffers in shared memory (`queue.rs`), assembled from them | private arrays on one node |
//! | `cma/` | one copy by the system, out of the other process's private memory (`system.rs`), while its owner waits (`offers.rs`) | private arrays on one node with long runs; tried by `private/` |
//! | `messages/` | packed messages in the order of a schedule (`network.rs`, `barriers.rs`), those within a node through double buffers in shared memory (`in_node.rs`) | between nodes |
//!
//! `gather.rs` is no mover: by it ranks of a node tell each other everything about a small array, and the array, in one round.
//!
//! A mover advances task by task and never blocks: its driver waits, with [`Backoff`], which has a deadline. Everything that
//! ranks of a node tell each other through shared memory is in types of its own (`word.rs`), which loom models drive, too.

mod backoff;
mod choice;
#[allow(unsafe_code)]
pub mod cma;
#[allow(unsafe_code)]
pub mod gather;
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

/// The result of one attempt to do a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done, and there may be more.
    Moved,
    /// Other ranks must do something first.
    Waits,
    /// The run is over.
    Done,
}

impl Progress {
    /// The progress of a run that is not over.
    fn of(moved: bool) -> Self {
        if moved { Self::Moved } else { Self::Waits }
    }
}

/// What this rank did in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunCounters {
    /// Messages this rank sent.
    pub messages: u64,
    /// Steps of the whole schedule.
    pub steps: u64,
    /// Time spent packing.
    pub pack: Duration,
    /// Time spent unpacking or assembling.
    pub unpack: Duration,
    /// Tasks this rank copied, whichever rank receives them; 0 unless the mover copies by tasks.
    pub tasks: u64,
}

/// One rank's side of moving the arrays of a plan, run after run.
pub trait MoverBackend: Send {
    /// True if a run is one blocking collective of MPI.
    fn is_one_call(&self) -> bool {
        false
    }

    /// Refuses data that this mover cannot move.
    fn check(&self, data: &Buffers<'_>) -> Result<()> {
        let _ = data;
        Ok(())
    }

    /// Begins a run. `call` is a fingerprint of the arguments that must be equal on all ranks: the numbers that scale, and
    /// the shared arrays.
    fn begin(&mut self, data: &mut Buffers<'_>, call: u64);

    /// Does a part of the run, if there is one to do. `data` is what the run began with, or was entered alike.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress>;

    /// Aborts the run: nothing more will be done in it, or in any after it.
    fn abort(&mut self) {}

    /// The next run cannot be begun on this rank, and neither can any after it.
    fn skip_run(&mut self) {}

    /// Ends the use of this mover, after its last run has failed or not. False if a message of it may still be in flight, or
    /// the transport may still receive something for it.
    fn shut_down(&mut self, failed: bool) -> bool {
        let _ = failed;
        true
    }

    /// The ranks that the run waits for, in words.
    fn awaited(&self) -> String;

    /// What was done since the run began.
    fn counters(&self) -> RunCounters;

    /// Bytes this rank takes beside plan and data.
    fn scratch_bytes(&self) -> u64;
}

/// Refuses scaling, for movers that let others copy, MPI or the system: nothing carries alpha and beta that the ranks could
/// compare.
pub fn check_unscaled(data: &Buffers<'_>, call: &str) -> Result<()> {
    match data.is_scaled() {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the mover that calls {call} does not scale; choose another mover, or give no alpha, beta or conjugation"
            ),
        )),
    }
}

/// The error of a mover that needs more memory than it was given.
pub fn too_little_memory(memory: u64, needed: u64) -> Error {
    Error::new(
        ErrorKind::Memory,
        format!(
            "{memory} bytes were given for all ranks together; this mover needs at least {needed} bytes for this plan; give \
             more, or choose the mover `messages`, which can do with less"
        ),
    )
}

/// The error of a run in which `rank` was called with other arguments than `me`, which receives from it.
pub fn call_mismatch(rank: usize, me: usize) -> Error {
    Error::new(
        ErrorKind::External,
        format!(
            "rank {rank} gives other alpha, beta or arrays in this run than rank {me}; give the same on all ranks; the destination \
             is only partly written"
        ),
    )
}

/// A number of ranks in words: "1 rank", "2 ranks".
pub fn rank_count(ranks: usize) -> String {
    if ranks == 1 { "1 rank".into() } else { format!("{ranks} ranks") }
}

/// Lists ranks in words, each once, in order: "rank 3", "ranks 1 and 3", "ranks 1, 2 and 3".
pub fn rank_list(ranks: impl IntoIterator<Item = usize>) -> String {
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
