//! Moves a distributed array from any layout to any other, at the speed of memory.
//!
//! Describe two layouts, plan once, run as often as you like. [`redistribute`] does all of it in one call;
//! [`Redistribution`] keeps plan, threads and memory for the next run; [`Plan`] and the engines in [`engine`] are the parts
//! both are made of. The planner's nouns are here, too: this crate is the one to name.

pub use reshard_plan::*;

pub mod engine;
#[allow(unsafe_code)]
mod kernel;
mod program;
pub mod rank;
mod redistribution;
pub mod ring;
mod sync;

pub use kernel::pages::{Memory, use_huge_pages};
pub use kernel::scale::Number;
pub use redistribution::{Pair, Parts, Redistribution, redistribute};

/// Tests count what threads ask for.
#[cfg(all(test, not(loom)))]
#[global_allocator]
static ALLOCATOR: reshard_testkit::allocations::Counting = reshard_testkit::allocations::Counting;
