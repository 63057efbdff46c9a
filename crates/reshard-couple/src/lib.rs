//! Couples two jobs: a distributed array of one goes to the other, memory to memory, step after step. Each job knows its own layout
//! only; names, types and layouts are exchanged once, every rank then plans alone, and every step only moves data.
//!
//! A [`Publisher`] offers arrays under names and puts a step of one whenever it has one; a [`Subscriber`] asks for them in a layout of its
//! own and gets every step. They find each other by a [`Meeting`].
//!
//! Either may be started first. A job is one process that hosts all ranks of its layouts ([`Job::hosting_all`]), or, with the feature
//! `mpi`, one process for each rank.

#![deny(unsafe_code)]

mod addresses;
mod arrivals;
mod bounds;
mod connecting;
mod element;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod io;
mod job;
#[cfg(feature = "mpi")]
mod launches;
mod meeting;
#[cfg(feature = "mpi")]
mod messages;
mod options;
mod private_file;
mod publisher;
mod receiving;
mod secret;
mod service;
mod serving;
mod side;
mod slots;
mod state;
mod stream;
mod subscriber;
mod terms;
#[cfg(feature = "mpi")]
mod watch;
#[cfg(feature = "mpi")]
mod world;

pub use element::ElementType;
pub use job::Job;
pub use meeting::Meeting;
pub use options::Options;
pub use private_file::remove_meeting_files;
pub use publisher::Publisher;
pub use secret::Secret;
pub use subscriber::{Setup, StepInfo, Subscriber, Subscription};
pub use terms::ArrayId;
#[cfg(feature = "mpi")]
pub use world::World;

/// The examples of the manual.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coupling.md")]
struct Manual;
