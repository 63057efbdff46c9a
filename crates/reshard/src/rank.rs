//! What one rank does, for engines in which every rank is a process of its own.
//!
//! Engines in one process see the parts of all ranks; between processes a rank has its own, enters them with
//! [`Buffers::enter_own`](crate::engine::Buffers::enter_own), and does its share with one of these. How bytes get from one process
//! to the other is the engine's business.

pub use crate::program::{Program, Step};
pub use reshard_kernel::exchange::{Cursor, Fragment, RankPacker};
pub use reshard_kernel::memory::check_reach;
pub use reshard_kernel::staged::{ReceiverGroup, SendSide, StagedCopy};
pub use reshard_kernel::tasks::{GroupedTasks, TaskGroup};

use crate::program::{self, MessagesOptions};
use reshard_plan::{Plan, Result};
use std::sync::Arc;

/// What a rank packs and unpacks, in letters of at most `letter` bytes (longer if an element is), and in which order. A rank
/// outside of the plan has nothing to do.
pub fn messages(
    plan: &Arc<Plan>,
    rank: u64,
    options: &MessagesOptions,
    letter: usize,
) -> Result<(RankPacker, Program)> {
    let groups = program::groups_of(plan);
    let porter = RankPacker::new(Arc::clone(plan), &groups, rank, letter);
    let program = program::of_rank(plan, &groups, porter.cargo(), rank, options)?;
    Ok((porter, program))
}
