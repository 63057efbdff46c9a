//! What is special to the engine that sends messages: several arrays in one message, memory limits, ranks that fail.

#![allow(clippy::unwrap_used)]

use num_complex::Complex;
use reshard::engine::{BufferTable, Engine, Messages, MessagesOptions, Report, Threads};
use reshard::schedule::{Schedule, Strategy};
use reshard::{ErrorKind, Layout, MemoryOrder, Move, Number, Pair, Plan, Redistribution, Result, Triangle};
use reshard_plan::Distribution;
use reshard_testkit::conformance::{Case, Kinds, Parts};
use reshard_testkit::{Random, full_sweep};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn layout(text: &str, order: MemoryOrder) -> Layout {
    Layout::new(text.parse::<Distribution>().unwrap(), order)
}

fn small() -> Kinds {
    Kinds { procs: 3, elems: 500, dims: 1..4, ..Kinds::default() }
}

/// Random options with which the plan can be run, with any memory limit that suffices.
fn some_options(random: &mut Random, plan: &Arc<Plan>) -> MessagesOptions {
    loop {
        let strategy = Strategy::ALL[random.within(0, Strategy::ALL.len() as u64 - 1) as usize];
        let options = MessagesOptions::default().with_strategy(strategy).with_barriers(random.one_in(2));
        let Ok(engine) = Messages::new(Arc::clone(plan), options) else { continue };
        let (min, max) = (engine.min_bytes(), engine.scratch_bytes());
        let memory = [None, Some(min), Some(random.within(min, max))][random.within(0, 2) as usize];
        return options.with_memory(memory);
    }
}

/// Runs all cases as arrays of one plan.
fn run(engine: &mut Messages, cases: &[Case], parts: &mut [Parts]) -> Result<Report> {
    let mut table = BufferTable::new(Arc::clone(engine.plan()));
    let mut slices: Vec<_> = cases.iter().zip(parts).map(|(case, parts)| case.slices(parts)).collect();
    let mut data = table.fill();
    for (array, (from, to)) in slices.iter_mut().enumerate() {
        data.enter_bytes(array, from, to).unwrap();
    }
    engine.run(&mut data)
}

/// Runs and checks every byte.
fn judge(engine: &mut Messages, cases: &[Case]) -> Report {
    let mut parts: Vec<Parts> = cases.iter().map(Case::parts).collect();
    let report = run(engine, cases, &mut parts).unwrap_or_else(|error| panic!("{error}: {cases:?}"));
    cases.iter().zip(&parts).for_each(|(case, parts)| case.check(parts));
    report
}

fn plan_of(cases: &[Case]) -> Arc<Plan> {
    Arc::new(Plan::new(cases.iter().map(|case| case.moving.clone()).collect()).unwrap())
}

#[test]
fn several_arrays_in_one_run() {
    let mut random = Random::new(21);
    for _ in 0..if full_sweep() { 3000 } else { 30 } {
        // Some arrays with equal problems but different element sizes and triangles, and some with different problems.
        let mut cases = Vec::new();
        for _ in 0..random.within(1, 2) {
            let case = Case::random(&mut random, &small());
            for _ in 0..random.within(1, 3) {
                let mut moving = case.moving.clone().of_bytes(random.within(1, 17)).unwrap();
                if moving.problem().shape().len() == 2 && random.one_in(3) {
                    moving = moving.only(Triangle::LOWER).unwrap();
                }
                cases.push(Case { moving, salt: random.bits(), ..case.clone() });
            }
        }
        let plan = plan_of(&cases);
        let options = some_options(&mut random, &plan);
        let mut engine = Messages::new(plan, options).unwrap();
        judge(&mut engine, &cases);
        judge(&mut engine, &cases);
    }
}

#[test]
fn arrays_that_move_alike_share_their_messages() {
    let moving = |bytes| {
        let (from, to) = (
            layout("2x2/8x8 of 50x40", MemoryOrder::ColMajor),
            layout("3x1/5x40 of 50x40", MemoryOrder::RowMajor),
        );
        Move::of::<f64>(from, to).unwrap().of_bytes(bytes).unwrap()
    };
    let case = |bytes| Case { moving: moving(bytes), skew: [0, 0], salt: bytes, equal_copies: false };
    let reports: Vec<Report> = [vec![case(8)], vec![case(8), case(3), case(16)]]
        .iter()
        .map(|cases| judge(&mut Messages::new(plan_of(cases), MessagesOptions::default()).unwrap(), cases))
        .collect();
    assert_eq!(reports[0].messages, reports[1].messages);
    assert_eq!(reports[0].steps, reports[1].steps);
    assert_eq!(reports[1].bytes, 50 * 40 * (8 + 3 + 16));
}

#[test]
fn reports_count_what_was_scheduled() {
    let mut random = Random::new(22);
    for _ in 0..if full_sweep() { 1000 } else { 12 } {
        let case = Case::random(&mut random, &Kinds { all_sorts: false, ..small() });
        let plan = plan_of(std::slice::from_ref(&case));
        let options = some_options(&mut random, &plan);
        let mut engine = Messages::new(plan, options).unwrap();
        let scheduled = |schedule: &Schedule| {
            schedule.check(case.moving.problem()).unwrap();
            let messages = schedule.steps().iter().flat_map(|step| &step.messages);
            (messages.filter(|message| message.from != message.to).count() as u64, schedule.num_steps())
        };
        let expected = scheduled(&engine.schedules()[0]);
        let report = judge(&mut engine, std::slice::from_ref(&case));
        assert_eq!((report.messages, report.steps), expected, "{options:?}: {case:?}");
    }
}

/// Runs both engines on equal memory and compares all parts, as bytes.
fn both<T: Number>(
    moving: &Move,
    random: &mut Random,
    [alpha, beta]: [T; 2],
    conjugated: bool,
    some: impl Fn(u64) -> T,
) {
    let plan = Arc::new(Plan::new(vec![moving.clone()]).unwrap());
    let options = some_options(random, &plan);
    let mut filled = |layout: &Layout| -> Vec<Vec<T>> {
        let ranks = layout.distribution().grid().sorted_ranks();
        let mut part = |rank| (0..layout.span(rank).unwrap()).map(|_| some(random.bits())).collect();
        ranks.into_iter().map(&mut part).collect()
    };
    let (from, to) = (filled(moving.from()), filled(moving.to()));
    let engines: [Box<dyn Engine>; 2] = [
        Box::new(Threads::new(Arc::clone(&plan), Some(1)).unwrap()),
        Box::new(Messages::new(plan, options).unwrap()),
    ];
    let results = engines.map(|engine| {
        let mut to = to.clone();
        let mut redistribution = Redistribution::with_boxed(engine);
        let mut pair = Pair::new(&from, &mut to).scaled(alpha, beta);
        if conjugated {
            pair = pair.conjugated();
        }
        let report = redistribution.run_all(&mut [&mut pair]).unwrap();
        assert!(alpha != T::zeroed() || report.messages == 0, "nothing is sent for nothing");
        to.iter().flat_map(|part| bytemuck::cast_slice::<T, u8>(part).to_vec()).collect::<Vec<u8>>()
    });
    assert!(results[0] == results[1], "{options:?}: {moving:?}");
}

#[test]
fn scaled_like_the_other_engine() {
    let mut random = Random::new(23);
    for number in 0..if full_sweep() { 4000 } else { 30 } {
        let case = Case::random(&mut random, &small());
        let moving = |bytes| case.moving.clone().of_bytes(bytes).unwrap();
        // Sometimes NaN: a factor of zero must not let it through.
        let some = |bits: u64| if bits.is_multiple_of(7) { f64::NAN } else { (bits % 1000) as f64 / 8.0 };
        let scales = [[0.0, 0.0], [0.0, 3.0], [2.0, 0.0], [1.0, 1.0], [0.5, -2.0]][number % 5];
        match number % 3 {
            0 => both(&moving(8), &mut random, scales, false, some),
            1 => both(&moving(4), &mut random, scales.map(|s| s as f32), true, |bits| some(bits) as f32),
            _ => {
                let complex = |bits: u64| Complex::new(some(bits), some(bits / 11));
                both(
                    &moving(16),
                    &mut random,
                    scales.map(|s| Complex::new(s, s / 4.0)),
                    number % 2 == 0,
                    complex,
                );
            }
        }
    }
}

#[test]
fn triangles_of_many_shapes() {
    let mut random = Random::new(24);
    let parts = [Triangle::UPPER, Triangle::LOWER, Triangle::STRICTLY_UPPER, Triangle::STRICTLY_LOWER];
    for number in 0..if full_sweep() { 4000 } else { 30 } {
        let mut case =
            Case::random(&mut random, &Kinds { dims: 2..3, procs: 4, elems: 900, ..Kinds::default() });
        case.moving = case.moving.only(parts[number % 4]).unwrap();
        let plan = plan_of(std::slice::from_ref(&case));
        let options = some_options(&mut random, &plan);
        judge(&mut Messages::new(plan, options).unwrap(), std::slice::from_ref(&case));
    }
}

#[test]
fn boxes_without_an_element_of_the_triangle_are_not_sent() {
    let (from, to) = (
        layout("4x1/4x16 of 16x16", MemoryOrder::ColMajor),
        layout("1x4/16x4 of 16x16", MemoryOrder::ColMajor),
    );
    let whole = Move::of::<f64>(from, to).unwrap();
    let messages = |moving: Move| {
        let case = Case { moving, skew: [0, 0], salt: 5, equal_copies: false };
        judge(
            &mut Messages::new(plan_of(std::slice::from_ref(&case)), MessagesOptions::default()).unwrap(),
            &[case],
        )
        .messages
    };
    assert_eq!(messages(whole.clone()), 12);
    assert_eq!(messages(whole.only(Triangle::UPPER).unwrap()), 6);
}

#[test]
fn arrays_beyond_the_caches() {
    let shape = "1111x1003";
    for (from, to, order, triangle) in [
        ("2x2/64x64", "1x3/1111x100", MemoryOrder::ColMajor, None),
        ("2x1/700x1003", "1x2/1111x333", MemoryOrder::ColMajor, Some(Triangle::LOWER)),
        ("4x1/3x1003", "1x4/1111x5", MemoryOrder::RowMajor, None),
    ] {
        let from = layout(&format!("{from} of {shape}"), MemoryOrder::ColMajor);
        let mut moving = Move::of::<f64>(from, layout(&format!("{to} of {shape}"), order)).unwrap();
        if let Some(triangle) = triangle {
            moving = moving.of_bytes(16).unwrap().only(triangle).unwrap();
        }
        let case = Case { moving, skew: [8, 24], salt: 9, equal_copies: false };
        let plan = plan_of(std::slice::from_ref(&case));
        assert!(plan.bytes() >= 8 << 20);
        let mut engine = Messages::new(plan, MessagesOptions::default()).unwrap();
        judge(&mut engine, std::slice::from_ref(&case));
    }
}

#[test]
fn too_little_memory_is_refused_with_a_sentence() {
    let mut random = Random::new(25);
    for _ in 0..if full_sweep() { 2000 } else { 20 } {
        let case = Case::random(&mut random, &small());
        let plan = plan_of(std::slice::from_ref(&case));
        let with =
            |memory| Messages::new(Arc::clone(&plan), MessagesOptions::default().with_memory(Some(memory)));
        let min = Messages::new(Arc::clone(&plan), MessagesOptions::default()).unwrap().min_bytes();
        let mut engine = with(min).unwrap();
        assert_eq!(engine.scratch_bytes(), min, "the minimum is what is used, to the byte");
        judge(&mut engine, std::slice::from_ref(&case));
        if let Some(less) = min.checked_sub(1) {
            let error = with(less).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Memory);
            let sentence = error.to_string();
            assert!(sentence.starts_with(&format!("{less} bytes were given")), "{sentence}");
            assert!(sentence.contains(&format!("needs at least {min} bytes")), "{sentence}");
        }
    }
}

#[test]
fn strategies_refuse_what_they_cannot_do() {
    let moving = Move::of::<f64>(
        layout("2x2/3x3 of 20x20", MemoryOrder::ColMajor),
        layout("3x1/4x4 of 20x20", MemoryOrder::ColMajor),
    );
    let plan = Arc::new(Plan::new(vec![moving.unwrap()]).unwrap());
    let options = MessagesOptions::default().with_strategy(Strategy::WalkerOtto);
    let error = Messages::new(plan, options).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("walker-otto"), "{error}");
}

/// Aborts the process if the test does not end in time: a rank that waits forever cannot be stopped.
fn with_timeout(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        test();
        ended.send(()).ok();
    });
    let limit = Duration::from_secs(if full_sweep() { 3600 } else { 1200 });
    if end.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        std::process::abort();
    }
    runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_rank_that_fails_is_named_and_nobody_waits_for_it() {
    with_timeout(|| {
        let mut random = Random::new(26);
        for _ in 0..if full_sweep() { 1000 } else { 12 } {
            let kinds = if random.one_in(5) { Kinds { elems: 30_000, ..small() } } else { small() };
            let case = Case::random(&mut random, &kinds);
            let cases = std::slice::from_ref(&case);
            let plan = plan_of(cases);
            let options = some_options(&mut random, &plan);
            let mut ranks = case.moving.from().distribution().grid().sorted_ranks();
            ranks.extend(case.moving.to().distribution().grid().sorted_ranks());
            let mut engine = Messages::new(plan, options).unwrap();
            for _ in 0..5 {
                judge(&mut engine, cases);
                let rank = ranks[random.within(0, ranks.len() as u64 - 1) as usize];
                let operation = random.within(0, engine.operations(rank));
                engine.fail_at(rank, operation);
                let mut parts = vec![case.parts()];
                let error = run(&mut engine, cases, &mut parts).expect_err("a rank failed");
                assert_eq!(error.kind(), ErrorKind::Failed);
                let sentence = error.to_string();
                assert!(sentence.starts_with(&format!("rank {rank} panicked in step ")), "{sentence}");
                assert!(sentence.contains("the source is untouched"), "{sentence}");
            }
            judge(&mut engine, cases);
        }
    });
}
