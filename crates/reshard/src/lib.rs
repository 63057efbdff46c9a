//! Moves a distributed array from any layout to any other, at the speed of memory.

pub use reshard_plan::*;

pub mod engine;
#[allow(unsafe_code)]
mod kernel;
mod sync;
