//! reshard for C, and through it for Fortran: opaque layouts, plans, engines, runs and rings behind `include/reshard.h`.
//!
//! Thin on purpose: each function checks its pointers, calls the Rust library, and returns a code. Everything passes through
//! `border`, so nothing unwinds into the caller, and every failure leaves a sentence. `reshard.h` is written from these files by
//! cbindgen (`xtask/tests/header.rs`): their comments are what a reader of C sees.
//!
//! | file | what it is about |
//! |---|---|
//! | `border.rs` | codes, messages, pointers: the way in and out |
//! | `layout.rs` | who owns which element, and where |
//! | `index.rs` | ... asked element by element |
//! | `plan.rs` | what is to be moved |
//! | `arrays.rs` | the memory of one run |
//! | `options.rs` | options of engines and rings, as text |
//! | `comm.rs` | the caller's communicator |
//! | `engine.rs` | what moves data: threads, or processes over MPI |
//! | `slot.rs` | what an engine shares with its run |
//! | `run.rs` | a run in flight |
//! | `ring.rs` | loads between neighbours |
//! | `coupling.rs` | the processes of a job, and where it meets another |
//! | `publisher.rs` | arrays that another job gets |
//! | `subscriber.rs` | arrays of another job |

#![allow(unsafe_code, non_camel_case_types)]
#![deny(unsafe_op_in_unsafe_fn)]

mod apart;
mod arrays;
mod border;
mod comm;
mod coupling;
mod engine;
mod index;
mod layout;
mod options;
mod plan;
mod publisher;
mod ring;
mod run;
mod slot;
mod subscriber;

#[cfg(test)]
mod tests;
