//! What was done: a line for each call, totals at the end.

use crate::errors::say;
use crate::moving::Moved;
use crate::routine::Routine;
use crate::settings::Settings;
use crate::symbols::find;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of this process.
struct Totals {
    calls: AtomicU64,
    planned: AtomicU64,
    at_once: AtomicU64,
    forwarded: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

static TOTALS: Totals = Totals {
    calls: AtomicU64::new(0),
    planned: AtomicU64::new(0),
    at_once: AtomicU64::new(0),
    forwarded: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    nanoseconds: AtomicU64::new(0),
};

/// Counts a call that was moved, and reports it.
pub fn moved(routine: &Routine, rows: i64, columns: i64, moved: &Moved, took: Duration) {
    TOTALS.calls.fetch_add(1, Ordering::Relaxed);
    TOTALS.planned.fetch_add(u64::from(!moved.cached), Ordering::Relaxed);
    TOTALS.at_once.fetch_add(u64::from(moved.at_once), Ordering::Relaxed);
    TOTALS.bytes.fetch_add(moved.bytes, Ordering::Relaxed);
    TOTALS.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    if moved.first && Settings::get().report {
        say(&format!(
            "{routine} {rows} x {columns}: {} bytes in {} us by {}, {}",
            moved.bytes,
            took.as_micros(),
            moved.mover,
            if moved.cached { "cached" } else { "planned" }
        ));
    }
}

/// Calls that were moved, those of them that were planned, that took one round, and calls that were forwarded: for tests.
pub fn counts() -> [u64; 4] {
    let Totals { calls, planned, at_once, forwarded, .. } = &TOTALS;
    [calls, planned, at_once, forwarded].map(|count| count.load(Ordering::Relaxed))
}

/// Counts a call that was forwarded.
pub fn forwarded(routine: &Routine) {
    TOTALS.forwarded.fetch_add(1, Ordering::Relaxed);
    if Settings::get().report && is_first() {
        say(&format!("{routine}: forwarded"));
    }
}

/// True if this process is the first of those that the launcher started.
fn is_first() -> bool {
    reshard_mpi::mpi::launched().is_none_or(|launcher| launcher.rank == 0)
}

/// Reports totals at the end of the process; and why nothing came here, if nothing did.
pub extern "C" fn at_exit() {
    if !Settings::get().report || !is_first() {
        return;
    }
    let [calls, planned, forwarded, bytes, nanoseconds] =
        [&TOTALS.calls, &TOTALS.planned, &TOTALS.forwarded, &TOTALS.bytes, &TOTALS.nanoseconds]
            .map(|count| count.load(Ordering::Relaxed));
    if calls + forwarded > 0 {
        return say(&format!(
            "{calls} calls moved {bytes} bytes in {} us, {planned} planned, {} cached; {forwarded} forwarded",
            nanoseconds / 1000,
            calls - planned
        ));
    }
    if let Some((_, file)) = find(c"Cpdgemr2d") {
        say(&format!(
            "{file} was loaded, but none of its redistributions came here: the program made none, or looked the routines up in that file \
             itself (as Python's ctypes does), or that file was linked so that its own calls stay inside"
        ));
    }
}
