//! A segment: anonymous memory (`memfd`) that other processes can map.

use reshard_plan::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes of a huge page on x86-64 and most other systems.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `MADV_COLLAPSE`, since Linux 6.1: makes huge pages now, whatever the settings for shared memory are.
const MADV_COLLAPSE: libc::c_int = 25;

/// `MFD_NOEXEC_SEAL`, since Linux 6.3.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

/// The kind of pages of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Ordinary pages, allocated when they are first touched.
    Ordinary,
    /// Huge pages if the segment is longer than one and the system grants them, allocated at once. For segments that are
    /// large and accessed all over: they have far more ordinary pages than the TLB has entries.
    Huge,
}

impl PageKind {
    /// Bytes of memory that a segment of `bytes` bytes takes.
    pub fn taken(self, bytes: usize) -> usize {
        match self {
            Self::Huge if bytes > HUGE_PAGE_BYTES => {
                bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(bytes)
            }
            _ => bytes,
        }
    }
}

/// A mapped segment; unmapped when dropped.
pub struct Segment {
    first: NonNull<u8>,
    bytes: usize,
    pages: PageKind,
    /// Mapped bytes, with the rest of the last huge page.
    taken: usize,
    /// The reserved addresses around the mapping.
    _reserved: Reserved,
}

/// A reserved range of addresses, with whatever is mapped there; unmapped when dropped.
struct Reserved {
    first: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: it owns its mapping, and gives out addresses; those who use them prove that they may.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`; its counters are atomic.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment, all zero, and returns it with the file by which others map it.
    pub fn create(bytes: usize, pages: PageKind) -> Result<(Self, OwnedFd)> {
        let refused = |error: io::Error| {
            Error::new(ErrorKind::Memory, format!("{bytes} bytes of shared memory could not be had: {error}"))
        };
        let taken = pages.taken(bytes) as u64;
        if let Some(longest) = longest_file().filter(|&longest| longest < taken) {
            return Err(Error::new(
                ErrorKind::Memory,
                format!(
                    "{taken} bytes of shared memory are needed, and this process may not make files, nor memory by them, of more than {longest} \
                     bytes (RLIMIT_FSIZE, `ulimit -f`); raise that limit, or choose the mover `messages`"
                ),
            ));
        }
        let file = anonymous_file().map_err(refused)?;
        file.set_len(taken).map_err(refused)?;
        seal(&file).map_err(refused)?;
        let segment = Self::map(&file, bytes, pages).map_err(refused)?;
        Ok((segment, file.into()))
    }

    /// Maps the segment of another process.
    pub fn open(pid: u64, fd: u64, bytes: usize, pages: PageKind) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        // Its length must be sealed: a mapping of a file that shrinks would fault.
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

    /// Maps a file, aligned to a huge page if it is that long.
    fn map(file: &File, bytes: usize, pages: PageKind) -> io::Result<Self> {
        let taken = pages.taken(bytes);
        let align = if taken < HUGE_PAGE_BYTES { 1 } else { HUGE_PAGE_BYTES };
        let reserve =
            taken.checked_add(align).ok_or_else(|| io::Error::other("more than can be addressed"))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: addresses that the kernel chooses, with nothing behind them yet.
        let reserved = unsafe { libc::mmap(std::ptr::null_mut(), reserve, libc::PROT_NONE, flags, -1, 0) };
        if reserved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = reserved.wrapping_byte_add(reserved.addr().wrapping_neg() % align);
        let reserved = Reserved { first: reserved, bytes: reserve };
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: in place of addresses just reserved; the file has so many bytes and does not shrink.
        let first = unsafe { libc::mmap(first, taken, access, flags, file.as_raw_fd(), 0) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { first, bytes, pages, taken, _reserved: reserved })
    }

    /// Puts the segment on huge pages if it was made for them, for this process and all others that map it. Takes as long as
    /// zeroing it. The system may refuse: then access is slower, not wrong.
    pub fn make_huge(&self) {
        let huge = self.pages == PageKind::Huge;
        let (first, whole) =
            (self.first(), if huge { self.taken / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES } else { 0 });
        // SAFETY: inside the mapping; neither advice nor reading changes its contents. The first call is for systems that
        // grant huge pages to shared memory on advice, the second for all others. The second skips ranges without any
        // page, so one page of each is touched before.
        unsafe {
            libc::madvise(first.cast(), whole, libc::MADV_HUGEPAGE);
            for at in (0..whole).step_by(HUGE_PAGE_BYTES) {
                first.add(at).read_volatile();
            }
            libc::madvise(first.cast(), whole, MADV_COLLAPSE);
        }
    }

    /// The address of the first byte.
    pub fn first(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// Bytes of the segment.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The counter at byte offset `at`, a multiple of 8.
    pub fn counter(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a counter at {at} of {}", self.bytes);
        // SAFETY: inside the mapping, aligned, initialised (new memory is zero), and borrowed like the segment. Other
        // processes use these bytes as counters, too.
        unsafe { &*self.first().add(at).cast::<AtomicU64>() }
    }
}

/// The most bytes that a file of this process may have, if there is a limit: who makes one longer is killed (SIGXFSZ).
pub fn longest_file() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Makes a file without a name.
fn anonymous_file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Some systems require the flag that nothing in the file is executable; older ones reject it.
    for flags in [flags | MFD_NOEXEC_SEAL, flags] {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"reshard".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: just made, and nobody else's.
            return Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Err(io::Error::last_os_error())
}

/// Seals the length of the file: reading a mapping beyond the end of a shortened file would kill the process (SIGBUS).
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
        // SAFETY: the whole range was mapped with these numbers; nobody borrows from it any more.
        unsafe { libc::munmap(self.first, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_bytes_on_whatever_pages() {
        for pages in [PageKind::Ordinary, PageKind::Huge] {
            for bytes in
                [1, 4097, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1, 3 * HUGE_PAGE_BYTES + 17]
            {
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
    fn the_length_is_sealed() {
        let (_one, file) = Segment::create(5000, PageKind::Ordinary).unwrap();
        let file = File::from(file);
        assert!(file.set_len(0).is_err() && file.set_len(9000).is_err());
        assert_eq!(file.metadata().unwrap().len(), 5000);
    }

    #[test]
    fn huge_pages_are_taken_whole() {
        assert_eq!(PageKind::Huge.taken(3 * HUGE_PAGE_BYTES + 1), 4 * HUGE_PAGE_BYTES);
        assert_eq!(PageKind::Huge.taken(HUGE_PAGE_BYTES), HUGE_PAGE_BYTES);
        assert_eq!(PageKind::Huge.taken(100), 100);
        assert_eq!(PageKind::Ordinary.taken(3 * HUGE_PAGE_BYTES + 1), 3 * HUGE_PAGE_BYTES + 1);
    }
}
