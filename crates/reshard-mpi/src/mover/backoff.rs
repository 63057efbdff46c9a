//! Waiting with an end.

use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// So often a rank looks again at once: what it waits for is nearly there.
const LOOKS: u32 = 40;

/// The same where ranks outnumber processors: whoever is waited for may need this one.
const OVERSUBSCRIBED_SPINS: u32 = 1;

/// How long a rank has waited for something to happen.
pub struct Backoff {
    limit: Option<Duration>,
    since: Option<Instant>,
    looks: u32,
    most_looks: u32,
    waited: Duration,
    /// What became of the data, if it is given up.
    left: &'static str,
}

impl Backoff {
    /// `oversubscribed`: ranks outnumber processors.
    pub fn new(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let left = "nothing more can be moved between these ranks, the destination is an unfinished mixture, the source is \
                    untouched";
        let most_looks = if oversubscribed { OVERSUBSCRIBED_SPINS } else { LOOKS };
        Self { limit, since: None, looks: 0, most_looks, waited: Duration::ZERO, left }
    }

    /// The same for something that is moved in place.
    pub fn in_place(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let left =
            "nothing more can be moved between these ranks, what was moved in place is an unfinished mixture";
        Self { left, ..Self::new(limit, oversubscribed) }
    }

    /// The same for something that others still read.
    pub fn lent(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let left =
            "it has not read this rank's shared part, which is taken back: if it still tries, it is told";
        Self { left, ..Self::new(limit, oversubscribed) }
    }

    /// Something has happened.
    pub fn begin_again(&mut self) {
        self.looks = 0;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Nothing has happened: waits a little. Fails if that has been so for too long; `whom` says who is waited for.
    pub fn wait(&mut self, whom: impl FnOnce() -> String) -> Result<()> {
        self.looks = self.looks.saturating_add(1);
        if self.looks < self.most_looks {
            std::hint::spin_loop();
            return Ok(());
        }
        // The time is asked for now and then only.
        if self.since.is_none() || self.looks.is_multiple_of(64) {
            self.note(whom)?;
        }
        std::thread::yield_now();
        Ok(())
    }

    /// Nothing has happened, and whoever asked has other things to do meanwhile. Fails as [`Backoff::wait`] does.
    pub fn note(&mut self, whom: impl FnOnce() -> String) -> Result<()> {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        match self.limit {
            Some(limit) if waited > limit => Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "waited {:.1} s for {}: it is gone, stuck, or was never called; {}",
                    waited.as_secs_f64(),
                    whom(),
                    self.left
                ),
            )),
            _ => Ok(()),
        }
    }

    /// All the time spent waiting.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}
