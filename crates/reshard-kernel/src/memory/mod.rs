//! Memory: the caller's buffers of a run, given as slices or as addresses, and parts on huge pages.

mod checks;
mod enter_raw;
mod huge_pages;
mod parts;
mod raw;
mod reach;

pub use huge_pages::{Memory, use_huge_pages};
pub use parts::{BufferTable, Buffers, Entered};
pub use raw::RawPart;
pub use reach::{check_reach, check_reach_of_all};
