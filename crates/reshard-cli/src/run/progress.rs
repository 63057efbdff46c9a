//! Progress bar of a long run: one line on standard error, rewritten in place and removed at the end. Nothing is shown if
//! standard error is not a terminal, or the run is too short to read it.

use crate::screen::is_plain;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The width of the bar in characters.
const CELLS: usize = 24;
/// The time after which the bar is shown.
const SHOW_AFTER: Duration = Duration::from_millis(500);
/// The bytes of arrays from which on the bar is shown at once: moving them takes longer than `SHOW_AFTER`.
const LARGE_BYTES: u64 = 128 << 20;
/// The least time between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

pub struct Progress {
    shown: bool,
    begin: Instant,
    large: bool,
    drawn: Option<Instant>,
    width: usize,
}

impl Progress {
    /// The bar of a run that moves `bytes` bytes; shown only if `enabled`.
    pub fn new(enabled: bool, bytes: u64) -> Self {
        let shown = enabled && io::stderr().is_terminal() && !is_plain();
        Self { shown, begin: Instant::now(), large: bytes > LARGE_BYTES, drawn: None, width: 0 }
    }

    /// Updates the bar: `done` is the completed fraction, from 0 to 1, and `next` names what comes next.
    pub fn at(&mut self, done: f64, next: &str) {
        let early = !self.large && self.begin.elapsed() < SHOW_AFTER;
        if !self.shown || early || self.drawn.is_some_and(|drawn| drawn.elapsed() < UPDATE_INTERVAL) {
            return;
        }
        let full = ((done * CELLS as f64) as usize).min(CELLS);
        let line = format!("[{}{}] {next}", "#".repeat(full), "-".repeat(CELLS - full));
        self.draw(&line);
        self.drawn = Some(Instant::now());
    }

    fn draw(&mut self, line: &str) {
        let mut stderr = io::stderr().lock();
        // A failed write is ignored.
        let _ = write!(stderr, "\r{line:<width$}", width = self.width).and_then(|()| stderr.flush());
        self.width = line.len();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.draw("");
            let _ = write!(io::stderr(), "\r");
        }
    }
}
