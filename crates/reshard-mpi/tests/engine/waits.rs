//! Waits that must have an end, and ranks that are told why: each of these once went wrong.

use crate::trust::{Exchange, LONG, SHORT, SOON, options, plan};
use crate::world::World;
use reshard::engine::MessagesOptions;
use reshard_mpi::{Mover, MpiEngine, MpiOptions, MpiRing, MpiRingOptions, Own, Shared};
use reshard_ring::RingProblem;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is made first on a communicator, in which rank 1 does not take part, until it does.
pub fn nobody_comes_at_first(world: &dyn World, what: &str) {
    let exchange = Exchange::new(world, 0);
    let make = |deadline: Duration| -> reshard::Result<()> {
        match what {
            "engine" | "engine-and-never" => {
                let options = MpiOptions::default().with_deadline(Some(deadline));
                MpiEngine::new(exchange.plan(), world, options).map(drop)
            }
            "shared" => Shared::<u64>::zeroed_within(world, 5, Some(deadline)).map(drop),
            _ => {
                let procs = world.size();
                let problem = RingProblem::new(vec![4; procs], vec![4; procs]);
                let options = MpiRingOptions::default().with_deadline(Some(deadline));
                MpiRing::of_problem(problem, 8, world, options).map(drop)
            }
        }
    };
    if world.rank() == 1 {
        sleep(8 * SHORT);
    } else {
        let said = make(SHORT).unwrap_err().to_string();
        assert!(said.contains("waited 0.3 s") && said.contains("for the first time"), "{said}");
    }
    if what != "engine-and-never" {
        make(LONG).unwrap();
    }
}

/// Rank 1 gives a part that is too short: all ranks are told so, at once.
pub fn refused_by_one(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    let begin = Instant::now();
    let mut engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let mut from = exchange.values(world.rank(), 0, 1);
    let mut to = vec![0; exchange.values(world.rank(), 1, 0).len()];
    if world.rank() == 1 {
        from.pop();
    }
    let outcome = match mover {
        Mover::Shared | Mover::SharedSource => {
            let (shared, mut to): (Shared<u64>, Shared<u64>) =
                (Shared::zeroed(world, from.len()).unwrap(), Shared::zeroed(world, to.len()).unwrap());
            let outcome = match mover {
                Mover::Shared => engine.run(Own::shared(&shared, &mut to)),
                _ => engine.run(Own::shared_source(&shared, &mut to.to_vec())),
            };
            assert!(to.iter().all(|&value| value == 0), "may be looked at");
            outcome
        }
        _ => engine.run(Own::new(&from, &mut to)),
    };
    let said = outcome.unwrap_err().to_string();
    let why = "the source part of rank 1 has";
    assert!(said.contains(why) || said.contains("rank 1 shares"), "{said}");
    assert!(world.rank() == 1 || said.contains("rank 1"), "{said}");
    assert!(begin.elapsed() < SOON, "long before the deadline");
    let again = engine.run(Own::new(&from, &mut to)).unwrap_err().to_string();
    assert!(again.contains("an earlier run failed") || again.contains("rank 1"), "{again}");
    // And of something that is made together.
    let len = if world.rank() == 1 { usize::MAX } else { 5 };
    let said = Shared::<u64>::zeroed(world, len).err().expect("no memory is so large").to_string();
    assert!(said.contains("rank 1: ") && said.contains("more than can be addressed"), "{said}");
    assert!(begin.elapsed() < SOON);
    // All goes on.
    let (from, expected) = (exchange.values(world.rank(), 0, 3), exchange.values(world.rank(), 1, 3));
    let mut engine = MpiEngine::new(exchange.plan(), world, options(Mover::Messages, LONG)).unwrap();
    engine.run(Own::new(&from, &mut to)).unwrap();
    assert!(to == expected);
}

/// With barriers between the steps, looking after a run does not wait for a rank that is not there.
pub fn looks_do_not_wait(world: &dyn World) {
    let exchange = Exchange::new(world, 0);
    let messages = MessagesOptions::default().with_barriers(true);
    let options =
        MpiOptions::default().with_mover(Mover::Messages).with_messages(messages).with_deadline(Some(LONG));
    let mut engine = MpiEngine::new(exchange.plan(), world, options).unwrap();
    let from = exchange.values(world.rank(), 0, 1);
    let mut to = vec![0; exchange.values(world.rank(), 1, 0).len()];
    // Rank 1 comes when the others have looked.
    if world.rank() == 1 {
        world.meet();
    }
    let mut running = engine.start(Own::new(&from, &mut to)).unwrap();
    if world.rank() != 1 {
        for _ in 0..100 {
            running.test().unwrap();
        }
        world.meet();
    }
    running.wait().unwrap();
    assert!(to == exchange.values(world.rank(), 1, 1));
}

/// Arrays larger than any memory are refused at once, and those that some machine may hold do not take long to plan.
pub fn larger_than_memory(world: &dyn World, mover: Mover) {
    let begin = Instant::now();
    let sides = |elems: u64| plan(&format!("2/64 of {elems}"), &format!("2/48 of {elems}"));
    let error =
        MpiEngine::new(sides(1 << 50), world, options(mover, LONG)).err().expect("4 PiB for each rank");
    assert!(error.to_string().contains("a process can have"), "{error}");
    let engine = MpiEngine::new(sides(1 << 36), world, options(mover, LONG)).unwrap();
    assert_eq!(engine.plan().bytes(), 8 << 36);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// A child of this process drops what its parent runs on: neither the parent nor the other ranks notice.
#[allow(unsafe_code)]
pub fn forked(world: &dyn World, mover: Mover) {
    let exchange = Exchange::new(world, 0);
    let mut engine = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).unwrap();
    let expected = exchange.values(world.rank(), 1, 1);
    let from = exchange.values(world.rank(), 0, 1);
    let (mut shared_from, mut shared_to): (Shared<u64>, Shared<u64>) =
        (Shared::zeroed(world, from.len()).unwrap(), Shared::zeroed(world, expected.len()).unwrap());
    shared_from.copy_from_slice(&from);
    let mut to = vec![0; expected.len()];
    for round in 0..4 {
        to.fill(round);
        if round % 2 == 0 {
            // SAFETY: the child ends without returning, and calls nothing that needs a lock of another thread.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = match mover {
                    Mover::Shared => engine.run(Own::shared(&shared_from, &mut shared_to)),
                    _ => engine.run(Own::new(&from, &mut to)),
                };
                let said = refused.err().map_or(String::new(), |error| error.to_string());
                let settled = shared_from.wait_for_readers().is_err();
                drop(engine);
                drop((shared_from, shared_to));
                // SAFETY: ends the child, without what MPI would do at the end.
                unsafe { libc::_exit(if said.contains("forked") && settled { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "what the child found");
        }
        match mover {
            Mover::Shared => {
                engine.run(Own::shared(&shared_from, &mut shared_to)).unwrap();
                assert!(shared_to[..] == expected);
            }
            _ => {
                engine.run(Own::new(&from, &mut to)).unwrap();
                assert!(to == expected, "round {round}");
            }
        }
    }
}

/// What is chosen where ranks cannot see each other's memory, and why; movers that need it are refused.
pub fn hidden(world: &dyn World) {
    let exchange = Exchange::new(world, 0);
    let mut engine = MpiEngine::new(exchange.plan(), world, options(Mover::Auto, LONG)).unwrap();
    assert_eq!(engine.mover(), Mover::Messages, "{}", engine.why());
    assert!(engine.why().contains("namespaces"), "{}", engine.why());
    let from = exchange.values(world.rank(), 0, 1);
    let mut to = vec![0; exchange.values(world.rank(), 1, 0).len()];
    engine.run(Own::new(&from, &mut to)).unwrap();
    assert!(to == exchange.values(world.rank(), 1, 1));
    for mover in [Mover::Private, Mover::Shared] {
        let error = MpiEngine::new(exchange.plan(), world, options(mover, LONG)).err().expect("hidden");
        assert!(
            error.to_string().contains("one node") && error.to_string().contains("namespaces"),
            "{error}"
        );
    }
    assert!(Shared::<u8>::zeroed(world, 1).is_err());
}

/// Runs that are waited for longer than any clock counts, with deadlines as long.
pub fn without_an_end(world: &dyn World) {
    let exchange = Exchange::new(world, 0);
    let given = options(Mover::Messages, Duration::MAX).with_setup_deadline(Duration::MAX);
    let mut engine = MpiEngine::new(exchange.plan(), world, given).unwrap();
    let from = exchange.values(world.rank(), 0, 5);
    let expected = exchange.values(world.rank(), 1, 5);
    for time in [Duration::MAX, Duration::from_secs(u64::MAX / 4)] {
        let mut to = vec![0; expected.len()];
        let mut run = engine.start(Own::new(&from, &mut to)).unwrap();
        assert!(run.wait_for(time).unwrap());
        run.wait().unwrap();
        assert!(to == expected);
    }
}

/// From now on no file of this process may have more bytes.
#[allow(unsafe_code)]
pub fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Where files may not be long enough for shared memory, messages are sent; a mover that was asked for by name says why it cannot be had.
pub fn limited_files(world: &dyn World) {
    let exchange = Exchange::new(world, 0);
    for mover in [Mover::Private, Mover::Mixed] {
        let made = MpiEngine::new(exchange.plan(), world, options(mover, LONG));
        let said = made.err().expect("it needs shared memory").to_string();
        assert!(said.contains("more than 4096 bytes (RLIMIT_FSIZE, `ulimit -f`)"), "{said}");
    }
    let mut engine = MpiEngine::new(exchange.plan(), world, options(Mover::Auto, LONG)).unwrap();
    assert_eq!(engine.mover(), Mover::Messages, "{}", engine.why());
    assert!(engine.why().contains("RLIMIT_FSIZE"), "{}", engine.why());
    let mut to = vec![0; exchange.values(world.rank(), 1, 0).len()];
    engine.run(Own::new(&exchange.values(world.rank(), 0, 3), &mut to)).unwrap();
    assert!(to == exchange.values(world.rank(), 1, 3));
}
