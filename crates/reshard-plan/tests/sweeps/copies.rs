//! Which copy of a replicated source each receiver takes: its own if it has one, and the others evenly.

#![allow(clippy::unwrap_used)]

use reshard_plan::{Distribution, ErrorKind, Message, Move, Plan, Problem, Relabel, Traffic};
use std::collections::BTreeMap;

fn problem(from: &str, to: &str) -> Problem {
    let of = |text: &str| text.parse::<Distribution>().unwrap();
    Problem::new(of(from), of(to)).unwrap()
}

fn messages(problem: &Problem) -> Vec<Message> {
    Traffic::new(problem).table().unwrap().messages().collect()
}

/// What each rank sends: messages and elements.
fn sent(problem: &Problem) -> BTreeMap<u64, (u64, u64)> {
    let mut sent: BTreeMap<u64, (u64, u64)> =
        problem.from().grid().ranks().map(|rank| (rank, (0, 0))).collect();
    for message in messages(problem) {
        let sent = sent.get_mut(&message.from).unwrap();
        *sent = (sent.0 + 1, sent.1 + message.elems);
    }
    sent
}

#[test]
fn a_rank_that_has_a_copy_keeps_to_it() {
    for (from, to) in [
        ("(*) on 4 of 101", "(block) on 4 of 101"),
        ("(*) on 4 of 101", "(*) on 4 of 101"),
        ("(*) on 4 of 101", "4/3 ranks=2,0,3,1 of 101"),
        ("(*, *) on 2x3 of 20x30", "3x2/4x5 of 20x30"),
        // Every rank has the rows it wants, at all columns.
        ("(block, *) on 2x2 of 20x30", "(block, cyclic(4)) on 2x2 of 20x30"),
        ("(block, *) on 2x2 of 20x30", "(block, *) on 2x2 of 20x30"),
    ] {
        let problem = problem(from, to);
        assert!(messages(&problem).iter().all(|message| message.from == message.to), "{from} to {to}");
    }
    // Others take a copy along the dimension that is replicated, at their own coordinate of it.
    let problem = problem("(*, block) on 2x2 of 12x12", "(block, *) on 2x2 of 12x12");
    for Message { from, to, .. } in messages(&problem) {
        assert_eq!(problem.from().coords(from).unwrap()[0], problem.from().coords(to).unwrap()[0]);
    }
    assert_eq!(problem.elems(), 2 * 144);
}

#[test]
fn ranks_without_a_copy_use_all_evenly() {
    let even = [
        ("(*) on 4 of 64", "(block) on 8 ranks=4..12 of 64"),
        ("(*) on 4 of 64", "(*) on 8 ranks=4..12 of 64"),
        ("(*) on 3 of 81", "81/1 ranks=3..84 of 81"),
        ("(*, *) on 2x4 of 64x64", "(block, block) on 4x4 ranks=8..24 of 64x64"),
        ("(*, *) on 2x2 of 64x64", "(block, *) on 8x1 ranks=8..16 of 64x64"),
        ("(block, *) on 2x2 of 64x64", "(block, block) on 4x2 ranks=4..12 of 64x64"),
        // All receivers have one coordinate along the replicated dimension, and are neighbours or far apart.
        ("(block, *) on 2x2 of 64x64", "(block, *) on 4x1 ranks=4..8 of 64x64"),
        ("(cyclic, *) on 2x2 of 64x64", "(cyclic, *) on 4x1 ranks=4..8 of 64x64"),
        ("(cyclic, *) on 8x2 of 64x64", "(cyclic, *) on 16x1 ranks=16..32 of 64x64"),
        ("(*, cyclic) on 4x2 of 64x64", "(*, cyclic) on 1x16 rank-order=col ranks=8..24 of 64x64"),
    ];
    for (from, to) in even {
        let problem = problem(from, to);
        let sent: Vec<(u64, u64)> = sent(&problem).into_values().collect();
        assert!(sent[0].0 > 0 && sent.iter().all(|of_one| *of_one == sent[0]), "{from} to {to}: {sent:?}");
        let received: u64 = sent.iter().map(|of_one| of_one.1).sum();
        assert_eq!(received, problem.elems(), "{from} to {to}");
    }
}

/// Each copy is written, and counted.
#[test]
fn what_is_written_is_counted() {
    let problem = problem("2x2/3x3 of 10x10", "(*, block) on 3x2 of 10x10");
    let elems: u64 = messages(&problem).iter().map(|message| message.elems).sum();
    assert_eq!((elems, problem.elems(), problem.to().copies()), (300, 300, 3));
    let moving =
        Move::of::<f64>("2x2/3x3 of 10x10".parse().unwrap(), "(*, block) on 3x2 of 10x10".parse().unwrap());
    assert_eq!(Plan::new(vec![moving.unwrap()]).unwrap().bytes(), 8 * 300);
    let of = |text: &str| text.parse::<Distribution>().unwrap();
    let many = Problem::new(of("2/1 of 4611686018427387904"), of("(*) on 2 of 4611686018427387904"));
    assert_eq!(many.unwrap_err().kind(), ErrorKind::TooLarge);
    let source = problem.from().clone();
    let back = Problem::new(problem.to().clone(), source).unwrap();
    assert_eq!(Relabel::new(&back).find().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(Relabel::new(&problem).find().is_ok());
}

/// One rank of a million is planned alone, whatever has copies.
#[test]
fn one_rank_of_many_copies_is_planned_alone() {
    let from = "(*, cyclic(64)) on 1024x1024 of 1048576x1048576";
    let to = "(cyclic(64), *) on 1024x1024 ranks=1048576..2097152 of 1048576x1048576";
    let moving = Move::of::<f64>(from.parse().unwrap(), to.parse().unwrap()).unwrap();
    let plan = Plan::for_rank(vec![moving.clone()], 5_000_000 / 3).unwrap().with_peers().unwrap();
    // One of the copies of each column.
    assert_eq!((plan.arrays()[0].sources().len(), plan.arrays()[0].targets().len()), (1024, 1));
    let plan = Plan::for_rank(vec![moving], 4711).unwrap().with_peers().unwrap();
    assert_eq!((plan.arrays()[0].sources().len(), plan.arrays()[0].targets().len()), (1, 1024));
}
