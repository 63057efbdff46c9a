//! EngineChoice far a long run is, for whoever watches: one line on standard error, rewritten in place and gone at the end. Nothing
//! where standard error is not a terminal, or nobody would have time to read it.

use crate::screen::is_plain;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const CELLS: usize = 24;
/// What is over sooner is not announced.
const SHORT: Duration = Duration::from_millis(500);
/// An array of so many bytes is never over sooner.
const LARGE: u64 = 128 << 20;
const BETWEEN: Duration = Duration::from_millis(100);

pub struct Progress {
    shown: bool,
    begin: Instant,
    large: bool,
    drawn: Option<Instant>,
    width: usize,
}

impl Progress {
    /// Of moving so many bytes.
    pub fn new(wanted: bool, bytes: u64) -> Self {
        let shown = wanted && io::stderr().is_terminal() && !is_plain();
        Self { shown, begin: Instant::now(), large: bytes > LARGE, drawn: None, width: 0 }
    }

    /// So much of everything is done, a number from 0 to 1, and this comes next.
    pub fn at(&mut self, done: f64, next: &str) {
        let early = !self.large && self.begin.elapsed() < SHORT;
        if !self.shown || early || self.drawn.is_some_and(|drawn| drawn.elapsed() < BETWEEN) {
            return;
        }
        let full = ((done * CELLS as f64) as usize).min(CELLS);
        let line = format!("[{}{}] {next}", "#".repeat(full), "-".repeat(CELLS - full));
        self.draw(&line);
        self.drawn = Some(Instant::now());
    }

    fn draw(&mut self, line: &str) {
        let mut stderr = io::stderr().lock();
        // Nobody is told if telling fails.
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
