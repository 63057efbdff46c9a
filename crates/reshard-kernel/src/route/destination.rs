//! A destination of a route: its strides, and the inner loops along its fast axis.

use super::inner::InnerLoop;
use super::short::ShortPieces;
use reshard_plan::MAX_DIMS;
use std::ops::Range;
use std::sync::Arc;

/// One destination of a route.
pub struct Destination {
    /// Index of its address in the job's list of destinations.
    pub target: usize,
    /// Strides in bytes: slow axes in order, then the fast one.
    pub(crate) strides: [usize; MAX_DIMS],
    /// Positions in a row.
    pub(crate) elems: u64,
    pub(crate) loops: Vec<InnerLoop>,
    /// For triangles: the positions of each row that are copied.
    pub(crate) clip: Option<Arc<[Range<u64>]>>,
    /// Byte offset of the first row, if all rows are contiguous in memory.
    pub(crate) contiguous_start: Option<usize>,
}

impl Destination {
    /// Returns the tables of a row, if the row is one round of short pieces.
    #[inline(always)]
    pub(crate) fn one_short_round(&self) -> Option<&ShortPieces> {
        match &self.loops[..] {
            [InnerLoop { rounds: 1, short, .. }] if self.clip.is_none() => short.as_ref(),
            _ => None,
        }
    }

    /// Returns the number of elements from a position to the next cache line boundary, for a destination at address `to`; 0
    /// if rows are not contiguous or elements do not divide a line.
    pub(crate) fn elems_to_line(&self, elem: usize, to: *mut u8, position: u64) -> u64 {
        let (Some(first), true) = (self.contiguous_start, 64_usize.is_multiple_of(elem)) else { return 0 };
        let at = to.addr().wrapping_add(first).wrapping_add(position as usize * elem);
        (at.wrapping_neg() % 64 / elem) as u64
    }
}
