//! A piece of anonymous memory that other processes can map.

use reshard_plan::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Mapped memory; unmapped when dropped.
pub struct Segment {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping, and gives out addresses; who may use them is for those who do to prove.
unsafe impl Send for Segment {}
// SAFETY: as above; its counters are atomic.
unsafe impl Sync for Segment {}

impl Segment {
    /// New memory, all zero, and the file by which others find it.
    pub fn create(bytes: usize) -> Result<(Self, OwnedFd)> {
        let refused = |error: io::Error| {
            Error::new(ErrorKind::Memory, format!("{bytes} bytes of shared memory could not be had: {error}"))
        };
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"reshard".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: just made, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(fd);
        file.set_len(bytes as u64).map_err(refused)?;
        let segment = Self::map(&file, bytes).map_err(refused)?;
        Ok((segment, file.into()))
    }

    /// The memory of another process.
    pub fn open(pid: u64, fd: u64, bytes: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        let length = file.metadata()?.len();
        if length != bytes as u64 {
            return Err(io::Error::other(format!("{length} bytes instead of {bytes}")));
        }
        Self::map(&file, bytes)
    }

    fn map(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address the kernel chooses, of a file that has so many bytes and does not shrink.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made. Where large pages are to be had they are welcome; where not, nothing changes.
        unsafe { libc::madvise(first, bytes, libc::MADV_HUGEPAGE) };
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { first, bytes })
    }

    pub fn first(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The counter at a byte, a multiple of 8.
    pub fn counter(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a counter at {at} of {}", self.bytes);
        // SAFETY: inside the mapping, aligned, initialised (new memory is zero), and borrowed like the segment. Other
        // processes use these bytes as counters, too.
        unsafe { &*self.first().add(at).cast::<AtomicU64>() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped with these numbers; nobody has a borrow any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}
