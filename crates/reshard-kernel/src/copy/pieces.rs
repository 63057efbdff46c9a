//! Copies rows by their precomputed lists of pieces: see [`PieceList`].

use crate::route::{Piece, PieceList};
use crate::simd::{Vector, prefetch_piece};
use crate::store::Sink;

impl PieceList {
    /// Prefetches the row at `base`, if the list has a span (several destinations).
    #[inline(always)]
    pub fn prefetch_row(&self, base: *const u8) {
        if let Some(span) = &self.span {
            prefetch_piece(base.wrapping_add(span.from), span.bytes);
        }
    }

    /// True if consecutive rows form one contiguous piece. `strides(peer)` are the bytes from row to row in the part of the
    /// peer and in the only destination.
    #[inline(always)]
    pub fn is_contiguous(&self, strides: impl Fn(usize) -> [usize; 2]) -> bool {
        match &self.pieces[..] {
            [only] => strides(only.peer as usize) == [only.bytes as usize; 2],
            _ => false,
        }
    }

    /// Copies consecutive rows that form one contiguous piece.
    ///
    /// # Safety
    /// As for [`PieceList::copy`], for all these rows; [`PieceList::is_contiguous`] is true for them.
    #[inline(always)]
    pub unsafe fn copy_rows<V: Vector, S: Sink<V>>(
        &self,
        bases: &[*const u8],
        row_start: *mut u8,
        rows: u64,
        sink: &mut S,
    ) {
        let Piece { from, to, bytes, peer, .. } = self.pieces[0];
        // SAFETY: by the caller's contract.
        unsafe {
            sink.open(row_start.wrapping_add(to as usize));
            sink.push(bases[peer as usize].wrapping_add(from), bytes as usize * rows as usize);
        }
    }

    /// Copies a row to all destinations, at `row_starts`. The row begins at `bases`, one for each peer; the row to prefetch
    /// begins at `ahead_bases`, if that is not empty.
    ///
    /// # Safety
    /// The contract of [`Sink`], with one sink and one row start for each destination of the route of this list; `bases` has
    /// all its peers, and the sources have the whole row.
    #[inline(always)]
    pub unsafe fn copy<V: Vector, S: Sink<V>>(
        &self,
        [bases, ahead_bases]: [&[*const u8]; 2],
        row_starts: &[*mut u8],
        sinks: &mut [S],
    ) {
        // SAFETY: by the caller's contract. The peers and destinations of pieces are those of the route; the pieces of a
        // destination are pushed in the order of its row.
        unsafe {
            let Some(span) = &self.span else {
                // A copy of the sink, so that its state stays in registers.
                let mut sink = sinks[0];
                for &Piece { from, to, bytes, prefetch_bytes, peer, .. } in &self.pieces {
                    if let Some(next) = ahead_bases.get(peer as usize) {
                        prefetch_piece(next.wrapping_add(from), prefetch_bytes as usize);
                    }
                    sink.open(row_starts[0].wrapping_add(to as usize));
                    sink.push(bases.get_unchecked(peer as usize).wrapping_add(from), bytes as usize);
                }
                sinks[0] = sink;
                return;
            };
            ahead_bases.iter().for_each(|&next| self.prefetch_row(next));
            let sinks = &mut sinks[..span.to.len()];
            for ((sink, row_start), to) in sinks.iter_mut().zip(row_starts).zip(&span.to) {
                sink.open(row_start.wrapping_add(*to));
            }
            for &Piece { from, bytes, destination, .. } in &self.pieces {
                sinks
                    .get_unchecked_mut(destination as usize)
                    .push(bases[0].wrapping_add(from), bytes as usize);
            }
        }
    }
}
