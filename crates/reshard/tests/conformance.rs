//! Every engine against one suite, by value.

#![allow(clippy::unwrap_used)]

use reshard::engine::{Engine, Threads};
use reshard::{Plan, Redistribution};
use reshard_testkit::conformance::{Case, Kinds};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

fn judge(case: &Case, engine: impl Engine + 'static) {
    case.judge(|_, from, to| {
        let mut redistribution = Redistribution::with(engine);
        redistribution.run_bytes(from, to).unwrap_or_else(|error| panic!("{error}: {case:?}"));
    });
}

fn sweep(seed: u64, cases: u64, kinds: &Kinds) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        for engine in Threads::every_way(&plan, 1 + number as usize % 2).unwrap() {
            judge(&case, engine);
        }
    }
}

#[test]
fn threads_in_every_way() {
    sweep(7, if full_sweep() { 90_000 } else { 2_000 }, &Kinds::default());
}

#[test]
fn threads_in_every_way_on_larger_arrays() {
    sweep(8, if full_sweep() { 10_000 } else { 300 }, &Kinds { elems: 20_000, ..Kinds::default() });
}
