//! Two and three dimensions: every message against elements asked one by one; windows, permutations, rank orders,
//! disjoint and overlapping grids, irregular axes.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use reshard_plan::{
    Distribution, ErrorKind, Grid, Layout, MemoryOrder, Message, Method, Pattern, Problem, RankOrder,
    Traffic, Window,
};
use reshard_testkit::{Random, full_sweep, messages, random_deal};
use std::collections::BTreeMap;

/// Some distribution of an array of this shape on some grid.
fn random_distribution(random: &mut Random, shape: &[u64]) -> Distribution {
    let extents: Vec<u64> = shape.iter().map(|_| random.within(1, 3)).collect();
    let mut grid = Grid::new(&extents).unwrap();
    if random.one_in(2) {
        grid = grid.with_order(RankOrder::ColMajor);
    }
    if random.one_in(3) {
        grid = grid.with_first_rank(random.within(0, 30)).unwrap();
    } else if random.one_in(3) {
        // Every rank of the grid, shuffled and spread.
        let mut ranks: Vec<u64> = (0..grid.size()).map(|rank| rank * 3).collect();
        for at in (1..ranks.len()).rev() {
            ranks.swap(at, random.within(0, at as u64) as usize);
        }
        grid = grid.with_ranks(&ranks).unwrap();
    }
    let (deals, first) =
        shape.iter().zip(&extents).map(|(&len, &procs)| random_deal(random, len, procs)).unzip();
    Pattern::new(grid, deals, first).unwrap().over(shape).unwrap()
}

/// One random redistribution, all methods and all ways to ask for traffic.
fn judge(random: &mut Random, dims: usize, longest: u64) {
    let from_shape: Vec<u64> = (0..dims).map(|_| random.within(0, longest)).collect();
    let mut axes: Vec<usize> = (0..dims).collect();
    for at in (1..dims).rev() {
        axes.swap(at, random.within(0, at as u64) as usize);
    }
    let to_shape: Vec<u64> = (0..dims).map(|_| random.within(0, longest)).collect();
    let (from, to) = (random_distribution(random, &from_shape), random_distribution(random, &to_shape));
    let mut shape = vec![0; dims];
    let (mut from_at, mut to_at) = (vec![0; dims], vec![0; dims]);
    for (j, &d) in axes.iter().enumerate() {
        shape[d] = random.within(0, from_shape[d].min(to_shape[j]));
        from_at[d] = random.within(0, from_shape[d] - shape[d]);
        to_at[j] = random.within(0, to_shape[j] - shape[d]);
    }
    let (window, expected) = messages(&from, &to, &shape, &from_at, &to_at, &axes);
    let problem = Problem::windowed(from, to, window).unwrap();
    let collect = |messages: Vec<Message>| -> BTreeMap<(u64, u64), u64> {
        messages.into_iter().map(|message| ((message.from, message.to), message.elems)).collect()
    };
    for method in Method::ALL {
        let traffic = Traffic::new(&problem).by(method);
        let sent = problem.from().grid().ranks().flat_map(|rank| traffic.sent_by(rank).unwrap()).collect();
        assert_eq!(collect(sent), expected, "{method}: {problem:?}");
    }
    let traffic = Traffic::new(&problem);
    let received = problem.to().grid().ranks().flat_map(|rank| traffic.received_by(rank).unwrap()).collect();
    assert_eq!(collect(received), expected, "{problem:?}");
    let table = traffic.table().unwrap();
    assert_eq!(table.message_count(), expected.len() as u128, "{problem:?}");
    assert_eq!(collect(table.messages().collect()), expected, "{problem:?}");
    let (sender, receiver) =
        (problem.from().grid().rank_at(0).unwrap(), problem.to().grid().rank_at(0).unwrap());
    let one = expected.get(&(sender, receiver)).copied().unwrap_or(0);
    assert_eq!(traffic.elems(sender, receiver).unwrap(), one, "{problem:?}");
    // Everything prints and parses back.
    for distribution in [problem.from(), problem.to()] {
        let again: Distribution = distribution.to_string().parse().unwrap();
        assert_eq!(again, *distribution, "{distribution}");
    }
}

#[test]
fn messages_in_two_dimensions_match_the_oracle() {
    let cases = if full_sweep() { 80_000 } else { 4_000 };
    let mut random = Random::new(21);
    (0..cases).for_each(|_| judge(&mut random, 2, 18));
    println!("{cases} cases in two dimensions");
}

#[test]
fn messages_in_three_dimensions_match_the_oracle() {
    let cases = if full_sweep() { 40_000 } else { 2_000 };
    let mut random = Random::new(22);
    (0..cases).for_each(|_| judge(&mut random, 3, 9));
    println!("{cases} cases in three dimensions");
}

#[test]
fn messages_in_four_and_more_dimensions_match_the_oracle() {
    let mut random = Random::new(23);
    (0..100).for_each(|_| judge(&mut random, 4, 5));
    (0..20).for_each(|_| judge(&mut random, 8, 2));
}

#[test]
fn addresses_are_distinct_and_within_the_span() {
    let mut random = Random::new(24);
    for case in 0..500 {
        let shape: Vec<u64> = (0..random.within(1, 3)).map(|_| random.within(0, 9)).collect();
        let distribution = random_distribution(&mut random, &shape);
        let order = if case % 2 == 0 { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor };
        let mut layout = Layout::new(distribution.clone(), order);
        if case % 3 > 0 {
            let padded: Vec<u64> =
                distribution.axes().iter().map(|axis| axis.max_local_len() + random.within(0, 2)).collect();
            layout = layout.with_allocated(&padded).unwrap();
        }
        let mut seen = BTreeMap::new();
        for flat in 0..distribution.elems() {
            let mut rest = flat;
            let global: Vec<u64> = shape.iter().map(|&extent| (rest % extent, rest /= extent).0).collect();
            let (rank, address) = layout.locate(&global).unwrap();
            assert!(address < layout.span(rank).unwrap());
            let (owner, local) = distribution.local_from_global(&global).unwrap();
            assert_eq!(owner, rank);
            assert_eq!(distribution.global_from_local(rank, &local).unwrap(), global);
            let strides = layout.strides(rank).unwrap();
            assert_eq!(address, local.iter().zip(&strides).map(|(i, s)| i * s).sum::<u64>());
            assert_eq!(seen.insert((rank, address), global), None, "two elements at one address");
        }
        // Tight parts have no gaps: as many addresses as elements.
        if case % 3 == 0 {
            for rank in distribution.grid().ranks() {
                assert_eq!(layout.span(rank).unwrap(), distribution.local_elems(rank).unwrap());
            }
        }
    }
}

/// An empty array may be as long as it likes in its other dimensions: nothing overflows.
#[test]
fn empty_arrays_are_empty() {
    let of = |text: &str| text.parse::<Distribution>().unwrap();
    let huge = "1x1x1/1x1x1 of 4611686018427387904x4611686018427387904x0";
    let problem = Problem::new(of(huge), of(huge)).unwrap();
    assert_eq!((problem.elems(), problem.from().elems(), problem.from().local_elems(0).unwrap()), (0, 0, 0));
    let traffic = Traffic::new(&problem);
    assert_eq!((traffic.elems(0, 0).unwrap(), traffic.sent_by(0).unwrap().len()), (0, 0));
    assert_eq!(traffic.table().unwrap().messages().count(), 0);
    assert_eq!(problem.sends(0, Method::Aspen).unwrap().elems(), 0);
    let flat = of("1x1/1x1 of 0x1099511627776");
    let layout = Layout::new(flat, MemoryOrder::RowMajor).with_strides(&[1, 1 << 40]).unwrap();
    assert_eq!(layout.span(0).unwrap(), 0);
    assert!(Layout::new(of("1x1x1/1x1x1 of 0x5x5"), MemoryOrder::RowMajor).with_strides(&[1, 1, 1]).is_ok());
}

#[test]
fn problems_that_do_not_fit_are_refused() {
    let of = |text: &str| text.parse::<Distribution>().unwrap();
    let kind = |problem: reshard_plan::Result<Problem>| problem.unwrap_err().kind();
    assert_eq!(kind(Problem::new(of("2/3 of 10"), of("2/3 of 11"))), ErrorKind::Mismatch);
    assert_eq!(kind(Problem::new(of("2/3 of 10"), of("2x2/3x3 of 10x10"))), ErrorKind::Mismatch);
    let windowed = |window| kind(Problem::windowed(of("2x2/3x3 of 10x10"), of("2x2/3x3 of 20x5"), window));
    assert_eq!(windowed(Window::of(&[10, 6])), ErrorKind::OutOfRange);
    assert_eq!(windowed(Window::of(&[10, 5]).from(&[1, 0])), ErrorKind::OutOfRange);
    assert_eq!(windowed(Window::of(&[10, 5]).to(&[u64::MAX, 0])), ErrorKind::OutOfRange);
    assert_eq!(windowed(Window::of(&[10])), ErrorKind::Mismatch);
    assert_eq!(windowed(Window::of(&[5, 5]).permuted(&[0, 0])), ErrorKind::Mismatch);
    assert_eq!(windowed(Window::of(&[5, 5]).permuted(&[1, 2])), ErrorKind::Mismatch);
    let layout = Layout::new(of("2x2/3x3 of 10x10"), MemoryOrder::ColMajor);
    assert_eq!(layout.clone().with_allocated(&[5, 6]).unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(layout.clone().with_strides(&[1, 5]).unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(layout.clone().with_strides(&[1, u64::MAX]).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(layout.with_strides_of(9, &[1, 6]).unwrap_err().kind(), ErrorKind::OutOfRange);
    let huge = "2x2/3x3 of 4611686018427387904x2".parse::<Distribution>();
    assert_eq!(huge.unwrap_err().kind(), ErrorKind::TooLarge);
}
