//! What goes wrong: ranks that were given something else, do not come, or end in the middle.

use crate::trust;
use crate::world::World;
use reshard::engine::{MessagesOptions, Report};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Layout, MemoryOrder, Move, Plan, Window};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own, Shared};
use reshard_plan::Distribution;
use reshard_testkit::Random;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a call is given; each number is one argument.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Given {
    shape: [u64; 2],
    from: ([u64; 2], [u64; 2]),
    to: ([u64; 2], [u64; 2]),
    elem: u64,
    window: [u64; 2],
    from_at: [u64; 2],
    /// Of the source and of the destination.
    orders: [MemoryOrder; 2],
    mover: Mover,
    strategy: Strategy,
    memory: Option<u64>,
}

impl Given {
    fn engine(&self, world: &dyn World) -> reshard::Result<MpiEngine> {
        let layout = |(grid, block): ([u64; 2], [u64; 2]), order: MemoryOrder| {
            let text = format!(
                "{}x{}/{}x{} of {}x{}",
                grid[0], grid[1], block[0], block[1], self.shape[0], self.shape[1]
            );
            Ok::<_, reshard::Error>(Layout::new(text.parse::<Distribution>()?, order))
        };
        let window = Window::of(&self.window).from(&self.from_at);
        let moves = || {
            let (from, to) = (layout(self.from, self.orders[0])?, layout(self.to, self.orders[1])?);
            Ok(vec![Move::windowed::<f64>(from, to, window)?.of_bytes(self.elem)?])
        };
        let messages = MessagesOptions::default().with_strategy(self.strategy).with_memory(self.memory);
        let deadline = Some(Duration::from_secs(1200));
        let options =
            MpiOptions::default().with_mover(self.mover).with_messages(messages).with_deadline(deadline);
        MpiEngine::of_moves(moves(), world, options)
    }

    /// Something else in one place.
    fn changed(&self, what: u64) -> Self {
        let mut other = self.clone();
        match what {
            0 => other.shape[0] += 1,
            1 => other.shape[1] += 1,
            2 => other.from.1[0] += 1,
            3 => other.from.1[1] += 1,
            4 => other.to.1[0] += 1,
            5 => other.to.1[1] += 1,
            6 => other.elem += 1,
            7 => other.window[0] -= 1,
            8 => other.window[1] -= 1,
            9 => other.from_at[0] += 1,
            10 => other.from_at[1] += 1,
            11 => other.orders[0] = another(self.orders[0]),
            12 => other.mover = if self.mover == Mover::Private { Mover::Messages } else { Mover::Private },
            13 => other.strategy = Strategy::Caterpillar,
            14 => other.memory = Some(1 << 20),
            15 => other.from.0.swap(0, 1),
            // These cannot be planned at all.
            16 => other.from.1[0] = 0,
            17 => other.elem = 0,
            18 => other.window[1] = 1_000,
            19 => other.orders[1] = another(self.orders[1]),
            _ => other.to.0.swap(0, 1),
        }
        other
    }
}

fn another(order: MemoryOrder) -> MemoryOrder {
    if order == MemoryOrder::ColMajor { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor }
}

/// The number of different changes, and those that leave nothing to plan.
const CHANGES: u64 = 21;
const IMPOSSIBLE: Range<u64> = 16..19;

/// One rank is given one other argument: all ranks are told, by the same sentence, which names that rank.
pub fn disagreement(world: &dyn World, seed: u64, trials: u64) {
    let mut random = Random::new(seed);
    let size = world.size() as u64;
    for trial in 0..trials {
        let given = Given {
            shape: [random.within(40, 90), random.within(40, 90)],
            from: ([1, size], [random.within(1, 9), random.within(1, 9)]),
            to: ([size, 1], [random.within(1, 9), random.within(1, 9)]),
            elem: random.within(1, 16),
            window: [random.within(5, 30), random.within(5, 30)],
            from_at: [random.within(0, 5), random.within(0, 5)],
            orders: [(); 2]
                .map(|()| if random.one_in(2) { MemoryOrder::ColMajor } else { MemoryOrder::RowMajor }),
            mover: if random.one_in(2) { Mover::Private } else { Mover::Messages },
            strategy: Strategy::Optimal,
            memory: None,
        };
        let odd = random.within(0, size - 1);
        let what = random.within(0, CHANGES - 1);
        let other = given.changed(what);
        assert_ne!(given, other);
        let mine = if world.rank() as u64 == odd { &other } else { &given };
        let error = match mine.engine(world) {
            Ok(_) => panic!(
                "trial {trial}: rank {odd} was given {other:?} instead of {given:?}, and nobody noticed"
            ),
            Err(error) => error.to_string(),
        };
        // With two ranks nobody can say who is right; both are named.
        let names = if IMPOSSIBLE.contains(&what) {
            format!("rank {odd}: ")
        } else {
            format!("rank {odd} was given")
        };
        assert!(error.contains(&names), "trial {trial}: {error}");
        let mut words = [b' '; 600];
        let length = error.len().min(600);
        words[..length].copy_from_slice(&error.as_bytes()[..length]);
        let all = world.gather(&words);
        assert!(all.chunks_exact(600).all(|other| other == words), "trial {trial}: all are told the same");
        // And when all agree again, all is well.
        if trial % 16 == 0 {
            given.engine(world).unwrap();
        }
    }
}

/// A rank that never calls is named by all others, soon after the deadline.
pub fn absence(world: &dyn World) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("3/2 of 100"), layout("3/7 of 100")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    if world.rank() == 1 {
        // It has been here once, and now stays away.
        world.communicator();
    }
    if world.rank() != 1 {
        world.communicator();
        let options = MpiOptions::default().with_deadline(Some(Duration::from_millis(300)));
        let error = MpiEngine::new(Arc::clone(&plan), world, options).err().expect("rank 1 is not here");
        assert!(error.to_string().contains("rank 1 did not answer"), "{error}");
        assert_eq!(error.kind(), ErrorKind::External);
        refused(world, plan);
    }
    world.meet();
}

/// A rank that makes its engine but never runs it is named, and is told when it does.
pub fn silence(world: &dyn World, mover: Mover) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("2/60 of 120"), layout("2/60 ranks=1,0 of 120")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = trust::options(mover, Duration::from_millis(300));
    let mut engine = MpiEngine::new(Arc::clone(&plan), world, options).unwrap();
    if world.rank() == 0 {
        let (from, mut to) = ([1.0; 60], [0.0; 60]);
        let mut running = engine.start(Own::new(&from, &mut to)).unwrap();
        let error = loop {
            match running.test() {
                Ok(over) => assert!(!over),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("for rank 1: it has exited"), "{error}");
        let said = running.test().unwrap_err().to_string();
        assert!(said.contains("the run failed"), "{said}");
        assert!(running.wait().is_err());
        let error = engine.run(Own::new(&from, &mut to)).unwrap_err();
        assert!(error.to_string().contains("an earlier run failed"), "{error}");
    }
    world.meet();
    // Another engine on the same communicator is none the worse for it.
    let (from, mut to) = ([world.rank() as f64; 60], [-1.0; 60]);
    if world.rank() == 1 {
        match engine.run(Own::new(&from, &mut to)) {
            // All that rank 0 had for it was in flight already.
            Ok(_) => assert_eq!(to, [1.0; 60]),
            Err(error) => {
                let said = error.to_string();
                // However long it took on a busy machine.
                assert!(said.contains("rank 0 cannot go on: waited "), "{said}");
                assert!(said.contains(" s for rank 1"), "{said}");
            }
        }
    }
    let options = MpiOptions::default().with_mover(mover);
    MpiEngine::new(plan, world, options).unwrap().run(Own::new(&from, &mut to)).unwrap();
    assert_eq!(to, [1.0 - world.rank() as f64; 60]);
}

/// A new engine on the same communicator fails at once.
fn refused(world: &dyn World, plan: Arc<Plan>) {
    let begin = Instant::now();
    let options = MpiOptions::default().with_deadline(Some(trust::LONG));
    let error = MpiEngine::new(plan, world, options).err().expect("the ranks are out of step");
    assert!(error.to_string().contains("use another communicator"), "{error}");
    assert!(begin.elapsed() < trust::SOON, "long before the deadline");
}

/// A rank's parts, as the engine's mover wants them.
enum Parts {
    Private(Vec<f64>, Vec<f64>),
    Shared(Shared<f64>, Shared<f64>),
}

impl Parts {
    /// The source is full of a value, the destination of -1.
    fn new(world: &dyn World, engine: &MpiEngine, value: f64) -> Self {
        let (from, to) = (engine.source_len(0), engine.target_len(0));
        if engine.mover() != Mover::Shared {
            return Self::Private(vec![value; from], vec![-1.0; to]);
        }
        let mut parts = [from, to].map(|len| Shared::zeroed(world, len).unwrap());
        parts[0].fill(value);
        parts[1].fill(-1.0);
        let [from, to] = parts;
        Self::Shared(from, to)
    }

    fn run(&mut self, engine: &mut MpiEngine) -> reshard::Result<Report> {
        match self {
            Self::Private(from, to) => engine.run(Own::new(from, to)),
            Self::Shared(from, to) => engine.run(Own::shared(from, to)),
        }
    }

    /// Begins a run, and leaves it.
    fn run_a_little(&mut self, engine: &mut MpiEngine) {
        let begun = match self {
            Self::Private(from, to) => engine.start(Own::new(from, to)),
            Self::Shared(from, to) => engine.start(Own::shared(from, to)),
        };
        let mut running = begun.unwrap();
        (0..3).for_each(|_| _ = running.test().unwrap());
        std::mem::forget(running);
    }

    fn received(&self) -> &[f64] {
        match self {
            Self::Private(_, to) => to,
            Self::Shared(_, to) => to,
        }
    }
}

/// Many engines and many more runs, in as much memory as few.
pub fn calls(world: &dyn World, mover: Mover, calls: u64) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("2x1/3x2 of 20x20"), layout("1x2/4x7 of 20x20")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = MpiOptions::default().with_mover(mover);
    let mut memory = Vec::new();
    for call in 0..calls {
        // Four runs for each engine: shared memory comes and goes with it.
        let mut engine = MpiEngine::in_tasks(Arc::clone(&plan), world, options, 64).unwrap();
        let mut parts = Parts::new(world, &engine, world.rank() as f64);
        for _ in 0..4 {
            parts.run(&mut engine).unwrap();
        }
        assert!(parts.received().iter().all(|&value| value >= 0.0));
        if call >= calls / 4 && call % (calls / 4).max(1) == 0 {
            memory.push(resident());
        }
    }
    let (first, last) = (memory[0], memory[memory.len() - 1]);
    assert!(last < first + (4 << 20), "{memory:?} bytes of memory");
}

pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The last rank ends before its run of this number; the others must not wait for ever.
pub fn end(world: &dyn World, how: &str, mover: Mover, step: u64) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("3/2 of 100000"), layout("3/7 of 100000")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = MpiOptions::default().with_mover(mover).with_deadline(Some(Duration::from_secs(3)));
    let mut engine = MpiEngine::in_tasks(plan, world, options, 4096).unwrap();
    let mut parts = Parts::new(world, &engine, 1.0);
    for run in 0..=step + 1 {
        if run == step && world.rank() + 1 == world.size() {
            match how {
                "panic" => panic!("on purpose"),
                "exit" => std::process::exit(7),
                _ => world.kill(),
            }
        }
        if let Err(error) = parts.run(&mut engine) {
            assert!(error.to_string().contains("rank 2"), "{error}");
            // The rest cannot be done: the job ends.
            std::process::exit(3);
        }
    }
}

/// The last rank is killed before or in its run of this number, and the launcher lets the others go on: they are told who is
/// missing, in this run or the next, and again by the next engine on the same communicator.
pub fn killed(world: &dyn World, mover: Mover, step: u64) {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let moving = Move::of::<f64>(layout("3/2 of 100000"), layout("3/7 of 100000")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let options = MpiOptions::default().with_mover(mover).with_deadline(Some(Duration::from_secs(1)));
    let mut engine = MpiEngine::in_tasks(Arc::clone(&plan), world, options, 4096).unwrap();
    let mut parts = Parts::new(world, &engine, 1.0);
    let begin = Instant::now();
    let mut outcomes = (0..=step + 1).map(|run| {
        if run == step && world.rank() == 2 {
            // Sometimes it has moved something.
            if step % 2 == 1 {
                parts.run_a_little(&mut engine);
            }
            world.kill();
        }
        parts.run(&mut engine)
    });
    let error = outcomes.find_map(Result::err).expect("rank 2 is gone").to_string();
    assert!(error.contains("rank 2") || error.contains("and 2"), "{error}");
    // The other may be told later than this rank, by a deadline.
    let options = options.with_deadline(Some(Duration::from_millis(2500)));
    let next = MpiEngine::new(plan, world, options).err().expect("rank 2 is gone").to_string();
    assert!(next.contains("rank 2 did not answer"), "{next}");
    assert!(begin.elapsed() < trust::SOON);
    println!("[{}/2 done]", world.rank());
    if world.mpi().is_some() {
        // MPI cannot end without rank 2.
        std::process::exit(0);
    }
}
