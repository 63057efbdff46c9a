//! What tests of couplings share.

#![allow(clippy::unwrap_used, dead_code)]

#[cfg(feature = "mpi")]
pub mod wrapped;

use reshard::Layout;
use reshard_couple::{Meeting, Options};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long tests wait.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// A meeting file that no other test has.
pub fn meeting() -> Meeting {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("reshard-coupled-{}-{number}.meet", std::process::id()));
    let _ = std::fs::remove_file(&path);
    Meeting::File(path)
}

/// Options with that deadline.
pub fn options() -> Options {
    Options::default().with_deadline(DEADLINE)
}

/// Reads a layout.
pub fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// An element of a step: every one differs from its neighbours and from itself in other steps.
pub fn value(index: &[u64], step: u64) -> u64 {
    let mix = |sum: u64, &at: &u64| sum.wrapping_mul(1_000_003).wrapping_add(at + 1);
    index.iter().fold(step.wrapping_mul(0x9E37_79B9), mix)
}
