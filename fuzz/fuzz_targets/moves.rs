//! Any layouts, windows, strides, triangles and factors, on everything that runs plans in one process: every element is
//! compared with what it must be, and every byte around with what it was.

#![no_main]

#[path = "../../crates/reshard/tests/judged/mod.rs"]
mod judged;

use judged::{Judged, Sums, judge, run_packers, run_staged, single};
use libfuzzer_sys::fuzz_target;
use reshard::engine::{Messages, MessagesOptions, Threads};
use reshard::schedule::Strategy;
use reshard_testkit::Random;
use reshard_testkit::conformance::{C64, C128, Case, Kinds, Several};
use std::sync::Arc;

/// Plans with more ranks are not run by a thread for each: starting them would take all the time.
const MAX_THREADS: usize = 3;

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random::of_bytes(bytes);
    let (what, how) = (random.within(0, 9), random.within(0, 15));
    let (ranks, elems) = (random.within(1, 6), if random.one_in(16) { 300 } else { 25 });
    let kinds = Kinds { elems, procs: 3, own_strides: true, ranks: Some(ranks), ..Kinds::default() };
    match what {
        0 => run(&Sums::<f32, C128>::random(&mut random, &kinds), how, &mut random),
        1 => run(&Sums::<C64, f64>::random(&mut random, &kinds), how, &mut random),
        2 => run(&Several::random(&mut random, &kinds), how, &mut random),
        _ => run(&single(&Case::random(&mut random, &kinds)), how, &mut random),
    }
});

fn run(judged: &impl Judged, how: u64, random: &mut Random) {
    let plan = Arc::new(judged.plan());
    let way = random.within(0, Threads::ways() as u64 - 1) as usize;
    let strategy = Strategy::ALL[random.within(0, Strategy::ALL.len() as u64 - 1) as usize];
    let options = MessagesOptions::default().with_strategy(strategy).with_barriers(random.one_in(2));
    let bytes = [8, 100, 5_000][random.within(0, 2) as usize];
    let bytes = random.within(1, bytes);
    match how {
        // Not every strategy takes every plan.
        0 if plan.ranks().len() <= MAX_THREADS => {
            if let Ok(engine) = Messages::new(Arc::clone(&plan), options) {
                judge(judged, engine);
            }
        }
        1 => judge(judged, Threads::in_way(&plan, 2, way).expect("two threads")),
        0..6 => judge(judged, Threads::in_way(&plan, 1, way).expect("a thread")),
        6..10 => _ = run_staged(judged, bytes, way),
        _ => {
            let strategy = [Strategy::Optimal, Strategy::Async, Strategy::Split][bytes as usize % 3];
            run_packers(judged, &options.with_strategy(strategy), bytes as usize);
        }
    }
}
