//! The reasons why a run did not end: a cycle of waiting ranks, a message without its other end.

use crate::error::{Error, ErrorKind};
use crate::traffic::Message;
use std::fmt;

/// The reason why programs did not end, or were not started.
///
/// ```
/// use reshard_plan::simulate::{Fault, Machine, Op, Program, run};
/// // Both send first and receive afterwards, and nothing buffers a message on its way.
/// let program = |rank, other| {
///     let ops = vec![Op::Send { to: other, elems: 1 }, Op::Receive { from: other, elems: 1 }];
///     Program { rank, ops }
/// };
/// let fault = run(&[program(0, 1), program(1, 0)], &Machine::default()).unwrap_err();
/// assert_eq!(fault, Fault::Deadlock { ranks: vec![0, 1] });
/// assert_eq!(fault.to_string(), "deadlock: rank 0 waits for rank 1, which waits for rank 0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Each of these ranks waits for the next, and the last for the first.
    Deadlock {
        /// The ranks in the order of waiting, beginning with the lowest.
        ranks: Vec<u64>,
    },
    /// A receive has no send.
    NeverSent(Message),
    /// A send has no receive.
    NeverReceived(Message),
    /// A send and the receive it meets disagree about the length.
    Length {
        /// The message as it is sent.
        sent: Message,
        /// Elements expected.
        expected: u64,
    },
    /// Programs have different numbers of barriers.
    Barriers {
        /// A rank with the fewest barriers, and their number.
        fewest: (u64, u64),
        /// A rank with the most barriers, and their number.
        most: (u64, u64),
    },
    /// The run was refused before it began.
    Refused(Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock { ranks } => {
                let first = ranks.first().copied().unwrap_or(0);
                write!(f, "deadlock: rank {first} waits for rank ")?;
                for rank in ranks.iter().skip(1) {
                    write!(f, "{rank}, which waits for rank ")?;
                }
                write!(f, "{first}")
            }
            Self::NeverSent(Message { from, to, elems }) => {
                write!(f, "rank {to} expects {elems} elements from rank {from}, which never sends them")
            }
            Self::NeverReceived(Message { from, to, elems }) => {
                write!(f, "rank {from} sends {elems} elements to rank {to}, which never receives them")
            }
            Self::Length { sent: Message { from, to, elems }, expected } => {
                write!(f, "rank {from} sends {elems} elements to rank {to}, which expects {expected}")
            }
            Self::Barriers { fewest, most } => write!(
                f,
                "rank {} comes to {} barriers and rank {} to {}; all must come to equally many",
                fewest.0, fewest.1, most.0, most.1
            ),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            other => Self::new(ErrorKind::Mismatch, other.to_string()),
        }
    }
}
