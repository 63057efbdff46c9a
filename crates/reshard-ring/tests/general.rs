//! Distance of programs to the lower bound where the optimum is not known: over links of any cost.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod oracle;

use oracle::replay;
use reshard_ring::{RingProblem, check, solve, system_6, system_8};
use reshard_testkit::{Random, full_sweep};

/// A ring of these costs. Give every process at least one item at first and in the end, so that only the costs make it hard.
fn ring(loads: &[u64], targets: Vec<u64>, right: Vec<u64>, left: Vec<u64>) -> RingProblem {
    RingProblem::new(loads.to_vec(), targets).unwrap().with_right(right).unwrap().with_left(left).unwrap()
}

/// A ring of 3 to 12 processes with loads, targets and costs at random.
fn random_ring(random: &mut Random) -> RingProblem {
    let procs = random.within(3, 12) as usize;
    let max_load = random.within(2, 12);
    let loads: Vec<u64> = (0..procs).map(|_| random.within(1, max_load)).collect();
    let mut targets = vec![1; procs];
    (procs as u64..loads.iter().sum())
        .for_each(|_| targets[random.within(0, procs as u64 - 1) as usize] += 1);
    let mut costs = || (0..procs).map(|_| random.within(1, 10)).collect();
    let (right, left) = (costs(), costs());
    ring(&loads, targets, right, left)
}

/// A ring in which one or two processes have nearly all items, and costs are far apart.
fn adversarial_ring(random: &mut Random) -> RingProblem {
    const COSTS: [u64; 6] = [1, 2, 3, 5, 7, 10];
    let procs = random.within(3, 8) as usize;
    let mut loads = vec![1; procs];
    for _ in 0..random.within(1, 2) {
        loads[random.within(0, procs as u64 - 1) as usize] += random.within(3, 10);
    }
    let mut targets = vec![1; procs];
    let count = random.within(1, procs as u64 - 1);
    let receivers: Vec<u64> = (0..count).map(|_| random.within(0, procs as u64 - 1)).collect();
    for _ in procs as u64..loads.iter().sum() {
        targets[receivers[random.within(0, count - 1) as usize] as usize] += 1;
    }
    let mut costs = || (0..procs).map(|_| COSTS[random.within(0, 5) as usize]).collect();
    let (right, left) = (costs(), costs());
    ring(&loads, targets, right, left)
}

/// The next ring in which some process has to wait for items it sends: light rings are solved by formula.
fn not_light(mut next: impl FnMut() -> RingProblem) -> RingProblem {
    loop {
        let ring = next();
        if system_8(&ring).is_none_or(|(time, _)| time > system_6(&ring).0) {
            return ring;
        }
    }
}

/// Solves `cases` rings and compares their times with the lower bound of the ports: 0.1 % in the mean, 12 % at worst.
fn judge(name: &str, cases: u64, mut next: impl FnMut() -> RingProblem) {
    let (mut sum, mut worst, mut unproven) = (0.0, 1.0_f64, 1.0_f64);
    let (mut reached, mut proven) = (0, 0);
    for case in 0..cases {
        let ring = next();
        let bound = system_6(&ring).0;
        let solution = solve(&ring).unwrap();
        let makespan = check(&ring, solution.program()).unwrap().makespan;
        assert_eq!(replay(&ring, solution.program()).unwrap().1, makespan, "{name} {case}: {ring:?}");
        let ratio = if bound == 0 { 1.0 } else { makespan as f64 / bound as f64 };
        (sum, worst) = (sum + ratio, worst.max(ratio));
        unproven = unproven.max(1.0 + solution.gap());
        reached += u64::from(makespan == bound);
        proven += u64::from(solution.optimal() == Some(true));
    }
    let mean = sum / cases as f64;
    println!(
        "{name}: {cases} rings that are not light; {reached} reach the bound of the ports, {proven} are proven optimal; ratio \
         to that bound {mean:.5} in the mean and {worst:.3} at worst, {unproven:.3} where a better one is proven"
    );
    // The lower bound of the ports cannot always be reached: some rings miss it by a fifth, and are proven optimal.
    assert!(mean <= 1.001 && unproven <= 1.12, "{name}: mean {mean}, unproven {unproven}");
}

#[test]
fn programs_come_near_the_bound() {
    let (random, adversarial) = if full_sweep() { (100_000, 100_000) } else { (10_000, 1_000) };
    let mut numbers = Random::new(4);
    judge("random", random, || not_light(|| random_ring(&mut numbers)));
    let mut numbers = Random::new(5);
    judge("adversarial", adversarial, || not_light(|| adversarial_ring(&mut numbers)));
}
