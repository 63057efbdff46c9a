//! The closed form of message lengths against the overlaps: aligned and shifted, with common factors or without.

#![allow(clippy::unwrap_used)]

use reshard_plan::{Axis, Classes, Overlap, Quotient, Side, Sides};
use reshard_testkit::{Random, full_sweep};

/// Every pair of processes: the closed form is what one period of the overlap holds.
fn judge(sides: &Sides<'_>) {
    let classes = Classes::new(sides).unwrap();
    assert_eq!(classes.period(), u128::from(sides.extent()));
    let mut messages = 0;
    for sender in 0..sides.here().axis.procs() {
        let overlap = Overlap::new(sides, sender).unwrap();
        for receiver in 0..sides.there().axis.procs() {
            let counted = overlap.with_peer(receiver).elems();
            assert_eq!(
                classes.message_len(sender, receiver),
                u128::from(counted),
                "{sender} to {receiver} of {sides:?}"
            );
            assert_eq!(
                classes.class(sender, receiver).is_some(),
                counted > 0,
                "{sender} to {receiver} of {sides:?}"
            );
            messages += u64::from(counted > 0);
        }
    }
    let pairs = sides.here().axis.procs() * sides.there().axis.procs();
    assert_eq!(classes.is_complete(), messages == pairs, "{sides:?}");
    assert_eq!(classes.pairs(), u128::from(messages), "{sides:?}");
}

#[test]
fn lengths_in_closed_form_match_the_overlaps() {
    let mut random = Random::new(11);
    let most = if full_sweep() { 9 } else { 6 };
    for p in 1..=most {
        for q in 1..=most {
            for r in 1..=8 {
                for s in 1..=8 {
                    let period = lcm(p * r, q * s);
                    // One period from any place on either axis.
                    let len = period + 3 * r.max(s);
                    let from = Axis::block_cyclic(len, p, r, random.within(0, p - 1)).unwrap();
                    let to = Axis::block_cyclic(len, q, s, random.within(0, q - 1)).unwrap();
                    for (a, b) in [(0, 0), (random.within(0, len - period), random.within(0, len - period))] {
                        let (here, there) = (Side { axis: &from, offset: a }, Side { axis: &to, offset: b });
                        judge(&Sides::new(here, there, period).unwrap());
                    }
                }
            }
        }
    }
}

#[test]
fn lengths_at_any_size_do_not_wrap() {
    let max = reshard_plan::MAX_LEN;
    let mut random = Random::new(12);
    for _ in 0..20_000 {
        let mut axis = || {
            let procs = random.any_size(max).max(1);
            Axis::block_cyclic(max, procs, random.any_size(max).max(1), random.any_size(procs - 1)).unwrap()
        };
        let (from, to) = (axis(), axis());
        let classes = Classes::new(&Sides::whole(&from, &to).unwrap()).unwrap();
        let (p, q) = (random.any_size(from.procs() - 1), random.any_size(to.procs() - 1));
        // Nobody is owed more than the sender or the receiver holds of one period.
        let share = classes.period() / u128::from(from.procs()).max(u128::from(to.procs()));
        assert!(classes.period() == u128::MAX || classes.message_len(p, q) <= share);
    }
}

#[test]
fn the_sum_over_receivers_is_what_a_sender_holds() {
    for (p, r, q, s) in [(16, 3, 16, 5), (15, 12, 15, 20), (12, 4, 8, 3), (15, 2, 6, 3), (7, 10, 9, 4)] {
        let period = lcm(p * r, q * s);
        let (from, to) =
            (Axis::block_cyclic(period, p, r, 0).unwrap(), Axis::block_cyclic(period, q, s, 0).unwrap());
        let classes = Classes::new(&Sides::whole(&from, &to).unwrap()).unwrap();
        for sender in 0..p {
            let held: u128 = (0..q).map(|receiver| classes.message_len(sender, receiver)).sum();
            assert_eq!(held, u128::from(period / p));
        }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    (1..).map(|k| k * a).find(|multiple| multiple % b == 0).unwrap()
}

#[test]
fn the_quotient_lists_every_pair_of_every_class_once() {
    let mut random = Random::new(12);
    for _ in 0..1_000 {
        let mut number = |most| random.within(1, most);
        let (p, q, r, s) = (number(24), number(24), number(16), number(16));
        let period = lcm(p * r, q * s);
        let len = period + 40;
        let from = Axis::block_cyclic(len, p, r, random.within(0, p - 1)).unwrap();
        let to = Axis::block_cyclic(len, q, s, random.within(0, q - 1)).unwrap();
        let here = Side { axis: &from, offset: random.within(0, 40) };
        let there = Side { axis: &to, offset: random.within(0, 40) };
        let sides = Sides::new(here, there, period).unwrap();
        let classes = Classes::new(&sides).unwrap();
        let small = Quotient::new(&sides).unwrap().unwrap();
        let mut expected: Vec<_> = (0..p)
            .flat_map(|p| (0..q).map(move |q| (p, q)))
            .filter_map(|(p, q)| Some((classes.class(p, q)?, (p, q))))
            .collect();
        let mut found = Vec::new();
        for class in 0..classes.count() {
            for position in 0..small.positions() {
                for row_copy in 0..small.row_copies() {
                    for col_copy in 0..small.column_copies() {
                        found.push((class, small.pair(class as u64, position, row_copy, col_copy)));
                    }
                }
            }
        }
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{from:?} {to:?}");
        // A class decides the types of both ends.
        for (by_rows, types) in [(true, small.row_types()), (false, small.column_types())] {
            let mut type_of = std::collections::BTreeMap::new();
            for &(class, (p, q)) in &expected {
                let own = (class % u128::from(types)) as u64;
                let end = if by_rows { p } else { q };
                assert_eq!(*type_of.entry(end).or_insert(own), own, "{from:?} {to:?}");
            }
        }
    }
}
