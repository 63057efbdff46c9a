//! Rings between processes: every rank its own items, by value; and ranks that mean something else, or do not come.

#[path = "../../../reshard-ring/tests/oracle/mod.rs"]
mod oracle;

use crate::world::World;
use oracle::Items;
pub use oracle::any_ring;
use reshard::ErrorKind;
use reshard_mpi::{MpiRing, MpiRingOptions};
use reshard_ring::{Direction, Program, RingPlan, RingProblem, Side, Transfer};
use reshard_testkit::Random;
use std::sync::Arc;
use std::time::Duration;

/// All ranks draw the same rings, of as many processes as there are ranks or fewer, and each looks at its own part. Twice:
/// what one run leaves behind must not disturb the next.
pub fn any(world: &dyn World, seed: u64, rings: u64) {
    let mut random = Random::new(seed);
    for ring in 0..rings {
        let size = world.size() as u64;
        let procs = if random.one_in(4) { random.within(1, size) } else { size };
        let (most_items, item_bytes) = match random.within(0, 9) {
            0 => (6, random.within(1, 6_000)),
            1 => (20, random.within(40_000, 80_000)),
            2 => (3_000, random.within(1, 30)),
            _ => (40, random.within(1, 100)),
        };
        let problem = any_ring(&mut random, procs as usize, most_items);
        let plan = Arc::new(RingPlan::solved(problem, item_bytes as usize).unwrap());
        let links: usize =
            (0..plan.procs()).map(|rank| plan.program().of_rank(rank as u64).receives.len()).sum();
        let most = random.within(0, 4 * (links as u64 + 1) * item_bytes);
        let memory = random.one_in(2).then_some(most);
        let options =
            MpiRingOptions::default().with_memory(memory).with_deadline(Some(Duration::from_secs(1200)));
        let mut engine = match MpiRing::new(Arc::clone(&plan), world, options) {
            Ok(engine) => engine,
            Err(error) if error.kind() == ErrorKind::Memory => {
                assert!(error.to_string().contains("needs at least"), "{error}");
                MpiRing::new(Arc::clone(&plan), world, options.with_memory(None)).unwrap()
            }
            Err(error) => panic!("{error}: {plan:?}"),
        };
        let mut scratch = [engine.scratch_bytes()];
        world.sum(&mut scratch);
        let senders = (0..plan.procs()).filter(|&rank| !plan.program().sends(rank as u64).is_empty()).count();
        // A fragment has an envelope of 32 bytes.
        assert!(scratch[0] <= 2 * 3 * senders as u64 * (item_bytes.max(1 << 16) + 32));
        for run in 0..2 {
            run_once(world, &mut engine, 2 * ring + run);
        }
    }
}

/// A program of one's own in which items go round: each process waits for what comes before it can send all, so nobody may
/// wait for a fragment to become full.
pub fn round(world: &dyn World) {
    let procs = world.size();
    let ring = RingProblem::new(vec![2; procs], vec![2; procs]).unwrap();
    for side in [Side::Right, Side::Left] {
        let transfer = |from: u64| Transfer { from, side, items: 9, start: 0, end: 9 };
        let program = Program::new(procs, (0..procs as u64).map(transfer).collect());
        let plan = Arc::new(RingPlan::new(ring.clone(), program, 3).unwrap());
        let options = MpiRingOptions::default().with_deadline(Some(Duration::from_secs(1200)));
        let mut engine = MpiRing::new(plan, world, options).unwrap();
        for run in 0..2 {
            run_once(world, &mut engine, run);
        }
    }
}

/// Runs a ring once, and looks at all parts of all ranks.
pub fn run_once(world: &dyn World, engine: &mut MpiRing, seed: u64) {
    let plan = Arc::clone(engine.plan());
    let items = Items::new(plan.problem(), plan.item_bytes(), seed);
    let rank = world.rank();
    if rank >= plan.procs() {
        assert_eq!(engine.room(), 0);
        assert_eq!(engine.run(&mut [0_u8; 0]).unwrap().hops, 0);
    }
    let mut part = if rank < plan.procs() { items.part(rank, engine.room()) } else { Vec::new() };
    let report = engine.run(&mut part).unwrap_or_else(|error| panic!("{error}: {plan:?}"));
    let held = if rank < plan.procs() { items.held(rank, engine.room(), &part) } else { &[] };
    // All parts, each as long as the longest could be, to look at them together; Open MPI refuses to gather nothing.
    let most = plan.problem().targets().iter().max().copied().unwrap_or(0) as usize * plan.item_bytes() + 1;
    let mut mine = held.to_vec();
    mine.resize(most, 0);
    let all = world.gather(&mine);
    let targets = plan.problem().targets().iter().enumerate();
    let held: Vec<u8> = targets
        .flat_map(|(rank, &target)| all[rank * most..][..target as usize * plan.item_bytes()].to_vec())
        .collect();
    items.check_all(&held);
    let mut hops = [report.hops];
    world.sum(&mut hops);
    assert_eq!(hops[0], plan.hops());
}

/// One rank is given something else: all ranks are told, by the same sentence, which names that rank.
pub fn disagreement(world: &dyn World, seed: u64) {
    let mut random = Random::new(seed);
    let procs = world.size();
    let options = MpiRingOptions::default().with_deadline(Some(Duration::from_secs(1200)));
    let ring = || RingProblem::new(vec![4; procs], vec![4; procs]);
    for what in 0..8 {
        let odd = random.within(0, procs as u64 - 1) as usize;
        let is_odd = world.rank() == odd;
        let (mut problem, mut item_bytes, mut options) = (ring(), 8, options);
        if is_odd {
            let mut other = vec![4; procs];
            (other[0], other[1]) = (3, 5);
            problem = match what {
                0 => RingProblem::new(other, vec![4; procs]),
                1 => RingProblem::new(vec![4; procs], other),
                2 => ring().and_then(RingProblem::in_order),
                3 => ring().and_then(|ring| ring.with_direction(Direction::Uni)),
                4 => ring().and_then(|ring| ring.with_right(vec![2; procs])),
                // Cannot be stated at all.
                5 => RingProblem::new(vec![5; procs], vec![4; procs]),
                _ => problem,
            };
            item_bytes = if what == 6 { 7 } else { 8 };
            options.memory = (what == 7).then_some(1 << 20);
        }
        let error = MpiRing::of_problem(problem, item_bytes, world, options).err().expect("ranks disagree");
        let says = if what == 5 {
            format!("rank {odd}: the loads add up to")
        } else {
            format!("rank {odd} was given")
        };
        assert!(error.to_string().contains(&says), "{what}: {error}");
        let mut words = [b' '; 600];
        words[..error.to_string().len()].copy_from_slice(error.to_string().as_bytes());
        let all = world.gather(&words);
        assert!(all.chunks_exact(600).all(|other| other == words), "{what}: all are told the same");
    }
    // And when all agree again, all is well; a ring for more ranks than there are is not.
    let mut engine = MpiRing::of_problem(ring(), 8, world, options).unwrap();
    assert_eq!(engine.run(&mut vec![7_u64; engine.room()]).unwrap().bytes, 0);
    let error = engine.run(&mut [0_u8; 31]).unwrap_err();
    assert!(error.to_string().contains("has 31 bytes; it needs room for 4 items of 8 bytes"), "{error}");
    let more = RingProblem::new(vec![1; procs + 1], vec![1; procs + 1]);
    let error = MpiRing::of_problem(more, 8, world, options).err().expect("there are too few ranks");
    assert!(error.to_string().contains(&format!("; start {} processes", procs + 1)), "{error}");
}

/// A rank that never calls is named: where the ring is made, and where it is run.
pub fn absence(world: &dyn World, when: &str) {
    let options = MpiRingOptions::default().with_deadline(Some(Duration::from_millis(300)));
    let ring = || RingProblem::new(vec![40, 0, 0], vec![0, 20, 20]);
    world.communicator();
    if when == "make" {
        if world.rank() != 1 {
            let error = MpiRing::of_problem(ring(), 8, world, options).err().expect("rank 1 is not here");
            assert!(error.to_string().contains("rank 1 did not answer"), "{error}");
        }
    } else {
        let mut engine = MpiRing::of_problem(ring(), 8, world, options).unwrap();
        if world.rank() != 1 {
            let mut part = vec![0_u64; engine.room()];
            // Rank 2 gets its items from rank 0, which is here.
            match engine.run(&mut part) {
                Err(error) => {
                    assert!(error.to_string().contains("for rank 1: it has exited"), "{error}");
                    assert!(error.to_string().contains("in place is only partly written"), "{error}");
                    let said = engine.run(&mut part).unwrap_err().to_string();
                    assert!(
                        said.contains("an earlier run failed") || said.contains("cannot go on"),
                        "{said}"
                    );
                }
                Ok(_) => assert_eq!(world.rank(), 2),
            }
        }
    }
    if world.rank() == 0 {
        let error = MpiRing::of_problem(ring(), 8, world, options).err().expect("the ranks are out of step");
        // A run that failed is no reason to refuse another ring; but nobody else makes one here.
        let says = if when == "make" { "use another communicator" } else { "did not answer in time" };
        assert!(error.to_string().contains(says), "{error}");
    }
    world.meet();
}
