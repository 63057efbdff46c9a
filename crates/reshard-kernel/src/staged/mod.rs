//! Staged copies: two copies through memory that both sides reach. Each source packs into staging buffers, each destination
//! assembles from them.
//!
//! A destination's positions, in the order of a message, are cut into *chunks*; those of a transpose with long rows first into
//! *strips*, which are treated like destinations of their own. What one source has of a chunk is contiguous in its message, so
//! both sides know its bounds without communication. When all staging buffers of a chunk are filled, the destination is written
//! in order, whole cache lines at a time, as if the buffers were the sources: much faster than message by message. What a rank
//! sends itself is read in place, among the others' buffers; only if pieces are short does it go into a staging buffer, too.

mod buffers;
mod groups;
mod sides;

use crate::copy::{CopyJob, CopyMode, Scratch, copy};
use crate::memory::Buffers;
use crate::route::{CopyRange, MAX_DESTINATIONS, Route, source_at};
use crate::simd::{Level, prefetch_piece};
use buffers::{StagingLayout, StagingTuning};
pub use groups::ReceiverGroup;
use groups::{KeptRows, KeptTogether, group_receivers};
use reshard_plan::{Plan, Target};
pub use sides::SendSide;
use sides::{PackSide, find};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The most receivers of a [`ReceiverGroup`]: they are packed together, by a route with a destination for each.
pub const MAX_RECEIVERS: usize = MAX_DESTINATIONS;

/// One rank's side of a staged copy.
pub struct StagedCopy {
    plan: Arc<Plan>,
    outgoing: Vec<SendSide>,
    groups: Vec<ReceiverGroup>,
    /// Ranks this one assembles from, in the order of their first use.
    incoming: Vec<u64>,
    assemblies: Vec<Assembly>,
    scratch: Scratch,
    /// Room for one address for each source of a chunk.
    bases: Vec<*const u8>,
    /// Staging buffers are packed with non-temporal stores.
    non_temporal: bool,
}

// SAFETY: the addresses are only used while `assemble` runs, on what it borrows.
unsafe impl Send for StagedCopy {}

/// One array, or a strip of it, of what a rank assembles.
struct Assembly {
    array: usize,
    target: usize,
    elem: u64,
    first: usize,
    /// The positions of each chunk.
    chunks: Vec<Range<u64>>,
    /// For each source: where its data is, and the positions of its message that belong to each chunk.
    sources: Vec<(ChunkSource, Vec<Range<u64>>)>,
    route: Route,
    non_temporal: bool,
    /// The local source is read in place, and is not in the caches.
    prefetch_reads: bool,
    /// For writing own rows while others are packed.
    rows: Option<KeptRows>,
}

/// Where one source's data of a chunk is.
#[derive(Clone, Copy)]
enum ChunkSource {
    /// In a staging buffer; index into the incoming ranks.
    Buffer(usize),
    /// In this rank's own source part, by its index.
    Local(usize),
}

impl StagedCopy {
    /// Prepares what `rank` does, with chunks of about `chunk` bytes, at an instruction set level. The chunks and what each
    /// source has of them are the same at every level, so each rank may have its own.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn new(plan: Arc<Plan>, rank: u64, chunk: u64, level: Level) -> Self {
        Self::tuned(plan, rank, chunk, StagingTuning { level, large: None })
    }

    /// Prepares what `rank` does in one of the variants of `Threads::ways`, for tests: all must give the same result.
    #[doc(hidden)]
    pub fn in_way(plan: Arc<Plan>, rank: u64, chunk: u64, way: usize) -> Self {
        let levels = Level::available();
        let level = levels[way / 2 % levels.len()];
        Self::tuned(plan, rank, chunk, StagingTuning { level, large: Some(way % 2 == 1) })
    }

    fn tuned(plan: Arc<Plan>, rank: u64, chunk: u64, tuning: StagingTuning) -> Self {
        tuning.level.assert_supported();
        let mut by_receiver: HashMap<u64, SendSide> = HashMap::new();
        let mut incoming: Vec<u64> = Vec::new();
        let mut assemblies = Vec::new();
        // Number of chunks of each receiver in the arrays so far.
        let mut chunks_of: HashMap<u64, usize> = HashMap::new();
        for (number, array) in plan.arrays().iter().enumerate() {
            let mine = array.source_of(rank);
            let mut layout = StagingLayout::new(array, tuning);
            let targets = array.targets().iter().enumerate().filter(|(_, target)| target.elems() > 0);
            let strips_of = |(index, target): (usize, &Target)| {
                let mut strips = layout.strips(target, chunk);
                // Where a strip does not come from all sources, destinations do not all begin with the same one. Elsewhere they
                // do: they take from the same lines.
                if strips.iter().any(|strip| strip.places() < target.places()) {
                    let first = index * strips.len() / array.targets().len();
                    strips.rotate_left(first);
                }
                strips.into_iter().map(move |strip| (index, strip))
            };
            let strips: Vec<(usize, Target)> = targets.flat_map(strips_of).collect();
            for &(index, ref target) in &strips {
                let chunks = layout.chunks(target, chunk);
                let first = *chunks_of.entry(target.rank).or_insert(0);
                let count = chunks.len();
                chunks_of.insert(target.rank, first + count);
                let place = mine.and_then(|mine| array.place(target, mine));
                let in_place = place
                    .filter(|_| target.rank == rank)
                    .and_then(|place| layout.in_place_route(target, place));
                if in_place.is_none()
                    && let (Some(place), Some(source)) = (place, mine)
                {
                    let tracks = layout.packed(target, place);
                    let strides = layout.dense_strides(|dim| tracks[dim].elems());
                    let side = PackSide {
                        array: number,
                        source,
                        elem: layout.elem,
                        first,
                        ranges: layout.message_ranges(target, place, &chunks),
                        row: layout.order.last().map_or(1, |&dim| tracks[dim].elems()),
                        pack: layout.pack(&[(&tracks, &strides)], source, false),
                        tracks,
                        strides,
                        large: layout.large,
                    };
                    let entry = by_receiver.entry(target.rank).or_insert_with(|| SendSide {
                        to: target.rank,
                        chunks: 0,
                        max_bytes: 0,
                        sides: Vec::new(),
                    });
                    entry.max_bytes = entry.max_bytes.max(side.max_bytes());
                    entry.sides.push(side);
                }
                if target.rank == rank {
                    let of_place = |(place, part): (usize, usize)| {
                        let from = array.sources()[part].rank;
                        if from == rank && in_place.is_some() {
                            return (ChunkSource::Local(part), layout.message_ranges(target, place, &chunks));
                        }
                        let known = incoming.iter().position(|&other| other == from);
                        let sender = known.unwrap_or_else(|| {
                            incoming.push(from);
                            incoming.len() - 1
                        });
                        (ChunkSource::Buffer(sender), layout.message_ranges(target, place, &chunks))
                    };
                    let from = (0..target.places())
                        .map(|place| (place, source_at(array, target, place)))
                        .map(of_place)
                        .collect();
                    let rows = in_place
                        .as_ref()
                        .and(place)
                        .and_then(|place| KeptRows::new(&mut layout, target, place));
                    assemblies.push(Assembly {
                        rows,
                        array: number,
                        target: index,
                        elem: layout.elem,
                        first,
                        chunks: chunks.clone(),
                        sources: from,
                        prefetch_reads: in_place.is_some() && layout.large,
                        route: in_place.unwrap_or_else(|| layout.assembly_route(target)),
                        non_temporal: layout.large,
                    });
                }
            }
        }
        let mut outgoing: Vec<SendSide> = by_receiver.into_values().collect();
        outgoing.sort_by_key(|outgoing| outgoing.to);
        // All chunks of the receiver, including arrays in which this rank has nothing for it: both sides count the same way.
        outgoing.iter_mut().for_each(|outgoing| outgoing.chunks = chunks_of[&outgoing.to]);
        let groups = group_receivers(&plan, &outgoing, &assemblies, tuning);
        let max_sources = assemblies.iter().map(|assembly| assembly.sources.len()).max().unwrap_or(0);
        let scratch = Scratch::new(tuning.level, routes(&outgoing, &groups, &assemblies));
        let bases = Vec::with_capacity(max_sources);
        Self { plan, outgoing, groups, incoming, assemblies, scratch, bases, non_temporal: false }
    }

    /// True if staging buffers can be packed with non-temporal stores: arrays are large, and rows are not composed of short
    /// pieces, which is slower than memory.
    pub fn can_pack_non_temporal(&self) -> bool {
        self.outgoing.iter().flat_map(|outgoing| &outgoing.sides).any(PackSide::can_be_non_temporal)
    }

    /// True if all arrays of a run are copied as they are, not scaled.
    pub fn only_copies(&self, data: &Buffers<'_>) -> bool {
        (0..self.plan.arrays().len()).all(|array| data.scaling(array).is_none())
    }

    /// Packs staging buffers with non-temporal stores from now on, or not.
    pub fn pack_non_temporal(&mut self, non_temporal: bool) {
        self.non_temporal = non_temporal;
    }

    /// Returns the groups of receivers that are packed together. Each receiver is in one group.
    pub fn groups(&self) -> &[ReceiverGroup] {
        &self.groups
    }

    /// Returns what this rank packs, by ascending receiver.
    pub fn outgoing(&self) -> &[SendSide] {
        &self.outgoing
    }

    /// Returns the ranks this one assembles from; [`StagedCopy::needs`] returns indices into this list.
    pub fn incoming(&self) -> &[u64] {
        &self.incoming
    }

    /// Returns the number of this rank's chunks, of all arrays.
    pub fn chunks(&self) -> usize {
        self.assemblies.last().map_or(0, |assembly| assembly.first + assembly.chunks.len())
    }

    /// Returns the bytes of scratch memory.
    pub fn scratch_bytes(&self) -> u64 {
        Scratch::bytes(routes(&self.outgoing, &self.groups, &self.assemblies))
    }

    /// Returns the receiver's first chunk from `chunk` on of which this rank has something; the number of chunks if there is
    /// none.
    pub fn next_chunk(&self, outgoing: usize, chunk: usize) -> usize {
        let SendSide { sides, chunks, .. } = &self.outgoing[outgoing];
        let mut chunk = chunk;
        while chunk < *chunks
            && find(sides, chunk).is_none_or(|(number, at)| sides[number].ranges[at].is_empty())
        {
            chunk += 1;
        }
        chunk
    }

    /// True if this rank's own chunk of that number can be written while a group's chunk is packed: all of it lies between
    /// what is packed, so that each row is read once, in order.
    pub fn keeps(&self, data: &Buffers<'_>, group: usize, chunk: usize) -> bool {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let ReceiverGroup { members, kept, .. } = &self.groups[group];
        let sides = &self.outgoing[members[0]].sides;
        let Some((number, at)) = find(sides, chunk) else { return false };
        let (side, Some(kept)) = (&sides[number], &kept[number]) else { return false };
        self.assemblies[kept.assembly].has_only_rows_of(side, at)
            && self.needs(chunk).next().is_none()
            && data.scaling(side.array).is_none()
    }

    /// Packs what this rank has of a chunk of all receivers of a group: `buffer_of(k)` is the staging buffer for member `k`.
    /// With `keep`, which requires [`StagedCopy::keeps`], this rank's own chunk of that number is written, too.
    ///
    /// # Panics
    /// If the data was entered for another plan, this rank's part was not entered, or a buffer is shorter than
    /// [`SendSide::max_bytes`].
    pub fn pack_group<'b>(
        &mut self,
        data: &mut Buffers<'_>,
        group: usize,
        chunk: usize,
        keep: bool,
        mut buffer_of: impl FnMut(usize) -> &'b mut [u8],
    ) {
        assert!(!keep || self.keeps(data, group, chunk), "what is kept lies between what is packed");
        if !keep && !self.packs_together(group, chunk) {
            for k in 0..self.groups[group].members.len() {
                self.pack(data, self.groups[group].members[k], chunk, buffer_of(k));
            }
            return;
        }
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Self { outgoing, groups, assemblies, scratch, non_temporal, .. } = self;
        let ReceiverGroup { members, together, kept } = &groups[group];
        let sides = &outgoing[members[0]].sides;
        let Some((number, at)) = find(sides, chunk) else { return };
        let side = &sides[number];
        if data.scaling(side.array).is_some_and(|scaling| scaling.ignores_source) {
            return;
        }
        // With `keep` there is one, see `keeps`.
        let kept = kept[number].as_ref().filter(|_| keep);
        // Positions of a row of the route.
        let row = if kept.is_some() { side.row } else { together[number].row_positions() };
        let rows = side.ranges[at].start / row..side.ranges[at].end / row;
        let mut bases = [std::ptr::null_mut(); MAX_DESTINATIONS];
        for (k, (base, &member)) in bases.iter_mut().zip(members).enumerate() {
            let side = &outgoing[member].sides[number];
            let range = &side.ranges[at];
            let buffer = buffer_of(k);
            let bytes = ((range.end - range.start) * side.elem) as usize;
            assert!(bytes <= buffer.len(), "{bytes} bytes to pack into a staging buffer of {}", buffer.len());
            *base = buffer.as_mut_ptr().wrapping_sub((range.start * side.elem) as usize);
        }
        let source = data.sources(side.array)[side.source];
        assert!(!source.is_null() || rows.is_empty(), "a rank packs its own part");
        let mut destinations = members.len();
        let route = match kept {
            None => &together[number],
            Some(KeptTogether { route, assembly }) => {
                let assembly = &assemblies[*assembly];
                let target = data.targets(assembly.array)[assembly.target];
                assert!(!target.is_null(), "a rank keeps its own part");
                bases[destinations] = assembly.row_base(target, at, rows.start);
                destinations += 1;
                route
            }
        };
        let job = CopyJob {
            route,
            mode: side.mode(*non_temporal),
            from: &[source],
            to: &bases[..destinations],
            range: CopyRange::ExactRows(rows),
        };
        // The kept rows are as many rows of the destination, those of this chunk; no other rank has anything of them.
        // SAFETY: the source and the destination were entered, whole, and are borrowed by the data. These rows of each message
        // take the bytes from the first of their positions on, for which there is room, as was checked: members have the same
        // rows in a chunk, see `group_receivers`. Buffers are borrowed one by one, and so are disjoint. The scratch was made for
        // this route.
        unsafe { copy(job, scratch) };
    }

    /// True if a chunk of a group of receivers is packed in one pass: there are several, and it consists of whole rows of their
    /// common route, which may be longer than those of the messages.
    fn packs_together(&self, group: usize, chunk: usize) -> bool {
        let ReceiverGroup { members, together, .. } = &self.groups[group];
        let sides = &self.outgoing[members[0]].sides;
        let Some((number, at)) = find(sides, chunk) else { return false };
        let whole = |route: &Route| {
            let Range { start, end } = sides[number].ranges[at];
            start.is_multiple_of(route.row_positions()) && end.is_multiple_of(route.row_positions())
        };
        together.get(number).is_some_and(whole)
    }

    /// Packs what this rank has of a receiver's chunk. Returns its bytes.
    ///
    /// # Panics
    /// If the data was entered for another plan, this rank's part was not entered, or the buffer is shorter than
    /// [`SendSide::max_bytes`].
    pub fn pack(&mut self, data: &Buffers<'_>, outgoing: usize, chunk: usize, to: &mut [u8]) -> usize {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let sides = &self.outgoing[outgoing].sides;
        let Some((number, at)) = find(sides, chunk) else { return 0 };
        let side = &sides[number];
        let range = side.ranges[at].clone();
        let bytes = ((range.end - range.start) * side.elem) as usize;
        assert!(bytes <= to.len(), "{bytes} bytes to pack into a staging buffer of {}", to.len());
        if data.scaling(side.array).is_some_and(|scaling| scaling.ignores_source) {
            return bytes;
        }
        let source = data.sources(side.array)[side.source];
        assert!(!source.is_null() || range.is_empty(), "a rank packs its own part");
        let base = to.as_mut_ptr().wrapping_sub((range.start * side.elem) as usize);
        let job = CopyJob {
            route: &side.pack,
            mode: side.mode(self.non_temporal),
            from: &[source],
            to: &[base],
            range: CopyRange::Positions(range),
        };
        // SAFETY: the source was entered, whole, and is borrowed by the data; the positions take the bytes from the first of
        // them on, for which there is room, as was checked. The scratch was made for this route.
        unsafe { copy(job, &mut self.scratch) };
        bytes
    }

    /// Returns the indices of the incoming ranks that have something of a chunk of this rank.
    pub fn needs(&self, chunk: usize) -> impl Iterator<Item = usize> + '_ {
        let assembly = self.assemblies.iter().rev().find(|assembly| assembly.first <= chunk);
        assembly.into_iter().flat_map(move |assembly| {
            let at = chunk - assembly.first;
            assembly.sources.iter().filter_map(move |(location, ranges)| match *location {
                ChunkSource::Buffer(sender) if !ranges[at].is_empty() => Some(sender),
                _ => None,
            })
        })
    }

    /// Writes a chunk of this rank from the staging buffers of all ranks that have something of it: `buffer_of(k)` is what
    /// the rank `incoming()[k]` packed.
    ///
    /// # Panics
    /// If the data was entered for another plan, this rank's part was not entered, or a buffer is too short.
    pub fn assemble<'b>(
        &mut self,
        data: &mut Buffers<'_>,
        chunk: usize,
        buffer_of: impl Fn(usize) -> &'b [u8],
    ) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let Self { assemblies, bases, scratch, .. } = self;
        let assembly =
            assemblies.iter().rev().find(|assembly| assembly.first <= chunk).expect("a chunk of this rank");
        let at = chunk - assembly.first;
        bases.clear();
        bases.extend(assembly.sources.iter().map(|(location, ranges)| {
            let (begin, end) = (ranges[at].start * assembly.elem, ranges[at].end * assembly.elem);
            if begin == end {
                return std::ptr::null();
            }
            let sender = match *location {
                ChunkSource::Buffer(sender) => sender,
                ChunkSource::Local(source) => {
                    let source = data.sources(assembly.array)[source];
                    assert!(!source.is_null(), "a rank reads its own part");
                    return source;
                }
            };
            let packed = buffer_of(sender);
            assert!((end - begin) as usize <= packed.len(), "a staging buffer of {} bytes", packed.len());
            if !assembly.non_temporal {
                // All of it is in another core's caches. (For large arrays that gains nothing.)
                prefetch_piece(packed.as_ptr(), (end - begin) as usize);
            }
            // Addresses count from the start of the whole message.
            packed.as_ptr().wrapping_sub(begin as usize)
        }));
        let to = data.targets(assembly.array)[assembly.target];
        assert!(!to.is_null(), "a rank assembles its own part");
        let job = CopyJob {
            route: &assembly.route,
            mode: CopyMode {
                non_temporal: assembly.non_temporal,
                prefetch_reads: assembly.prefetch_reads,
                prefetch_writes: false,
                scaling: data.scaling(assembly.array),
            },
            from: bases,
            to: &[to],
            range: CopyRange::Positions(assembly.chunks[at].clone()),
        };
        // SAFETY: the destination was entered, whole, and is mutably borrowed. Of each buffer only positions of this chunk
        // are read, and it has all of them, as was checked: buffers are contiguous along the fast axis, so it is no transpose. A
        // local source was entered, whole, and is borrowed, too. The scratch was made for this route; a scaling for the array's
        // type.
        unsafe { copy(job, scratch) };
    }
}

/// Returns all routes.
fn routes<'a>(
    outgoing: &'a [SendSide],
    groups: &'a [ReceiverGroup],
    assemblies: &'a [Assembly],
) -> impl Iterator<Item = &'a Route> {
    let alone = outgoing.iter().flat_map(|outgoing| &outgoing.sides).map(|side| &side.pack);
    let together = groups.iter().flat_map(|group| &group.together);
    let kept = groups.iter().flat_map(|group| &group.kept).flatten().map(|kept| &kept.route);
    alone.chain(together).chain(kept).chain(assemblies.iter().map(|assembly| &assembly.route))
}
