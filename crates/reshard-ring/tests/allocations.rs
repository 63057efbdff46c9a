//! Engines for rings allocate the memory they report when they are made, and none when they run.
//!
//! Every allocation of every thread is counted, so this is a program of its own, without a test harness that prints and
//! allocates at the same time.

#![allow(clippy::unwrap_used)]

mod oracle;

use oracle::{Items, any_ring};
use reshard_ring::{RingMessages, RingPlan, RingThreads};
use reshard_testkit::allocations::{Counting, counted};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Checks that engines for rings allocate their message buffers when they are made, no more than reported plus a fixed amount
/// for each process and its thread, and nothing when they run.
fn check_ring(random: &mut Random) {
    let procs = random.within(1, 9) as usize;
    let item_bytes = random.within(1, 20_000) as usize;
    let ring = any_ring(random, procs, 60);
    let plan = Arc::new(RingPlan::solved(ring, item_bytes).unwrap());
    let items = Items::new(plan.problem(), item_bytes, 1);
    let mut threads = RingThreads::new(Arc::clone(&plan));
    let max_bytes = RingMessages::new(Arc::clone(&plan), None).unwrap().scratch_bytes();
    let memory = random.one_in(2).then(|| random.within(max_bytes / 2, max_bytes));
    let (made, _, bytes) = counted(|| RingMessages::new(Arc::clone(&plan), memory));
    let Ok(mut messages) = made else { return };
    let (reported, overhead) = (messages.scratch_bytes(), 8_000 * procs as u64);
    assert!(bytes <= reported + overhead, "{bytes} bytes were allocated and {reported} reported: {plan:?}");
    assert!(bytes >= reported && memory.is_none_or(|memory| reported <= memory));
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
