//! A destination of a route: its strides, and the loops of its fast axis.

use super::inner::InnerLoop;
use super::lines::ComposedLines;
use reshard_plan::MAX_DIMS;
use std::ops::Range;
use std::sync::Arc;

/// A destination.
pub struct Destination {
    /// Its number among the destinations.
    pub target: usize,
    /// Bytes from one index to the next: slow axes in order, then the fast one.
    pub(crate) strides: [usize; MAX_DIMS],
    /// Positions in a row.
    pub(crate) elems: u64,
    pub(crate) loops: Vec<InnerLoop>,
    /// For triangles: the positions of each row that move.
    pub(crate) clip: Option<Arc<[Range<u64>]>>,
    /// Rows follow each other in memory without gaps, the first at this byte.
    pub(crate) dense: Option<usize>,
}

impl Destination {
    /// The row, if it is one round of short pieces.
    pub(crate) fn one_round(&self) -> Option<&ComposedLines> {
        match &self.loops[..] {
            [InnerLoop { rounds: 1, lines: Some(lines), .. }] if self.clip.is_none() => Some(lines),
            _ => None,
        }
    }

    /// How many elements lie between a position and the next beginning of a cache line, if the destination is at address
    /// `to`; 0 where that cannot be said.
    pub(crate) fn to_line(&self, elem: usize, to: *mut u8, position: u64) -> u64 {
        let (Some(first), true) = (self.dense, 64_usize.is_multiple_of(elem)) else { return 0 };
        let at = to.addr().wrapping_add(first).wrapping_add(position as usize * elem);
        (at.wrapping_neg() % 64 / elem) as u64
    }
}
