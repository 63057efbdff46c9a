//! reshard for Python: the extension module behind the package `reshard`.
//!
//! Thin on purpose: arrays become addresses (`memory.rs`), arguments become values of the Rust library, errors become exceptions
//! (`error.rs`). What needs no Rust, such as layouts of other libraries and pictures in notebooks, is in Python beside it.
//!
//! | file | what it is about |
//! |---|---|
//! | `error.rs` | exceptions |
//! | `memory.rs` | arrays, buffers and tensors as addresses; `dlpack.rs` the tensors |
//! | `layout.rs` | who owns which element, and where |
//! | `numbers.rs` | whole numbers |
//! | `kinds.rs` | types of elements that ranks agree on |
//! | `scale.rs` | alpha and beta |
//! | `comm.rs` | communicators of mpi4py |
//! | `engine.rs` | what moves data, with all ranks here or one of them |
//! | `plan.rs` | a plan, run any number of times, and looked at; `request.rs` what it moves |
//! | `parts.rs` | the parts that a run is given |
//! | `run.rs` | a run in flight |
//! | `looks.rs` | traffic, schedules and simulations |
//! | `ring.rs` | loads between neighbours |
//! | `files.rs` | sets of files; `convert.rs` written anew |

#![allow(missing_docs)]
// What is to be read is in `_reshard.pyi`.
// Functions that Python calls are given their arguments by value.
#![allow(clippy::needless_pass_by_value)]
#![deny(unsafe_op_in_unsafe_fn)]

#[allow(unsafe_code)]
mod comm;
mod convert;
#[allow(unsafe_code)]
mod dlpack;
#[allow(unsafe_code)]
mod engine;
mod error;
#[allow(unsafe_code)]
mod files;
mod kinds;
mod layout;
mod looks;
#[allow(unsafe_code)]
mod memory;
mod numbers;
mod parts;
#[allow(unsafe_code)]
mod plan;
mod request;
#[allow(unsafe_code)]
mod ring;
mod run;
mod scale;

use pyo3::prelude::*;

#[pymodule]
mod _reshard {
    #[pymodule_export]
    use crate::convert::convert;
    #[pymodule_export]
    use crate::files::{ShardSet, open_set, save};
    #[pymodule_export]
    use crate::layout::{Layout, layout_from_state};
    #[pymodule_export]
    use crate::looks::{Schedule, Timeline};
    #[pymodule_export]
    use crate::plan::{Plan, plan_from_state, redistribute};
    #[pymodule_export]
    use crate::ring::Ring;
    #[pymodule_export]
    use crate::run::Run;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
