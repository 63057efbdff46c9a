//! Every engine against one conformance suite, which compares values.

#![allow(clippy::unwrap_used)]

mod judged;

use judged::{Judged, Sums, judge, run_packers, run_staged, single};
use reshard::engine::{Engine, Messages, MessagesOptions, Threads};
use reshard::schedule::Strategy;
use reshard::{ErrorKind, Layout, MemoryOrder, Move, Plan, Window};
use reshard_plan::Distribution;
use reshard_testkit::conformance::{C64, C128, Case, Kinds, Several};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

fn sweep(seed: u64, cases: u64, kinds: &Kinds) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        // The short sweep runs every case in every way; the full sweep runs each case in one way, thousands of cases for each.
        let ways = if full_sweep() { number as usize..number as usize + 1 } else { 0..Threads::ways() };
        for way in ways {
            let threads = 1 + number as usize / Threads::ways() % 2;
            judge(&single(&case), Threads::in_way(&plan, threads, way % Threads::ways()).unwrap());
        }
    }
}

#[test]
fn threads_in_every_way() {
    sweep(7, if full_sweep() { 100_000 } else { 250 }, &Kinds::default());
}

#[test]
fn threads_in_every_way_on_larger_arrays() {
    sweep(8, if full_sweep() { 20_000 } else { 40 }, &Kinds { elems: 20_000, ..Kinds::default() });
}

/// Short pieces along an axis so long that they are copied in batches of rounds and in sections, along it and across it; tasks
/// and fragments end anywhere in a round.
#[test]
fn long_axes_of_short_pieces() {
    let mut random = Random::new(14);
    for number in 0..if full_sweep() { 4_000 } else { 40 } {
        let elem = [8, 1, 4, 2, 16, 3, 24][number as usize % 7];
        let (long, other) = (random.within(1_000, 6_000), random.within(1, 12));
        let mut layout = |transposed: bool| {
            let (procs, block) = (random.within(1, 5), random.within(1, [3, 9, 40][number as usize % 3]));
            let (others, other_block) = (random.within(1, 2), random.within(1, 5));
            let text = format!("{procs}x{others}/{block}x{other_block} of {long}x{other}");
            let order = if transposed { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor };
            Layout::new(text.parse::<Distribution>().unwrap(), order)
        };
        let (from, to) = (layout(number % 4 == 1), layout(number % 2 == 0));
        let moving = Move::of::<f64>(from, to).and_then(|moving| moving.of_bytes(elem)).unwrap();
        let skew = [random.within(0, 63) as usize, random.within(0, 63) as usize];
        let case = Case { moving, skew, salt: random.bits(), equal_copies: false };
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        for way in 0..Threads::ways() {
            judge(&single(&case), Threads::in_way(&plan, 1 + way % 2, way).unwrap());
        }
        run_packers(&single(&case), &MessagesOptions::default(), random.within(elem, 20_000) as usize);
        run_staged(
            &single(&case),
            random.within(1, 30_000),
            random.within(0, Threads::ways() as u64 - 1) as usize,
        );
    }
}

#[test]
fn staged_copies_in_chunks_of_any_size() {
    let mut random = Random::new(12);
    for number in 0..if full_sweep() { 40_000 } else { 500 } {
        let elems = if number % 8 == 0 { 20_000 } else { 2_000 };
        let case = Case::random(&mut random, &Kinds { elems, ..Kinds::default() });
        let bytes = case.moving.elem_bytes();
        let chunk = random.within(1, [bytes, 100, 5_000, 300_000][number as usize % 4]);
        run_staged(&single(&case), chunk, random.within(0, Threads::ways() as u64 - 1) as usize);
    }
}

/// Whole columns of the source become pieces of several destinations: what a rank sends itself is written while the rest is
/// packed.
#[test]
fn staged_copies_that_keep_some_of_what_they_pack() {
    let mut random = Random::new(13);
    let (cases, mut kept) = (if full_sweep() { 20_000 } else { 150 }, 0);
    for number in 0..cases {
        let elem = [1, 4, 8, 15, 16][random.within(0, 4) as usize];
        // Pieces of two lines and more.
        let piece = random.within(128, 500).div_ceil(elem);
        let (fast, slow) = (random.within(2 * piece, 7 * piece), random.within(1, 50));
        let order = if random.one_in(2) { MemoryOrder::ColMajor } else { MemoryOrder::RowMajor };
        let mut layout = |fast_procs: u64, fast_block: u64| {
            let (procs, block) = (random.within(1, 3), random.within(1, 12));
            let text = match order {
                MemoryOrder::ColMajor => {
                    format!("{fast_procs}x{procs}/{fast_block}x{block} of {fast}x{slow}")
                }
                MemoryOrder::RowMajor => {
                    format!("{procs}x{fast_procs}/{block}x{fast_block} of {slow}x{fast}")
                }
            };
            Layout::new(text.parse::<Distribution>().unwrap(), order)
        };
        // Sometimes not whole columns: then nothing may be written while packing.
        let from = if number % 4 == 0 { layout(2, piece) } else { layout(1, fast) };
        let to = layout(2 + number % 2, piece + number % 3);
        let mut window = Window::of(&match order {
            MemoryOrder::ColMajor => [fast, slow],
            MemoryOrder::RowMajor => [slow, fast],
        });
        if random.one_in(3) {
            let (first, last) = (random.within(0, 3.min(slow - 1)), slow);
            let (rows, at) = ([last - first, fast], [first, 0]);
            let turn =
                |pair: [u64; 2]| if order == MemoryOrder::ColMajor { [pair[1], pair[0]] } else { pair };
            window = Window::of(&turn(rows)).from(&turn(at)).to(&turn([0, 0]));
        }
        let moving =
            Move::windowed::<f64>(from, to, window).and_then(|moving| moving.of_bytes(elem)).unwrap();
        let skew = [random.within(0, 63) as usize, random.within(0, 63) as usize];
        let case = Case { moving, skew, salt: random.bits(), equal_copies: false };
        let chunk = random.within(1, 5 * fast * elem);
        kept += run_staged(&single(&case), chunk, random.within(0, Threads::ways() as u64 - 1) as usize);
    }
    assert!(kept as u64 > cases, "{kept} chunks in {cases} cases");
}

/// Rows of different lengths, of which only the short ones fit into a chunk: chunks of equal index hold different rows.
#[test]
fn staged_copies_that_keep_nothing_of_other_rows() {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    for (from, to) in [("60,40", "20,80"), ("40,60", "80,20")] {
        let [from, to] = [from, to].map(|parts| format!("(gen_block({parts}), *) on 2x1 of 100x12"));
        let moving = Move::of::<f64>(layout(&from), layout(&to)).unwrap().of_bytes(8).unwrap();
        let case = Case { moving, skew: [0, 0], salt: 3, equal_copies: false };
        for chunk in [160, 320, 400, 480, 640, 1_280, 10_000] {
            run_staged(&single(&case), chunk, 0);
        }
    }
}

#[test]
fn rank_packers_with_fragments_of_any_size() {
    let mut random = Random::new(13);
    for number in 0..if full_sweep() { 10_000 } else { 150 } {
        let case = Case::random(&mut random, &Kinds { elems: 800, ..Kinds::default() });
        let strategy = [Strategy::Optimal, Strategy::Async, Strategy::Caterpillar][number as usize % 3];
        let options = MessagesOptions::default().with_strategy(strategy);
        run_packers(
            &single(&case),
            &options,
            random.within(1, [8, 100, 5_000][number as usize / 3 % 3]) as usize,
        );
    }
}

/// Runs every strategy that accepts the case: without a memory limit, with the smallest, and with one in between; with barriers
/// and without. Returns the number of runs.
fn sweep_messages(seed: u64, cases: u64, kinds: &Kinds) -> u64 {
    let mut random = Random::new(seed);
    let mut runs = 0;
    for number in 0..cases {
        let case = Case::random(&mut random, kinds);
        let plan = Arc::new(Plan::new(vec![case.moving.clone()]).unwrap());
        for strategy in Strategy::ALL {
            let options = MessagesOptions::default().with_strategy(strategy).with_barriers(random.one_in(2));
            let engine = match Messages::new(Arc::clone(&plan), options) {
                Ok(engine) => engine,
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                Err(error) => panic!("{error}: {strategy}: {case:?}"),
            };
            let (min, max) = (engine.min_bytes(), engine.scratch_bytes());
            assert!(min <= max, "{min} bytes are needed and {max} are used");
            let memory = match (number + strategy as u64) % 3 {
                0 => None,
                1 => Some(min),
                _ => Some(random.within(min, max)),
            };
            let engine = match memory {
                None => engine,
                Some(_) => Messages::new(Arc::clone(&plan), options.with_memory(memory)).unwrap(),
            };
            assert!(memory.is_none_or(|memory| engine.scratch_bytes() <= memory));
            judge(&single(&case), engine);
            runs += 1;
        }
    }
    runs
}

#[test]
fn messages_by_every_strategy_in_any_memory() {
    let kinds = Kinds { procs: 3, elems: 600, dims: 1..4, ..Kinds::default() };
    let runs = sweep_messages(9, if full_sweep() { 5_000 } else { 40 }, &kinds);
    assert!(runs > if full_sweep() { 30_000 } else { 200 }, "{runs} runs");
}

#[test]
fn messages_between_many_ranks() {
    sweep_messages(10, if full_sweep() { 400 } else { 6 }, &Kinds { dims: 2..5, ..Kinds::default() });
}

#[test]
fn messages_of_larger_arrays() {
    let kinds = Kinds { elems: 60_000, dims: 1..4, procs: 3, ..Kinds::default() };
    sweep_messages(11, if full_sweep() { 600 } else { 3 }, &kinds);
}

/// Runs everything that runs a plan on random test cases.
fn sweep_everything<J: Judged>(seed: u64, cases: u64, next: impl Fn(&mut Random) -> J) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let judged = next(&mut random);
        let plan = Arc::new(judged.plan());
        let way = random.within(0, Threads::ways() as u64 - 1) as usize;
        judge(&judged, Threads::in_way(&plan, 1 + number as usize % 2, way).unwrap());
        let strategy = [Strategy::Optimal, Strategy::Async, Strategy::Split][number as usize % 3];
        let options = MessagesOptions::default().with_strategy(strategy).with_barriers(random.one_in(2));
        let engine = Messages::new(Arc::clone(&plan), options).unwrap();
        let memory = random.one_in(2).then(|| random.within(engine.min_bytes(), engine.scratch_bytes()));
        judge(&judged, Messages::new(plan, options.with_memory(memory)).unwrap());
        run_packers(&judged, &options, random.within(1, [8, 100, 5_000][number as usize / 3 % 3]) as usize);
        run_staged(&judged, random.within(1, [16, 100, 5_000, 300_000][number as usize % 4]), way);
    }
}

fn small_kinds() -> Kinds {
    Kinds { elems: 500, procs: 3, dims: 1..4, own_strides: true, ..Kinds::default() }
}

#[test]
fn several_arrays_with_strides_of_their_own() {
    sweep_everything(21, if full_sweep() { 20_000 } else { 100 }, |random| {
        Several::random(random, &small_kinds())
    });
}

/// Every copy of the destination is written, from the copy of the source that its rank takes: here copies of one source differ.
#[test]
fn replicated_sources_and_destinations() {
    let kinds = Kinds { replicated: true, ..small_kinds() };
    let cases = if full_sweep() { 5_000 } else { 80 };
    sweep_everything(24, cases, |random| Several::random(random, &kinds));
    sweep(25, if full_sweep() { 40_000 } else { 30 }, &Kinds { replicated: true, ..Kinds::default() });
    let runs = sweep_messages(26, if full_sweep() { 1_000 } else { 12 }, &kinds);
    assert!(runs > if full_sweep() { 6_000 } else { 60 }, "{runs} runs");
}

#[test]
fn sums_of_every_type() {
    let cases = if full_sweep() { 8_000 } else { 40 };
    sweep_everything(22, cases, |random| Sums::<f32, C128>::random(random, &small_kinds()));
    sweep_everything(23, cases, |random| Sums::<C64, f64>::random(random, &small_kinds()));
}
