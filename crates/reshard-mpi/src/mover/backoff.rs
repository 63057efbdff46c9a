//! Waiting for other ranks: spin first, then yield the processor, and fail after a deadline.
//!
//! Ranks of a node wait by polling. A short spin-wait is fastest while the event is near; after that yielding lets others
//! run. Where ranks outnumber processors a spinning rank may hold the very processor that the awaited rank needs, so it
//! yields at once.

use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Polls with a spin hint before a rank yields: the event is nearly there.
const MAX_SPINS: u32 = 40;

/// Polls before a rank yields where ranks outnumber processors: the awaited rank may need this one's processor.
const MAX_SPINS_OVERSUBSCRIBED: u32 = 1;

/// Polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// A bounded wait for something to happen, and the time spent in it.
pub struct Backoff {
    /// The longest wait without any progress.
    limit: Option<Duration>,
    /// When the current wait began.
    since: Option<Instant>,
    /// Polls without progress.
    polls: u32,
    max_spins: u32,
    /// All time spent waiting.
    waited: Duration,
    /// What became of the data if the wait fails: the end of the error sentence.
    consequence: &'static str,
}

impl Backoff {
    /// A wait within a run. `oversubscribed`: ranks outnumber processors.
    pub fn new(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let consequence = "nothing more can be moved between these ranks, the destination is only partly written, the source is \
                           untouched";
        let max_spins = if oversubscribed { MAX_SPINS_OVERSUBSCRIBED } else { MAX_SPINS };
        Self { limit, since: None, polls: 0, max_spins, waited: Duration::ZERO, consequence }
    }

    /// A wait within a run that moves data in place.
    pub fn in_place(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let consequence =
            "nothing more can be moved between these ranks, what was moved in place is only partly written";
        Self { consequence, ..Self::new(limit, oversubscribed) }
    }

    /// A wait before anything moves.
    pub fn before_a_run(limit: Option<Duration>, oversubscribed: bool) -> Self {
        Self { consequence: "nothing was moved", ..Self::new(limit, oversubscribed) }
    }

    /// A wait for ranks that still read this rank's source.
    pub fn for_readers(limit: Option<Duration>, oversubscribed: bool) -> Self {
        let consequence =
            "it has not read this rank's shared part, which is revoked: if it still tries, it gets an error";
        Self { consequence, ..Self::new(limit, oversubscribed) }
    }

    /// Something has happened: the next wait begins anew.
    pub fn reset(&mut self) {
        self.polls = 0;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Nothing has happened: spins or yields once. Fails when the limit is exceeded; `peers` names the ranks waited for.
    pub fn wait(&mut self, peers: impl FnOnce() -> String) -> Result<()> {
        self.polls = self.polls.saturating_add(1);
        if self.polls < self.max_spins {
            std::hint::spin_loop();
            return Ok(());
        }
        // Reading the clock costs more than a poll.
        if self.since.is_none() || self.polls.is_multiple_of(POLLS_PER_CLOCK) {
            self.check_limit(peers)?;
        }
        std::thread::yield_now();
        Ok(())
    }

    /// Nothing has happened, and the caller has other work meanwhile: neither spins nor yields. Fails as [`Backoff::wait`]
    /// does.
    pub fn check_limit(&mut self, peers: impl FnOnce() -> String) -> Result<()> {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        match self.limit {
            Some(limit) if waited > limit => Err(Error::new(
                ErrorKind::External,
                format!(
                    "waited {:.1} s for {}: it has exited, is stuck, or never made the call; {}",
                    waited.as_secs_f64(),
                    peers(),
                    self.consequence
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
