//! Communicators of mpi4py, by their handle: the MPI library that mpi4py loaded is the one that is used.

use crate::error::{OrRaise, wrong, wrong_type};
use crate::memory::described;
use crate::numbers::{optional, shown};
use pyo3::prelude::*;
use reshard::engine::MessagesOptions;
use reshard_mpi::{Comm, Mover, Mpi, MpiOptions, RawComm};
use std::time::Duration;

/// The communicator behind an object of mpi4py.
pub fn communicator(given: &Bound<'_, PyAny>) -> PyResult<Comm> {
    let other = || {
        wrong_type(format!(
            "comm was given as {}; give a communicator of mpi4py, such as mpi4py.MPI.COMM_WORLD",
            described(given)
        ))
    };
    // Groups, types and windows have handles, too; only communicators are asked this.
    let null = given.py().import("mpi4py.MPI").and_then(|mpi| mpi.getattr("COMM_NULL"));
    if null.is_ok_and(|null| given.eq(null).unwrap_or(false)) {
        return Err(wrong("comm was given as MPI.COMM_NULL; give a communicator that this rank belongs to"));
    }
    if given.call_method0("Is_inter").map_err(|_| other())?.is_truthy()? {
        return Err(wrong(
            "comm was given as a communicator between two groups; give one of a single group, as its Merge() makes it",
        ));
    }
    let handle = match given.getattr("handle") {
        Ok(handle) => handle,
        // mpi4py 3 has a function for it.
        Err(_) => {
            let module = given.py().import(given.get_type().module()?)?;
            module.getattr("_handleof").map_err(|_| other())?.call1((given,))?
        }
    };
    let handle: i128 = handle.extract().map_err(|_| other())?;
    let mpi = Mpi::load(None).or_raise()?;
    let raw = match mpi.has_integer_handles() {
        // Its 32 bits, whichever sign they were read with.
        true => RawComm::Integer(handle as u32 as i32),
        false => RawComm::Pointer(std::ptr::with_exposed_provenance_mut(handle as usize)),
    };
    // SAFETY: mpi4py's object holds the communicator, and whoever makes an engine with it duplicates it at once.
    unsafe { Comm::from_raw(mpi, raw) }.or_raise()
}

/// What is said of work between processes, as it was given: it is looked at where the other ranks can be told what is wrong with it.
#[derive(Clone, Copy, Default)]
pub struct Between<'a, 'p> {
    /// How long a rank waits for another.
    pub deadline: Option<&'a Bound<'p, PyAny>>,
    /// How bytes travel.
    pub mover: Option<&'a Bound<'p, PyAny>>,
    /// A limit in bytes.
    pub memory: Option<&'a Bound<'p, PyAny>>,
}

impl Between<'_, '_> {
    /// Fails if anything was said, as there is no communicator.
    pub fn refuse(&self) -> PyResult<()> {
        match self.deadline.is_some() || self.mover.is_some() || self.memory.is_some() {
            true => Err(wrong(
                "deadline, mover and memory are for ranks on a communicator; give comm, too, or leave them out",
            )),
            false => Ok(()),
        }
    }

    /// The options of an engine.
    pub fn options(&self) -> PyResult<MpiOptions> {
        let mut options = MpiOptions::default();
        if let Some(deadline) = self.deadline {
            options = options.with_deadline(time(deadline)?);
        }
        if let Some(given) = self.mover {
            let wanted = "give a name, such as \"messages\"";
            let name: String = given
                .extract()
                .map_err(|_| wrong_type(format!("mover was given as {}; {wanted}", shown(given))))?;
            let mover: Mover = name.parse().or_raise()?;
            use Mover::{Alltoallv, Alltoallw, Shared, SharedSource};
            if matches!(mover, Shared | SharedSource | Alltoallv | Alltoallw) {
                return Err(wrong(format!(
                    "the mover {name} is for arrays of the library of Rust or for comparison; give private, cma, messages, mixed or \
                     lockstep, or none"
                )));
            }
            options = options.with_mover(mover);
        }
        if let Some(bytes) = optional(self.memory, "memory")? {
            options = options.with_messages(MessagesOptions::default().with_memory(bytes));
        }
        Ok(options)
    }
}

/// A deadline in seconds; none if it is infinite.
pub fn time(given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let refused = || {
        format!(
            "deadline was given as {}; give seconds above 0, or math.inf to wait without one",
            shown(given)
        )
    };
    let seconds: f64 = given.extract().map_err(|_| wrong_type(refused()))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(Some(time)),
        _ if seconds == f64::INFINITY => Ok(None),
        _ => Err(wrong(refused())),
    }
}
