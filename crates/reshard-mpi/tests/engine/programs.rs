//! Several engines in flight on one communicator: random programs, in which every rank goes its own way.

use crate::world::World;
use reshard::engine::MessagesOptions;
use reshard::{Error, ErrorKind, Layout, Plan};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own, OwnParts, Running, Shared};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Kinds, Parts};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Patience, not a limit of speed.
pub const DEADLINE: Option<Duration> = Some(Duration::from_secs(1200));

/// The arrays of one engine, and this rank's memory of them.
pub struct Load {
    cases: Vec<Case>,
    memory: Vec<Memory>,
    rank: u64,
}

struct Memory {
    parts: Parts,
    shared: [Option<Shared<u8>>; 2],
}

impl Load {
    /// Some cases for this number of ranks.
    pub fn random(random: &mut Random, world: &dyn World) -> Self {
        let count = if random.one_in(4) { random.within(2, 3) } else { 1 };
        let mut cases = Vec::new();
        while cases.len() < count as usize {
            let elems = if random.one_in(8) { 20_000 } else { 400 };
            let case =
                Case::random(random, &Kinds { elems, procs: 4, own_strides: true, ..Kinds::default() });
            let ranks = |layout: &Layout| layout.distribution().grid().sorted_ranks();
            let mut all = ranks(case.moving.from()).into_iter().chain(ranks(case.moving.to()));
            if all.all(|rank| rank < world.size() as u64) {
                cases.push(case);
            }
        }
        Self { cases, memory: Vec::new(), rank: world.rank() as u64 }
    }

    pub fn plan(&self) -> Arc<Plan> {
        // Each rank knows the strides of its own parts alone, and plans for no other.
        let moves = self.cases.iter().map(|case| case.seen_by(self.rank)).collect();
        Arc::new(Plan::for_rank(moves, self.rank).unwrap())
    }

    /// True if only a triangle of an array moves.
    pub fn has_triangle(&self) -> bool {
        self.cases.iter().any(|case| case.moving.triangle().is_some())
    }

    /// Memory for a run, as a mover wants it. Collective if it is shared.
    pub fn fill(&mut self, world: &dyn World, mover: Mover) {
        let rank = self.rank;
        let fill = |case: &Case| {
            let mut parts = case.parts();
            let (from, to) = own_slices(case, &mut parts, rank);
            let share = |bytes: &[u8]| {
                let mut shared = Shared::zeroed_within(world, bytes.len(), DEADLINE).unwrap();
                shared.copy_from_slice(bytes);
                shared
            };
            let shared = match mover {
                Mover::Shared => [Some(share(from)), Some(share(to))],
                Mover::SharedSource => [Some(share(from)), None],
                _ => [None, None],
            };
            Memory { parts, shared }
        };
        // Other values than in the run before.
        self.cases.iter_mut().for_each(|case| case.salt = case.salt.wrapping_mul(31).wrapping_add(7));
        self.memory = self.cases.iter().map(fill).collect();
    }

    /// Begins a run.
    pub fn start<'r>(&'r mut self, engine: &'r mut MpiEngine) -> reshard::Result<Running<'r>> {
        let Self { cases, memory, rank } = self;
        let mut arrays: Vec<Own<'r, u8>> = cases
            .iter()
            .zip(memory)
            .map(|(case, Memory { parts, shared: [from, to] })| {
                let (own_from, own_to) = own_slices(case, parts, *rank);
                match (from, to) {
                    (Some(from), Some(to)) => Own::shared(from, to).as_bytes(),
                    (Some(from), None) => Own::shared_source(from, own_to).as_bytes(),
                    _ => Own::new(own_from, own_to).as_bytes(),
                }
            })
            .collect();
        let mut arrays: Vec<&mut dyn OwnParts<'r>> =
            arrays.iter_mut().map(|own| own as &mut dyn OwnParts<'r>).collect();
        engine.start(&mut arrays[..])
    }

    /// Looks at every byte of this rank's destinations.
    pub fn check(&mut self) {
        for (case, Memory { parts, shared: [_, to] }) in self.cases.iter().zip(&mut self.memory) {
            if let Some(shared) = to {
                own_slices(case, parts, self.rank).1.copy_from_slice(shared);
            }
            case.check_rank(parts, self.rank);
        }
    }
}

/// A rank's parts of a case.
fn own_slices<'a>(case: &Case, parts: &'a mut Parts, rank: u64) -> (&'a [u8], &'a mut [u8]) {
    let place =
        |layout: &Layout| layout.distribution().grid().sorted_ranks().iter().position(|&other| other == rank);
    let (from, to) = case.slices(parts);
    let mine = place(case.moving.from()).map_or(&[][..], |source| from[source]);
    let room = place(case.moving.to()).and_then(|target| to.into_iter().nth(target));
    (mine, room.unwrap_or_default())
}

/// An engine for a load with any mover that takes it.
pub fn any_engine(random: &mut Random, load: &Load, world: &dyn World) -> MpiEngine {
    loop {
        let mover = Mover::ALL[random.within(0, Mover::ALL.len() as u64 - 1) as usize];
        let messages = MessagesOptions::default().with_barriers(random.one_in(4));
        let options = MpiOptions::default().with_mover(mover).with_messages(messages).with_deadline(DEADLINE);
        let task_bytes = random.within(64, 1 << 12);
        match MpiEngine::in_tasks(load.plan(), world, options, task_bytes) {
            Ok(engine) => return engine,
            // Not of triangles; not without MPI.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
}

/// What one rank of a program does to one of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its arrays are too few. Where the mover is one call of MPI, which has no deadline, the run is forgotten instead.
    Refused,
    Forgotten,
    Panicking,
    Abandoned,
}

impl Fate {
    pub fn any(random: &mut Random) -> Self {
        [Self::Refused, Self::Forgotten, Self::Panicking, Self::Abandoned][random.within(0, 3) as usize]
    }
}

/// Runs a number of programs of two to four engines. All ranks draw the same engines; what each does with them it draws for itself.
pub fn any(world: &dyn World, seed: u64, count: u64) {
    let mut random = Random::new(seed);
    let mut own = Random::new(seed ^ (world.rank() as u64 + 1) << 32);
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    // Of each mover: runs that were begun by all ranks, and that ended well on this one.
    let mut counts = vec![[0_u64; 2]; Mover::ALL.len()];
    for program in 0..count {
        let engines = random.within(2, 4) as usize;
        let mut loads: Vec<Load> = (0..engines).map(|_| Load::random(&mut random, world)).collect();
        let mut made: Vec<MpiEngine> =
            loads.iter_mut().map(|load| any_engine(&mut random, load, world)).collect();
        let faulty = random.one_in(6).then(|| {
            let fate = Fate::any(&mut random);
            (
                random.within(0, engines as u64 - 1) as usize,
                random.within(0, world.size() as u64 - 1) as usize,
                fate,
            )
        });
        let rounds = random.within(1, 3);
        for round in 0..rounds {
            let fault = faulty.filter(|_| round + 1 == rounds);
            loads.iter_mut().zip(&made).for_each(|(load, engine)| load.fill(world, engine.mover()));
            let outcome =
                catch_unwind(AssertUnwindSafe(|| play(world, &mut own, &mut made, &mut loads, fault, || ())));
            let ended = outcome.unwrap_or_else(|why| {
                eprintln!(
                    "rank {} of {}: seed {seed}, program {program}, round {round}",
                    world.rank(),
                    world.size()
                );
                resume_unwind(why)
            });
            for (number, (load, engine)) in loads.iter_mut().zip(&made).enumerate() {
                let count =
                    &mut counts[Mover::ALL.iter().position(|&other| other == engine.mover()).unwrap()];
                count[0] += 1;
                if ended[number] {
                    load.check();
                    count[1] += 1;
                }
            }
        }
    }
    let mut all: Vec<u64> = counts.into_iter().flatten().collect();
    world.sum(&mut all);
    if world.rank() == 0 {
        let each: Vec<String> = Mover::ALL
            .iter()
            .zip(all.chunks_exact(2))
            .filter(|(_, count)| count[0] > 0)
            .map(|(mover, count)| format!("{mover} {} of {}", count[1], count[0]))
            .collect();
        println!(
            "  {} ranks, {count} programs: ranks' runs that ended well: {}",
            world.size(),
            each.join(", ")
        );
    }
}

/// One round: which runs ended well, on this rank. One that has a fault may fail, no other, with an error that names a rank. `meanwhile`
/// is called when all runs are in flight.
pub fn play(
    world: &dyn World,
    own: &mut Random,
    engines: &mut [MpiEngine],
    loads: &mut [Load],
    fault: Option<(usize, usize, Fate)>,
    meanwhile: impl FnOnce(),
) -> Vec<bool> {
    let count = engines.len();
    let mut ended = vec![None; count];
    let one_call: Vec<bool> =
        engines.iter().map(|engine| matches!(engine.mover(), Mover::Alltoallv | Mover::Alltoallw)).collect();
    let mut waiting: Vec<Option<(&mut MpiEngine, &mut Load)>> =
        engines.iter_mut().zip(loads).map(Some).collect();
    let mut runs: Vec<Option<Running<'_>>> = (0..count).map(|_| None).collect();
    // Begun in any order, but those that MPI does in one call, in the same on all ranks.
    let mut order: Vec<usize> = (0..count).collect();
    (1..count).for_each(|k| order.swap(k, own.within(0, k as u64) as usize));
    let mut calls = (0..count).filter(|&number| one_call[number]);
    for number in &mut order {
        if one_call[*number] {
            *number = calls.next().unwrap();
        }
    }
    let may_fail = |number: usize| fault.is_some_and(|(faulty, ..)| faulty == number);
    let failed = |number: usize, error: &Error| {
        assert!(may_fail(number) && error.to_string().contains("rank"), "{fault:?}: {error}");
        Some(false)
    };
    for number in order {
        let (engine, load) = waiting[number].take().unwrap();
        let fate = fault.filter(|&(faulty, rank, _)| faulty == number && rank == world.rank());
        let fate = fate.map(|(.., fate)| fate);
        let started = match fate {
            Some(Fate::Refused) if !one_call[number] => {
                let error = engine.start(&mut [][..]).err().expect("arrays are missing");
                let text = error.to_string();
                assert!(text.contains("0 arrays were given") || text.contains("rank"), "{text}");
                ended[number] = Some(false);
                continue;
            }
            _ => load.start(engine),
        };
        match (fate, started) {
            (None, Ok(running)) => runs[number] = Some(running),
            (_, Err(error)) => ended[number] = failed(number, &error),
            (Some(fate), Ok(mut running)) => {
                let mut early = Ok(false);
                for _ in 0..own.within(0, 3) {
                    early = early.and_then(|_| running.test());
                }
                match fate {
                    Fate::Refused | Fate::Forgotten => std::mem::forget(running),
                    Fate::Panicking => {
                        let caught = catch_unwind(AssertUnwindSafe(move || {
                            let _running = running;
                            panic!("on purpose");
                        }));
                        assert!(caught.is_err());
                    }
                    Fate::Abandoned => {
                        let outcome = running.abandon("it was given up on purpose");
                        assert_eq!(outcome.is_ok(), matches!(early, Ok(true)) || one_call[number]);
                    }
                }
                ended[number] = Some(false);
            }
        }
    }
    meanwhile();
    // Tested in any order; at the end now and then waited for, all at once or the last one alone.
    while ended.iter().any(Option::is_none) {
        let open: Vec<usize> = (0..count).filter(|&number| ended[number].is_none()).collect();
        if own.one_in(50) {
            let all: Vec<Running<'_>> = open.iter().map(|&number| runs[number].take().unwrap()).collect();
            for (&number, outcome) in open.iter().zip(Running::wait_all(all)) {
                ended[number] = outcome.map_or_else(|error| failed(number, &error), |_| Some(true));
            }
            continue;
        }
        let number = open[own.within(0, open.len() as u64 - 1) as usize];
        let outcome = match open.len() {
            1 if own.one_in(2) => runs[number].take().unwrap().wait().map(|_| true),
            1 if own.one_in(4) => {
                drop(runs[number].take());
                // What became of it is asked of the engine, by its next run; here it is as good as waited for.
                Ok(true)
            }
            _ => runs[number].as_mut().unwrap().test(),
        };
        match outcome {
            Ok(false) => std::thread::yield_now(),
            Ok(true) if may_fail(number) && runs[number].is_none() => ended[number] = Some(false),
            Ok(true) => ended[number] = Some(true),
            Err(error) => ended[number] = failed(number, &error),
        }
    }
    ended.into_iter().map(|outcome| outcome == Some(true)).collect()
}
