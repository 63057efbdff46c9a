//! ScaLAPACK's p?gemr2d and p?trmr2d, and p?tran of the PBLAS, by reshard's engine, for programs that change nothing: preload the library, or link it first.
//!
//! A call is checked on each process (`request.rs`), agreed (`agreement.rs`), planned (`planning.rs`) or found among earlier ones of its
//! processes by what it means (`groups.rs`, `cache.rs`), and run (`moving.rs`). The BLACS and MPI are those of the host program, found while it runs (`blacs.rs`,
//! `symbols.rs`); of ScaLAPACK nothing is called, unless the environment says so
//! (`settings.rs`), or p?tran is asked for more than is done here.
//!
//! This crate has the logic, in integers of either width; [`export!`] makes the names of a library of one width.

mod agreement;
mod arguments;
mod blacs;
mod cache;
mod entry;
mod errors;
mod groups;
mod host;
mod moving;
mod planning;
mod report;
mod request;
mod routine;
mod settings;
mod small;
mod symbols;

#[doc(hidden)]
pub use arguments::{arguments, transposing};
#[doc(hidden)]
pub use entry::{call, start};
#[doc(hidden)]
pub use errors::last as last_error;
#[doc(hidden)]
pub use report::counts;

/// How many communicators are kept: for tests.
#[doc(hidden)]
pub fn communicators() -> usize {
    groups::Kept::get().count()
}

#[doc(hidden)]
pub use routine::Element;

mod exports;
