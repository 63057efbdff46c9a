//! Many faults, each followed by runs on the same communicator; and many engines, more than there are tags.

use crate::programs::Load;
use crate::rank::usable;
use crate::trust;
use crate::world::World;
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own};
use reshard_plan::Distribution;
use reshard_testkit::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LONG: Option<Duration> = Some(Duration::from_secs(1200));
const DEADLINE: Duration = Duration::from_millis(150);

const MOVERS: [Mover; 7] = [
    Mover::Private,
    Mover::Cma,
    Mover::Messages,
    Mover::Mixed,
    Mover::Lockstep,
    Mover::Shared,
    Mover::SharedSource,
];

/// What one rank does wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It gives too few arrays.
    Refused,
    /// It never begins the run.
    Absent,
    /// It comes when the others have given up.
    Late,
    /// It is stopped in the middle, and goes on when the others have given up.
    Stopped,
    Forgotten,
    Panicked,
}

const FAULTS: [Fault; 6] =
    [Fault::Refused, Fault::Absent, Fault::Late, Fault::Stopped, Fault::Forgotten, Fault::Panicked];

/// Runs a number of faults on all movers in turn. Each run ends with the right data or an error that names somebody; the next run, of an
/// engine that was there before or of a new one, with the right data.
pub fn faults(world: &dyn World, seed: u64, count: u64) {
    let mut random = Random::new(seed);
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    // Of each fault: on how many ranks the run ended well all the same, and with an error.
    let mut counts = [[0_u64; 2]; FAULTS.len()];
    let has_cma = usable(world, "cma") == Mover::Cma;
    for trial in 0..count {
        let mut mover = MOVERS[trial as usize % MOVERS.len()];
        let number = random.within(0, FAULTS.len() as u64 - 1) as usize;
        let fault = FAULTS[number];
        let faulty = random.within(0, world.size() as u64 - 1) as usize;
        let mut load = Load::random(&mut random, world);
        let plan = load.plan();
        if mover == Mover::Cma && (load.has_triangle() || !has_cma) {
            mover = Mover::Private;
        }
        let limit = |deadline| {
            MpiOptions::default().with_mover(mover).with_deadline(deadline).with_setup_deadline(trust::LONG)
        };
        let make = |deadline| MpiEngine::in_tasks(Arc::clone(&plan), world, limit(deadline), 256).unwrap();
        let mut before = make(LONG);
        let mut engine = make(Some(DEADLINE));
        load.fill(world, mover);
        let begin = Instant::now();
        let outcome = match world.rank() == faulty {
            true => go_wrong(world, fault, trial % 4 < 2, &mut engine, &mut load),
            false => load.start(&mut engine).and_then(reshard_mpi::Running::wait).map(|_| true),
        };
        match outcome {
            Ok(true) => {
                load.check();
                counts[number][0] += 1;
            }
            Ok(false) => {}
            Err(error) => {
                let said = error.to_string();
                let names = said.contains("rank") || world.rank() == faulty;
                assert!(names, "trial {trial}: {fault:?} of rank {faulty}, {mover}: {said}");
                counts[number][1] += 1;
            }
        }
        let took = begin.elapsed();
        assert!(took < trust::SOON, "trial {trial}: {fault:?} of rank {faulty}, {mover}: {took:?}");
        drop(engine);
        for follows in [&mut before, &mut make(LONG)] {
            load.fill(world, mover);
            let outcome = load.start(follows).and_then(reshard_mpi::Running::wait);
            if let Err(error) = outcome {
                panic!("trial {trial}: after {fault:?} of rank {faulty}, {mover}: {error}");
            }
            load.check();
        }
    }
    let mut all = counts.as_flattened().to_vec();
    world.sum(&mut all);
    if world.rank() == 0 {
        let each: Vec<String> = FAULTS
            .iter()
            .zip(all.chunks_exact(2))
            .map(|(fault, of)| format!("{fault:?} {} and {}", of[0], of[1]))
            .collect();
        println!(
            "  {} ranks, {count} faults: runs with right data, and with an error: {}",
            world.size(),
            each.join(", ")
        );
    }
}

/// What the rank with the fault does, perhaps after it has moved something. Whether its run ended well.
fn go_wrong(
    world: &dyn World,
    fault: Fault,
    moves: bool,
    engine: &mut MpiEngine,
    load: &mut Load,
) -> reshard::Result<bool> {
    match fault {
        Fault::Refused => engine.start(&mut [][..]).and_then(reshard_mpi::Running::wait).map(|_| true),
        Fault::Absent => {
            sleep(2 * DEADLINE);
            Ok(false)
        }
        Fault::Late => {
            sleep(2 * DEADLINE);
            load.start(engine)?.wait().map(|_| true)
        }
        Fault::Stopped => {
            let mut running = load.start(engine)?;
            let early = if moves { running.test() } else { Ok(false) };
            world.stop_for(Duration::from_millis(400));
            early?;
            running.wait().map(|_| true)
        }
        Fault::Forgotten => {
            let mut running = load.start(engine)?;
            let early = if moves { running.test() } else { Ok(false) };
            std::mem::forget(running);
            early.map(|_| false)
        }
        Fault::Panicked => {
            let running = load.start(engine)?;
            let caught = catch_unwind(AssertUnwindSafe(move || {
                let _running = running;
                panic!("on purpose");
            }));
            assert!(caught.is_err());
            Ok(false)
        }
    }
}

/// Makes a number of engines on one communicator, two always in flight: their numbers wrap around the tags more than once, and memory
/// does not grow.
#[allow(unsafe_code)]
pub fn many_engines(world: &dyn World, count: u64) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let plan = |number: u64| {
        let elems = 40 + number % 7;
        let [from, to] = ["2/3", "2/5"].map(|side| layout(&format!("{side} of {elems}")));
        Arc::new(Plan::new(vec![Move::of::<f64>(from, to).unwrap()]).unwrap())
    };
    let values = |number: u64, side: &str| -> Vec<u64> {
        let elems = 40 + number % 7;
        let layout = layout(&format!("{side} of {elems}"));
        let owner = |at: u64| layout.distribution().local_from_global(&[at]).unwrap().0;
        (0..elems).filter(|&at| owner(at) == world.rank() as u64).map(|at| number << 8 | at).collect()
    };
    struct Flight {
        engine: *mut MpiEngine,
        from: *mut Vec<u64>,
        to: *mut Vec<u64>,
        running: reshard_mpi::Running<'static>,
    }
    let mut flight: Option<(u64, Flight)> = None;
    let mut memory = Vec::new();
    for number in 0..count {
        // One engine in ten is of another kind, and takes longer to make.
        let mover = if number % 10 == 9 { Mover::Private } else { Mover::Messages };
        let options = MpiOptions::default().with_mover(mover).with_deadline(LONG);
        let engine = Box::into_raw(Box::new(MpiEngine::new(plan(number), world, options).unwrap()));
        let from = Box::into_raw(Box::new(values(number, "2/3")));
        let to = Box::into_raw(Box::new(vec![u64::MAX; values(number, "2/5").len()]));
        // SAFETY: all three are on the heap, nobody else uses them, and they are freed below, after the run has ended.
        let running = unsafe { (*engine).start(Own::new(&*from, &mut *to)).unwrap() };
        let last = flight.replace((number, Flight { engine, from, to, running }));
        if let Some((number, Flight { engine, from, to, running })) = last {
            running.wait().unwrap();
            // SAFETY: the run has ended; made above, and given back once.
            let (engine, from, to) =
                unsafe { (Box::from_raw(engine), Box::from_raw(from), Box::from_raw(to)) };
            assert!(*to == values(number, "2/5"), "engine {number}");
            drop((engine, from));
        }
        if number >= count / 4 && number % (count / 4).max(1) == 0 {
            memory.push(crate::faults::resident());
        }
    }
    if let Some((_, Flight { running, .. })) = flight {
        running.wait().unwrap();
    }
    let (first, last) = (memory[0], memory[memory.len() - 1]);
    assert!(last < first + (8 << 20), "{memory:?} bytes of memory");
}
