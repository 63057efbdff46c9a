//! The staging layout: what each source has of each destination, cut into chunks, and the routes that pack and assemble it.

use crate::copy::exceeds_caches;
use crate::route::{
    DestinationSpec, Kernel, LocalSpec, Route, RouteSpec, by_message, fast_in_source, source_at,
};
use crate::simd::Level;
use reshard_plan::{Array, Target, Track};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The local source is read in place only if pieces have at least this many bytes on average: shorter ones are composed
/// faster if all are in staging buffers.
const MIN_IN_PLACE_PIECE_BYTES: u64 = 128;

/// The local source is read in place only if the destination has at most this many elements for each local one: with less, it
/// only breaks the streaming of the staging buffers.
const MAX_TARGET_PER_LOCAL: u64 = 8;

/// A chunk of a transpose has so many rows that it takes at least this many adjacent bytes and elements from each source, if that
/// is possible with strips of at least so many bytes.
const STRIP_COLUMN_BYTES: u64 = 256;
const MIN_STRIP_ROWS: u64 = 64;
const MIN_STRIP_BYTES: u64 = 512;

/// Choices that usually depend on the processor and the array, and that tests fix.
#[derive(Clone, Copy)]
pub struct StagingTuning {
    /// The instruction set level.
    pub level: Level,
    /// Treat all arrays as too large for the caches, or none.
    pub large: Option<bool>,
}

/// The staging layout of an array: what each source has of each destination.
pub struct StagingLayout<'a> {
    array: &'a Array,
    /// Axes from the slowest to the fastest of a staging buffer.
    pub order: Vec<usize>,
    /// For a transpose the axis that is fast in the source.
    across: Option<usize>,
    pub elem: u64,
    level: Level,
    /// The array does not fit into the caches.
    pub large: bool,
    packed: HashMap<(*const Track, u32), Arc<Track>>,
    /// Parts of tracks, by their positions.
    parts: HashMap<(*const Track, u64, u64), Arc<Track>>,
    /// The different slow tracks of destinations, numbered.
    slow_tracks: HashMap<Vec<*const Track>, usize>,
}

impl<'a> StagingLayout<'a> {
    pub fn new(array: &'a Array, StagingTuning { level, large }: StagingTuning) -> Self {
        let order = by_message(array);
        let across = fast_in_source(array).filter(|across| Some(across) != order.last());
        let elem = array.wanted().elem_bytes();
        let large = large.unwrap_or_else(|| exceeds_caches(array));
        Self {
            array,
            order,
            across,
            elem,
            level,
            large,
            packed: HashMap::new(),
            parts: HashMap::new(),
            slow_tracks: HashMap::new(),
        }
    }

    /// Returns a destination in strips: the same rows, of which each strip has some positions. A transpose has several, if rows are
    /// so long that a chunk would have only few: as each row takes one element of a line of the sources, many rows have to be
    /// packed together. All others have one.
    pub fn strips(&mut self, target: &Target, chunk: u64) -> Vec<Target> {
        let fast = *self.order.last().unwrap_or(&0);
        let track = &target.tracks[fast];
        let Some(across) = self.across.filter(|_| target.rows.is_none()) else {
            return vec![target.clone()];
        };
        let across = &target.tracks[across];
        let rows = (STRIP_COLUMN_BYTES / self.elem).max(MIN_STRIP_ROWS);
        let rows = rows.saturating_mul(across.peers().len() as u64);
        let width = (chunk / self.elem / rows.min(across.elems()).max(1)).max(MIN_STRIP_BYTES / self.elem);
        let strips = (track.elems() / width.max(1)).max(1);
        let bound = |k: u64| (u128::from(track.elems()) * u128::from(k) / u128::from(strips)) as u64;
        let strip = |k: u64| {
            let (first, end) = (bound(k), bound(k + 1));
            let make = || Arc::new(track.within(first..end));
            let mut strip = target.clone();
            let part = self.parts.entry((Arc::as_ptr(track), first, end)).or_insert_with(make);
            strip.tracks[fast] = Arc::clone(part);
            strip
        };
        (0..strips).map(strip).collect()
    }

    /// Returns the chunks of a destination, whole rows if a chunk has room for one, in an order that keeps all sources busy.
    ///
    /// In the order of memory all destinations would need the same few sources at the same time: those that have the first
    /// columns, then those that have the next. So chunks that begin at different sources take turns, and the destinations
    /// do not all begin with the same source; only those that share their columns do, so that a source reads them once.
    pub fn chunks(&mut self, target: &Target, chunk: u64) -> Vec<Range<u64>> {
        let slow = self.order[..self.order.len() - 1].iter().map(|&dim| Arc::as_ptr(&target.tracks[dim]));
        let others = self.slow_tracks.len();
        let number = *self.slow_tracks.entry(slow.collect()).or_insert(others);
        let all: u64 = target.tracks.iter().map(|track| track.elems()).product();
        let row = self.order.last().map_or(1, |&dim| target.tracks[dim].elems());
        let room = (chunk / self.elem).max(1);
        // As many rows as fit for the longest of all destinations that share their columns and are packed together, so that they
        // have the same chunks.
        let fast = *self.order.last().unwrap_or(&0);
        let shares = |other: &&Target| {
            self.order.iter().all(|&dim| dim == fast || Arc::ptr_eq(&other.tracks[dim], &target.tracks[dim]))
        };
        let alike = self.array.targets().iter().filter(|_| self.across.is_none()).filter(shares);
        let longest = alike.map(|other| other.tracks[fast].elems()).max().unwrap_or(row);
        let each =
            if room >= longest { self.whole_planes(target, room / longest) * row } else { room.min(row) };
        let chunks = (0..all.div_ceil(each)).map(|k| k * each..((k + 1) * each).min(all));
        let mut turns: BTreeMap<Vec<u32>, VecDeque<Range<u64>>> = BTreeMap::new();
        for chunk in chunks {
            turns.entry(self.first_peers(target, chunk.start, each < row)).or_default().push_back(chunk);
        }
        let mut turns: Vec<VecDeque<Range<u64>>> = turns.into_values().collect();
        let first = number % turns.len().max(1);
        turns.rotate_left(first);
        let mut ordered = Vec::new();
        while !turns.is_empty() {
            ordered.extend(turns.iter_mut().filter_map(VecDeque::pop_front));
            turns.retain(|turn| !turn.is_empty());
        }
        ordered
    }

    /// Returns at most so many rows of a destination, at least half: whole planes along as many slow axes as possible, so that short
    /// rows can be folded (see [`crate::route`]).
    fn whole_planes(&self, target: &Target, rows: u64) -> u64 {
        let slow = self.order[..self.order.len() - 1].iter().rev();
        let planes = slow.scan(1, |plane: &mut u64, &dim| {
            *plane = plane.saturating_mul(target.tracks[dim].elems());
            Some(*plane)
        });
        let largest = planes.take_while(|&plane| plane <= rows).last().unwrap_or(1);
        rows / largest * largest
    }

    /// Returns the peer of a position along each slow axis, and along the fast one if `fast` is true.
    fn first_peers(&self, target: &Target, position: u64, fast: bool) -> Vec<u32> {
        let mut left = position;
        let mut peers = Vec::with_capacity(self.order.len());
        for (number, &dim) in self.order.iter().enumerate().rev() {
            let track = &target.tracks[dim];
            let index = left % track.elems();
            left /= track.elems();
            if number + 1 < self.order.len() || fast {
                peers.push(track.peer_at(index).unwrap_or(0));
            }
        }
        peers
    }

    /// Returns the positions of the message from `place` that belong to each chunk of a destination.
    pub fn message_ranges(&self, target: &Target, place: usize, chunks: &[Range<u64>]) -> Vec<Range<u64>> {
        let peers = target.peers_at(place);
        let elems: Vec<u64> =
            target.tracks.iter().zip(&peers).map(|(track, &peer)| track.before(peer, u64::MAX)).collect();
        let all: u64 = target.tracks.iter().map(|track| track.elems()).product();
        let before = |position: u64| {
            // Axis by axis from the slowest: elements of the message with a smaller index there and equal indices before.
            let (mut left, mut inside): (u64, u64) = (all, elems.iter().product());
            if position >= left {
                return inside;
            }
            let mut position = position;
            let mut sum = 0;
            for &dim in &self.order {
                let track = &target.tracks[dim];
                left /= track.elems();
                inside /= elems[dim].max(1);
                let index = position / left;
                position %= left;
                sum += track.before(peers[dim], index) * inside;
                if track.peer_at(index) != Some(peers[dim]) {
                    break;
                }
            }
            sum
        };
        // Most chunks end where another one begins.
        let mut known = HashMap::with_capacity(chunks.len() + 1);
        let mut before = |position: u64| *known.entry(position).or_insert_with(|| before(position));
        chunks.iter().map(|chunk| before(chunk.start)..before(chunk.end)).collect()
    }

    /// Returns the tracks from a source into its message for a destination.
    pub fn packed(&mut self, target: &Target, place: usize) -> Vec<Arc<Track>> {
        let peers = target.peers_at(place);
        let packed = &mut self.packed;
        target
            .tracks
            .iter()
            .zip(&peers)
            .map(|(track, &peer)| {
                let make = || Arc::new(track.with_peer(peer).packed());
                Arc::clone(packed.entry((Arc::as_ptr(track), peer)).or_insert_with(make))
            })
            .collect()
    }

    /// Returns a route from a source into messages with these tracks and strides. With `counts_rows`, its rows are those of the
    /// messages; else short ones may be folded.
    pub fn pack<T: AsRef<[Arc<Track>]>, S: AsRef<[u64]>>(
        &self,
        messages: &[(T, S)],
        source: usize,
        counts_rows: bool,
    ) -> Route {
        let mut destinations = Vec::with_capacity(messages.len());
        for (target, (tracks, strides)) in messages.iter().enumerate() {
            let (tracks, strides) = (tracks.as_ref(), strides.as_ref());
            destinations.push(DestinationSpec { target, tracks, parts: vec![0], strides, rows: None });
        }
        let from = self.array.sources()[source].strides.as_slice();
        self.route(vec![from], destinations, None, counts_rows)
    }

    /// Returns the route from all staging buffers into the destination.
    pub fn assembly_route(&self, target: &Target) -> Route {
        let tracks: Vec<Arc<Track>> = target.tracks.iter().map(|track| Arc::new(track.staged())).collect();
        self.route_into(target, &tracks, None)
    }

    /// Returns the route into the destination that reads the source at `place` in place; `None` if that would be slower,
    /// because pieces are too short or not contiguous, or the local share is too small.
    pub fn in_place_route(&self, target: &Target, place: usize) -> Option<Route> {
        let fast = *self.order.last()?;
        if target.places() == 1 {
            // No staging buffers.
            let (strides, rows) = (&target.strides, target.rows.clone());
            let parts = vec![0];
            let destination = DestinationSpec { target: 0, tracks: &target.tracks, parts, strides, rows };
            let source = source_at(self.array, target, place);
            return Some(self.route(
                vec![&self.array.sources()[source].strides],
                vec![destination],
                None,
                false,
            ));
        }
        let pieces: u64 =
            target.tracks[fast].loops().iter().map(|l| l.rounds * l.stretches.len() as u64).sum();
        let peers = target.peers_at(place);
        let own: u64 =
            self.order.iter().map(|&dim| target.tracks[dim].before(peers[dim], u64::MAX)).product();
        if target.tracks[fast].elems() * self.elem < MIN_IN_PLACE_PIECE_BYTES * pieces
            || own * MAX_TARGET_PER_LOCAL < target.elems()
        {
            return None;
        }
        let alike = |dim: usize, track: &Track| match dim == fast {
            true => track.staged(),
            false => track.staged_unmerged(),
        };
        let tracks: Vec<Arc<Track>> =
            target.tracks.iter().enumerate().map(|(dim, track)| Arc::new(alike(dim, track))).collect();
        let mut own = target.tracks.clone();
        own[fast] = Arc::new(target.tracks[fast].staged_except(Some(peers[fast])));
        let route = self.route_into(target, &tracks, Some(LocalSpec { source: place as u32, tracks: &own }));
        (route.kernel() == Kernel::Rows).then_some(route)
    }

    fn route_into(&self, target: &Target, tracks: &[Arc<Track>], local: Option<LocalSpec<'_>>) -> Route {
        let places = target.places();
        let mut strides: Vec<Vec<u64>> = (0..places)
            .map(|place| {
                let peers = target.peers_at(place);
                self.dense_strides(|dim| target.tracks[dim].before(peers[dim], u64::MAX))
            })
            .collect();
        if let Some(LocalSpec { source, .. }) = local {
            let part = source_at(self.array, target, source as usize);
            strides[source as usize].clone_from(&self.array.sources()[part].strides);
        }
        let (rows, to) = (target.rows.clone(), &target.strides);
        let destination =
            DestinationSpec { target: 0, tracks, parts: (0..places as u32).collect(), strides: to, rows };
        self.route(strides.iter().map(Vec::as_slice).collect(), vec![destination], local, false)
    }

    /// Returns the strides of a dense message with this number of elements along each axis.
    pub fn dense_strides(&self, elems: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut strides = vec![0; self.order.len()];
        let mut next = 1;
        for &dim in self.order.iter().rev() {
            strides[dim] = next;
            next *= elems(dim);
        }
        strides
    }

    fn route(
        &self,
        from_strides: Vec<&[u64]>,
        destinations: Vec<DestinationSpec<'_>>,
        local: Option<LocalSpec<'_>>,
        counts_rows: bool,
    ) -> Route {
        let spec =
            RouteSpec { elem: self.elem, order: &self.order, from_strides, destinations, local, counts_rows };
        Route::new(&spec, self.level)
    }
}
