//! Parts given as addresses, also where sources and destinations share memory: judged by the same run with all of them apart.

#![allow(unsafe_code)]

use reshard::engine::{BufferTable, Engine, Messages, MessagesOptions, RawPart, Scaling, Threads};
use reshard::{Layout, Move, Plan};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Kinds};
use std::ops::Range;
use std::sync::Arc;

/// Where the parts of an array lie in one piece of memory.
struct Places {
    sources: Vec<Range<usize>>,
    targets: Vec<Range<usize>>,
}

impl Places {
    /// Destinations in any order with gaps, sources anywhere: over them, over each other, apart.
    fn random(random: &mut Random, plan: &Plan, array: usize, from: usize) -> Self {
        let planned = &plan.arrays()[array];
        let bytes = |span: u64| (span * planned.wanted().elem_bytes()) as usize;
        let mut end = from;
        let targets: Vec<Range<usize>> = planned
            .targets()
            .iter()
            .map(|target| {
                let begin = end + random.within(0, 40) as usize;
                end = begin + bytes(target.span);
                begin..end
            })
            .collect();
        let sources = planned
            .sources()
            .iter()
            .map(|source| {
                let begin = random.within(0, end as u64 + 40) as usize;
                begin..begin + bytes(source.span)
            })
            .collect();
        Self { sources, targets }
    }

    /// The end of the last destination, and of the last part of all.
    fn ends(&self) -> (usize, usize) {
        let end = |ranges: &[Range<usize>]| ranges.iter().map(|range| range.end).max().unwrap_or(0);
        (end(&self.targets), end(&self.targets).max(end(&self.sources)))
    }
}

fn engines(plan: &Arc<Plan>) -> [Box<dyn Engine>; 2] {
    let messages = Messages::new(Arc::clone(plan), MessagesOptions::default()).unwrap();
    [Box::new(Threads::new(Arc::clone(plan), None).unwrap()), Box::new(messages)]
}

/// Runs with all parts in one piece of memory.
fn run_in_one_memory(engine: &mut dyn Engine, plan: &Arc<Plan>, places: &[Places], memory: &mut [u8]) {
    let mut table = BufferTable::new(Arc::clone(plan));
    let mut data = table.fill();
    let base = memory.as_mut_ptr();
    // SAFETY: every range lies in the memory, which nobody else uses meanwhile; destinations are apart.
    let part = |range: &Range<usize>| RawPart::new(unsafe { base.add(range.start) }, range.len());
    for (array, of) in places.iter().enumerate() {
        let sides = [&of.sources, &of.targets].map(|ranges| ranges.iter().map(part).collect::<Vec<_>>());
        // SAFETY: as above.
        unsafe { data.enter_raw(array, &sides[0], &sides[1], None).unwrap() };
    }
    engine.run(&mut data).unwrap();
}

/// Runs with a copy of every part, given as slices, and writes the destinations back into the memory.
fn run_apart(engine: &mut dyn Engine, plan: &Arc<Plan>, places: &[Places], memory: &mut [u8]) {
    let copies = |ranges: &[Range<usize>]| -> Vec<Vec<u8>> {
        ranges.iter().map(|range| memory[range.clone()].to_vec()).collect()
    };
    let sources: Vec<_> = places.iter().map(|of| copies(&of.sources)).collect();
    let mut targets: Vec<_> = places.iter().map(|of| copies(&of.targets)).collect();
    let mut table = BufferTable::new(Arc::clone(plan));
    let mut data = table.fill();
    for (array, (from, to)) in sources.iter().zip(&mut targets).enumerate() {
        data.enter_bytes(array, from, to).unwrap();
    }
    engine.run(&mut data).unwrap();
    for (of, targets) in places.iter().zip(&targets) {
        for (range, target) in of.targets.iter().zip(targets) {
            memory[range.clone()].copy_from_slice(target);
        }
    }
}

#[test]
fn sources_and_destinations_may_share_their_memory() {
    let mut random = Random::new(17);
    let kinds = Kinds { elems: 900, procs: 3, ..Kinds::default() };
    let mut overlapped = 0;
    for trial in 0..600 {
        let count = if random.one_in(3) { 2 } else { 1 };
        let moves: Vec<Move> = (0..count).map(|_| Case::random(&mut random, &kinds).moving).collect();
        let plan = Arc::new(Plan::new(moves).unwrap());
        let mut places: Vec<Places> = Vec::new();
        for array in 0..count {
            // Over the sources of the array before, perhaps.
            let after = places.last().map_or(0, |of| of.ends().0);
            places.push(Places::random(&mut random, &plan, array, after));
        }
        let end = places.iter().map(|of| of.ends().1).max().unwrap();
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        let all_targets = || places.iter().flat_map(|of| &of.targets);
        let shares = |source| all_targets().any(|target| overlap(source, target));
        overlapped += u64::from(places.iter().flat_map(|of| &of.sources).any(shares));
        let before: Vec<u8> = (0..end + 64).map(|_| random.within(0, 255) as u8).collect();
        for mut engine in engines(&plan) {
            let (mut expected, mut found) = (before.clone(), before.clone());
            run_apart(&mut *engine, &plan, &places, &mut expected);
            run_in_one_memory(&mut *engine, &plan, &places, &mut found);
            assert!(found == expected, "trial {trial}: {plan:?}");
        }
    }
    assert!(overlapped > 300, "{overlapped} of them share memory");
}

#[test]
fn a_matrix_is_scaled_in_its_own_memory() {
    let layout = |text: &str| text.parse::<Layout>().unwrap();
    let moving = Move::of::<f64>(layout("1x1/9x9 of 9x7"), layout("1x1/2x2 of 9x7")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    for mut engine in engines(&plan) {
        let mut memory: Vec<f64> = (0..63).map(f64::from).collect();
        let part = RawPart::new(memory.as_mut_ptr().cast(), 63 * 8).with_strides(&[1, 9]);
        let mut table = BufferTable::new(Arc::clone(&plan));
        let mut data = table.fill();
        // SAFETY: the memory is there until the run has ended, and nobody else uses it.
        unsafe { data.enter_raw(0, &[part], &[part], Scaling::new(2.0, -1.0, false)).unwrap() };
        engine.run(&mut data).unwrap();
        assert!(memory.iter().enumerate().all(|(at, &value)| value == at as f64), "2 x - x");
    }
}

#[test]
fn wrong_addresses_lengths_strides_and_scalings_are_refused() {
    let layout = |text: &str| text.parse::<Layout>().unwrap();
    let moving = Move::of::<f64>(layout("2x1/4x4 of 8x3"), layout("1x1/8x8 of 8x3")).unwrap();
    let plan = Arc::new(Plan::new(vec![moving]).unwrap());
    let (mut from, mut to) = (vec![0.0; 24], vec![0.0; 24]);
    let half = from.as_mut_ptr().cast::<u8>();
    let [one, other] = [half, half.wrapping_add(96)].map(|address| RawPart::new(address, 96));
    let whole = RawPart::new(to.as_mut_ptr().cast(), 192);
    let null = RawPart::new(std::ptr::null_mut(), 192);
    let none = None::<Scaling>;
    type Wrong<'w> = (&'w [RawPart], &'w [RawPart], Option<Scaling>, &'w str);
    let wrong: [Wrong<'_>; 7] = [
        (&[one], &[whole], none, "source"),
        (&[one, RawPart::new(half, 95)], &[whole], none, "has 11 elements"),
        (&[one, other], &[RawPart::NONE], none, "destination part of rank 0"),
        (&[one, other], &[null], none, "the destination part of rank 0 was given as a null pointer"),
        (
            &[one.with_strides(&[1, 5]), other],
            &[whole],
            none,
            "strides [1, 5], and the plan was made for [1, 4]",
        ),
        (
            &[one, other],
            &[whole.with_strides(&[1; 9])],
            none,
            "was given with 9 strides; its array has 2 dimensions",
        ),
        (&[one, other], &[whole], Scaling::new(2.0_f32, 0.0, false), "a scaling made for f32"),
    ];
    let mut table = BufferTable::new(Arc::clone(&plan));
    for (from, to, scaling, says) in wrong {
        let mut data = table.fill();
        // SAFETY: nothing is run with what is refused.
        let error = unsafe { data.enter_raw(0, from, to, scaling).unwrap_err() };
        assert!(error.to_string().contains(says), "{error}");
        assert!(data.check(&plan).is_err(), "not entered");
    }
    let mut data = table.fill();
    // SAFETY: the memory is there until the end of this function.
    unsafe { data.enter_raw(0, &[one.with_strides(&[1, 4]), other], &[whole], None).unwrap() };
    data.check(&plan).unwrap();
    assert_eq!((from.len(), to.len()), (24, 24));
}

/// A redistribution in boxes of the destination, each run with a plan cut out of the whole one.
#[test]
fn boxes_of_the_destination_add_up_to_all_of_it() {
    let mut random = Random::new(23);
    let kinds = Kinds { elems: 2_000, procs: 3, ..Kinds::default() };
    for _ in 0..200 {
        let case = Case::random(&mut random, &kinds);
        let plan = Plan::new(vec![case.moving.clone()]).unwrap();
        let shape: Vec<u64> = case.moving.to().distribution().shape();
        let each = shape.iter().map(|&len| random.within(1 + len / 3, len.max(1))).collect::<Vec<u64>>();
        let counts: Vec<u64> = shape.iter().zip(&each).map(|(len, each)| len.div_ceil(*each)).collect();
        let mut parts = case.parts();
        for number in 0..counts.iter().product() {
            let mut rest = number;
            let region: Vec<Range<u64>> = counts
                .iter()
                .zip(&each)
                .map(|(count, each)| {
                    let at = rest % count * each;
                    rest /= count;
                    at..at + each
                })
                .collect();
            let plan = Arc::new(plan.within(&region).unwrap());
            let mut engine = Threads::new(Arc::clone(&plan), None).unwrap();
            let (from, mut to) = case.slices(&mut parts);
            let mut table = BufferTable::new(plan);
            let mut data = table.fill();
            data.enter_bytes(0, &from, &mut to).unwrap();
            engine.run(&mut data).unwrap();
        }
        case.check(&parts);
    }
}
