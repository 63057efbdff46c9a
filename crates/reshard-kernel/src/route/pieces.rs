//! Rows as precomputed lists of pieces.
//!
//! All rows of a route consist of the same pieces, so their offsets are computed when the route is made, and copying a row
//! is a walk through the list.
//!
//! With one destination the pieces are in its order. With several destinations, as when one source packs for several
//! receivers, their pieces alternate in the rows of the source. Destination by destination, each row would be read with
//! gaps, which defeats the hardware prefetcher. So the list is in the order of the source, and each piece is pushed to the
//! sink of its destination: a row is read as one long piece, of which only the page starts are prefetched by software. That
//! saves a tenth of the time of packing where pieces have a few hundred bytes.

use super::destination::Destination;

/// Pieces of a list at most, so that it stays in the first-level cache; rows of more pieces are copied loop by loop.
const MAX_PIECES: u64 = 1024;

/// A span of several destinations has at least this many bytes for each byte of gaps, as gaps are prefetched, too.
const SPAN_PER_GAP: usize = 4;

/// The pieces of a row, for all destinations.
pub(crate) struct PieceList {
    pub(crate) pieces: Vec<Piece>,
    /// With several destinations: the range of the source row from the first piece to the end of the last.
    pub(crate) span: Option<Span>,
}

/// A range of a source row that holds the pieces of several destinations.
pub(crate) struct Span {
    /// Byte offset in the source row.
    pub(crate) from: usize,
    pub(crate) bytes: usize,
    /// Byte offset of the first piece in the row of each destination.
    pub(crate) to: Vec<usize>,
}

/// A contiguous piece of a row; offsets in bytes from the start of the row in the source and in the destination.
pub(crate) struct Piece {
    pub(crate) from: usize,
    pub(crate) to: u32,
    pub(crate) bytes: u32,
    /// Bytes from `from` on that are prefetched, for this destination and its neighbours.
    pub(crate) prefetch_bytes: u32,
    pub(crate) peer: u16,
    pub(crate) destination: u16,
}

impl PieceList {
    /// Returns the list, if all pieces are long enough to be pushed one by one and not too many. Several destinations must
    /// have one source with few gaps between their pieces, and the pieces of each must be contiguous in the destination, in
    /// the order of the source.
    pub fn new(destinations: &[Destination], peers: usize, elem: usize) -> Option<Self> {
        let pieces_of = |destination: &Destination| -> u64 {
            destination.loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64)).sum()
        };
        let one_by_one = |destination: &Destination| {
            destination.clip.is_none() && destination.loops.iter().all(|each| each.short.is_none())
        };
        let too_many = destinations.iter().map(pieces_of).fold(0, u64::saturating_add) > MAX_PIECES;
        if too_many || !destinations.iter().all(one_by_one) {
            return None;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, destination) in destinations.iter().enumerate() {
            for each in &destination.loops {
                for round in 0..each.rounds {
                    for row in &each.stretches {
                        let stretch = &row.stretch;
                        let (from, to) =
                            (stretch.from + round * stretch.from_step, stretch.to + round * stretch.to_step);
                        pieces.push(Piece {
                            from: from as usize * elem,
                            to: u32::try_from(to * elem as u64).ok()?,
                            bytes: u32::try_from(stretch.len * elem as u64).ok()?,
                            prefetch_bytes: u32::try_from(row.prefetch_bytes).ok()?,
                            peer: u16::try_from(stretch.peer).ok()?,
                            destination: u16::try_from(number).ok()?,
                        });
                    }
                }
            }
        }
        if destinations.len() == 1 {
            return Some(Self { pieces, span: None });
        }
        let contiguous = |two: &[Piece]| {
            let (one, next) = (&two[0], &two[1]);
            one.destination != next.destination
                || (next.from >= one.from + one.bytes as usize && next.to == one.to + one.bytes)
        };
        if peers != 1 || !pieces.windows(2).all(contiguous) {
            return None;
        }
        let first =
            |destination: usize| pieces.iter().find(|piece| piece.destination as usize == destination);
        let to = (0..destinations.len())
            .map(|destination| first(destination).map(|first| first.to as usize))
            .collect::<Option<_>>()?;
        pieces.sort_by_key(|piece| piece.from);
        let from = pieces.first()?.from;
        let bytes = pieces.last().map(|last| last.from + last.bytes as usize - from)?;
        let taken: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
        let few_gaps = bytes.saturating_sub(taken) <= bytes / SPAN_PER_GAP;
        few_gaps.then_some(Self { pieces, span: Some(Span { from, bytes, to }) })
    }
}
