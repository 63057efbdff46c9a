//! What is to be copied, in the words of the planner: what a route is made from.

use reshard_plan::Track;
use std::ops::Range;
use std::sync::Arc;

/// What is to be copied, in the words of the planner.
pub struct RouteSpec<'a> {
    /// Bytes of an element.
    pub elem: u64,
    /// The axes from the slowest to the fastest.
    pub order: &'a [usize],
    /// Strides of each source, in elements.
    pub from_strides: Vec<&'a [u64]>,
    /// Destinations that have all tracks in common but that of the fast axis.
    pub ends: Vec<DestinationSpec<'a>>,
    /// A source that is read where it lies, while the others are read from boxes.
    pub own: Option<LocalSpec<'a>>,
}

/// A source that lies otherwise than the others, for the route's only end.
pub struct LocalSpec<'a> {
    /// Its number among the sources.
    pub source: u32,
    /// Its tracks: the loops and stretches of slow axes are those of the end, and `from` counts the elements of this source.
    /// On the fast axis that is so for this source's peer only.
    pub tracks: &'a [Arc<Track>],
}

/// One destination of what is to be copied.
pub struct DestinationSpec<'a> {
    /// Its number among the destinations.
    pub target: usize,
    /// One track for each axis.
    pub tracks: &'a [Arc<Track>],
    /// The source of each combination of peers: see [`reshard_plan::Array::parts`].
    pub parts: Vec<u32>,
    /// Its strides, in elements.
    pub strides: &'a [u64],
    /// For triangles: positions of axis 0 for each position of axis 1.
    pub rows: Option<Arc<[Range<u64>]>>,
}
