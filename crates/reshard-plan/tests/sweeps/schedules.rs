//! Schedules: the paper's examples, every small redistribution, any number of dimensions, arbitrary traffic.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use reshard_plan::schedule::{ClosedForm, Options, Schedule, Strategy};
use reshard_plan::{Axis, Classes, Distribution, Grid, Pattern, Problem, Window, one_period};
use reshard_testkit::{Random, full_sweep, random_deal};

/// One period of a redistribution, as the papers count.
fn example(from: &str, to: &str) -> Problem {
    let (from, to): (Pattern, Pattern) = (from.parse().unwrap(), to.parse().unwrap());
    let shape = one_period(&from, &to).unwrap();
    Problem::new(from.over(&shape).unwrap(), to.over(&shape).unwrap()).unwrap()
}

/// (from, to, steps of the paper, cost of the paper's stepwise schedule)
const EXAMPLES: [(&str, &str, u64, u128); 5] = [
    ("16/3", "16/5", 7, 15),
    ("16/7", "16/11", 16, 77),
    ("15/3", "15/5", 10, 26),
    ("12/4", "8/3", 4, 8),
    ("15/2", "6/3", 10, 20),
];

#[test]
fn stepwise_is_as_good_as_the_paper_prints() {
    for (from, to, steps, cost) in EXAMPLES {
        let problem = example(from, to);
        let schedule = Schedule::new(&problem, Strategy::Stepwise).unwrap();
        schedule.check(&problem).unwrap();
        assert_eq!(schedule.num_steps(), steps, "{from} to {to}");
        assert!(schedule.total_cost() <= cost, "{from} to {to}: {}", schedule.total_cost());
        assert_eq!(schedule.optimal_steps(), Some(true));
    }
}

#[test]
fn greedy_is_as_good_as_the_paper_prints() {
    let problem = example("15/2", "6/3");
    let schedule = Schedule::new(&problem, Strategy::Greedy).unwrap();
    schedule.check(&problem).unwrap();
    assert!(
        schedule.total_cost() <= 18 && schedule.num_steps() <= 12,
        "{} in {}",
        schedule.total_cost(),
        schedule.num_steps()
    );
}

#[test]
fn the_caterpillar_is_table_19() {
    let problem = example("12/4", "8/3");
    let schedule = Schedule::new(&problem, Strategy::Caterpillar).unwrap();
    schedule.check(&problem).unwrap();
    let costs: Vec<u64> = schedule.steps().iter().map(|step| step.cost).collect();
    assert_eq!(costs, [3, 0, 0, 0, 3, 3, 3, 0, 0, 0, 3, 3]);
    assert_eq!(schedule.total_cost(), 18);
}

#[test]
fn every_strategy_is_proper_and_complete_on_the_examples() {
    for (from, to, steps, _) in EXAMPLES {
        let problem = example(from, to);
        for strategy in Strategy::ALL {
            for shared_ranks in [false, true] {
                let options = Options::default()
                    .with_strategy(strategy)
                    .with_shared_ranks(shared_ranks)
                    .with_in_flight(3);
                let schedule = match Schedule::with(&problem, &options) {
                    Ok(schedule) => schedule,
                    Err(error) => {
                        assert!(
                            matches!(strategy, Strategy::Classes | Strategy::WalkerOtto),
                            "{strategy}: {error}"
                        );
                        continue;
                    }
                };
                schedule
                    .check(&problem)
                    .unwrap_or_else(|error| panic!("{strategy}, {from} to {to}: {error}"));
                assert!(schedule.total_cost() >= schedule.bound_cost(), "{strategy}, {from} to {to}");
                if strategy == Strategy::Optimal && !shared_ranks {
                    assert_eq!(schedule.num_steps(), steps);
                }
                if strategy == Strategy::Split {
                    assert_eq!(schedule.total_cost(), schedule.bound_cost(), "{from} to {to}");
                }
            }
        }
    }
}

/// A window of one period between two block-cyclic axes at different offsets.
fn shifted(p: u64, r: u64, q: u64, s: u64, from_at: u64, to_at: u64, first: (u64, u64)) -> Problem {
    let period = (1..).map(|k| k * p * r).find(|multiple| multiple % (q * s) == 0).unwrap();
    let axis = |procs, block, at, first| {
        let axis = Axis::block_cyclic(period + at, procs, block, first).unwrap();
        Distribution::new(Grid::new(&[procs]).unwrap(), vec![axis]).unwrap()
    };
    let window = Window::of(&[period]).from(&[from_at]).to(&[to_at]);
    Problem::windowed(axis(p, r, from_at, first.0), axis(q, s, to_at, first.1), window).unwrap()
}

/// The closed form of one axis: every message a step, no port twice, the fewest steps, both ends of one mind.
fn judge(problem: &Problem) {
    let form = ClosedForm::new(problem).unwrap().unwrap();
    let classes = Classes::new(&problem.sides(0)).unwrap();
    let (p, q) = (problem.from().grid().size(), problem.to().grid().size());
    let steps = form.steps();
    let mut at_receiver = vec![u64::MAX; (q * steps) as usize];
    let (mut messages, mut busiest) = (0, 0);
    let mut received = vec![0; q as usize];
    for sender in 0..p {
        let mut at_sender = vec![false; steps as usize];
        let mut sent = 0;
        form.sends(sender, |receiver, step| {
            assert!(step < steps, "{problem:?}");
            assert!(classes.class(sender, receiver).is_some(), "{problem:?}");
            assert!(
                !std::mem::replace(&mut at_sender[step as usize], true),
                "two sends in one step of {problem:?}"
            );
            let port = &mut at_receiver[(receiver * steps + step) as usize];
            assert_eq!(std::mem::replace(port, sender), u64::MAX, "two receives in one step of {problem:?}");
            assert_eq!(form.step(&[sender], &[receiver]), Some(step), "{problem:?}");
            received[receiver as usize] += 1;
            sent += 1;
        });
        busiest = busiest.max(sent);
        messages += sent;
    }
    assert_eq!(u128::from(messages), classes.pairs(), "{problem:?}");
    busiest = busiest.max(received.iter().copied().max().unwrap());
    assert_eq!((steps, form.bound()), (busiest, busiest), "{problem:?}");
    for receiver in 0..q {
        let mut heard = 0;
        form.receives(receiver, |sender, step| {
            assert_eq!(at_receiver[(receiver * steps + step) as usize], sender, "{problem:?}");
            heard += 1;
        });
        assert_eq!(heard, received[receiver as usize], "{problem:?}");
    }
}

/// All P, Q <= 24 and r, s <= 16: 147,456 redistributions; CI takes one in 50.
#[test]
fn the_closed_form_is_proper_and_optimal_for_every_small_redistribution() {
    let full = full_sweep();
    let mut random = Random::new(31);
    let mut sets = 0;
    for p in 1..=24 {
        for q in 1..=24 {
            for r in 1..=16 {
                for s in 1..=16 {
                    if full || random.one_in(50) {
                        let first = (random.within(0, p - 1), random.within(0, q - 1));
                        judge(&shifted(p, r, q, s, 0, 0, first));
                        sets += 1;
                    }
                }
            }
        }
    }
    assert!(if full { sets == 147_456 } else { sets > 2_000 });
    println!("{sets} aligned sets");
}

/// Windows that shift one side against the other, all P, Q <= 9 and r, s <= 8.
#[test]
fn the_closed_form_is_proper_and_optimal_for_shifted_windows() {
    let full = full_sweep();
    let mut random = Random::new(32);
    let mut sets = 0;
    for p in 1..=9 {
        for q in 1..=9 {
            for r in 1..=8 {
                for s in 1..=8 {
                    for shift in 0..2 * r.max(s) {
                        if full || random.one_in(40) {
                            let from_at = random.within(0, 5);
                            let (a, b) = if random.one_in(2) {
                                (from_at, from_at + shift)
                            } else {
                                (from_at + shift, from_at)
                            };
                            judge(&shifted(
                                p,
                                r,
                                q,
                                s,
                                a,
                                b,
                                (random.within(0, p - 1), random.within(0, q - 1)),
                            ));
                            sets += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(if full { sets == 60_264 } else { sets > 1_000 });
    println!("{sets} shifted sets");
}

/// In two and three dimensions, with more than one irregular axis too: as few steps as the busiest process has messages.
#[test]
fn optimal_has_the_fewest_steps_in_any_number_of_dimensions() {
    let mut random = Random::new(33);
    let (mut by_formula, cases) = (0, if full_sweep() { 30_000 } else { 1_000 });
    for _ in 0..cases {
        let dims = random.within(2, 3) as usize;
        let most = if dims == 2 { 8 } else { 4 };
        let mut side = |most_block| -> Pattern {
            let extents: Vec<u64> = (0..dims).map(|_| random.within(1, most)).collect();
            let blocks: Vec<String> = (0..dims).map(|_| random.within(1, most_block).to_string()).collect();
            let grid: Vec<String> = extents.iter().map(u64::to_string).collect();
            format!("{}/{}", grid.join("x"), blocks.join("x")).parse().unwrap()
        };
        let (from, to) = (side(9), side(9));
        let shape = one_period(&from, &to).unwrap();
        let problem = Problem::new(from.over(&shape).unwrap(), to.over(&shape).unwrap()).unwrap();
        let schedule = Schedule::new(&problem, Strategy::Optimal).unwrap();
        schedule.check(&problem).unwrap();
        assert_eq!(schedule.optimal_steps(), Some(true), "{from} to {to}");
        let form = ClosedForm::new(&problem).unwrap().unwrap();
        assert_eq!(form.bound(), schedule.bound_steps(), "{from} to {to}");
        by_formula += u64::from(form.is_optimal());
    }
    assert!(by_formula * 100 > cases * 99, "{by_formula} of {cases} by formula");
    println!("{by_formula} of {cases} by formula");
}

/// Arbitrary traffic: irregular axes, short windows, shared ranks; every strategy proper, optimal optimal.
#[test]
fn arbitrary_traffic_is_scheduled() {
    let mut random = Random::new(34);
    for _ in 0..if full_sweep() { 20_000 } else { 500 } {
        let len = random.within(0, 60);
        let mut side = || {
            let procs = random.within(1, 7);
            let (deal, first) = random_deal(&mut random, len, procs);
            Pattern::new(Grid::new(&[procs]).unwrap(), vec![deal], vec![first]).unwrap().over(&[len]).unwrap()
        };
        let problem = Problem::new(side(), side()).unwrap();
        for strategy in Strategy::ALL {
            let options = Options::default()
                .with_strategy(strategy)
                .with_shared_ranks(random.one_in(2))
                .with_in_flight(random.within(1, 4));
            let Ok(schedule) = Schedule::with(&problem, &options) else {
                assert!(matches!(strategy, Strategy::Classes | Strategy::WalkerOtto));
                continue;
            };
            schedule.check(&problem).unwrap_or_else(|error| panic!("{options:?} of {problem:?}: {error}"));
            assert!(
                schedule.num_steps() >= schedule.bound_steps()
                    || strategy == Strategy::Async
                    || strategy == Strategy::Split
            );
            assert!(schedule.total_cost() >= schedule.bound_cost(), "{options:?} of {problem:?}");
            match strategy {
                Strategy::Optimal | Strategy::Stepwise => assert_eq!(schedule.optimal_steps(), Some(true)),
                Strategy::Split => assert_eq!(schedule.optimal_cost(), Some(true)),
                Strategy::Async => {
                    assert!(schedule.total_cost() <= 2 * schedule.bound_cost());
                    let stepwise = options.with_strategy(Strategy::Stepwise);
                    let stepwise = Schedule::with(&problem, &stepwise).unwrap();
                    assert!(schedule.total_cost() <= stepwise.total_cost(), "{options:?} of {problem:?}");
                }
                _ => {}
            }
        }
    }
}

/// P = Q and s = K r: K steps, or P where K is larger; the paper's comparison.
#[test]
fn walker_and_otto_take_as_many_steps_as_they_say() {
    for processes in 1..=12_u64 {
        for factor in 1..=14_u64 {
            for (from, to) in [(3, 3 * factor), (3 * factor, 3)] {
                let problem = example(&format!("{processes}/{from}"), &format!("{processes}/{to}"));
                let schedule = Schedule::new(&problem, Strategy::WalkerOtto).unwrap();
                schedule.check(&problem).unwrap_or_else(|error| panic!("{processes} {from} {to}: {error}"));
                assert_eq!(schedule.num_steps(), factor.min(processes), "{processes} {from} {to}");
                assert_eq!(schedule.optimal_steps(), Some(true));
            }
        }
    }
}

#[test]
fn min_cost_finds_and_proves_the_optimum_of_the_examples() {
    // (from, to, at most so many steps, steps, cost)
    for (from, to, most_steps, steps, cost) in [
        ("16/3", "16/5", None, 7, 15),
        ("16/7", "16/11", None, 16, 77),
        ("15/3", "15/5", Some(10), 10, 25),
        ("15/3", "15/5", None, 11, 23),
        ("12/4", "8/3", None, 4, 8),
        ("15/2", "6/3", Some(10), 10, 20),
        ("15/2", "6/3", None, 11, 16),
    ] {
        let problem = example(from, to);
        let options = Options::default().with_strategy(Strategy::MinCost).with_most_steps(most_steps);
        let schedule = Schedule::with(&problem, &options).unwrap();
        schedule.check(&problem).unwrap();
        println!(
            "{from} {to} {most_steps:?}: {}@{} bound {} price {} bound {}",
            schedule.total_cost(),
            schedule.num_steps(),
            schedule.bound_cost(),
            schedule.price(),
            schedule.bound_price()
        );
        assert_eq!((schedule.num_steps(), schedule.total_cost()), (steps, cost), "{from} to {to}");
        assert_eq!(schedule.optimal_cost(), Some(true), "{from} to {to}: bound {}", schedule.bound_cost());
    }
}

/// Costs of the longest arrays leave 64 bits; nothing wraps, and min-cost still finds the cheaper order.
#[test]
fn costs_of_the_longest_arrays_do_not_wrap() {
    let long = 1_u64 << 60;
    let ones = ",1".repeat(16);
    let from = format!("(gen_block({},{long},16)) on 3 of {}", long + 1, 2 * long + 17);
    let to = format!("(gen_block(1,{long},{long}{ones})) on 19 of {}", 2 * long + 17);
    let problem = Problem::new(from.parse().unwrap(), to.parse().unwrap()).unwrap();
    let cost = |strategy| {
        let schedule = Schedule::new(&problem, strategy).unwrap();
        schedule.check(&problem).unwrap();
        assert!(schedule.bound_cost() <= schedule.total_cost());
        schedule.total_cost()
    };
    assert!(cost(Strategy::MinCost) <= cost(Strategy::Stepwise).min(cost(Strategy::Greedy)));
    assert!(cost(Strategy::Async) <= cost(Strategy::Stepwise));
    assert!(cost(Strategy::Caterpillar) >= u128::from(long));
}

/// One busy process among a hundred thousand idle ones needs no table of all colours for all.
#[test]
fn stars_are_coloured_in_little_memory() {
    let star = |from: &str, to: &str, len: u64| {
        let of = |pattern: &str| pattern.parse::<Pattern>().unwrap().over(&[len]).unwrap();
        Problem::new(of(from), of(to)).unwrap()
    };
    for problem in [star("100000/1", "1/200000", 99_999), star("1/200000", "100000/1", 99_999)] {
        let schedule = Schedule::new(&problem, Strategy::Optimal).unwrap();
        assert_eq!((schedule.num_steps(), schedule.optimal_steps()), (99_999, Some(true)));
    }
}
