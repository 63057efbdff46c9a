//! Moves a distributed array from any layout to any other, at the speed of memory.
//!
//! Describe two layouts, plan once, run as often as you like. [`redistribute`] does all of it in one call;
//! [`Redistribution`] keeps plan, threads and memory for the next run; [`Plan`] and the engines in [`engine`] are the parts
//! both are made of. The planner's nouns are here, too: this crate is the one to name.

#![forbid(unsafe_code)]

pub use reshard_plan::*;

pub mod engine;
mod program;
pub mod rank;
mod redistribution;

pub use redistribution::{Pair, Parts, Redistribution, redistribute};
pub use reshard_kernel::Number;
pub use reshard_kernel::memory::{Memory, use_huge_pages};
