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

use super::destination::Destination;

/// Rows of more pieces are copied loop by loop: what is written down should stay in the first-level cache.
const MOST_PIECES: u64 = 1024;

/// Gaps are at most one part in so many of what several ends go over: those are read ahead, too.
const GAPS: usize = 4;

/// The pieces of a row, for all ends.
pub(crate) struct PieceList {
    pub(crate) pieces: Vec<Piece>,
    /// With several ends: the bytes of the row from the first piece to the end of the last.
    pub(crate) span: Option<Span>,
}

pub(crate) struct Span {
    pub(crate) from: usize,
    pub(crate) bytes: usize,
    /// Where each end's row begins, in bytes from the place of the row.
    pub(crate) to: Vec<usize>,
}

/// In bytes, from where the row begins.
pub(crate) struct Piece {
    pub(crate) from: usize,
    pub(crate) to: u32,
    pub(crate) bytes: u32,
    /// So many will be needed from `from` on, by this end or its neighbours.
    pub(crate) fetch: u32,
    pub(crate) peer: u16,
    pub(crate) end: u16,
}

impl PieceList {
    /// If all pieces are worth pushing one by one and not too many. Several ends must have one source, of which they leave few
    /// gaps, and for each what comes one after the other in a row of the source does so in the destination, too, without a gap.
    pub fn new(ends: &[Destination], peers: usize, elem: usize) -> Option<Self> {
        let pieces_of = |end: &Destination| -> u64 {
            end.loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64)).sum()
        };
        let one_by_one = |end: &Destination| {
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
}
