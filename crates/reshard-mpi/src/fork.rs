//! Forks of this process, as Python's multiprocessing makes them: connections and shared memory are the parent's, and the
//! child must touch neither, not even when it drops an engine.

#![allow(unsafe_code)]

use reshard_plan::{Error, ErrorKind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Runs in a child after `fork`.
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Registers the handler that notices forks of this process: from the first rank on that this process is.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    // SAFETY: the handler stores a number, which a child may do. If it cannot be registered, forks go unnoticed.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
}

/// The error of a call in such a process.
pub fn forked_off() -> Error {
    Error::new(
        ErrorKind::External,
        "this process was forked off one that is a rank, and cannot be one itself; let the parent do it, or start the child anew",
    )
}

/// True if this process was forked off one that is a rank. It must not touch what its parent shares with other ranks.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
