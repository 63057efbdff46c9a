//! Memory for large parts: zeroed, aligned to cache lines, on huge pages where the system grants them; and huge pages for
//! memory that is allocated already.
//!
//! A redistribution accesses far more 4-kilobyte pages than the TLB has entries; with huge pages of two megabytes the entries
//! suffice. The calls are advice, and the system may refuse.

use bytemuck::Pod;
use reshard_plan::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a huge page on the systems we know.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `MADV_COLLAPSE`, since Linux 6.1: makes huge pages of a range now.
#[cfg(target_os = "linux")]
const MADV_COLLAPSE: libc::c_int = 25;

/// Puts an allocated array on huge pages, without changing its address or contents, as far as the system does that; the
/// first and last megabyte or so stay on small pages. It pays off for arrays of many megabytes that are moved many times, on
/// systems that do not do it by themselves (`/sys/kernel/mm/transparent_hugepage/enabled` is not `always`); it takes longer
/// than copying the array once.
///
/// ```
/// let mut part = vec![1.5; 1_000_000];
/// reshard_kernel::memory::use_huge_pages(&mut part);
/// assert!(part.iter().all(|&value| value == 1.5));
/// ```
pub fn use_huge_pages<T: Pod>(array: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(array);
        let head = bytes.as_ptr().addr().wrapping_neg() % HUGE_PAGE_BYTES;
        if let Some(whole) =
            bytes.len().checked_sub(head).map(|rest| rest / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
            && whole > 0
        {
            let first = bytes[head..].as_mut_ptr();
            // SAFETY: whole huge pages inside the array, which is borrowed; advice changes no contents. The first call is for
            // systems that do not know the second: they collapse pages in the background.
            unsafe {
                libc::madvise(first.cast(), whole, libc::MADV_HUGEPAGE);
                libc::madvise(first.cast(), whole, MADV_COLLAPSE);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = array;
}

/// One part of an array, on huge pages if it is large. Behaves like a slice, initially of zeros.
///
/// ```
/// let mut part: reshard_kernel::memory::Memory<f64> = reshard_kernel::memory::Memory::zeroed(1000)?;
/// part[7] = 1.5;
/// assert_eq!((part.len(), part[6], part[7]), (1000, 0.0, 1.5));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub struct Memory<T> {
    first: NonNull<u8>,
    layout: Layout,
    elems: usize,
    elements: PhantomData<T>,
}

// SAFETY: it owns its elements, like a boxed slice.
unsafe impl<T: Send> Send for Memory<T> {}
// SAFETY: it owns its elements, like a boxed slice.
unsafe impl<T: Sync> Sync for Memory<T> {}

impl<T: Pod> Memory<T> {
    /// Allocates `elems` elements, all bytes zero. Fails with an error if there is not enough memory.
    pub fn zeroed(elems: usize) -> Result<Self> {
        let refused = || {
            Error::new(
                ErrorKind::Memory,
                format!("{elems} elements of {} bytes do not fit in memory", size_of::<T>()),
            )
        };
        let bytes = elems.checked_mul(size_of::<T>()).ok_or_else(refused)?;
        // Whole huge pages, if it takes at least one.
        let (bytes, align) = match bytes {
            0..HUGE_PAGE_BYTES => (bytes.max(1), 64),
            _ => (bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or_else(refused)?, HUGE_PAGE_BYTES),
        };
        let layout = Layout::from_size_align(bytes, align.max(align_of::<T>())).map_err(|_| refused())?;
        let first = if align == HUGE_PAGE_BYTES { allocate_huge(layout) } else { allocate(layout) };
        Ok(Self { first: first.ok_or_else(refused)?, layout, elems, elements: PhantomData })
    }
}

fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout has at least one byte.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Allocates without touching the pages, advises huge pages, then writes zeros.
fn allocate_huge(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout has at least one byte.
    let first = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
    #[cfg(target_os = "linux")]
    // SAFETY: the range was just allocated, begins and ends at multiples of a page, and advice changes no contents.
    unsafe {
        libc::madvise(first.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE);
    }
    // SAFETY: all of it was just allocated.
    unsafe { first.as_ptr().write_bytes(0, layout.size()) };
    Some(first)
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and plain data needs no dropping.
        unsafe { dealloc(self.first.as_ptr(), self.layout) }
    }
}

impl<T: Pod> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `elems` initialised elements lie there, aligned; any bytes are a value of a plain type.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().cast(), self.elems) }
    }
}

impl<T: Pod> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; it is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr().cast(), self.elems) }
    }
}

impl<T: Pod> AsRef<[T]> for Memory<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Pod> AsMut<[T]> for Memory<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_keep_the_contents() {
        for elems in [0, 1, HUGE_PAGE_BYTES / 8 - 1, HUGE_PAGE_BYTES / 4, HUGE_PAGE_BYTES / 8 * 3 + 5] {
            let value = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut array: Vec<u64> = (0..elems + 3).map(value).collect();
            // Not from its beginning, and not to its end.
            let part = array.len().min(1)..array.len() - 2;
            use_huge_pages(&mut array[part]);
            assert!(array.iter().enumerate().all(|(at, &found)| found == value(at)), "{elems}");
        }
    }
}
