//! Every value arrives, whatever its size, its bits and its address, and nothing else changes.
//!
//! The conformance suite judges random redistributions of bytes. Here are the values that a random case seldom meets: all
//! sizes of elements at all misalignments, all patterns of bits that arithmetic would change, all scalings, and all
//! mistakes a caller can make. Judged by a plain loop over global indices that shares nothing with the kernels.

#![allow(clippy::unwrap_used)]

mod arrays;
mod bits;
#[cfg(unix)]
mod guarded;
mod hostile;
mod levels;
mod limits;
mod raw;
mod refused;
mod scaled;
mod sizes;
