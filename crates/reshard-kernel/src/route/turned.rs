//! The axis along which the sources of a transpose are contiguous, next to the fast axis of the destination.

use super::inner::InnerLoop;
use super::one_round;
use super::short::ShortLimits;
use crate::simd::Level;
use reshard_plan::Track;

/// Pieces are collected below this many bytes on average; longer ones are turned where they are, in squares of 16 bytes.
const MAX_SHORT_PIECE_BYTES: u64 = 32;

/// Bytes of a section that is collected, and positions, at most: a tile of them stays in the first-level cache.
const MAX_SECTION_BYTES: usize = 512;
const MAX_SECTION_POSITIONS: usize = 128;

/// The slow axis next to the fast one, for a transpose.
pub(crate) struct Turned {
    pub(crate) loops: Vec<InnerLoop>,
    /// Positions.
    pub(crate) elems: u64,
    /// Number of peers.
    pub(crate) peers: usize,
    /// Index of position 0 in the destination, along this axis and along the fast one.
    pub(crate) to: [u64; 2],
}

impl Turned {
    /// Returns the axis, if positions follow each other in the destination along it and along the fast axis.
    pub fn new(track: &Track, fast: &Track, elem: u64, level: Level) -> Option<Self> {
        let to = [linear(track)?, linear(fast)?];
        let flat = one_round(track.loops(), elem);
        let loops = flat.as_ref().map_or(track.loops(), std::slice::from_ref).iter();
        let limits =
            ShortLimits { piece_bytes: MAX_SHORT_PIECE_BYTES, section_bytes: section_bytes(elem as usize) };
        let short = Some((limits, level));
        let loops = loops.map(|each| InnerLoop::new(each, elem, [0, 1], u64::MAX, short)).collect();
        Some(Self { loops, elems: track.elems(), peers: track.peers().len(), to })
    }

    /// True if some pieces are short.
    pub fn collects(&self) -> bool {
        self.loops.iter().any(|each| each.short.is_some())
    }

    /// Returns the bytes of a section at most.
    pub fn section_bytes(&self, elem: usize) -> usize {
        section_bytes(elem)
    }

    /// Returns the positions of a section at most.
    pub fn most_rows(elem: usize) -> usize {
        section_bytes(elem) / elem
    }
}

fn section_bytes(elem: usize) -> usize {
    (MAX_SECTION_POSITIONS * elem).min(MAX_SECTION_BYTES).max(elem)
}

/// Returns the destination index of position 0, if positions follow each other in the destination.
pub(super) fn linear(track: &Track) -> Option<u64> {
    let first = track.loops().first()?.stretches.first()?.to;
    let follows = track.loops().iter().all(|each| {
        let rounds = |step: u64| each.rounds == 1 || step == each.elems;
        each.stretches.iter().all(|s| s.to == first + each.at + s.at && rounds(s.to_step))
    });
    follows.then_some(first)
}
