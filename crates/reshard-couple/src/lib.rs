//! Couples two jobs: a distributed array of one goes to the other, memory to memory, step after step. Each job knows its own layout
//! only; names, types and layouts are exchanged once, every rank then plans alone, and every step only moves data.
//!
//! A producer offers arrays under names, and gives a step of one whenever it has one:
//!
//! ```no_run
//! use reshard_couple::{ElementType, Job, Meeting, Options, Publisher};
//! let layout: reshard::Layout = "2x2/64x64 of 1000x800".parse()?;
//! let mut simulation = Publisher::new(Job::hosting_all(), Options::default());
//! let t = simulation.publish("t", &layout, ElementType::of::<f64>())?;
//! simulation.open(&Meeting::file("run.meet"))?;
//! simulation.wait_for(1)?;
//! for step in 0..100 {
//!     let parts = layout.parts(|index| (index[0] + index[1] + step) as f64)?;
//!     simulation.put(t, step, b"", &parts)?; // the parts may be changed at once
//! }
//! simulation.finish()?;
//! # Ok::<(), reshard::Error>(())
//! ```
//!
//! A consumer asks for them in a layout of its own:
//!
//! ```no_run
//! use reshard_couple::{ElementType, Job, Meeting, Options, Subscriber};
//! let layout: reshard::Layout = "3x1/50x50 of 1000x800".parse()?;
//! let mut viewer = Subscriber::new(Job::hosting_all(), Options::default());
//! let t = viewer.subscribe("t", &layout, ElementType::of::<f64>())?;
//! viewer.connect(&Meeting::file("run.meet"))?;
//! let mut parts = layout.parts(|_| 0.0)?;
//! while let Some(step) = viewer.get(t, &mut parts)? {
//!     println!("step {}: {}", step.number, parts[0][0]);
//! }
//! viewer.leave();
//! # Ok::<(), reshard::Error>(())
//! ```
//!
//! Either may be started first. A job is one process that hosts all ranks of its layouts ([`Job::hosting_all`]), or, with the feature
//! `mpi`, one process for each rank.

#![forbid(unsafe_code)]

mod arrivals;
mod element;
mod frame;
mod greeting;
mod io;
mod job;
mod meeting;
mod options;
mod publisher;
mod secret;
mod side;
mod state;
mod subscriber;
mod terms;

pub use element::ElementType;
pub use job::Job;
pub use meeting::Meeting;
pub use options::Options;
pub use publisher::{ArrayId, Publisher};
pub use secret::Secret;
pub use subscriber::{Setup, StepInfo, Subscriber, Subscription};
