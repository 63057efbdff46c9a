//! Rows as lists of pieces, written down once.
//!
//! All rows of a route are made of the same pieces, so where those lie is reckoned when the route is made, and nothing is left
//! to do for a row but to go through the list.
//!
//! With one end the pieces are in the order of its destination. With several ends, as when one source packs for several
//! receivers, they lie in its rows in turns: a piece for this one, a piece for that. End by end, each would go over the row
//! with gaps, and that is not how a processor reads ahead. So the list is in the order of the source, and each piece is pushed
//! to the sink of its end: one row is one long piece to be read, of which only the beginnings of pages have to be asked for. A
//! tenth of the time of packing is saved where pieces have a few hundred bytes.

use super::route::End;
use super::sink::Sink;
use super::vector::{Vector, prefetch_piece};

/// Rows of more pieces are copied loop by loop: what is written down should stay in the first-level cache.
const MOST_PIECES: u64 = 1024;

/// Gaps are at most one part in so many of what several ends go over: those are read ahead, too.
const GAPS: usize = 4;

/// The pieces of a row, for all ends.
pub(super) struct Sweep {
    pieces: Vec<Piece>,
    /// With several ends: the bytes of the row from the first piece to the end of the last.
    span: Option<Span>,
}

struct Span {
    from: usize,
    bytes: usize,
    /// Where each end's row begins, in bytes from the place of the row.
    to: Vec<usize>,
}

/// In bytes, from where the row begins.
struct Piece {
    from: usize,
    to: u32,
    bytes: u32,
    /// So many will be needed from `from` on, by this end or its neighbours.
    fetch: u32,
    peer: u16,
    end: u16,
}

impl Sweep {
    /// If all pieces are worth pushing one by one and not too many. Several ends must have one source, of which they leave few
    /// gaps, and for each what comes one after the other in a row of the source does so in the destination, too, without a gap.
    pub fn new(ends: &[End], peers: usize, elem: usize) -> Option<Self> {
        let pieces_of = |end: &End| -> u64 {
            end.loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64)).sum()
        };
        let one_by_one = |end: &End| {
            end.clip.is_none() && end.loops.iter().all(|each| each.lanes.is_none() && each.lines.is_none())
        };
        let many = ends.iter().map(pieces_of).fold(0, u64::saturating_add) > MOST_PIECES;
        if many || !ends.iter().all(one_by_one) {
            return None;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, end) in ends.iter().enumerate() {
            for each in &end.loops {
                for round in 0..each.rounds {
                    for row in &each.stretches {
                        let stretch = &row.stretch;
                        let (from, to) =
                            (stretch.from + round * stretch.from_step, stretch.to + round * stretch.to_step);
                        pieces.push(Piece {
                            from: from as usize * elem,
                            to: u32::try_from(to * elem as u64).ok()?,
                            bytes: u32::try_from(stretch.len * elem as u64).ok()?,
                            fetch: u32::try_from(row.fetch).ok()?,
                            peer: u16::try_from(stretch.peer).ok()?,
                            end: u16::try_from(number).ok()?,
                        });
                    }
                }
            }
        }
        if ends.len() == 1 {
            return Some(Self { pieces, span: None });
        }
        let goes_on = |two: &[Piece]| {
            let (one, next) = (&two[0], &two[1]);
            one.end != next.end
                || (next.from >= one.from + one.bytes as usize && next.to == one.to + one.bytes)
        };
        if peers != 1 || !pieces.windows(2).all(goes_on) {
            return None;
        }
        let first = |end: usize| pieces.iter().find(|piece| piece.end as usize == end);
        let to =
            (0..ends.len()).map(|end| first(end).map(|first| first.to as usize)).collect::<Option<_>>()?;
        pieces.sort_by_key(|piece| piece.from);
        let from = pieces.first()?.from;
        let bytes = pieces.last().map(|last| last.from + last.bytes as usize - from)?;
        let taken: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
        let few_gaps = bytes.saturating_sub(taken) <= bytes / GAPS;
        few_gaps.then_some(Self { pieces, span: Some(Span { from, bytes, to }) })
    }

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
    /// As for [`Sweep::copy`], for all these rows; they do [go on](Sweep::goes_on).
    #[inline(always)]
    pub unsafe fn copy_rows<V: Vector, S: Sink<V>>(
        &self,
        bases: &[*const u8],
        place: *mut u8,
        rows: u64,
        sink: &mut S,
    ) {
        let Piece { from, to, bytes, peer, .. } = self.pieces[0];
        // SAFETY: passed on.
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
        // SAFETY: passed on. Pieces are numbered by the peers and the ends they were made from; those of an end are pushed in
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
