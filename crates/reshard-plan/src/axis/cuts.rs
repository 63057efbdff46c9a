//! An irregular axis: cut into pieces, each with any owner.
//!
//! Pieces are kept in global order with the local index of their first element, and once more sorted by
//! owner, so every conversion is one binary search. Empty pieces are dropped and neighbours with one
//! owner are joined, so equal ownership means equal value.

use super::Piece;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cuts {
    /// Pieces in global order: none empty, no two neighbours with one owner.
    pieces: Vec<Cut>,
    /// Indices into `pieces`, sorted by owner and then by start.
    by_owner: Vec<usize>,
}

/// One piece: the global range `start..end`, whose first element is element `local` of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cut {
    pub start: u64,
    pub end: u64,
    pub owner: u64,
    pub local: u64,
}

impl Cuts {
    /// `sizes` must add up to at most 2^62; `Axis::new` checks.
    pub fn new(sizes: &[Piece]) -> Self {
        let mut pieces: Vec<Cut> = Vec::with_capacity(sizes.len());
        let mut end = 0;
        for &Piece { len, owner } in sizes.iter().filter(|piece| piece.len > 0) {
            let start = end;
            end += len;
            match pieces.last_mut() {
                Some(last) if last.owner == owner => last.end = end,
                _ => pieces.push(Cut { start, end, owner, local: 0 }),
            }
        }
        let mut by_owner: Vec<usize> = (0..pieces.len()).collect();
        by_owner.sort_by_key(|&i| (pieces[i].owner, pieces[i].start));
        for pair in 1..by_owner.len() {
            let (before, here) = (pieces[by_owner[pair - 1]], &mut pieces[by_owner[pair]]);
            if before.owner == here.owner {
                here.local = before.local + (before.end - before.start);
            }
        }
        Self { pieces, by_owner }
    }

    pub fn pieces(&self) -> &[Cut] {
        &self.pieces
    }

    /// Indices of one owner's pieces in `pieces`, in global order.
    pub fn of(&self, owner: u64) -> &[usize] {
        let from = self.by_owner.partition_point(|&i| self.pieces[i].owner < owner);
        let upto = self.by_owner.partition_point(|&i| self.pieces[i].owner <= owner);
        &self.by_owner[from..upto]
    }

    /// The piece that holds a global index, which must lie on the axis.
    pub fn at(&self, global: u64) -> Cut {
        self.pieces[self.pieces.partition_point(|cut| cut.end <= global)]
    }

    pub fn local_len(&self, owner: u64) -> u64 {
        self.of(owner).last().map_or(0, |&i| {
            let cut = self.pieces[i];
            cut.local + (cut.end - cut.start)
        })
    }

    pub fn global_from_local(&self, owner: u64, local: u64) -> Option<u64> {
        let of = self.of(owner);
        let found = of.partition_point(|&i| self.pieces[i].local <= local).checked_sub(1)?;
        let cut = self.pieces[of[found]];
        let global = cut.start + (local - cut.local);
        (global < cut.end).then_some(global)
    }
}
