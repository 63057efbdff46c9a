//! Index conversions against elements dealt out one by one, and at sizes up to 2^62 against 128-bit arithmetic.

#![allow(clippy::unwrap_used)]

use reshard_plan::{Axis, Deal, ErrorKind, MAX_LEN};
use reshard_testkit::{Card, Random, deal_copies, random_deal};

/// Everything an axis can be asked, against the cards.
fn check(len: u64, procs: u64, deal: &Deal, first: u64) {
    let axis = Axis::new(len, procs, deal, first).unwrap();
    let hands = deal_copies(len, procs, deal, first);
    let cards: Vec<Card> = hands.iter().map(|cards| cards[0]).collect();
    assert_eq!(axis.is_replicated(), *deal == Deal::Whole && procs > 1);
    assert_eq!(axis.copies(), if axis.is_replicated() { procs } else { 1 });
    let case = || format!("{len} elements, {procs} processes, {deal}, first {first}");
    for (global, card) in (0..).zip(&cards) {
        assert_eq!(axis.owner(global), Some(card.owner), "{}", case());
        assert_eq!(axis.local_from_global(global), Some((card.owner, card.local)), "{}", case());
        for copy in &hands[global as usize] {
            assert_eq!(axis.global_from_local(copy.owner, copy.local), Some(global), "{}", case());
        }
        let end = (global..len).find(|&g| cards[g as usize].owner != card.owner).unwrap_or(len);
        assert_eq!(axis.block_at(global), Some((card.owner, end)), "{}", case());
    }
    assert_eq!(axis.owner(len), None);
    assert_eq!(axis.local_from_global(len), None);
    let mut most = 0;
    for process in 0..procs {
        let has = |&g: &u64| hands[g as usize].iter().any(|card| card.owner == process);
        let own: Vec<u64> = (0..len).filter(has).collect();
        assert_eq!(axis.local_len(process), own.len() as u64, "{}", case());
        assert_eq!(axis.global_from_local(process, own.len() as u64), None, "{}", case());
        most = most.max(own.len() as u64);
        for from in 0..=len {
            let listed: Vec<u64> = axis.blocks(process, from).flatten().filter(|&g| g >= from).collect();
            let expected: Vec<u64> = own.iter().copied().filter(|&g| g >= from).collect();
            assert_eq!(listed, expected, "{}", case());
        }
    }
    assert_eq!(axis.max_local_len(), most, "{}", case());
    assert_eq!(axis.local_len(procs), 0);
    let (again, again_first) = axis.deal();
    assert_eq!(Axis::new(len, procs, &again, again_first).unwrap(), axis, "{}", case());
}

#[test]
fn conversions_match_elements_dealt_one_by_one() {
    for procs in 1..=5 {
        for len in 0..=24 {
            for first in 0..procs {
                check(len, procs, &Deal::Block, first);
                for block in 1..=7 {
                    check(len, procs, &Deal::Cyclic(block), first);
                }
            }
        }
    }
    (1..5).for_each(|procs| check(13, procs, &Deal::Whole, 0));
    check(0, 3, &Deal::Whole, 0);
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let (len, procs) = (random.within(0, 40), random.within(1, 6));
        let (deal, first) = random_deal(&mut random, len, procs);
        check(len, procs, &deal, first);
    }
}

#[test]
fn conversions_at_any_size_match_128_bit_arithmetic() {
    let mut random = Random::new(2);
    for _ in 0..200_000 {
        let len = random.any_size(MAX_LEN);
        let (procs, block) = (random.any_size(MAX_LEN).max(1), random.any_size(MAX_LEN).max(1));
        let first = random.any_size(procs - 1);
        let axis = Axis::block_cyclic(len, procs, block, first).unwrap();
        let wide = u128::from;
        let stride = wide(block) * wide(procs);
        let numroc = |process: u64| {
            let turn = (wide(process) + wide(procs) - wide(first)) % wide(procs);
            let rest = (wide(len) % stride).saturating_sub(turn * wide(block)).min(wide(block));
            wide(len) / stride * wide(block) + rest
        };
        for process in [first, random.any_size(procs - 1), procs - 1] {
            assert_eq!(wide(axis.local_len(process)), numroc(process), "{axis:?} {process}");
        }
        if len == 0 {
            continue;
        }
        for global in [0, len - 1, random.any_size(len - 1), random.within(0, len - 1)] {
            let owner = (wide(global) / wide(block) + wide(first)) % wide(procs);
            let local = wide(global) / stride * wide(block) + wide(global) % wide(block);
            let (found_owner, found_local) = axis.local_from_global(global).unwrap();
            assert_eq!((wide(found_owner), wide(found_local)), (owner, local), "{axis:?} {global}");
            assert_eq!(axis.owner(global), Some(found_owner));
            assert_eq!(axis.global_from_local(found_owner, found_local), Some(global), "{axis:?} {global}");
            let block_at = axis.blocks(found_owner, global).next().unwrap();
            assert!(block_at.contains(&global), "{axis:?} {global} {block_at:?}");
        }
    }
}

#[test]
fn lengths_past_two_to_the_62_are_refused() {
    let refused = |axis: reshard_plan::Result<Axis>| axis.unwrap_err().kind();
    assert!(Axis::block_cyclic(MAX_LEN, MAX_LEN, MAX_LEN, MAX_LEN - 1).is_ok());
    assert_eq!(refused(Axis::block_cyclic(MAX_LEN + 1, 2, 1, 0)), ErrorKind::TooLarge);
    assert_eq!(refused(Axis::block_cyclic(10, MAX_LEN + 1, 1, 0)), ErrorKind::TooLarge);
    assert_eq!(refused(Axis::block_cyclic(10, 2, u64::MAX, 0)), ErrorKind::TooLarge);
    assert_eq!(refused(Axis::block_cyclic(10, 2, 0, 0)), ErrorKind::OutOfRange);
    assert_eq!(refused(Axis::block_cyclic(10, 0, 1, 0)), ErrorKind::OutOfRange);
    assert_eq!(refused(Axis::block_cyclic(10, 2, 1, 2)), ErrorKind::OutOfRange);
    assert_eq!(refused(Axis::new(10, 2, &Deal::Whole, 1)), ErrorKind::Mismatch);
    assert_eq!(Axis::new(MAX_LEN, MAX_LEN, &Deal::Whole, 0).unwrap().local_len(MAX_LEN - 1), MAX_LEN);
    assert_eq!(refused(Axis::new(10, 2, &Deal::GenBlock(vec![4, 5]), 0)), ErrorKind::Mismatch);
    assert_eq!(refused(Axis::new(10, 2, &Deal::GenBlock(vec![4]), 0)), ErrorKind::Mismatch);
    assert_eq!(refused(Axis::new(10, 2, &Deal::GenBlock(vec![5, 5]), 1)), ErrorKind::Mismatch);
    let wraps = Deal::GenBlock(vec![u64::MAX, 11]);
    assert_eq!(refused(Axis::new(10, 2, &wraps, 0)), ErrorKind::TooLarge);
}

#[test]
fn a_range_of_an_axis_is_owned_as_before() {
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let (len, procs) = (random.within(0, 60), random.within(1, 5));
        let (deal, first) = random_deal(&mut random, len, procs);
        let axis = Axis::new(len, procs, &deal, first).unwrap();
        let (one, other) = (random.within(0, axis.len()), random.within(0, axis.len()));
        let range = one.min(other)..one.max(other);
        let within = axis.within(range.clone()).unwrap();
        assert_eq!(
            (within.len(), within.procs()),
            (range.end - range.start, axis.procs()),
            "{axis:?} {range:?}"
        );
        assert_eq!(within.is_replicated(), axis.is_replicated());
        for process in 0..axis.procs() {
            let inside = |axis: &Axis, range: &std::ops::Range<u64>| -> Vec<u64> {
                let has = |&index: &u64| axis.is_replicated() || axis.owner(index) == Some(process);
                range.clone().filter(has).collect()
            };
            let (before, here) = (inside(&axis, &(0..range.start)), inside(&axis, &range));
            let local = axis.local_range(process, &range);
            let expected = before.len() as u64..(before.len() + here.len()) as u64;
            assert!(
                local == expected || (local.is_empty() && here.is_empty()),
                "{axis:?} {range:?} {process}"
            );
            let found: Vec<u64> =
                inside(&within, &(0..within.len())).iter().map(|index| index + range.start).collect();
            assert_eq!(found, here, "{axis:?} {range:?} {process}");
        }
    }
    assert!(Axis::block_cyclic(10, 3, 2, 0).unwrap().within(4..11).is_err());
}
