//! How bytes are copied. Part of `reshard`, for its engines: this crate has no stable interface for anybody else.
//!
//! All unsafe code of the library is here, each block with its safety argument. The folders, in the order to read them; each
//! uses only those above it:
//!
//! | folder | what it does |
//! |---|---|
//! | `simd` | vector primitives (copy, non-temporal store, lines of masked loads, transpose): portable, AVX2 and AVX-512 behind one trait |
//! | `store` | sinks that write rows: plain stores, non-temporal stores, or scaled elements |
//! | `route` | what is copied: a part of a plan compiled to byte offsets, with ordered axes and a chosen kernel |
//! | `copy` | how it is copied: row, transpose and element kernels |
//! | `memory` | the caller's buffers, and memory on huge pages |
//! | `sync` | monitor and mailbox, on the primitives of the standard library or of loom |
//! | `pool` | the thread pool |
//! | `tasks` | a plan cut into tasks that any thread, or any rank of a node, may take: each byte is copied once |
//! | `exchange` | a plan as messages: packed, sent, unpacked |
//! | `staged` | a plan as chunks that all sources pack into staging buffers and a destination assembles |

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

/// Tests count the memory each thread allocates.
#[cfg(all(test, not(loom)))]
#[global_allocator]
static ALLOCATOR: reshard_testkit::allocations::Counting = reshard_testkit::allocations::Counting;
