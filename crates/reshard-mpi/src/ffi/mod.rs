//! Everything that calls the MPI library, and all unsafe code for it.
//!
//! | file | what it does |
//! |---|---|
//! | `calls.rs` | the functions of the library, typed, for either kind of handle; the macro that calls one |
//! | `library.rs` | `Mpi`: finds and opens the library, and identifies its interface |
//! | `session.rs` | begins and ends MPI |
//! | `comm.rs` | communicators, and messages between two ranks |
//! | `kept.rs` | a duplicate of a communicator, cached as an attribute of its parent |
//! | `retired.rs` | duplicates that nobody uses any more, until they can be freed |
//! | `joined.rs` | jobs that were launched apart, joined in one communicator |
//! | `collective.rs` | collective operations |
//! | `request.rs` | requests: operations in flight |
//! | `datatype.rs` | derived datatypes |
//! | `wait.rs` | waiting with a timeout |
//!
//! The proofs share these facts. *Signatures*: those in `calls.rs` are those of the MPI standard, with handles of the kind
//! the library has; they were compared with the headers of all three interfaces. *Handles*: a `Comm`, `Request` or
//! `Datatype` holds a handle that the library gave out or that `unsafe` code vouched for, and nobody frees it before the
//! value is dropped. *Moment*: `call!` fails when MPI has ended, or on a thread that may not call it, before anything is
//! called.

pub mod calls;
pub mod collective;
pub mod comm;
pub mod datatype;
pub mod joined;
mod kept;
pub mod library;
pub mod request;
pub mod retired;
pub mod session;
pub mod wait;
