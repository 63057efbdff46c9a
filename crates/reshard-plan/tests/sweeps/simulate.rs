//! Simulation: equal to the prediction where that is exact, never better than possible, right by hand on tiny networks,
//! and the streamed run equal to the explicit one.

#![allow(clippy::unwrap_used)]

use reshard_plan::cost::{CostModel, Duplex, Limit, predict, predict_without_barriers};
use reshard_plan::schedule::{Options, Schedule, Strategy};
use reshard_plan::simulate::{
    Fault, Link, Machine, Network, Op, Program, Stream, Timeline, programs, run, simulate,
};
use reshard_plan::{Axis, Distribution, Grid, Message, Pattern, Problem, Window, one_period};
use reshard_testkit::{Random, full_sweep, random_deal};
use std::collections::BTreeMap;

fn example(from: &str, to: &str) -> Problem {
    let (from, to): (Pattern, Pattern) = (from.parse().unwrap(), to.parse().unwrap());
    let shape = one_period(&from, &to).unwrap();
    Problem::new(from.over(&shape).unwrap(), to.over(&shape).unwrap()).unwrap()
}

const EXAMPLES: [(&str, &str); 5] =
    [("16/3", "16/5"), ("16/7", "16/11"), ("15/3", "15/5"), ("12/4", "8/3"), ("15/2", "6/3")];

/// Problems with arbitrary traffic.
fn random_problem(random: &mut Random) -> Problem {
    let len = random.within(0, 60);
    let mut side = || {
        let procs = random.within(1, 7);
        let (deal, first) = random_deal(random, len, procs);
        Pattern::new(Grid::new(&[procs]).unwrap(), vec![deal], vec![first]).unwrap().over(&[len]).unwrap()
    };
    Problem::new(side(), side()).unwrap()
}

/// Costs whose sums are not round numbers.
fn random_cost(random: &mut Random) -> CostModel {
    let some = |random: &mut Random| random.within(0, 50) as f64 / 7.0;
    CostModel::new(some(random), some(random))
        .unwrap()
        .with_pack(if random.one_in(2) { some(random) } else { 0.0 })
        .unwrap()
        .with_barrier(if random.one_in(2) { some(random) } else { 0.0 })
        .unwrap()
}

fn on(cost: CostModel, network: &str) -> Machine {
    Machine { cost, network: network.parse().unwrap() }
}

/// Every strategy that takes the problem, shared ranks or not.
fn schedules(problem: &Problem, random: &mut Random) -> Vec<Schedule> {
    let options = Strategy::ALL.map(|strategy| {
        Options::default()
            .with_strategy(strategy)
            .with_shared_ranks(random.one_in(2))
            .with_in_flight(random.within(1, 4))
    });
    options.iter().filter_map(|options| Schedule::with(problem, options).ok()).collect()
}

fn messages(schedule: &Schedule) -> Vec<Message> {
    schedule.steps().iter().flat_map(|step| step.messages.clone()).collect()
}

/// What every run must satisfy, whatever the network: each message once, no port used by two at a time beyond their
/// number, nothing faster than its cost, all together between the busiest port and one after the other.
fn judge(timeline: &Timeline, schedule: &Schedule, cost: &CostModel) {
    let key = |message: &Message| (message.from, message.to, message.elems);
    let mut expected: Vec<_> = messages(schedule).iter().map(key).collect();
    let mut found: Vec<_> = timeline.messages().iter().map(|sent| (sent.from, sent.to, sent.elems)).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let slack = 1e-9 * (1.0 + timeline.makespan());
    let mut on_port: BTreeMap<(u64, bool), Vec<(f64, f64)>> = BTreeMap::new();
    for sent in timeline.messages() {
        assert!(sent.end - sent.start >= cost.message(sent.elems) - slack);
        assert!(sent.end <= timeline.makespan() && sent.start >= 0.0);
        let half = cost.duplex() == Duplex::Half;
        on_port.entry((sent.from, false)).or_default().push((sent.start, sent.end));
        if !half || sent.from != sent.to {
            on_port.entry((sent.to, !half)).or_default().push((sent.start, sent.end));
        }
    }
    for times in on_port.values() {
        for &(start, end) in times {
            let middle = f64::midpoint(start, end);
            let together = times.iter().filter(|other| other.0 < middle && middle < other.1).count() as u64;
            assert!(together <= cost.ports() || end - start <= slack, "{together} at a time");
        }
    }
    assert!(timeline.makespan() >= cost.bound(&messages(schedule)) - slack);
    let busy = timeline.busy();
    assert!((0.0..=1.0 + 1e-9).contains(&busy.sending) && (0.0..=1.0 + 1e-9).contains(&busy.receiving));
}

/// The longest a run can take: every message alone, one after the other, on links that are never shared.
fn one_by_one(schedule: &Schedule, cost: &CostModel) -> f64 {
    messages(schedule).iter().map(|message| cost.message(message.elems)).sum::<f64>()
        + schedule.num_steps() as f64 * cost.barrier()
}

#[test]
fn steps_on_a_flat_switch_take_exactly_what_is_predicted() {
    let mut random = Random::new(51);
    let mut problems: Vec<Problem> = EXAMPLES.iter().map(|(from, to)| example(from, to)).collect();
    problems.extend((0..if full_sweep() { 5_000 } else { 200 }).map(|_| random_problem(&mut random)));
    for problem in &problems {
        let cost = random_cost(&mut random);
        for schedule in schedules(problem, &mut random) {
            let strategy = schedule.options().strategy;
            let with = simulate(&schedule, &on(cost, "flat"), true).unwrap();
            let without = simulate(&schedule, &on(cost, "flat"), false).unwrap();
            judge(&with, &schedule, &cost);
            judge(&without, &schedule, &cost);
            assert!(without.makespan() <= one_by_one(&schedule, &cost) * (1.0 + 1e-12));
            match strategy {
                Strategy::Eager => {
                    assert!(without.makespan() >= predict(&schedule, &cost).seconds * (1.0 - 1e-12));
                }
                _ => {
                    let free = predict_without_barriers(&schedule, &cost);
                    assert_eq!(without.makespan(), free.seconds, "{strategy} of {problem:?}");
                    assert!(without.makespan() <= with.makespan());
                    if strategy == Strategy::Async {
                        assert_eq!(predict(&schedule, &cost), free);
                    } else {
                        let steps = predict(&schedule, &cost);
                        let empty = schedule.steps().iter().all(|step| step.messages.is_empty());
                        assert!(empty || with.makespan() == steps.seconds, "{strategy} of {problem:?}");
                        assert_eq!(steps.rounds.len() as u64, schedule.num_steps());
                    }
                }
            }
        }
    }
}

#[test]
fn start_ups_and_elements_alone_give_steps_and_total_cost() {
    for (from, to) in EXAMPLES {
        let problem = example(from, to);
        for strategy in [Strategy::Optimal, Strategy::Stepwise, Strategy::Greedy, Strategy::Caterpillar] {
            let schedule = Schedule::new(&problem, strategy).unwrap();
            let busy_steps = schedule.steps().iter().filter(|step| step.cost > 0).count() as f64;
            let startup = predict(&schedule, &CostModel::new(1.0, 0.0).unwrap());
            assert_eq!((startup.seconds, startup.limit()), (busy_steps, Limit::Startup));
            let transfer = predict(&schedule, &CostModel::new(0.0, 1.0).unwrap());
            assert_eq!((transfer.seconds, transfer.limit()), (schedule.total_cost() as f64, Limit::Transfer));
            let packing = CostModel::new(0.0, 1.0).unwrap().with_pack(1.0).unwrap();
            assert_eq!(predict(&schedule, &packing).seconds, 3.0 * schedule.total_cost() as f64);
            assert_eq!(predict(&schedule, &packing).limit(), Limit::Packing);
            let barriers = CostModel::new(0.0, 0.0).unwrap().with_barrier(1.0).unwrap();
            let barriers = predict(&schedule, &barriers);
            assert_eq!((barriers.seconds, barriers.limit()), (schedule.num_steps() as f64, Limit::Barriers));
        }
    }
    let nothing = predict(
        &Schedule::new(&example("2/1", "2/1"), Strategy::Optimal).unwrap(),
        &CostModel::new(0.0, 0.0).unwrap(),
    );
    assert_eq!(nothing.limit(), Limit::Nothing);
}

/// A number of start-ups on the busiest port, W elements: nothing beats that, and list scheduling comes within twice.
#[test]
fn without_barriers_nothing_beats_the_busiest_process() {
    let mut random = Random::new(52);
    for _ in 0..if full_sweep() { 5_000 } else { 300 } {
        let problem = random_problem(&mut random);
        let cost = CostModel::new(0.0, 1.0).unwrap();
        let schedule = Schedule::new(&problem, Strategy::Async).unwrap();
        let timeline = simulate(&schedule, &on(cost, "flat"), false).unwrap();
        // The schedule's own count of the last arrival.
        assert_eq!(timeline.makespan(), schedule.total_cost() as f64);
        let load = schedule.bound_cost() as f64;
        assert!(timeline.makespan() >= load && timeline.makespan() <= 2.0 * load);
        assert_eq!(cost.bound(&messages(&schedule)), load);
    }
}

#[test]
fn any_machine_runs_any_schedule() {
    let mut random = Random::new(53);
    let networks =
        ["flat", "ring", "torus", "torus:3x4", "torus:2x2x3", "fat-tree", "fat-tree:2:2", "fat-tree:3:1"];
    for _ in 0..if full_sweep() { 2_000 } else { 60 } {
        let problem = random_problem(&mut random);
        for schedule in schedules(&problem, &mut random) {
            let duplex = if random.one_in(2) { Duplex::Half } else { Duplex::Full };
            let cost = random_cost(&mut random).with_ports(random.within(1, 3)).unwrap().with_duplex(duplex);
            let barriers = random.one_in(2);
            let flat = simulate(&schedule, &on(cost, "flat"), barriers).unwrap();
            for network in networks {
                let machine = on(cost, network);
                let timeline = simulate(&schedule, &machine, barriers).unwrap();
                judge(&timeline, &schedule, &cost);
                // Deterministic.
                assert_eq!(timeline, simulate(&schedule, &machine, barriers).unwrap());
                // With barriers and one port each way, links can only slow a run down.
                let in_steps = barriers && cost.ports() == 1 && duplex == Duplex::Full;
                if in_steps && schedule.options().strategy != Strategy::Eager {
                    assert!(timeline.makespan() >= flat.makespan() * (1.0 - 1e-9), "{network}");
                }
            }
        }
    }
}

#[test]
fn more_ports_run_more_steps_at_a_time() {
    let schedule = Schedule::new(&example("16/3", "16/5"), Strategy::Optimal).unwrap();
    let cost = |ports| CostModel::new(10.0, 0.0).unwrap().with_ports(ports).unwrap();
    for (ports, rounds) in [(1, 7), (2, 4), (3, 3), (7, 1), (100, 1)] {
        let prediction = predict(&schedule, &cost(ports));
        assert_eq!(prediction.seconds, 10.0 * f64::from(rounds));
        for barriers in [false, true] {
            let timeline = simulate(&schedule, &on(cost(ports), "flat"), barriers).unwrap();
            assert_eq!(timeline.makespan(), 10.0 * f64::from(rounds), "{ports} ports");
        }
    }
}

fn sends(rank: u64, to: &[(u64, u64)]) -> Program {
    Program { rank, ops: to.iter().map(|&(to, elems)| Op::Send { to, elems }).collect() }
}

fn receives(rank: u64, from: &[(u64, u64)]) -> Program {
    Program { rank, ops: from.iter().map(|&(from, elems)| Op::Receive { from, elems }).collect() }
}

/// One second for each element and nothing else.
fn unit() -> CostModel {
    CostModel::new(0.0, 1.0).unwrap()
}

#[test]
fn circular_waits_are_found_and_named() {
    let machine = on(unit(), "flat");
    // Everybody sends to the next before receiving from the one before.
    let ring: Vec<Program> = (0..5)
        .map(|rank| {
            let ops = vec![
                Op::Send { to: (rank + 1) % 5, elems: 1 },
                Op::Receive { from: (rank + 4) % 5, elems: 1 },
            ];
            Program { rank, ops }
        })
        .collect();
    assert_eq!(run(&ring, &machine), Err(Fault::Deadlock { ranks: vec![0, 1, 2, 3, 4] }));
    // One who receives first breaks the circle.
    let mut broken = ring;
    broken[3].ops.reverse();
    assert_eq!(run(&broken, &machine).unwrap().makespan(), 5.0);
    // Two senders and two receivers that disagree about the order; ranks 8 and 9 have nothing to do with it.
    let crossed = [
        sends(8, &[(9, 3)]),
        receives(9, &[(8, 3)]),
        sends(0, &[(1, 1), (2, 1)]),
        sends(3, &[(2, 1), (1, 1)]),
        receives(1, &[(3, 1), (0, 1)]),
        receives(2, &[(0, 1), (3, 1)]),
    ];
    assert_eq!(run(&crossed, &machine), Err(Fault::Deadlock { ranks: vec![0, 1, 3, 2] }));
    // To itself, in one program.
    let itself =
        Program { rank: 4, ops: vec![Op::Send { to: 4, elems: 1 }, Op::Receive { from: 4, elems: 1 }] };
    assert_eq!(run(&[itself], &machine), Err(Fault::Deadlock { ranks: vec![4] }));
    // One waits at a barrier for another, who waits for a message that comes after it.
    let barrier = [
        Program { rank: 0, ops: vec![Op::Barrier, Op::Send { to: 1, elems: 1 }] },
        Program { rank: 1, ops: vec![Op::Receive { from: 0, elems: 1 }, Op::Barrier] },
    ];
    let fault = run(&barrier, &machine).unwrap_err();
    assert_eq!(fault, Fault::Deadlock { ranks: vec![0, 1] });
    assert_eq!(fault.to_string(), "deadlock: rank 0 waits for rank 1, which waits for rank 0");
}

#[test]
fn messages_without_another_end_are_named() {
    let machine = on(unit(), "flat");
    let message = |from, to, elems| Message { from, to, elems };
    let whole = [sends(0, &[(1, 4), (2, 5)]), receives(1, &[(0, 4)]), receives(2, &[(0, 5)])];
    assert_eq!(run(&whole, &machine).unwrap().makespan(), 9.0);
    assert_eq!(run(&whole[..2], &machine), Err(Fault::NeverReceived(message(0, 2, 5))));
    assert_eq!(run(&whole[1..], &machine), Err(Fault::NeverSent(message(0, 1, 4))));
    let twice = [sends(0, &[(1, 4), (1, 6)]), receives(1, &[(0, 4)])];
    assert_eq!(run(&twice, &machine), Err(Fault::NeverReceived(message(0, 1, 6))));
    let short = [sends(0, &[(1, 4)]), receives(1, &[(0, 3)])];
    assert_eq!(run(&short, &machine), Err(Fault::Length { sent: message(0, 1, 4), expected: 3 }));
    let uneven = [Program { rank: 0, ops: vec![Op::Barrier] }, Program { rank: 1, ops: vec![] }];
    assert_eq!(run(&uneven, &machine), Err(Fault::Barriers { fewest: (1, 0), most: (0, 1) }));
    for fault in [run(&whole[..2], &machine), run(&short, &machine), run(&uneven, &machine)] {
        let sentence = fault.unwrap_err().to_string();
        assert!(sentence.contains("rank 0") && !sentence.contains('\n'), "{sentence}");
    }
    assert_eq!(run(&[], &machine).unwrap().makespan(), 0.0);
    // The highest ranks and the longest messages there can be.
    let far = |rank| [sends(rank, &[(0, u64::MAX)]), receives(0, &[(rank, u64::MAX)])];
    assert!(matches!(run(&far(u64::MAX), &machine), Err(Fault::Refused(_))));
    for network in ["flat", "ring", "torus", "torus:2x2", "fat-tree"] {
        let result = run(&far(u64::MAX - 1), &on(unit(), network));
        assert!(result.is_ok() || matches!(result, Err(Fault::Refused(_))), "{network}");
    }
    // Everybody sends and receives in each of seven steps. If the receivers begin with the last, nobody ever meets;
    // and a receive that is dropped is missed.
    let schedule = Schedule::new(&example("16/3", "16/5"), Strategy::Optimal).unwrap();
    let mut programs = programs(&schedule, &unit(), false).unwrap();
    assert!(run(&programs, &machine).is_ok());
    for program in programs.iter_mut().filter(|program| matches!(program.ops[0], Op::Receive { .. })) {
        program.ops.reverse();
    }
    assert!(matches!(run(&programs, &machine), Err(Fault::Deadlock { .. })));
    let last = programs.iter_mut().rfind(|program| matches!(program.ops[0], Op::Receive { .. })).unwrap();
    last.ops.pop();
    assert!(matches!(run(&programs, &machine), Err(Fault::NeverReceived(_))));
}

/// Independent messages that all begin at once, and when each ends.
fn ends(network: &str, sent: &[(u64, u64, u64)]) -> Vec<f64> {
    let programs: Vec<Program> = sent
        .iter()
        .flat_map(|&(from, to, elems)| [sends(from, &[(to, elems)]), receives(to, &[(from, elems)])])
        .collect();
    let timeline = run(&programs, &on(unit(), network)).unwrap();
    sent.iter()
        .map(|&(from, to, _)| {
            timeline.messages().iter().find(|sent| (sent.from, sent.to) == (from, to)).unwrap().end
        })
        .collect()
}

#[test]
fn a_ring_by_hand() {
    // Six nodes (node 5 makes them six). 0 -> 2 and 1 -> 3 share the link from 1 to 2 at half speed; when the first has
    // gone, at 8, the second has 2 of 6 left.
    assert_eq!(ends("ring", &[(0, 2, 4), (1, 3, 6), (4, 5, 1)]), [8.0, 10.0, 1.0]);
    // The shorter way round: 5 -> 0 is one link, and does not meet 0 -> 5.
    assert_eq!(ends("ring", &[(5, 0, 4), (0, 5, 4)]), [4.0, 4.0]);
    // Three on one link: a third each, then a half, then alone.
    assert_eq!(ends("ring", &[(0, 3, 1), (1, 4, 2), (2, 5, 3)]), [3.0, 5.0, 6.0]);
    // What stays on a node crosses no link.
    assert_eq!(ends("ring", &[(0, 0, 7), (1, 5, 1)]), [7.0, 1.0]);
    // Start-up does not take bandwidth, and packing neither: 1 + 2 x 2 each, shared only while both flow.
    let cost = CostModel::new(1.0, 2.0).unwrap().with_pack(0.5).unwrap();
    let programs = [
        sends(0, &[(2, 2)]),
        receives(2, &[(0, 2)]),
        sends(1, &[(3, 2)]),
        receives(3, &[(1, 2)]),
        sends(5, &[(4, 1)]),
        receives(4, &[(5, 1)]),
    ];
    let timeline = run(&programs, &on(cost, "ring")).unwrap();
    assert_eq!(timeline.makespan(), 1.0 + 1.0 + 8.0 + 1.0);
}

#[test]
fn a_torus_by_hand() {
    let torus: Network = "torus:3x4".parse().unwrap();
    let link = |at, dim, up| Link { at, dim, up };
    // From (0, 0) to (1, 2): along the row first, where both ways are equally long, then down.
    let route = [link(0, 1, true), link(1, 1, true), link(2, 0, true)];
    assert_eq!(torus.route(0, 6, 12).unwrap(), route);
    // From (0, 0) to (2, 3): backwards in both, round the edges.
    assert_eq!(torus.route(0, 11, 12).unwrap(), [link(0, 1, false), link(3, 0, false)]);
    assert_eq!(torus.route(7, 7, 12).unwrap(), []);
    // 0 -> 2 and 1 -> 6 share the link from 1 to 2; 8 -> 10 runs along another row.
    assert_eq!(ends("torus:3x4", &[(0, 2, 4), (1, 6, 4), (8, 10, 4)]), [8.0, 8.0, 4.0]);
    // Squares hold all ranks; a torus that does not is refused, as is a node outside.
    assert_eq!("torus".parse::<Network>().unwrap().route(0, 6, 7).unwrap().len(), 1);
    assert!(torus.route(0, 1, 13).is_err());
    assert!(torus.route(0, 12, 12).is_err());
    // Routes arrive, on every small torus: each link begins where the last one ended.
    for extents in [vec![1], vec![2], vec![5], vec![2, 3], vec![4, 4], vec![3, 1, 4]] {
        let nodes: u64 = extents.iter().product();
        let torus = Network::Torus(extents.clone());
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let mut at = from;
            for Link { at: begins, dim, up } in torus.route(from, to, nodes).unwrap() {
                assert_eq!(begins, at);
                let stride: u64 = extents[dim + 1..].iter().product();
                let index = at / stride % extents[dim];
                let next = (index + if up { 1 } else { extents[dim] - 1 }) % extents[dim];
                at = at - index * stride + next * stride;
            }
            assert_eq!(at, to, "{from} to {to} on {torus}");
        }
    }
}

#[test]
fn a_fat_tree_by_hand() {
    // Leaves {0, 1} and {2, 3} with one uplink each: two messages across share it, one inside does not.
    assert_eq!(ends("fat-tree:2:2", &[(0, 2, 4), (1, 3, 6)]), [8.0, 10.0]);
    assert_eq!(ends("fat-tree:2:2", &[(0, 1, 4), (1, 3, 6)]), [4.0, 6.0]);
    // Up and down are different links.
    assert_eq!(ends("fat-tree:2:2", &[(0, 2, 4), (3, 1, 4)]), [4.0, 4.0]);
    // A full fat tree never blocks, and one message is never faster than a port.
    assert_eq!(ends("fat-tree:2:1", &[(0, 2, 4), (1, 3, 6)]), [4.0, 6.0]);
    // Four nodes to a leaf, three to two uplinks: three messages at 2/3 speed... capacity 4/3, a share of 4/9 each.
    let found = ends("fat-tree:4:3", &[(0, 4, 4), (1, 5, 4), (2, 6, 4)]);
    assert!(found.iter().all(|end| (end - 9.0).abs() < 1e-12), "{found:?}");
    assert!(Network::FatTree { leaf: 0, taper: 1 }.route(0, 1, 2).is_err());
}

#[test]
fn half_duplex_by_hand() {
    let both = [sends(0, &[(1, 4)]), receives(1, &[(0, 4)]), sends(1, &[(0, 4)]), receives(0, &[(1, 4)])];
    assert_eq!(run(&both, &on(unit(), "flat")).unwrap().makespan(), 4.0);
    let half = unit().with_duplex(Duplex::Half);
    assert_eq!(run(&both, &on(half, "flat")).unwrap().makespan(), 8.0);
    assert_eq!(run(&both, &on(half.with_ports(2).unwrap(), "flat")).unwrap().makespan(), 4.0);
    let itself = [sends(0, &[(0, 4)]), receives(0, &[(0, 4)])];
    assert_eq!(run(&itself, &on(half, "flat")).unwrap().makespan(), 4.0);
}

#[test]
fn networks_print_and_parse_back() {
    for text in ["flat", "ring", "torus", "torus:4x4", "torus:2x3x4", "fat-tree:16:2", "fat-tree:7:3"] {
        assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
    }
    assert_eq!("fat-tree".parse::<Network>().unwrap().to_string(), "fat-tree:16:2");
    for text in
        ["", "flat:1", "torus:", "torus:4x", "torus:0x4", "torus:+4", "fat-tree:0", "fat-tree:4:0", "mesh"]
    {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}

#[test]
fn costs_outside_their_range_are_refused() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY, 2e9] {
        assert!(CostModel::new(wrong, 0.0).is_err() && CostModel::new(0.0, wrong).is_err());
        assert!(CostModel::default().with_pack(wrong).is_err());
        assert!(CostModel::default().with_barrier(wrong).is_err());
    }
    assert!(CostModel::default().with_ports(0).is_err());
}

/// Some whole periods between two block-cyclic axes, shifted against each other.
fn shifted(random: &mut Random) -> Problem {
    let (p, q) = (random.within(1, 12), random.within(1, 12));
    let (r, s) = (random.within(1, 8), random.within(1, 8));
    let (from_at, to_at) =
        if random.one_in(2) { (0, 0) } else { (random.within(0, 20), random.within(0, 20)) };
    let period = (1..).map(|k| k * p * r).find(|multiple| multiple % (q * s) == 0).unwrap();
    let len = period * random.within(1, 3);
    let mut side = |procs, block, at| {
        let axis = Axis::block_cyclic(len + at, procs, block, random.within(0, procs - 1)).unwrap();
        Distribution::new(Grid::new(&[procs]).unwrap(), vec![axis]).unwrap()
    };
    let window = Window::of(&[len]).from(&[from_at]).to(&[to_at]);
    let (from, to) = (side(p, r, from_at), side(q, s, to_at));
    Problem::windowed(from, to, window).unwrap()
}

#[test]
fn the_streamed_run_is_the_explicit_one() {
    let mut random = Random::new(54);
    for _ in 0..if full_sweep() { 20_000 } else { 1_000 } {
        let problem = shifted(&mut random);
        let cost = random_cost(&mut random);
        let stream = Stream::new(&problem).unwrap().unwrap();
        let schedule = Schedule::new(&problem, Strategy::Optimal).unwrap();
        let all = messages(&schedule);
        assert_eq!((stream.steps(), stream.messages()), (schedule.num_steps(), all.len() as u128));
        for barriers in [false, true] {
            let streamed = stream.run(&cost, barriers).unwrap();
            let timeline = simulate(&schedule, &on(cost, "flat"), barriers).unwrap();
            assert_eq!(streamed.makespan, timeline.makespan(), "{problem:?}");
            assert_eq!(streamed.predicted, predict(&schedule, &cost).seconds, "{problem:?}");
            assert_eq!(streamed.bound, cost.bound(&all), "{problem:?}");
            let (found, expected) = (streamed.busy, timeline.busy());
            assert!((found.sending - expected.sending).abs() < 1e-9, "{problem:?}");
            assert!((found.receiving - expected.receiving).abs() < 1e-9, "{problem:?}");
            assert_eq!(streamed, stream.run(&cost, barriers).unwrap());
            // A smaller table takes more walks and gives the same.
            let smaller = stream.clone().with_table(random.within(0, 100)).run(&cost, barriers).unwrap();
            assert_eq!((smaller.makespan, smaller.busy), (streamed.makespan, streamed.busy), "{problem:?}");
            assert!(smaller.bytes <= streamed.bytes);
        }
    }
}

#[test]
fn what_cannot_be_streamed_is_said() {
    let problem = |from: &str, to: &str| Problem::new(from.parse().unwrap(), to.parse().unwrap()).unwrap();
    assert!(Stream::new(&problem("4/3 of 100", "4/5 of 100")).unwrap().is_none(), "part of a period");
    assert!(Stream::new(&problem("4/3 of 0", "4/5 of 0")).unwrap().is_none(), "nothing");
    assert!(Stream::new(&problem("2x2/3x3 of 60x60", "2x2/5x5 of 60x60")).unwrap().is_none());
    assert!(Stream::new(&problem("(gen_block(3,5)) on 2 of 8", "2/1 of 8")).unwrap().is_none());
    let stream = Stream::new(&problem("4/3 of 60", "4/5 of 60")).unwrap().unwrap();
    assert!(stream.run(&CostModel::default().with_ports(2).unwrap(), false).is_err());
    assert!(stream.run(&CostModel::default().with_duplex(Duplex::Half), false).is_err());
    // Everybody to everybody, a million times a million.
    let huge = Stream::new(&example("1000000/1", "999999/1")).unwrap().unwrap();
    let said = huge.run(&CostModel::default(), true).unwrap_err().to_string();
    assert!(said.contains("take fewer ranks"), "{said}");
}
