//! Engines for rings take the memory they announce when they are made, and none when they run.
//!
//! Every allocation of every thread is counted, so this is a program of its own, without a harness that prints and allocates
//! beside it.

#![allow(clippy::unwrap_used)]

mod oracle;

use oracle::{Items, any_ring};
use reshard_ring::{RingMessages, RingPlan, RingThreads};
use reshard_testkit::allocations::{Counting, counted};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Engines for rings take their letters when they are made, no more than announced beside what they write down for each
/// process and what its thread takes, and nothing when they run.
fn check_ring(random: &mut Random) {
    let procs = random.within(1, 9) as usize;
    let item_bytes = random.within(1, 20_000) as usize;
    let ring = any_ring(random, procs, 60);
    let plan = Arc::new(RingPlan::solved(ring, item_bytes).unwrap());
    let items = Items::new(plan.problem(), item_bytes, 1);
    let mut threads = RingThreads::new(Arc::clone(&plan));
    let most = RingMessages::new(Arc::clone(&plan), None).unwrap().scratch_bytes();
    let memory = random.one_in(2).then(|| random.within(most / 2, most));
    let (made, _, bytes) = counted(|| RingMessages::new(Arc::clone(&plan), memory));
    let Ok(mut messages) = made else { return };
    let (announced, aside) = (messages.scratch_bytes(), 8_000 * procs as u64);
    assert!(bytes <= announced + aside, "{bytes} bytes were taken and {announced} announced: {plan:?}");
    assert!(bytes >= announced && memory.is_none_or(|memory| announced <= memory));
    for _ in 0..2 {
        let parts = || (0..procs).map(|rank| items.part(rank, plan.room(rank))).collect::<Vec<_>>();
        let (mut first, mut second) = (parts(), parts());
        let ((), calls, _) = counted(|| {
            threads.run(&mut first).unwrap();
            messages.run(&mut second).unwrap();
        });
        assert_eq!(calls, 0, "allocations in a run: {plan:?}");
    }
}

fn main() {
    let mut random = Random::new(12);
    for _ in 0..if full_sweep() { 1000 } else { 100 } {
        check_ring(&mut random);
    }
}
