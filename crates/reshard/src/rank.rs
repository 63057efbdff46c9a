//! One rank's side of a redistribution, for engines in which every rank is a process of its own.
//!
//! Engines in one process see the parts of all ranks; between processes a rank has only its own, enters them with
//! [`Buffers::enter_own`](crate::engine::Buffers::enter_own), and packs, unpacks and copies with one of these types. The
//! engine carries the bytes from one process to another.

pub use crate::program::{Program, Step};
pub use reshard_kernel::exchange::{Cursor, MessageRange, RankPacker};
pub use reshard_kernel::memory::check_reach;
pub use reshard_kernel::staged::{MAX_RECEIVERS, ReceiverGroup, SendSide, StagedCopy};
pub use reshard_kernel::tasks::{GroupedTasks, TaskGroup};

use crate::level::{Level, kernel_level};
use crate::program::{self, MessagesOptions};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;

/// Returns the packer of a rank, with fragments of at most `fragment_bytes` bytes (or one element, if that is larger), and
/// the program that says what it sends and receives in which step. For a rank outside the plan both are empty. A plan for some
/// ranks must be for this one, and list its peers.
pub fn messages(
    plan: &Arc<Plan>,
    rank: u64,
    options: &MessagesOptions,
    fragment_bytes: usize,
) -> Result<(RankPacker, Program)> {
    check_reach(plan)?;
    if plan.hosted().is_some_and(|hosted| !hosted.contains(&rank)) {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "rank {rank} was given a plan for other ranks; make it with Plan::for_rank(moves, {rank})"
            ),
        ));
    }
    if !plan.lists_peers() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "a plan was given that does not list the ranks with which its own exchange data; call Plan::with_peers",
        ));
    }
    let level = kernel_level(options.level)?;
    let groups = program::groups_of(plan);
    let packer = RankPacker::new(Arc::clone(plan), &groups, rank, fragment_bytes, level);
    let program = program::of_rank(plan, &groups, packer.message_set(), rank, options)?;
    Ok((packer, program))
}

/// Returns a rank's side of a staged copy, with chunks of about `chunk` bytes. Each rank may have another level.
pub fn staged_copy(plan: &Arc<Plan>, rank: u64, chunk: u64, level: Option<Level>) -> Result<StagedCopy> {
    Ok(StagedCopy::new(Arc::clone(plan), rank, chunk, kernel_level(level)?))
}

/// Returns the tasks of what `rank` receives.
pub fn own_tasks(plan: &Arc<Plan>, rank: u64, level: Option<Level>) -> Result<GroupedTasks> {
    Ok(GroupedTasks::new(Arc::clone(plan), rank, kernel_level(level)?))
}

/// Returns the tasks of what all ranks receive, to be copied by `ranks` ranks, in tasks of `task_bytes` bytes (default: by
/// plan and ranks). Each rank may have another level.
pub fn shared_tasks(
    plan: &Arc<Plan>,
    ranks: usize,
    task_bytes: Option<u64>,
    level: Option<Level>,
) -> Result<GroupedTasks> {
    Ok(GroupedTasks::of_all(Arc::clone(plan), ranks, task_bytes, kernel_level(level)?))
}
