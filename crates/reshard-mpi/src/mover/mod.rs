//! How bytes get from one process to another.
//!
//! | mover | how | when |
//! |---|---|---|
//! | `direct.rs` | each byte is read where it is, in memory all ranks of the node share, and written where it belongs | sources are [`Shared`](crate::Shared) |
//! | `relay.rs` | packed into small shared boxes that stay in the caches, assembled from them | private arrays on one node |
//! | `messages.rs` | packed messages in the order of a schedule | between nodes |
//! | `collective.rs` | all packed, one `MPI_Alltoallv`, all unpacked | to compare with |
//!
//! Each waits with an end: [`Patience`] counts.

#[allow(unsafe_code)]
pub mod collective;
pub mod direct;
#[allow(unsafe_code)]
pub mod messages;
#[allow(unsafe_code)]
pub mod relay;

use reshard_plan::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// So often a rank looks again at once; longer would keep others from running where ranks outnumber processors.
const LOOKS: u32 = 40;

/// How long a rank has waited for something to happen.
pub struct Patience {
    limit: Option<Duration>,
    since: Option<Instant>,
    looks: u32,
    waited: Duration,
}

impl Patience {
    pub fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: None, looks: 0, waited: Duration::ZERO }
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
        if self.looks < LOOKS {
            std::hint::spin_loop();
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        // The time is asked for now and then only.
        if self.looks.is_multiple_of(64)
            && let Some(limit) = self.limit
            && since.elapsed() > limit
        {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "waited {:.1} s for {}: it is gone, stuck, or was never called; nothing more can be moved between these \
                     ranks, the destination is an unfinished mixture, the source is untouched",
                    since.elapsed().as_secs_f64(),
                    whom()
                ),
            ));
        }
        std::thread::yield_now();
        Ok(())
    }

    /// All the time spent waiting.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

/// A mover that cannot do with the memory it was given.
pub fn too_little(memory: u64, needed: u64) -> Error {
    Error::new(
        ErrorKind::Memory,
        format!(
            "{memory} bytes were given for all ranks together; this mover needs at least {needed} bytes for this plan; give \
             more, or choose the mover `messages`, which can do with less"
        ),
    )
}

/// "rank 3", "ranks 1 and 3", "ranks 1, 2 and 3".
pub fn named(ranks: impl IntoIterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.into_iter().map(|rank| rank.to_string()).collect();
    match ranks.split_last() {
        None => "nobody".into(),
        Some((only, [])) => format!("rank {only}"),
        Some((last, before)) => format!("ranks {} and {last}", before.join(", ")),
    }
}
