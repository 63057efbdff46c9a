//! Shared parts that others may still read after their owner's run has ended.

use crate::trust;
use crate::world::World;
use reshard::{Layout, MemoryOrder, Move, Plan};
use reshard_mpi::{Mover, MpiEngine, Own, Shared};
use reshard_plan::Distribution;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ELEMS: usize = 300_000;

/// From one rank to another, with a deadline.
fn engine(world: &dyn World, from: &str, to: &str, deadline: Duration) -> MpiEngine {
    let layout = |text: &str| {
        let distribution: Distribution = format!("{text} of {ELEMS}").parse().unwrap();
        Layout::new(distribution, MemoryOrder::ColMajor)
    };
    let plan = Plan::new(vec![Move::of::<f64>(layout(from), layout(to)).unwrap()]).unwrap();
    let options = trust::options(Mover::SharedSource, deadline);
    MpiEngine::new(Arc::new(plan), world, options).unwrap()
}

/// Rank 0 owns everything and writes the next values as soon as its run is over; rank 1 reads, now and then late.
pub fn overwritten(world: &dyn World) {
    let mut engine = engine(world, "1/7", "1/7 ranks=1", Duration::from_secs(1200));
    assert_eq!(engine.mover(), Mover::SharedSource);
    let mut shared: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let mut to = vec![0; engine.target_len(0)];
    let mut ahead = 0;
    for round in 0..60 {
        if world.rank() == 0 {
            let began = Instant::now();
            // Waits for the reader of the round before.
            shared.iter_mut().enumerate().for_each(|(at, value)| *value = (round * ELEMS + at) as u64);
            ahead += u32::from(began.elapsed() > Duration::from_millis(5));
        } else if round % 4 == 0 {
            sleep(Duration::from_millis(20));
        }
        assert_eq!(engine.run(Own::shared_source(&shared, &mut to)).unwrap().bytes, engine.plan().bytes());
        let wrong = to.iter().enumerate().find(|(at, value)| **value != (round * ELEMS + at) as u64);
        assert_eq!(wrong, None, "round {round}");
    }
    assert!(world.rank() == 1 || ahead > 0, "the owner never was ahead of its reader: nothing was tested");
    // Memory that is gone for its owner is there for who still reads it.
    if world.rank() == 1 {
        sleep(Duration::from_millis(50));
    }
    engine.run(Own::shared_source(&shared, &mut to)).unwrap();
    drop(shared);
    assert!(to.iter().enumerate().all(|(at, value)| *value == (59 * ELEMS + at) as u64));
}

/// Rank 1 does not read: its owner is told, once, and has its memory back; who reads too late is told, too.
pub fn unread(world: &dyn World) {
    let mut engine = engine(world, "1/7", "1/7 ranks=1", Duration::from_millis(300));
    let mut shared: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let meet = || world.meet();
    if world.rank() == 0 {
        engine.run(Own::shared_source(&shared, &mut [])).unwrap();
        let said = shared.wait_for_readers().unwrap_err().to_string();
        assert!(said.contains("for rank 1") && said.contains("revoked"), "{said}");
        shared.wait_for_readers().unwrap();
        shared[0] = 1;
        meet();
    } else {
        meet();
        let mut to = vec![0; engine.target_len(0)];
        let said = engine.run(Own::shared_source(&shared, &mut to)).unwrap_err().to_string();
        assert!(said.contains("rank 0") && said.contains("revoked its shared part"), "{said}");
    }
}

/// Rank 1 never reads with one engine, and late with another: the owner waits for both.
pub fn of_two(world: &dyn World) {
    let mut never = engine(world, "1/7", "1/7 ranks=1", Duration::from_millis(200));
    let mut late = engine(world, "1/5", "1/5 ranks=1", Duration::from_secs(1200));
    let mut shared: Shared<u64> = Shared::zeroed(world, never.source_len(0)).unwrap();
    if world.rank() == 0 {
        never.run(Own::shared_source(&shared, &mut [])).unwrap();
        late.run(Own::shared_source(&shared, &mut [])).unwrap();
        let said = shared.wait_for_readers().unwrap_err().to_string();
        assert!(said.contains("waited ") && said.contains(" s for rank 1"), "{said}");
        shared.fill(1);
    } else {
        sleep(Duration::from_millis(500));
        let mut to = vec![2; late.target_len(0)];
        late.run(Own::shared_source(&shared, &mut to)).unwrap();
        assert!(to.iter().all(|&value| value == 0), "read before it was written to");
    }
}

/// Ranks 0 and 2 own halves that rank 1 reads, but 2 never begins: 1 gives up, and 0 need not wait for it.
pub fn given_up(world: &dyn World) {
    let mut engine = engine(world, "2/7 ranks=0,2", "1/7 ranks=1", Duration::from_millis(400));
    let mut shared: Shared<u64> = Shared::zeroed(world, engine.source_len(0)).unwrap();
    let mut to = vec![0; engine.target_len(0)];
    match world.rank() {
        0 => {
            sleep(Duration::from_millis(300));
            engine.run(Own::shared_source(&shared, &mut to)).unwrap();
            // Its reader began before, and so gives up in time.
            shared.wait_for_readers().unwrap();
        }
        1 => {
            let said = engine.run(Own::shared_source(&shared, &mut to)).unwrap_err().to_string();
            assert!(said.contains("for rank 2"), "{said}");
        }
        _ => {}
    }
    sleep(Duration::from_millis(700));
}
