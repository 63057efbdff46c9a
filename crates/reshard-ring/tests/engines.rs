//! The engines for rings, checked by value: every item of every process, and the rest of its memory.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod oracle;

use oracle::{Items, any_ring};
use reshard::{ErrorKind, Layout, MemoryOrder, redistribute};
use reshard_plan::Distribution;
use reshard_ring::{
    Direction, Program, RingMessages, RingPlan, RingProblem, RingThreads, Side, Transfer, even_out,
};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

/// An engine within one process; both must give the same result.
enum Engine {
    Threads(RingThreads),
    Messages(Box<RingMessages>),
}

impl Engine {
    fn run(&mut self, parts: &mut [Vec<u8>]) -> reshard::Result<reshard_ring::Report> {
        match self {
            Self::Threads(engine) => engine.run(parts),
            Self::Messages(engine) => engine.run(parts),
        }
    }
}

/// Runs an engine twice with different items and checks the results. Returns the messages of the second run.
fn run_twice(plan: &Arc<RingPlan>, engine: &mut Engine, seed: u64) -> u64 {
    let mut messages = 0;
    for run in 0..2 {
        let items = Items::new(plan.problem(), plan.item_bytes(), 2 * seed + run);
        let mut parts: Vec<Vec<u8>> =
            (0..plan.procs()).map(|rank| items.part(rank, plan.room(rank))).collect();
        let report = engine.run(&mut parts).unwrap_or_else(|error| panic!("{error}: {plan:?}"));
        assert_eq!((report.hops, report.bytes), (plan.hops(), plan.bytes()));
        messages = report.messages;
        let held: Vec<&[u8]> =
            parts.iter().enumerate().map(|(rank, part)| items.held(rank, plan.room(rank), part)).collect();
        items.check_all(&held.concat());
    }
    messages
}

/// A random ring of up to `max_procs` processes, with items from 1 byte to several kilobytes.
fn any_plan(random: &mut Random, max_procs: u64) -> Arc<RingPlan> {
    let procs = random.within(1, max_procs) as usize;
    let (max_items, item_bytes) = match random.within(0, 9) {
        0 => (6, random.within(1, 6_000)),
        1 => (30, random.within(40_000, 80_000)),
        2 => (3_000, random.within(1, 30)),
        _ => (40, random.within(1, 100)),
    };
    let plan = RingPlan::solved(any_ring(random, procs, max_items), item_bytes as usize).unwrap();
    for rank in 0..procs {
        let (load, target) = (plan.problem().loads()[rank], plan.problem().targets()[rank]);
        assert!(plan.room(rank) as u64 <= load.max(target).max(1), "{plan:?}");
    }
    Arc::new(plan)
}

const RINGS: u64 = 150;

#[test]
fn threads_run_any_ring() {
    let mut random = Random::new(21);
    let mut kinds = std::collections::BTreeMap::new();
    for ring in 0..if full_sweep() { 20_000 } else { RINGS } {
        let plan = any_plan(&mut random, 12);
        run_twice(&plan, &mut Engine::Threads(RingThreads::new(Arc::clone(&plan))), ring);
        let problem = plan.problem();
        *kinds.entry((problem.direction() == Direction::Uni, problem.is_ordered())).or_insert(0) += 1;
    }
    println!("(one way, in order): {kinds:?}");
    assert!(kinds.len() == 4 && kinds.values().all(|&count| count >= 5), "{kinds:?}");
}

#[test]
fn messages_run_any_ring_in_any_memory() {
    let mut random = Random::new(22);
    let mut limited = 0;
    for ring in 0..if full_sweep() { 5_000 } else { RINGS } {
        let plan = any_plan(&mut random, 12);
        let unlimited = RingMessages::new(Arc::clone(&plan), None).unwrap();
        let max_bytes = unlimited.scratch_bytes();
        let senders = (0..plan.procs()).filter(|&rank| !plan.program().sends(rank as u64).is_empty()).count();
        let min_bytes = (senders * plan.item_bytes()) as u64;
        assert!(max_bytes <= 2 * senders as u64 * (plan.item_bytes() as u64).max(1 << 16), "{plan:?}");
        run_twice(&plan, &mut Engine::Messages(Box::new(unlimited)), ring);
        let memory = [min_bytes, random.within(min_bytes, max_bytes)][random.within(0, 1) as usize];
        let engine = RingMessages::new(Arc::clone(&plan), Some(memory)).unwrap();
        assert!(engine.scratch_bytes() <= memory, "{} of {memory}: {plan:?}", engine.scratch_bytes());
        limited += u64::from(engine.scratch_bytes() < max_bytes);
        run_twice(&plan, &mut Engine::Messages(Box::new(engine)), ring);
        if let Some(less) = min_bytes.checked_sub(1) {
            let error = RingMessages::new(Arc::clone(&plan), Some(less)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Memory);
            assert!(error.to_string().contains(&format!("at least {min_bytes} bytes")), "{error}");
        }
    }
    assert!(limited > RINGS / 2, "{limited}");
}

/// Messages stay long through a process that has room for one item only.
#[test]
fn items_passed_on_travel_in_long_messages() {
    let ring = RingProblem::new(vec![40_000, 1, 0, 0], vec![0, 1, 0, 40_000]).unwrap().in_order().unwrap();
    let plan = Arc::new(RingPlan::solved(ring, 8).unwrap());
    assert_eq!((1..4).map(|rank| plan.room(rank)).collect::<Vec<_>>(), [1, 1, 40_000]);
    let mut engine = Engine::Messages(Box::new(RingMessages::new(Arc::clone(&plan), None).unwrap()));
    let messages = run_twice(&plan, &mut engine, 1);
    // Five messages carry all items over a link. A process that passes items on sends a message when it is full, and one that
    // is not full when it has unpacked all that arrived: at most 5, 5 + 5 and 10 + 5 messages.
    assert!((15..=30).contains(&messages), "{messages} messages");
    run_twice(&plan, &mut Engine::Threads(RingThreads::new(Arc::clone(&plan))), 1);
}

/// A redistribution of a matrix between two GEN_BLOCK layouts is a ring in order whose items are columns.
#[test]
fn columns_of_a_matrix_move_as_the_library_moves_them() {
    let mut random = Random::new(23);
    for case in 0..60 {
        let (rows, procs) = (random.within(1, 9), random.within(1, 7) as usize);
        let ring = any_ring(&mut random, procs, 12);
        let ring = RingProblem::between_gen_blocks(ring.loads(), ring.targets()).unwrap();
        let cols: u64 = ring.loads().iter().sum();
        if cols == 0 {
            continue;
        }
        let layout = |sizes: &[u64]| {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            let text = format!("(*, gen_block({})) on 1x{procs} of {rows}x{cols}", sizes.join(","));
            Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor)
        };
        let mut next = 0..;
        let parts: Vec<Vec<f64>> = ring
            .loads()
            .iter()
            .map(|&columns| next.by_ref().take((columns * rows) as usize).map(f64::from).collect())
            .collect();
        let mut expected: Vec<Vec<f64>> =
            ring.targets().iter().map(|&columns| vec![-1.0; (columns * rows) as usize]).collect();
        redistribute(&layout(ring.loads()), &parts, &layout(ring.targets()), &mut expected).unwrap();
        let mut found = parts.clone();
        even_out(ring.clone(), rows as usize, &mut found).unwrap();
        assert_eq!(found, expected, "{case}");
        let plan = Arc::new(RingPlan::solved(ring, 8 * rows as usize).unwrap());
        let mut found = parts;
        for (rank, part) in found.iter_mut().enumerate() {
            part.resize(plan.room(rank) * rows as usize, 0.0);
        }
        RingMessages::new(plan, None).unwrap().run(&mut found).unwrap();
        assert!(
            found.iter().zip(&expected).all(|(found, expected)| found[..expected.len()] == expected[..]),
            "{case}"
        );
    }
}

/// Without an order, the flows of the caller's own programs may have cycles: then there is room for all items received.
#[test]
fn own_programs_may_have_cycles() {
    let ring = RingProblem::new(vec![2, 2, 2], vec![2, 2, 2]).unwrap();
    let to_the = |side: Side| {
        let transfer = |from: u64| Transfer { from, side, items: 9, start: 0, end: 9 };
        (0..3).map(transfer).collect::<Vec<_>>()
    };
    for transfers in [to_the(Side::Right), to_the(Side::Left)] {
        let plan = RingPlan::new(ring.clone(), Program::new(3, transfers), 3).unwrap();
        let plan = Arc::new(plan);
        assert_eq!(plan.room(1), 11);
        run_twice(&plan, &mut Engine::Threads(RingThreads::new(Arc::clone(&plan))), 3);
        for memory in [None, Some(9)] {
            let engine = RingMessages::new(Arc::clone(&plan), memory).unwrap();
            run_twice(&plan, &mut Engine::Messages(Box::new(engine)), 3);
        }
    }
    // Both ways over one link, which is refused if items are in order.
    let both = [(0, Side::Right), (1, Side::Left)];
    let transfers = both.map(|(from, side)| Transfer { from, side, items: 1, start: 0, end: 1 }).to_vec();
    let plan = RingPlan::new(ring.clone(), Program::new(3, transfers.clone()), 3).unwrap();
    assert_eq!((0..3).map(|rank| plan.room(rank)).collect::<Vec<_>>(), [3, 3, 2]);
    run_twice(&Arc::new(plan.clone()), &mut Engine::Threads(RingThreads::new(Arc::new(plan))), 4);
    let error = RingPlan::new(ring.in_order().unwrap(), Program::new(3, transfers), 3).unwrap_err();
    assert!(error.to_string().contains("processes 0 and 1 send each other items"), "{error}");
}

#[test]
fn plans_and_parts_that_cannot_be_run_are_refused() {
    let ring = || RingProblem::new(vec![3, 1], vec![2, 2]).unwrap();
    let refused = |plan: reshard::Result<RingPlan>, says: &str| {
        let error = plan.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(RingPlan::solved(ring(), 0), "items of 0 bytes were given");
    refused(RingPlan::solved(ring(), usize::MAX / 2), "do not fit in any memory");
    refused(RingPlan::new(ring(), Program::new(2, vec![]), 1), "process 0");
    refused(RingPlan::new(ring(), Program::new(3, vec![]), 1), "3 processes");
    let plan = Arc::new(RingPlan::solved(ring(), 4).unwrap());
    let mut threads = RingThreads::new(Arc::clone(&plan));
    let mut messages = RingMessages::new(plan, None).unwrap();
    let mut says = |mut parts: Vec<Vec<u8>>, says: &str| {
        let before = parts.clone();
        for error in [threads.run(&mut parts).unwrap_err(), messages.run(&mut parts).unwrap_err()] {
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(parts, before);
    };
    says(vec![vec![0; 12]], "1 part was given for a ring of 2 processes");
    says(
        vec![vec![0; 12], vec![0; 7]],
        "the part of process 1 has 7 bytes; it needs room for 2 items of 4 bytes, which",
    );
    let error = threads.run(&mut [vec![0_u64; 3], vec![0; 3]]).unwrap_err();
    assert!(error.to_string().contains("values of 8 bytes were given for items of 4 bytes"), "{error}");
    let error = even_out(ring(), 1, &mut [vec![1, 2, 3], vec![]]).unwrap_err();
    assert!(error.to_string().contains("process 1 has 0 values; its 1 items of 1 values are 1"), "{error}");
    let error = even_out(ring(), 1, &mut [vec![1, 2, 3]]).unwrap_err();
    assert!(error.to_string().contains("1 part was given"), "{error}");
    let wide = RingPlan::solved(RingProblem::new(vec![1; 5_000], vec![1; 5_000]).unwrap(), 1).unwrap();
    let error = RingMessages::new(Arc::new(wide), None).err().unwrap();
    assert!(error.to_string().contains("at most 4096 are started"), "{error}");
}

/// If the use of a part panics, no other process waits for that process, and the next run works.
#[test]
fn a_process_that_panics_is_named() {
    struct Part(Vec<u8>, u32);
    impl AsMut<[u8]> for Part {
        fn as_mut(&mut self) -> &mut [u8] {
            self.1 = self.1.wrapping_sub(1);
            if self.1 == 0 {
                // A panic without the message of the panic hook.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            &mut self.0
        }
    }
    let ring = RingProblem::new(vec![4, 0, 0], vec![0, 0, 4]).unwrap().in_order().unwrap();
    let plan = Arc::new(RingPlan::solved(ring, 1).unwrap());
    let mut engine = RingMessages::new(plan, None).unwrap();
    let mut parts = [Part(vec![1, 2, 3, 4], 9), Part(vec![0], 2), Part(vec![0; 4], 9)];
    let error = engine.run(&mut parts).unwrap_err();
    assert!(
        error.to_string().contains("process 1 panicked: on purpose; the items are only partly written"),
        "{error}"
    );
    let mut parts = [vec![1, 2, 3, 4], vec![0_u8], vec![0; 4]];
    engine.run(&mut parts).unwrap();
    assert_eq!(parts[2], [1, 2, 3, 4]);
}
