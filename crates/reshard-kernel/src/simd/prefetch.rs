//! Software prefetch: hints for lines that will be read or written soon.

use super::CACHE_LINE;

/// Pieces of at least this many bytes are left to the hardware prefetcher after their first lines.
const MIN_HARDWARE_PREFETCH_BYTES: usize = 2048;

/// Bytes of the pages at which the hardware prefetcher stops, whatever page size the system uses.
const PAGE_BYTES: usize = 4096;

/// Bytes at the start of a piece, and of each page, that are prefetched by software so that the hardware prefetcher starts.
const PAGE_START_BYTES: usize = 4 * CACHE_LINE;

/// Prefetches a piece of `n` bytes that will be read soon into the second-level cache. Any address is allowed.
///
/// Every line of a short piece is prefetched. The hardware prefetcher follows long pieces by itself and keeps more requests
/// in flight than software can, but it starts slowly, and anew on each page. So of long pieces only the first lines of each
/// page are prefetched.
#[inline(always)]
pub fn prefetch_piece(from: *const u8, n: usize) {
    if n < MIN_HARDWARE_PREFETCH_BYTES {
        return prefetch(from, n);
    }
    prefetch(from, PAGE_START_BYTES);
    let mut page = from.addr().wrapping_neg() % PAGE_BYTES;
    while page < n {
        prefetch(from.wrapping_add(page), PAGE_START_BYTES.min(n - page));
        page += PAGE_BYTES;
    }
}

/// Prefetches all lines of `n` bytes that will be read soon into the second-level cache. Any address is allowed.
#[inline(always)]
pub fn prefetch(from: *const u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..n).step_by(CACHE_LINE) {
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

/// Prefetches for writing (exclusive ownership) the lines that begin within the `n` bytes at `to`. Any address is allowed.
#[inline(always)]
pub fn prefetch_write(to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (to.addr().wrapping_neg() % CACHE_LINE..n).step_by(CACHE_LINE) {
        // SAFETY: a hint, which never faults; processors without `prefetchw` ignore it. The intrinsics for it require a
        // target feature that the instruction itself does not need, hence the assembly.
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
