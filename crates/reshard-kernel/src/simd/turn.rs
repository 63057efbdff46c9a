//! Transposes in registers: columns of elements become rows.
//!
//! Squares of 16 by 16 bytes, 8 by 8 elements of two bytes, 4 by 4 of four and 2 by 2 of eight are transposed with the unpack
//! instructions that every x86-64 processor has; that is faster than memory, so wider vectors would gain nothing. What is
//! smaller than a square is copied element by element.

use super::{Strided, copy_strided};

/// Transposes `rows` elements of each column: element `(i, j)` from `columns[j] + i * elem` to `to + i * pitch + j * elem`.
///
/// # Safety
/// Each column has `rows` readable elements; `to` has as many rows, each with a writable element for each column. They do not
/// overlap.
pub unsafe fn transpose(to: *mut u8, pitch: usize, columns: &[*const u8], rows: usize, elem: usize) {
    // SAFETY: by the caller's contract.
    unsafe {
        match elem {
            #[cfg(target_arch = "x86_64")]
            1 => by_squares::<1, 16>(to, pitch, columns, rows, x86::square1),
            #[cfg(target_arch = "x86_64")]
            2 => by_squares::<2, 8>(to, pitch, columns, rows, x86::square2),
            #[cfg(target_arch = "x86_64")]
            4 => by_squares::<4, 4>(to, pitch, columns, rows, x86::square4),
            #[cfg(target_arch = "x86_64")]
            8 => by_squares::<8, 2>(to, pitch, columns, rows, x86::square8),
            _ => {
                for (j, &column) in columns.iter().enumerate() {
                    one_column(to.add(j * elem), pitch, column, rows, elem);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn one_column(to: *mut u8, pitch: usize, column: *const u8, rows: usize, elem: usize) {
    let strided = Strided { to, to_stride: pitch, from: column, from_stride: elem };
    // SAFETY: by the caller's contract.
    unsafe { copy_strided(strided, rows, elem) }
}

/// Transposes squares of `SIDE` columns and rows. The last square of a row or column begins earlier where less than one is left:
/// what it has in common with the one before is written twice.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by_squares<const ELEM: usize, const SIDE: usize>(
    to: *mut u8,
    pitch: usize,
    columns: &[*const u8],
    rows: usize,
    square: unsafe fn(*mut u8, usize, &[*const u8; SIDE], usize),
) {
    if columns.len() < SIDE || rows < SIDE {
        for (j, &column) in columns.iter().enumerate() {
            // SAFETY: by the caller's contract.
            unsafe { one_column(to.add(j * ELEM), pitch, column, rows, ELEM) };
        }
        return;
    }
    for first in (0..columns.len()).step_by(SIDE) {
        let first = first.min(columns.len() - SIDE);
        let Some(of_square) = columns[first..].first_chunk::<SIDE>() else { return };
        for row in (0..rows).step_by(SIDE) {
            let row = row.min(rows - SIDE);
            // SAFETY: the square lies inside.
            unsafe { square(to.add(row * pitch + first * ELEM), pitch, of_square, row * ELEM) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Interleaves the lower and the upper halves of all pairs of registers: one stage of a transpose.
    macro_rules! stage {
        ($from:ident, $low:ident, $high:ident, $half:expr) => {{
            let mut to = $from;
            let mut k = 0;
            while k < $half {
                to[2 * k] = $low($from[k], $from[k + $half]);
                to[2 * k + 1] = $high($from[k], $from[k + $half]);
                k += 1;
            }
            to
        }};
    }

    macro_rules! square {
        ($name:ident, $side:literal, $low:ident, $high:ident, $stages:literal) => {
            /// Transposes a square, `skipped` bytes into its columns.
            ///
            /// # Safety
            /// Each column has 16 readable bytes there, and so many rows behind `to` 16 writable ones.
            #[inline(always)]
            pub unsafe fn $name(to: *mut u8, pitch: usize, columns: &[*const u8; $side], skipped: usize) {
                // SAFETY: every x86-64 processor has SSE2; the bytes are those of the caller's contract. Each stage perfectly
                // shuffles the elements of all registers, and after log2(side) of them rows and columns are exchanged.
                unsafe {
                    let mut registers = [_mm_setzero_si128(); $side];
                    for (register, column) in registers.iter_mut().zip(columns) {
                        *register = _mm_loadu_si128(column.add(skipped).cast());
                    }
                    for _ in 0..$stages {
                        registers = stage!(registers, $low, $high, $side / 2);
                    }
                    for (row, register) in registers.iter().enumerate() {
                        _mm_storeu_si128(to.add(row * pitch).cast(), *register);
                    }
                }
            }
        };
    }
    square!(square1, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8, 4);
    square!(square2, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16, 3);
    square!(square4, 4, _mm_unpacklo_epi32, _mm_unpackhi_epi32, 2);
    square!(square8, 2, _mm_unpacklo_epi64, _mm_unpackhi_epi64, 1);
}

/// Transposes 8 by 8 elements of 8 bytes, `skipped` bytes into their columns, to rows that are aligned lines, with non-temporal
/// stores.
///
/// # Safety
/// The processor has AVX-512. Each column has a readable line there, and eight rows behind `to`, `pitch` bytes apart, a writable
/// one that is aligned.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
pub unsafe fn stream_square(to: *mut u8, pitch: usize, columns: &[*const u8; 8], skipped: usize) {
    use std::arch::x86_64::*;
    // SAFETY: by the caller's contract.
    unsafe {
        let load = |k: usize| _mm512_loadu_si512(columns[k].add(skipped).cast());
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
        for (k, row) in rows.into_iter().enumerate() {
            _mm512_stream_si512(to.add(k * pitch).cast(), row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::transpose;

    #[test]
    fn every_size_is_transposed() {
        for elem in [1, 2, 3, 4, 8, 12, 16] {
            for (rows, columns) in [(16, 16), (33, 17), (7, 40), (1, 5), (64, 3)] {
                let from: Vec<u8> = (0..rows * columns * elem).map(|k| (k * 7 % 251) as u8).collect();
                let pitch = columns * elem + 5;
                let mut to = vec![0xee_u8; rows * pitch];
                let starts: Vec<*const u8> = from.chunks(rows * elem).map(<[u8]>::as_ptr).collect();
                // SAFETY: each column has its rows, and each row room for all columns.
                unsafe { transpose(to.as_mut_ptr(), pitch, &starts, rows, elem) };
                for i in 0..rows {
                    for j in 0..columns {
                        let (at, want) = (i * pitch + j * elem, (j * rows + i) * elem);
                        assert_eq!(to[at..at + elem], from[want..want + elem], "{elem}: ({i}, {j})");
                    }
                    assert!(to[i * pitch + columns * elem..(i + 1) * pitch].iter().all(|&byte| byte == 0xee));
                }
            }
        }
    }
}
