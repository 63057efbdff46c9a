//! The only room with unsafe code: everything that touches the MPI library.
//!
//! | file | what it does |
//! |---|---|
//! | `calls.rs` | the functions of the library, typed, for either kind of handle; the macro that calls one |
//! | `library.rs` | `Mpi`: found, opened, and asked who it is |
//! | `session.rs` | begins and ends MPI |
//! | `comm.rs` | communicators, and messages between two ranks |
//! | `kept.rs` | a duplicate of a communicator, kept on its parent |
//! | `collective.rs` | what all ranks do together |
//! | `request.rs` | something under way |
//! | `datatype.rs` | where bytes lie |
//! | `wait.rs` | waiting with an end |
//!
//! The proofs share these facts. *Signatures*: those in `calls.rs` are those of the MPI standard, with handles of the kind the
//! library has; they were compared with the headers of all three interfaces. *Handles*: a `Comm`, `Request` or `Datatype`
//! holds a handle that the library gave out or that `unsafe` code vouched for, and nobody frees it before the value goes.
//! *Moment*: `call!` refuses when MPI has ended, or on a thread that may not call it, before anything is called.

pub mod calls;
pub mod collective;
pub mod comm;
pub mod datatype;
mod kept;
pub mod library;
pub mod request;
pub mod session;
pub mod wait;
