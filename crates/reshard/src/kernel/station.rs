//! Where a rank does its share of a run: packs into slots, unpacks from slots, copies what it keeps.
//!
//! [`super::freight`] says why no two ranks touch the same bytes; the proofs are here.

use super::cargo::{Cargo, Message, cut_at_rows};
use super::freight::{Cursor, Parcel, Round};
use super::route::Route;
use super::{Errand, Manner, Share, Worker, copy};
use crate::sync::MutexGuard;
use crate::sync::post::Letter;
use std::ops::Range;

/// What a rank copies on its own is cut into pieces of about so many bytes, to look for letters in between.
const PIECE: u64 = 1 << 18;

/// The only place from which a rank's destinations are written.
pub struct Station<'a> {
    round: &'a Round<'a>,
    rank: usize,
    worker: MutexGuard<'a, Option<Worker>>,
    alone: Alone,
}

/// What a rank does on its own, and how far it has got: copies what it keeps, and scales what would have travelled.
#[derive(Default)]
struct Alone {
    kept: usize,
    arrival: usize,
    section: usize,
    at: u64,
}

impl<'a> Station<'a> {
    pub(super) fn new(round: &'a Round<'a>, rank: usize, worker: MutexGuard<'a, Option<Worker>>) -> Self {
        Self { round, rank, worker, alone: Alone::default() }
    }

    /// Packs the next letter of a parcel and sends it, if a slot is free; `begin` is called once that is known.
    pub fn pack(&mut self, parcel: &Parcel, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, .. } = self;
        let post = &round.freight.post;
        assert_eq!(
            round.freight.cargo.messages()[parcel.message].from,
            *rank,
            "a rank sends its own messages"
        );
        let Some(slot) = post.take_slot(*rank) else { return false };
        begin();
        let place = round.slot(*rank, slot);
        let worker = worker.as_mut().expect("a run has workers");
        let bytes = round.letter(parcel, cursor, |section, range, offset| {
            let source = round.data.sources(section.array)[section.source];
            let base = first_position(place.wrapping_add(offset), &range, section.elem);
            let manner = Manner { stream: false, scaling: None };
            // SAFETY: the source is this plan's, whole, and only read while the round lasts. The box is dense, so positions
            // `range` take the bytes from `offset` on, which end inside the slot: `letter` sees to both. The slot is ours:
            // the post gave it out, and it goes back to the post below. The rank's worker was made for all its routes.
            unsafe { copy(errand(&section.pack, manner, &[source], &[base], range), worker) };
        });
        post.send(parcel.message, Letter { slot, bytes: bytes as u64 });
        true
    }

    /// Unpacks the next letter of a parcel, if one has arrived; `begin` is called once that is known.
    pub fn unpack(&mut self, parcel: &Parcel, cursor: &mut Cursor, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, .. } = self;
        let post = &round.freight.post;
        let Message { from, to, .. } = round.freight.cargo.messages()[parcel.message];
        assert_eq!(to, *rank, "a rank receives its own messages");
        let Some(Letter { slot, bytes }) = post.receive(parcel.message) else { return false };
        begin();
        let place = round.slot(from, slot);
        let worker = worker.as_mut().expect("a run has workers");
        let unpacked = round.letter(parcel, cursor, |section, range, offset| {
            let target = round.data.targets(section.array)[section.target];
            let base = first_position(place.wrapping_add(offset), &range, section.elem).cast_const();
            let scaling = round.data.scaling(section.array);
            let manner = Manner { stream: section.stream, scaling };
            // SAFETY: positions `range` are the bytes from `offset` on of a slot that the post has given to us and that goes
            // back below; nobody writes there meanwhile. The target is this plan's, whole, and a part of this rank, as all
            // targets of a message's sections belong to its receiver: whoever writes there has this station, which is
            // borrowed. The rank's worker was made for all its routes. A scaling was made for the array's type.
            unsafe { copy(errand(&section.unpack, manner, &[base], &[target], range), worker) };
        });
        assert_eq!(unpacked as u64, bytes, "letters are cut alike on both sides");
        post.give_back(parcel.message, slot);
        true
    }

    /// Does the next piece of what this rank does on its own; false if all is done. `begin` is called before there is more.
    pub fn work_alone(&mut self, begin: impl FnOnce()) -> bool {
        let Self { round, rank, worker, alone } = self;
        let Cargo { kept, arrivals, .. } = round.freight.cargo();
        let worker = worker.as_mut().expect("a run has workers");
        if let Some(kept) = kept[*rank].get(alone.kept) {
            begin();
            let (positions, row) = (kept.route.positions(), kept.route.positions() / kept.route.rows());
            let range = alone.next_piece(positions, row, kept.route.row_bytes() / row);
            alone.kept += usize::from(alone.at == 0);
            let (array, scaling) = (kept.array, round.data.scaling(kept.array));
            let manner = Manner { stream: kept.stream, scaling };
            let (from, to) = (round.data.sources(array)[kept.source], round.data.targets(array)[kept.target]);
            // SAFETY: both parts are this plan's, whole, the target one of this rank's: whoever writes there has this
            // station, which is borrowed. The rank's worker was made for all its routes; a scaling for the array's type.
            unsafe { copy(errand(&kept.route, manner, &[from], &[to], range), worker) };
            return true;
        }
        while let Some(&message) = arrivals[*rank].get(alone.arrival) {
            let Some(section) = round.freight.cargo.messages()[message].sections.get(alone.section) else {
                (alone.arrival, alone.section) = (alone.arrival + 1, 0);
                continue;
            };
            if !round.ignores(section.array) {
                alone.section += 1;
                continue;
            }
            begin();
            let range = alone.next_piece(section.positions, section.row, section.elem);
            alone.section += usize::from(alone.at == 0);
            let manner = Manner { stream: false, scaling: round.data.scaling(section.array) };
            let (from, to) = (
                round.data.sources(section.array)[section.source],
                round.data.targets(section.array)[section.target],
            );
            // SAFETY: nothing is read from the source. Addresses of a dense box are reckoned from its beginning; they stay
            // inside the part, which has at least as many elements as it sends. The rest as above.
            unsafe { copy(errand(&section.unpack, manner, &[from], &[to], range), worker) };
            return true;
        }
        false
    }
}

/// An errand for some positions of a route.
fn errand<'a>(
    route: &'a Route,
    manner: Manner<'a>,
    from: &'a [*const u8],
    to: &'a [*mut u8],
    range: Range<u64>,
) -> Errand<'a> {
    Errand { route, manner, from, to, share: Share::Positions(range) }
}

impl Alone {
    /// The next of so many positions. Ends at 0 when there are no more.
    fn next_piece(&mut self, positions: u64, row: u64, elem: u64) -> Range<u64> {
        let begin = self.at;
        let some = (PIECE / elem).max(1);
        let all = positions - begin <= some;
        let end = if all { positions } else { cut_at_rows(begin, begin + some, row) };
        self.at = if all { 0 } else { end };
        begin..end
    }
}

/// Where position 0 would lie if the first of `range` lies at `place`: an address to reckon with, perhaps outside of all
/// memory. Kernels add to it what leads back to `place` and behind, and wrap as this does.
fn first_position(place: *mut u8, range: &Range<u64>, elem: u64) -> *mut u8 {
    place.wrapping_sub((range.start * elem) as usize)
}
