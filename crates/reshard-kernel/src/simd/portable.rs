//! The portable level, written with the standard library alone. It runs on every processor and is the oracle of the others.

use super::{CACHE_LINE, Vector};

/// The level that uses only the standard library.
#[derive(Clone, Copy)]
pub struct Portable;

/// A line in memory, for levels without 64-byte registers.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Bytes(pub(super) [u8; CACHE_LINE]);

impl Bytes {
    /// See [`Vector::append`].
    #[inline(always)]
    pub(super) fn append(self, fill: usize, next: Self) -> (Self, Self) {
        // Always copies whole lines, so that the lengths are constants.
        let mut both = [0; 2 * CACHE_LINE];
        both[..CACHE_LINE].copy_from_slice(&self.0);
        both[fill..fill + CACHE_LINE].copy_from_slice(&next.0);
        let (mut out, mut kept) = (self, self);
        out.0.copy_from_slice(&both[..CACHE_LINE]);
        kept.0.copy_from_slice(&both[CACHE_LINE..]);
        (out, kept)
    }
}

impl Vector for Portable {
    type Line = Bytes;

    fn empty() -> Bytes {
        Bytes([0; CACHE_LINE])
    }

    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller promises `n` readable bytes at `from`, `n` writable ones at `to`, not overlapping.
        unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
    }

    #[inline(always)]
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize) {
        // SAFETY: as the caller promises, for `lines * CACHE_LINE` bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to, lines * CACHE_LINE) }
    }

    #[inline(always)]
    unsafe fn merge(mut line: Bytes, at: usize, from: *const u8, n: usize) -> Bytes {
        // SAFETY: `n` bytes are readable at `from`, and the line has them from `at` on.
        unsafe { std::ptr::copy_nonoverlapping(from, line.0.as_mut_ptr().add(at), n) };
        line
    }

    #[inline(always)]
    unsafe fn stream_line(to: *mut u8, line: Bytes) {
        // SAFETY: the caller promises a writable line at `to`.
        unsafe { std::ptr::copy_nonoverlapping(line.0.as_ptr(), to, CACHE_LINE) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, line: Bytes, at: usize, n: usize) {
        // SAFETY: the line has bytes `at..at + n`, and they are writable behind `to`.
        unsafe { std::ptr::copy_nonoverlapping(line.0.as_ptr().add(at), to.add(at), n) }
    }

    #[inline(always)]
    unsafe fn gather<const WIDTH: usize>(to: *mut u8, lanes: &[u64], shift: u64) {
        for (k, lane) in lanes.iter().enumerate() {
            let from = std::ptr::with_exposed_provenance::<u8>(lane.wrapping_add(shift) as usize);
            // SAFETY: the caller promises `WIDTH` readable bytes at each address and as many writable ones for each.
            unsafe { std::ptr::copy_nonoverlapping(from, to.add(WIDTH * k), WIDTH) }
        }
    }

    #[inline(always)]
    unsafe fn gather_line(lanes: &[u64], shift: u64) -> Bytes {
        let mut line = Self::empty();
        // SAFETY: eight lanes of 8 bytes fill the line.
        unsafe { Self::gather::<8>(line.0.as_mut_ptr(), lanes, shift) };
        line
    }

    #[inline(always)]
    unsafe fn append(line: Bytes, fill: usize, next: Bytes) -> (Bytes, Bytes) {
        line.append(fill, next)
    }

    #[inline(always)]
    unsafe fn fence() {}
}
