//! The engine between processes, over MPI loaded at run time: one build for Open MPI, the MPICH family and the standard ABI.
//!
//! [`MpiEngine`] runs a plan with a process for each rank, [`Shared`] is a part in memory that all ranks of a node map,
//! [`MpiRing`] balances loads between neighbours. Below them lies a thin layer over MPI.
//!
//! A program that is linked against one MPI runs on that one only, and cannot be built where there is none. So nothing is
//! linked: [`Mpi::load`] finds the library that fits the launcher, and a table holds the handles and constants of its ABI.
//! [`Session`] begins and ends MPI, [`Comm`] is a communicator, [`Request`](mpi::Request) an operation in flight, [`Datatype`](mpi::Datatype) a derived
//! datatype. Every return code is checked; errors are values and never end the program.
//!
//! ```no_run
//! use reshard_mpi::Mpi;
//! use reshard_mpi::mpi::Reduce;
//! let session = Mpi::load(None)?.init()?;
//! let world = session.world();
//! let mut most = [world.rank() as u64];
//! world.all_reduce(&mut most, Reduce::Max)?;
//! assert_eq!(most[0] as usize, world.size() - 1);
//! # Ok::<(), reshard_plan::Error>(())
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod agree;
#[doc(hidden)]
pub mod baselines;
pub mod communicator;
mod engine;
#[allow(unsafe_code)]
mod ffi;
mod fork;
pub mod in_process;
mod launch;
mod mover;
#[allow(unsafe_code)]
mod mpi_transport;
mod node;
mod registry;
mod ring;
mod search;
mod server;
#[allow(unsafe_code)]
mod shm;
mod strides;
pub mod transport;
mod tree;

pub use engine::{MpiEngine, MpiOptions, Own, OwnParts, OwnedRun, RunArrays, Running};
pub use ffi::comm::{Comm, RawComm};
pub use ffi::library::Mpi;
pub use ffi::session::Session;
#[doc(hidden)]
pub use mover::gather::{Gathered, NodeGather, NotGathered};
pub use mover::{Mover, Shared};
pub use ring::{MpiRing, MpiRingOptions};

/// The rest of the layer over MPI: collectives, requests, datatypes, what the launcher says.
pub mod mpi {
    pub use crate::ffi::collective::{Blocks, Reduce};
    pub use crate::ffi::comm::{LARGEST_TAG, LONGEST_MESSAGE};
    pub use crate::ffi::datatype::{Datatype, Dealt};
    pub use crate::ffi::joined::Port;
    pub use crate::ffi::request::Request;
    pub use crate::ffi::wait::wait;
    pub use crate::launch::{Family, Launcher, launched};
    pub use crate::mpi_transport::PrivateComm;
    pub use crate::search::known_names as library_names;
}

/// The examples of the documents run with the documentation tests: here, because this crate sees all they use.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/mpi.md")]
    struct BetweenProcesses;
    #[doc = include_str!("../../../docs/rings.md")]
    struct Rings;
}
