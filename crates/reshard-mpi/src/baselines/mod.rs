//! The baselines that the engine is compared with: what people write by hand (`alltoall.rs`), ScaLAPACK's own routine
//! (`scalapack.rs`), and how all of them are timed (`makespan.rs`).

#[allow(unsafe_code)]
pub(crate) mod alltoall;
mod makespan;
#[allow(unsafe_code)]
mod scalapack;

pub use makespan::makespan;
pub use scalapack::{Scalapack, scalapack_libraries};
