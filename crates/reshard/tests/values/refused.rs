//! Mistakes of the caller: each is an error that says what is wrong, before anything is written.

use super::arrays::{every_engine, plan_of};
use reshard::engine::{BufferTable, Engine, Messages, MessagesOptions, Threads};
use reshard::{Error, ErrorKind, Layout, MemoryOrder, Move, Pair, Plan, Redistribution, redistribute};
use std::sync::Arc;

/// Ranks 3, 4 and 5 into ranks 7 and 8.
fn sides() -> (Layout, Layout) {
    let ranks = |text: &str, first| {
        let distribution: reshard_plan::Distribution = text.parse().unwrap();
        let pattern = distribution.pattern();
        let grid = pattern.grid().clone().with_first_rank(first).unwrap();
        let pattern =
            reshard_plan::Pattern::new(grid, pattern.deals().to_vec(), pattern.first().to_vec()).unwrap();
        Layout::new(pattern.over(&distribution.shape()).unwrap(), MemoryOrder::ColMajor)
    };
    (ranks("3/2 of 10", 3), ranks("2/3 of 10", 7))
}

fn plan() -> Arc<Plan> {
    let (from, to) = sides();
    plan_of(&Move::of::<f64>(from, to).unwrap())
}

fn lengths<T: Clone>(value: T, lengths: &[usize]) -> Vec<Vec<T>> {
    lengths.iter().map(|&len| vec![value.clone(); len]).collect()
}

/// Runs with parts of these lengths on every engine. All refuse, with the same sentence, and write nothing.
fn refusal<T: bytemuck::Pod + PartialEq>(value: T, from: &[usize], to: &[usize]) -> String {
    let mut sentences = Vec::new();
    for mut engine in every_engine(&plan()) {
        let source = lengths(value, from);
        let mut target = lengths(T::zeroed(), to);
        let error = engine.run(&source, &mut target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(target == lengths(T::zeroed(), to), "nothing is written");
        sentences.push(error.to_string());
    }
    assert!(sentences.iter().all(|sentence| *sentence == sentences[0]));
    sentences.swap_remove(0)
}

const FROM: [usize; 3] = [4, 4, 2];
const TO: [usize; 2] = [6, 4];

#[track_caller]
fn says(sentence: &str, words: &[&str]) {
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in: {sentence}");
    }
    assert!(!sentence.contains('\n') && !sentence.ends_with('.'), "{sentence}");
}

#[test]
fn wrong_numbers_of_parts() {
    says(&refusal(1.0, &FROM[..2], &TO), &["2 source parts", "3 source ranks"]);
    says(&refusal(1.0, &[4, 4, 2, 0], &TO), &["4 source parts", "3 source ranks"]);
    says(&refusal(1.0, &FROM, &TO[..1]), &["1 destination part ", "2 destination ranks"]);
    says(&refusal(1.0, &FROM, &[]), &["0 destination parts", "2 destination ranks"]);
}

#[test]
fn short_parts() {
    says(&refusal(1.0, &[4, 3, 2], &TO), &["source part of rank 4", "3 elements", "over 4"]);
    says(&refusal(1.0, &[4, 4, 0], &TO), &["source part of rank 5", "0 elements", "over 2"]);
    says(&refusal(1.0, &FROM, &[6, 3]), &["destination part of rank 8", "3 elements", "over 4"]);
    says(&refusal(1.0, &FROM, &[5, 4]), &["destination part of rank 7", "5 elements", "over 6"]);
}

#[test]
fn wrong_sizes_of_elements() {
    says(&refusal(1.0_f32, &FROM, &TO), &["elements of 4 bytes", "array 0", "elements of 8"]);
    says(&refusal([1_u8; 9], &FROM, &TO), &["elements of 9 bytes", "array 0", "elements of 8"]);
    let (from, to) = sides();
    let error = redistribute(&from, &[[[0_u8; 0]; 4]; 3], &to, &mut [[[0_u8; 0]; 6]; 2]).unwrap_err();
    says(&error.to_string(), &["elements of 0 bytes", "at least 1"]);
}

#[test]
fn longer_parts_are_welcome() {
    for mut engine in every_engine(&plan()) {
        let mut to = lengths(0.0, &[7, 9]);
        engine.run(&lengths(1.0, &[9, 9, 9]), &mut to).unwrap();
        assert_eq!(to.iter().flatten().sum::<f64>(), 10.0);
    }
}

#[test]
fn no_threads() {
    let error = Threads::new(plan(), Some(0)).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    says(&error.to_string(), &["0 threads", "at least 1"]);
    // Never more threads than tasks, however many are given.
    for many in [1 << 61, usize::MAX] {
        assert_eq!(Threads::new(plan(), Some(many)).unwrap().threads(), 1);
    }
}

fn engines() -> [Box<dyn Engine>; 2] {
    [
        Box::new(Threads::new(plan(), Some(2)).unwrap()),
        Box::new(Messages::new(plan(), MessagesOptions::default()).unwrap()),
    ]
}

#[test]
fn a_table_of_another_plan() {
    for mut engine in engines() {
        let mut table = BufferTable::new(plan());
        let (from, mut to) = (lengths(1.0, &FROM), lengths(0.0, &TO));
        let mut data = table.fill();
        data.enter(0, &from, &mut to, None).unwrap();
        let error = engine.run(&mut data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        says(&error.to_string(), &["another plan"]);
        assert_eq!(to, lengths(0.0, &TO));
    }
}

#[test]
fn an_array_that_was_not_entered() {
    for mut engine in engines() {
        let mut table = BufferTable::new(Arc::clone(engine.plan()));
        let error = engine.run(&mut table.fill()).unwrap_err();
        says(&error.to_string(), &["array 0 of 1", "not given"]);
        let (from, mut to) = (lengths(1.0, &FROM), lengths(0.0, &TO));
        let error = table.fill().enter(1, &from, &mut to, None).unwrap_err();
        says(&error.to_string(), &["array 1", "plan of 1 array,"]);
    }
}

#[test]
fn too_few_arrays_and_too_many() {
    let (from, to) = sides();
    let moving = Move::of::<f64>(from, to).unwrap();
    let mut two = Redistribution::several(vec![moving.clone(), moving]).unwrap();
    let (from, mut to) = (lengths(1.0, &FROM), lengths(0.0, &TO));
    let error = two.run(&from, &mut to).unwrap_err();
    says(&error.to_string(), &["1 array was given", "plan of 2"]);
    let error = two.run_bytes(&lengths(1_u8, &[32, 32, 16]), &mut lengths(0_u8, &[48, 32])).unwrap_err();
    says(&error.to_string(), &["array 1 of 2", "not given"]);
    let mut others = [lengths(0.0, &TO), lengths(0.0, &TO)];
    let [second, third] = &mut others;
    let error = two
        .run_all(&mut [
            &mut Pair::new(&from, &mut to),
            &mut Pair::new(&from, second),
            &mut Pair::new(&from, third),
        ])
        .unwrap_err();
    says(&error.to_string(), &["3 arrays", "plan of 2"]);
    // The first is right and the second is not: the first is not written, either.
    let [second, _] = &mut others;
    let error =
        two.run_all(&mut [&mut Pair::new(&from, &mut to), &mut Pair::new(&from[..1], second)]).unwrap_err();
    says(&error.to_string(), &["1 source part ", "3 source ranks"]);
    assert_eq!((to, others), (lengths(0.0, &TO), [lengths(0.0, &TO), lengths(0.0, &TO)]));
}

#[test]
fn a_pair_used_twice() {
    let [mut once, mut twice] = engines().map(Redistribution::with_boxed);
    let (from, mut to) = (lengths(1.0, &FROM), lengths(0.0, &TO));
    let mut pair = Pair::new(&from, &mut to);
    once.run_all(&mut [&mut pair]).unwrap();
    let error: Error = twice.run_all(&mut [&mut pair]).unwrap_err();
    says(&error.to_string(), &["array 0", "used in a run before"]);
}

#[test]
fn plans_for_some_ranks_are_refused_by_engines_of_all() {
    let (from, to) = sides();
    let hosted = Plan::for_ranks(vec![Move::of::<f64>(from, to).unwrap()], &[3, 7]).unwrap();
    for plan in [hosted.clone(), hosted.with_peers().unwrap()] {
        let plan = Arc::new(plan);
        let of_rank = |rank| reshard::rank::messages(&plan, rank, &MessagesOptions::default(), 64);
        assert_eq!(of_rank(3).is_ok(), plan.lists_peers());
        let error = of_rank(5).err().unwrap().to_string();
        assert!(error.contains("with_peers") || error.contains("a plan for other ranks"), "{error}");
        let messages = Messages::new(Arc::clone(&plan), MessagesOptions::default()).err();
        for refused in [Threads::new(plan, None).err(), messages] {
            let sentence = refused.unwrap().to_string();
            let says = "a plan for 2 hosted ranks was given, and this engine runs plans for all ranks";
            assert!(sentence.starts_with(says), "{sentence}");
        }
    }
}
