//! Collective operations. Lengths are checked before MPI is called.

use super::calls::{Handle, call, each, name, none_negative};
use super::comm::{Comm, length};
use super::datatype::Datatype;
use super::request::Request;
use super::wait::wait;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum, modulo 2^64.
    Sum,
    /// Bitwise or.
    Or,
}

impl Comm {
    /// Waits for all ranks, without a timeout.
    pub fn barrier(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        unsafe { call!(self.mpi(), barrier(Handle::of(self.raw))) }
    }

    /// Begins a non-blocking barrier.
    pub fn ibarrier(&self) -> Result<Request> {
        // SAFETY: the handle is valid, and no memory is involved.
        let raw = unsafe { call!(self.mpi(), ibarrier(Handle::of(self.raw)) -> handle)? };
        Ok(Request::new(self.mpi(), raw, false))
    }

    /// Broadcasts the bytes of rank `root` to all ranks. All must pass the same number of bytes.
    pub fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let (count, root) = (length(bytes.len())?, self.peer(name::bcast, root)?);
        let byte = self.mpi().abi.handles.byte;
        // SAFETY: handles are valid, and the memory is borrowed until the call returns.
        unsafe {
            call!(
                self.mpi(),
                bcast(bytes.as_mut_ptr().cast(), count, Handle::of(byte), root, Handle::of(self.raw))
            )
        }
    }

    /// Gathers the bytes of all ranks on all ranks, in the order of ranks. All must pass the same number of bytes.
    pub fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let count = length(mine.len())?;
        if mine.len().checked_mul(self.size()) != Some(all.len()) {
            return Err(not_gathered(self.size(), mine.len(), all.len()));
        }
        let byte = self.mpi().abi.handles.byte;
        let (mine, all) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: handles are valid, the memory is borrowed until the call returns and has room for all.
        unsafe {
            call!(
                self.mpi(),
                allgather(mine, count, Handle::of(byte), all, count, Handle::of(byte), Handle::of(self.raw))
            )
        }
    }

    /// As [`Comm::all_gather`], with a timeout. After a timeout the communicator cannot be used any more.
    pub fn all_gather_within(&self, mine: &[u8], all: &mut [u8], time: Option<Duration>) -> Result<()> {
        let count = length(mine.len())?;
        if mine.len().checked_mul(self.size()) != Some(all.len()) {
            return Err(not_gathered(self.size(), mine.len(), all.len()));
        }
        let byte = self.mpi().abi.handles.byte;
        // Buffers of their own, as MPI may use them after the timeout.
        let from: *mut [u8] = Box::leak(mine.to_vec().into_boxed_slice());
        let into: *mut [u8] = Box::leak(vec![0; all.len()].into_boxed_slice());
        // SAFETY: handles are valid, the memory is leaked and has room for all.
        let raw = unsafe {
            call!(
                self.mpi(),
                iallgather(from.cast::<c_void>().cast_const(), count, Handle::of(byte), into.cast(), count, Handle::of(byte), Handle::of(self.raw)) -> handle
            )?
        };
        wait(&mut [Request::new(self.mpi(), raw, false)], time)?;
        // SAFETY: both leaked above, and no longer known to the library.
        unsafe {
            drop(Box::from_raw(from));
            all.copy_from_slice(&Box::from_raw(into));
        }
        Ok(())
    }

    /// Reduces the numbers of all ranks elementwise; all get the result. All must pass equally many.
    pub fn all_reduce(&self, numbers: &mut [u64], how: Reduce) -> Result<()> {
        let (count, kind, op) = (self.count_of(numbers)?, self.mpi().abi.handles.uint64, self.operation(how));
        let in_place = std::ptr::without_provenance(self.mpi().abi.numbers.in_place);
        let to = numbers.as_mut_ptr().cast();
        // SAFETY: handles are valid, and the memory is borrowed until the call returns.
        unsafe {
            call!(
                self.mpi(),
                allreduce(in_place, to, count, Handle::of(kind), Handle::of(op), Handle::of(self.raw))
            )
        }
    }

    /// As [`Comm::all_reduce`], with a timeout. After a timeout the communicator cannot be used any more, because the
    /// ranks no longer agree on which collective comes next.
    pub fn all_reduce_within(&self, numbers: &mut [u64], how: Reduce, time: Option<Duration>) -> Result<()> {
        let (request, own) = self.begin_all_reduce(numbers, how)?;
        wait(&mut [request], time)?;
        // SAFETY: leaked above, and no longer known to the library.
        numbers.copy_from_slice(&unsafe { Box::from_raw(own) });
        Ok(())
    }

    /// Begins to reduce numbers. The result is written to a copy of them, leaked, as MPI may write to it at any time until the request is
    /// complete.
    pub(super) fn begin_all_reduce(&self, numbers: &[u64], how: Reduce) -> Result<(Request, *mut [u64])> {
        let (count, kind, op) = (self.count_of(numbers)?, self.mpi().abi.handles.uint64, self.operation(how));
        let in_place = std::ptr::without_provenance(self.mpi().abi.numbers.in_place);
        let own: *mut [u64] = Box::leak(numbers.to_vec().into_boxed_slice());
        // SAFETY: handles are valid, and the memory is leaked.
        let raw = unsafe {
            call!(
                self.mpi(),
                iallreduce(in_place, own.cast(), count, Handle::of(kind), Handle::of(op), Handle::of(self.raw)) -> handle
            )?
        };
        Ok((Request::new(self.mpi(), raw, false), own))
    }

    /// As [`Comm::barrier`], with a timeout.
    pub fn barrier_within(&self, time: Option<Duration>) -> Result<()> {
        wait(&mut [self.ibarrier()?], time)
    }

    /// `MPI_Alltoallv` of bytes: sends a range of bytes to each rank and receives one from each. `counts` and `at` have an
    /// entry for each rank: the number of bytes, and the offset.
    ///
    /// # Safety
    /// All ranges lie in memory that may be read, or written; those that are written overlap with no other.
    pub unsafe fn all_to_all_v(
        &self,
        send: *const u8,
        send_counts: &[i32],
        send_at: &[i32],
        recv: *mut u8,
        recv_counts: &[i32],
        recv_at: &[i32],
    ) -> Result<()> {
        for (name, list) in
            [("send", send_counts), ("send", send_at), ("receive", recv_counts), ("receive", recv_at)]
        {
            self.one_for_each_rank(name, list.len())?;
        }
        none_negative(name::alltoallv, send_counts)?;
        none_negative(name::alltoallv, recv_counts)?;
        let byte = self.mpi().abi.handles.byte;
        let (out, out_at) = (send_counts.as_ptr(), send_at.as_ptr());
        let (into, into_at) = (recv_counts.as_ptr(), recv_at.as_ptr());
        // SAFETY: handles are valid, lists have an entry for each rank, and the caller vouches for the memory.
        unsafe {
            call!(
                self.mpi(),
                alltoallv(
                    send.cast(),
                    out,
                    out_at,
                    Handle::of(byte),
                    recv.cast(),
                    into,
                    into_at,
                    Handle::of(byte),
                    Handle::of(self.raw)
                )
            )
        }
    }

    /// `MPI_Alltoallw`: sends to each rank and receives from each, with a datatype for each.
    ///
    /// # Safety
    /// All bytes of the datatypes at their offsets lie in memory that may be read, or written; those that are written
    /// overlap with no other.
    pub unsafe fn all_to_all_w(
        &self,
        send: *const u8,
        out: Blocks<'_>,
        recv: *mut u8,
        into: Blocks<'_>,
    ) -> Result<()> {
        for (name, blocks) in [("send", out), ("receive", into)] {
            self.one_for_each_rank(name, blocks.counts.len())?;
            self.one_for_each_rank(name, blocks.at.len())?;
            self.one_for_each_rank(name, blocks.types.len())?;
            none_negative(name::alltoallw, blocks.counts)?;
        }
        let _guard = self.mpi().enter()?;
        let code = each!(self.mpi(), calls => {
            let out_types: Vec<_> = out.types.iter().map(|kind| Handle::of(kind.raw)).collect();
            let into_types: Vec<_> = into.types.iter().map(|kind| Handle::of(kind.raw)).collect();
            // SAFETY: handles are valid, lists have an entry for each rank, and the caller vouches for the memory.
            unsafe {
                (calls.alltoallw)(
                    send.cast(),
                    out.counts.as_ptr(),
                    out.at.as_ptr(),
                    out_types.as_ptr(),
                    recv.cast(),
                    into.counts.as_ptr(),
                    into.at.as_ptr(),
                    into_types.as_ptr(),
                    Handle::of(self.raw),
                )
            }
        });
        self.mpi().check(name::alltoallw, code)
    }

    /// The number of numbers as a C integer.
    fn count_of(&self, numbers: &[u64]) -> Result<c_int> {
        length(size_of_val(numbers))?;
        Ok(numbers.len() as c_int)
    }

    /// The handle of a reduction.
    fn operation(&self, how: Reduce) -> usize {
        let handles = &self.mpi().abi.handles;
        match how {
            Reduce::Max => handles.max,
            Reduce::Min => handles.min,
            Reduce::Sum => handles.sum,
            Reduce::Or => handles.bor,
        }
    }

    /// Fails unless a list has an entry for each rank.
    fn one_for_each_rank(&self, name: &str, given: usize) -> Result<()> {
        if given == self.size() {
            return Ok(());
        }
        Err(mismatch(format!("a list of what to {name} has {given} entries for {} ranks", self.size())))
    }
}

/// One side of [`Comm::all_to_all_w`]: an entry for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// Number of elements of the datatype.
    pub counts: &'a [i32],
    /// Offset in bytes.
    pub at: &'a [i32],
    /// The datatype.
    pub types: &'a [&'a Datatype],
}

fn not_gathered(ranks: usize, mine: usize, all: usize) -> Error {
    mismatch(format!("{ranks} ranks with {mine} bytes each do not gather {all} bytes"))
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Mismatch, message)
}
