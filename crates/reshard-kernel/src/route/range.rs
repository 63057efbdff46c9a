//! The part of a route that a job copies: some rows, some positions, or some positions of some rows.

use std::ops::Range;

/// The part of a route that a job copies.
#[derive(Clone)]
pub enum CopyRange {
    /// Exactly these rows, of all destinations.
    ExactRows(Range<u64>),
    /// These rows, of all destinations, with bounds moved to cache lines: the first positions of a row may be copied with the
    /// row before, see `Route::row_head`.
    Rows(Range<u64>),
    /// Some positions of the route's only destination, counted row after row.
    Positions(Range<u64>),
    /// Some positions of each of some rows of the route's only destination.
    Tile {
        /// The rows.
        rows: Range<u64>,
        /// Which positions of each.
        columns: Range<u64>,
    },
    /// An equal share of one row for each destination, in parts out of `of`; bounds are moved to rounds, where those are short.
    Share {
        /// The row.
        row: u64,
        /// Which parts.
        parts: Range<u64>,
        /// The number of parts of the row.
        of: u64,
    },
}

impl CopyRange {
    /// Splits the range into parts of rows and whole rows, for rows of `elems` positions: positions are a part of the first row,
    /// whole rows, and a part of the last row.
    pub(crate) fn stretches(self, elems: u64) -> [(Range<u64>, Option<Range<u64>>); 3] {
        let nothing = (0..0, None);
        match self {
            Self::Rows(rows) | Self::ExactRows(rows) => [(rows, None), nothing.clone(), nothing],
            Self::Tile { rows, columns } => [(rows, Some(columns)), nothing.clone(), nothing],
            // Copied by itself.
            Self::Share { .. } => [nothing.clone(), nothing.clone(), nothing],
            Self::Positions(range) if range.is_empty() => [nothing.clone(), nothing.clone(), nothing],
            Self::Positions(range) => {
                let (first, last) = (range.start.div_ceil(elems), range.end / elems);
                if first > last {
                    let part = range.start - last * elems..range.end - last * elems;
                    return [(last..last + 1, Some(part)), nothing.clone(), nothing];
                }
                let head = (range.start / elems..first, Some(range.start % elems..elems));
                let tail = (last..range.end.div_ceil(elems), Some(0..range.end % elems));
                [head, (first..last, None), tail]
            }
        }
    }
}
