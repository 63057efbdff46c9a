//! Random pairs of layouts: every byte of every step, also of what must stay as it was. Jobs host all their ranks, or each of their
//! ranks is one of several that call together, here threads; they meet by a file or are programs of one world.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)]

use reshard::Result;
use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Setup, Subscriber, Subscription, World};
use reshard_mpi::communicator::Communicator;
use reshard_mpi::in_process;
use reshard_testkit::conformance::{Case, Kinds, Parts};
use reshard_testkit::{Random, full_sweep};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(1200);
const STEPS: usize = 3;

/// How two jobs meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a file, each job in one process or in one for each rank.
    File { together: [bool; 2], shared: bool },
    /// As two programs of one world, one process for each rank.
    World,
}

/// A process: its job, and where it meets the other.
type Process = Box<dyn FnOnce() -> (Job, Meeting) + Send>;

/// The processes of both jobs. What they make is made by all at the same time.
fn processes(way: Way, ranks: [usize; 2], path: &Path) -> [Vec<Process>; 2] {
    let transports = if way == Way::World { in_process::transports(ranks[0] + ranks[1]) } else { Vec::new() };
    let all = in_process::group(ranks[0] + ranks[1]);
    let mut world = all.into_iter().zip(transports);
    [0, 1].map(|side| -> Vec<Process> {
        match way {
            Way::File { together, .. } if together[side] => {
                let meeting = Meeting::file(path);
                vec![Box::new(|| (Job::hosting_all(), meeting))]
            }
            Way::File { .. } => {
                let one = |rank: Arc<Communicator>| -> Process {
                    let meeting = Meeting::file(path);
                    Box::new(move || (Job::of(&rank, DEADLINE).unwrap(), meeting))
                };
                in_process::group(ranks[side]).into_iter().map(one).collect()
            }
            Way::World => {
                let names = ["producer", "consumer"];
                let mut one = |own: Arc<Communicator>| -> Process {
                    let (all, transport) = world.next().unwrap();
                    Box::new(move || {
                        let world = World::over(&all, &own, transport, names[side], DEADLINE).unwrap();
                        (world.job(), Meeting::in_world(&world, names[1 - side]))
                    })
                };
                in_process::group(ranks[side]).into_iter().map(&mut one).collect()
            }
        }
    })
}

fn options(shared: bool) -> Options {
    Options::default().with_deadline(DEADLINE).with_shared_memory(shared)
}

/// What one process of the producer does with its parts of each step.
fn produce(process: Process, shared: bool, case: &Case, steps: &[Vec<&[u8]>]) -> Result<()> {
    let (job, meeting) = process();
    let mut publisher = Publisher::new(job, options(shared));
    let element = format!("bytes({})", case.moving.elem_bytes()).parse()?;
    let array = publisher.publish("array", case.moving.from(), element)?;
    publisher.open(&meeting)?;
    publisher.wait_for(1)?;
    for (number, parts) in (0..).zip(steps) {
        publisher.put_bytes(array, number, format!("step {number}").as_bytes(), parts)?;
    }
    publisher.finish().map(drop)
}

/// What one process of the consumer does.
fn consume(
    process: Process,
    shared: bool,
    case: &Case,
    drops: bool,
    steps: &mut [Vec<&mut [u8]>],
) -> Result<Setup> {
    let (job, meeting) = process();
    let mut subscriber = Subscriber::new(job, options(shared));
    let element: ElementType = format!("bytes({})", case.moving.elem_bytes()).parse()?;
    let problem = case.moving.problem();
    let wanted = Subscription::new("array", case.moving.to(), element).with_depth(if drops { 3 } else { 1 });
    let wanted =
        wanted.of_window(problem.shape(), problem.from_offset(), problem.to_offset(), problem.axes());
    let wanted = if drops { wanted.dropping_oldest() } else { wanted };
    let array =
        subscriber.subscribe_to(if case.salt.is_multiple_of(2) { wanted.whole_steps() } else { wanted })?;
    let setup = subscriber.connect(&meeting)?;
    for (number, parts) in (0..).zip(steps.iter_mut()) {
        let info = subscriber.get_bytes(array, parts)?.expect("there is a step");
        assert_eq!(
            (info.number, info.dropped, info.header),
            (number, 0, format!("step {number}").into_bytes())
        );
    }
    assert_eq!(subscriber.get_bytes(array, &mut steps.last_mut().unwrap()[..])?, None);
    subscriber.leave();
    Ok(setup)
}

/// For each process, its parts of each step.
fn dealt<T>(steps: Vec<Vec<T>>, ranks: &[u64], processes: &[Process], together: bool) -> Vec<Vec<Vec<T>>> {
    let mut dealt: Vec<Vec<Vec<T>>> = processes.iter().map(|_| Vec::new()).collect();
    for step in steps {
        dealt.iter_mut().for_each(|process| process.push(Vec::new()));
        for (part, &rank) in step.into_iter().zip(ranks) {
            let process = if together { 0 } else { rank as usize };
            dealt[process].last_mut().unwrap().push(part);
        }
    }
    dealt
}

fn judge(case: &Case, way: Way, drops: bool, path: &Path) {
    let layouts = [case.moving.from(), case.moving.to()];
    let sizes =
        layouts.map(|layout| layout.distribution().grid().max_rank().map_or(0, |rank| rank as usize + 1));
    let [producers, consumers] = processes(way, sizes, path);
    let (together, shared) = match way {
        Way::File { together, shared } => (together, shared),
        Way::World => ([false; 2], true),
    };
    let of_step = |step: u64| Case { salt: case.salt.wrapping_add(step), ..case.clone() };
    let cases: Vec<Case> = (0..STEPS as u64).map(of_step).collect();
    let mut parts: Vec<Parts> = cases.iter().map(Case::parts).collect();
    let slices = cases.iter().zip(&mut parts).map(|(case, parts)| case.slices(parts));
    let (from, to): (Vec<_>, Vec<_>) = slices.unzip();
    let ranks = layouts.map(|layout| layout.distribution().grid().sorted_ranks());
    let from = dealt(from, &ranks[0], &producers, together[0]);
    let to = dealt(to, &ranks[1], &consumers, together[1]);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (process, steps) in producers.into_iter().zip(from) {
            threads.push(scope.spawn(move || produce(process, shared, case, &steps).unwrap()));
        }
        for (process, mut steps) in consumers.into_iter().zip(to) {
            threads.push(scope.spawn(move || {
                let setup = consume(process, shared, case, drops, &mut steps).unwrap();
                let through = if shared && way != Way::World { setup.connections } else { 0 };
                // The leaders' connection is none for data.
                assert!(through <= setup.shared_connections + 1 && (shared || setup.shared_connections == 0));
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    cases.iter().zip(&parts).for_each(|(case, parts)| case.check(parts));
}

#[test]
fn random_pairs_of_layouts_are_right_byte_by_byte() {
    let folder = std::env::temp_dir().join(format!("reshard-random-pairs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let cases = if full_sweep() { 2_000 } else { 200 };
    let mut random = Random::new(if full_sweep() { 22_000 } else { 22 });
    let (mut judged, mut ways) = (0, [0; 4]);
    while judged < cases {
        let kinds = Kinds { ranks: Some(8), procs: 3, ..Kinds::default() };
        // Two jobs have no rank in common, so they take other copies than the case says.
        let case = Case { equal_copies: true, ..Case::random(&mut random, &kinds) };
        // Triangles are not coupled.
        if case.moving.triangle().is_some() {
            continue;
        }
        let together = [random.one_in(2), random.one_in(2)];
        let shared = random.one_in(2);
        let way = if random.one_in(3) { Way::World } else { Way::File { together, shared } };
        judge(&case, way, random.one_in(3), &folder.join(format!("{judged}.meet")));
        judged += 1;
        ways[match way {
            Way::World => 0,
            Way::File { together: [true, true], .. } => 1,
            Way::File { shared: true, .. } => 2,
            Way::File { .. } => 3,
        }] += 1;
    }
    assert!(ways.iter().all(|&count| count > cases / 10), "{ways:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
