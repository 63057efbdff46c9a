//! A part of a plan made ready to be copied: everything in bytes, axes in order, kernels chosen.
//!
//! A [`Route`] fills boxes of positions: what one destination rank receives, or several ranks that differ only along the
//! fast axis and therefore take from the same rows of the same sources; one message into its buffer, or out of it. The
//! positions of the slow axes are the *rows*, counted in a fixed order; each [`Destination`] of the route is a destination with
//! its own fast axis. Any range of rows can be copied alone, and any part of a row, so work is cut into units and messages
//! into chunks anywhere.

#![forbid(unsafe_code)]

mod destination;
mod inner;
mod lines;
mod order;
mod pieces;
mod range;
mod spec;

pub use destination::Destination;
pub(crate) use inner::{GatherLanes, InnerLoop, InnerStretch};
pub(crate) use lines::ComposedLines;
pub use order::{by_order, by_stride};
pub(crate) use pieces::{Piece, PieceList};
pub use range::CopyRange;
pub use spec::{DestinationSpec, LocalSpec, RouteSpec};

use crate::simd::Level;
use reshard_plan::{MAX_DIMS, Stretch, Track};
use std::ops::Range;
use std::sync::Arc;

/// The most ends of one route: each has a stage in the first-level cache.
pub const MOST_ENDS: usize = 8;

/// Boxes of positions, ready to be copied.
pub struct Route {
    pub(crate) elem: usize,
    /// All axes but the fastest, slowest first.
    pub(crate) outer: Vec<OuterAxis>,
    /// Peers of the fast axis, of all ends together.
    pub(crate) peers: usize,
    /// For each combination of peers (those of the fast axis next to each other) the source and its strides.
    pub(crate) parts: Vec<SourcePart>,
    pub(crate) ends: Vec<Destination>,
    /// A row of all ends as one list of pieces, where that can be done.
    pub(crate) sweep: Option<PieceList>,
    pub(crate) kernel: Kernel,
    pub(crate) own: Option<LocalSource>,
    rows: u64,
}

/// A source that is read where it lies.
pub(crate) struct LocalSource {
    /// Its place in `parts`, without that along the fast axis: rows with these peers of the slow axes take from it.
    pub first: usize,
    /// Its peer along the fast axis.
    pub peer: usize,
    /// The end for such rows.
    pub ends: Vec<Destination>,
    pub sweep: Option<PieceList>,
}

/// How a route's rows are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Elements of a row are adjacent on both sides.
    Rows,
    /// Adjacent in the destination, and along this slow axis in the source: a transposition.
    Tiles {
        /// Which of the slow axes.
        across: usize,
    },
    /// One by one.
    Elements,
}

pub(crate) struct SourcePart {
    pub source: u32,
    /// Bytes from one index to the next: slow axes in order, then the fast one.
    pub strides: [usize; MAX_DIMS],
}

/// A slow axis.
pub(crate) struct OuterAxis {
    pub track: Arc<Track>,
    /// The same for the source that is read where it lies, if there is one.
    pub own: Option<Arc<Track>>,
    /// How far apart this axis' peers lie in `parts`.
    pub peer_stride: usize,
}

impl Route {
    pub fn new(wanted: &RouteSpec<'_>, level: Level) -> Self {
        let RouteSpec { elem, order, from_strides, ends, own } = wanted;
        let (&fast, slow) = order.split_last().expect("arrays have at least one dimension");
        let tracks = ends[0].tracks;
        let mut peers: Vec<u64> = ends.iter().flat_map(|end| end.tracks[fast].peers()).copied().collect();
        peers.sort_unstable();
        peers.dedup();
        let mut peer_stride = peers.len();
        let mut outer: Vec<OuterAxis> = Vec::with_capacity(slow.len());
        for &dim in slow.iter().rev() {
            let own = own.as_ref().map(|own| Arc::clone(&own.tracks[dim]));
            outer.insert(0, OuterAxis { track: Arc::clone(&tracks[dim]), own, peer_stride });
            peer_stride *= tracks[dim].peers().len();
        }
        let stride_bytes = |strides: &[u64]| {
            let mut in_order = [0; MAX_DIMS];
            for (bytes, &dim) in in_order.iter_mut().zip(*order) {
                // The stride of an axis with one position may be anything, and is multiplied by 0.
                *bytes = strides[dim].wrapping_mul(*elem) as usize;
            }
            in_order
        };
        let mut parts: Vec<SourcePart> =
            (0..peer_stride).map(|_| SourcePart { source: u32::MAX, strides: [0; MAX_DIMS] }).collect();
        for end in ends {
            place_parts(end, order, &peers, &outer, |place, source| {
                parts[place] = SourcePart { source, strides: stride_bytes(from_strides[source as usize]) };
            });
        }
        let kernel = choose(ends, &parts, order, *elem as usize);
        // The first end asks for the rows of all.
        let ready = |end: &DestinationSpec<'_>, track: &Track, fetches: bool| {
            let known = |peer: u32| {
                let coord = track.peers()[peer as usize];
                peers.partition_point(|&other| other < coord) as u32
            };
            let mut loops: Vec<InnerLoop> =
                track.loops().iter().map(|each| InnerLoop::new(each, *elem, known, fetches)).collect();
            if kernel == Kernel::Rows && level > Level::Portable {
                loops.iter_mut().for_each(|each| each.find_lanes(*elem, fetches));
            }
            let clip = end.rows.as_ref().map(|rows| match fast {
                0 => Arc::clone(rows),
                _ => turned(rows, end.tracks[0].elems()),
            });
            Destination {
                target: end.target,
                strides: stride_bytes(end.strides),
                elems: track.elems(),
                loops,
                clip,
                dense: dense(end, order).map(|first| (first * elem) as usize),
            }
        };
        let swept = |ends: &[Destination]| {
            PieceList::new(ends, peers.len(), *elem as usize).filter(|_| kernel == Kernel::Rows)
        };
        let own = own.as_ref().and_then(|own| {
            let place = parts.iter().position(|part| part.source == own.source)?;
            let (peer, mut end) = (place % peers.len(), ready(&ends[0], &own.tracks[fast], true));
            // Boxes are read in order: only what is read where it lies is asked for.
            let stretches = end.loops.iter_mut().flat_map(|each| &mut each.stretches);
            stretches.filter(|s| s.stretch.peer as usize != peer).for_each(|s| s.fetch = 0);
            let ends = vec![end];
            let sweep = swept(&ends);
            Some(LocalSource { first: place - peer, peer, ends, sweep })
        });
        let all = ends.iter().enumerate();
        let ends: Vec<Destination> = all.map(|(k, end)| ready(end, &end.tracks[fast], k == 0)).collect();
        let sweep = swept(&ends);
        let rows = outer.iter().map(|outer| outer.track.elems()).product();
        Self { elem: *elem as usize, outer, peers: peers.len(), parts, ends, sweep, kernel, own, rows }
    }

    /// Number of rows: positions of the slow axes.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The destinations.
    pub fn ends(&self) -> &[Destination] {
        &self.ends
    }

    /// Numbers of the sources, ascending.
    pub fn sources(&self) -> Vec<usize> {
        let mut sources: Vec<usize> = self.parts.iter().map(|part| part.source as usize).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Bytes of a row, of all ends.
    pub fn row_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.elems).sum::<u64>() * self.elem as u64
    }

    /// Bytes of an element.
    pub fn elem(&self) -> u64 {
        self.elem as u64
    }

    /// Whether rows are composed of short pieces a line at a time: see [`ComposedLines`].
    pub fn is_composed(&self) -> bool {
        let lines = |each: &InnerLoop| each.lines.is_some() && each.lanes.is_none();
        self.kernel == Kernel::Rows && self.ends.iter().flat_map(|end| &end.loops).any(lines)
    }

    /// How rows are copied.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Positions of the only end, those outside a triangle included.
    pub fn positions(&self) -> u64 {
        self.rows * self.ends[0].elems
    }

    /// How many positions at the beginning of a row go with the row before if that is where two shares meet, so that they
    /// do not write one cache line of a destination at address `to`.
    pub(crate) fn spare(&self, end: &Destination, to: *mut u8, row: u64) -> u64 {
        if row == 0 || row >= self.rows || self.kernel != Kernel::Rows {
            return 0;
        }
        end.to_line(self.elem, to, row * end.elems).min(end.elems)
    }

    /// How many positions at the beginning of a row lie before the first beginning of a cache line.
    pub(crate) fn to_line(&self, to: *mut u8, row: u64) -> u64 {
        self.ends[0].to_line(self.elem, to, row * self.ends[0].elems)
    }

    /// A share with its ends moved to where cache lines of the destination begin, the same way for both that meet there.
    pub(crate) fn on_lines(&self, to: &[*mut u8], share: CopyRange) -> CopyRange {
        let end = &self.ends[0];
        let target = to[end.target];
        match share {
            CopyRange::Positions(range) => {
                let all = self.positions();
                let moved = |position: u64| match position == 0 || position >= all {
                    true => position,
                    false => (position + end.to_line(self.elem, target, position)).min(all),
                };
                CopyRange::Positions(moved(range.start)..moved(range.end))
            }
            CopyRange::Rows(range) if self.kernel != Kernel::Rows => {
                // At most eight rows, as lines have 64 bytes, if elements begin at multiples of their size.
                let begins = |row: &u64| end.to_line(self.elem, target, row * end.elems) == 0;
                let moved = |row: u64| match row == 0 || row >= self.rows {
                    true => row,
                    false => (row..(row + 64).min(self.rows)).find(begins).unwrap_or(row),
                };
                CopyRange::Rows(moved(range.start)..moved(range.end))
            }
            rows => rows,
        }
    }

    /// The most lanes of a loop.
    pub(crate) fn lanes(&self) -> usize {
        let own = self.own.iter().flat_map(|own| &own.ends);
        let loops = self.ends.iter().chain(own).flat_map(|end| &end.loops);
        loops.map(|each| each.lanes.as_ref().map_or(0, |lanes| lanes.lanes.len())).max().unwrap_or(0)
    }
}

/// Calls `place(index into parts, source)` for every combination of peers of one end.
fn place_parts(
    end: &DestinationSpec<'_>,
    order: &[usize],
    peers: &[u64],
    outer: &[OuterAxis],
    mut place: impl FnMut(usize, u32),
) {
    for (at, &source) in end.parts.iter().enumerate() {
        let mut at = at;
        let mut index = 0;
        for (dim, track) in end.tracks.iter().enumerate().rev() {
            let peer = at % track.peers().len();
            at /= track.peers().len();
            let slow = order.iter().position(|&other| other == dim).unwrap_or(0);
            index += match outer.get(slow) {
                Some(outer) => peer * outer.peer_stride,
                None => peers.partition_point(|&other| other < track.peers()[peer]),
            };
        }
        place(index, source);
    }
}

/// Rows if both sides are adjacent along the fast axis, tiles if the source is along another, else one by one.
fn choose(ends: &[DestinationSpec<'_>], parts: &[SourcePart], order: &[usize], elem: usize) -> Kernel {
    let last = order.len() - 1;
    // A stride matters where an index is not 0.
    let reaches = |at: usize, index: fn(&Stretch) -> u64| {
        let loops = ends.iter().flat_map(|end| end.tracks[order[at]].loops());
        loops
            .flat_map(|each| &each.stretches)
            .any(|s| s.len > 1 || s.from_step + s.to_step > 0 || index(s) > 0)
    };
    let adjacent = |at: usize| {
        let next = parts.iter().all(|part| part.source == u32::MAX || part.strides[at] == elem);
        next || !reaches(at, |s| s.from)
    };
    if reaches(last, |s| s.to) && ends.iter().any(|end| end.strides[order[last]] != 1) {
        return Kernel::Elements;
    }
    if adjacent(last) {
        return Kernel::Rows;
    }
    let long = |at: usize| ends.iter().any(|end| end.tracks[order[at]].elems() > 1);
    let across = (0..last).rev().find(|&at| long(at) && adjacent(at));
    across.map_or(Kernel::Elements, |across| Kernel::Tiles { across })
}

/// The element at which positions begin, if they follow each other in memory without gaps.
fn dense(end: &DestinationSpec<'_>, order: &[usize]) -> Option<u64> {
    let mut reach = 1;
    let mut first = 0;
    for &dim in order.iter().rev() {
        let track = &end.tracks[dim];
        let to = track.loops().first()?.stretches.first()?.to;
        let goes_on = track.loops().iter().all(|each| {
            let next =
                |s: &Stretch| s.to == to + each.at + s.at && (each.rounds == 1 || s.to_step == each.elems);
            each.stretches.iter().all(next)
        });
        if !goes_on || (track.elems() > 1 && end.strides[dim] != reach) {
            return None;
        }
        reach *= track.elems();
        first += to * end.strides[dim];
    }
    Some(first)
}

/// Ranges of axis 0 for each position of axis 1, as ranges of axis 1 for each position of axis 0.
fn turned(columns: &[Range<u64>], rows: u64) -> Arc<[Range<u64>]> {
    // In a triangle ranges neither begin nor end earlier from column to column, so those that hold a row are neighbours.
    let holding = |row: u64| {
        let first = columns.partition_point(|range| range.end <= row);
        let end = columns.partition_point(|range| range.start <= row);
        first as u64..end as u64
    };
    (0..rows).map(holding).collect()
}
