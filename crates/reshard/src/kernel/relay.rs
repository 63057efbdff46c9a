//! Two copies through memory that both sides reach: each source packs into boxes, each destination assembles from them.
//!
//! A destination's positions, in the order of its memory, are cut into *chunks*. What one source has of a chunk lies in its
//! box of the message one after the other, so both sides know where it begins and ends without a word. When all boxes of a
//! chunk are there, the destination is written in order, whole cache lines at a time, as if the boxes were the sources:
//! much faster than message by message, and the boxes of a chunk stay in the caches. What a rank sends itself goes the same
//! way: only so are the lines whole.

use super::data::Data;
use super::route::{Route, Wanted, WantedEnd};
use super::vector::Level;
use super::work::{STREAMED, by_order};
use super::{Errand, Manner, Share, Worker, copy};
use reshard_plan::{Array, Plan, Target, Track};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// One rank's share of a relay.
pub struct Relay {
    plan: Arc<Plan>,
    outgoing: Vec<Outgoing>,
    /// Ranks this one assembles from, ascending.
    incoming: Vec<u64>,
    halls: Vec<Hall>,
    worker: Worker,
    /// Room for one address for each box of a chunk.
    bases: Vec<*const u8>,
}

// SAFETY: the addresses are only used while `assemble` runs, on what it borrows.
unsafe impl Send for Relay {}

/// What a rank packs for another, or itself.
pub struct Outgoing {
    /// The receiver.
    pub to: u64,
    /// Chunks of the receiver, of all arrays one after the other.
    pub chunks: usize,
    /// Bytes of the largest box of a chunk.
    pub most_bytes: usize,
    legs: Vec<Leg>,
}

/// One array of what a rank packs for another.
struct Leg {
    array: usize,
    source: usize,
    elem: u64,
    /// The number of its first chunk among the receiver's.
    first: usize,
    /// What of the message belongs to each chunk.
    cuts: Vec<Range<u64>>,
    pack: Route,
    /// The source does not lie in the caches.
    fetch: bool,
}

/// One array of what a rank assembles.
struct Hall {
    array: usize,
    target: usize,
    elem: u64,
    first: usize,
    /// The positions of each chunk.
    chunks: Vec<Range<u64>>,
    /// For each source: which of the incoming, and what of its message belongs to each chunk.
    boxes: Vec<(usize, Vec<Range<u64>>)>,
    route: Route,
    stream: bool,
}

impl Relay {
    /// What `rank` does if chunks have about so many bytes.
    pub fn new(plan: Arc<Plan>, rank: u64, chunk: u64) -> Self {
        let level = Level::best();
        let mut by_receiver: HashMap<u64, Outgoing> = HashMap::new();
        let mut incoming: Vec<u64> = Vec::new();
        let mut halls = Vec::new();
        // Chunks of each receiver in the arrays so far.
        let mut chunks_of: HashMap<u64, usize> = HashMap::new();
        for (number, array) in plan.arrays().iter().enumerate() {
            let mine = array.sources().iter().position(|source| source.rank == rank);
            let mut boxes = Boxes::new(array, level);
            for (index, target) in array.targets().iter().enumerate().filter(|(_, t)| t.elems() > 0) {
                let cuts = boxes.cut(target, chunk);
                let first = *chunks_of.entry(target.rank).or_insert(0);
                let count = cuts.len();
                chunks_of.insert(target.rank, first + count);
                let place = mine.and_then(|mine| target.parts.iter().position(|&part| part as usize == mine));
                if let (Some(place), Some(source)) = (place, mine) {
                    let leg = Leg {
                        array: number,
                        source,
                        elem: boxes.elem,
                        first,
                        cuts: boxes.cuts(target, place, &cuts),
                        pack: boxes.pack(target, place, source),
                        fetch: boxes.large,
                    };
                    let entry = by_receiver.entry(target.rank).or_insert_with(|| Outgoing {
                        to: target.rank,
                        chunks: 0,
                        most_bytes: 0,
                        legs: Vec::new(),
                    });
                    entry.most_bytes = entry.most_bytes.max(leg.most_bytes());
                    entry.legs.push(leg);
                }
                if target.rank == rank {
                    let of_place = |(place, &part): (usize, &u32)| {
                        let from = array.sources()[part as usize].rank;
                        let known = incoming.iter().position(|&other| other == from);
                        let sender = known.unwrap_or_else(|| {
                            incoming.push(from);
                            incoming.len() - 1
                        });
                        (sender, boxes.cuts(target, place, &cuts))
                    };
                    let from = target.parts.iter().enumerate().map(of_place).collect();
                    halls.push(Hall {
                        array: number,
                        target: index,
                        elem: boxes.elem,
                        first,
                        chunks: cuts.clone(),
                        boxes: from,
                        route: boxes.assembly(target),
                        stream: boxes.large,
                    });
                }
            }
        }
        let mut outgoing: Vec<Outgoing> = by_receiver.into_values().collect();
        outgoing.sort_by_key(|outgoing| outgoing.to);
        // All of the receiver's, those of arrays in which this rank has nothing for it included: both sides count alike.
        outgoing.iter_mut().for_each(|outgoing| outgoing.chunks = chunks_of[&outgoing.to]);
        let routes = outgoing.iter().flat_map(|outgoing| &outgoing.legs).map(|leg| &leg.pack);
        let worker = Worker::new(level, routes.chain(halls.iter().map(|hall| &hall.route)));
        let most_boxes = halls.iter().map(|hall| hall.boxes.len()).max().unwrap_or(0);
        Self { plan, outgoing, incoming, halls, worker, bases: Vec::with_capacity(most_boxes) }
    }

    /// Whom this rank packs for, ascending.
    pub fn outgoing(&self) -> &[Outgoing] {
        &self.outgoing
    }

    /// Whom it assembles from: the numbers of [`Relay::needs`] are indices into this.
    pub fn incoming(&self) -> &[u64] {
        &self.incoming
    }

    /// Chunks of this rank, of all arrays one after the other.
    pub fn chunks(&self) -> usize {
        self.halls.last().map_or(0, |hall| hall.first + hall.chunks.len())
    }

    /// Bytes of memory the kernels need.
    pub fn scratch_bytes(&self) -> u64 {
        let routes = self.outgoing.iter().flat_map(|outgoing| &outgoing.legs).map(|leg| &leg.pack);
        Worker::bytes(routes.chain(self.halls.iter().map(|hall| &hall.route)))
    }

    /// The first of the receiver's chunks from `chunk` on of which this rank has something; past the last if there is none.
    pub fn next_chunk(&self, outgoing: usize, chunk: usize) -> usize {
        let Outgoing { legs, chunks, .. } = &self.outgoing[outgoing];
        let mut chunk = chunk;
        while chunk < *chunks && find(legs, chunk).is_none_or(|(leg, at)| leg.cuts[at].is_empty()) {
            chunk += 1;
        }
        chunk
    }

    /// Packs what this rank has of a receiver's chunk. Returns the bytes.
    ///
    /// # Panics
    /// If the data is another plan's or the box is smaller than [`Outgoing::most_bytes`].
    pub fn pack(&mut self, data: &Data<'_>, outgoing: usize, chunk: usize, to: &mut [u8]) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Some((leg, at)) = find(&self.outgoing[outgoing].legs, chunk) else { return 0 };
        let range = leg.cuts[at].clone();
        let bytes = ((range.end - range.start) * leg.elem) as usize;
        assert!(bytes <= to.len(), "a box of {bytes} bytes in room for {}", to.len());
        if data.scaling(leg.array).is_some_and(|scaling| scaling.ignores_source) {
            return bytes;
        }
        let source = data.sources(leg.array)[leg.source];
        assert!(!source.is_null() || range.is_empty(), "a rank packs its own part");
        let base = to.as_mut_ptr().wrapping_sub((range.start * leg.elem) as usize);
        let errand = Errand {
            route: &leg.pack,
            manner: Manner { stream: false, fetch: leg.fetch, scaling: None },
            from: &[source],
            to: &[base],
            share: Share::Positions(range),
        };
        // SAFETY: the source was entered, whole, and is borrowed by the data; positions of the box take the bytes from the
        // first of them on, of which there is room, as was checked. The worker was made for this route.
        unsafe { copy(errand, &mut self.worker) };
        bytes
    }

    /// Which of the incoming have something of a chunk of this rank.
    pub fn needs(&self, chunk: usize) -> impl Iterator<Item = usize> + '_ {
        let hall = self.halls.iter().rev().find(|hall| hall.first <= chunk);
        hall.into_iter().flat_map(move |hall| {
            let at = chunk - hall.first;
            hall.boxes.iter().filter(move |(_, cuts)| !cuts[at].is_empty()).map(|(sender, _)| *sender)
        })
    }

    /// Writes a chunk of this rank from the boxes of all who have something of it: `box_of(k)` is what the rank
    /// `incoming()[k]` packed.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, or a box is too short.
    pub fn assemble<'b>(&mut self, data: &mut Data<'_>, chunk: usize, box_of: impl Fn(usize) -> &'b [u8]) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Self { halls, bases, worker, .. } = self;
        let hall = halls.iter().rev().find(|hall| hall.first <= chunk).expect("a chunk of this rank");
        let at = chunk - hall.first;
        bases.clear();
        bases.extend(hall.boxes.iter().map(|(sender, cuts)| {
            let (begin, end) = (cuts[at].start * hall.elem, cuts[at].end * hall.elem);
            if begin == end {
                return std::ptr::null();
            }
            let packed = box_of(*sender);
            assert!((end - begin) as usize <= packed.len(), "a box of {} bytes", packed.len());
            // Addresses are reckoned from the beginning of the whole message.
            packed.as_ptr().wrapping_sub(begin as usize)
        }));
        let to = data.targets(hall.array)[hall.target];
        assert!(!to.is_null(), "a rank assembles its own part");
        let errand = Errand {
            route: &hall.route,
            manner: Manner { stream: hall.stream, fetch: false, scaling: data.scaling(hall.array) },
            from: bases,
            to: &[to],
            share: Share::Positions(hall.chunks[at].clone()),
        };
        // SAFETY: the target was entered, whole, and is mutably borrowed. Of each box only positions of this chunk are read,
        // and it has all of them, as was checked. The worker was made for this route; a scaling for the array's type.
        unsafe { copy(errand, worker) };
    }
}

impl Leg {
    fn most_bytes(&self) -> usize {
        let longest = self.cuts.iter().map(|range| range.end - range.start).max().unwrap_or(0);
        (longest * self.elem) as usize
    }
}

/// The array a chunk belongs to, and its number there; none if this rank has nothing in that array.
fn find(legs: &[Leg], chunk: usize) -> Option<(&Leg, usize)> {
    let leg = legs.iter().rev().find(|leg| leg.first <= chunk)?;
    let at = chunk - leg.first;
    (at < leg.cuts.len()).then_some((leg, at))
}

/// The boxes of an array: what each source has of each target.
struct Boxes<'a> {
    array: &'a Array,
    /// Axes from the slowest to the fastest of a box.
    order: Vec<usize>,
    elem: u64,
    level: Level,
    /// The array does not fit into the caches.
    large: bool,
    packed: HashMap<(*const Track, u32), Arc<Track>>,
    /// The different slow tracks of targets, numbered.
    columns: HashMap<Vec<*const Track>, usize>,
}

impl<'a> Boxes<'a> {
    fn new(array: &'a Array, level: Level) -> Self {
        let order = by_order(array.order(), array.wanted().problem().shape().len());
        let elem = array.wanted().elem_bytes();
        let large = array.elems().saturating_mul(elem) >= STREAMED;
        Self { array, order, elem, level, large, packed: HashMap::new(), columns: HashMap::new() }
    }

    /// The chunks of a target, whole rows if a chunk has room for one, in an order that keeps all sources busy.
    ///
    /// In the order of memory all destinations would need the same few sources at the same time, those that have the first
    /// columns, then those that have the next. So chunks that begin at different sources take turns, and the destinations
    /// do not all begin with the same; only those that share their columns do, so that a source reads them once.
    fn cut(&mut self, target: &Target, chunk: u64) -> Vec<Range<u64>> {
        let slow = self.order[..self.order.len() - 1].iter().map(|&dim| Arc::as_ptr(&target.tracks[dim]));
        let others = self.columns.len();
        let number = *self.columns.entry(slow.collect()).or_insert(others);
        let all: u64 = target.tracks.iter().map(|track| track.elems()).product();
        let row = self.order.last().map_or(1, |&dim| target.tracks[dim].elems());
        let room = (chunk / self.elem).max(1);
        let each = if room >= row { room / row * row } else { room };
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

    /// Which peer of each axis a place in a target's parts stands for.
    fn peers(target: &Target, place: usize) -> Vec<u32> {
        let mut place = place;
        let mut peers: Vec<u32> = target
            .tracks
            .iter()
            .rev()
            .map(|track| {
                let peer = place % track.peers().len();
                place /= track.peers().len();
                peer as u32
            })
            .collect();
        peers.reverse();
        peers
    }

    /// What of a box belongs to each chunk of a target.
    fn cuts(&self, target: &Target, place: usize, chunks: &[Range<u64>]) -> Vec<Range<u64>> {
        let peers = Self::peers(target, place);
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

    /// From a source into its box.
    fn pack(&mut self, target: &Target, place: usize, source: usize) -> Route {
        let peers = Self::peers(target, place);
        let packed = &mut self.packed;
        let tracks: Vec<Arc<Track>> = target
            .tracks
            .iter()
            .zip(&peers)
            .map(|(track, &peer)| {
                let make = || Arc::new(track.with_peer(peer).packed());
                Arc::clone(packed.entry((Arc::as_ptr(track), peer)).or_insert_with(make))
            })
            .collect();
        let strides = self.dense(|dim| tracks[dim].elems());
        let end = WantedEnd { target: 0, tracks: &tracks, parts: &[0], strides: &strides, rows: None };
        let from = self.array.sources()[source].strides.as_slice();
        self.route(vec![from], end)
    }

    /// From all boxes into the target.
    fn assembly(&self, target: &Target) -> Route {
        let tracks: Vec<Arc<Track>> = target.tracks.iter().map(|track| Arc::new(track.boxed())).collect();
        let parts: Vec<u32> = (0..target.parts.len() as u32).collect();
        let strides: Vec<Vec<u64>> = (0..target.parts.len())
            .map(|place| {
                let peers = Self::peers(target, place);
                self.dense(|dim| target.tracks[dim].before(peers[dim], u64::MAX))
            })
            .collect();
        let (rows, to) = (target.rows.clone(), &target.strides);
        let end = WantedEnd { target: 0, tracks: &tracks, parts: &parts, strides: to, rows };
        self.route(strides.iter().map(Vec::as_slice).collect(), end)
    }

    /// Strides of a box with so many elements along each axis.
    fn dense(&self, elems: impl Fn(usize) -> u64) -> Vec<u64> {
        let mut strides = vec![0; self.order.len()];
        let mut next = 1;
        for &dim in self.order.iter().rev() {
            strides[dim] = next;
            next *= elems(dim);
        }
        strides
    }

    fn route(&self, from_strides: Vec<&[u64]>, end: WantedEnd<'_>) -> Route {
        let wanted = Wanted { elem: self.elem, order: &self.order, from_strides, ends: vec![end] };
        Route::new(&wanted, self.level)
    }
}
