//! Rings of any size: wrong problems are refused, programs are replayed item by item and run in order without their times,
//! the check finds errors that were made on purpose, and the advisor's policy is compared with others.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod oracle;

use oracle::replay;
use reshard_plan::ErrorKind;
use reshard_ring::{
    Application, Direction, Method, Policy, Program, RingProblem, Side, Transfer, check, solve, system_6,
};
use reshard_testkit::{Random, full_sweep};
use std::collections::VecDeque;

/// A random ring: some processes empty, few items or many, equal links or not, one direction or both, in order or not.
fn any_ring(random: &mut Random, max_procs: u64, max_items: u64) -> RingProblem {
    let procs = random.within(1, max_procs) as usize;
    let least = random.within(0, 1);
    let loads: Vec<u64> = (0..procs).map(|_| least + random.any_size(max_items)).collect();
    let mut cuts: Vec<u64> =
        (1..procs).map(|_| random.within(0, loads.iter().sum::<u64>() - least * procs as u64)).collect();
    cuts.push(loads.iter().sum::<u64>() - least * procs as u64);
    cuts.sort_unstable();
    let targets = cuts.iter().scan(0, |from, &to| Some(least + to - std::mem::replace(from, to))).collect();
    let max_cost = [1, 3, 10][random.within(0, 2) as usize];
    let mut costs = || (0..procs).map(|_| random.within(1, max_cost)).collect::<Vec<_>>();
    let (right, left) = (costs(), costs());
    let ring = RingProblem::new(loads, targets).unwrap().with_right(right).unwrap().with_left(left).unwrap();
    match random.within(0, 3) {
        0 => ring.with_direction(Direction::Uni).unwrap(),
        1 => ring.in_order().unwrap(),
        _ => ring,
    }
}

#[test]
fn programs_work_item_by_item() {
    let mut random = Random::new(1);
    let cases = if full_sweep() { 20_000 } else { 1_500 };
    let mut methods = std::collections::BTreeMap::new();
    for case in 0..cases {
        let ring = any_ring(&mut random, 24, 40);
        let solution = solve(&ring).unwrap();
        let verdict =
            check(&ring, solution.program()).unwrap_or_else(|error| panic!("{case}: {error}\n{ring:?}"));
        let (slices, makespan) =
            replay(&ring, solution.program()).unwrap_or_else(|error| panic!("{case}: {error}\n{ring:?}"));
        assert_eq!(
            (makespan, verdict.makespan),
            (solution.makespan(), solution.makespan()),
            "{case}: {ring:?}"
        );
        assert!(
            solution.lower_bound() <= makespan && verdict.lower_bound <= solution.lower_bound(),
            "{case}"
        );
        assert!(ring.direction() == Direction::Bi || solution.optimal() == Some(true), "{case}: {ring:?}");
        if ring.is_ordered() {
            assert!(slices.concat().into_iter().eq(0..ring.loads().iter().sum()), "{case}: {ring:?}");
        }
        *methods.entry(solution.method().name()).or_insert(0) += 1;
    }
    println!("{methods:?}");
    assert!(methods.len() >= 5, "{methods:?}");
}

#[test]
fn the_check_sees_what_a_replay_sees() {
    let mut random = Random::new(2);
    let cases = if full_sweep() { 200_000 } else { 3_000 };
    let (mut refused, mut accepted) = (0, 0);
    for case in 0..cases {
        let ring = any_ring(&mut random, 6, 6);
        let solution = solve(&ring).unwrap();
        let mut transfers = solution.program().transfers().to_vec();
        let count = transfers.len() as u64;
        if count == 0 {
            continue;
        }
        let at = random.within(0, count - 1) as usize;
        let by = random.within(1, 4);
        let broken = &mut transfers[at];
        match random.within(0, 5) {
            0 => (broken.start, broken.end) = (broken.start + by, broken.end + by),
            1 if broken.start >= by => (broken.start, broken.end) = (broken.start - by, broken.end - by),
            2 => broken.end += by,
            3 => broken.items += 1,
            4 => broken.side = broken.side.opposite(),
            _ => {
                transfers.swap_remove(at);
            }
        }
        let program = Program::new(ring.procs(), transfers);
        let checked = check(&ring, &program);
        // The replay does not check directions, order, or transfers that are shorter than their items take.
        let fits = |transfer: &Transfer| {
            let cost = ring.cost(transfer.from as usize, transfer.side);
            let taken = transfer.end - transfer.start;
            if transfer.items == 1 { taken == cost } else { taken >= transfer.items * cost }
        };
        let wraps = |transfer: &Transfer| {
            let last = ring.procs() as u64 - 1;
            (transfer.from, transfer.side) == (last, Side::Right)
                || (transfer.from, transfer.side) == (0, Side::Left)
        };
        let allowed = program.transfers().iter().all(|transfer| {
            (ring.direction() == Direction::Bi || transfer.side == Side::Right)
                && !(ring.is_ordered() && wraps(transfer))
        });
        let sound = allowed && program.transfers().iter().all(fits);
        match (&checked, sound.then(|| replay(&ring, &program))) {
            (Ok(verdict), Some(Ok((_, makespan)))) => {
                assert_eq!(verdict.makespan, makespan, "{case}");
                accepted += 1;
            }
            (Err(_), None | Some(Err(_))) => refused += 1,
            // Two transfers may interleave in each other's pauses; the check requires a port for each transfer as a whole.
            (Err(error), Some(Ok(_))) if error.to_string().contains("one thing at a time") => refused += 1,
            (checked, replayed) => panic!("{case}: {checked:?} but {replayed:?}\n{ring:?}\n{program:?}"),
        }
    }
    println!("{refused} refused, {accepted} accepted");
    assert!(refused > cases / 4 && accepted > cases / 20);
}

#[test]
fn the_check_sees_items_between_the_ends_of_runs() {
    // Items are passed on at another pace than they arrive: the margin differs from item to item by a unit of time.
    let mut random = Random::new(22);
    let (mut refused, mut accepted) = (0, 0);
    for case in 0..if full_sweep() { 1_000_000 } else { 30_000 } {
        let (load, first, second) = (random.within(0, 2), random.within(2, 12), random.within(2, 12));
        if load + first < second {
            continue;
        }
        let costs = vec![random.within(1, 3), random.within(1, 3), 1];
        let ring = RingProblem::new(vec![first, load, 0], vec![0, load + first - second, second]).unwrap();
        let ring = ring.with_right(costs.clone()).unwrap();
        let end = first * costs[0] + random.within(0, 12);
        let start = random.within(0, 6);
        let transfers = vec![
            Transfer { from: 0, side: Side::Right, items: first, start: 0, end },
            Transfer {
                from: 1,
                side: Side::Right,
                items: second,
                start,
                end: start + second * costs[1] + random.within(0, 12),
            },
        ];
        let program = Program::new(3, transfers);
        let (checked, replayed) = (check(&ring, &program), replay(&ring, &program));
        assert_eq!(
            checked.is_ok(),
            replayed.is_ok(),
            "{case}: {checked:?} but {replayed:?}\n{ring:?}\n{program:?}"
        );
        *if checked.is_ok() { &mut accepted } else { &mut refused } += 1;
    }
    println!("{refused} refused, {accepted} accepted");
    assert!(refused > 300 && accepted > 300);
}

#[test]
fn programs_run_without_times_in_little_room() {
    let mut random = Random::new(3);
    for case in 0..if full_sweep() { 20_000 } else { 2_000 } {
        let ring = any_ring(&mut random, 10, 12);
        let program = solve(&ring).unwrap().program().clone();
        assert!(program.is_net());
        let procs = ring.procs();
        let mut parts: Vec<VecDeque<_>> =
            (0..procs as u64).map(|rank| program.of_rank(rank).sends.into()).collect();
        let mut held = ring.loads().to_vec();
        let (mut most, room): (Vec<u64>, Vec<u64>) =
            (held.clone(), (0..procs as u64).map(|rank| Program::enough_room(&ring, rank)).collect());
        // Every process that can send does, in any order; none accepts more than it has room for.
        loop {
            let able: Vec<usize> = (0..procs)
                .filter(|&rank| {
                    let next = parts[rank].front();
                    held[rank] > 0
                        && next.is_some_and(|step| held[step.peer as usize] < room[step.peer as usize])
                })
                .collect();
            if able.is_empty() {
                break;
            }
            let rank = able[random.within(0, able.len() as u64 - 1) as usize];
            let step = parts[rank].front_mut().unwrap();
            let peer = step.peer as usize;
            step.items -= 1;
            if step.items == 0 {
                parts[rank].pop_front();
            }
            held[rank] -= 1;
            held[peer] += 1;
            most[peer] = most[peer].max(held[peer]);
        }
        assert!(parts.iter().all(VecDeque::is_empty), "{case}: stuck at {held:?}, {parts:?}\n{ring:?}");
        assert_eq!(held, ring.targets(), "{case}");
        for (rank, (&most, &load)) in most.iter().zip(ring.loads()).enumerate() {
            let receives = program.of_rank(rank as u64).receives;
            assert!(receives.iter().all(|step| step.side.of(rank as u64, procs as u64) == step.peer));
            let received: u64 = receives.iter().map(|step| step.items).sum();
            assert_eq!(program.max_held(&ring, rank as u64), load + received);
            assert!(most <= load + received && most <= room[rank]);
        }
    }
}

#[test]
fn flows_of_any_size_and_long_rings_are_solved() {
    let mut random = Random::new(7);
    for case in 0..if full_sweep() { 2_000 } else { 200 } {
        let ring = any_ring(&mut random, 40, 1 << 40);
        let solution = solve(&ring).unwrap();
        let verdict =
            check(&ring, solution.program()).unwrap_or_else(|error| panic!("{case}: {error}\n{ring:?}"));
        assert_eq!(verdict.makespan, solution.makespan(), "{case}");
    }
    // Long rings of every kind.
    let procs = if full_sweep() { 1_000_000 } else { 200_000 };
    for (direction, max_cost, load) in
        [(Direction::Uni, 9, 1), (Direction::Bi, 1, 1), (Direction::Bi, 9, 1 << 30), (Direction::Bi, 9, 1)]
    {
        let loads: Vec<u64> = (0..procs).map(|_| load + random.within(0, 1 << 20)).collect();
        let mut targets = loads.clone();
        targets.rotate_left(procs / 3);
        let mut costs = || (0..procs).map(|_| random.within(1, max_cost)).collect::<Vec<_>>();
        let ring = RingProblem::new(loads, targets).unwrap().with_right(costs()).unwrap();
        let ring = ring.with_left(costs()).unwrap().with_direction(direction).unwrap();
        let solution = solve(&ring).unwrap();
        let verdict = check(&ring, solution.program()).unwrap();
        assert_eq!(verdict.makespan, solution.makespan());
        println!("{direction:?} {max_cost} {load}: {}, gap {:.4}", solution.method(), solution.gap());
        let known = direction == Direction::Uni || max_cost == 1;
        assert!(!known || solution.optimal() == Some(true));
        assert!(solution.gap() < 0.01, "{}", solution.gap());
    }
}

#[test]
fn one_direction_takes_the_time_of_its_slowest_link() {
    let ring = RingProblem::new(vec![100, 1, 1, 1], vec![1, 1, 1, 100]).unwrap();
    let ring = ring.with_right(vec![2, 5, 3, 1]).unwrap().with_direction(Direction::Uni).unwrap();
    let solution = solve(&ring).unwrap();
    assert_eq!((solution.makespan(), solution.method()), (99 * 5, Method::OneWay));
    assert_eq!(solution.program().transfers().len(), 3);
    // Empty processes between sender and receiver add the time of their links.
    let ring = ring.with_loads(vec![101, 0, 0, 0], vec![1, 0, 0, 100]).unwrap();
    let solution = solve(&ring).unwrap();
    assert_eq!((solution.makespan(), solution.optimal()), (2 + 100 * 5 + 3, Some(true)));
}

#[test]
fn chains_that_get_faster_and_faster_keep_their_time() {
    // Every process adds a run to those it passes on: more than are kept for a link.
    let procs = 400;
    let mut loads = vec![2; procs];
    loads[0] = 5_000;
    let mut targets = vec![1; procs];
    targets[procs - 1] = loads.iter().sum::<u64>() - (procs as u64 - 1);
    (loads[7], targets[7]) = (0, 3);
    targets[procs - 1] -= 4;
    let costs: Vec<u64> = (0..procs as u64).map(|rank| 3 * (procs as u64 - rank) + rank % 2).collect();
    let ring = RingProblem::new(loads, targets).unwrap().with_right(costs).unwrap();
    let ring = ring.with_direction(Direction::Uni).unwrap();
    let solution = solve(&ring).unwrap();
    let most = (0..procs as u64).map(|rank| solution.program().sends(rank).len()).max();
    assert_eq!((solution.method(), most), (Method::Soonest, Some(64)));
    assert_eq!(check(&ring, solution.program()).unwrap().makespan, solution.makespan());
    assert_eq!(replay(&ring, solution.program()).unwrap().1, solution.makespan());
    assert!(solution.gap() < 0.01, "{}", solution.gap());
}

#[test]
fn wrong_rings_are_refused_in_one_sentence() {
    let ring = |loads: &[u64], targets: &[u64]| RingProblem::new(loads.to_vec(), targets.to_vec());
    let links = |right: &[u64], left: &[u64]| {
        ring(&[1, 2], &[2, 1])
            .unwrap()
            .with_right(right.to_vec())
            .and_then(|ring| ring.with_left(left.to_vec()))
    };
    let huge = 1 << 62;
    for (refused, kind, says) in [
        (ring(&[], &[]), ErrorKind::OutOfRange, "a ring of 0 processes"),
        (ring(&[1], &[1, 0]), ErrorKind::Mismatch, "1 loads but 2 targets"),
        (ring(&[1, 2], &[2, 2]), ErrorKind::Mismatch, "add up to 3 and the targets to 4"),
        (ring(&[huge, 1], &[1, huge]), ErrorKind::TooLarge, "at most 2^62 items"),
        (ring(&[u64::MAX, u64::MAX], &[u64::MAX, u64::MAX]), ErrorKind::TooLarge, "at most 2^62 items"),
        (links(&[1], &[1, 1]), ErrorKind::Mismatch, "1 costs to the right"),
        (links(&[1, 1], &[1, 1, 1]), ErrorKind::Mismatch, "3 costs to the left"),
        (links(&[1, 0], &[1, 1]), ErrorKind::OutOfRange, "process 1 to the right costs 0"),
        (links(&[1, 1], &[0, 1]), ErrorKind::OutOfRange, "process 0 to the left costs 0"),
        (links(&[u64::MAX, 1], &[1, 1]), ErrorKind::TooLarge, "2^62 units of time"),
        (
            ring(&[1, 2], &[2, 1]).unwrap().in_order().unwrap().with_direction(Direction::Uni),
            ErrorKind::Mismatch,
            "use both directions",
        ),
    ] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(says) && error.kind() == kind, "{error}");
    }
    // A balanced ring may have any costs.
    let still = ring(&[huge], &[huge]).unwrap().with_right(vec![u64::MAX]).unwrap();
    assert_eq!(solve(&still).unwrap().makespan(), 0);
    assert_eq!(system_6(&still).0, 0);
}

#[test]
fn the_advisor_is_near_the_best_policy_whatever_links_cost() {
    for cost in [1, 10, 100, 1_000, 10_000, 100_000] {
        let procs = 8;
        let ring = RingProblem::new(vec![100; procs], vec![100; procs]).unwrap();
        let ring = ring.with_right(vec![cost; procs]).unwrap().with_left(vec![cost; procs]).unwrap();
        let (mut advised, mut best) = (0, 0);
        for seed in 0..10 {
            let application =
                Application { ring: ring.clone(), steps: 300, slowness: 1_000, drift_percent: 4, seed };
            let total = |policy| application.run(policy).unwrap().total();
            let fixed = [Policy::Never, Policy::Every(1), Policy::Every(10), Policy::Every(100)];
            best += fixed.into_iter().map(total).min().unwrap();
            advised += total(Policy::WhenItPays);
            assert_eq!(
                application.run(Policy::WhenItPays).unwrap(),
                application.run(Policy::WhenItPays).unwrap()
            );
        }
        println!(
            "links cost {cost}: the advisor takes {:.3} of the best fixed policy",
            advised as f64 / best as f64
        );
        assert!(advised as f64 <= 1.05 * best as f64, "links cost {cost}: {advised} against {best}");
    }
}
