//! The system's call that reads the memory of another process, and whether it may be used.

use crate::communicator::Communicator;
use crate::node::random;
use reshard_plan::Result;
use std::io;
use std::time::Duration;

/// The most ranges of either side in one call, far below the system's own limit of 1024.
pub const MAX_RANGES: usize = 512;

/// Bytes of the text in which a rank says what it could not read.
const FAILURE_BYTES: usize = 256;

/// Ranges to be read in one call, from another process to this one. Adjacent ones are joined, on each side for itself.
#[derive(Default)]
pub struct ReadList {
    here: Vec<libc::iovec>,
    there: Vec<libc::iovec>,
    bytes: usize,
}

// SAFETY: addresses alone; they are used in `read`, whose caller vouches for them.
unsafe impl Send for ReadList {}

impl ReadList {
    pub fn new() -> Self {
        let ranges = || Vec::with_capacity(MAX_RANGES);
        Self { here: ranges(), there: ranges(), bytes: 0 }
    }

    pub fn clear(&mut self) {
        self.here.clear();
        self.there.clear();
        self.bytes = 0;
    }

    pub fn is_full(&self) -> bool {
        self.here.len().max(self.there.len()) >= MAX_RANGES
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts bytes that were moved without a range.
    pub fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Adds a range. The list must not be full.
    pub fn push(&mut self, from: u64, to: *mut u8, bytes: usize) {
        push_range(&mut self.here, to.cast(), bytes);
        push_range(&mut self.there, std::ptr::without_provenance_mut(from as usize), bytes);
        self.bytes += bytes;
    }

    /// Reads all ranges. Fails if the process does not exist, may not be read, or has no memory there.
    ///
    /// # Safety
    /// All ranges of this process may be written to, and nobody else accesses them.
    pub unsafe fn read(&self, pid: i32) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let [here, there] =
            [&self.here, &self.there].map(|ranges| (ranges.as_ptr(), ranges.len() as libc::c_ulong));
        // SAFETY: the lists live until the call returns; the system checks the addresses of the other process, and the caller
        // promises those of this one.
        let read = unsafe { libc::process_vm_readv(pid, here.0, here.1, there.0, there.1, 0) };
        match usize::try_from(read) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(read) if read < self.bytes => {
                Err(io::Error::other(format!("only {read} of {} bytes are there", self.bytes)))
            }
            Ok(_) => Ok(()),
        }
    }
}

fn push_range(ranges: &mut Vec<libc::iovec>, first: *mut libc::c_void, bytes: usize) {
    match ranges.last_mut() {
        Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == first => last.iov_len += bytes,
        _ => ranges.push(libc::iovec { iov_base: first, iov_len: bytes }),
    }
}

/// The number of a process, and a random number in its memory by which a reader sees that it has found it.
struct Probe {
    pid: u64,
    address: u64,
    number: u128,
    /// The processors that it may use, a bit for each.
    processors: ProcessorSet,
}

/// A bit for each processor.
type ProcessorSet = [u64; 16];

/// The processors that this process may use.
fn own_processors() -> ProcessorSet {
    let mut set = ProcessorSet::default();
    // SAFETY: a place of so many bytes for the answer; it stays empty if the system has more processors.
    unsafe { libc::sched_getaffinity(0, size_of_val(&set), (&raw mut set).cast()) };
    set
}

impl Probe {
    const BYTES: usize = 32 + size_of::<ProcessorSet>();

    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.pid, self.address].into_iter().chain(self.processors).flat_map(u64::to_ne_bytes);
        self.number.to_ne_bytes().into_iter().chain(numbers).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let random = u128::from_ne_bytes(bytes[..16].try_into().unwrap_or_default());
        let processors = std::array::from_fn(|k| number(32 + 8 * k));
        Self { pid: number(16), address: number(24), number: random, processors }
    }

    fn try_reading(&self) -> io::Result<()> {
        let mut found = [0_u8; 16];
        let mut list = ReadList::new();
        list.push(self.address, found.as_mut_ptr(), found.len());
        // SAFETY: a buffer of this function.
        unsafe { list.read(self.pid as i32)? };
        match u128::from_ne_bytes(found) == self.number {
            true => Ok(()),
            false => Err(io::Error::other("what was found there is another process's")),
        }
    }
}

/// Tries whether this rank can read the memory of `owners`. Returns the processes of all ranks and the number of processors that they may
/// use, or why some rank could not read another's: the same on all ranks. Collective.
pub fn probe(
    comm: &Communicator,
    owners: &[usize],
    limit: Option<Duration>,
) -> Result<std::result::Result<(Vec<i32>, usize), String>> {
    let number = Box::new(random());
    let address = std::ptr::from_ref::<u128>(&number).expose_provenance() as u64;
    let mine =
        Probe { pid: u64::from(std::process::id()), address, number: *number, processors: own_processors() };
    let all = comm.gather(&mine.to_bytes(), limit)?;
    let probes: Vec<Probe> = all.chunks_exact(Probe::BYTES).map(Probe::from_bytes).collect();
    let failed = owners.iter().find_map(|&rank| {
        let why = probes[rank].try_reading().err()?;
        Some(format!("rank {} cannot read the memory of rank {rank} ({why})", comm.rank()))
    });
    let mut text = failed.unwrap_or_default().into_bytes();
    text.resize(FAILURE_BYTES, 0);
    // Also a barrier: all ranks have tried, and the numbers may go.
    let texts = comm.gather(&text, limit)?;
    drop(number);
    let mut texts = texts.chunks_exact(FAILURE_BYTES).filter(|text| text[0] != 0);
    Ok(match texts.next() {
        Some(text) => Err(String::from_utf8_lossy(text).trim_end_matches('\0').to_string()),
        None => {
            let each = (0..size_of::<ProcessorSet>() / 8)
                .map(|k| probes.iter().fold(0, |all, probe| all | probe.processors[k]).count_ones());
            Ok((probes.iter().map(|probe| probe.pid as i32).collect(), each.sum::<u32>().max(1) as usize))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn adjacent_ranges_are_joined_and_every_byte_comes() {
        let from: Vec<u8> = (0..200).collect();
        let mut to = vec![0_u8; 200];
        let (source, target) = (from.as_ptr().addr() as u64, to.as_mut_ptr());
        let mut list = ReadList::new();
        for (from, at, bytes) in [(100, 0, 30), (130, 50, 20), (7, 70, 3), (9, 73, 1)] {
            list.push(source + from, target.wrapping_add(at), bytes);
        }
        assert_eq!((list.here.len(), list.there.len(), list.bytes()), (2, 3, 54));
        // SAFETY: ranges of a buffer that nobody else uses now.
        unsafe { list.read(own_pid()).unwrap() };
        let mut expected = vec![0_u8; 200];
        expected[..30].copy_from_slice(&from[100..130]);
        expected[50..70].copy_from_slice(&from[130..150]);
        expected[70..74].copy_from_slice(&[7, 8, 9, 9]);
        assert_eq!(to, expected);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let mut to = [0_u8; 16];
        let mut list = ReadList::new();
        list.push(16, to.as_mut_ptr(), 16);
        // SAFETY: a buffer of this test.
        let failed = unsafe { list.read(own_pid()) }.unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EFAULT));
        // A page that may be read, and the next one that may not: the call reads less than was asked for.
        // SAFETY: a mapping of this test, of two pages.
        let (page, bytes) = unsafe {
            let bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let two = libc::mmap(std::ptr::null_mut(), 2 * bytes, libc::PROT_READ, flags, -1, 0);
            assert_eq!(libc::mprotect(two.wrapping_byte_add(bytes), bytes, libc::PROT_NONE), 0);
            (two, bytes)
        };
        let mut to = vec![0_u8; 2 * bytes];
        list.clear();
        list.push(page.addr() as u64, to.as_mut_ptr(), 2 * bytes);
        // SAFETY: a buffer of this test.
        let failed = unsafe { list.read(own_pid()) }.unwrap_err();
        assert_eq!(failed.to_string(), format!("only {bytes} of {} bytes are there", 2 * bytes));
        // SAFETY: mapped above.
        unsafe { libc::munmap(page, 2 * bytes) };
    }

    #[test]
    fn another_process_than_the_one_meant_is_noticed() {
        let number = 5_u128;
        let address = std::ptr::from_ref(&number).addr() as u64;
        let processors = own_processors();
        let probe = |number| Probe { pid: own_pid() as u64, address, number, processors };
        assert!(probe(5).try_reading().is_ok());
        let said = probe(6).try_reading().unwrap_err().to_string();
        assert!(said.contains("another process's"), "{said}");
        let gone = Probe { pid: i32::MAX as u64, ..probe(5) }.try_reading().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
