//! A plain copy of contiguous bytes, the baseline of all speed measurements.

#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512, Vector};
use crate::simd::{CACHE_LINE, Level};

/// Copies contiguous bytes as fast as a plain copy can, with non-temporal stores or not: the baseline of every measured
/// ratio.
pub fn plain_copy(to: &mut [u8], from: &[u8], non_temporal: bool) {
    assert_eq!(to.len(), from.len(), "a plain copy has as many bytes on both sides");
    if !non_temporal {
        return to.copy_from_slice(from);
    }
    let head = to.as_ptr().align_offset(CACHE_LINE).min(to.len());
    let lines = (to.len() - head) / CACHE_LINE;
    let tail = head + lines * CACHE_LINE;
    to[..head].copy_from_slice(&from[..head]);
    to[tail..].copy_from_slice(&from[tail..]);
    let (middle, source) = (&mut to[head..tail], &from[head..tail]);
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,bmi2,avx2")]
        unsafe fn widest(to: *mut u8, from: *const u8, lines: usize) {
            // SAFETY: by the caller's contract.
            unsafe {
                Avx512::stream(to, from, lines);
                Avx512::fence();
            }
        }
        #[target_feature(enable = "avx2")]
        unsafe fn wide(to: *mut u8, from: *const u8, lines: usize) {
            // SAFETY: by the caller's contract.
            unsafe {
                Avx2::stream(to, from, lines);
                Avx2::fence();
            }
        }
        // SAFETY: both slices have `lines` lines, the destination is aligned to a line, and the processor supports the level.
        match Level::best() {
            Level::Avx512 | Level::Avx512Vbmi => {
                return unsafe { widest(middle.as_mut_ptr(), source.as_ptr(), lines) };
            }
            Level::Avx2 => return unsafe { wide(middle.as_mut_ptr(), source.as_ptr(), lines) },
            Level::Portable => {}
        }
    }
    middle.copy_from_slice(source);
}
