//! Two copies through memory that both sides reach: each source packs into boxes, each destination assembles from them.
//!
//! A destination's positions, in the order of its memory, are cut into *chunks*. What one source has of a chunk lies in its
//! box of the message one after the other, so both sides know where it begins and ends without a word. When all boxes of a
//! chunk are there, the destination is written in order, whole cache lines at a time, as if the boxes were the sources:
//! much faster than message by message. What a rank sends itself is read where it lies, among the others' boxes; only if
//! pieces are short does it go into a box, too.

mod buffers;
mod groups;

use crate::copy::{CopyJob, CopyMode, Scratch, copy};
use crate::memory::Buffers;
use crate::route::{CopyRange, MOST_ENDS, Route};
use crate::simd::{Level, prefetch_piece};
use buffers::{StagingLayout, StagingTuning};
pub use groups::ReceiverGroup;
use groups::{KeptRows, KeptTogether, bundles_of};
use reshard_plan::{Plan, Track};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// One rank's share of a relay.
pub struct StagedCopy {
    plan: Arc<Plan>,
    outgoing: Vec<SendSide>,
    bundles: Vec<ReceiverGroup>,
    /// Ranks this one assembles from, ascending.
    incoming: Vec<u64>,
    halls: Vec<Assembly>,
    worker: Scratch,
    /// Room for one address for each box of a chunk.
    bases: Vec<*const u8>,
}

// SAFETY: the addresses are only used while `assemble` runs, on what it borrows.
unsafe impl Send for StagedCopy {}

/// What a rank packs for another, or itself.
pub struct SendSide {
    /// The receiver.
    pub to: u64,
    /// Chunks of the receiver, of all arrays one after the other.
    pub chunks: usize,
    /// Bytes of the largest box of a chunk.
    pub most_bytes: usize,
    legs: Vec<PackSide>,
}

/// One array of what a rank packs for another.
struct PackSide {
    array: usize,
    source: usize,
    elem: u64,
    /// The number of its first chunk among the receiver's.
    first: usize,
    /// What of the message belongs to each chunk.
    cuts: Vec<Range<u64>>,
    /// Positions of a row of the message.
    row: u64,
    tracks: Vec<Arc<Track>>,
    strides: Vec<u64>,
    pack: Route,
    /// Neither the source nor all boxes fit into the caches.
    large: bool,
}

/// One array of what a rank assembles.
struct Assembly {
    array: usize,
    target: usize,
    elem: u64,
    first: usize,
    /// The positions of each chunk.
    chunks: Vec<Range<u64>>,
    /// For each source what of its message belongs to each chunk, and where it is.
    boxes: Vec<(ChunkSource, Vec<Range<u64>>)>,
    route: Route,
    stream: bool,
    /// Something is read where it lies, and that is not in the caches.
    fetch: bool,
    /// What it takes to write rows while others are packed.
    rows: Option<KeptRows>,
}

/// Where something of a chunk is.
#[derive(Clone, Copy)]
enum ChunkSource {
    /// In a box of one of the incoming.
    Buffer(usize),
    /// In this rank's own source, by its number.
    Local(usize),
}

impl StagedCopy {
    /// What `rank` does if chunks have about so many bytes.
    pub fn new(plan: Arc<Plan>, rank: u64, chunk: u64) -> Self {
        Self::tuned(plan, rank, chunk, StagingTuning { level: Level::best(), large: None })
    }

    /// The same in one of the ways of `Threads::ways`: all must do the same.
    #[doc(hidden)]
    pub fn in_way(plan: Arc<Plan>, rank: u64, chunk: u64, way: usize) -> Self {
        let levels = Level::available();
        let level = levels[way / 2 % levels.len()];
        Self::tuned(plan, rank, chunk, StagingTuning { level, large: Some(way % 2 == 1) })
    }

    fn tuned(plan: Arc<Plan>, rank: u64, chunk: u64, way: StagingTuning) -> Self {
        let mut by_receiver: HashMap<u64, SendSide> = HashMap::new();
        let mut incoming: Vec<u64> = Vec::new();
        let mut halls = Vec::new();
        // Chunks of each receiver in the arrays so far.
        let mut chunks_of: HashMap<u64, usize> = HashMap::new();
        for (number, array) in plan.arrays().iter().enumerate() {
            let mine = array.source_of(rank);
            let mut boxes = StagingLayout::new(array, way);
            for (index, target) in array.targets().iter().enumerate().filter(|(_, t)| t.elems() > 0) {
                let cuts = boxes.cut(target, chunk);
                let first = *chunks_of.entry(target.rank).or_insert(0);
                let count = cuts.len();
                chunks_of.insert(target.rank, first + count);
                let place = mine.and_then(|mine| array.place(target, mine));
                let straight =
                    place.filter(|_| target.rank == rank).and_then(|place| boxes.assembly_but(target, place));
                if straight.is_none()
                    && let (Some(place), Some(source)) = (place, mine)
                {
                    let tracks = boxes.packed(target, place);
                    let strides = boxes.dense(|dim| tracks[dim].elems());
                    let leg = PackSide {
                        array: number,
                        source,
                        elem: boxes.elem,
                        first,
                        cuts: boxes.cuts(target, place, &cuts),
                        row: boxes.order.last().map_or(1, |&dim| tracks[dim].elems()),
                        pack: boxes.pack(&[(&tracks, &strides)], source),
                        tracks,
                        strides,
                        large: boxes.large,
                    };
                    let entry = by_receiver.entry(target.rank).or_insert_with(|| SendSide {
                        to: target.rank,
                        chunks: 0,
                        most_bytes: 0,
                        legs: Vec::new(),
                    });
                    entry.most_bytes = entry.most_bytes.max(leg.most_bytes());
                    entry.legs.push(leg);
                }
                if target.rank == rank {
                    let of_place = |(place, part): (usize, usize)| {
                        let from = array.sources()[part].rank;
                        if from == rank && straight.is_some() {
                            return (ChunkSource::Local(part), boxes.cuts(target, place, &cuts));
                        }
                        let known = incoming.iter().position(|&other| other == from);
                        let sender = known.unwrap_or_else(|| {
                            incoming.push(from);
                            incoming.len() - 1
                        });
                        (ChunkSource::Buffer(sender), boxes.cuts(target, place, &cuts))
                    };
                    let from = array.parts(target).enumerate().map(of_place).collect();
                    let rows = straight
                        .as_ref()
                        .and(place)
                        .and_then(|place| KeptRows::new(&mut boxes, target, place));
                    halls.push(Assembly {
                        rows,
                        array: number,
                        target: index,
                        elem: boxes.elem,
                        first,
                        chunks: cuts.clone(),
                        boxes: from,
                        fetch: straight.is_some() && boxes.large,
                        route: straight.unwrap_or_else(|| boxes.assembly(target)),
                        stream: boxes.large,
                    });
                }
            }
        }
        let mut outgoing: Vec<SendSide> = by_receiver.into_values().collect();
        outgoing.sort_by_key(|outgoing| outgoing.to);
        // All of the receiver's, those of arrays in which this rank has nothing for it included: both sides count alike.
        outgoing.iter_mut().for_each(|outgoing| outgoing.chunks = chunks_of[&outgoing.to]);
        let bundles = bundles_of(&plan, &outgoing, &halls, way);
        let most_boxes = halls.iter().map(|hall| hall.boxes.len()).max().unwrap_or(0);
        let worker = Scratch::new(way.level, routes(&outgoing, &bundles, &halls));
        Self { plan, outgoing, bundles, incoming, halls, worker, bases: Vec::with_capacity(most_boxes) }
    }

    /// The outgoing, together where that saves reading. Each is in one bundle.
    pub fn bundles(&self) -> &[ReceiverGroup] {
        &self.bundles
    }

    /// Whom this rank packs for, ascending.
    pub fn outgoing(&self) -> &[SendSide] {
        &self.outgoing
    }

    /// Whom it assembles from: the numbers of [`StagedCopy::needs`] are indices into this.
    pub fn incoming(&self) -> &[u64] {
        &self.incoming
    }

    /// Chunks of this rank, of all arrays one after the other.
    pub fn chunks(&self) -> usize {
        self.halls.last().map_or(0, |hall| hall.first + hall.chunks.len())
    }

    /// Bytes of memory the kernels need.
    pub fn scratch_bytes(&self) -> u64 {
        Scratch::bytes(routes(&self.outgoing, &self.bundles, &self.halls))
    }

    /// The first of the receiver's chunks from `chunk` on of which this rank has something; past the last if there is none.
    pub fn next_chunk(&self, outgoing: usize, chunk: usize) -> usize {
        let SendSide { legs, chunks, .. } = &self.outgoing[outgoing];
        let mut chunk = chunk;
        while chunk < *chunks && find(legs, chunk).is_none_or(|(number, at)| legs[number].cuts[at].is_empty())
        {
            chunk += 1;
        }
        chunk
    }

    /// Whether this rank's own chunk of that number can be written while a bundle's is packed: all of it lies between what is
    /// packed, so that each row is read once, in order.
    pub fn keeps(&self, data: &Buffers<'_>, bundle: usize, chunk: usize) -> bool {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let ReceiverGroup { members, kept, .. } = &self.bundles[bundle];
        let legs = &self.outgoing[members[0]].legs;
        let Some((number, at)) = find(legs, chunk) else { return false };
        let (leg, Some(kept)) = (&legs[number], &kept[number]) else { return false };
        self.halls[kept.hall].has_the_rows_of(leg, at)
            && self.needs(chunk).next().is_none()
            && data.scaling(leg.array).is_none()
    }

    /// Packs what this rank has of a chunk of all receivers of a bundle: `box_of(k)` is the room for member `k`, from its
    /// beginning. With `keep`, which [`StagedCopy::keeps`] must allow, this rank's own chunk of that number is written, too.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, or a box is too short: [`SendSide::most_bytes`] is enough.
    pub fn pack_bundle<'b>(
        &mut self,
        data: &mut Buffers<'_>,
        bundle: usize,
        chunk: usize,
        keep: bool,
        mut box_of: impl FnMut(usize) -> &'b mut [u8],
    ) {
        assert!(!keep || self.keeps(data, bundle, chunk), "what is kept lies between what is packed");
        if let ([only], false) = (&self.bundles[bundle].members[..], keep) {
            let only = *only;
            self.pack(data, only, chunk, box_of(0));
            return;
        }
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Self { outgoing, bundles, halls, worker, .. } = self;
        let ReceiverGroup { members, together, kept } = &bundles[bundle];
        let legs = &outgoing[members[0]].legs;
        let Some((number, at)) = find(legs, chunk) else { return };
        let leg = &legs[number];
        if data.scaling(leg.array).is_some_and(|scaling| scaling.ignores_source) {
            return;
        }
        let rows = leg.cuts[at].start / leg.row..leg.cuts[at].end / leg.row;
        let mut bases = [std::ptr::null_mut(); MOST_ENDS];
        for (k, (base, &member)) in bases.iter_mut().zip(members).enumerate() {
            let leg = &outgoing[member].legs[number];
            let range = &leg.cuts[at];
            let room = box_of(k);
            let bytes = ((range.end - range.start) * leg.elem) as usize;
            assert!(bytes <= room.len(), "a box of {bytes} bytes in room for {}", room.len());
            *base = room.as_mut_ptr().wrapping_sub((range.start * leg.elem) as usize);
        }
        let source = data.sources(leg.array)[leg.source];
        assert!(!source.is_null() || rows.is_empty(), "a rank packs its own part");
        let mut ends = members.len();
        let route = match kept[number].as_ref().filter(|_| keep) {
            None => &together[number],
            Some(KeptTogether { route, hall }) => {
                let hall = &halls[*hall];
                let target = data.targets(hall.array)[hall.target];
                assert!(!target.is_null(), "a rank keeps its own part");
                bases[ends] = hall.place(target, at, rows.start);
                ends += 1;
                route
            }
        };
        let errand = CopyJob {
            route,
            manner: leg.manner(),
            from: &[source],
            to: &bases[..ends],
            share: CopyRange::ExactRows(rows),
        };
        // What is kept are as many rows of the target, those of this chunk, none of which another rank has anything of.
        // SAFETY: the source and the target were entered, whole, and are borrowed by the data. These rows of each box take the
        // bytes from the first of its positions on, of which there is room, as was checked: members have the same rows in a
        // chunk, see `bundles_of`. Boxes are borrowed one by one, and so apart. The worker was made for this route.
        unsafe { copy(errand, worker) };
    }

    /// Packs what this rank has of a receiver's chunk. Returns the bytes.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, or the box is too short: [`SendSide::most_bytes`] is
    /// enough.
    pub fn pack(&mut self, data: &Buffers<'_>, outgoing: usize, chunk: usize, to: &mut [u8]) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let legs = &self.outgoing[outgoing].legs;
        let Some((number, at)) = find(legs, chunk) else { return 0 };
        let leg = &legs[number];
        let range = leg.cuts[at].clone();
        let bytes = ((range.end - range.start) * leg.elem) as usize;
        assert!(bytes <= to.len(), "a box of {bytes} bytes in room for {}", to.len());
        if data.scaling(leg.array).is_some_and(|scaling| scaling.ignores_source) {
            return bytes;
        }
        let source = data.sources(leg.array)[leg.source];
        assert!(!source.is_null() || range.is_empty(), "a rank packs its own part");
        let base = to.as_mut_ptr().wrapping_sub((range.start * leg.elem) as usize);
        let errand = CopyJob {
            route: &leg.pack,
            manner: leg.manner(),
            from: &[source],
            to: &[base],
            share: CopyRange::Positions(range),
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
            hall.boxes.iter().filter_map(move |(held, cuts)| match *held {
                ChunkSource::Buffer(sender) if !cuts[at].is_empty() => Some(sender),
                _ => None,
            })
        })
    }

    /// Writes a chunk of this rank from the boxes of all who have something of it: `box_of(k)` is what the rank
    /// `incoming()[k]` packed.
    ///
    /// # Panics
    /// If the data is another plan's, this rank's part was not entered, or a box is too short.
    pub fn assemble<'b>(&mut self, data: &mut Buffers<'_>, chunk: usize, box_of: impl Fn(usize) -> &'b [u8]) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Self { halls, bases, worker, .. } = self;
        let hall = halls.iter().rev().find(|hall| hall.first <= chunk).expect("a chunk of this rank");
        let at = chunk - hall.first;
        bases.clear();
        bases.extend(hall.boxes.iter().map(|(held, cuts)| {
            let (begin, end) = (cuts[at].start * hall.elem, cuts[at].end * hall.elem);
            if begin == end {
                return std::ptr::null();
            }
            let sender = match *held {
                ChunkSource::Buffer(sender) => sender,
                ChunkSource::Local(source) => {
                    let source = data.sources(hall.array)[source];
                    assert!(!source.is_null(), "a rank reads its own part");
                    return source;
                }
            };
            let packed = box_of(sender);
            assert!((end - begin) as usize <= packed.len(), "a box of {} bytes", packed.len());
            if !hall.stream {
                // Another processor's caches have all of it.
                prefetch_piece(packed.as_ptr(), (end - begin) as usize);
            }
            // Addresses are reckoned from the beginning of the whole message.
            packed.as_ptr().wrapping_sub(begin as usize)
        }));
        let to = data.targets(hall.array)[hall.target];
        assert!(!to.is_null(), "a rank assembles its own part");
        let errand = CopyJob {
            route: &hall.route,
            manner: CopyMode {
                stream: hall.stream,
                fetch: hall.fetch,
                claim: false,
                scaling: data.scaling(hall.array),
            },
            from: bases,
            to: &[to],
            share: CopyRange::Positions(hall.chunks[at].clone()),
        };
        // SAFETY: the target was entered, whole, and is mutably borrowed. Of each box only positions of this chunk are read,
        // and it has all of them, as was checked; an own source was entered, whole, and is borrowed, too. The worker was made for this route; a scaling for the array's type.
        unsafe { copy(errand, worker) };
    }
}

impl SendSide {
    /// Whether boxes are written past the caches.
    pub fn streams(&self) -> bool {
        self.legs.iter().any(PackSide::streams)
    }

    /// Of so many chunks this rank has something.
    pub fn filled_chunks(&self) -> usize {
        self.legs.iter().flat_map(|leg| &leg.cuts).filter(|cut| !cut.is_empty()).count()
    }
}

impl PackSide {
    /// What does not fit into the caches goes past them, unless it is composed: that is slower than memory.
    fn streams(&self) -> bool {
        self.large && !self.pack.is_composed()
    }

    fn manner(&self) -> CopyMode<'static> {
        CopyMode { stream: self.streams(), fetch: self.large, claim: true, ..CopyMode::default() }
    }

    fn most_bytes(&self) -> usize {
        let longest = self.cuts.iter().map(|range| range.end - range.start).max().unwrap_or(0);
        (longest * self.elem) as usize
    }
}

/// All that is copied.
fn routes<'a>(
    outgoing: &'a [SendSide],
    bundles: &'a [ReceiverGroup],
    halls: &'a [Assembly],
) -> impl Iterator<Item = &'a Route> {
    let alone = outgoing.iter().flat_map(|outgoing| &outgoing.legs).map(|leg| &leg.pack);
    let together = bundles.iter().flat_map(|bundle| &bundle.together);
    let kept = bundles.iter().flat_map(|bundle| &bundle.kept).flatten().map(|kept| &kept.route);
    alone.chain(together).chain(kept).chain(halls.iter().map(|hall| &hall.route))
}

/// The leg a chunk belongs to, and its number there; none if this rank has nothing in that array.
fn find(legs: &[PackSide], chunk: usize) -> Option<(usize, usize)> {
    let number = legs.iter().rposition(|leg| leg.first <= chunk)?;
    let at = chunk - legs[number].first;
    (at < legs[number].cuts.len()).then_some((number, at))
}
