//! The specification that a route is compiled from, in the terms of the planner: tracks and strides in elements.

use reshard_plan::{Array, Target, Track};
use std::ops::Range;
use std::sync::Arc;

/// What a route copies.
pub struct RouteSpec<'a> {
    /// Bytes of an element.
    pub elem: u64,
    /// The axes from the slowest to the fastest.
    pub order: &'a [usize],
    /// Strides of each source, in elements.
    pub from_strides: Vec<&'a [u64]>,
    /// Destinations that have all tracks in common except that of the fast axis.
    pub destinations: Vec<DestinationSpec<'a>>,
    /// A source that is read in place, while the others are read from staging buffers.
    pub local: Option<LocalSpec<'a>>,
    /// True if the caller counts rows by the slow axes of `order`: short rows are not folded then.
    pub counts_rows: bool,
}

/// A source that is read in place, for the route's only destination.
pub struct LocalSpec<'a> {
    /// Its index among the sources.
    pub source: u32,
    /// Its tracks: loops and stretches of slow axes are those of the destination, and `from` counts the elements of this
    /// source. On the fast axis `from` does so for this source's peer only.
    pub tracks: &'a [Arc<Track>],
}

/// One destination of a route.
pub struct DestinationSpec<'a> {
    /// Index of its address in the job's list of destinations.
    pub target: usize,
    /// One track for each axis.
    pub tracks: &'a [Arc<Track>],
    /// The source of each combination of peers: see [`reshard_plan::Array::source_at`].
    pub parts: Vec<u32>,
    /// Its strides, in elements.
    pub strides: &'a [u64],
    /// For triangles: positions of axis 0 for each position of axis 1.
    pub rows: Option<Arc<[Range<u64>]>>,
}

/// The number of the source at a place of a target. The plan must list it: engines refuse plans that do not list the peers of
/// the ranks they copy for.
pub fn source_at(array: &Array, target: &Target, place: usize) -> usize {
    array.source_at(target, place).expect("the plan lists the peers of its targets")
}
