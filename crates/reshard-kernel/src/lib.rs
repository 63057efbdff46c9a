//! How bytes are copied. Part of `reshard`, for its engines: this crate promises nothing to anybody else.
//!
//! All unsafe code of the library is here, each block with its proof. Folders in the order of reading, each of which uses only
//! those above it:
//!
//! | folder | what it does |
//! |---|---|
//! | `simd` | what the processor can do: bytes copied, streamed, gathered, transposed; portable, AVX2, AVX-512 behind one trait |
//! | `store` | where rows end up: straight in memory, streamed past the caches, or scaled |
//! | `route` | what is copied: a part of a plan made ready, in bytes, axes in order, kernel chosen |
//! | `copy` | how it is copied: rows, transpositions, single elements |
//! | `memory` | the caller's memory, and memory on huge pages |
//! | `sync` | locks and the mailbox, the standard library's or loom's |
//! | `pool` | threads that wait for work |
//! | `tasks` | a plan cut into units that any thread, or any rank of a node, may take: each byte is copied once |
//! | `exchange` | a plan as messages: packed, sent on, unpacked |
//! | `staged` | a plan as chunks that all sources pack and a destination assembles |

#![allow(unsafe_code)]

mod copy;
pub mod exchange;
pub mod memory;
pub mod pool;
mod route;
mod simd;
pub mod staged;
mod store;
pub mod sync;
pub mod tasks;

pub use copy::plain_copy;
pub use simd::Level;
pub use store::{Number, Scaling};

/// Tests count what threads ask for.
#[cfg(all(test, not(loom)))]
#[global_allocator]
static ALLOCATOR: reshard_testkit::allocations::Counting = reshard_testkit::allocations::Counting;
