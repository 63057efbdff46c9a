//! The portable level, written with the standard library alone. It runs on every processor and is the oracle of the others.

use super::{CACHE_LINE, Vector};

/// The level that uses only the standard library.
#[derive(Clone, Copy)]
pub struct Portable;

/// A line in memory, for levels without 64-byte registers.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Bytes(pub(super) [u8; CACHE_LINE]);

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
    unsafe fn fence() {}
}
