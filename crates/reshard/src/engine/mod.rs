//! Engines run plans: they move the bytes.
//!
//! An engine is made for one plan and then runs it as often as one likes, on whatever memory it is given. All engines do
//! the same and are judged by one suite; they differ in how bytes travel:
//!
//! | engine | how | when |
//! |---|---|---|
//! | [`Threads`] | each byte is read where it is and written where it belongs, by a few threads | all ranks in one process: the default |
//! | [`Messages`] | packed, sent and unpacked step by step, one thread for each rank | to try schedules, limits of memory and failures before there is a cluster |

mod messages;
mod plain;
mod threads;

pub use crate::program::MessagesOptions;
pub use messages::Messages;
pub use plain::PlainCopy;
pub use reshard_kernel::Scaling;
pub use reshard_kernel::memory::{BufferTable, Buffers, Entered};
pub use threads::Threads;

use reshard_plan::{Plan, Result};
use std::sync::Arc;

/// Something that runs a plan.
pub trait Engine: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it runs.
    fn plan(&self) -> &Arc<Plan>;

    /// How many bytes it takes, beside plan and data, while it runs: the peak, announced before anything moves.
    fn scratch_bytes(&self) -> u64;

    /// Moves all arrays. The data must have been entered into a [`BufferTable`] of this engine's plan. On an error the
    /// destinations hold a mixture of old and new; the sources are untouched.
    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report>;
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes moved, those that stay on their rank included.
    pub bytes: u64,
    /// Messages between different ranks.
    pub messages: u64,
    /// Steps of the schedule.
    pub steps: u64,
    /// From the beginning of the run to its end.
    pub seconds: f64,
    /// Of that, spent packing, all ranks together.
    pub pack_seconds: f64,
    /// Spent unpacking, all ranks together.
    pub unpack_seconds: f64,
    /// Spent waiting, all ranks together.
    pub wait_seconds: f64,
}
