//! The pure planner of reshard: computes from two layouts which elements each rank sends to each other rank.
//!
//! Describe a source and a destination (a [`Pattern`] over a shape is a [`Distribution`]; with addresses it is
//! a [`Layout`]), join them in a [`Problem`], and get any rank's [`Part`]: the elements it shares with every
//! rank of the other side, as canonical periodic [`Overlap`]s, one for each dimension. [`Traffic`] counts them.
//! [`Relabel`] finds the ranks of the destination that keep most data in place.
//! Planning one rank takes about a microsecond, whatever the size of the array and of the other grid, and needs
//! nothing but the description: every rank plans alone, and all get consistent results.
//!
//! ```
//! use reshard_plan::{Pattern, Problem, Traffic};
//!
//! let from: Pattern = "4x4/64x64".parse()?;
//! let to: Pattern = "2x8/50x30".parse()?;
//! let problem = Problem::new(from.over(&[8192, 8192])?, to.over(&[8192, 8192])?)?;
//! let traffic = Traffic::new(&problem);
//! let sent: u64 = traffic.sent_by(3)?.iter().map(|message| message.elems).sum();
//! assert_eq!(sent, 2048 * 2048);
//! # Ok::<(), reshard_plan::Error>(())
//! ```
//!
//! No I/O, no threads, no clock, no unsafe: everything here is a function of its arguments.

#![forbid(unsafe_code)]

pub mod advise;
pub mod axis;
pub mod classes;
mod copies;
pub mod cost;
pub mod distribution;
pub mod error;
pub mod grid;
pub mod layout;
#[doc(hidden)]
pub mod memory;
pub mod notation;
pub mod overlap;
pub mod plan;
pub mod problem;
pub mod quotient;
mod region;
pub mod relabel;
pub mod schedule;
#[cfg(feature = "serde")]
mod serialize;
pub mod simulate;
pub mod track;
pub mod traffic;
mod transportation;
pub mod triangle;

pub use axis::{Axis, Deal, MAX_LEN, Piece};
pub use classes::Classes;
pub use distribution::{Distribution, Pattern, one_period};
pub use error::{Error, ErrorKind, Result};
pub use grid::{Grid, MAX_DIMS, RankOrder};
pub use layout::{Layout, MemoryOrder};
pub use overlap::{Method, Overlap, Run, Side, Sides};
pub use plan::{Array, MemoryRun, Move, Plan, Source, Target};
pub use problem::{Part, Problem, Window};
pub use quotient::Quotient;
pub use relabel::{Among, Relabel, Relabelling, Solver, Volume};
pub use track::{Loop, Stretch, Track};
pub use traffic::{Message, Traffic};
pub use triangle::Triangle;
