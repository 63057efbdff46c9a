//! The two x86-64 levels: AVX-512 (64-byte vectors with masks) and AVX2 (32-byte vectors).
//!
//! All primitives are inlined into the kernels that are compiled for the level: see [`super`].

use super::{Bytes, CACHE_LINE, Patch, Portable, Vector};
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
    unsafe fn patch(line: __m512i, patch: &Patch, from: *const u8) -> __m512i {
        // SAFETY: the masked load touches only the bytes of the mask, which are the patch's.
        unsafe { _mm512_mask_loadu_epi8(line, patch.mask, from.wrapping_add(patch.from).cast()) }
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

    #[inline(always)]
    unsafe fn gather<const WIDTH: usize>(to: *mut u8, lanes: &[u64], shift: u64) {
        let base = std::ptr::with_exposed_provenance::<u8>(shift as usize);
        // SAFETY: 8 addresses are read from `lanes`; each plus `shift` has `WIDTH` readable bytes and was exposed, as the
        // caller promises; `8 * WIDTH` bytes are written.
        unsafe {
            let index = _mm512_loadu_si512(lanes.as_ptr().cast());
            match WIDTH {
                4 => _mm256_storeu_si256(to.cast(), _mm512_i64gather_epi32::<1>(index, base.cast())),
                _ => _mm512_storeu_si512(to.cast(), _mm512_i64gather_epi64::<1>(index, base.cast())),
            }
        }
    }

    #[inline(always)]
    unsafe fn gather_line(lanes: &[u64], shift: u64) -> __m512i {
        let base = std::ptr::with_exposed_provenance::<u8>(shift as usize);
        // SAFETY: addresses as in `gather`.
        unsafe {
            let index = _mm512_loadu_si512(lanes.as_ptr().cast());
            _mm512_i64gather_epi64::<1>(index, base.cast())
        }
    }

    #[inline(always)]
    unsafe fn append(line: __m512i, fill: usize, next: __m512i) -> (__m512i, __m512i) {
        // SAFETY: registers only. Word k of `next` goes to word k + fill / 4 of the two lines.
        unsafe {
            let filled = fill / 4;
            let words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let rotated =
                _mm512_permutexvar_epi32(_mm512_sub_epi32(words, _mm512_set1_epi32(filled as i32)), next);
            (_mm512_mask_mov_epi32(rotated, low_mask(filled) as __mmask16, line), rotated)
        }
    }

    #[inline(always)]
    unsafe fn transpose(
        to: *mut u8,
        pitch: usize,
        from: *const u8,
        stride: usize,
        [rows, columns]: [usize; 2],
        elem: usize,
    ) {
        if elem != 8 {
            // SAFETY: by the caller's contract.
            return unsafe { Avx2::transpose(to, pitch, from, stride, [rows, columns], elem) };
        }
        // SAFETY: squares of 8 by 8, at the edges masked to what is left of the rectangle: loads and stores touch no
        // element outside of it.
        unsafe {
            for j in (0..columns).step_by(8) {
                for i in (0..rows).step_by(8) {
                    let (high, wide) = ((rows - i).min(8), (columns - j).min(8));
                    let (to, from) = (to.add(i * pitch + j * 8), from.add(i * 8 + j * stride));
                    match (high, wide) {
                        (8, 8) => square8::<true, false>(to, pitch, from, stride, 8, 8),
                        _ => square8::<false, false>(to, pitch, from, stride, high, wide),
                    }
                }
            }
        }
    }

    const SQUARE_ELEM_BYTES: usize = 8;

    #[inline(always)]
    unsafe fn stream_squares(to: *mut u8, pitch: usize, from: *const u8, stride: usize, columns: usize) {
        for j in (0..columns).step_by(8) {
            // SAFETY: an 8 by 8 square of the columns; its rows are aligned lines of the destination, as the caller promises.
            unsafe { square8::<true, true>(to.add(j * 8), pitch, from.add(j * stride), stride, 8, 8) };
        }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: any processor with AVX-512 has SSE.
        unsafe { _mm_sfence() }
    }
}

/// Transposes up to 8 by 8 elements of 8 bytes: `wide` columns of `high` elements become `high` rows of `wide`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn square8<const WHOLE: bool, const NON_TEMPORAL: bool>(
    to: *mut u8,
    pitch: usize,
    from: *const u8,
    stride: usize,
    high: usize,
    wide: usize,
) {
    let column_mask = ((1_u16 << high) - 1) as __mmask8;
    let row_mask = ((1_u16 << wide) - 1) as __mmask8;
    // SAFETY: column k < `wide` is read under a mask of its `high` elements, row k < `high` written under one of its
    // `wide`; for larger k, under an empty mask or not at all. Whole squares need no masks; non-temporal stores go to
    // addresses the caller aligned.
    unsafe {
        let load = |k: usize| {
            if WHOLE {
                return _mm512_loadu_si512(from.add(k * stride).cast());
            }
            let mask = if k < wide { column_mask } else { 0 };
            _mm512_maskz_loadu_epi64(mask, from.wrapping_add(k * stride).cast())
        };
        let (c0, c1, c2, c3) = (load(0), load(1), load(2), load(3));
        let (c4, c5, c6, c7) = (load(4), load(5), load(6), load(7));
        // Exchanges lanes between pairs, then fours, then eights of registers.
        let (p0, p1) = (_mm512_unpacklo_epi64(c0, c1), _mm512_unpackhi_epi64(c0, c1));
        let (p2, p3) = (_mm512_unpacklo_epi64(c2, c3), _mm512_unpackhi_epi64(c2, c3));
        let (p4, p5) = (_mm512_unpacklo_epi64(c4, c5), _mm512_unpackhi_epi64(c4, c5));
        let (p6, p7) = (_mm512_unpacklo_epi64(c6, c7), _mm512_unpackhi_epi64(c6, c7));
        let (q0, q1) = (_mm512_shuffle_i64x2::<0x88>(p0, p2), _mm512_shuffle_i64x2::<0xdd>(p0, p2));
        let (q2, q3) = (_mm512_shuffle_i64x2::<0x88>(p1, p3), _mm512_shuffle_i64x2::<0xdd>(p1, p3));
        let (q4, q5) = (_mm512_shuffle_i64x2::<0x88>(p4, p6), _mm512_shuffle_i64x2::<0xdd>(p4, p6));
        let (q6, q7) = (_mm512_shuffle_i64x2::<0x88>(p5, p7), _mm512_shuffle_i64x2::<0xdd>(p5, p7));
        let rows = [
            _mm512_shuffle_i64x2::<0x88>(q0, q4),
            _mm512_shuffle_i64x2::<0x88>(q2, q6),
            _mm512_shuffle_i64x2::<0x88>(q1, q5),
            _mm512_shuffle_i64x2::<0x88>(q3, q7),
            _mm512_shuffle_i64x2::<0xdd>(q0, q4),
            _mm512_shuffle_i64x2::<0xdd>(q2, q6),
            _mm512_shuffle_i64x2::<0xdd>(q1, q5),
            _mm512_shuffle_i64x2::<0xdd>(q3, q7),
        ];
        for (k, row) in rows.into_iter().enumerate().take(if WHOLE { 8 } else { high }) {
            if NON_TEMPORAL {
                _mm512_stream_si512(to.add(k * pitch).cast(), row);
                continue;
            }
            if WHOLE {
                _mm512_storeu_si512(to.add(k * pitch).cast(), row);
                continue;
            }
            _mm512_mask_storeu_epi64(to.add(k * pitch).cast(), row_mask, row);
        }
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
    unsafe fn gather<const WIDTH: usize>(to: *mut u8, lanes: &[u64], shift: u64) {
        let base = std::ptr::with_exposed_provenance::<u8>(shift as usize);
        // SAFETY: twice 4 addresses, each plus `shift` with `WIDTH` readable bytes, as the caller promises; `8 * WIDTH`
        // bytes are written.
        unsafe {
            for (k, four) in lanes.chunks_exact(4).enumerate() {
                let index = _mm256_loadu_si256(four.as_ptr().cast());
                match WIDTH {
                    4 => _mm_storeu_si128(
                        to.add(k * 16).cast(),
                        _mm256_i64gather_epi32::<1>(base.cast(), index),
                    ),
                    _ => _mm256_storeu_si256(
                        to.add(k * 32).cast(),
                        _mm256_i64gather_epi64::<1>(base.cast(), index),
                    ),
                }
            }
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
    unsafe fn fence() {
        // SAFETY: any processor with AVX2 has SSE.
        unsafe { _mm_sfence() }
    }
}
