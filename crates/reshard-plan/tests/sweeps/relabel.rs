//! Relabelling against brute force: every placement of up to eight positions on up to eight ranks, by messages dealt
//! out one by one; and the quotient against the full assignment.

#![allow(clippy::unwrap_used)]

use reshard_plan::{
    Among, Distribution, ErrorKind, Grid, Pattern, Problem, RankOrder, Relabel, Solver, Traffic, Volume,
    Window,
};
use reshard_testkit::{Random, messages, random_deal};
use std::collections::{BTreeMap, BTreeSet};

fn of(text: &str) -> Distribution {
    text.parse().unwrap()
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.within(0, at as u64) as usize);
    }
}

/// A grid of at most eight of the ranks 10 to 17, in any order, so that two grids share some.
fn random_grid(random: &mut Random, dims: usize) -> Grid {
    let extents = loop {
        let extents: Vec<u64> = (0..dims).map(|_| random.within(1, 8)).collect();
        if extents.iter().product::<u64>() <= 8 {
            break extents;
        }
    };
    let order = if random.one_in(2) { RankOrder::RowMajor } else { RankOrder::ColMajor };
    let grid = Grid::new(&extents).unwrap().with_order(order);
    let mut ranks: Vec<u64> = (10..18).collect();
    if random.one_in(2) {
        shuffle(random, &mut ranks);
    }
    grid.clone().with_ranks(&ranks[..grid.size() as usize]).unwrap()
}

fn random_distribution(random: &mut Random, grid: Grid, shape: &[u64]) -> Distribution {
    let (deals, first) =
        shape.iter().zip(grid.extents()).map(|(&len, &procs)| random_deal(random, len, procs)).unzip();
    Pattern::new(grid, deals, first).unwrap().over(shape).unwrap()
}

/// A problem and its messages, dealt out one by one.
type Dealt = (Problem, BTreeMap<(u64, u64), u64>);

fn random_problem(random: &mut Random, to_grid: &Grid) -> Dealt {
    let dims = to_grid.dims();
    let longest = if dims == 1 { 60 } else { 14 };
    let mut axes: Vec<usize> = (0..dims).collect();
    shuffle(random, &mut axes);
    let from_shape: Vec<u64> = (0..dims).map(|_| random.within(1, longest)).collect();
    let to_shape: Vec<u64> = (0..dims).map(|_| random.within(1, longest)).collect();
    let from_grid = random_grid(random, dims);
    // A replicated source is refused.
    let mut from = random_distribution(random, from_grid.clone(), &from_shape);
    while from.is_replicated() {
        from = random_distribution(random, from_grid.clone(), &from_shape);
    }
    let to = random_distribution(random, to_grid.clone(), &to_shape);
    let (mut shape, mut from_at, mut to_at) = (vec![0; dims], vec![0; dims], vec![0; dims]);
    for (j, &d) in axes.iter().enumerate() {
        shape[d] = random.within(1, from_shape[d].min(to_shape[j]));
        from_at[d] = random.within(0, from_shape[d] - shape[d]);
        to_at[j] = random.within(0, to_shape[j] - shape[d]);
    }
    let (window, messages) = messages(&from, &to, &shape, &from_at, &to_at, &axes);
    (Problem::windowed(from, to, window).unwrap(), messages)
}

/// What the given labels cost: all messages looked at one by one.
fn weigh(arrays: &[(Dealt, u64)], grid: &Grid, labels: &[u64], cost: &dyn Fn(u64, u64) -> u64) -> Volume {
    let ranks: Vec<u64> = grid.ranks().collect();
    let mut volume = Volume::default();
    for ((_, messages), bytes) in arrays {
        for (&(from, to), &elems) in messages {
            let label = labels[ranks.iter().position(|&rank| rank == to).unwrap()];
            let (elems, bytes) = (u128::from(elems), u128::from(elems) * u128::from(*bytes));
            let (all, all_bytes) = if from == label {
                (&mut volume.kept_elems, &mut volume.kept_bytes)
            } else {
                (&mut volume.moved_elems, &mut volume.moved_bytes)
            };
            *all += elems;
            *all_bytes += bytes;
            volume.cost += bytes * u128::from(cost(from, label));
        }
    }
    volume
}

/// Every placement of the positions on the candidates: the least (cost, changed ranks).
fn brute_force(costs: &[Vec<u128>], ranks: &[u64], candidates: &[u64]) -> (u128, usize) {
    fn place(
        costs: &[Vec<u128>],
        ranks: &[u64],
        candidates: &[u64],
        taken: &mut [bool],
        at: usize,
        so_far: (u128, usize),
        best: &mut (u128, usize),
    ) {
        if at == ranks.len() {
            *best = so_far.min(*best);
            return;
        }
        for (choice, &rank) in candidates.iter().enumerate() {
            if !taken[choice] {
                taken[choice] = true;
                let next = (so_far.0 + costs[at][choice], so_far.1 + usize::from(rank != ranks[at]));
                place(costs, ranks, candidates, taken, at + 1, next, best);
                taken[choice] = false;
            }
        }
    }
    let mut best = (u128::MAX, usize::MAX);
    place(costs, ranks, candidates, &mut vec![false; candidates.len()], 0, (0, 0), &mut best);
    best
}

/// One set: the labelling found costs what brute force says, changes no more ranks than it must, and is reported and
/// applied as it is.
fn judge(arrays: &[(Dealt, u64)], grid: &Grid, among: Among, cost: Option<&dyn Fn(u64, u64) -> u64>) {
    let given: Vec<u64> = grid.ranks().collect();
    let mut candidates: BTreeSet<u64> = given.iter().copied().collect();
    if among == Among::Both {
        candidates.extend(arrays.iter().flat_map(|((problem, _), _)| problem.from().grid().ranks()));
    }
    let candidates: Vec<u64> = candidates.into_iter().collect();
    let plain = |from: u64, to: u64| u64::from(from != to);
    let cost_of = cost.unwrap_or(&plain);
    let costs: Vec<Vec<u128>> = given
        .iter()
        .map(|&position| {
            let on = |&label: &u64| {
                let messages = arrays.iter().flat_map(|((_, messages), bytes)| {
                    messages.iter().map(move |(&(from, to), &elems)| (from, to, elems, *bytes))
                });
                messages
                    .filter(|&(_, to, ..)| to == position)
                    .map(|(from, _, elems, bytes)| {
                        u128::from(elems) * u128::from(bytes) * u128::from(cost_of(from, label))
                    })
                    .sum()
            };
            candidates.iter().map(on).collect()
        })
        .collect();
    let (least, changes) = brute_force(&costs, &given, &candidates);

    let problems: Vec<(&Problem, u64)> =
        arrays.iter().map(|((problem, _), bytes)| (problem, *bytes)).collect();
    let mut asked = Relabel::together(&problems).among(among);
    if let Some(cost) = cost {
        asked = asked.weighed(cost);
    }
    let assigned = asked.clone().by(Solver::Assignment).find().unwrap();
    let changed = assigned.grid().ranks().zip(&given).filter(|(new, old)| new != *old).count();
    assert_eq!((assigned.after().cost, changed), (least, changes), "{problems:?} {among:?}");
    for found in [assigned, asked.find().unwrap()] {
        let labels: Vec<u64> = found.grid().ranks().collect();
        assert!(labels.iter().all(|label| candidates.contains(label)), "{problems:?} {among:?}");
        assert_eq!(found.before(), weigh(arrays, grid, &given, cost_of), "{problems:?} {among:?}");
        assert_eq!(found.after(), weigh(arrays, grid, &labels, cost_of), "{problems:?} {among:?}");
        assert_eq!(found.after().cost, least, "{problems:?} {among:?}");
        assert_eq!(found.is_unchanged(), found.before().cost == least, "{problems:?} {among:?}");
        // The relabelled problems keep as many elements as was promised.
        let mut kept = 0;
        for (problem, _) in &problems {
            let again = found.problem(problem).unwrap();
            assert_eq!(again.elems(), problem.elems());
            let messages = Traffic::new(&again).table().unwrap();
            kept += messages
                .messages()
                .filter(|message| message.from == message.to)
                .map(|message| u128::from(message.elems))
                .sum::<u128>();
        }
        assert_eq!(kept, found.after().kept_elems, "{problems:?} {among:?}");
    }
}

#[test]
fn the_labelling_is_the_best_of_all() {
    let mut random = Random::new(31);
    for case in 0..1_000 {
        let grid = random_grid(&mut random, 1 + case % 2);
        let arrays: Vec<(Dealt, u64)> = (0..1 + case / 2 % 3)
            .map(|_| {
                // Now and then so many bytes that sums leave 64 bits.
                let bytes = if random.one_in(8) { 1 << 60 } else { random.within(0, 16) };
                (random_problem(&mut random, &grid), bytes)
            })
            .collect();
        let among = if random.one_in(2) { Among::Both } else { Among::Destination };
        let seed = random.bits();
        // Any weights: not symmetric, and staying may cost as well.
        let weights = move |from: u64, to: u64| Random::new(seed ^ (from << 32) ^ to).within(0, 9);
        // Two nodes of four ranks.
        let nodes = |from: u64, to: u64| match () {
            () if from == to => 0,
            () if from / 4 == to / 4 => 1,
            () => 5,
        };
        match case % 5 {
            0 => judge(&arrays, &grid, among, Some(&weights)),
            1 => judge(&arrays, &grid, among, Some(&nodes)),
            _ => judge(&arrays, &grid, among, None),
        }
    }
}

#[test]
fn whole_periods_are_the_best_of_all_too() {
    let mut random = Random::new(32);
    let mut by_quotient = 0;
    for _ in 0..300 {
        let grids = [random_grid(&mut random, 1), random_grid(&mut random, 1)];
        let [from, to] = grids.map(|grid| {
            let first = random.within(0, grid.size() - 1);
            Pattern::new(grid, vec![reshard_plan::Deal::Cyclic(random.within(1, 6))], vec![first]).unwrap()
        });
        let period = reshard_plan::one_period(&from, &to).unwrap()[0];
        let shape = [period * random.within(1, 2)];
        let (at, to_at) = ([random.within(0, 12)], [random.within(0, 12)]);
        let longer = [shape[0] + 12];
        let (source, destination) = (from.over(&longer).unwrap(), to.over(&longer).unwrap());
        let (window, messages) = messages(&source, &destination, &shape, &at, &to_at, &[0]);
        let problem = Problem::windowed(source, destination, window).unwrap();
        let among = if random.one_in(2) { Among::Both } else { Among::Destination };
        by_quotient += u32::from(Relabel::new(&problem).among(among).by(Solver::Quotient).find().is_ok());
        judge(&[((problem, messages), 8)], to.grid(), among, None);
    }
    assert!(by_quotient > 150, "the quotient took {by_quotient} of 300");
}

#[test]
fn layouts_that_differ_by_a_permutation_move_nothing() {
    for (from, to) in [
        ("2x4/8x8 of 64x64", "2x4/8x8 rank-order=col of 64x64"),
        ("2x4/8x8 of 61x45", "2x4/8x8 rank-order=col first=1x3 of 61x45"),
        ("16/3 of 240", "16/3 first=5 of 240"),
        ("16/3 of 241", "16/3 first=5 of 241"),
        ("2x2/8x8 of 100x80", "2x2/8x8 ranks=3,1,0,2 of 100x80"),
        ("2x3x2/4x5x2 of 20x21x9", "2x3x2/4x5x2 rank-order=col first=1x2x0 of 20x21x9"),
        ("3x1/4x4 of 30x9", "(cuts(4@2,4@1,4@0,4@2,4@1,4@0,4@2,2@1), *) on 3x1 of 30x9"),
    ] {
        let problem = Problem::new(of(from), of(to)).unwrap();
        let found = Relabel::new(&problem).find().unwrap();
        assert!(found.before().moved_elems > 0, "{from} to {to}");
        assert_eq!(found.after().moved_elems, 0, "{from} to {to}");
        assert_eq!(found.after().kept_elems, u128::from(problem.elems()), "{from} to {to}");
        let again = found.problem(&problem).unwrap();
        let moved =
            Traffic::new(&again).table().unwrap().messages().any(|message| message.from != message.to);
        assert!(!moved, "{from} to {to}");
        // Nothing better is to be found from there.
        assert!(Relabel::new(&again).find().unwrap().is_unchanged());
    }
}

#[test]
fn disjoint_grids_meet_among_both() {
    let problem =
        Problem::new(of("2x4/8x8 of 64x64"), of("2x4/8x8 rank-order=col ranks=8..16 of 64x64")).unwrap();
    assert!(Relabel::new(&problem).find().unwrap().is_unchanged());
    let found = Relabel::new(&problem).among(Among::Both).find().unwrap();
    assert_eq!(found.after().moved_elems, 0);
    assert_eq!(found.grid().ranks().collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3, 7]);
}

#[test]
fn the_quotient_keeps_as_much_as_the_full_assignment() {
    let mut random = Random::new(33);
    let (mut complete, mut common, mut misaligned, mut uneven, mut better) = (0, 0, 0, 0, 0);
    for case in 0..800 {
        // Rounds with many divisors, so that not nearly all graphs are complete.
        let procs = |random: &mut Random| match case % 3 {
            0 => random.within(1, 40),
            1 => [12, 16, 18, 24, 30, 36, 48, 60][random.within(0, 7) as usize],
            _ => 6 * random.within(1, 9),
        };
        let (p, q) = (procs(&mut random), procs(&mut random));
        let (r, s) = (random.within(1, 12), random.within(1, 12));
        let (from, to) = (format!("{p}/{r} first={}", random.within(0, p - 1)), format!("{q}/{s}"));
        // Ranks that overlap by half, so that the labels count.
        let to = format!("{to} first={} ranks={}..{}", random.within(0, q - 1), p / 2, p / 2 + q);
        let (from, to): (Pattern, Pattern) = (from.parse().unwrap(), to.parse().unwrap());
        let period = reshard_plan::one_period(&from, &to).unwrap()[0];
        let extent = period * random.within(1, 3);
        let offset = |random: &mut Random| if case % 2 == 0 { 0 } else { random.within(0, 30) };
        let (at, to_at) = (offset(&mut random), offset(&mut random));
        let window = Window::of(&[extent]).from(&[at]).to(&[to_at]);
        let len = [extent + 30];
        let problem = Problem::windowed(from.over(&len).unwrap(), to.over(&len).unwrap(), window).unwrap();
        let asked = Relabel::new(&problem).among(Among::Both);
        let (fast, slow) = (
            asked.clone().by(Solver::Quotient).find().unwrap(),
            asked.by(Solver::Assignment).find().unwrap(),
        );
        assert_eq!(fast.after(), slow.after(), "{problem:?}");
        assert_eq!(fast.before(), slow.before(), "{problem:?}");
        assert_eq!(fast.is_unchanged(), slow.is_unchanged(), "{problem:?}");
        // What is claimed is what the messages say.
        let again = fast.problem(&problem).unwrap();
        let table = Traffic::new(&again).table().unwrap();
        let kept: u64 = table.messages().filter(|m| m.from == m.to).map(|m| m.elems).sum();
        assert_eq!(u128::from(kept), fast.after().kept_elems, "{problem:?}");
        let classes = reshard_plan::Classes::new(&problem.sides(0)).unwrap();
        complete += u32::from(classes.is_complete());
        common += u32::from(r > 1 && s > 1 && (2..=r).any(|d| r % d == 0 && s % d == 0));
        misaligned += u32::from(at != to_at);
        uneven += u32::from(p != q);
        better += u32::from(!fast.is_unchanged());
    }
    // The sweep has seen all kinds.
    for (seen, least) in
        [(complete, 100), (800 - complete, 100), (common, 100), (misaligned, 300), (uneven, 300)]
    {
        assert!(seen >= least, "{complete} {common} {misaligned} {uneven} {better}");
    }
    assert!(better >= 500, "{better}");
}

#[test]
fn a_hundred_thousand_processes_are_five_hundred_times_two_hundred() {
    let found = |procs: u64, solver: Solver| {
        let (from, to) = (format!("{procs}/8"), format!("{procs}/25"));
        let shape = [procs * 200];
        let of = |text: String| text.parse::<Pattern>().unwrap().over(&shape).unwrap();
        let problem = Problem::new(of(from), of(to)).unwrap();
        let found = Relabel::new(&problem).by(solver).find().unwrap();
        (found.problem(&problem).unwrap(), found)
    };
    let (_, small) = found(200, Solver::Assignment);
    let (again, large) = found(100_000, Solver::Quotient);
    assert_eq!(large.after().kept_elems, 500 * small.after().kept_elems);
    assert!(large.before().kept_elems < large.after().kept_elems);
    assert_eq!(large.grid().ranks().collect::<BTreeSet<u64>>(), (0..100_000).collect());
    // Every promised message, asked one by one.
    let kept: u64 = (0..100_000).map(|rank| Traffic::new(&again).elems(rank, rank).unwrap()).sum();
    assert_eq!(u128::from(kept), large.after().kept_elems);
}

#[test]
fn optimal_labels_stay() {
    for (from, to) in
        [("4/2 of 32", "4/2 of 32"), ("3/1 of 7", "3/1 ranks=5..8 of 7"), ("2/3 of 0", "4/1 of 0")]
    {
        let problem = Problem::new(of(from), of(to)).unwrap();
        let found = Relabel::new(&problem).find().unwrap();
        assert!(found.is_unchanged(), "{from} to {to}");
        assert_eq!(found.distribution(problem.to()).unwrap(), *problem.to());
        assert_eq!(found.before(), found.after());
    }
    // Elements of no bytes are worth no change, by whichever solver.
    let problem = Problem::new(of("16/3 of 240"), of("16/3 first=5 of 240")).unwrap();
    for solver in [Solver::Assignment, Solver::Quotient] {
        assert!(Relabel::together(&[(&problem, 0)]).by(solver).find().unwrap().is_unchanged());
        assert!(!Relabel::together(&[(&problem, 1)]).by(solver).find().unwrap().is_unchanged());
    }
}

#[test]
fn what_cannot_be_relabelled_is_refused() {
    let kind = |asked: Relabel<'_>| asked.find().unwrap_err().kind();
    assert_eq!(kind(Relabel::together(&[])), ErrorKind::Mismatch);
    let small = Problem::new(of("2/3 of 12"), of("3/2 of 12")).unwrap();
    let shifted = Problem::new(of("2/3 of 12"), of("3/2 ranks=1..4 of 12")).unwrap();
    assert_eq!(kind(Relabel::together(&[(&small, 1), (&shifted, 1)])), ErrorKind::Mismatch);
    let found = Relabel::new(&small).find().unwrap();
    assert_eq!(found.distribution(shifted.to()).unwrap_err().kind(), ErrorKind::Mismatch);
    // The quotient does not take what has no whole period, more dimensions, weights, or other ranks.
    let odd = Problem::new(of("2/3 of 13"), of("3/2 of 13")).unwrap();
    let plane = Problem::new(of("2x1/3x3 of 12x12"), of("1x2/2x2 of 12x12")).unwrap();
    for asked in [
        Relabel::new(&odd),
        Relabel::new(&plane),
        Relabel::new(&shifted),
        Relabel::new(&small).weighed(&|_, _| 1),
        Relabel::together(&[(&small, 1), (&small, 1)]),
    ] {
        assert!(asked.find().is_ok());
        assert_eq!(kind(asked.by(Solver::Quotient)), ErrorKind::Unsupported);
    }
    // Past the assignment, unless the quotient applies.
    let wide = Problem::new(of("5000/1 of 5001"), of("5000/2 of 5001")).unwrap();
    assert_eq!(kind(Relabel::new(&wide)), ErrorKind::TooLarge);
    let fits = Problem::new(of("5000/1 of 10000"), of("5000/2 of 10000")).unwrap();
    assert!(Relabel::new(&fits).find().is_ok());
    assert_eq!(kind(Relabel::new(&fits).by(Solver::Assignment)), ErrorKind::TooLarge);
    let crowd = Problem::new(of("4611686018427387904/1 of 100"), of("2/2 of 100")).unwrap();
    assert_eq!(kind(Relabel::new(&crowd)), ErrorKind::TooLarge);
    // Weights whose sums leave 128 bits.
    let huge = Problem::new(of("2/3 of 4611686018427387904"), of("2/2 of 4611686018427387904")).unwrap();
    assert_eq!(kind(Relabel::together(&[(&huge, u64::MAX)])), ErrorKind::TooLarge);
    assert!(Relabel::together(&[(&huge, 1 << 32)]).find().is_ok());
}
