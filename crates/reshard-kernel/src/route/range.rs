//! What of a route is copied: some of its rows, or some positions.

use std::ops::Range;

/// What of a route is copied.
#[derive(Clone)]
pub enum CopyRange {
    /// Whole rows, of all ends, and nothing of any other.
    ExactRows(Range<u64>),
    /// Whole rows, of all ends; the first positions of a row may go with the row before: see [`super::Route`].
    Rows(Range<u64>),
    /// Some positions of the route's only end, counted row after row.
    Positions(Range<u64>),
}

impl CopyRange {
    /// Whole rows, before and after them parts of a row, of rows of `elems` positions.
    pub(crate) fn stretches(self, elems: u64) -> [(Range<u64>, Option<Range<u64>>); 3] {
        let nothing = (0..0, None);
        match self {
            Self::Rows(rows) | Self::ExactRows(rows) => [(rows, None), nothing.clone(), nothing],
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
