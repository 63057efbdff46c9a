//! What a launched process does: its own part of every case, with every mover.

use crate::installation::THREADS;
use crate::world::{World, in_threads};
use crate::{communicators, faults, help, lent, programs, rings, secret, strays, sums, trials, trust, waits};
use reshard::engine::{Level, MessagesOptions};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Layout, MemoryOrder, Move, Plan};
use reshard_mpi::{Mover, Mpi, MpiEngine, MpiOptions, Own, Shared};
use reshard_plan::Distribution;
use reshard_testkit::Random;
use reshard_testkit::allocations::counted;
use reshard_testkit::conformance::{Case, Kinds};
use std::sync::Arc;
use std::time::Duration;

/// Bytes behind a shared part that nobody must touch.
const MARGIN: usize = 100;

pub fn play(part: &str) {
    // Those that begin and end MPI by themselves.
    if part == "unread-notices" {
        return communicators::unread_notices();
    }
    if part.starts_with("communicators ") {
        return communicators::play(part);
    }
    match std::env::var(THREADS) {
        Ok(ranks) => {
            let part = part.to_string();
            in_threads(ranks.parse().unwrap(), move |world| play_on(world, &part));
        }
        Err(_) => {
            let session = Mpi::load(None).unwrap().init().unwrap();
            play_on(session.world(), part);
            drop(session);
        }
    }
}

/// Plays one part after the other, of those with `; ` between them: a launch takes longer than most parts.
fn play_on(world: &dyn World, parts: &str) {
    for part in parts.split("; ") {
        if world.rank() == 0 {
            println!("part {part}");
        }
        play_part(world, part);
    }
    println!("[{}/{} done]", world.rank(), world.size());
}

fn play_part(world: &dyn World, part: &str) {
    let words: Vec<&str> = part.split(' ').collect();
    if words.last() == Some(&"limited-files") {
        // Before ranks find out about each other.
        waits::limit_files(4096);
    }
    if !words.contains(&"nobody-comes-at-first") {
        // Many deadlines below are short. The first call takes longest, and on a busy machine ranks start far apart.
        world.communicator();
        world.meet();
    }
    match words[..] {
        ["conformance", seed, cases] => {
            conformance(world, seed.parse().unwrap(), cases.parse().unwrap(), Mover::Private);
        }
        ["conformance", seed, cases, usual] => {
            conformance(world, seed.parse().unwrap(), cases.parse().unwrap(), usual.parse().unwrap());
        }
        ["disagreement", seed, trials] => {
            faults::disagreement(world, seed.parse().unwrap(), trials.parse().unwrap());
        }
        ["programs", seed, count] => programs::any(world, seed.parse().unwrap(), count.parse().unwrap()),
        ["trust", what] => match what {
            "another-alpha-another-way" => trust::another_alpha_another_way(world),
            "scalapack-elsewhere" => trust::scalapack_elsewhere(world),
            "limited-files" => waits::limited_files(world),
            "without-an-end" => waits::without_an_end(world),
            "looks-do-not-wait" => waits::looks_do_not_wait(world),
            "hidden" => waits::hidden(world),
            _ => panic!("no part {part}"),
        },
        ["trust", "nobody-comes-at-first", what] => waits::nobody_comes_at_first(world, what),
        ["trust", "strays", "barriers"] => strays::of_barriers(world),
        ["trust", "strays", what] => strays::of_fragments(world, what),
        ["trust", what, mover] => {
            let mover = usable(world, mover);
            match what {
                "looked-after-in-another-order" => trust::looked_after_in_another_order(world, mover),
                "begun-in-another-order" => trust::begun_in_another_order(world, mover),
                "forgotten" | "panicked" => trust::left_behind(world, mover, what),
                "forgotten-and-overwritten" => trust::forgotten_and_overwritten(world, mover),
                "on-the-next-communicator" => trust::on_the_next_communicator(world, mover),
                "run-after-a-failure" => trust::run_after_a_failure(world, mover),
                "owned-and-in-place" => trust::owned_and_in_place(world, mover),
                "abandoned" => trust::abandoned(world, mover),
                "leaked-guard" => trust::leaked_guard(world, mover),
                "strides-of-its-own" => trust::strides_of_its_own(world, mover),
                "of-another-communicator" => trust::of_another_communicator(world, mover),
                "another-alpha" => trust::another_alpha(world, mover),
                "out-of-reach" => trust::out_of_reach(world, mover),
                "refused-by-one" => waits::refused_by_one(world, mover),
                "larger-than-memory" => waits::larger_than_memory(world, mover),
                "forked" => waits::forked(world, mover),
                _ if what.starts_with("unreadable-") => secret::unreadable(world, what, mover),
                _ => panic!("no part {part}"),
            }
        }
        ["faults", seed, count] => trials::faults(world, seed.parse().unwrap(), count.parse().unwrap()),
        ["many-engines", count] => trials::many_engines(world, count.parse().unwrap()),
        ["sums", seed, cases] => sums::any(world, seed.parse().unwrap(), cases.parse().unwrap()),
        ["rings", seed, count] => rings::any(world, seed.parse().unwrap(), count.parse().unwrap()),
        ["rings-round"] => rings::round(world),
        ["rings-disagreement", seed] => rings::disagreement(world, seed.parse().unwrap()),
        ["rings-absence", when] => rings::absence(world, when),
        ["help"] => help::everywhere(world),
        ["help-round"] => help::back_and_forth(world),
        ["help-passed-on"] => help::passed_on(world),
        ["help-swapped"] => help::swapped(world),
        ["help-gone-on", mover, runs] => {
            help::swapped_and_gone_on(world, mover.parse().unwrap(), runs.parse().unwrap());
        }
        ["help-ahead"] => help::far_ahead(world),
        ["help-given-up"] => help::given_up(world),
        ["help-stopped"] => help::stopped(world),
        ["lent"] => lent::overwritten(world),
        ["lent-unread"] => lent::unread(world),
        ["lent-of-two"] => lent::of_two(world),
        ["lent-given-up"] => lent::given_up(world),
        ["absence"] => faults::absence(world),
        ["silence", mover] => faults::silence(world, usable(world, mover)),
        ["large"] => large(world),
        ["by-the-system"] => by_the_system(world),
        ["huge", mover] => huge(world, usable(world, mover)),
        ["calls", mover, calls] => faults::calls(world, usable(world, mover), calls.parse().unwrap()),
        ["end", how, mover, step] => {
            faults::end(world, how, usable(world, mover), step.parse().unwrap());
        }
        ["killed", mover, step] => faults::killed(world, usable(world, mover), step.parse().unwrap()),
        _ => panic!("no part {part}"),
    }
}

/// The mover of that name; `private` instead of `cma` where the system does not let ranks read each other's memory.
pub fn usable(world: &dyn World, name: &str) -> Mover {
    let mover: Mover = name.parse().unwrap();
    if mover != Mover::Cma || world.size() == 1 {
        return mover;
    }
    // Everybody reads everybody's memory.
    let ranks = world.size();
    let layout = |text: String| text.parse::<Layout>().unwrap();
    let (from, to) = (
        layout(format!("{ranks}/1 of {}", ranks * ranks)),
        layout(format!("{ranks}/{ranks} of {}", ranks * ranks)),
    );
    let plan = Plan::new(vec![Move::of::<f64>(from, to).unwrap()]).unwrap();
    match MpiEngine::new(Arc::new(plan), world, MpiOptions::default().with_mover(Mover::Cma)) {
        Ok(_) => Mover::Cma,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            println!("  left out, with `private` instead: {error}");
            Mover::Private
        }
    }
}

/// All ranks draw the same cases, and each looks at its own part. `usual` is what is chosen where nothing is wished for; if
/// it is not for one node, there are several, and movers for one may be refused.
fn conformance(world: &dyn World, seed: u64, cases: u64, usual: Mover) {
    let several = usual != Mover::Private;
    let levels = Level::available();
    let mut random = Random::new(seed);
    let mut done = 0;
    while done < cases {
        let elems = if done % 10 == 0 { 60_000 } else { 1_500 };
        // A third of them with copies, on several ranks.
        let replicated = world.size() > 1 && done % 3 == 0;
        let kinds = Kinds { elems, procs: 4, own_strides: true, replicated, ..Kinds::default() };
        let case = Case::random(&mut random, &kinds);
        let ranks = |layout: &Layout| layout.distribution().grid().sorted_ranks();
        let most = ranks(case.moving.from()).into_iter().chain(ranks(case.moving.to())).max();
        if most.unwrap() >= world.size() as u64 {
            continue;
        }
        done += 1;
        // Each rank knows the strides of its own parts alone, and half of the time plans for no other.
        let (rank, moves) = (world.rank() as u64, vec![case.seen_by(world.rank() as u64)]);
        let planned = if done % 2 == 0 { Plan::new(moves) } else { Plan::for_rank(moves, rank) };
        let plan = Arc::new(planned.unwrap());
        for mover in Mover::ALL {
            let strategy = Strategy::ALL[random.within(0, Strategy::ALL.len() as u64 - 1) as usize];
            let memory = random.one_in(3).then(|| random.within(1, 1 << 16) << random.within(0, 8));
            let messages = MessagesOptions::default()
                .with_strategy(strategy)
                .with_memory(memory)
                .with_barriers(random.one_in(4));
            // Each rank at another level, or at the best.
            let level = levels.get((done as usize + world.rank()) % (levels.len() + 1)).copied();
            let options = MpiOptions::default()
                .with_mover(mover)
                .with_messages(messages)
                .with_level(level)
                .with_deadline(Some(Duration::from_secs(1200)));
            // For `shared`, half of them by all ranks together, though they are small.
            let task_bytes = random.one_in(2).then(|| random.within(1, 1 << 12));
            let made = match task_bytes {
                Some(task_bytes) => MpiEngine::in_tasks(Arc::clone(&plan), world, options, task_bytes),
                None => MpiEngine::new(Arc::clone(&plan), world, options),
            };
            let mut engine = match made {
                Ok(engine) => engine,
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Memory) => continue,
                Err(error) if error.to_string().contains("needs at least") => continue,
                Err(error) if error.to_string().contains("triangles") => continue,
                // Hosts that are one machine may well share memory.
                Err(error) if several && error.to_string().contains("use messages") => continue,
                Err(error) => panic!("{error}: {mover}: {case:?}"),
            };
            if mover == Mover::Auto {
                assert_eq!(engine.mover(), usual);
            }
            if let Some(memory) = memory {
                let mut all = [engine.scratch_bytes()];
                world.sum(&mut all);
                assert!(all[0] <= memory, "{mover}: {} bytes of {memory}: {case:?}", all[0]);
            }
            // Twice: what one run leaves behind must not disturb the next. Once looked after, once waited for.
            for looks in [false, true] {
                let allocations = run(&case, &mut engine, world, looks);
                // MPI_Alltoallw wants lists of handles, which are made for each call, and threads copy every message.
                let frugal = looks && mover != Mover::Alltoallw && world.mpi().is_some();
                assert!(
                    !frugal || allocations == 0,
                    "{allocations} allocations in a second run: {mover}: {case:?}"
                );
            }
        }
    }
}

/// Arrays too large for the caches, for which those of [`conformance`] are too small: they are written with non-temporal stores, through many staging buffers,
/// or few if there is little memory; or copied by all ranks together. Four ranks.
fn large(world: &dyn World) {
    let layout = |text: &str, order: MemoryOrder| {
        let text = format!("{text} of 1100x1000");
        Layout::new(text.parse::<Distribution>().unwrap(), order)
    };
    for (number, (from, to, order)) in [
        ("2x2/64x64", "1x4/32x32", MemoryOrder::ColMajor),
        ("1x1/64x64", "1x1/50x50 ranks=2", MemoryOrder::ColMajor),
        ("1x2/256x256", "2x1/128x128", MemoryOrder::ColMajor),
        ("1x2/20x20 ranks=3,1", "3x1/128x128 ranks=0,3,1", MemoryOrder::ColMajor),
        ("2x2/8x8", "4x1/5x7", MemoryOrder::ColMajor),
        ("2x2/1x1", "1x4/2x2", MemoryOrder::ColMajor),
        ("4x1/7x3", "2x2/100x50", MemoryOrder::RowMajor),
    ]
    .into_iter()
    .enumerate()
    {
        let moving = Move::of::<f64>(layout(from, MemoryOrder::ColMajor), layout(to, order))
            .unwrap()
            .of_bytes(8)
            .unwrap();
        let plan = Arc::new(Plan::new(vec![moving.clone()]).unwrap());
        for (mover, memory) in [
            (Mover::Private, None),
            (Mover::Private, Some(1 << 20)),
            (Mover::Shared, None),
            (Mover::SharedSource, None),
        ] {
            let messages = MessagesOptions::default().with_memory(memory);
            let options = MpiOptions::default().with_mover(mover).with_messages(messages);
            let mut engine = MpiEngine::new(Arc::clone(&plan), world, options).unwrap();
            // Private arrays: the trial of stores and a run after it.
            let runs = if mover == Mover::Private { 8 } else { 2 };
            for salt in 0..runs {
                let case = Case { moving: moving.clone(), skew: [8 * number, 0], salt, equal_copies: false };
                run(&case, &mut engine, world, salt == 1);
            }
        }
    }
}

/// Large arrays with long runs: the mover `private` tries all its ways, also the one by the system, and stays with one. Every run is
/// right, also the scaled ones between them. Four ranks.
fn by_the_system(world: &dyn World) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    for (from, to) in [
        ("1x1/1100x1000 of 1100x1000", "1x4/1100x250 of 1100x1000"),
        ("1x4/1100x250 of 1100x1000", "1x2/1100x500 ranks=3,1 of 1100x1000"),
        ("2x1/2200x500 of 4400x500", "4x1/1100x500 of 4400x500"),
        ("3/100001 of 1200000", "4/300000 of 1200000"),
    ] {
        let moving = Move::of::<f64>(layout(from), layout(to)).unwrap();
        let plan = Arc::new(Plan::new(vec![moving.clone()]).unwrap());
        let made =
            |mover: Mover| MpiEngine::new(Arc::clone(&plan), world, MpiOptions::default().with_mover(mover));
        if usable(world, "cma") != Mover::Cma {
            return;
        }
        let mut engine = made(Mover::Private).unwrap();
        let mut unpacked = 0;
        for salt in 0..13 {
            let case = Case { moving: moving.clone(), skew: [8, 0], salt, equal_copies: false };
            run(&case, &mut engine, world, salt % 2 == 1);
            let mut packed = [engine.packed_nanoseconds()];
            world.sum(&mut packed);
            unpacked += u64::from(packed[0] == 0);
            let (source, mut target) = (vec![3.0; engine.source_len(0)], vec![2.0; engine.target_len(0)]);
            engine.run(Own::new(&source, &mut target).scaled(2.0, 1.0)).unwrap();
            assert!(target.iter().all(|&value| value == 8.0 || value == 2.0), "{from} to {to}");
            assert!(
                target.iter().filter(|&&value| value == 8.0).count() as u64 == received(&plan, world.rank())
            );
        }
        // Three of the trial, and perhaps all after it.
        assert!(unpacked == 3 || unpacked == 6, "{unpacked} runs without packing: {from} to {to}");
    }
}

/// Elements that a rank receives.
fn received(plan: &Plan, rank: usize) -> u64 {
    let array = &plan.arrays()[0];
    array.target_of(rank as u64).map_or(0, |target| array.targets()[target].elems())
}

/// Parts of more than 2^31 elements that change places: a message of 2.3 GB each way, every element looked at.
fn huge(world: &dyn World, mover: Mover) {
    const PART: u64 = 2_300_000_000;
    let layout = |ranks: &str| {
        let text = format!("2/{PART}{ranks} of {}", 2 * PART);
        Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor)
    };
    let moving = Move::of::<f64>(layout(""), layout(" ranks=1,0")).unwrap().of_bytes(1).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = MpiOptions::default().with_mover(mover);
    let mut engine = MpiEngine::new(plan, world, options).unwrap();
    let value = |part: usize, at: usize| {
        let global = part as u64 * PART + at as u64;
        (global.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    };
    let (rank, other) = (world.rank(), 1 - world.rank());
    let from: Vec<u8> = (0..engine.source_len(0)).map(|at| value(rank, at)).collect();
    let mut to = vec![0_u8; engine.target_len(0)];
    assert_eq!((from.len() as u64, to.len() as u64), (PART, PART));
    engine.run(Own::new(&from, &mut to)).unwrap();
    let wrong = to.iter().enumerate().find(|(at, found)| **found != value(other, *at));
    assert_eq!(wrong, None);
}

/// Runs a case, looks at every element and says how often memory was asked for meanwhile, by all but MPI itself.
fn run(case: &Case, engine: &mut MpiEngine, world: &dyn World, looks: bool) -> u64 {
    let rank = world.rank() as u64;
    let mut parts = case.parts();
    let place = |ranks: Vec<u64>| ranks.iter().position(|&other| other == rank);
    let source = place(case.moving.from().distribution().grid().sorted_ranks());
    let target = place(case.moving.to().distribution().grid().sorted_ranks());
    let (from, mut to) = case.slices(&mut parts);
    let mine = source.map_or(&[][..], |source| from[source]);
    let mut nothing = [];
    let room: &mut [u8] = match target {
        Some(target) => to[target],
        None => &mut nothing,
    };
    // A copy of something, with a margin, in shared memory.
    let share = |part: &[u8]| {
        let mut shared = Shared::zeroed(world, part.len() + MARGIN).unwrap();
        shared[..part.len()].copy_from_slice(part);
        shared
    };
    let shared = match engine.mover() {
        Mover::Shared => Some((share(mine), Some(share(room)))),
        Mover::SharedSource => Some((share(mine), None)),
        _ => None,
    };
    let (moved, allocations, _) = counted(|| match shared {
        Some((from, Some(mut to))) => {
            let moved = engine.run(Own::shared(&from, &mut to).as_bytes());
            room.copy_from_slice(&to[..room.len()]);
            assert_eq!(to[room.len()..], [0; MARGIN]);
            moved
        }
        Some((from, None)) => engine.run(Own::shared_source(&from, room).as_bytes()),
        None if looks => engine.start(Own::new(mine, room).as_bytes()).and_then(|mut running| {
            while !running.test()? {
                std::thread::yield_now();
            }
            assert!(running.test()?, "may be asked again");
            running.wait()
        }),
        None => engine.run(Own::new(mine, room).as_bytes()),
    });
    let report = moved.unwrap_or_else(|error| panic!("{error}: {}: {case:?}", engine.mover()));
    assert_eq!(report.bytes, engine.plan().bytes());
    case.check_rank(&parts, rank);
    allocations
}
