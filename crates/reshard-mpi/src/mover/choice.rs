//! The movers a caller can choose, and their names on the command line.

use reshard_plan::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// How bytes get from one process to another.
///
/// ```
/// use reshard_mpi::{Mover, MpiOptions};
/// let options = MpiOptions::default().with_mover("shared-source".parse()?);
/// assert_eq!(options.mover, Mover::SharedSource);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mover {
    /// `Private` if all ranks are on one node, `Messages` if each is on its own, else `Mixed`.
    #[default]
    Auto,
    /// One copy, by whichever rank is idle: sources and destinations are [`Shared`](crate::Shared). All ranks on one node.
    /// A rank that gets stuck while it copies for another is waited for and named like one that does not come.
    Shared,
    /// One copy from [`Shared`](crate::Shared) sources to any destination. All ranks on one node.
    SharedSource,
    /// Two copies through small staging buffers in shared memory; where runs are long perhaps one, as `Cma` does it. All ranks on
    /// one node.
    Private,
    /// One copy by the system, out of the private memory of the sending process (cross-memory attach, `process_vm_readv`): for long
    /// runs; `Private` tries it there. All ranks on one node, which may read each other's memory. A rank's run ends when all have
    /// read its source. Refuses triangles, alpha, beta and conjugation.
    Cma,
    /// Packed messages in the order of a schedule.
    Messages,
    /// Messages between nodes, double buffers in shared memory within a node.
    Mixed,
    /// Messages as the papers send them, to compare with: no rank begins a step before its peers have begun to receive what
    /// it sent in the step before. With the strategy `caterpillar`, ScaLAPACK's exchange.
    Lockstep,
    /// All messages packed, one `MPI_Alltoallv`: to compare with. As in any blocking collective, a rank that does not come
    /// is waited for without a timeout, whatever the deadline, and all ranks must begin their runs in the same order.
    /// Refuses alpha, beta and conjugation.
    Alltoallv,
    /// All messages described by derived datatypes, one `MPI_Alltoallw`: to compare with. Waits without a timeout like
    /// `Alltoallv`, and refuses alpha, beta and conjugation, too.
    Alltoallw,
}

impl Mover {
    /// All movers, in the order of the help text.
    pub const ALL: [Self; 10] = [
        Self::Auto,
        Self::Shared,
        Self::SharedSource,
        Self::Private,
        Self::Cma,
        Self::Messages,
        Self::Mixed,
        Self::Lockstep,
        Self::Alltoallv,
        Self::Alltoallw,
    ];

    /// The name of the mover on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shared => "shared",
            Self::SharedSource => "shared-source",
            Self::Private => "private",
            Self::Cma => "cma",
            Self::Messages => "messages",
            Self::Mixed => "mixed",
            Self::Lockstep => "lockstep",
            Self::Alltoallv => "alltoallv",
            Self::Alltoallw => "alltoallw",
        }
    }

    /// True if a schedule gives the order of the messages.
    pub fn follows_schedule(self) -> bool {
        matches!(self, Self::Messages | Self::Mixed | Self::Lockstep)
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mover {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mover| mover.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|mover| mover.name()).collect();
            Error::new(
                ErrorKind::Notation,
                format!("there is no mover `{text}`; choose one of {}", names.join(", ")),
            )
        })
    }
}
