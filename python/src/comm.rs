//! Communicators of mpi4py, by their handle: the MPI library that mpi4py loaded is the one that is used.

use crate::error::{OrRaise, wrong, wrong_type};
use crate::memory::described;
use pyo3::prelude::*;
use reshard_mpi::{Comm, Mpi, MpiOptions, RawComm};
use std::time::Duration;

/// The communicator behind an object of mpi4py.
pub fn communicator(given: &Bound<'_, PyAny>) -> PyResult<Comm> {
    let handle = match given.getattr("handle") {
        Ok(handle) => handle,
        // mpi4py 3 has a function for it.
        Err(_) => {
            let module = given.get_type().module()?;
            let module = given.py().import(module)?;
            match module.getattr("_handleof") {
                Ok(of) => of.call1((given,))?,
                Err(_) => {
                    return Err(wrong_type(format!(
                        "comm was given as {}; give a communicator of mpi4py, such as mpi4py.MPI.COMM_WORLD",
                        described(given)
                    )));
                }
            }
        }
    };
    let handle: i128 = handle.extract().map_err(|_| {
        wrong_type(format!(
            "the handle of comm is {}; that of a communicator of mpi4py is a number",
            described(&handle)
        ))
    })?;
    let mpi = Mpi::load(None).or_raise()?;
    let raw = match mpi.has_integer_handles() {
        // Its 32 bits, whichever sign they were read with.
        true => RawComm::Integer(handle as u32 as i32),
        false => RawComm::Pointer(std::ptr::with_exposed_provenance_mut(handle as usize)),
    };
    #[allow(unsafe_code)]
    // SAFETY: mpi4py's object holds the communicator, and whoever makes an engine with it duplicates it at once.
    unsafe { Comm::from_raw(mpi, raw) }.or_raise()
}

/// Options of an engine between processes.
pub fn options(deadline: Option<f64>, mover: Option<&str>, memory: Option<u64>) -> PyResult<MpiOptions> {
    let mut options = MpiOptions::default();
    if let Some(seconds) = deadline {
        options = options.with_deadline(time(seconds)?);
    }
    if let Some(name) = mover {
        let mover: reshard_mpi::Mover = name.parse().or_raise()?;
        use reshard_mpi::Mover::{Alltoallv, Alltoallw, Shared, SharedSource};
        if matches!(mover, Shared | SharedSource | Alltoallv | Alltoallw) {
            return Err(wrong(format!(
                "the mover {name} is for arrays of the library of Rust or for comparison; give private, cma, messages, mixed or lockstep, or \
                 none"
            )));
        }
        options = options.with_mover(mover);
    }
    if let Some(bytes) = memory {
        options = options.with_messages(reshard::engine::MessagesOptions::default().with_memory(bytes));
    }
    Ok(options)
}

/// A deadline in seconds; none if it is infinite.
pub fn time(seconds: f64) -> PyResult<Option<Duration>> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(Some(time)),
        _ if seconds == f64::INFINITY => Ok(None),
        _ => Err(wrong(format!(
            "deadline was given as {seconds}; give seconds above 0, or math.inf to wait without one"
        ))),
    }
}
