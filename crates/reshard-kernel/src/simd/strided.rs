//! Strided copies, element by element: for layouts that are contiguous on neither side.

/// Strided elements of a source and a destination; strides in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    pub to: *mut u8,
    pub to_stride: usize,
    pub from: *const u8,
    pub from_stride: usize,
}

/// Copies `count` elements of `elem` bytes each.
///
/// # Safety
/// Both sides hold `count` elements at their strides, readable and writable; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_strided(s: Strided, count: usize, elem: usize) {
    // SAFETY: by the caller's contract.
    unsafe {
        match elem {
            1 => of_size::<1>(s, count),
            2 => of_size::<2>(s, count),
            4 => of_size::<4>(s, count),
            8 => of_size::<8>(s, count),
            12 => of_size::<12>(s, count),
            16 => of_size::<16>(s, count),
            24 => of_size::<24>(s, count),
            32 => of_size::<32>(s, count),
            _ => {
                for k in 0..count {
                    std::ptr::copy_nonoverlapping(
                        s.from.add(k * s.from_stride),
                        s.to.add(k * s.to_stride),
                        elem,
                    );
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn of_size<const N: usize>(s: Strided, count: usize) {
    for k in 0..count {
        // SAFETY: element k of both sides, as the caller promises; arrays of bytes need no alignment.
        unsafe {
            let value = s.from.add(k * s.from_stride).cast::<[u8; N]>().read();
            s.to.add(k * s.to_stride).cast::<[u8; N]>().write(value);
        }
    }
}
