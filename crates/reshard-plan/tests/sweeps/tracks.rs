//! Tracks against elements dealt out one by one: every position has its peer and both its local indices.

#![allow(clippy::unwrap_used)]

use reshard_plan::{Axis, Deal, Side, Sides, Stretch, Track};
use reshard_testkit::{Random, deal_out, full_sweep, random_deal};

/// One position: (peer coordinate, local index there, local index here).
type Place = (u64, u64, u64);

fn places(track: &Track, pieces: impl Iterator<Item = Stretch>) -> Vec<Place> {
    let mut places = Vec::new();
    for piece in pieces {
        assert_eq!(piece.at, places.len() as u64, "positions have no gaps");
        let peer = track.peers()[piece.peer as usize];
        places.extend((0..piece.len).map(|k| (peer, piece.from + k, piece.to + k)));
    }
    assert_eq!(places.len() as u64, track.elems());
    places
}

/// An axis as one says it: length, processes, rule, first process.
struct Dealt(u64, u64, Deal, u64);

fn check(from: &Dealt, from_at: u64, to: &Dealt, to_at: u64, extent: u64) {
    let axis = |dealt: &Dealt| Axis::new(dealt.0, dealt.1, &dealt.2, dealt.3).unwrap();
    let cards = |dealt: &Dealt| deal_out(dealt.0, dealt.1, &dealt.2, dealt.3);
    let (from_axis, to_axis, from_cards, to_cards) = (axis(from), axis(to), cards(from), cards(to));
    let here = Side { axis: &to_axis, offset: to_at };
    let sides = Sides::new(here, Side { axis: &from_axis, offset: from_at }, extent).unwrap();
    for process in 0..to.1 {
        let expected: Vec<Place> = (0..extent)
            .map(|w| (from_cards[(from_at + w) as usize], to_cards[(to_at + w) as usize]))
            .filter(|(_, there)| to_axis.is_replicated() || there.owner == process)
            .map(|(source, there)| (source.owner, source.local, there.local))
            .collect();
        let track = Track::new(&sides, process).unwrap();
        assert_eq!(places(&track, track.pieces()), expected);
        for each in track.loops() {
            assert_eq!(each.stretches.iter().map(|stretch| stretch.len).sum::<u64>(), each.elems);
        }
        for (index, &peer) in track.peers().iter().enumerate() {
            let shared: Vec<Place> = expected.iter().filter(|place| place.0 == peer).copied().collect();
            let part = track.with_peer(index as u32);
            assert_eq!(places(&part, part.pieces()), shared);
            let by_position = |place: fn(u64, &Place) -> Place| -> Vec<Place> {
                shared.iter().enumerate().map(|(at, shared)| place(at as u64, shared)).collect()
            };
            let (packed, unpacked) = (part.packed(), part.unpacked());
            assert_eq!(places(&packed, packed.pieces()), by_position(|at, p| (p.0, p.1, at)));
            assert_eq!(places(&unpacked, unpacked.pieces()), by_position(|at, p| (p.0, at, p.2)));
        }
        let staged = track.staged();
        let mut met = vec![0; track.peers().len()];
        let from_buffers: Vec<Place> = expected
            .iter()
            .enumerate()
            .map(|(position, place)| {
                let index = track.peers().binary_search(&place.0).unwrap();
                for (peer, met) in met.iter().enumerate() {
                    assert_eq!(track.before(peer as u32, position as u64), *met);
                }
                assert_eq!(track.peer_at(position as u64), Some(index as u32));
                met[index] += 1;
                (place.0, met[index] - 1, place.2)
            })
            .collect();
        assert_eq!(places(&staged, staged.pieces()), from_buffers);
        assert_eq!(track.peer_at(track.elems()), None);
        for (peer, met) in met.iter().enumerate() {
            assert_eq!(track.before(peer as u32, track.elems() + 3), *met);
        }
        for position in 0..track.elems() {
            let (index, round) = track.find(position).unwrap();
            let each = &track.loops()[index];
            assert!(each.at + round * each.elems <= position && round < each.rounds);
        }
    }
}

#[test]
fn every_small_block_cyclic_pair() {
    let most = if full_sweep() { 5 } else { 3 };
    for (p, q, r, s) in
        (0..most * most * 49).map(|k| (k / 49 / most + 1, k / 49 % most + 1, k / 7 % 7 + 1, k % 7 + 1))
    {
        for (n, from_first, to_first) in [(0, 0, 0), (1, 0, 0), (17, p - 1, 0), (64, 0, q - 1), (211, 0, 0)] {
            let from = Dealt(n + 3, p, Deal::Cyclic(r), from_first);
            let to = Dealt(n + 2, q, Deal::Cyclic(s), to_first);
            check(&from, 3, &to, 1, n);
        }
    }
}

#[test]
fn any_rules_and_windows() {
    let mut random = Random::new(41);
    for _ in 0..if full_sweep() { 200_000 } else { 10_000 } {
        let extent = random.within(0, 120);
        let mut dealt = || {
            let at = random.within(0, 9);
            let (len, procs) = (at + extent + random.within(0, 9), random.within(1, 6));
            let (deal, first) = random_deal(&mut random, len, procs);
            (Dealt(len, procs, deal, first), at)
        };
        let ((from, from_at), (to, to_at)) = (dealt(), dealt());
        check(&from, from_at, &to, to_at, extent);
    }
}

#[test]
fn a_long_array_has_a_short_track() {
    let len = 1 << 40;
    let deals = [Deal::Block, Deal::Cyclic(1), Deal::Cyclic(7), Deal::Cyclic(1 << 30), Deal::Whole];
    for (from, to) in deals.iter().flat_map(|from| deals.iter().map(move |to| (from, to))) {
        let axis = |deal: &Deal| Axis::new(len, if *deal == Deal::Whole { 1 } else { 3 }, deal, 0).unwrap();
        let (from, to) = (axis(from), axis(to));
        let track = Track::new(&Sides::whole(&to, &from).unwrap(), 0).unwrap();
        assert_eq!(track.elems(), to.local_len(0));
        let stretches: usize = track.loops().iter().map(|each| each.stretches.len()).sum();
        assert!(stretches <= 16_000, "{stretches} stretches from {from:?} to {to:?}");
    }
}

#[test]
fn equal_layouts_are_one_stretch() {
    for (procs, block, len) in [(1, 5, 100), (4, 3, 1000), (7, 64, 999)] {
        let axis = Axis::block_cyclic(len, procs, block, 0).unwrap();
        let track = Track::new(&Sides::whole(&axis, &axis).unwrap(), 0).unwrap();
        assert_eq!(track.pieces().count(), 1, "{procs} {block} {len}");
    }
}
