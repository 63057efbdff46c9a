//! Rows that several ends share, in one pass over their source.
//!
//! What one source packs for several receivers lies in its rows in turns: a piece for this one, a piece for that. End by end,
//! each would go over the row with gaps, and that is not how a processor reads ahead. So all pieces of a row are written down
//! in the order of the source, and each is pushed to the sink of its end: one row is one long piece to be read, of which only
//! the beginnings of pages have to be asked for. A tenth of the time of packing is saved where pieces have a few hundred bytes.

use super::route::End;
use super::sink::Sink;
use super::vector::{Vector, prefetch_piece};

/// Rows of more pieces are copied end by end: what is written down should stay in the first-level cache.
const MOST_PIECES: u64 = 1024;

/// Gaps are at most one part in so many of what is gone over: those are read ahead, too.
const GAPS: usize = 4;

/// The pieces of a row, for all ends.
pub(super) struct Sweep {
    pieces: Vec<Piece>,
    /// Where each end's row begins, in bytes from the place of the row.
    to: Vec<usize>,
    /// The bytes of the row from the first piece to the end of the last.
    from: usize,
    bytes: usize,
}

struct Piece {
    from: usize,
    bytes: u32,
    end: u32,
}

impl Sweep {
    /// If there are several ends, all of one source, and for each what comes one after the other in a row of the source does
    /// so in the destination, too, without a gap, in pieces that are worth pushing one by one and leave few gaps.
    pub fn new(ends: &[End], peers: usize, elem: usize) -> Option<Self> {
        let pieces_of = |end: &End| -> u64 {
            end.loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64)).sum()
        };
        let one_by_one = |end: &End| {
            end.clip.is_none() && end.loops.iter().all(|each| each.lanes.is_none() && each.lines.is_none())
        };
        let many = ends.iter().map(pieces_of).fold(0, u64::saturating_add) > MOST_PIECES;
        if ends.len() < 2 || peers != 1 || many || !ends.iter().all(one_by_one) {
            return None;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut to = Vec::with_capacity(ends.len());
        for (number, end) in ends.iter().enumerate() {
            let first = end.loops.first()?.stretches.first()?.stretch.to;
            // Where the last piece ended, on both sides.
            let (mut read, mut written) = (0, first);
            for each in &end.loops {
                for round in 0..each.rounds {
                    for stretch in each.stretches.iter().map(|each| &each.stretch) {
                        let from = stretch.from + round * stretch.from_step;
                        if from < read || stretch.to + round * stretch.to_step != written {
                            return None;
                        }
                        (read, written) = (from + stretch.len, written + stretch.len);
                        let bytes = u32::try_from(stretch.len * elem as u64).ok()?;
                        pieces.push(Piece { from: from as usize * elem, bytes, end: number as u32 });
                    }
                }
            }
            to.push(first as usize * elem);
        }
        pieces.sort_by_key(|piece| piece.from);
        let from = pieces.first()?.from;
        let bytes = pieces.last().map(|last| last.from + last.bytes as usize - from)?;
        let taken: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
        (bytes.saturating_sub(taken) <= bytes / GAPS).then_some(Self { pieces, to, from, bytes })
    }

    /// Asks for a row that begins at `base`.
    #[inline(always)]
    pub fn fetch(&self, base: *const u8) {
        prefetch_piece(base.wrapping_add(self.from), self.bytes);
    }

    /// Copies a row that begins at `base` to the places of all ends.
    ///
    /// # Safety
    /// The sinks' promises, one sink and one place for each end of the route this was made for; the source has the whole row.
    #[inline(always)]
    pub unsafe fn copy<V: Vector, S: Sink<V>>(&self, base: *const u8, places: &[*mut u8], sinks: &mut [S]) {
        let sinks = &mut sinks[..self.to.len()];
        // SAFETY: passed on. Pieces are numbered by the ends they were made from, as many as sinks are left here; those of an
        // end are pushed in the order in which they follow each other in its row.
        unsafe {
            for ((sink, place), to) in sinks.iter_mut().zip(places).zip(&self.to) {
                sink.open(place.wrapping_add(*to));
            }
            for &Piece { from, bytes, end } in &self.pieces {
                sinks.get_unchecked_mut(end as usize).push(base.wrapping_add(from), bytes as usize);
            }
        }
    }
}
