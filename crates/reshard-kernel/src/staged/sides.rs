//! What one rank packs for each receiver: arrays and strips, the positions of each chunk, and the routes into the buffers.

use crate::copy::CopyMode;
use crate::route::Route;
use reshard_plan::Track;
use std::ops::Range;
use std::sync::Arc;

/// What a rank packs for one receiver, which may be itself.
pub struct SendSide {
    /// The receiver.
    pub to: u64,
    /// Number of chunks of the receiver, of all arrays.
    pub chunks: usize,
    /// Bytes of the largest staging buffer of a chunk.
    pub max_bytes: usize,
    pub(super) sides: Vec<PackSide>,
}

/// One array, or a strip of it, of what a rank packs for a receiver.
pub(super) struct PackSide {
    pub array: usize,
    pub source: usize,
    pub elem: u64,
    /// Index of its first chunk among the receiver's.
    pub first: usize,
    /// The positions of the message that belong to each chunk.
    pub ranges: Vec<Range<u64>>,
    /// Positions of a row of the message.
    pub row: u64,
    pub tracks: Vec<Arc<Track>>,
    pub strides: Vec<u64>,
    pub pack: Route,
    /// The array does not fit into the caches.
    pub large: bool,
}

impl PackSide {
    pub fn can_be_non_temporal(&self) -> bool {
        self.large && !self.pack.has_short_pieces()
    }

    pub fn mode(&self, non_temporal: bool) -> CopyMode<'static> {
        CopyMode {
            non_temporal: non_temporal && self.can_be_non_temporal(),
            prefetch_reads: self.large,
            prefetch_writes: true,
            ..CopyMode::default()
        }
    }

    pub fn max_bytes(&self) -> usize {
        let longest = self.ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0);
        (longest * self.elem) as usize
    }
}

/// Returns the side a chunk belongs to, and its index there; `None` if this rank has nothing in that array or strip.
pub(super) fn find(sides: &[PackSide], chunk: usize) -> Option<(usize, usize)> {
    let number = sides.iter().rposition(|side| side.first <= chunk)?;
    let at = chunk - sides[number].first;
    (at < sides[number].ranges.len()).then_some((number, at))
}
