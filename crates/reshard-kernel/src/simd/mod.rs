//! How bytes are copied on this processor: three levels behind one trait, chosen once.
//!
//! Row and tile kernels are written once, generic over [`Vector`]; each level is a set of small primitives that the
//! compiler inlines into them. [`Level::Portable`] uses nothing but the standard library and is the oracle of the others.
//! A generic kernel may be entered with a level's type only from a function that enables its instructions, which
//! [`super::copy`] does after [`Level::best`] has asked the processor.

mod portable;
mod prefetch;
mod strided;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use portable::{Bytes, Portable};
pub use prefetch::{claim, prefetch, prefetch_piece};
pub(crate) use strided::{Strided, copy_strided};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// A cache line: what streaming stores write whole.
pub const LINE: usize = 64;

/// Which instructions to use.
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
    /// The best this processor has.
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

    /// All levels this processor has.
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
/// All unsafe methods: the processor has the level's instructions, and pointers are valid for what the method says it reads
/// and writes. Sources and destinations do not overlap.
pub trait Vector: Copy {
    /// A cache line in hand.
    type Line: Copy;

    /// A line in hand, of whatever bytes.
    fn empty() -> Self::Line;

    /// Copies `n` bytes; reads and writes exactly those.
    unsafe fn copy(to: *mut u8, from: *const u8, n: usize);

    /// The line with a patch on it; reads exactly the patch's bytes, counted from `from`.
    #[inline(always)]
    unsafe fn patch(line: Self::Line, patch: &Patch, from: *const u8) -> Self::Line {
        let from = from.wrapping_add(patch.from).wrapping_add(patch.at as usize);
        // SAFETY: the bytes the caller promises.
        unsafe { Self::merge(line, patch.at as usize, from, patch.bytes as usize) }
    }

    /// Copies whole lines to an address that is a multiple of [`LINE`], past the caches where the level can.
    unsafe fn stream(to: *mut u8, from: *const u8, lines: usize);

    /// The line with bytes `at..at + n` replaced by the `n` bytes at `from`. `at + n` is at most [`LINE`].
    unsafe fn merge(line: Self::Line, at: usize, from: *const u8, n: usize) -> Self::Line;

    /// Writes a line to an address that is a multiple of [`LINE`], past the caches where the level can.
    unsafe fn stream_line(to: *mut u8, line: Self::Line);

    /// Writes bytes `at..at + n` of a line to those bytes behind `to`.
    unsafe fn store(to: *mut u8, line: Self::Line, at: usize, n: usize);

    /// `WIDTH` bytes (8 or 4) from each of eight addresses plus `shift`, to `to` one after the other. The addresses are
    /// exposed ones.
    unsafe fn gather<const WIDTH: usize>(to: *mut u8, lanes: &[u64], shift: u64);

    /// A line of 8 bytes from each of eight addresses plus `shift`.
    unsafe fn gather_line(lanes: &[u64], shift: u64) -> Self::Line;

    /// The next line put behind the first `fill` bytes of a line, a multiple of 4: the line it completes, and one that begins
    /// with the `fill` bytes that were too many.
    unsafe fn behind(line: Self::Line, fill: usize, next: Self::Line) -> (Self::Line, Self::Line);

    /// Transposes a rectangle: element `(i, j)`, `i < extents[0]` and `j < extents[1]`, from `from + i * elem + j * stride` to
    /// `to + i * pitch + j * elem`.
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

    /// Elements of this size are turned in squares whose rows are whole lines; 0 if none are.
    const SQUARES: usize = 0;

    /// Transposes `columns` columns, a multiple of 8, of as many elements as a line has, to rows `pitch` bytes apart that begin at
    /// multiples of a line, past the caches. Only for elements of `SQUARES` bytes.
    #[inline(always)]
    unsafe fn stream_squares(to: *mut u8, pitch: usize, from: *const u8, stride: usize, columns: usize) {
        // SAFETY: passed on.
        unsafe { Self::transpose(to, pitch, from, stride, [8, columns], 8) }
    }

    /// Makes streamed lines visible to whoever synchronises with this thread next.
    unsafe fn fence();
}

/// Some bytes of a line and where they come from, with nothing left to be worked out.
#[derive(Clone, Copy)]
pub struct Patch {
    /// Where byte 0 of the line would come from.
    pub(crate) from: usize,
    /// One bit for each byte of the line.
    pub(crate) mask: u64,
    at: u8,
    bytes: u8,
}

impl Patch {
    /// Bytes `at..at + n` of a line, from byte `from` on.
    pub fn new(from: usize, at: usize, n: usize) -> Self {
        debug_assert!(at + n <= LINE, "a patch lies in one line");
        let mask = u64::MAX.checked_shr((LINE - n) as u32).unwrap_or(0) << (at % LINE);
        Self { from: from.wrapping_sub(at), mask, at: at as u8, bytes: n as u8 }
    }

    /// At the same place, and nothing of it.
    pub fn emptied(self) -> Self {
        Self { mask: 0, bytes: 0, ..self }
    }
}
