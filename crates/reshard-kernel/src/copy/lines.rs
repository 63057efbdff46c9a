//! Copies rounds of short pieces as the cache lines they were composed to: see [`ComposedLines`].

use crate::route::ComposedLines;
use crate::simd::{CACHE_LINE, Patch, Vector, prefetch};
use crate::store::Sink;

impl ComposedLines {
    /// Copies a round of a row that begins at `to`, and asks for that round of a row that begins at `nexts`, if any.
    ///
    /// # Safety
    /// The sink's promises; `bases[peer]` is the beginning of the row in the part of that peer, which has all elements of
    /// the round; there is one for each peer of the route these lines belong to.
    #[inline(always)]
    pub unsafe fn copy<V: Vector, S: Sink<V>>(
        &self,
        [bases, nexts]: [&[*const u8]; 2],
        to: *mut u8,
        round: u64,
        sink: &mut S,
    ) {
        let ahead = round as usize * self.from_step;
        if !nexts.is_empty() {
            for &(peer, from, bytes) in &self.spans {
                prefetch(nexts[peer as usize].wrapping_add(from + ahead), bytes);
            }
        }
        // SAFETY: by the caller's contract. A number of patches the compiler knows needs no counting.
        unsafe {
            sink.open(to.wrapping_add(self.to[0] + round as usize * self.to[1]));
            match self.each {
                2 => self.copy_known::<V, S, 2>(bases, ahead, sink),
                3 => self.copy_known::<V, S, 3>(bases, ahead, sink),
                _ => self.copy_known::<V, S, 0>(bases, ahead, sink),
            }
        }
    }

    /// With `EACH` patches in a line, 0 if that is not known.
    #[inline(always)]
    unsafe fn copy_known<V: Vector, S: Sink<V>, const EACH: usize>(
        &self,
        bases: &[*const u8],
        ahead: usize,
        sink: &mut S,
    ) {
        let each = if EACH > 0 { EACH } else { self.each };
        let mut left = self.bytes;
        for line in self.patches.chunks_exact(each) {
            // SAFETY: every patch reads bytes of a piece, which the caller promises; together they are a line, or the part
            // of it that is left.
            unsafe { sink.line(compose::<V>(line, bases, ahead), left.min(CACHE_LINE)) };
            left = left.saturating_sub(CACHE_LINE);
        }
    }
}

#[inline(always)]
unsafe fn compose<V: Vector>(line: &[(u32, Patch)], bases: &[*const u8], ahead: usize) -> V::Line {
    let mut composed = V::empty();
    for (peer, patch) in line {
        // SAFETY: the route has that peer; the rest is the caller's contract.
        composed = unsafe {
            let base = *bases.get_unchecked(*peer as usize);
            V::patch(composed, patch, base.wrapping_add(ahead))
        };
    }
    composed
}
