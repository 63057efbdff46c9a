//! Copies rounds of short pieces as composed cache lines: see [`ComposedLines`].

use crate::route::ComposedLines;
use crate::simd::{CACHE_LINE, Patch, Vector, prefetch};
use crate::store::Sink;

impl ComposedLines {
    /// Copies a round of a row to `to`, and prefetches the same round of the row at `ahead_bases`, if that is not empty.
    ///
    /// # Safety
    /// The contract of [`Sink`]; `bases[peer]` is the start of the row in the part of that peer, which has all elements of
    /// the round; there is one base for each peer of the route these lines belong to.
    #[inline(always)]
    pub unsafe fn copy<V: Vector, S: Sink<V>>(
        &self,
        [bases, ahead_bases]: [&[*const u8]; 2],
        to: *mut u8,
        round: u64,
        sink: &mut S,
    ) {
        let offset = round as usize * self.from_step;
        if !ahead_bases.is_empty() {
            for &(peer, from, bytes) in &self.spans {
                prefetch(ahead_bases[peer as usize].wrapping_add(from + offset), bytes);
            }
        }
        // SAFETY: by the caller's contract. With a constant number of patches the compiler unrolls the loop.
        unsafe {
            sink.open(to.wrapping_add(self.to[0] + round as usize * self.to[1]));
            match self.patches_per_line {
                2 => self.copy_unrolled::<V, S, 2>(bases, offset, sink),
                3 => self.copy_unrolled::<V, S, 3>(bases, offset, sink),
                _ => self.copy_unrolled::<V, S, 0>(bases, offset, sink),
            }
        }
    }

    /// Copies a round with `PATCHES` patches in a line, 0 if the number is not a constant.
    #[inline(always)]
    unsafe fn copy_unrolled<V: Vector, S: Sink<V>, const PATCHES: usize>(
        &self,
        bases: &[*const u8],
        offset: usize,
        sink: &mut S,
    ) {
        let each = if PATCHES > 0 { PATCHES } else { self.patches_per_line };
        let mut left = self.bytes;
        for line in self.patches.chunks_exact(each) {
            // SAFETY: every patch reads bytes of a piece, which the caller promises; together they are a line, or the
            // remaining part of one.
            unsafe { sink.line(compose::<V>(line, bases, offset), left.min(CACHE_LINE)) };
            left = left.saturating_sub(CACHE_LINE);
        }
    }
}

/// Loads all patches of a line on top of each other.
#[inline(always)]
unsafe fn compose<V: Vector>(line: &[(u32, Patch)], bases: &[*const u8], offset: usize) -> V::Line {
    let mut composed = V::empty();
    for (peer, patch) in line {
        // SAFETY: the route has that peer; the rest is the caller's contract.
        composed = unsafe {
            let base = *bases.get_unchecked(*peer as usize);
            V::patch(composed, patch, base.wrapping_add(offset))
        };
    }
    composed
}
