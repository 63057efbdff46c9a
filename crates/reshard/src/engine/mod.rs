//! Engines run plans: they move the bytes.
//!
//! An engine is made for one plan and then runs it any number of times, on whatever memory it is given. All engines give
//! the same result and pass one conformance suite; they differ in how bytes are moved:
//!
//! | engine | how | when |
//! |---|---|---|
//! | [`Threads`] | each byte is copied once, from source to destination, by a few threads | all ranks in one process: the default |
//! | [`Messages`] | packed, sent and unpacked step by step, one thread for each rank | to try schedules, memory limits and failures without a cluster |

mod messages;
mod plain;
mod threads;

pub use crate::level::Level;
pub use crate::program::MessagesOptions;
pub use messages::Messages;
#[doc(hidden)]
pub use plain::PlainCopy;
pub use reshard_kernel::Scaling;
pub use reshard_kernel::memory::{BufferTable, Buffers, Entered, RawPart};
pub use threads::{Threads, ThreadsOptions};

use reshard_plan::{Plan, Result};
use std::sync::Arc;

/// Runs a plan.
///
/// ```
/// use reshard::engine::{BufferTable, Engine, Threads};
/// use reshard::{Move, Plan};
/// use std::sync::Arc;
/// let plan = Arc::new(Plan::new(vec![Move::of::<u32>("2/1 of 4".parse()?, "1/4 of 4".parse()?)?])?);
/// let mut engine: Box<dyn Engine> = Box::new(Threads::new(Arc::clone(&plan), None)?);
/// let mut table = BufferTable::new(plan); // kept from run to run
/// let (from, mut to) = ([[1_u32, 3], [2, 4]], [[0_u32; 4]]);
/// let mut data = table.fill();
/// data.enter(0, &from, &mut to, None)?;
/// engine.run(&mut data)?;
/// assert_eq!(to, [[1, 2, 3, 4]]);
/// # Ok::<(), reshard::Error>(())
/// ```
pub trait Engine: Send {
    /// Returns the engine's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the plan it runs.
    fn plan(&self) -> &Arc<Plan>;

    /// Returns the peak memory of a run in bytes, besides plan and data; known before anything is moved.
    fn scratch_bytes(&self) -> u64;

    /// Moves all arrays. The data must have been entered into a [`BufferTable`] of this engine's plan. After an error the
    /// destinations may be only partly written; the sources are unchanged.
    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report>;
}

/// Counts and times of a run.
///
/// ```
/// use reshard::{Move, Redistribution};
/// let mut redistribution = Redistribution::several(vec![Move::of::<f64>("2/1 of 4".parse()?, "1/4 of 4".parse()?)?])?;
/// let report = redistribution.run(&[[1.0, 3.0], [2.0, 4.0]], &mut [[0.0; 4]])?;
/// assert_eq!(report.bytes, 4 * 8);
/// println!("{} bytes in {} s", report.bytes, report.seconds);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Report {
    /// Bytes moved, including those that stay on their rank.
    pub bytes: u64,
    /// Messages between different ranks.
    pub messages: u64,
    /// Steps of the schedule.
    pub steps: u64,
    /// Duration of the run.
    pub seconds: f64,
    /// Time spent packing, summed over all ranks.
    pub pack_seconds: f64,
    /// Time spent unpacking, summed over all ranks.
    pub unpack_seconds: f64,
    /// Time spent waiting, summed over all ranks.
    pub wait_seconds: f64,
}
