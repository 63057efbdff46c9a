//! A small array in one `MPI_Alltoallv`, where ranks have no memory in common.

#![allow(unsafe_code)]

use super::small::SmallMove;
use crate::ffi::comm::Comm;
use crate::mpi_transport::PrivateComm;
use reshard_plan::{Error, ErrorKind, Result};
use std::sync::Arc;

/// One rank's side of a small move in one collective. All ranks of the communicator must make it of the same move, with the strides of
/// all ranks, and run it as often and in the same order as any other collective; a rank that does not come is waited for
/// without a timeout.
#[doc(hidden)]
pub struct OneCollective {
    small: SmallMove,
    comm: Arc<Comm>,
    /// Bytes to and from each rank, and their offsets in the buffers.
    counts: [Vec<i32>; 2],
    at: [Vec<i32>; 2],
    buffers: [Vec<u8>; 2],
}

impl OneCollective {
    /// Prepares a move. Fails for more than 2^31 bytes.
    pub fn new(small: SmallMove, comm: &PrivateComm) -> Result<Self> {
        let too_long = |_| {
            Error::new(
                ErrorKind::Unsupported,
                "one collective moves less than 2^31 bytes of a rank".to_string(),
            )
        };
        let mut received = vec![0; comm.size()];
        small.receives().for_each(|(rank, bytes)| received[rank] = bytes);
        let sent: Vec<usize> = small.send_at().windows(2).map(|pair| pair[1] - pair[0]).collect();
        let int = |list: Vec<usize>| {
            list.into_iter().map(i32::try_from).collect::<std::result::Result<Vec<i32>, _>>()
        };
        let before = |counts: &[usize]| {
            counts
                .iter()
                .scan(0, |next, count| Some(std::mem::replace(next, *next + count)))
                .collect::<Vec<usize>>()
        };
        // At least one byte each: MPI rejects equal addresses of the two buffers as aliasing.
        let buffers = [&sent, &received].map(|counts| vec![0; counts.iter().sum::<usize>() + 1]);
        let at = [int(before(&sent)).map_err(too_long)?, int(before(&received)).map_err(too_long)?];
        let counts = [int(sent).map_err(too_long)?, int(received).map_err(too_long)?];
        Ok(Self { small, comm: comm.shared(), counts, at, buffers })
    }

    /// Moves the array. Collective.
    ///
    /// # Safety
    /// As for [`SmallMove::unpack`].
    pub unsafe fn run(&mut self, from: *const u8, to: *mut u8) -> Result<()> {
        let Self { small, comm, counts, at, buffers: [send, receive] } = self;
        // SAFETY: promised by the caller; the counts and offsets are those of the buffers.
        unsafe {
            small.pack(from, send)?;
            comm.all_to_all_v(send.as_ptr(), &counts[0], &at[0], receive.as_mut_ptr(), &counts[1], &at[1])?;
            small.unpack(from, to, |rank, bytes| receive.get(at[1][rank] as usize..)?.get(..bytes))
        }
    }
}
