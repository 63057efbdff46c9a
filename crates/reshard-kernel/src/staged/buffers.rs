//! The boxes of a relay: what each source has of each destination, cut into chunks, and the ways in and out.

use crate::copy::STREAMED;
use crate::route::{DestinationSpec, Kernel, LocalSpec, Route, RouteSpec, by_order};
use crate::simd::Level;
use reshard_plan::{Array, Target, Track};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Pieces of so many bytes, on average, are worth copying one by one: shorter ones are composed faster if all lie in boxes.
const LONG_PIECE: u64 = 128;

/// What is read where it lies must be more than one part in so many: in among many boxes it only disturbs.
const LARGE_SHARE: u64 = 8;

/// What is usually left to the processor and the array, and what tests insist on.
#[derive(Clone, Copy)]
pub struct StagingTuning {
    /// Which instructions to use.
    pub level: Level,
    /// Whether arrays are too large for the caches.
    pub large: Option<bool>,
}

/// The boxes of an array: what each source has of each target.
pub struct StagingLayout<'a> {
    array: &'a Array,
    /// Axes from the slowest to the fastest of a box.
    pub order: Vec<usize>,
    pub elem: u64,
    level: Level,
    /// The array does not fit into the caches.
    pub large: bool,
    packed: HashMap<(*const Track, u32), Arc<Track>>,
    /// The different slow tracks of targets, numbered.
    columns: HashMap<Vec<*const Track>, usize>,
}

impl<'a> StagingLayout<'a> {
    pub fn new(array: &'a Array, StagingTuning { level, large }: StagingTuning) -> Self {
        let order = by_order(array.order(), array.wanted().problem().shape().len());
        let elem = array.wanted().elem_bytes();
        let large = large.unwrap_or(array.elems().saturating_mul(elem) >= STREAMED);
        Self { array, order, elem, level, large, packed: HashMap::new(), columns: HashMap::new() }
    }

    /// The chunks of a target, whole rows if a chunk has room for one, in an order that keeps all sources busy.
    ///
    /// In the order of memory all destinations would need the same few sources at the same time, those that have the first
    /// columns, then those that have the next. So chunks that begin at different sources take turns, and the destinations
    /// do not all begin with the same; only those that share their columns do, so that a source reads them once.
    pub fn cut(&mut self, target: &Target, chunk: u64) -> Vec<Range<u64>> {
        let slow = self.order[..self.order.len() - 1].iter().map(|&dim| Arc::as_ptr(&target.tracks[dim]));
        let others = self.columns.len();
        let number = *self.columns.entry(slow.collect()).or_insert(others);
        let all: u64 = target.tracks.iter().map(|track| track.elems()).product();
        let row = self.order.last().map_or(1, |&dim| target.tracks[dim].elems());
        let room = (chunk / self.elem).max(1);
        // As many rows as fit for the longest of all that share their columns, so that their chunks are alike.
        let fast = *self.order.last().unwrap_or(&0);
        let shares = |other: &&Target| {
            self.order.iter().all(|&dim| dim == fast || Arc::ptr_eq(&other.tracks[dim], &target.tracks[dim]))
        };
        let longest =
            self.array.targets().iter().filter(shares).map(|other| other.tracks[fast].elems()).max();
        let longest = longest.unwrap_or(row);
        let each = if room >= longest { room / longest * row } else { room.min(row) };
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

    /// The peer of a position along each slow axis, and along the fast one if that matters.
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

    /// What of a box belongs to each chunk of a target.
    pub fn cuts(&self, target: &Target, place: usize, chunks: &[Range<u64>]) -> Vec<Range<u64>> {
        let peers = target.peers_at(place);
        let elems = |dim: usize| target.tracks[dim].before(peers[dim], u64::MAX);
        let before = |position: u64| {
            // Axis by axis from the slowest: all boxes' elements with a smaller index there and equal ones before.
            let mut left: u64 = self.order.iter().map(|&dim| target.tracks[dim].elems()).product();
            let mut inside: u64 = self.order.iter().map(|&dim| elems(dim)).product();
            if position >= left {
                return inside;
            }
            let mut position = position;
            let mut sum = 0;
            for &dim in &self.order {
                let track = &target.tracks[dim];
                left /= track.elems();
                inside /= elems(dim).max(1);
                let index = position / left;
                position %= left;
                let smaller = track.before(peers[dim], index);
                sum += smaller * inside;
                if track.before(peers[dim], index + 1) == smaller {
                    break;
                }
            }
            sum
        };
        chunks.iter().map(|chunk| before(chunk.start)..before(chunk.end)).collect()
    }

    /// The tracks into a box.
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

    /// From a source into boxes with these tracks and strides.
    pub fn pack<T: AsRef<[Arc<Track>]>, S: AsRef<[u64]>>(&self, boxes: &[(T, S)], source: usize) -> Route {
        let mut ends = Vec::with_capacity(boxes.len());
        for (target, (tracks, strides)) in boxes.iter().enumerate() {
            let (tracks, strides) = (tracks.as_ref(), strides.as_ref());
            ends.push(DestinationSpec { target, tracks, parts: vec![0], strides, rows: None });
        }
        let from = self.array.sources()[source].strides.as_slice();
        self.route(vec![from], ends, None)
    }

    /// From all boxes into the target.
    pub fn assembly(&self, target: &Target) -> Route {
        let tracks: Vec<Arc<Track>> = target.tracks.iter().map(|track| Arc::new(track.boxed())).collect();
        self.assembled(target, &tracks, None)
    }

    /// The same, but what comes from one place is read where it lies; none if that would be slower: pieces too short to be
    /// copied one by one, or not adjacent, or too small a part.
    pub fn assembly_but(&self, target: &Target, place: usize) -> Option<Route> {
        let fast = *self.order.last()?;
        let pieces: u64 =
            target.tracks[fast].loops().iter().map(|l| l.rounds * l.stretches.len() as u64).sum();
        let peers = target.peers_at(place);
        let own: u64 =
            self.order.iter().map(|&dim| target.tracks[dim].before(peers[dim], u64::MAX)).product();
        if target.tracks[fast].elems() * self.elem < LONG_PIECE * pieces || own * LARGE_SHARE < target.elems()
        {
            return None;
        }
        let alike = |dim: usize, track: &Track| match dim == fast {
            true => track.boxed(),
            false => track.boxed_alike(),
        };
        let tracks: Vec<Arc<Track>> =
            target.tracks.iter().enumerate().map(|(dim, track)| Arc::new(alike(dim, track))).collect();
        let mut own = target.tracks.clone();
        own[fast] = Arc::new(target.tracks[fast].boxed_but(Some(peers[fast])));
        let route = self.assembled(target, &tracks, Some(LocalSpec { source: place as u32, tracks: &own }));
        (route.kernel() == Kernel::Rows).then_some(route)
    }

    fn assembled(&self, target: &Target, tracks: &[Arc<Track>], own: Option<LocalSpec<'_>>) -> Route {
        let places = target.places();
        let mut strides: Vec<Vec<u64>> = (0..places)
            .map(|place| {
                let peers = target.peers_at(place);
                self.dense(|dim| target.tracks[dim].before(peers[dim], u64::MAX))
            })
            .collect();
        if let Some(LocalSpec { source, .. }) = own {
            let part = self.array.part(target, source as usize);
            strides[source as usize].clone_from(&self.array.sources()[part].strides);
        }
        let (rows, to) = (target.rows.clone(), &target.strides);
        let end =
            DestinationSpec { target: 0, tracks, parts: (0..places as u32).collect(), strides: to, rows };
        self.route(strides.iter().map(Vec::as_slice).collect(), vec![end], own)
    }

    /// Strides of a box with so many elements along each axis.
    pub fn dense(&self, elems: impl Fn(usize) -> u64) -> Vec<u64> {
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
        ends: Vec<DestinationSpec<'_>>,
        own: Option<LocalSpec<'_>>,
    ) -> Route {
        let wanted = RouteSpec { elem: self.elem, order: &self.order, from_strides, ends, own };
        Route::new(&wanted, self.level)
    }
}
