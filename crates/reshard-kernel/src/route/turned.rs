//! The axis along which the sources of a transpose are contiguous, next to the fast axis of the destination.

use super::inner::{InnerLoop, InnerStretch};
use super::one_round;
use super::short::ShortLimits;
use crate::simd::Level;
use reshard_plan::Track;

/// Pieces are collected below this many bytes on average; longer ones are turned where they are, in squares of 16 bytes.
const MAX_SHORT_PIECE_BYTES: u64 = 32;

/// Axes of fewer bytes are not turned: there is not a single square.
const MIN_TURNED_BYTES: u64 = 16;

/// Other destinations take from the same lines of the sources where pieces have less than this many bytes on average.
const MAX_SHARED_PIECE_BYTES: u64 = 64;

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
    /// Returns the axis, if positions follow each other in the destination along it and along the fast axis, and there are enough
    /// for a square of 16 bytes.
    pub fn new(track: &Track, fast: &Track, elem: u64, level: Level) -> Option<Self> {
        if track.elems().min(fast.elems()).saturating_mul(elem) < MIN_TURNED_BYTES {
            return None;
        }
        let to = [linear(track)?, linear(fast)?];
        let flat = one_round(track.loops(), elem);
        let loops = flat.as_ref().map_or(track.loops(), std::slice::from_ref).iter();
        let limits =
            ShortLimits { piece_bytes: MAX_SHORT_PIECE_BYTES, section_bytes: section_bytes(elem as usize) };
        let short = Some((limits, level));
        let loops = loops.map(|each| InnerLoop::new(each, elem, [0, 1], short)).collect();
        Some(Self { loops, elems: track.elems(), peers: track.peers().len(), to })
    }

    /// True if pieces are so short that other destinations take from the same lines.
    pub fn shares_lines(&self, elem: u64) -> bool {
        let pieces = self.loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64));
        let pieces = pieces.fold(0, u64::saturating_add);
        pieces > 0 && self.elems.saturating_mul(elem) / pieces < MAX_SHARED_PIECE_BYTES
    }

    /// Returns the bytes from the first element to the last, in all sources together.
    pub fn span_bytes(&self, elem: u64) -> u64 {
        let mut spans = vec![[u64::MAX, 0]; self.peers];
        for each in &self.loops {
            for InnerStretch { stretch, .. } in &each.stretches {
                let [first, end] = &mut spans[stretch.peer as usize];
                *first = stretch.from.min(*first);
                *end = (*end).max(stretch.from + (each.rounds - 1) * stretch.from_step + stretch.len);
            }
        }
        spans
            .iter()
            .map(|[first, end]| end.saturating_sub(*first).saturating_mul(elem))
            .fold(0, u64::saturating_add)
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
