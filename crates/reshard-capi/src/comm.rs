//! The caller's communicator, as Fortran passes it: the one kind of handle that is an integer in every MPI, so that the library depends on no
//! header of MPI.

use reshard::Result;
use reshard_mpi::{Comm, Mpi, RawComm};

/// The communicator of a Fortran handle.
///
/// # Safety
/// The handle is that of a communicator, and stays so while the value lives.
pub unsafe fn of_fortran(handle: i32) -> Result<Comm> {
    let mpi = Mpi::load(None)?;
    // SAFETY: promised by the caller.
    unsafe { Comm::from_raw(mpi, RawComm::Fortran(handle)) }
}
