//! Communicators, and messages between two of their ranks.
//!
//! A message is bytes. The caller of a send or receive must keep the memory alive and unaliased until the request is
//! complete; no type can express that, hence `unsafe`.

use super::calls::{CallTable, Handle, Status, call, name};
use super::library::Mpi;
use super::request::Request;
use crate::abi::Raw;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest message in bytes; longer ones must be sent in parts.
pub const LONGEST_MESSAGE: usize = 1 << 30;

/// The largest tag that every MPI must support.
pub const LARGEST_TAG: u32 = 32767;

/// A communicator. Freed when dropped if it was made here, and MPI has not ended.
#[derive(Debug)]
pub struct Comm {
    mpi: &'static Mpi,
    pub(super) raw: Raw,
    rank: usize,
    size: usize,
    /// Made here: freed when dropped.
    ours: bool,
    /// A message of it may be in flight: it is never freed.
    leaked: AtomicBool,
}

/// A communicator of the host program, as its language passes it.
#[derive(Clone, Copy, Debug)]
pub enum RawComm {
    /// C's handle where it is an integer: the MPICH family.
    Integer(c_int),
    /// C's handle where it is a pointer: Open MPI and the standard ABI.
    Pointer(*mut c_void),
    /// Fortran's handle, always an integer.
    Fortran(i32),
}

impl Comm {
    /// The host program's communicator, which stays its own: it is not freed, and its errors go where the host wants them.
    /// [`Comm::private`] is a duplicate whose errors are returned.
    ///
    /// Fails if MPI has not begun, or has ended, and if the communicator is between two groups.
    ///
    /// # Safety
    /// The handle is valid, and stays so as long as the value lives.
    pub unsafe fn from_raw(mpi: &'static Mpi, handle: RawComm) -> Result<Comm> {
        mpi.check_begun()?;
        mpi.init_threads(false)?;
        let integers = matches!(mpi.calls, CallTable::Integers(_));
        let raw = match handle {
            RawComm::Integer(handle) if integers => handle.raw(),
            RawComm::Pointer(handle) if !integers => handle.raw(),
            RawComm::Fortran(number) if integers => number.raw(),
            RawComm::Fortran(number) => match mpi.comm_from_fortran {
                // SAFETY: the caller vouches for the number.
                Some(convert) => unsafe { convert(number) }.raw(),
                None => return Err(mismatch(format!("{} does not know handles of Fortran", mpi.version()))),
            },
            RawComm::Integer(_) | RawComm::Pointer(_) => {
                return Err(mismatch(format!(
                    "a communicator was passed as {handle:?}, but handles of {} are {}",
                    mpi.version(),
                    if integers { "integers" } else { "pointers" }
                )));
            }
        };
        if raw == mpi.abi.handles.comm_null {
            return Err(mismatch("a communicator was expected, and MPI_COMM_NULL was passed".to_string()));
        }
        // Where handles are pointers, this is what a number of Fortran becomes that no communicator has.
        if raw == 0 && !integers {
            return Err(mismatch(format!(
                "{handle:?} was passed, which is no communicator of {}",
                mpi.version()
            )));
        }
        let mut between: c_int = 0;
        // SAFETY: promised by the caller; the call writes one number.
        unsafe { call!(mpi, comm_test_inter(Handle::of(raw), &raw mut between))? };
        if between != 0 {
            return Err(mismatch(
                "a communicator between two groups was passed; give one of a single group, as MPI_Intercomm_merge makes it"
                    .to_string(),
            ));
        }
        // SAFETY: promised by the caller.
        unsafe { Self::borrowed(mpi, raw) }
    }

    /// # Safety
    /// The handle is valid, and stays so as long as the value lives.
    pub(super) unsafe fn borrowed(mpi: &'static Mpi, raw: Raw) -> Result<Comm> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: promised by the caller.
        unsafe {
            call!(mpi, comm_rank(Handle::of(raw), &raw mut rank))?;
            call!(mpi, comm_size(Handle::of(raw), &raw mut size))?;
        }
        let (rank, size) = (rank.max(0) as usize, size.max(0) as usize);
        Ok(Self { mpi, raw, rank, size, ours: false, leaked: AtomicBool::new(false) })
    }

    /// Takes over a communicator that was just made: errors are returned, and it is freed when dropped.
    pub(super) fn made(mpi: &'static Mpi, raw: Raw) -> Result<Comm> {
        let errors_return = mpi.abi.handles.errors_return;
        // SAFETY: the library just made it, and nobody else knows it.
        unsafe {
            call!(mpi, comm_set_errhandler(Handle::of(raw), Handle::of(errors_return)))?;
            let mut comm = Self::borrowed(mpi, raw)?;
            comm.ours = true;
            Ok(comm)
        }
    }

    /// A second value for this communicator. Dropping it does not free the communicator.
    ///
    /// # Safety
    /// This one, or its owner's, lives longer.
    pub unsafe fn borrow(&self) -> Result<Comm> {
        // SAFETY: promised by the caller.
        unsafe { Self::borrowed(self.mpi, self.raw) }
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The MPI library.
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// Keeps the communicator from being freed, as a message may be in flight: MPI would give its context to a new
    /// communicator, which would receive that message.
    pub(crate) fn leak(&self) {
        self.leaked.store(true, Ordering::Relaxed);
    }

    /// True if it is never freed.
    pub(super) fn is_leaked(&self) -> bool {
        self.leaked.load(Ordering::Relaxed)
    }

    /// True if this is the world: all processes that were launched together.
    pub(crate) fn is_world(&self) -> bool {
        self.raw == self.mpi.abi.handles.comm_world
    }

    /// True if both are the same communicator of the library.
    pub fn is(&self, other: &Comm) -> bool {
        self.raw == other.raw
    }

    /// How two communicators compare (`MPI_Comm_compare`), a number of the library: that of a communicator and its duplicate is the one
    /// of equal processes in the same order. Local.
    pub fn compare(&self, other: &Comm) -> Result<i32> {
        let mut result = 0;
        // SAFETY: both handles are valid.
        unsafe {
            call!(self.mpi, comm_compare(Handle::of(self.raw), Handle::of(other.raw), &raw mut result))?;
        }
        Ok(result)
    }

    /// Splits the communicator: one for all ranks that give the same colour, in the order of their keys; ranks without a
    /// colour get none. Collective.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        let number = |value: u32| {
            c_int::try_from(value).map_err(|_| {
                out_of_range(format!("colours and keys end at {}, {value} was given", c_int::MAX))
            })
        };
        let color = color.map_or(Ok(self.mpi.abi.numbers.undefined), number)?;
        let key = number(key)?;
        // SAFETY: the handle is valid.
        let raw = unsafe { call!(self.mpi, comm_split(Handle::of(self.raw), color, key) -> handle)? };
        if raw == self.mpi.abi.handles.comm_null { Ok(None) } else { Self::made(self.mpi, raw).map(Some) }
    }

    /// Begins to send bytes to a rank.
    ///
    /// # Safety
    /// Until the request is complete, or for ever if it is dropped before, the bytes stay where they are and nobody writes
    /// to them.
    pub unsafe fn isend(&self, from: *const u8, bytes: usize, to: usize, tag: u32) -> Result<Request> {
        let (count, to, tag) = (length(bytes)?, self.peer(name::isend, to)?, tag_number(tag)?);
        let byte = self.mpi.abi.handles.byte;
        // SAFETY: the handles are valid, and the caller vouches for the memory.
        let raw = unsafe {
            call!(self.mpi, isend(from.cast(), count, Handle::of(byte), to, tag, Handle::of(self.raw)) -> handle)?
        };
        Ok(Request::new(self.mpi, raw, false))
    }

    /// As [`Comm::isend`], but synchronous: complete only when the receiver has begun to receive.
    ///
    /// # Safety
    /// As for [`Comm::isend`].
    pub unsafe fn issend(&self, from: *const u8, bytes: usize, to: usize, tag: u32) -> Result<Request> {
        let (count, to, tag) = (length(bytes)?, self.peer(name::issend, to)?, tag_number(tag)?);
        let byte = self.mpi.abi.handles.byte;
        // SAFETY: the handles are valid, and the caller vouches for the memory.
        let raw = unsafe {
            call!(self.mpi, issend(from.cast(), count, Handle::of(byte), to, tag, Handle::of(self.raw)) -> handle)?
        };
        Ok(Request::new(self.mpi, raw, false))
    }

    /// Begins to receive at most `bytes` bytes from a rank. A longer message is an error of [`Request::test`].
    ///
    /// # Safety
    /// Until the request is complete, or for ever if it is dropped before, the memory stays where it is and nobody
    /// accesses it.
    pub unsafe fn irecv(&self, to: *mut u8, bytes: usize, from: usize, tag: u32) -> Result<Request> {
        let (count, from, tag) = (length(bytes)?, self.peer(name::irecv, from)?, tag_number(tag)?);
        let byte = self.mpi.abi.handles.byte;
        // SAFETY: the handles are valid, and the caller vouches for the memory.
        let raw = unsafe {
            call!(self.mpi, irecv(to.cast(), count, Handle::of(byte), from, tag, Handle::of(self.raw)) -> handle)?
        };
        Ok(Request::new(self.mpi, raw, true))
    }

    /// Probes for a message with this tag, from a rank or from any: returns its source and its bytes.
    pub fn iprobe(&self, from: Option<usize>, tag: u32) -> Result<Option<(usize, usize)>> {
        let from = from.map_or(Ok(self.mpi.abi.numbers.any_source), |from| self.peer(name::iprobe, from))?;
        let tag = tag_number(tag)?;
        let (mut flag, mut status) = (0, Status::new());
        // SAFETY: the handle is valid, and the status is long enough for any library.
        unsafe { call!(self.mpi, iprobe(from, tag, Handle::of(self.raw), &raw mut flag, &raw mut status))? };
        if flag == 0 {
            return Ok(None);
        }
        let source = status.int(self.mpi.abi.numbers.status_source_at);
        let source = usize::try_from(source).map_err(|_| {
            Error::new(ErrorKind::External, format!("MPI_Iprobe found a message from rank {source}"))
        })?;
        Ok(Some((source, self.mpi.bytes_of(&status)?)))
    }

    /// A peer's rank as a C integer. Checked here, as not every library does.
    pub(super) fn peer(&self, call: &str, rank: usize) -> Result<c_int> {
        if rank < self.size {
            return Ok(rank as c_int);
        }
        Err(out_of_range(format!("{call}: rank {rank} is not among the {} of this communicator", self.size)))
    }
}

impl Mpi {
    /// The bytes of the message that a status describes.
    pub(super) fn bytes_of(&self, status: &Status) -> Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: a call of this library filled in the status.
        unsafe { call!(self, get_count(status, Handle::of(self.abi.handles.byte), &raw mut bytes))? };
        usize::try_from(bytes).map_err(|_| {
            Error::new(ErrorKind::External, "MPI_Get_count knows no number of bytes".to_string())
        })
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.ours && !*self.leaked.get_mut() {
            // A communicator that cannot be freed is leaked; there is nothing else to do.
            let _ = self.free();
        }
    }
}

impl Comm {
    fn free(&mut self) -> Result<()> {
        if self.mpi.has_ended()? {
            return Ok(());
        }
        // SAFETY: made here, used by nobody else, and freed once.
        unsafe { call!(self.mpi, &mut self.raw, comm_free()) }
    }
}

/// A number of bytes as a C integer.
pub(super) fn length(bytes: usize) -> Result<c_int> {
    if bytes <= LONGEST_MESSAGE {
        return Ok(bytes as c_int);
    }
    Err(Error::new(
        ErrorKind::TooLarge,
        format!("a message has at most {LONGEST_MESSAGE} bytes, {bytes} were given; send it in parts"),
    ))
}

fn tag_number(tag: u32) -> Result<c_int> {
    if tag <= LARGEST_TAG {
        return Ok(tag as c_int);
    }
    Err(out_of_range(format!("tags end at {LARGEST_TAG}, {tag} was given")))
}

fn out_of_range(message: String) -> Error {
    Error::new(ErrorKind::OutOfRange, message)
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Mismatch, message)
}
