//! Hints to the processor: lines that will be read, or written, soon.

use super::LINE;

/// Bytes from which on the processor's own prefetching is trusted to go on with a piece.
const LONG: usize = 2048;

/// Where that ends, whatever the system's pages are.
const PAGE: usize = 4096;

/// What it needs to see of a piece, or of the next page, to go on.
const BEGINNING: usize = 4 * LINE;

/// Asks for `n` bytes that will be read soon, into the second-level cache. Any address will do.
///
/// Of short pieces every line is asked for. The processor reads ahead in long ones by itself, and has more requests under way
/// than a program can have; but it begins slowly, and again on each page. So of those it is shown how they begin there.
#[inline(always)]
pub fn prefetch_piece(from: *const u8, n: usize) {
    if n < LONG {
        return prefetch(from, n);
    }
    prefetch(from, BEGINNING);
    let mut page = from.addr().wrapping_neg() % PAGE;
    while page < n {
        prefetch(from.wrapping_add(page), BEGINNING.min(n - page));
        page += PAGE;
    }
}

/// Asks for all lines of `n` bytes that will be read soon, likewise.
#[inline(always)]
pub fn prefetch(from: *const u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..n).step_by(LINE) {
        // SAFETY: a hint, which never faults.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(
                from.wrapping_add(at).cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, n);
}

/// Asks for the lines that begin within `n` bytes and will be written soon, to be this processor's alone. Any address will do.
#[inline(always)]
pub fn claim(to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (to.addr().wrapping_neg() % LINE..n).step_by(LINE) {
        // SAFETY: a hint, which never faults; processors that do not have it pass over it. There is no intrinsic for it that
        // does not demand more of the processor than it needs.
        unsafe {
            std::arch::asm!(
                "prefetchw [{}]",
                in(reg) to.wrapping_add(at),
                options(nostack, preserves_flags, readonly),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (to, n);
}
