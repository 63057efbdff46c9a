//! What a program may say about a coupling.

use std::net::SocketAddr;
use std::time::Duration;

/// The longest deadline: two weeks.
pub const LONGEST: Duration = Duration::from_secs(14 * 24 * 3600);

/// Options of a coupling; every one has a default.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) deadline: Duration,
    pub(crate) bind: SocketAddr,
    pub(crate) advertise: Option<String>,
    pub(crate) max_consumers: usize,
    pub(crate) shared_memory: bool,
    pub(crate) max_connections: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            max_consumers: 1,
            shared_memory: true,
            max_connections: None,
        }
    }
}

impl Options {
    /// How long anything waits for the other job: to come, to send a step, to take one. Default: 30 seconds.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.min(LONGEST), ..self }
    }

    /// The address at which each process of a producer listens; port 0 stands for any. Default: the loopback, which other machines
    /// cannot reach.
    #[must_use]
    pub fn with_bind(self, bind: SocketAddr) -> Self {
        Self { bind, ..self }
    }

    /// The name or address by which other machines reach this one. Default: that at which it listens; if that is any of the machine's
    /// addresses, the name of the machine.
    #[must_use]
    pub fn with_advertised_host(self, host: impl Into<String>) -> Self {
        Self { advertise: Some(host.into()), ..self }
    }

    /// How many consumers a producer may have at a time. Default: 1.
    #[must_use]
    pub fn with_consumers(self, most: usize) -> Self {
        Self { max_consumers: most, ..self }
    }

    /// Whether elements go through shared memory between processes of one machine, or over TCP as between machines. Default: true, if
    /// both jobs say so.
    #[must_use]
    pub fn with_shared_memory(self, shared_memory: bool) -> Self {
        Self { shared_memory, ..self }
    }

    /// How many connections for data each process of a consumer may have at a time; each needs an open file at both ends. With fewer than
    /// the processes from which it gets something, a step comes from a few of them at a time, in the order of the schedule, and
    /// connections are made anew in every step. Default: any number.
    #[must_use]
    pub fn with_connections(self, most: usize) -> Self {
        Self { max_connections: Some(most.max(1)), ..self }
    }
}
