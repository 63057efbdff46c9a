//! Moves a distributed array from any layout to any other, at the speed of memory.
//!
//! Describe two layouts, plan once, run any number of times. [`redistribute`] does all of it in one call;
//! [`Redistribution`] keeps plan, threads and memory for the next run; both are made of a [`Plan`] and one of the engines in
//! [`engine`]. The planner's types are re-exported here: this is the crate to depend on.

#![forbid(unsafe_code)]

pub use reshard_plan::*;

pub mod engine;
mod program;
pub mod rank;
mod redistribution;

pub use redistribution::{Pair, Parts, Redistribution, redistribute};
pub use reshard_kernel::Number;
pub use reshard_kernel::memory::{Memory, use_huge_pages};
