//! Engines allocate at most the memory they announce, in their first run, and none after it.
//!
//! Every allocation of every thread is counted, so this is a program of its own, without a test harness that prints and
//! allocates at the same time.

#![allow(clippy::unwrap_used)]

use reshard::engine::{BufferTable, Engine, Messages, MessagesOptions, Threads};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Plan};
use reshard_testkit::allocations::{Counting, counted};
use reshard_testkit::conformance::{Case, Kinds};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Checks that the first run allocates at most what was announced, and the second nothing.
fn check(case: &Case, engine: &mut dyn Engine) {
    let announced = engine.scratch_bytes();
    let mut table = BufferTable::new(Arc::clone(engine.plan()));
    for run in 0..2 {
        let mut parts = case.parts();
        let (from, mut to) = case.slices(&mut parts);
        let mut data = table.fill();
        data.enter_bytes(0, &from, &mut to).unwrap();
        let (ran, calls, bytes) = counted(|| engine.run(&mut data));
        ran.unwrap_or_else(|error| panic!("{error}: {case:?}"));
        assert!(bytes <= announced, "{bytes} bytes were taken and {announced} announced: {case:?}");
        assert!(run == 0 || calls == 0, "{calls} allocations in a second run: {case:?}");
        drop((from, to));
        case.check(&parts);
    }
}

/// An engine with a random strategy; `None` if the strategy does not accept the plan.
fn messages(random: &mut Random, plan: &Arc<Plan>, memory: Option<u64>) -> Option<Messages> {
    let strategy = Strategy::ALL[random.within(0, Strategy::ALL.len() as u64 - 1) as usize];
    let options = MessagesOptions::default()
        .with_strategy(strategy)
        .with_memory(memory)
        .with_barriers(random.one_in(2));
    match Messages::new(Arc::clone(plan), options) {
        Ok(engine) => Some(engine),
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        Err(error) => panic!("{error}: {strategy}"),
    }
}

fn main() {
    let mut random = Random::new(12);
    let kinds = Kinds { procs: 3, dims: 1..4, ..Kinds::default() };
    let larger = Kinds { elems: 40_000, ..kinds.clone() };
    let pairs = if full_sweep() { 1000 } else { 30 };
    let mut done = 0;
    while done < pairs {
        let kinds = if random.one_in(10) { &larger } else { &kinds };
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        let engine = Messages::new(Arc::clone(&plan), MessagesOptions::default()).unwrap();
        let (min, max) = (engine.min_bytes(), engine.scratch_bytes());
        drop(engine);
        for memory in [None, Some(min), Some(random.within(min, max)), Some(2 * max)] {
            let Some(mut engine) = messages(&mut random, &plan, memory) else { continue };
            assert!(memory.is_none_or(|memory| engine.scratch_bytes() <= memory), "{case:?}");
            check(&case, &mut engine);
            done += 1;
        }
        check(&case, &mut Threads::new(plan, Some(2)).unwrap());
    }
}
