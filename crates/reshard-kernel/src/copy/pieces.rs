//! Copies rows as the lists of pieces they were written down as: see [`PieceList`].

use crate::route::{Piece, PieceList};
use crate::simd::{Vector, prefetch_piece};
use crate::store::Sink;

impl PieceList {
    /// Asks for a row of several ends that begins at `base`.
    #[inline(always)]
    pub fn fetch(&self, base: *const u8) {
        if let Some(span) = &self.span {
            prefetch_piece(base.wrapping_add(span.from), span.bytes);
        }
    }

    /// Whether rows that follow each other, so far apart in the part of a peer and in the only end, are one long piece.
    #[inline(always)]
    pub fn goes_on(&self, strides: impl Fn(usize) -> [usize; 2]) -> bool {
        match &self.pieces[..] {
            [only] => strides(only.peer as usize) == [only.bytes as usize; 2],
            _ => false,
        }
    }

    /// Copies rows that follow each other and go on.
    ///
    /// # Safety
    /// As for [`PieceList::copy`], for all these rows; they do [go on](Sweep::goes_on).
    #[inline(always)]
    pub unsafe fn copy_rows<V: Vector, S: Sink<V>>(
        &self,
        bases: &[*const u8],
        place: *mut u8,
        rows: u64,
        sink: &mut S,
    ) {
        let Piece { from, to, bytes, peer, .. } = self.pieces[0];
        // SAFETY: by the caller's contract.
        unsafe {
            sink.open(place.wrapping_add(to as usize));
            sink.push(bases[peer as usize].wrapping_add(from), bytes as usize * rows as usize);
        }
    }

    /// Copies a row to the places of all ends; it begins at `bases`, one for each peer, and a row that is to be asked for
    /// begins at `nexts`, if there are any.
    ///
    /// # Safety
    /// The sinks' promises, one sink and one place for each end of the route this was made for; `bases` has all its peers,
    /// and the sources have the whole row.
    #[inline(always)]
    pub unsafe fn copy<V: Vector, S: Sink<V>>(
        &self,
        [bases, nexts]: [&[*const u8]; 2],
        places: &[*mut u8],
        sinks: &mut [S],
    ) {
        // SAFETY: by the caller's contract. Pieces are numbered by the peers and the ends they were made from; those of an end are pushed in
        // the order in which they follow each other in its row.
        unsafe {
            let Some(span) = &self.span else {
                // In registers while it works.
                let mut sink = sinks[0];
                for &Piece { from, to, bytes, fetch, peer, .. } in &self.pieces {
                    if let Some(next) = nexts.get(peer as usize) {
                        prefetch_piece(next.wrapping_add(from), fetch as usize);
                    }
                    sink.open(places[0].wrapping_add(to as usize));
                    sink.push(bases.get_unchecked(peer as usize).wrapping_add(from), bytes as usize);
                }
                sinks[0] = sink;
                return;
            };
            nexts.iter().for_each(|&next| self.fetch(next));
            let sinks = &mut sinks[..span.to.len()];
            for ((sink, place), to) in sinks.iter_mut().zip(places).zip(&span.to) {
                sink.open(place.wrapping_add(*to));
            }
            for &Piece { from, bytes, end, .. } in &self.pieces {
                sinks.get_unchecked_mut(end as usize).push(bases[0].wrapping_add(from), bytes as usize);
            }
        }
    }
}
