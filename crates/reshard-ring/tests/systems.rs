//! Compares the convex search with the paper's integer programmes, stated as in the paper and solved by an LP solver.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, microlp, variable};
use reshard_ring::{RingProblem, check, solve, system_6, system_8};
use reshard_testkit::{Random, full_sweep};

/// Solves System 6, or System 8 if `light` (no process sends more than it holds): the least time, if there is any.
fn programme(ring: &RingProblem, light: bool) -> Option<u64> {
    let procs = ring.procs();
    let mut variables = ProblemVariables::new();
    let items: Vec<_> = (0..2 * procs).map(|_| variables.add(variable().integer().min(0))).collect();
    let (right, left) = (|rank: usize| items[rank % procs], |rank: usize| items[procs + rank % procs]);
    let time = variables.add(variable().min(0));
    let mut model = variables.minimise(time).using(microlp);
    for rank in 0..procs {
        let (before, after) = (rank + procs - 1, rank + 1);
        let cost = |costs: &[u64], rank: usize| costs[rank % procs] as f64;
        let kept = right(rank) + left(rank) - left(after) - right(before);
        model = model.with(constraint!(kept == ring.imbalance(rank) as f64));
        let sends: Expression = cost(ring.right(), rank) * right(rank) + cost(ring.left(), rank) * left(rank);
        let receives = cost(ring.left(), after) * left(after) + cost(ring.right(), before) * right(before);
        model = model.with(constraint!(sends <= time)).with(constraint!(receives <= time));
        if light {
            model = model.with(constraint!(right(rank) + left(rank) <= ring.loads()[rank] as f64));
        }
    }
    model.solve().ok().map(|solution| solution.value(time).round() as u64)
}

fn random_ring(random: &mut Random) -> RingProblem {
    let procs = random.within(3, 9) as usize;
    let most = random.within(1, 12);
    let loads: Vec<u64> = (0..procs).map(|_| random.within(0, most)).collect();
    let mut targets = vec![0; procs];
    (0..loads.iter().sum()).for_each(|_| targets[random.within(0, procs as u64 - 1) as usize] += 1);
    let mut costs = || (0..procs).map(|_| random.within(1, 10)).collect();
    RingProblem::new(loads, targets).unwrap().with_right(costs()).unwrap().with_left(costs()).unwrap()
}

#[test]
fn the_convex_search_is_the_integer_programme() {
    let mut random = Random::new(68);
    let cases = if full_sweep() { 20_000 } else { 1_000 };
    let (mut none, mut light, mut larger) = (0, 0, 0);
    for case in 0..cases {
        let ring = random_ring(&mut random);
        let (bound, flow) = system_6(&ring);
        assert_eq!(Some(bound), programme(&ring, false), "case {case}: {ring:?}");
        let found = system_8(&ring);
        assert_eq!(found.as_ref().map(|found| found.0), programme(&ring, true), "case {case}: {ring:?}");
        match found {
            None => none += 1,
            Some((time, _)) if time == bound => light += 1,
            Some(_) => larger += 1,
        }
        // The flows bring each process from its load to its target.
        for rank in 0..ring.procs() {
            let before = flow[(rank + ring.procs() - 1) % ring.procs()];
            assert_eq!(flow[rank] - before, ring.imbalance(rank));
        }
        let solution = solve(&ring).unwrap();
        let verdict = check(&ring, solution.program()).unwrap();
        assert!(verdict.lower_bound == bound && verdict.makespan == solution.makespan());
        // The solver reaches a light optimum.
        if system_8(&ring).is_some_and(|(time, _)| time == bound) {
            assert_eq!(solution.makespan(), bound, "{ring:?}");
        }
    }
    println!(
        "{cases} rings: System 8 as good as System 6 on {light}, worse on {larger}, impossible on {none}"
    );
    assert!(none > 0 && light > 0 && larger > 0);
}
