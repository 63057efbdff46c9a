//! The messages of a plan: one for each pair of ranks, with the routes that pack and unpack each array in it.
//!
//! A message is dense: per axis the positions one source shares with one destination, in the order of `by_message`, the
//! destination's fast axis fastest. Sender and receiver count its positions the same way, so it can be cut anywhere without
//! telling the other side where. Several arrays lie in it one after the other, each a `MessageSegment`. What a rank sends
//! itself is no message: it is copied directly.
//!
//! Of a triangle, whole boxes are sent and clipped on arrival: half of the few boxes across the diagonal is sent for
//! nothing, but messages stay boxes. Boxes without any element of the triangle are left out.

use crate::copy::{Scratch, exceeds_caches};
use crate::route::{DestinationSpec, Route, RouteSpec, by_message, source_at};
use crate::simd::Level;
use reshard_plan::{Array, Plan, Track};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Destinations are written with non-temporal stores only if pieces have at least this many bytes on average.
const MIN_NON_TEMPORAL_PIECE_BYTES: u64 = 512;

/// Every message of a plan, and the local moves of every rank.
pub struct MessageSet {
    pub(crate) plan: Arc<Plan>,
    pub(crate) level: Level,
    ranks: Vec<u64>,
    /// Sorted by group, sender and receiver.
    messages: Vec<Message>,
    /// For each rank: the messages it sends, the messages it receives, and its local moves.
    departures: Vec<Vec<usize>>,
    pub(crate) arrivals: Vec<Vec<usize>>,
    pub(crate) local_moves: Vec<Vec<LocalMove>>,
}

/// What one rank sends another, of all arrays of a group. Ranks are indices into [`MessageSet::ranks`].
pub struct Message {
    /// Index of the group: arrays with equal schedules.
    pub group: usize,
    /// The sender.
    pub from: usize,
    /// The receiver, another rank.
    pub to: usize,
    pub(crate) segments: Vec<MessageSegment>,
}

/// One array's part of a message.
pub(crate) struct MessageSegment {
    pub array: usize,
    /// Indices of its source and its destination among those of the array.
    pub source: usize,
    pub target: usize,
    /// Bytes of an element.
    pub elem: u64,
    pub positions: u64,
    /// Positions along the fast axis.
    pub row: u64,
    /// The destination is written with non-temporal stores.
    pub non_temporal: bool,
    /// The array does not fit into the caches.
    pub large: bool,
    /// From the source into the message.
    pub pack: Route,
    /// From the message into the destination.
    pub unpack: Route,
}

/// What a rank sends itself of one array.
pub(crate) struct LocalMove {
    pub array: usize,
    pub source: usize,
    pub target: usize,
    pub non_temporal: bool,
    pub route: Route,
}

impl MessageSet {
    /// Returns all messages between ranks of a plan, to be packed and unpacked at an instruction set level; the arrays of a
    /// group share their messages. What a message contains is the same at every level, so sender and receiver may have
    /// different ones.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn new(plan: Arc<Plan>, groups: &[Vec<usize>], level: Level) -> Self {
        Self::between(plan, groups, level, None)
    }

    /// Returns only the messages that `rank` sends or receives, and its local moves.
    ///
    /// # Panics
    /// If this processor does not support the level.
    pub fn of_rank(plan: Arc<Plan>, groups: &[Vec<usize>], rank: u64, level: Level) -> Self {
        Self::between(plan, groups, level, Some(rank))
    }

    /// Returns the messages of all ranks, or of one.
    fn between(plan: Arc<Plan>, groups: &[Vec<usize>], level: Level, only: Option<u64>) -> Self {
        level.assert_supported();
        let ranks = plan.ranks();
        // Every rank of the plan is in the list.
        let number = |rank: u64| ranks.partition_point(|&other| other < rank);
        let mut messages: BTreeMap<(usize, usize, usize), Vec<MessageSegment>> = BTreeMap::new();
        let mut local_moves: Vec<Vec<LocalMove>> = ranks.iter().map(|_| Vec::new()).collect();
        for (group, array) in
            groups.iter().enumerate().flat_map(|(k, group)| group.iter().map(move |a| (k, *a)))
        {
            let planned = &plan.arrays()[array];
            let mut overlaps = PairOverlaps::new(array, planned, level);
            for (index, target) in planned.targets().iter().enumerate() {
                let to = number(target.rank);
                for place in planned.places_of(target, only.unwrap_or(target.rank)) {
                    let source = source_at(planned, target, place);
                    let from = number(planned.sources()[source].rank);
                    let Some(overlap) = overlaps.find(index, place) else { continue };
                    if from == to {
                        local_moves[to].push(overlaps.local_move(&overlap, source, index));
                    } else {
                        let segment = overlaps.segment(&overlap, source, index);
                        messages.entry((group, from, to)).or_default().push(segment);
                    }
                }
            }
        }
        let messages: Vec<Message> = messages
            .into_iter()
            .map(|((group, from, to), segments)| Message { group, from, to, segments })
            .collect();
        let (mut departures, mut arrivals) = (vec![Vec::new(); ranks.len()], vec![Vec::new(); ranks.len()]);
        for (number, message) in messages.iter().enumerate() {
            departures[message.from].push(number);
            arrivals[message.to].push(number);
        }
        Self { plan, level, ranks, messages, departures, arrivals, local_moves }
    }

    /// Returns all ranks of the plan, ascending.
    pub fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// Returns all messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the index of the message from one rank to another, if there is one.
    pub fn find(&self, group: usize, from: u64, to: u64) -> Option<usize> {
        let wanted = (group, self.ranks.binary_search(&from).ok()?, self.ranks.binary_search(&to).ok()?);
        self.messages.binary_search_by_key(&wanted, |m| (m.group, m.from, m.to)).ok()
    }

    /// Returns the bytes of scratch memory for everything a rank copies.
    pub fn scratch_bytes(&self, rank: usize) -> u64 {
        Scratch::bytes(self.routes_of(rank))
    }

    /// Returns the routes of everything a rank copies.
    pub(crate) fn routes_of(&self, rank: usize) -> impl Iterator<Item = &Route> {
        let segments = |&message: &usize| self.messages[message].segments.iter();
        let packed = self.departures[rank].iter().flat_map(segments).map(|segment| &segment.pack);
        let unpacked = self.arrivals[rank].iter().flat_map(segments).map(|segment| &segment.unpack);
        packed.chain(unpacked).chain(self.local_moves[rank].iter().map(|kept| &kept.route))
    }
}

impl Message {
    /// Returns the bytes of some positions of all arrays. Saturates.
    pub fn bytes(&self, positions: &Range<u64>) -> u64 {
        let of_one = |segment: &MessageSegment| {
            positions.end.saturating_sub(positions.start).saturating_mul(segment.elem)
        };
        self.segments.iter().map(of_one).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of the largest element.
    pub fn max_elem_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.elem).max().unwrap_or(0)
    }
}

/// Returns where to cut `begin..end` if not all of it fits: after the last whole row, if there is one.
pub(crate) fn cut_at_rows(begin: u64, end: u64, row: u64) -> u64 {
    let whole = end / row * row;
    if whole > begin { whole } else { end }
}

/// Computes the overlap of each source and destination of an array, axis by axis.
struct PairOverlaps<'a> {
    number: usize,
    array: &'a Array,
    order: Vec<usize>,
    level: Level,
    /// The array does not fit into the caches.
    large: bool,
    /// By track and peer. Ranks with the same coordinate share tracks, so their messages share the overlaps.
    axes: HashMap<(*const Track, u32), AxisOverlap>,
}

/// One axis of an overlap: its track from source to destination, into the message, and out of it.
#[derive(Clone)]
struct AxisOverlap {
    direct: Arc<Track>,
    packed: Arc<Track>,
    unpacked: Arc<Track>,
    /// For triangles: its positions on the whole track.
    positions: Arc<[u64]>,
}

/// The overlap of a source and a destination: all axes, and for triangles the range of axis 0 that is copied, for each
/// position of axis 1.
struct PairOverlap {
    axes: Vec<AxisOverlap>,
    rows: Option<Arc<[Range<u64>]>>,
}

impl<'a> PairOverlaps<'a> {
    fn new(number: usize, array: &'a Array, level: Level) -> Self {
        let order = by_message(array);
        let large = exceeds_caches(array);
        Self { number, array, order, level, large, axes: HashMap::new() }
    }

    /// Returns the overlap with the peer at `place` among a destination's parts; `None` if no element of it is copied.
    fn find(&mut self, target: usize, place: usize) -> Option<PairOverlap> {
        let target = &self.array.targets()[target];
        let along = target.tracks.iter().zip(target.peers_at(place));
        let axes: Vec<AxisOverlap> =
            along.map(|(track, peer)| self.axis_overlap(track, peer, target.rows.is_some())).collect();
        let Some(rows) = &target.rows else { return Some(PairOverlap { axes, rows: None }) };
        let within = |rows: &Range<u64>| {
            let before = |end: u64| axes[0].positions.partition_point(|&place| place < end) as u64;
            before(rows.start)..before(rows.end)
        };
        let rows: Vec<Range<u64>> =
            axes[1].positions.iter().map(|&column| within(&rows[column as usize])).collect();
        let moves = rows.iter().any(|row| row.start < row.end);
        moves.then(|| PairOverlap { axes, rows: Some(rows.into()) })
    }

    fn axis_overlap(&mut self, track: &Arc<Track>, peer: u32, clipped: bool) -> AxisOverlap {
        let make = || {
            let direct = track.with_peer(peer);
            let (packed, unpacked) = (direct.packed().into(), direct.unpacked().into());
            // A list of one entry for each element: only where it is needed.
            let whole = clipped.then(|| track.pieces()).into_iter().flatten();
            let pieces = whole.filter(|piece| piece.peer == peer);
            let positions = pieces.flat_map(|piece| piece.at..piece.at + piece.len).collect();
            AxisOverlap { direct: direct.into(), packed, unpacked, positions }
        };
        self.axes.entry((Arc::as_ptr(track), peer)).or_insert_with(make).clone()
    }

    fn local_move(&self, overlap: &PairOverlap, source: usize, target: usize) -> LocalMove {
        let tracks: Vec<_> = overlap.axes.iter().map(|axis| Arc::clone(&axis.direct)).collect();
        let (from, to) = (&self.array.sources()[source].strides, &self.array.targets()[target].strides);
        let route = self.route(&tracks, from, to, overlap.rows.clone());
        LocalMove { array: self.number, source, target, non_temporal: self.non_temporal(overlap), route }
    }

    /// Cache lines that pieces fill only in part stay in the caches, for the next message.
    fn non_temporal(&self, overlap: &PairOverlap) -> bool {
        let track = &overlap.axes[self.order[self.order.len() - 1]].direct;
        let pieces: u64 = track.loops().iter().map(|each| each.rounds * each.stretches.len() as u64).sum();
        self.large
            && track.elems() * self.array.wanted().elem_bytes() >= pieces * MIN_NON_TEMPORAL_PIECE_BYTES
    }

    fn segment(&self, overlap: &PairOverlap, source: usize, target: usize) -> MessageSegment {
        let mut dense = vec![0; self.order.len()];
        let mut positions = 1;
        for &dim in self.order.iter().rev() {
            dense[dim] = positions;
            positions *= overlap.axes[dim].direct.elems();
        }
        let packed: Vec<_> = overlap.axes.iter().map(|axis| Arc::clone(&axis.packed)).collect();
        let unpacked: Vec<_> = overlap.axes.iter().map(|axis| Arc::clone(&axis.unpacked)).collect();
        let (from, to) = (&self.array.sources()[source].strides, &self.array.targets()[target].strides);
        let fast = self.order.last().map_or(1, |&dim| overlap.axes[dim].direct.elems());
        MessageSegment {
            array: self.number,
            source,
            target,
            elem: self.array.wanted().elem_bytes(),
            positions,
            row: fast,
            non_temporal: self.non_temporal(overlap),
            large: self.large,
            pack: self.route(&packed, from, &dense, None),
            unpack: self.route(&unpacked, &dense, to, overlap.rows.clone()),
        }
    }

    /// Returns a route from one source to one destination.
    fn route(
        &self,
        tracks: &[Arc<Track>],
        from: &[u64],
        to: &[u64],
        rows: Option<Arc<[Range<u64>]>>,
    ) -> Route {
        let destination = DestinationSpec { target: 0, tracks, parts: vec![0], strides: to, rows };
        let elem = self.array.wanted().elem_bytes();
        Route::new(
            &RouteSpec {
                elem,
                order: &self.order,
                from_strides: vec![from],
                destinations: vec![destination],
                local: None,
                counts_rows: false,
            },
            self.level,
        )
    }
}
