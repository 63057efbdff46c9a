//! Memory: the caller's buffers of a run, and parts on huge pages.

mod huge_pages;
mod parts;

pub use huge_pages::{Memory, use_huge_pages};
pub use parts::{BufferTable, Buffers, Entered, check_reach, check_reach_of_all};
