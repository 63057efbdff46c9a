//! Runs: elements that are contiguous in the memory of both sides, so that one call of `memcpy`, or of the system, moves them.
//!
//! What goes from one source to one destination is a box of positions. The axes that are adjacent in memory on both sides, and of
//! which the pair has one stretch each, form the run, with the stretches of the next axis; every other axis repeats it.

use super::array::{Array, Target};
use crate::track::Track;

/// Elements that are contiguous on both sides. Indices and length count elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRun {
    /// Index of the first element in the memory of the source.
    pub from: u64,
    /// Index of the first element in the memory of the destination.
    pub to: u64,
    /// The number of elements.
    pub elems: u64,
}

/// One axis of what goes from one source to one destination.
struct RunAxis {
    track: Track,
    from_stride: u64,
    to_stride: u64,
}

impl RunAxis {
    fn pieces(&self) -> u64 {
        self.track.loops().iter().map(|each| each.rounds * each.stretches.len() as u64).sum()
    }

    /// The offsets of a position in the memory of both sides, in elements. The stride of an axis with one position may be anything, and is multiplied by 0.
    fn offsets(&self, from: u64, to: u64) -> (u64, u64) {
        (from.wrapping_mul(self.from_stride), to.wrapping_mul(self.to_stride))
    }
}

/// The axes of a pair, the one whose elements are closest in the destination first, and how many of them a run spans: of the last of
/// these it has one stretch, of those before it all.
struct RunShape {
    axes: Vec<RunAxis>,
    spanned: usize,
}

impl RunShape {
    fn new(array: &Array, target: &Target, place: usize) -> Option<Self> {
        let source = &array.sources()[array.source_at(target, place)?];
        let peers = target.tracks.iter().zip(target.peers_at(place)).enumerate();
        let mut axes: Vec<RunAxis> = peers
            .map(|(dim, (track, peer))| RunAxis {
                track: track.with_peer(peer),
                from_stride: source.strides[dim],
                to_stride: target.strides[dim],
            })
            .collect();
        // Axes of one position reach nowhere: last, so that they part no run.
        axes.sort_by_key(|axis| (axis.track.elems() == 1, axis.to_stride));
        let (mut spanned, mut elems) = (0, 1);
        for axis in axes.iter().filter(|axis| axis.track.elems() > 1) {
            if (axis.from_stride, axis.to_stride) != (elems, elems) {
                break;
            }
            spanned += 1;
            elems *= axis.track.elems();
            if axis.pieces() > 1 {
                break;
            }
        }
        Some(Self { axes, spanned })
    }

    fn count(&self) -> u64 {
        let (spanned, outer) = self.axes.split_at(self.spanned);
        let pieces = spanned.last().map_or(1, RunAxis::pieces);
        outer.iter().map(|axis| axis.track.elems()).fold(pieces, u64::saturating_mul)
    }
}

impl Array {
    /// The number of runs from the source that a place of a target stands for; none if the plan does not list that source. Costs no
    /// more if they are many.
    pub fn memory_run_count(&self, target: &Target, place: usize) -> Option<u64> {
        RunShape::new(self, target, place).map(|shape| shape.count())
    }

    /// The runs from the source that a place of a target stands for, triangles disregarded; none if the plan does not list that
    /// source.
    pub fn memory_runs(&self, target: &Target, place: usize) -> Option<Vec<MemoryRun>> {
        let RunShape { axes, spanned } = RunShape::new(self, target, place)?;
        let (spanned, outer) = axes.split_at(spanned);
        let mut runs = vec![MemoryRun { from: 0, to: 0, elems: 1 }];
        let add = |run: &MemoryRun, (from, to): (u64, u64), times: u64| MemoryRun {
            from: run.from.wrapping_add(from),
            to: run.to.wrapping_add(to),
            elems: run.elems * times,
        };
        // The slowest axis outermost: ascending in the destination.
        for axis in outer.iter().rev() {
            let each = |run: &MemoryRun| -> Vec<MemoryRun> {
                let pieces = axis.track.pieces();
                let positions =
                    pieces.flat_map(|piece| (0..piece.len).map(move |k| (piece.from + k, piece.to + k)));
                positions.map(|(from, to)| add(run, axis.offsets(from, to), 1)).collect()
            };
            runs = runs.iter().flat_map(each).collect();
        }
        for axis in spanned.iter().rev() {
            let each = |run: &MemoryRun| -> Vec<MemoryRun> {
                axis.track
                    .pieces()
                    .map(|piece| add(run, axis.offsets(piece.from, piece.to), piece.len))
                    .collect()
            };
            runs = runs.iter().flat_map(each).collect();
        }
        Some(runs)
    }
}
