//! Every engine against one suite, by value.

#![allow(clippy::unwrap_used)]

use reshard::engine::{Engine, Messages, MessagesOptions, Threads};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Plan, Redistribution};
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
        // The slice takes every case in every way, the whole sweep each in one: thousands of cases for each.
        let ways = if full_sweep() { number as usize..number as usize + 1 } else { 0..Threads::ways() };
        for way in ways {
            let threads = 1 + number as usize / Threads::ways() % 2;
            judge(&case, Threads::in_way(&plan, threads, way % Threads::ways()).unwrap());
        }
    }
}

#[test]
fn threads_in_every_way() {
    sweep(7, if full_sweep() { 100_000 } else { 2_000 }, &Kinds::default());
}

#[test]
fn threads_in_every_way_on_larger_arrays() {
    sweep(8, if full_sweep() { 20_000 } else { 300 }, &Kinds { elems: 20_000, ..Kinds::default() });
}

/// Every strategy that accepts the case, with all the memory it likes, with the least it can do with, and something in
/// between; with barriers and without. Returns how many runs that were.
fn sweep_messages(seed: u64, cases: u64, kinds: &Kinds) -> u64 {
    let mut random = Random::new(seed);
    let mut runs = 0;
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        for strategy in Strategy::ALL {
            let options = MessagesOptions { strategy, barriers: random.one_in(2), ..Default::default() };
            let engine = match Messages::new(Arc::clone(&plan), options) {
                Ok(engine) => engine,
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                Err(error) => panic!("{error}: {strategy}: {case:?}"),
            };
            let (least, most) = (engine.least_bytes(), engine.scratch_bytes());
            assert!(least <= most, "{least} bytes are needed and {most} are used");
            let memory = match (number + strategy as u64) % 3 {
                0 => None,
                1 => Some(least),
                _ => Some(random.within(least, most)),
            };
            let engine = match memory {
                None => engine,
                Some(_) => Messages::new(Arc::clone(&plan), MessagesOptions { memory, ..options }).unwrap(),
            };
            assert!(memory.is_none_or(|memory| engine.scratch_bytes() <= memory));
            judge(&case, engine);
            runs += 1;
        }
    }
    runs
}

#[test]
fn messages_by_every_strategy_in_any_memory() {
    let kinds = Kinds { procs: 3, elems: 600, dims: 1..4, ..Kinds::default() };
    let runs = sweep_messages(9, if full_sweep() { 5_000 } else { 150 }, &kinds);
    assert!(runs > if full_sweep() { 30_000 } else { 900 }, "{runs} runs");
}

#[test]
fn messages_between_many_ranks() {
    sweep_messages(10, if full_sweep() { 400 } else { 12 }, &Kinds { dims: 2..5, ..Kinds::default() });
}

#[test]
fn messages_of_larger_arrays() {
    let kinds = Kinds { elems: 60_000, dims: 1..4, procs: 3, ..Kinds::default() };
    sweep_messages(11, if full_sweep() { 600 } else { 12 }, &kinds);
}
