//! What ranks send each other, made ready: for each pair of ranks a message, for each array in it the way in and out.
//!
//! A message is dense: per axis the positions one source shares with one destination, in the order of the destination's
//! axes, the last of them fastest. Both sides count its positions alike, so it can be cut anywhere and nobody has to say
//! where. Several arrays lie in it one after the other, each a `MessageSegment`. What a rank keeps does not travel: it is
//! copied from where it is to where it belongs.
//!
//! Of a triangle whole boxes are sent and clipped on arrival: half of a few boxes across the diagonal travels in vain, and
//! messages stay boxes. Those without any element of the triangle are left out.

use crate::copy::{STREAMED, Scratch};
use crate::route::{DestinationSpec, Route, RouteSpec, by_order};
use crate::simd::Level;
use reshard_plan::{Array, Plan, Track};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Destinations are streamed to in pieces of at least so many bytes on average.
const LONG: u64 = 512;

/// Every message of a plan, and all that stays.
pub struct MessageSet {
    pub(crate) plan: Arc<Plan>,
    pub(crate) level: Level,
    ranks: Vec<u64>,
    /// By group, sender and receiver.
    messages: Vec<Message>,
    /// For each rank, the messages it sends, those it receives, and what it keeps.
    departures: Vec<Vec<usize>>,
    pub(crate) arrivals: Vec<Vec<usize>>,
    pub(crate) kept: Vec<Vec<LocalMove>>,
}

/// What one rank sends another, of all arrays of a group. Ranks are numbers among [`MessageSet::ranks`].
pub struct Message {
    /// Arrays with equal schedules.
    pub group: usize,
    /// The sender.
    pub from: usize,
    /// The receiver, another rank.
    pub to: usize,
    pub(crate) sections: Vec<MessageSegment>,
}

/// One array's part of a message.
pub(crate) struct MessageSegment {
    pub array: usize,
    /// Which of the array's sources and targets.
    pub source: usize,
    pub target: usize,
    /// Bytes of an element.
    pub elem: u64,
    pub positions: u64,
    /// Positions along the fast axis.
    pub row: u64,
    /// Whether the destination is streamed past the caches.
    pub stream: bool,
    /// The array does not fit into the caches.
    pub large: bool,
    /// From the source into the dense box.
    pub pack: Route,
    /// From the dense box into the destination.
    pub unpack: Route,
}

/// What a rank keeps of one array.
pub(crate) struct LocalMove {
    pub array: usize,
    pub source: usize,
    pub target: usize,
    pub stream: bool,
    pub route: Route,
}

impl MessageSet {
    /// All messages between ranks of a plan; each group of arrays shares its messages.
    pub fn new(plan: Arc<Plan>, groups: &[Vec<usize>]) -> Self {
        Self::between(plan, groups, None)
    }

    /// Only what one rank sends, receives and keeps.
    pub fn of_rank(plan: Arc<Plan>, groups: &[Vec<usize>], rank: u64) -> Self {
        Self::between(plan, groups, Some(rank))
    }

    /// Of all ranks, or of one.
    fn between(plan: Arc<Plan>, groups: &[Vec<usize>], only: Option<u64>) -> Self {
        let ranks = plan.ranks();
        // Every rank of the plan is among them.
        let number = |rank: u64| ranks.partition_point(|&other| other < rank);
        let level = Level::best();
        let mut messages: BTreeMap<(usize, usize, usize), Vec<MessageSegment>> = BTreeMap::new();
        let mut kept: Vec<Vec<LocalMove>> = ranks.iter().map(|_| Vec::new()).collect();
        for (group, array) in
            groups.iter().enumerate().flat_map(|(k, group)| group.iter().map(move |a| (k, *a)))
        {
            let planned = &plan.arrays()[array];
            let mut shares = PairOverlaps::new(array, planned, level);
            for (index, target) in planned.targets().iter().enumerate() {
                let to = number(target.rank);
                for place in planned.places_of(target, only.unwrap_or(target.rank)) {
                    let source = planned.part(target, place);
                    let from = number(planned.sources()[source].rank);
                    let Some(share) = shares.find(index, place) else { continue };
                    if from == to {
                        kept[to].push(shares.keep(&share, source, index));
                    } else {
                        let section = shares.section(&share, source, index);
                        messages.entry((group, from, to)).or_default().push(section);
                    }
                }
            }
        }
        let messages: Vec<Message> = messages
            .into_iter()
            .map(|((group, from, to), sections)| Message { group, from, to, sections })
            .collect();
        let (mut departures, mut arrivals) = (vec![Vec::new(); ranks.len()], vec![Vec::new(); ranks.len()]);
        for (number, message) in messages.iter().enumerate() {
            departures[message.from].push(number);
            arrivals[message.to].push(number);
        }
        Self { plan, level, ranks, messages, departures, arrivals, kept }
    }

    /// All ranks of the plan, ascending.
    pub fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// All messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The number of the message from one rank of the plan to another, if anything goes there.
    pub fn find(&self, group: usize, from: u64, to: u64) -> Option<usize> {
        let wanted = (group, self.ranks.binary_search(&from).ok()?, self.ranks.binary_search(&to).ok()?);
        self.messages.binary_search_by_key(&wanted, |m| (m.group, m.from, m.to)).ok()
    }

    /// Bytes of scratch the kernels need for what a rank does.
    pub fn worker_bytes(&self, rank: usize) -> u64 {
        Scratch::bytes(self.routes_of(rank))
    }

    /// All that a rank copies.
    pub(crate) fn routes_of(&self, rank: usize) -> impl Iterator<Item = &Route> {
        let sections = |&message: &usize| self.messages[message].sections.iter();
        let packed = self.departures[rank].iter().flat_map(sections).map(|section| &section.pack);
        let unpacked = self.arrivals[rank].iter().flat_map(sections).map(|section| &section.unpack);
        packed.chain(unpacked).chain(self.kept[rank].iter().map(|kept| &kept.route))
    }
}

impl Message {
    /// Bytes of some positions of all arrays. Saturates.
    pub fn bytes(&self, positions: &Range<u64>) -> u64 {
        let of_one = |section: &MessageSegment| {
            positions.end.saturating_sub(positions.start).saturating_mul(section.elem)
        };
        self.sections.iter().map(of_one).fold(0, u64::saturating_add)
    }

    /// Bytes of the longest element.
    pub fn longest_elem(&self) -> u64 {
        self.sections.iter().map(|section| section.elem).max().unwrap_or(0)
    }
}

/// Where to cut `begin..end` if not all of it can go: behind a whole row, if there is one.
pub(crate) fn cut_at_rows(begin: u64, end: u64, row: u64) -> u64 {
    let whole = end / row * row;
    if whole > begin { whole } else { end }
}

/// What one source and one destination of an array share, axis by axis.
struct PairOverlaps<'a> {
    number: usize,
    array: &'a Array,
    order: Vec<usize>,
    level: Level,
    /// The destination does not fit into the caches.
    large: bool,
    /// By track and peer. Ranks with the same coordinate share tracks, and messages share what is made of them.
    lanes: HashMap<(*const Track, u32), AxisOverlap>,
}

/// One axis of a share.
#[derive(Clone)]
struct AxisOverlap {
    alone: Arc<Track>,
    packed: Arc<Track>,
    unpacked: Arc<Track>,
    /// For triangles: which positions of the whole track these are.
    places: Arc<[u64]>,
}

/// All axes, and for triangles the positions of axis 0 that move, for each position of axis 1.
struct PairOverlap {
    lanes: Vec<AxisOverlap>,
    rows: Option<Arc<[Range<u64>]>>,
}

impl<'a> PairOverlaps<'a> {
    fn new(number: usize, array: &'a Array, level: Level) -> Self {
        let order = by_order(array.order(), array.wanted().problem().shape().len());
        let large = array.elems().saturating_mul(array.wanted().elem_bytes()) >= STREAMED;
        Self { number, array, order, level, large, lanes: HashMap::new() }
    }

    /// The share at a place in a target's parts; nothing if no element of it moves.
    fn find(&mut self, target: usize, place: usize) -> Option<PairOverlap> {
        let target = &self.array.targets()[target];
        let along = target.tracks.iter().zip(target.peers_at(place));
        let lanes: Vec<AxisOverlap> =
            along.map(|(track, peer)| self.lane(track, peer, target.rows.is_some())).collect();
        let Some(rows) = &target.rows else { return Some(PairOverlap { lanes, rows: None }) };
        let within = |rows: &Range<u64>| {
            let before = |end: u64| lanes[0].places.partition_point(|&place| place < end) as u64;
            before(rows.start)..before(rows.end)
        };
        let rows: Vec<Range<u64>> =
            lanes[1].places.iter().map(|&column| within(&rows[column as usize])).collect();
        let moves = rows.iter().any(|row| row.start < row.end);
        moves.then(|| PairOverlap { lanes, rows: Some(rows.into()) })
    }

    fn lane(&mut self, track: &Arc<Track>, peer: u32, clipped: bool) -> AxisOverlap {
        let make = || {
            let alone = track.with_peer(peer);
            let (packed, unpacked) = (alone.packed().into(), alone.unpacked().into());
            // One for each element: only where they are needed.
            let whole = clipped.then(|| track.pieces()).into_iter().flatten();
            let pieces = whole.filter(|piece| piece.peer == peer);
            let places = pieces.flat_map(|piece| piece.at..piece.at + piece.len).collect();
            AxisOverlap { alone: alone.into(), packed, unpacked, places }
        };
        self.lanes.entry((Arc::as_ptr(track), peer)).or_insert_with(make).clone()
    }

    fn keep(&self, share: &PairOverlap, source: usize, target: usize) -> LocalMove {
        let tracks: Vec<_> = share.lanes.iter().map(|lane| Arc::clone(&lane.alone)).collect();
        let (from, to) = (&self.array.sources()[source].strides, &self.array.targets()[target].strides);
        let route = self.route(&tracks, from, to, share.rows.clone());
        LocalMove { array: self.number, source, target, stream: self.streams(share), route }
    }

    /// Lines that pieces only fill in part are left to the caches, where the next message finds them.
    fn streams(&self, share: &PairOverlap) -> bool {
        let track = &share.lanes[self.order[self.order.len() - 1]].alone;
        let pieces: u64 = track.loops().iter().map(|each| each.rounds * each.stretches.len() as u64).sum();
        self.large && track.elems() * self.array.wanted().elem_bytes() >= pieces * LONG
    }

    fn section(&self, share: &PairOverlap, source: usize, target: usize) -> MessageSegment {
        let mut dense = vec![0; self.order.len()];
        let mut positions = 1;
        for &dim in self.order.iter().rev() {
            dense[dim] = positions;
            positions *= share.lanes[dim].alone.elems();
        }
        let packed: Vec<_> = share.lanes.iter().map(|lane| Arc::clone(&lane.packed)).collect();
        let unpacked: Vec<_> = share.lanes.iter().map(|lane| Arc::clone(&lane.unpacked)).collect();
        let (from, to) = (&self.array.sources()[source].strides, &self.array.targets()[target].strides);
        let fast = self.order.last().map_or(1, |&dim| share.lanes[dim].alone.elems());
        MessageSegment {
            array: self.number,
            source,
            target,
            elem: self.array.wanted().elem_bytes(),
            positions,
            row: fast,
            stream: self.streams(share),
            large: self.large,
            pack: self.route(&packed, from, &dense, None),
            unpack: self.route(&unpacked, &dense, to, share.rows.clone()),
        }
    }

    /// From the only source to the only destination.
    fn route(
        &self,
        tracks: &[Arc<Track>],
        from: &[u64],
        to: &[u64],
        rows: Option<Arc<[Range<u64>]>>,
    ) -> Route {
        let end = DestinationSpec { target: 0, tracks, parts: vec![0], strides: to, rows };
        let elem = self.array.wanted().elem_bytes();
        Route::new(
            &RouteSpec { elem, order: &self.order, from_strides: vec![from], ends: vec![end], own: None },
            self.level,
        )
    }
}
