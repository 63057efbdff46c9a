//! A piece of anonymous memory that other processes can map.

use reshard_plan::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What a huge page holds on the systems we know.
const HUGE: usize = 2 << 20;

/// `MADV_COLLAPSE`, since Linux 6.1: make huge pages of these now, whatever the settings for shared memory are.
const COLLAPSE: libc::c_int = 25;

/// `MFD_NOEXEC_SEAL`, since Linux 6.3.
const NOEXEC: libc::c_uint = 8;

/// What memory is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Ordinary pages, taken when they are first touched.
    Ordinary,
    /// Whole huge ones if it takes more than one and they are to be had, taken at once. For what is large and used all over:
    /// it has far more ordinary pages than a processor remembers.
    Huge,
}

impl PageKind {
    /// Bytes that so many take.
    pub fn taken(self, bytes: usize) -> usize {
        match self {
            Self::Huge if bytes > HUGE => bytes.checked_next_multiple_of(HUGE).unwrap_or(bytes),
            _ => bytes,
        }
    }
}

/// Mapped memory; unmapped when dropped.
pub struct Segment {
    first: NonNull<u8>,
    bytes: usize,
    pages: PageKind,
    /// With what is left of the last page.
    taken: usize,
    /// Around it.
    _reserved: Reserved,
}

/// Addresses that are ours, with whatever is mapped there.
struct Reserved {
    first: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: it owns its mapping, and gives out addresses; who may use them is for those who do to prove.
unsafe impl Send for Segment {}
// SAFETY: as above; its counters are atomic.
unsafe impl Sync for Segment {}

impl Segment {
    /// New memory, all zero, and the file by which others find it.
    pub fn create(bytes: usize, pages: PageKind) -> Result<(Self, OwnedFd)> {
        let refused = |error: io::Error| {
            Error::new(ErrorKind::Memory, format!("{bytes} bytes of shared memory could not be had: {error}"))
        };
        let file = anonymous_file().map_err(refused)?;
        file.set_len(pages.taken(bytes) as u64).map_err(refused)?;
        seal(&file).map_err(refused)?;
        let segment = Self::map(&file, bytes, pages).map_err(refused)?;
        Ok((segment, file.into()))
    }

    /// The memory of another process.
    pub fn open(pid: u64, fd: u64, bytes: usize, pages: PageKind) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        // It must not change its length under us, either.
        // SAFETY: an open file.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::other("what was found there is another file"));
        }
        let length = file.metadata()?.len();
        let taken = pages.taken(bytes);
        if length != taken as u64 {
            return Err(io::Error::other(format!("{length} bytes instead of {taken}")));
        }
        Self::map(&file, bytes, pages)
    }

    /// Maps a file, where huge pages can begin if there are to be any.
    fn map(file: &File, bytes: usize, pages: PageKind) -> io::Result<Self> {
        let taken = pages.taken(bytes);
        let align = if taken < HUGE { 1 } else { HUGE };
        let room = taken.checked_add(align).ok_or_else(|| io::Error::other("more than can be addressed"))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: addresses that the kernel chooses, with nothing behind them yet.
        let reserved = unsafe { libc::mmap(std::ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
        if reserved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = reserved.wrapping_byte_add(reserved.addr().wrapping_neg() % align);
        let reserved = Reserved { first: reserved, bytes: room };
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: in place of addresses just reserved; the file has so many bytes and does not shrink.
        let first = unsafe { libc::mmap(first, taken, access, flags, file.as_raw_fd(), 0) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { first, bytes, pages, taken, _reserved: reserved })
    }

    /// Puts it on huge pages if it was made for them, for this process and all others that map it. That takes as long as
    /// zeroing it. The system may refuse: then it is slower, not wrong.
    pub fn make_huge(&self) {
        let huge = self.pages == PageKind::Huge;
        let (first, whole) = (self.first(), if huge { self.taken / HUGE * HUGE } else { 0 });
        // SAFETY: the mapping; advice does not change what is in it, and neither does reading. The first is for systems where
        // shared memory has such pages for the asking, the second for all others. What has no page at all is not made huge,
        // so one is touched in between.
        unsafe {
            libc::madvise(first.cast(), whole, libc::MADV_HUGEPAGE);
            for at in (0..whole).step_by(HUGE) {
                first.add(at).read_volatile();
            }
            libc::madvise(first.cast(), whole, COLLAPSE);
        }
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

/// A file without a name.
fn anonymous_file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Some systems want it said that nothing in it will be run; older ones do not know the word.
    for flags in [flags | NOEXEC, flags] {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"reshard".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: just made, and nobody else's.
            return Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Err(io::Error::last_os_error())
}

/// Nobody can make the file shorter or longer from now on: a mapping of it that has lost its end would be the end of whoever
/// reads it.
fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: an open file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: mapped with these numbers, all of it; nobody has a borrow any more.
        unsafe { libc::munmap(self.first, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_bytes_on_whatever_pages() {
        for pages in [PageKind::Ordinary, PageKind::Huge] {
            for bytes in [1, 4097, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 17] {
                let (one, file) = Segment::create(bytes, pages).unwrap();
                let (pid, fd) = (u64::from(std::process::id()), file.as_raw_fd() as u64);
                let other = Segment::open(pid, fd, bytes, pages).unwrap();
                one.make_huge();
                drop(file);
                assert!(one.first() != other.first(), "two mappings");
                // SAFETY: a byte of a segment. Each is read and written as it is, at two addresses.
                let read = |at: usize| unsafe { other.first().add(at).read_volatile() };
                let write = |at: usize, byte: u8| unsafe { one.first().add(at).write_volatile(byte) };
                let value = |at: usize| (at * 31 + at / 4096) as u8;
                assert!((0..bytes).all(|at| read(at) == 0), "new memory is zero");
                (0..bytes).for_each(|at| write(at, value(at)));
                assert!((0..bytes).all(|at| read(at) == value(at)));
            }
        }
    }

    #[test]
    fn a_length_that_is_not_the_files_is_refused() {
        let (_one, file) = Segment::create(5000, PageKind::Ordinary).unwrap();
        let (pid, fd) = (u64::from(std::process::id()), file.as_raw_fd() as u64);
        let said = Segment::open(pid, fd, 6000, PageKind::Ordinary).err().unwrap().to_string();
        assert_eq!(said, "5000 bytes instead of 6000");
    }

    #[test]
    fn nobody_can_shorten_it() {
        let (_one, file) = Segment::create(5000, PageKind::Ordinary).unwrap();
        let file = File::from(file);
        assert!(file.set_len(0).is_err() && file.set_len(9000).is_err());
        assert_eq!(file.metadata().unwrap().len(), 5000);
    }

    #[test]
    fn huge_pages_are_taken_whole() {
        assert_eq!(PageKind::Huge.taken(3 * HUGE + 1), 4 * HUGE);
        assert_eq!(PageKind::Huge.taken(HUGE), HUGE);
        assert_eq!(PageKind::Huge.taken(100), 100);
        assert_eq!(PageKind::Ordinary.taken(3 * HUGE + 1), 3 * HUGE + 1);
    }
}
