//! A part of a plan compiled for copying: offsets in bytes, axes ordered, kernel chosen.
//!
//! A [`Route`] copies n-dimensional boxes of positions: what one destination rank receives, or several ranks that differ
//! only along the fast axis and therefore take from the same rows of the same sources; or one message into its buffer, or
//! out of it. The positions of the slow axes are the *rows*, counted in a fixed order; each [`Destination`] of the route has
//! its own fast axis. Where rows are short, the slow axis next to it is folded in, see [`fold`]. Any range of rows can be copied
//! by itself, and any part of a row, so work can be cut into tasks and messages into fragments anywhere.

#![forbid(unsafe_code)]

mod destination;
mod fold;
mod inner;
mod order;
mod pieces;
mod range;
mod short;
mod spec;
mod turned;

pub use destination::Destination;
use fold::{Rows, one_round};
pub(crate) use inner::{InnerLoop, InnerStretch};
pub use order::{by_message, by_stride, fast_in_source};
pub(crate) use pieces::{Piece, PieceList};
pub use range::CopyRange;
pub(crate) use short::{MoveTable, ROW_LIMITS, Section, ShortMove, ShortPieces, Tables};
pub use spec::{DestinationSpec, LocalSpec, RouteSpec, source_at};
pub(crate) use turned::Turned;

use crate::simd::Level;
use reshard_plan::{Loop, MAX_DIMS, Stretch, Track};
use std::ops::Range;
use std::sync::Arc;

/// Destinations of a route at most: the sinks of all of them should stay in the first-level cache.
pub const MAX_DESTINATIONS: usize = 16;

/// Rows are cut between rounds if a round has at most this many positions.
const MAX_WHOLE_ROUND: u64 = 512;

/// A compiled copy: boxes of positions from some sources to some destinations.
pub struct Route {
    /// Bytes of an element.
    pub(crate) elem: usize,
    /// The slow axes, slowest first; without those that are folded into the rows, see [`fold`].
    pub(crate) outer: Vec<OuterAxis>,
    /// Number of peers along the fast axis, of all destinations together.
    pub(crate) peers: usize,
    /// Source and strides for each combination of peers; the peers of the fast axis are next to each other.
    pub(crate) parts: Vec<SourcePart>,
    pub(crate) destinations: Vec<Destination>,
    /// A row of all destinations as one list of pieces, where that is possible.
    pub(crate) pieces: Option<PieceList>,
    pub(crate) kernel: Kernel,
    /// For a transpose: the slow axis next to the fast one, along which the sources are contiguous.
    pub(crate) turned: Option<Turned>,
    pub(crate) local: Option<LocalSource>,
    rows: u64,
    row_bytes: u64,
}

/// A source that is read in place, while the others are read from staging buffers.
pub(crate) struct LocalSource {
    /// Index in `parts` of the first peer of the rows that take from this source.
    pub first: usize,
    /// Its peer along the fast axis.
    pub peer: usize,
    /// The only destination, with the inner loops of such rows.
    pub destinations: Vec<Destination>,
    pub pieces: Option<PieceList>,
}

/// The kernel that copies a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Rows are contiguous in sources and destinations.
    Rows,
    /// A transpose: contiguous along the fast axis in the destination, and along a slow axis in the sources.
    Tiles {
        /// The slow axis along which the sources are contiguous.
        across: usize,
    },
    /// Elements are copied one by one.
    Elements,
}

/// The part of one source that a combination of peers takes from.
pub(crate) struct SourcePart {
    pub source: u32,
    /// Strides in bytes: slow axes in order, then the fast one.
    pub strides: [usize; MAX_DIMS],
}

/// The axis that is fast in the sources of a transpose, of whose lines other destinations take the rest.
pub struct SharedColumns {
    /// Positions along the axis.
    pub positions: u64,
    /// Number of peers along the axis.
    pub peers: u64,
    /// Bytes from the first position to the last, in the parts of all these peers together.
    pub span_bytes: u64,
}

/// A slow axis.
pub(crate) struct OuterAxis {
    pub track: Arc<Track>,
    /// The track of the local source along this axis, if there is one.
    pub local: Option<Arc<Track>>,
    /// Distance of this axis' peers in `parts`.
    pub peer_stride: usize,
}

impl Route {
    /// Compiles a specification for an instruction set level.
    pub fn new(spec: &RouteSpec<'_>, level: Level) -> Self {
        let RouteSpec { elem, order, from_strides, destinations, local, counts_rows } = spec;
        let (&fast, slow) = order.split_last().expect("arrays have at least one dimension");
        let tracks = destinations[0].tracks;
        let mut peers: Vec<u64> =
            destinations.iter().flat_map(|destination| destination.tracks[fast].peers()).copied().collect();
        peers.sort_unstable();
        peers.dedup();
        let mut peer_stride = peers.len();
        let mut outer: Vec<OuterAxis> = Vec::with_capacity(slow.len());
        for &dim in slow.iter().rev() {
            let local = local.as_ref().map(|local| Arc::clone(&local.tracks[dim]));
            outer.insert(0, OuterAxis { track: Arc::clone(&tracks[dim]), local, peer_stride });
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
        for destination in destinations {
            place_parts(destination, order, &peers, &outer, |place, source| {
                parts[place] = SourcePart { source, strides: stride_bytes(from_strides[source as usize]) };
            });
        }
        let kernel = choose_kernel(destinations, &parts, order, *elem as usize);
        let loops_of = |track: &Track| -> Vec<Loop> {
            let renumbered = |stretch: &Stretch| {
                let coord = track.peers()[stretch.peer as usize];
                Stretch { peer: peers.partition_point(|&other| other < coord) as u32, ..*stretch }
            };
            let of_loop =
                |each: &Loop| Loop { stretches: each.stretches.iter().map(renumbered).collect(), ..*each };
            track.loops().iter().map(of_loop).collect()
        };
        let mut rows = Rows {
            elem: *elem,
            loops: destinations.iter().map(|destination| loops_of(&destination.tracks[fast])).collect(),
            to_strides: destinations
                .iter()
                .map(|destination| order.iter().map(|&dim| destination.strides[dim]).collect())
                .collect(),
            peers: peers.len(),
        };
        let triangle = destinations.iter().any(|destination| destination.rows.is_some());
        if kernel == Kernel::Rows && local.is_none() && !triangle && !counts_rows {
            rows.fold(&mut outer, &mut parts);
        }
        let compile =
            |destination: &DestinationSpec<'_>, loops: Vec<Loop>, to_strides: &[u64], turn: [usize; 2]| {
                let short = (kernel == Kernel::Rows).then_some((ROW_LIMITS, level));
                let flat = short.and_then(|_| one_round(&loops, *elem));
                let loops = flat.map_or(loops, |flat| vec![flat]);
                let elems = loops.last().map_or(0, |last| last.at + last.rounds * last.elems);
                let loops = loops.iter().map(|each| InnerLoop::new(each, *elem, turn, short)).collect();
                let clip = destination.rows.as_ref().map(|rows| match fast {
                    0 => Arc::clone(rows),
                    _ => transpose_ranges(rows, destination.tracks[0].elems()),
                });
                let mut strides = [0; MAX_DIMS];
                // The stride of an axis with one position may be anything, and is multiplied by 0.
                strides
                    .iter_mut()
                    .zip(to_strides)
                    .for_each(|(bytes, stride)| *bytes = stride.wrapping_mul(*elem) as usize);
                Destination {
                    target: destination.target,
                    strides,
                    elems,
                    loops,
                    clip,
                    contiguous_start: contiguous_start(destination, order)
                        .map(|first| (first * elem) as usize),
                }
            };
        let piece_list = |destinations: &[Destination]| {
            PieceList::new(destinations, rows.peers, *elem as usize).filter(|_| kernel == Kernel::Rows)
        };
        let local = local.as_ref().and_then(|local| {
            let place = parts.iter().position(|part| part.source == local.source)?;
            let loops = loops_of(&local.tracks[fast]);
            let (peer, mut destination) =
                (place % peers.len(), compile(&destinations[0], loops, &rows.to_strides[0], [0, 1]));
            // Staging buffers are read in order: only the local source is prefetched.
            let stretches = destination.loops.iter_mut().flat_map(|each| &mut each.stretches);
            stretches.filter(|s| s.stretch.peer as usize != peer).for_each(|s| s.prefetch_bytes = 0);
            let destinations = vec![destination];
            let pieces = piece_list(&destinations);
            Some(LocalSource { first: place - peer, peer, destinations, pieces })
        });
        let turns = destinations.len();
        let inner = std::mem::take(&mut rows.loops).into_iter().zip(&rows.to_strides);
        let destinations: Vec<Destination> = (destinations.iter().zip(inner).enumerate())
            .map(|(k, (destination, (loops, to_strides)))| {
                compile(destination, loops, to_strides, [k, turns])
            })
            .collect();
        let pieces = piece_list(&destinations);
        let peers = rows.peers;
        let rows = outer.iter().map(|outer| outer.track.elems()).product();
        let row_bytes = destinations.iter().map(|destination| destination.elems).sum::<u64>() * elem;
        let turned = match kernel {
            Kernel::Tiles { across } if across + 1 == outer.len() && destinations.len() == 1 => {
                Turned::new(&outer[across].track, tracks[fast].as_ref(), *elem, level)
            }
            _ => None,
        };
        Self {
            elem: *elem as usize,
            outer,
            peers,
            parts,
            destinations,
            pieces,
            kernel,
            turned,
            local,
            rows,
            row_bytes,
        }
    }

    /// Returns the number of rows: positions of the slow axes that are not folded.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the destinations.
    pub fn destinations(&self) -> &[Destination] {
        &self.destinations
    }

    /// Returns the indices of the sources, ascending.
    pub fn sources(&self) -> Vec<usize> {
        let mut sources: Vec<usize> = self.parts.iter().map(|part| part.source as usize).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Returns the bytes of a row, of all destinations together.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Returns the bytes of an element.
    pub fn elem(&self) -> u64 {
        self.elem as u64
    }

    /// True if rows have short pieces: see [`ShortPieces`].
    pub fn has_short_pieces(&self) -> bool {
        self.loops().any(|each| each.short.is_some())
    }

    /// Returns the axis that is fast in the sources of a transpose, if they have short pieces, so that other destinations take
    /// from the same lines.
    pub fn shared_columns(&self) -> Option<SharedColumns> {
        let turned = self.turned.as_ref().filter(|turned| turned.shares_lines(self.elem as u64))?;
        let (positions, peers) = (turned.elems, turned.peers as u64);
        Some(SharedColumns { positions, peers, span_bytes: turned.span_bytes(self.elem as u64) })
    }

    fn loops(&self) -> impl Iterator<Item = &InnerLoop> {
        let local = self.local.iter().flat_map(|local| &local.destinations);
        self.destinations.iter().chain(local).flat_map(|destination| &destination.loops)
    }

    /// Returns the kernel that copies the rows.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Returns the positions of a row of the first destination.
    pub fn row_positions(&self) -> u64 {
        self.destinations[0].elems
    }

    /// Returns the number of positions of the only destination, including those outside a triangle.
    pub fn positions(&self) -> u64 {
        self.rows * self.destinations[0].elems
    }

    /// If two tasks meet at this row: returns the number of leading positions of the row that the earlier task copies, so
    /// that the two never write one cache line of the destination at address `to` (false sharing).
    pub(crate) fn row_head(&self, destination: &Destination, to: *mut u8, row: u64) -> u64 {
        if row == 0 || row >= self.rows || self.kernel != Kernel::Rows {
            return 0;
        }
        destination.elems_to_line(self.elem, to, row * destination.elems).min(destination.elems)
    }

    /// Returns the first position of a part of a row, out of `of` equal ones: at the beginning of a round, where there are many.
    pub(crate) fn part_begin(destination: &Destination, part: u64, of: u64) -> u64 {
        let begin = (u128::from(destination.elems) * u128::from(part) / u128::from(of)) as u64;
        let index = destination.loops.partition_point(|each| each.at <= begin);
        let Some(each) = index.checked_sub(1).map(|index| &destination.loops[index]) else { return begin };
        let rounds = (begin - each.at) / each.elems;
        if part == of || each.rounds == 1 || rounds >= each.rounds || each.elems > MAX_WHOLE_ROUND {
            return begin;
        }
        each.at + rounds * each.elems
    }

    /// Returns the number of positions of a row from `column` on before the next cache line boundary of the destination.
    pub(crate) fn elems_to_line(&self, to: *mut u8, row: u64, column: u64) -> u64 {
        self.destinations[0].elems_to_line(self.elem, to, row * self.destinations[0].elems + column)
    }

    /// Returns the range with both bounds moved to cache line boundaries of the destination. A bound moves the same way for
    /// the range before it and the range after it, so neighbouring ranges stay disjoint and complete.
    pub(crate) fn align_to_lines(&self, to: &[*mut u8], share: CopyRange) -> CopyRange {
        let destination = &self.destinations[0];
        let target = to[destination.target];
        match share {
            CopyRange::Positions(range) => {
                let all = self.positions();
                let moved = |position: u64| match position == 0 || position >= all {
                    true => position,
                    false => (position + destination.elems_to_line(self.elem, target, position)).min(all),
                };
                CopyRange::Positions(moved(range.start)..moved(range.end))
            }
            CopyRange::Rows(range) if self.kernel != Kernel::Rows => {
                // At most 64 rows further, as a line has 64 bytes.
                let begins =
                    |row: &u64| destination.elems_to_line(self.elem, target, row * destination.elems) == 0;
                let moved = |row: u64| match row == 0 || row >= self.rows {
                    true => row,
                    false => (row..(row + 64).min(self.rows)).find(begins).unwrap_or(row),
                };
                CopyRange::Rows(moved(range.start)..moved(range.end))
            }
            rows => rows,
        }
    }

    /// Returns the largest number of peers that a loop of short pieces takes from.
    pub(crate) fn short_origins(&self) -> usize {
        let of_loop = |each: &InnerLoop| each.short.as_ref().map_or(0, |short| short.origins.len());
        let turned = self.turned.iter().flat_map(|turned| &turned.loops);
        self.loops().chain(turned).map(of_loop).max().unwrap_or(0)
    }
}

/// Calls `place(index into parts, source)` for every combination of peers of one destination.
fn place_parts(
    destination: &DestinationSpec<'_>,
    order: &[usize],
    peers: &[u64],
    outer: &[OuterAxis],
    mut place: impl FnMut(usize, u32),
) {
    for (at, &source) in destination.parts.iter().enumerate() {
        let mut at = at;
        let mut index = 0;
        for (dim, track) in destination.tracks.iter().enumerate().rev() {
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

/// Chooses the kernel: `Rows` if both sides are contiguous along the fast axis, `Tiles` if the sources are along a slow one,
/// else `Elements`.
fn choose_kernel(
    destinations: &[DestinationSpec<'_>],
    parts: &[SourcePart],
    order: &[usize],
    elem: usize,
) -> Kernel {
    let last = order.len() - 1;
    // A stride matters only if some index is not 0.
    let reaches = |at: usize, index: fn(&Stretch) -> u64| {
        let loops = destinations.iter().flat_map(|destination| destination.tracks[order[at]].loops());
        loops
            .flat_map(|each| &each.stretches)
            .any(|s| s.len > 1 || s.from_step + s.to_step > 0 || index(s) > 0)
    };
    let adjacent = |at: usize| {
        let next = parts.iter().all(|part| part.source == u32::MAX || part.strides[at] == elem);
        next || !reaches(at, |s| s.from)
    };
    if reaches(last, |s| s.to) && destinations.iter().any(|destination| destination.strides[order[last]] != 1)
    {
        return Kernel::Elements;
    }
    if adjacent(last) {
        return Kernel::Rows;
    }
    let long = |at: usize| destinations.iter().any(|destination| destination.tracks[order[at]].elems() > 1);
    let across = (0..last).rev().find(|&at| long(at) && adjacent(at));
    across.map_or(Kernel::Elements, |across| Kernel::Tiles { across })
}

/// Returns the index of the first element in memory, if all positions are contiguous.
fn contiguous_start(destination: &DestinationSpec<'_>, order: &[usize]) -> Option<u64> {
    let mut reach = 1;
    let mut first = 0;
    for &dim in order.iter().rev() {
        let track = &destination.tracks[dim];
        let to = track.loops().first()?.stretches.first()?.to;
        let contiguous = track.loops().iter().all(|each| {
            let next =
                |s: &Stretch| s.to == to + each.at + s.at && (each.rounds == 1 || s.to_step == each.elems);
            each.stretches.iter().all(next)
        });
        if !contiguous || (track.elems() > 1 && destination.strides[dim] != reach) {
            return None;
        }
        reach *= track.elems();
        first += to * destination.strides[dim];
    }
    Some(first)
}

/// Turns ranges of axis 0 for each position of axis 1 into ranges of axis 1 for each position of axis 0.
fn transpose_ranges(columns: &[Range<u64>], rows: u64) -> Arc<[Range<u64>]> {
    // In a triangle neither the starts nor the ends of ranges decrease from column to column, so the columns that contain a
    // row are consecutive.
    let holding = |row: u64| {
        let first = columns.partition_point(|range| range.end <= row);
        let end = columns.partition_point(|range| range.start <= row);
        first as u64..end as u64
    };
    (0..rows).map(holding).collect()
}
