//! Shared destinations, which any rank may write to.

use crate::trust;
use crate::world::World;
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own, Shared};
use reshard_plan::Distribution;
use reshard_testkit::Random;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An engine that moves numbers from one layout to another, in tasks of `task_bytes` bytes that any rank may copy.
fn engine(world: &dyn World, from: &str, to: &str, task_bytes: u64, deadline: Duration) -> MpiEngine {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let plan = Plan::new(vec![Move::of::<f64>(layout(from), layout(to)).unwrap()]).unwrap();
    let options = trust::options(Mover::Shared, deadline);
    MpiEngine::in_tasks(Arc::new(plan), world, options, task_bytes).unwrap()
}

/// Rank 0 owns everything, rank 1 receives it, and rank 2 is idle: each task is copied once, some by rank 2.
pub fn everywhere(world: &dyn World) {
    const ELEMS: usize = 1 << 20;
    const TASKS: u64 = ELEMS as u64 / 512;
    let layout = |ranks: &str| format!("1/{ELEMS}{ranks} of {ELEMS}");
    let mut engine = engine(world, &layout(""), &layout(" ranks=1"), 4096, Duration::from_secs(1200));
    let mut from: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let mut to: Shared<u64> = Shared::zeroed(world, engine.target_len(0)).unwrap();
    let mut helped = 0;
    // Where there are more ranks than processors, it may take some rounds until rank 2 runs while there is something to copy.
    for round in 0.. {
        if round >= 100 && helped > 0 {
            break;
        }
        assert!(round < 5_000, "rank 2 never helped: nothing was tested");
        let value = |at: usize| (round * ELEMS + at) as u64;
        from.iter_mut().enumerate().for_each(|(at, place)| *place = value(at));
        world.meet();
        if world.rank() == round % 3 {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(engine.run(Own::shared(&from, &mut to)).unwrap().bytes, engine.plan().bytes());
        let wrong = to.iter().enumerate().find(|(at, found)| **found != value(*at));
        assert_eq!(wrong, None, "round {round}");
        let mut tasks = [0; 3];
        tasks[world.rank()] = engine.tasks_copied();
        world.sum(&mut tasks);
        assert_eq!(tasks.iter().sum::<u64>(), TASKS, "{tasks:?}");
        helped += tasks[2];
    }
}

/// Two arrays that take turns as source and destination, and change on the way, while ranks come early and late.
pub fn back_and_forth(world: &dyn World) {
    let (rows, cols) = (128, 96);
    let texts = [format!("2x2/5x3 of {rows}x{cols}"), format!("3x1/7x50 ranks=1,3,0 of {rows}x{cols}")];
    let mut there = engine(world, &texts[0], &texts[1], 700, Duration::from_secs(1200));
    let mut back = engine(world, &texts[1], &texts[0], 900, Duration::from_secs(1200));
    let mut near: Shared<u64> = Shared::zeroed(world, there.source_len(0)).unwrap();
    let mut far: Shared<u64> = Shared::zeroed(world, there.target_len(0)).unwrap();
    let mut random = Random::new(world.rank() as u64);
    let first = |at: usize| (world.rank() << 32 | at) as u64;
    near.iter_mut().enumerate().for_each(|(at, value)| *value = first(at));
    for round in 0..300 {
        let mut rest = || {
            if random.one_in(20) {
                sleep(Duration::from_micros(random.within(1, 3_000)));
            }
        };
        rest();
        there.run(Own::shared(&near, &mut far)).unwrap();
        rest();
        far.iter_mut().for_each(|value| *value += 1);
        back.run(Own::shared(&far, &mut near)).unwrap();
        let wrong = near.iter().enumerate().find(|(at, value)| **value != first(*at) + 2 * round + 1);
        assert_eq!(wrong, None, "round {round}");
        near.iter_mut().for_each(|value| *value += 1);
    }
}

/// What rank 2 has goes to rank 0, and from there to rank 1, who now and then is late: nothing is written to rank 0's part that
/// rank 1 has not read.
pub fn passed_on(world: &dyn World) {
    const ELEMS: usize = 200_000;
    let layout = |rank: usize| format!("1/{ELEMS} ranks={rank} of {ELEMS}");
    let between = |from, to| engine(world, &layout(from), &layout(to), 5_000, Duration::from_secs(1200));
    let (mut first, mut second) = (between(2, 0), between(0, 1));
    let part = |len| Shared::<u64>::zeroed(world, len).unwrap();
    let (mut from, mut over) = (part(first.source_len(0)), part(first.target_len(0)));
    let mut to = part(second.target_len(0));
    for round in 0..60 {
        let value = |at: usize| (round * ELEMS + at) as u64;
        from.iter_mut().enumerate().for_each(|(at, place)| *place = value(at));
        first.run(Own::shared(&from, &mut over)).unwrap();
        if world.rank() == 1 && round % 4 == 0 {
            sleep(Duration::from_millis(20));
        }
        second.run(Own::shared(&over, &mut to)).unwrap();
        let wrong = to.iter().enumerate().find(|(at, found)| **found != value(*at));
        assert_eq!(wrong, None, "round {round}");
    }
}

/// Ranks 1, 3 and 4 receive what ranks 0 and 2 own, together, but 2 never begins: 1 and 4 give up, 3, who has more patience, is told,
/// and 0 need not wait.
pub fn given_up(world: &dyn World) {
    let limit = if world.rank() == 3 { Duration::from_secs(1200) } else { Duration::from_millis(400) };
    let from = "2x1/4x4 ranks=0,2 of 66x64";
    let mut engine = engine(world, from, "3x1/3x3 ranks=1,3,4 of 66x64", 4096, limit);
    let mut shared: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let mut to: Shared<u64> = Shared::zeroed(world, engine.target_len(0)).unwrap();
    match world.rank() {
        0 => {
            sleep(Duration::from_millis(300));
            engine.run(Own::shared(&shared, &mut to)).unwrap();
            shared.wait_for_readers().unwrap();
            shared.fill(1);
        }
        2 => {}
        _ => {
            let said = engine.run(Own::shared(&shared, &mut to)).unwrap_err().to_string();
            // Whoever is first tells the others.
            let told = said.contains(" gave the run up");
            assert!(told || (world.rank() != 3 && said.contains("for rank 2")), "{said}");
            // Nobody writes to it any more.
            assert!(to.iter().all(|&value| value == 0));
            let again = engine.run(Own::shared(&shared, &mut to)).unwrap_err().to_string();
            assert!(again.contains("an earlier run failed"), "{again}");
            assert!(to.iter().all(|&value| value == 0));
        }
    }
    sleep(Duration::from_millis(900));
}

/// Rank 1 takes one of two arrays for the other, as who changes buffers by turns may: everybody is told.
pub fn swapped(world: &dyn World) {
    let text = "3/5 of 10000";
    let mut engine = engine(world, text, "3/7 of 10000", 1000, Duration::from_secs(1200));
    let part = || Shared::<u64>::zeroed(world, engine.source_len(0).max(engine.target_len(0))).unwrap();
    let (mut one, mut other) = (part(), part());
    for _ in 0..50 {
        engine.run(Own::shared(&one, &mut other)).unwrap();
        engine.run(Own::shared(&other, &mut one)).unwrap();
    }
    let arrays = if world.rank() == 1 { (&other, &mut one) } else { (&one, &mut other) };
    let said = engine.run(Own::shared(arrays.0, arrays.1)).unwrap_err().to_string();
    assert!(said.contains("gives other alpha, beta or arrays") || said.contains("gave the run up"), "{said}");
}

/// Rank 0 owns everything, receives nothing and so runs ahead of rank 1, who is late. In its first run it takes one array for the
/// other: rank 1 is told, however far rank 0 has gone on.
pub fn swapped_and_gone_on(world: &dyn World, mover: Mover, runs: u32) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("1/5 of 10000"), layout("1/5 ranks=1 of 10000")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = MpiOptions::default().with_mover(mover).with_deadline(Some(Duration::from_secs(1200)));
    let mut engine = MpiEngine::in_tasks(plan, world, options, 1000).unwrap();
    let part = |len| Shared::<u64>::zeroed(world, len).unwrap();
    let (one, other) = (part(engine.source_len(0)), part(engine.source_len(0)));
    let mut shared = part(engine.target_len(0));
    let mut private = vec![0_u64; engine.target_len(0)];
    let mut run = |from: &Shared<u64>| match mover {
        Mover::Shared => engine.run(Own::shared(from, &mut shared)),
        _ => engine.run(Own::shared_source(from, &mut private)),
    };
    world.meet();
    if world.rank() == 0 {
        for number in 1..=runs {
            run(if number == 1 { &other } else { &one }).unwrap();
        }
    } else {
        sleep(Duration::from_millis(200));
        let said = run(&one).unwrap_err().to_string();
        assert!(said.contains("rank 0 gives other alpha, beta or arrays in this run than rank 1"), "{said}");
    }
}

/// Rank 0 runs ahead of rank 1, who is late, a few times: then it waits, without being told that it failed.
pub fn far_ahead(world: &dyn World) {
    let layout = |ranks: &str| format!("1/5{ranks} of 10000");
    let mut engine = engine(world, &layout(""), &layout(" ranks=1"), 1000, Duration::from_secs(1200));
    let mut from: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let mut to: Shared<u64> = Shared::zeroed(world, engine.target_len(0)).unwrap();
    from.iter_mut().enumerate().for_each(|(at, value)| *value = at as u64);
    world.meet();
    let began = Instant::now();
    if world.rank() == 1 {
        sleep(Duration::from_millis(300));
    }
    for _ in 0..100 {
        engine.run(Own::shared(&from, &mut to)).unwrap();
    }
    assert!(began.elapsed() > Duration::from_millis(250), "rank 0 did not wait");
    assert!(to.iter().enumerate().all(|(at, value)| *value == at as u64));
    // Readers are recorded for a run that the other ranks did not see at once.
    from.fill(7);
}

/// Rank 2 helps and is stopped, now and then in the middle of copying: rank 1, who receives it, is told whom it waited for, and
/// looks no more at what rank 2 may still write to.
pub fn stopped(world: &dyn World) {
    const ELEMS: u64 = 32 << 20;
    let mut pid = [0; 3];
    pid[world.rank()] = u64::from(std::process::id());
    world.sum(&mut pid);
    // A shell that is there already is quicker than a program that must be started first.
    let mut shell = Command::new("sh").stdin(Stdio::piped()).spawn().unwrap();
    let mut words = shell.stdin.take().unwrap();
    let mut signal = |name: &str| writeln!(words, "kill {name} {}", pid[2]).unwrap();
    let layout = |ranks: &str| format!("1/{ELEMS}{ranks} of {ELEMS}");
    let mut stuck = 0;
    for round in 0..40 {
        let limit = Duration::from_millis(300);
        let own = world.reordered(world.rank() as u32);
        let mut engine = engine(&*own, &layout(""), &layout(" ranks=1"), 4 << 20, limit);
        let from: Shared<u64> = Shared::zeroed(&*own, engine.source_len(0)).unwrap();
        let mut to: Shared<u64> = Shared::zeroed(&*own, engine.target_len(0)).unwrap();
        world.meet();
        let mut outcome = [0];
        // Rank 1 makes this file when rank 2 may go on.
        let looked_at = std::env::temp_dir().join(format!("reshard-stopped-{}-{round}", pid[2]));
        match world.rank() {
            0 => {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        sleep(Duration::from_millis(4 + round % 16));
                        signal("-STOP");
                        while !looked_at.exists() {
                            sleep(Duration::from_millis(1));
                        }
                        signal("-CONT");
                    });
                    engine.run(Own::shared(&from, &mut to)).unwrap();
                });
            }
            1 => {
                if let Err(error) = engine.run(Own::shared(&from, &mut to)) {
                    let said = error.to_string();
                    assert!(said.contains("for rank 2: it has exited, is stuck"), "{said}");
                    let looked = catch_unwind(AssertUnwindSafe(|| to[0]));
                    assert!(looked.is_err(), "rank 2 may still write to it");
                    outcome[0] = 1;
                }
                std::fs::write(&looked_at, "").unwrap();
            }
            _ => {
                // Later, so that there is something to help with.
                sleep(Duration::from_millis(2));
                engine.run(Own::shared(&from, &mut to)).unwrap();
            }
        }
        world.sum(&mut outcome);
        stuck += outcome[0];
        if world.rank() == 1 {
            std::fs::remove_file(&looked_at).unwrap();
        }
        if stuck > 0 {
            break;
        }
    }
    drop(words);
    shell.wait().unwrap();
    assert!(stuck > 0, "rank 2 was never stopped in the middle: nothing was tested");
}
