//! What should be refused, and what should end although nobody answers.

use super::rank::SOON;
use super::values::messages;
use reshard_mpi::Comm;
use reshard_mpi::mpi::{Datatype, LARGEST_TAG, LONGEST_MESSAGE, Reduce, wait};
use reshard_plan::{ErrorKind, Result};
use std::time::Duration;

pub fn errors(world: &Comm) -> Result<()> {
    let comm = world.private()?;
    let other = 1 - comm.rank();
    let mut place = [0u8; 64];
    let here = place.as_mut_ptr();
    // SAFETY: all are refused before anything is in flight.
    let refused = unsafe {
        [
            (comm.isend(here, 1, 99, 0).map(drop), "MPI_Isend: rank 99"),
            (comm.irecv(here, 1, 2, 0).map(drop), "MPI_Irecv: rank 2"),
            (comm.isend(here, LONGEST_MESSAGE + 1, other, 0).map(drop), "at most 1073741824 bytes"),
            (comm.isend(here, 1, other, LARGEST_TAG + 1).map(drop), "tags end at 32767"),
            (comm.iprobe(Some(7), 0).map(drop), "MPI_Iprobe: rank 7"),
            (comm.broadcast(2, &mut [0]), "MPI_Bcast: rank 2"),
            (comm.all_gather(&[1, 2], &mut [0; 5]), "do not gather 5 bytes"),
            (comm.all_to_all_v(here, &[1], &[0, 0], here, &[0, 0], &[0, 0]), "1 entries for 2 ranks"),
            (comm.all_to_all_v(here, &[1, -1], &[0, 0], here, &[0, 0], &[0, 0]), "-1 is not"),
            (Datatype::bytes(comm.mpi()).contiguous(-5).map(drop), "MPI_Type_contiguous: -5 is not"),
            (Datatype::bytes(comm.mpi()).hindexed(&[1, 2], &[0]).map(drop), "2 and 1 entries"),
            (comm.split(Some(u32::MAX), 0).map(drop), "colours and keys"),
        ]
    };
    for (outcome, says) in refused {
        let error = outcome.expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    too_long(&comm)?;
    // A message that never comes.
    // SAFETY: cancelled and waited for below.
    let mut never = unsafe { comm.irecv(here, 16, other, 2)? };
    let error =
        wait(std::slice::from_mut(&mut never), Some(Duration::from_millis(200))).unwrap_err().to_string();
    assert!(error.contains("waited ") && error.contains("1 of 1"), "{error}");
    assert_eq!(never.received(), None);
    never.cancel()?;
    wait(std::slice::from_mut(&mut never), SOON)?;
    lonely(&comm)?;
    // Another thread.
    let error = std::thread::scope(|scope| scope.spawn(|| comm.barrier_within(SOON)).join().unwrap());
    if let Err(error) = &error {
        assert!(error.to_string().contains("second thread"), "{error}");
    }
    // All of it works as before.
    messages(&comm)
}

/// An error of MPI itself: a message is longer than its place. It is returned, and names the call.
fn too_long(comm: &Comm) -> Result<()> {
    if !returns_errors(comm) {
        return Ok(());
    }
    let (other, message, mut place) = (1 - comm.rank(), [comm.rank() as u8; 64], [0u8; 16]);
    // SAFETY: both are done before the memory goes.
    let (mut received, mut sent) = unsafe {
        (comm.irecv(place.as_mut_ptr(), 16, other, 1)?, [comm.isend(message.as_ptr(), 64, other, 1)?])
    };
    let error = wait(std::slice::from_mut(&mut received), SOON).unwrap_err();
    assert!(error.to_string().contains("MPI_Test failed") && error.kind() == ErrorKind::External, "{error}");
    wait(&mut sent, SOON)
}

/// An error that MPI finds at once: a message that lies nowhere.
pub fn from_nowhere(comm: &Comm) {
    if returns_errors(comm) {
        // SAFETY: MPI refuses to begin.
        let error = unsafe { comm.isend(std::ptr::null(), 1, 1 - comm.rank(), 3) }.unwrap_err();
        assert!(error.to_string().contains("MPI_Isend failed"), "{error}");
    }
}

/// Intel's library for the standard ABI takes MPI_ERRORS_RETURN for MPI_ERRORS_ABORT, seen in 2021.19.
fn returns_errors(comm: &Comm) -> bool {
    let library = format!("{:?}", comm.mpi());
    !(library.contains("Intel") && library.contains("Standard"))
}

/// A reduction in which one does not take part ends for the other with an error.
fn lonely(comm: &Comm) -> Result<()> {
    let apart = comm.split(Some(0), comm.rank() as u32)?.unwrap();
    if comm.rank() == 0 {
        let error =
            apart.all_reduce_within(&mut [1], Reduce::Sum, Some(Duration::from_millis(100))).unwrap_err();
        assert!(error.to_string().contains("waited "), "{error}");
    }
    comm.barrier_within(SOON)?;
    if comm.rank() == 1 {
        // Comes too late, so that all ends in order.
        apart.all_reduce_within(&mut [1], Reduce::Sum, SOON)?;
    }
    comm.barrier_within(SOON)
}
