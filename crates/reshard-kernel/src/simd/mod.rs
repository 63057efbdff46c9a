//! Vector primitives of this processor: three instruction set levels behind one trait, chosen once.
//!
//! Row and tile kernels are written once, generic over [`Vector`]; each level is a set of small primitives that the
//! compiler inlines into them. [`Level::Portable`] uses nothing but the standard library and is the oracle of the others.
//! A generic kernel may be called with a level's type only from a function that enables the level's target features;
//! [`super::copy`] does that after [`Level::best`] has detected them.

mod portable;
mod prefetch;
mod strided;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use portable::{Bytes, Portable};
pub use prefetch::{prefetch, prefetch_piece, prefetch_write};
pub(crate) use strided::{Strided, copy_strided};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// Bytes of a cache line. Non-temporal stores are fast only if they write whole lines.
pub const CACHE_LINE: usize = 64;

/// The instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The standard library alone.
    Portable,
    /// 32-byte vectors and gathers.
    Avx2,
    /// 64-byte vectors, masks and gathers.
    Avx512,
}

impl Level {
    /// Returns the best level this processor supports.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vl")
                && std::arch::is_x86_feature_detected!("avx512dq")
                && std::arch::is_x86_feature_detected!("bmi2")
            {
                return Self::Avx512;
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// Returns all levels this processor supports.
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Avx512]
            .into_iter()
            .filter(|level| *level <= Self::best())
            .collect()
    }
}

/// The primitives of a level.
///
/// # Safety
/// All unsafe methods: the processor supports the level, and pointers are valid for the bytes the method is documented to
/// read and write. Sources and destinations do not overlap.
pub trait Vector: Copy {
    /// The value of a cache line: a register, or an aligned array.
    type Line: Copy;

    /// Returns a line with unspecified contents.
    fn empty() -> Self::Line;

    /// Copies `n` bytes; reads and writes exactly those.
    unsafe fn copy(to: *mut u8, from: *const u8, n: usize);

    /// Returns the line with the bytes of `patch` replaced; reads exactly the patch's bytes, at offsets from `from`.
    #[inline(always)]
    unsafe fn patch(line: Self::Line, patch: &Patch, from: *const u8) -> Self::Line {
        let from = from.wrapping_add(patch.from).wrapping_add(patch.at as usize);
        // SAFETY: the bytes the caller promises.
        unsafe { Self::merge(line, patch.at as usize, from, patch.bytes as usize) }
    }

    /// Copies whole lines to an address that is a multiple of [`CACHE_LINE`], with non-temporal stores where the level has
    /// them.
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize);

    /// Returns the line with bytes `at..at + n` replaced by the `n` bytes at `from`. `at + n` is at most [`CACHE_LINE`].
    unsafe fn merge(line: Self::Line, at: usize, from: *const u8, n: usize) -> Self::Line;

    /// Writes a line to an address that is a multiple of [`CACHE_LINE`], with a non-temporal store where the level has one.
    unsafe fn stream_line(to: *mut u8, line: Self::Line);

    /// Writes bytes `at..at + n` of a line to `to + at..to + at + n`.
    unsafe fn store(to: *mut u8, line: Self::Line, at: usize, n: usize);

    /// Gathers `WIDTH` bytes (8 or 4) from each of eight addresses plus `shift`, and writes them to `to` one after the other.
    /// The provenance of the addresses was exposed.
    unsafe fn gather<const WIDTH: usize>(to: *mut u8, lanes: &[u64], shift: u64);

    /// Gathers a line: 8 bytes from each of eight addresses plus `shift`.
    unsafe fn gather_line(lanes: &[u64], shift: u64) -> Self::Line;

    /// Appends the line `next` to the first `fill` bytes of `line`; `fill` is a multiple of 4. Returns the line this
    /// completes, and a line that begins with the last `fill` bytes of `next`, which did not fit.
    unsafe fn append(line: Self::Line, fill: usize, next: Self::Line) -> (Self::Line, Self::Line);

    /// Transposes a rectangle: element `(i, j)`, `i < extents[0]` and `j < extents[1]`, from `from + i * elem + j * stride`
    /// to `to + i * pitch + j * elem`.
    #[inline(always)]
    unsafe fn transpose(
        to: *mut u8,
        pitch: usize,
        from: *const u8,
        stride: usize,
        extents: [usize; 2],
        elem: usize,
    ) {
        for j in 0..extents[1] {
            let strided = Strided {
                to: to.wrapping_add(j * elem),
                to_stride: pitch,
                from: from.wrapping_add(j * stride),
                from_stride: elem,
            };
            // SAFETY: column j of the rectangle, as the caller promises.
            unsafe { copy_strided(strided, extents[0], elem) };
        }
    }

    /// Element size in bytes for which [`Vector::stream_squares`] works: 8 by 8 squares have rows of one line. 0 if the level
    /// has no such transpose.
    const SQUARE_ELEM_BYTES: usize = 0;

    /// Transposes `columns` columns (a multiple of 8) of 8 elements each to rows `pitch` bytes apart that begin at multiples
    /// of a line, with non-temporal stores. Only for elements of `SQUARE_ELEM_BYTES` bytes.
    #[inline(always)]
    unsafe fn stream_squares(to: *mut u8, pitch: usize, from: *const u8, stride: usize, columns: usize) {
        // SAFETY: by the caller's contract.
        unsafe { Self::transpose(to, pitch, from, stride, [8, columns], 8) }
    }

    /// Store fence: orders non-temporal stores before the next release, so that threads that synchronise with this one see
    /// them.
    unsafe fn fence();
}

/// A masked load: some bytes of a line and where they come from, with mask and offset computed in advance.
#[derive(Clone, Copy)]
pub struct Patch {
    /// Source offset of byte 0 of the line, which the patch need not contain (wrapping).
    pub(crate) from: usize,
    /// One bit for each byte of the line; set bits are loaded.
    pub(crate) mask: u64,
    at: u8,
    bytes: u8,
}

impl Patch {
    /// A patch that loads bytes `at..at + n` of a line from source offset `from`.
    pub fn new(from: usize, at: usize, n: usize) -> Self {
        debug_assert!(at + n <= CACHE_LINE, "a patch lies in one line");
        let mask = u64::MAX.checked_shr((CACHE_LINE - n) as u32).unwrap_or(0) << (at % CACHE_LINE);
        Self { from: from.wrapping_sub(at), mask, at: at as u8, bytes: n as u8 }
    }

    /// Returns a patch with the offset of this one that loads no byte.
    pub fn emptied(self) -> Self {
        Self { mask: 0, bytes: 0, ..self }
    }
}
