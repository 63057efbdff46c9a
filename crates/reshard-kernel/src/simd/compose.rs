//! Lines of the destination made of lines of the sources, with the masks of AVX-512.
//!
//! A *patch* puts some bytes of a source, adjacent or not, into a line, all by the same distance: a masked load at an offset.
//! Where sources and destinations are equally many, all pieces of one source are one patch. A *window* puts any lanes of a source
//! line into any lanes of a line: a masked load and a permutation. A window takes about half as long again as a patch, and
//! replaces several where pieces have one or two elements. Only the bytes of a mask are touched, so both are exact. The lane
//! decides which permutation it takes: all processors with AVX-512 have them for 2, 4 and 8 bytes; bytes need VBMI, or else two
//! windows, of which one begins at an odd address: pairs of bytes are permuted, and single bytes of the result are taken.

use super::CACHE_LINE;

/// Some bytes of a source that go to a line, all by the same distance.
#[derive(Clone, Copy)]
pub struct Patch {
    /// The bytes, a bit for each.
    pub mask: u64,
    /// Byte offset from its origin of what would be byte 0 of the line.
    pub from: i32,
    /// Index of the origin.
    pub origin: u32,
}

/// A line of a source, of which some lanes go to some places of a line.
#[derive(Clone, Copy)]
pub struct Window {
    /// Byte offset of its first lane from its origin.
    pub from: i32,
    /// Index of the origin.
    pub origin: u16,
    /// Index of its permutation.
    pub shuffle: u16,
}

/// Lines of a section that are made of equally many patches, or windows.
pub struct LineGroup<T> {
    /// Their number for each line.
    pub per_line: usize,
    /// Byte offset of each line in the section.
    pub to: Vec<u32>,
    /// The patches or windows, line after line.
    pub parts: Vec<T>,
}

/// How the lanes of a window go to the lanes of a line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Shuffle {
    /// For each lane of the line the lane of the window.
    index: [u8; CACHE_LINE],
    /// The bytes that are loaded, a bit for each.
    load: u64,
    /// The lanes of the line that are set, a bit for each.
    put: u64,
}

impl Shuffle {
    /// A permutation given as pairs: lane of the window, lane of the line; of lanes of `lane` bytes.
    pub fn new(lane: usize, pairs: &[(u8, u8)]) -> Self {
        let mut shuffle = Self { index: [0; CACHE_LINE], load: 0, put: 0 };
        for &(from, to) in pairs {
            // Little endian, as all processors with these instructions.
            shuffle.index[to as usize * lane] = from;
            shuffle.load |= (u64::MAX >> (64 - lane)) << (from as usize * lane);
            shuffle.put |= 1 << to;
        }
        shuffle
    }

    /// A permutation of pairs of bytes, of which single bytes are set: byte of the window, byte of the line. Both are even, or
    /// both odd.
    pub fn of_pairs(bytes: &[(u8, u8)]) -> Self {
        let mut shuffle = Self { index: [0; CACHE_LINE], load: 0, put: 0 };
        for &(from, to) in bytes {
            shuffle.index[to as usize / 2 * 2] = from / 2;
            shuffle.load |= 1 << from;
            shuffle.put |= 1 << to;
        }
        shuffle
    }
}

/// Lines of a section, grouped by the number of their parts.
pub enum Lines {
    /// Lines of patches.
    Patches(Vec<LineGroup<Patch>>),
    /// Lines of windows.
    Windows(Vec<LineGroup<Window>>),
    /// Lines of windows whose bytes are permuted in pairs.
    PairedWindows(Vec<LineGroup<Window>>),
}

/// Makes the lines of a section at `to`, of the last line only what lies within the first `bytes` bytes. Windows have lanes of
/// `lane` bytes and the permutations `shuffles`. Sources are prefetched `ahead` bytes behind some of the places that are read.
///
/// # Safety
/// The processor has AVX-512, and a level that can permute these lanes. All bytes of patches and windows are readable behind
/// the address of their origin; all lines are writable behind `to`, the last one up to `bytes`.
pub unsafe fn compose(
    lines: &Lines,
    [lane, ahead]: [usize; 2],
    shuffles: &[Shuffle],
    origins: &[*const u8],
    to: *mut u8,
    bytes: usize,
) {
    // SAFETY: by the caller's contract.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match (lines, lane) {
            (Lines::Patches(groups), _) => x86::patches(groups, shuffles, origins, ahead, to, bytes),
            (Lines::Windows(groups), 8) => x86::windows8(groups, shuffles, origins, ahead, to, bytes),
            (Lines::Windows(groups), 4) => x86::windows4(groups, shuffles, origins, ahead, to, bytes),
            (Lines::Windows(groups), 2) => x86::windows2(groups, shuffles, origins, ahead, to, bytes),
            (Lines::Windows(groups), _) => x86::windows1(groups, shuffles, origins, ahead, to, bytes),
            (Lines::PairedWindows(groups), _) => {
                x86::paired_windows(groups, shuffles, origins, ahead, to, bytes);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (lines, lane, ahead, shuffles, origins, to, bytes);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CACHE_LINE, LineGroup, Patch, Shuffle, Window};
    use std::arch::x86_64::*;

    macro_rules! composer {
        ($name:ident, $part:ty, $features:literal, $first:expr, $next:expr) => {
            /// Makes the lines of some groups at `to`, the last one up to `bytes`.
            ///
            /// # Safety
            /// The processor has the features. All bytes of the parts are readable behind the address of their origin; all
            /// lines are writable behind `to`, the last one up to `bytes`.
            #[target_feature(enable = $features)]
            pub unsafe fn $name(
                groups: &[LineGroup<$part>],
                shuffles: &[Shuffle],
                origins: &[*const u8],
                ahead: usize,
                to: *mut u8,
                bytes: usize,
            ) {
                let find = |part: &$part| {
                    // SAFETY: parts have the number of an origin.
                    let origin = unsafe { origins.get_unchecked(part.origin as usize) };
                    let from = origin.wrapping_offset(part.from as isize);
                    if ahead > 0 {
                        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(ahead).cast());
                    }
                    from
                };
                for group in groups {
                    macro_rules! lines {
                        ($per_line:expr) => {{
                            for (line, &at) in group.parts.chunks_exact($per_line).zip(&group.to) {
                                let from = find(&line[0]);
                                // SAFETY: only the bytes of masks are loaded, which the caller promises; the line is
                                // stored at its place, the last one up to `bytes`.
                                unsafe {
                                    let mut made: __m512i = $first(&line[0], from, shuffles);
                                    for part in &line[1..] {
                                        made = $next(made, part, find(part), shuffles);
                                    }
                                    let (at, to) = (at as usize, to.add(at as usize).cast());
                                    if at + CACHE_LINE <= bytes {
                                        _mm512_storeu_si512(to, made);
                                    } else {
                                        let last = u64::MAX >> (CACHE_LINE - (bytes - at));
                                        _mm512_mask_storeu_epi8(to.cast(), last, made);
                                    }
                                }
                            }
                        }};
                    }
                    // With a constant number the compiler unrolls the loop.
                    match group.per_line {
                        1 => lines!(1),
                        2 => lines!(2),
                        3 => lines!(3),
                        4 => lines!(4),
                        5 => lines!(5),
                        more => lines!(more),
                    }
                }
            }
        };
    }
    macro_rules! windows {
        ($name:ident, $features:literal, $permute:ident, $mask_permute:ident, $mask:ty) => {
            composer!(
                $name,
                Window,
                $features,
                |window: &Window, from: *const u8, shuffles: &[Shuffle]| {
                    // The number of a permutation.
                    let shuffle = shuffles.get_unchecked(window.shuffle as usize);
                    $permute(
                        _mm512_load_si512(shuffle.index.as_ptr().cast()),
                        _mm512_maskz_loadu_epi8(shuffle.load, from.cast()),
                    )
                },
                |made: __m512i, window: &Window, from: *const u8, shuffles: &[Shuffle]| {
                    let shuffle = shuffles.get_unchecked(window.shuffle as usize);
                    $mask_permute(
                        made,
                        shuffle.put as $mask,
                        _mm512_load_si512(shuffle.index.as_ptr().cast()),
                        _mm512_maskz_loadu_epi8(shuffle.load, from.cast()),
                    )
                }
            );
        };
    }
    composer!(
        patches,
        Patch,
        "avx512f,avx512bw,avx512vl,avx512dq",
        |patch: &Patch, from: *const u8, _: &[Shuffle]| _mm512_maskz_loadu_epi8(patch.mask, from.cast()),
        |made: __m512i, patch: &Patch, from: *const u8, _: &[Shuffle]| _mm512_mask_loadu_epi8(
            made,
            patch.mask,
            from.cast()
        )
    );
    composer!(
        paired_windows,
        Window,
        "avx512f,avx512bw,avx512vl,avx512dq",
        |window: &Window, from: *const u8, shuffles: &[Shuffle]| {
            let shuffle = shuffles.get_unchecked(window.shuffle as usize);
            _mm512_permutexvar_epi16(
                _mm512_load_si512(shuffle.index.as_ptr().cast()),
                _mm512_maskz_loadu_epi8(shuffle.load, from.cast()),
            )
        },
        |made: __m512i, window: &Window, from: *const u8, shuffles: &[Shuffle]| {
            let shuffle = shuffles.get_unchecked(window.shuffle as usize);
            let index = _mm512_load_si512(shuffle.index.as_ptr().cast());
            let loaded = _mm512_maskz_loadu_epi8(shuffle.load, from.cast());
            _mm512_mask_mov_epi8(made, shuffle.put, _mm512_permutexvar_epi16(index, loaded))
        }
    );
    windows!(
        windows8,
        "avx512f,avx512bw,avx512vl,avx512dq",
        _mm512_permutexvar_epi64,
        _mm512_mask_permutexvar_epi64,
        __mmask8
    );
    windows!(
        windows4,
        "avx512f,avx512bw,avx512vl,avx512dq",
        _mm512_permutexvar_epi32,
        _mm512_mask_permutexvar_epi32,
        __mmask16
    );
    windows!(
        windows2,
        "avx512f,avx512bw,avx512vl,avx512dq",
        _mm512_permutexvar_epi16,
        _mm512_mask_permutexvar_epi16,
        __mmask32
    );
    windows!(
        windows1,
        "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi",
        _mm512_permutexvar_epi8,
        _mm512_mask_permutexvar_epi8,
        __mmask64
    );
}
