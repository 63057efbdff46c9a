//! Random pairs of layouts: every byte of every step, also of what must stay as it was. Jobs host all their ranks, or each of their
//! ranks is one of several that call together, here threads.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used)]

use reshard::Result;
use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Setup, Subscriber, Subscription};
use reshard_mpi::in_process;
use reshard_testkit::conformance::{Case, Kinds, Parts};
use reshard_testkit::{Random, full_sweep};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);
const STEPS: usize = 3;

/// The job of each process: one that hosts all ranks, or one for each rank.
fn jobs(together: bool, ranks: usize) -> Vec<(Job, Option<usize>)> {
    if together {
        return vec![(Job::hosting_all(), None)];
    }
    let ranks = in_process::group(ranks);
    // Made by all ranks at the same time.
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.iter().map(|rank| scope.spawn(move || Job::of(rank, DEADLINE).unwrap())).collect();
        threads.into_iter().enumerate().map(|(rank, thread)| (thread.join().unwrap(), Some(rank))).collect()
    })
}

/// What one process of the producer does with its parts of each step.
fn produce(job: Job, meeting: &Meeting, case: &Case, steps: &[Vec<&[u8]>]) -> Result<()> {
    let mut publisher = Publisher::new(job, Options::default().with_deadline(DEADLINE));
    let element = format!("bytes({})", case.moving.elem_bytes()).parse()?;
    let array = publisher.publish("array", case.moving.from(), element)?;
    publisher.open(meeting)?;
    publisher.wait_for(1)?;
    for (number, parts) in (0..).zip(steps) {
        publisher.put_bytes(array, number, format!("step {number}").as_bytes(), parts)?;
    }
    publisher.finish()
}

/// What one process of the consumer does.
fn consume(
    job: Job,
    meeting: &Meeting,
    case: &Case,
    drops: bool,
    steps: &mut [Vec<&mut [u8]>],
) -> Result<Setup> {
    let mut subscriber = Subscriber::new(job, Options::default().with_deadline(DEADLINE));
    let element: ElementType = format!("bytes({})", case.moving.elem_bytes()).parse()?;
    let problem = case.moving.problem();
    let wanted = Subscription::new("array", case.moving.to(), element).with_depth(if drops { 3 } else { 1 });
    let wanted =
        wanted.of_window(problem.shape(), problem.from_offset(), problem.to_offset(), problem.axes());
    let array = subscriber.subscribe_to(if drops { wanted.dropping_oldest() } else { wanted })?;
    let setup = subscriber.connect(meeting)?;
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
fn dealt<T>(steps: Vec<Vec<T>>, ranks: &[u64], jobs: &[(Job, Option<usize>)]) -> Vec<Vec<Vec<T>>> {
    let mut dealt: Vec<Vec<Vec<T>>> = jobs.iter().map(|_| Vec::new()).collect();
    for step in steps {
        dealt.iter_mut().for_each(|process| process.push(Vec::new()));
        for (part, &rank) in step.into_iter().zip(ranks) {
            let process = if jobs[0].1.is_none() { 0 } else { rank as usize };
            dealt[process].last_mut().unwrap().push(part);
        }
    }
    dealt
}

fn judge(case: &Case, together: [bool; 2], drops: bool, path: &std::path::Path) {
    let meeting = Meeting::file(path);
    let sizes = [case.moving.from(), case.moving.to()]
        .map(|layout| layout.distribution().grid().max_rank().map_or(0, |rank| rank as usize + 1));
    let [producers, consumers] = [0, 1].map(|side| jobs(together[side], sizes[side]));
    let of_step = |step: u64| Case { salt: case.salt.wrapping_add(step), ..case.clone() };
    let cases: Vec<Case> = (0..STEPS as u64).map(of_step).collect();
    let mut parts: Vec<Parts> = cases.iter().map(Case::parts).collect();
    let slices = cases.iter().zip(&mut parts).map(|(case, parts)| case.slices(parts));
    let (from, to): (Vec<_>, Vec<_>) = slices.unzip();
    let ranks =
        [case.moving.from(), case.moving.to()].map(|layout| layout.distribution().grid().sorted_ranks());
    let (from, to) = (dealt(from, &ranks[0], &producers), dealt(to, &ranks[1], &consumers));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((job, _), steps) in producers.into_iter().zip(from) {
            let meeting = &meeting;
            threads.push(scope.spawn(move || produce(job, meeting, case, &steps).unwrap()));
        }
        for ((job, _), mut steps) in consumers.into_iter().zip(to) {
            let meeting = &meeting;
            threads.push(scope.spawn(move || {
                consume(job, meeting, case, drops, &mut steps).unwrap();
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
    let (mut judged, mut several) = (0, 0);
    while judged < cases {
        let kinds = Kinds { ranks: Some(8), procs: 3, ..Kinds::default() };
        let case = Case::random(&mut random, &kinds);
        // Triangles are not coupled.
        if case.moving.triangle().is_some() {
            continue;
        }
        let together = [random.one_in(2), random.one_in(2)];
        judge(&case, together, random.one_in(3), &folder.join(format!("{judged}.meet")));
        judged += 1;
        several += usize::from(!together[0] || !together[1]);
    }
    assert!(several > cases / 2);
    std::fs::remove_dir_all(&folder).unwrap();
}
