//! The two x86-64 levels: AVX-512 (64-byte vectors with masks) and AVX2 (32-byte vectors).
//!
//! All primitives are inlined into the kernels that are compiled for the level: see [`super`].

use super::{Bytes, CACHE_LINE, Portable, Vector};
use std::arch::x86_64::*;

/// Copies of at least this many bytes align their stores to the destination's cache lines: a store that crosses a line is
/// slower, but aligning costs an extra vector.
const MIN_ALIGNED_COPY_BYTES: usize = 256;

/// AVX-512: 64-byte vectors with masks.
#[derive(Clone, Copy)]
pub struct Avx512;

/// Returns a mask of the lowest `n` of 64 bytes, `n` at most 64.
#[inline(always)]
fn low_mask(n: usize) -> u64 {
    // SAFETY: any processor with AVX-512 as this project means it has BMI2; see `Level::best`.
    unsafe { _bzhi_u64(u64::MAX, n as u32) }
}

impl Vector for Avx512 {
    type Line = __m512i;

    fn empty() -> __m512i {
        // SAFETY: 64 zeros are a line.
        unsafe { std::mem::zeroed() }
    }

    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: a long piece first copies 64 bytes unaligned, then starts again at the first destination line that begins
        // among them. Whole vectors follow while at least 64 bytes are left; the last load and store are masked and touch
        // only the remaining `n - at` bytes.
        unsafe {
            let mut at = 0;
            if n >= MIN_ALIGNED_COPY_BYTES {
                _mm512_storeu_si512(to.cast(), _mm512_loadu_si512(from.cast()));
                at = to.addr().wrapping_neg() % CACHE_LINE;
            }
            while at + CACHE_LINE <= n {
                _mm512_storeu_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
                at += CACHE_LINE;
            }
            if at < n {
                let mask = low_mask(n - at);
                let last = _mm512_maskz_loadu_epi8(mask, from.add(at).cast());
                _mm512_mask_storeu_epi8(to.add(at).cast(), mask, last);
            }
        }
    }

    #[inline(always)]
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize) {
        // SAFETY: `lines` vectors are read at `from` and written at `to`, which the caller aligned to 64 bytes.
        unsafe {
            for at in (0..lines * CACHE_LINE).step_by(CACHE_LINE) {
                _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
            }
        }
    }

    #[inline(always)]
    unsafe fn merge(line: __m512i, at: usize, from: *const u8, n: usize) -> __m512i {
        // SAFETY: the masked load touches only bytes `at..at + n` behind `from - at`: the `n` at `from`.
        unsafe { _mm512_mask_loadu_epi8(line, low_mask(n) << at, from.wrapping_sub(at).cast()) }
    }

    #[inline(always)]
    unsafe fn stream_line(to: *mut u8, line: __m512i) {
        // SAFETY: the caller promises a writable line at `to`, aligned.
        unsafe { _mm512_stream_si512(to.cast(), line) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, line: __m512i, at: usize, n: usize) {
        // SAFETY: the masked store touches only bytes `at..at + n` behind `to`, which the caller promises.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), low_mask(n) << at, line) }
    }

    const SQUARE_ELEM_BYTES: usize = 8;

    #[inline(always)]
    unsafe fn stream_square(to: *mut u8, pitch: usize, columns: &[*const u8; 8], skipped: usize) {
        // SAFETY: by the caller's contract.
        unsafe { super::stream_square(to, pitch, columns, skipped) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: any processor with AVX-512 has SSE.
        unsafe { _mm_sfence() }
    }
}

/// AVX2: 32-byte vectors.
#[derive(Clone, Copy)]
pub struct Avx2;

/// Copies `n` bytes, 0 to 31, with two loads and two stores that may overlap.
#[inline(always)]
unsafe fn copy_short(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: in each arm both accesses lie inside the first `n` bytes, because the first begins at 0, the second ends at
    // `n`, and neither is longer than `n`. Both loads come before the stores, so an overlap does no harm.
    unsafe {
        match n {
            16.. => {
                let (head, tail) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(n - 16).cast()));
                _mm_storeu_si128(to.cast(), head);
                _mm_storeu_si128(to.add(n - 16).cast(), tail);
            }
            8.. => {
                let (head, tail) =
                    (from.cast::<u64>().read_unaligned(), from.add(n - 8).cast::<u64>().read_unaligned());
                to.cast::<u64>().write_unaligned(head);
                to.add(n - 8).cast::<u64>().write_unaligned(tail);
            }
            4.. => {
                let (head, tail) =
                    (from.cast::<u32>().read_unaligned(), from.add(n - 4).cast::<u32>().read_unaligned());
                to.cast::<u32>().write_unaligned(head);
                to.add(n - 4).cast::<u32>().write_unaligned(tail);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

impl Vector for Avx2 {
    type Line = Bytes;

    fn empty() -> Bytes {
        Portable::empty()
    }

    #[inline(always)]
    unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: fewer than 32 bytes take the short copy. A long piece first copies 32 bytes unaligned, then starts again
        // at the next multiple of 32. Whole vectors follow while at least 32 bytes are left, then a last one that ends at
        // `n` (and may overlap the one before, as `n` is at least 32).
        unsafe {
            if n < 32 {
                return copy_short(to, from, n);
            }
            let mut at = 0;
            if n >= MIN_ALIGNED_COPY_BYTES {
                _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast()));
                at = to.addr().wrapping_neg() % 32;
            }
            while at + 32 <= n {
                _mm256_storeu_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
                at += 32;
            }
            if at < n {
                let last = n - 32;
                _mm256_storeu_si256(to.add(last).cast(), _mm256_loadu_si256(from.add(last).cast()));
            }
        }
    }

    #[inline(always)]
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize) {
        // SAFETY: 64 bytes for each line are read at `from` and written at `to`, which the caller aligned to 64.
        unsafe {
            for at in (0..lines * CACHE_LINE).step_by(CACHE_LINE) {
                let low = _mm256_loadu_si256(from.add(at).cast());
                let high = _mm256_loadu_si256(from.add(at + 32).cast());
                _mm256_stream_si256(to.add(at).cast(), low);
                _mm256_stream_si256(to.add(at + 32).cast(), high);
            }
        }
    }

    #[inline(always)]
    unsafe fn merge(mut line: Bytes, at: usize, from: *const u8, n: usize) -> Bytes {
        // SAFETY: `n` bytes are readable at `from`, and the line has them from `at` on.
        unsafe { Self::copy(line.0.as_mut_ptr().add(at), from, n) };
        line
    }

    #[inline(always)]
    unsafe fn stream_line(to: *mut u8, line: Bytes) {
        // SAFETY: the caller promises a writable line at `to`, aligned.
        unsafe { Self::stream(to, line.0.as_ptr(), 1) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, line: Bytes, at: usize, n: usize) {
        // SAFETY: the line has bytes `at..at + n`, and they are writable behind `to`.
        unsafe { Self::copy(to.add(at), line.0.as_ptr().add(at), n) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: any processor with AVX2 has SSE.
        unsafe { _mm_sfence() }
    }
}
