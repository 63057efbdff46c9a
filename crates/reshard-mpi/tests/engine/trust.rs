//! Runs that must not say that all is well when it is not: each of these once went wrong. Waits are in `waits.rs`.

use crate::world::World;
use reshard::engine::RawPart;
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_mpi::baselines::Scalapack;
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own, Shared};
use reshard_plan::Distribution;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const LONG: Duration = Duration::from_secs(1200);
pub const SHORT: Duration = Duration::from_millis(300);

/// Longer than anything takes that does not wait for a deadline.
pub const SOON: Duration = Duration::from_secs(300);

pub fn layout(text: &str) -> Layout {
    Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor)
}

pub fn plan(from: &str, to: &str) -> Arc<Plan> {
    Arc::new(Plan::new(vec![Move::of::<f64>(layout(from), layout(to)).unwrap()]).unwrap())
}

/// A deadline for runs; engines are made with patience, as a machine may be busy.
pub fn options(mover: Mover, deadline: Duration) -> MpiOptions {
    MpiOptions::default().with_mover(mover).with_deadline(Some(deadline)).with_setup_deadline(LONG)
}

/// Cut into blocks of one size, or of another.
pub struct Exchange {
    elems: u64,
    from: [u64; 2],
    ranks: u64,
}

impl Exchange {
    pub fn new(world: &dyn World, number: u64) -> Self {
        Self { elems: 20_000 + number, from: [3 + number, 7], ranks: world.size() as u64 }
    }

    pub fn plan(&self) -> Arc<Plan> {
        let side = |block: u64| format!("{}/{block} of {}", self.ranks, self.elems);
        plan(&side(self.from[0]), &side(self.from[1]))
    }

    /// This rank's part of the elements, whose values are their global index and a number.
    pub fn values(&self, rank: usize, side: usize, salt: u64) -> Vec<u64> {
        let layout = layout(&format!("{}/{} of {}", self.ranks, self.from[side], self.elems));
        let distribution = layout.distribution();
        let all =
            (0..self.elems).filter(|&at| distribution.local_from_global(&[at]).unwrap().0 == rank as u64);
        all.map(|at| at << 20 | salt).collect()
    }
}

/// Two engines; both ranks begin one run of each in the same order, and wait in the same order, but look after them in
/// different orders.
pub fn looked_after_in_another_order(world: &dyn World, mover: Mover) {
    let exchanges = [Exchange::new(world, 1), Exchange::new(world, 2)];
    let mut engines = exchanges
        .each_ref()
        .map(|exchange| MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap());
    for round in 0..50 {
        let from = exchanges.each_ref().map(|exchange| exchange.values(world.rank(), 0, round));
        let mut to = exchanges.each_ref().map(|exchange| vec![0; exchange.values(world.rank(), 1, 0).len()]);
        let [one, other] = &mut engines;
        let [to_one, to_other] = &mut to;
        let mut first = one.start(Own::new(&from[0], to_one)).unwrap();
        let mut second = other.start(Own::new(&from[1], to_other)).unwrap();
        let (mut first_ends, mut second_ends) = (false, false);
        while !(first_ends && second_ends) {
            if world.rank() == 0 {
                second_ends = second.test().unwrap();
                first_ends = first.test().unwrap();
            } else {
                first_ends = first.test().unwrap();
                second_ends = second.test().unwrap();
            }
        }
        first.wait().unwrap();
        second.wait().unwrap();
        for (exchange, to) in exchanges.iter().zip(&to) {
            assert!(
                *to == exchange.values(world.rank(), 1, round),
                "round {round}: another engine's elements"
            );
        }
    }
}

/// Two engines of one plan, begun in another order on rank 1: each has its own data.
pub fn begun_in_another_order(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    let mut engines = [0, 1].map(|_| MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap());
    let from = [1, 2].map(|salt| exchange.values(world.rank(), 0, salt));
    let mut to = [1, 2].map(|_| vec![0; exchange.values(world.rank(), 1, 0).len()]);
    {
        let [one, other] = &mut engines;
        let [to_one, to_other] = &mut to;
        let mut runs = match world.rank() {
            1 => {
                let second = other.start(Own::new(&from[1], to_other)).unwrap();
                [second, one.start(Own::new(&from[0], to_one)).unwrap()]
            }
            _ => {
                let first = one.start(Own::new(&from[0], to_one)).unwrap();
                [first, other.start(Own::new(&from[1], to_other)).unwrap()]
            }
        };
        while !runs.iter_mut().map(|run| run.test().unwrap()).fold(true, |all, over| all & over) {}
    }
    for (salt, to) in [1, 2].into_iter().zip(&to) {
        assert!(*to == exchange.values(world.rank(), 1, salt), "another engine's elements");
    }
}

/// Moves all elements from rank 1 to rank 0.
pub fn one_way(elems: u64) -> Arc<Plan> {
    plan(&format!("1/{elems} ranks=1 of {elems}"), &format!("1/{elems} of {elems}"))
}

/// Rank 0 forgets a run, or panics in it and is caught, while a message to it is in flight: the next engine's run has its own
/// data.
pub fn left_behind(world: &dyn World, mover: Mover, how: &str) {
    let begin = Instant::now();
    for round in 0..4 {
        let plan = one_way(100);
        let mut engine = MpiEngine::new(Arc::clone(&plan), world, options(mover, LONG)).unwrap();
        let from = vec![round; engine.source_len(0)];
        let mut to = vec![u64::MAX; engine.target_len(0)];
        if world.rank() == 0 {
            let mut running = engine.start(Own::new(&from, &mut to)).unwrap();
            // Every other time it has begun to receive.
            let over = round % 2 == 0 && running.test().unwrap();
            match how {
                "forgotten" => std::mem::forget(running),
                _ => {
                    let caught = catch_unwind(AssertUnwindSafe(move || {
                        let _running = running;
                        panic!("on purpose");
                    }));
                    assert!(caught.is_err());
                }
            }
            if !over {
                let again = engine.run(Own::new(&from, &mut to)).unwrap_err().to_string();
                assert!(again.contains("an earlier run failed"), "{again}");
            }
            drop(engine);
        } else if let Err(error) = engine.run(Own::new(&from, &mut to)) {
            assert!(error.to_string().contains("rank 0"), "{error}");
        }
        assert!(begin.elapsed() < SOON, "the others are told");
        let mut engine = MpiEngine::new(plan, world, options(mover, LONG)).unwrap();
        let from = vec![round + 100; engine.source_len(0)];
        engine.run(Own::new(&from, &mut to)).unwrap();
        assert!(to.iter().all(|&value| value == round + 100), "elements of the run before");
    }
}

/// A message in flight to rank 0 on a communicator that is freed does not reach an engine on the next one, to which MPI may give
/// the same number.
pub fn on_the_next_communicator(world: &dyn World, mover: Mover) {
    for round in 0..20 {
        let plan = one_way(100);
        let own = || world.reordered(world.rank() as u32);
        {
            let comm = own();
            let mut engine = MpiEngine::new(Arc::clone(&plan), &*comm, options(mover, LONG)).unwrap();
            let from = vec![round; engine.source_len(0)];
            let mut to = vec![u64::MAX; engine.target_len(0)];
            if world.rank() == 0 {
                std::mem::forget(engine.start(Own::new(&from, &mut to)).unwrap());
                world.meet();
            } else {
                let _ = engine.start(Own::new(&from, &mut to)).and_then(|mut running| running.test());
                world.meet();
            }
        }
        let comm = own();
        let mut engine = MpiEngine::new(plan, &*comm, options(mover, LONG)).unwrap();
        let from = vec![round + 100; engine.source_len(0)];
        let mut to = vec![u64::MAX; engine.target_len(0)];
        engine.run(Own::new(&from, &mut to)).unwrap();
        assert!(to.iter().all(|&value| value == round + 100), "elements of another communicator");
    }
}

/// Rank 1 forgets its run and writes to its source, and only then rank 0 comes: it gets an error, or what was there when the run began.
pub fn forgotten_and_overwritten(world: &dyn World, mover: Mover) {
    for round in 0..3 {
        let mut engine = MpiEngine::new(one_way(20_000), world, options(mover, SHORT)).unwrap();
        let mut from = vec![round; engine.source_len(0)];
        let mut to = vec![u64::MAX; engine.target_len(0)];
        if world.rank() == 1 {
            std::mem::forget(engine.start(Own::new(&from, &mut to)).unwrap());
            from.fill(1000);
            world.meet();
        } else {
            world.meet();
            if engine.run(Own::new(&from, &mut to)).is_ok() {
                assert!(
                    to.iter().all(|&value| value == round),
                    "what was written after the run was forgotten"
                );
            }
        }
        world.meet();
    }
}

/// Rank 1 is late beyond the deadline of one engine; another that was there before is run then.
pub fn run_after_a_failure(world: &dyn World, mover: Mover) {
    // In several fragments.
    let plan = one_way(163_840);
    let [mut fails, mut follows] =
        [SHORT, LONG].map(|limit| MpiEngine::new(Arc::clone(&plan), world, options(mover, limit)).unwrap());
    let mut to = vec![u64::MAX; fails.target_len(0)];
    let mut run = |engine: &mut MpiEngine, salt: u64| {
        let from: Vec<u64> = (0..engine.source_len(0) as u64).map(|at| at << 8 | salt).collect();
        let outcome = engine.run(Own::new(&from, &mut to));
        let wrong = to.iter().enumerate().filter(|(at, value)| **value != (*at as u64) << 8 | salt).count();
        outcome.map(|_| assert_eq!(wrong, 0, "elements of another run, and said that all is well"))
    };
    if world.rank() == 1 {
        sleep(3 * SHORT);
    }
    if let Err(error) = run(&mut fails, 1) {
        assert!(error.to_string().contains("rank"), "{error}");
    }
    for salt in 2..5 {
        run(&mut follows, salt).unwrap();
    }
}

/// Runs that own their engine, in place: source and destination are the same memory, given as an address.
#[allow(unsafe_code)]
pub fn owned_and_in_place(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    let mut engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    for round in 0..5 {
        let (mine, expected) =
            (exchange.values(world.rank(), 0, round), exchange.values(world.rank(), 1, round));
        let mut memory = mine.clone();
        memory.resize(mine.len().max(expected.len()), u64::MAX);
        let address = memory.as_mut_ptr().cast::<u8>();
        let (from, to) = (RawPart::new(address, 8 * mine.len()), RawPart::new(address, 8 * expected.len()));
        // SAFETY: the memory is there until the run has ended, and nobody else uses it.
        let own = unsafe { Own::<u64>::raw(from.with_strides(&[1]), to) };
        let mut run = engine.start_owned(own).map_err(|(_, error)| error).unwrap();
        while round % 2 == 0 && !run.test().unwrap() {
            std::thread::yield_now();
        }
        let outcome;
        (engine, outcome) = run.wait();
        assert_eq!(outcome.unwrap().bytes, engine.plan().bytes());
        assert!(memory[..expected.len()] == expected, "round {round} with {mover}");
    }
    // One that fails does not say that the source, which is the destination, is untouched.
    let mut lonely = MpiEngine::new(exchange.plan(), world, options(mover, SHORT)).unwrap();
    if world.rank() == 0 {
        let (from, to) = (exchange.values(0, 0, 0).len(), exchange.values(0, 1, 0).len());
        let mut memory = vec![0_u64; from.max(to)];
        let address = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the memory is there until the run has ended, and nobody else uses it.
        let own = unsafe { Own::<u64>::raw(RawPart::new(address, 8 * from), RawPart::new(address, 8 * to)) };
        let said = lonely.run(own).unwrap_err().to_string();
        assert!(said.contains("moved in place is only partly written"), "{said}");
    }
    world.meet();
    drop(lonely);
    // Of one that cannot begin everybody is told; one that is dropped is waited for.
    // SAFETY: refused, as a null pointer is no part.
    let none = unsafe { Own::<u64>::raw(RawPart::NONE, RawPart::NONE) };
    let (mut engine, error) = engine.start_owned(none).err().expect("there are elements");
    assert!(error.to_string().contains("of rank"), "{error}");
    let again = engine.run(Own::new(&[0_u64; 0], &mut [])).unwrap_err().to_string();
    assert!(again.contains("rank") || again.contains("an earlier run failed"), "{again}");
    drop(engine);
    let engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let from = exchange.values(world.rank(), 0, 9).leak();
    let to = vec![0; exchange.values(world.rank(), 1, 0).len()].leak();
    let address = to.as_ptr();
    drop(engine.start_owned(Own::new(from, to)).map_err(|(_, error)| error).unwrap());
    // SAFETY: leaked above, and the run that borrowed it has ended.
    let to = unsafe { std::slice::from_raw_parts(address, exchange.values(world.rank(), 1, 0).len()) };
    assert!(to == exchange.values(world.rank(), 1, 9));
}

/// Rank 0 gives up in the middle of a run, as after Ctrl-C: the others are told at once, long before their deadline, who it was and
/// why; the next engine works. A run that is over cannot be given up.
pub fn abandoned(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    let engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let begin = |engine: MpiEngine| {
        let from = exchange.values(world.rank(), 0, 3).leak();
        let to = vec![0; exchange.values(world.rank(), 1, 0).len()].leak();
        engine.start_owned(Own::new(from, to)).map_err(|(_, error)| error)
    };
    // Nobody but rank 0 begins before it has waited in vain: so it is in the middle.
    if world.rank() == 0 {
        let mut run = begin(engine).unwrap();
        assert!(!run.wait_for(Duration::from_millis(30)).unwrap(), "nobody else has begun");
        let (mut engine, outcome) = run.abandon("it was interrupted");
        let said = outcome.unwrap_err().to_string();
        assert!(said.contains("it was interrupted"), "{said}");
        let again = engine.run(Own::new(&[0_u64; 0], &mut [])).unwrap_err().to_string();
        assert!(again.contains("it was interrupted"), "{again}");
        world.meet();
    } else {
        world.meet();
        let since = Instant::now();
        let outcome = match begin(engine) {
            Ok(run) => run.wait().1.map(drop),
            Err(error) => Err(error),
        };
        // All that it needs of rank 0 may have been there before that gave up.
        if let Err(said) = outcome {
            let said = said.to_string();
            assert!(said.contains("rank 0") && said.contains("it was interrupted"), "{said}");
        }
        assert!(since.elapsed() < LONG / 2, "told late");
    }
    let engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let mut run = begin(engine).unwrap();
    while !run.wait_for(Duration::from_millis(1)).unwrap() {}
    assert!(run.wait_for(Duration::ZERO).unwrap());
    let (mut engine, outcome) = run.abandon("too late");
    outcome.unwrap();
    let mut to = vec![0; engine.target_len(0)];
    engine.run(Own::new(&exchange.values(world.rank(), 0, 7), &mut to)).unwrap();
    assert!(to == exchange.values(world.rank(), 1, 7));
}

/// Rank 0 leaks the guard of a run on shared parts and drops the parts and the engine: nobody reads or writes memory that is gone, and
/// the others end with the right data or an error.
pub fn leaked_guard(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    for round in 0..30 {
        let mut engine = MpiEngine::in_tasks(exchange.plan(), world, options(mover, SHORT), 512).unwrap();
        let (mine, expected) =
            (exchange.values(world.rank(), 0, round), exchange.values(world.rank(), 1, round));
        let mut from: Shared<u64> = Shared::zeroed(world, mine.len()).unwrap();
        let mut to: Shared<u64> = Shared::zeroed(world, expected.len()).unwrap();
        let mut private = vec![0; expected.len()];
        from.copy_from_slice(&mine);
        let begun = match mover {
            Mover::Shared => engine.start(Own::shared(&from, &mut to)),
            _ => engine.start(Own::shared_source(&from, &mut private)),
        };
        if world.rank() == 0 {
            let mut running = begun.unwrap();
            let over = (0..round % 5).any(|_| running.test().unwrap());
            std::mem::forget(running);
            // The memory of all three is free for others now; so it is looked at, if it may be.
            let seen = catch_unwind(AssertUnwindSafe(|| to.iter().filter(|&&value| value != 0).count()));
            assert!(!over || mover != Mover::Shared || seen.is_ok_and(|seen| seen + 1 >= expected.len()));
            private.fill(u64::MAX);
            drop(private);
            match round % 3 {
                0 => drop((from, to, engine)),
                1 => drop((engine, to, from)),
                _ => {
                    // Waits for its readers, or is told that they do not come back.
                    let _ = from.wait_for_readers();
                    drop((to, engine, from));
                }
            }
        } else {
            match begun.and_then(reshard_mpi::Running::wait) {
                Ok(_) if mover == Mover::Shared => assert!(to[..] == expected, "round {round}"),
                Ok(_) => assert!(private == expected, "round {round}"),
                Err(error) => assert!(error.to_string().contains("rank"), "{error}"),
            }
        }
        world.meet();
    }
}

/// Every rank has a leading dimension of its own, and tells nobody.
pub fn strides_of_its_own(world: &dyn World, mover: Mover) {
    let (rows, cols, rank) = (37, 29, world.rank() as u64);
    let texts = ["4x1/3x5", "1x4/4x2"].map(|text| format!("{text} of {rows}x{cols}"));
    let own = |text: &str| {
        let layout = layout(text);
        let height = layout.distribution().local_shape(rank).unwrap()[0];
        layout.with_strides_of(rank, &[1, height + 3 * rank + 1]).unwrap()
    };
    let [from, to] = texts.each_ref().map(|text| own(text));
    let moving = Move::of::<f64>(from.clone(), to.clone()).unwrap();
    let mut engine =
        MpiEngine::in_tasks(Arc::new(Plan::new(vec![moving]).unwrap()), world, options(mover, LONG), 64)
            .unwrap();
    assert_eq!(engine.source_len(0) as u64, from.span(rank).unwrap());
    let mut source = vec![u64::MAX; engine.source_len(0)];
    let mut expected = vec![u64::MAX - 1; engine.target_len(0)];
    for row in 0..rows {
        for col in 0..cols {
            for (layout, part) in [(&from, &mut source), (&to, &mut expected)] {
                let (owner, local) = layout.distribution().local_from_global(&[row, col]).unwrap();
                if owner == rank {
                    part[layout.address(rank, &local).unwrap() as usize] = row << 32 | col;
                }
            }
        }
    }
    let mut target = vec![u64::MAX - 1; expected.len()];
    let share = |part: &[u64]| {
        let mut shared = Shared::zeroed(world, part.len()).unwrap();
        shared.copy_from_slice(part);
        shared
    };
    match mover {
        Mover::Shared => {
            let (from, mut to) = (share(&source), share(&target));
            engine.run(Own::shared(&from, &mut to)).unwrap();
            target.copy_from_slice(&to);
        }
        Mover::SharedSource => {
            engine.run(Own::shared_source(&share(&source), &mut target)).map(drop).unwrap();
        }
        _ => engine.run(Own::new(&source, &mut target)).map(drop).unwrap(),
    }
    assert!(target == expected, "rank {rank} with {mover}");
}

/// Shared arrays that were made on a communicator whose ranks are the same processes in another order.
pub fn of_another_communicator(world: &dyn World, mover: Mover) {
    let backwards = world.reordered((world.size() - world.rank()) as u32);
    let exchange = Exchange::new(world, 0);
    let mut engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let len = exchange.elems as usize;
    let mut from: Shared<u64> = Shared::zeroed(&*backwards, len).unwrap();
    let mut to: Shared<u64> = Shared::zeroed(&*backwards, len).unwrap();
    from.fill(world.rank() as u64);
    let said = match mover {
        Mover::Shared => engine.run(Own::shared(&from, &mut to)),
        _ => engine.run(Own::shared_source(&from, &mut vec![0; len])),
    };
    let said = said.unwrap_err().to_string();
    assert!(said.contains("another communicator"), "{said}");
    // The same processes in the same order will do.
    let same = world.reordered(world.rank() as u32);
    let mut engine = MpiEngine::new(exchange.plan(), world, options(Mover::Shared, LONG)).unwrap();
    let values = exchange.values(world.rank(), 0, 7);
    let mut from: Shared<u64> = Shared::zeroed(&*same, values.len()).unwrap();
    let expected = exchange.values(world.rank(), 1, 7);
    let mut to: Shared<u64> = Shared::zeroed(&*same, expected.len()).unwrap();
    from.copy_from_slice(&values);
    engine.run(Own::shared(&from, &mut to)).unwrap();
    assert!(to[..] == expected);
}

/// Rank 0 gives another alpha than the others: whoever receives something of it is told, or its data is right.
pub fn another_alpha(world: &dyn World, mover: Mover) {
    let ranks = world.size();
    // Everybody receives something of rank 0.
    let text = format!("{ranks}/1 of {}", ranks * ranks * 40);
    let to = format!("{ranks}/40 of {}", ranks * ranks * 40);
    let begin = Instant::now();
    for alpha in [0.0, 3.0] {
        let mut engine = MpiEngine::new(plan(&text, &to), world, options(mover, LONG)).unwrap();
        let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![9.0; engine.target_len(0)]);
        let given = if world.rank() == 0 { alpha } else { 2.0 };
        let outcome = engine.run(Own::new(&from, &mut to).scaled(given, 1.0));
        if let Mover::Alltoallv | Mover::Alltoallw | Mover::Cma = mover {
            let said = outcome.unwrap_err().to_string();
            assert!(said.contains("does not scale"), "{said}");
            continue;
        }
        match outcome {
            Ok(_) => assert!(to.iter().all(|&value| value == 9.0 + given), "{alpha}: {to:?}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("gives other alpha, beta or arrays"), "{said}");
            }
        }
        assert!(begin.elapsed() < SOON, "long before the deadline");
        world.meet();
        drop(engine);
    }
    let mut engine = MpiEngine::new(plan(&text, &to), world, options(mover, LONG)).unwrap();
    let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![9.0; engine.target_len(0)]);
    if !matches!(mover, Mover::Alltoallv | Mover::Alltoallw | Mover::Cma) {
        engine.run(Own::new(&from, &mut to).scaled(2.0, -1.0)).unwrap();
        assert!(to.iter().all(|&value| value == -7.0));
    }
}

/// Large arrays with long runs, which `private` moves in several ways in turn: in any of the first runs one rank scales, and the
/// others do not. All that receive from it, or it from them, are told.
pub fn another_alpha_another_way(world: &dyn World) {
    let (from, to) = ("1x3/1000x200 of 1000x600", "1x3/1000x100 of 1000x600");
    let begin = Instant::now();
    for good in 0..13 {
        let mut engine = MpiEngine::new(plan(from, to), world, options(Mover::Private, LONG)).unwrap();
        let source = vec![1.0; engine.source_len(0)];
        for _ in 0..good {
            let mut to = vec![9.0; engine.target_len(0)];
            engine.run(Own::new(&source, &mut to)).unwrap();
            assert!(to.iter().all(|&value| value == 1.0));
        }
        let mut to = vec![9.0; engine.target_len(0)];
        let own = Own::new(&source, &mut to);
        let error = engine.run(if world.rank() == 0 { own.scaled(2.0, 1.0) } else { own }).unwrap_err();
        assert!(error.to_string().contains("gives other alpha, beta or arrays"), "{good}: {error}");
        world.meet();
        drop(engine);
    }
    assert!(begin.elapsed() < SOON, "long before the deadline");
}

/// Strides that reach further than any memory, for few elements.
pub fn out_of_reach(world: &dyn World, mover: Mover) {
    let stride = 1 << 59;
    let far = layout("1x1/8x8 of 8x4").with_strides(&[1, stride]).unwrap();
    let near = layout("1x1/8x8 ranks=1 of 8x4");
    for (from, to) in [(far.clone(), near.clone()), (near, far)] {
        let plan = Plan::new(vec![Move::of::<f64>(from, to).unwrap()]).unwrap();
        let error =
            MpiEngine::new(Arc::new(plan), world, options(mover, LONG)).err().expect("no memory is so large");
        assert!(error.to_string().contains("a process can have"), "{error}");
    }
}

/// ScaLAPACK numbers processes by the world: on another communicator it is not even tried.
pub fn scalapack_elsewhere(world: &dyn World) {
    let part = world.mpi().unwrap().split(Some(world.rank() as u32 % 2), 0).unwrap().unwrap();
    let layout = layout("1x1/8x8 of 64x64");
    assert!(Scalapack::new(&part, &layout, &layout).is_none());
}
