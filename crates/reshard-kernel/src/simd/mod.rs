//! Vector primitives of this processor: instruction set levels behind one trait, chosen once.
//!
//! Row and tile kernels are written once, generic over [`Vector`]; each level is a set of small primitives that the
//! compiler inlines into them. [`Level::Portable`] uses what every processor of its kind has and is the oracle of the others.
//! No level gathers: on most servers in use a hardware gather waits for every cache miss.
//! A generic kernel may be called with a level's type only from a function that enables the level's target features;
//! [`super::copy`] does that after [`Level::is_supported`] has detected them.

mod compose;
mod portable;
mod prefetch;
mod strided;
mod turn;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use compose::{LineGroup, Lines, Patch, Shuffle, Window, compose};
pub use portable::{Bytes, Portable};
pub use prefetch::{prefetch, prefetch_piece, prefetch_write};
pub(crate) use strided::{Strided, copy_strided};
#[cfg(target_arch = "x86_64")]
use turn::stream_square;
pub use turn::transpose;
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// Bytes of a cache line. Non-temporal stores are fast only if they write whole lines.
pub const CACHE_LINE: usize = 64;

/// The instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of its kind has.
    Portable,
    /// 32-byte vectors.
    Avx2,
    /// 64-byte vectors and masks.
    Avx512,
    /// 64-byte vectors, masks, and permutations of bytes (VBMI).
    Avx512Vbmi,
}

impl Level {
    /// All levels; of those that a processor supports, the last is the best.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Vbmi];

    /// Returns the best level this processor supports.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|level| level.is_supported()).unwrap_or(Self::Portable)
    }

    /// Returns all levels this processor supports.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|level| level.is_supported()).collect()
    }

    /// True if this processor supports the level.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vbmi => {
                Self::Avx512.is_supported() && std::arch::is_x86_feature_detected!("avx512vbmi")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Avx512Vbmi => false,
        }
    }

    /// Panics if this processor does not support the level: no kernel may run then.
    pub(crate) fn assert_supported(self) {
        assert!(self.is_supported(), "{self:?} is not supported by this processor");
    }

    /// True if lines can be composed of masked loads.
    pub(crate) fn composes(self) -> bool {
        self >= Self::Avx512
    }

    /// True if lanes of so many bytes can be permuted within a line.
    pub(crate) fn permutes(self, lane: usize) -> bool {
        self.composes() && (lane > 1 || self == Self::Avx512Vbmi)
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

    /// Copies whole lines to an address that is a multiple of [`CACHE_LINE`], with non-temporal stores where the level has
    /// them.
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize);

    /// Returns the line with bytes `at..at + n` replaced by the `n` bytes at `from`. `at + n` is at most [`CACHE_LINE`].
    unsafe fn merge(line: Self::Line, at: usize, from: *const u8, n: usize) -> Self::Line;

    /// Writes a line to an address that is a multiple of [`CACHE_LINE`], with a non-temporal store where the level has one.
    unsafe fn stream_line(to: *mut u8, line: Self::Line);

    /// Writes bytes `at..at + n` of a line to `to + at..to + at + n`.
    unsafe fn store(to: *mut u8, line: Self::Line, at: usize, n: usize);

    /// Bytes of the elements that [`Vector::stream_square`] transposes; 0 if the level has none.
    const SQUARE_ELEM_BYTES: usize = 0;

    /// Transposes 8 by 8 elements of [`Vector::SQUARE_ELEM_BYTES`] bytes, `skipped` bytes into their columns, to rows `pitch` bytes
    /// apart that are aligned lines, with non-temporal stores.
    #[inline(always)]
    unsafe fn stream_square(to: *mut u8, pitch: usize, columns: &[*const u8; 8], skipped: usize) {
        let _ = (to, pitch, columns, skipped);
        unreachable!("the level has no such squares");
    }

    /// Store fence: orders non-temporal stores before the next release, so that threads that synchronise with this one see
    /// them.
    unsafe fn fence();
}
