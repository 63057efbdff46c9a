//! Elements of every size at every address, through every kernel.

use super::arrays::{every_engine, layout, plan_of};
use reshard::engine::Threads;
use reshard::memory::Memory;
use reshard::{Layout, MemoryOrder, Move, Plan, Redistribution, Triangle, Window};
use reshard_testkit::conformance::{Case, Kinds};
use reshard_testkit::{Random, full_sweep};
use std::sync::Arc;

const COL: MemoryOrder = MemoryOrder::ColMajor;
const ROW: MemoryOrder = MemoryOrder::RowMajor;

/// Pairs of layouts that together use every kernel: long rows, short pieces, pieces of 5 and 7,
/// transposes of both kinds, given strides.
pub fn pairs() -> Vec<Move> {
    let moving = |from: &str, from_order, to: &str, to_order| {
        Move::of::<f64>(layout(from, from_order), layout(to, to_order)).unwrap()
    };
    let transposed = |from: Layout, to: Layout, shape: [u64; 2]| {
        Move::windowed::<f64>(from, to, Window::of(&shape).permuted(&[1, 0])).unwrap()
    };
    let strided = |text: &str, strides: [u64; 2]| layout(text, ROW).with_strides(&strides).unwrap();
    vec![
        moving("2x1/100x3 of 197x5", COL, "1x2/197x2 of 197x5", COL),
        moving("2x2/1x1 of 140x5", COL, "1x1/140x5 of 140x5", COL),
        moving("1x1/140x5 of 140x5", COL, "2x2/1x1 of 140x5", COL),
        moving("2x1/1x1 of 150x4", COL, "3x1/2x2 of 150x4", COL),
        moving("2x2/2x2 of 131x6", COL, "2x2/1x1 of 131x6", COL),
        moving("2x2/5x7 of 71x20", ROW, "2x2/7x5 of 71x20", ROW),
        moving("2x1/16x40 of 41x40", COL, "1x2/41x16 of 41x40", ROW),
        moving("2x2/1x1 of 30x30", ROW, "2x2/3x3 of 30x30", COL),
        transposed(layout("2x2/5x7 of 40x31", COL), layout("1x3/31x9 of 31x40", COL), [40, 31]),
        transposed(layout("2x1/20x31 of 40x31", ROW), layout("2x1/10x40 of 31x40", ROW), [40, 31]),
        transposed(layout("2x2/3x3 of 26x33", COL), strided("1x2/33x9 of 33x26", [1, 70]), [26, 33]),
        Move::of::<f64>(strided("1x2/30x7 of 30x20", [2, 61]), strided("2x1/11x20 of 30x20", [45, 2]))
            .unwrap(),
        moving("2x1/4x25 of 24x25", COL, "1x1/24x25 of 24x25", ROW).only(Triangle::LOWER).unwrap(),
    ]
}

#[test]
fn every_size_at_every_misalignment() {
    let pairs = pairs();
    for size in 1..=32 {
        for (number, pair) in pairs.iter().enumerate() {
            let moving = pair.clone().of_bytes(size).unwrap();
            for (way, mut engine) in every_engine(&plan_of(&moving)).into_iter().enumerate() {
                // In the full sweep every size is run with all pairs of misalignments, each layout and engine with an eighth of
                // them; in the short sweep each is run with one, in turn.
                let turn = size as usize * 37 + number * 5 + way * 11;
                let meets =
                    |skew: &usize| if full_sweep() { skew % 8 == turn % 8 } else { *skew == turn % 256 };
                for skew in (0..256).filter(meets) {
                    let case = Case {
                        moving: moving.clone(),
                        skew: [skew % 16, skew / 16],
                        salt: size,
                        equal_copies: false,
                    };
                    case.judge(|_, from, to| {
                        engine.run_bytes(from, to).unwrap();
                    });
                }
            }
        }
    }
}

/// Squares whose rows are whole cache lines are stored from registers with non-temporal stores: that needs memory aligned to a
/// line.
#[test]
fn transposes_that_line_up() {
    for (from, to, shape) in [
        ("1x2/16x16 of 64x80", "2x1/8x40 of 80x64", [64, 80]),
        ("2x1/8x24 of 40x48", "1x3/48x8 of 48x40", [40, 48]),
        ("1x1/48x64 of 48x64", "1x1/64x48 of 64x48", [48, 64]),
        ("2x2/12x20 of 48x80", "1x1/80x48 of 80x48", [48, 80]),
    ] {
        let (from, to) = (layout(from, COL), layout(to, COL));
        let moving = Move::windowed::<f64>(from, to, Window::of(&shape).permuted(&[1, 0])).unwrap();
        let plan = plan_of(&moving);
        let array = &plan.arrays()[0];
        let zeroed = |span: u64| Memory::<u64>::zeroed(span as usize).unwrap();
        let mut parts: Vec<_> = array.sources().iter().map(|part| zeroed(part.span)).collect();
        for (column, row) in (0..shape[1]).flat_map(|column| (0..shape[0]).map(move |row| (column, row))) {
            let (rank, at) = moving.from().locate(&[row, column]).unwrap();
            parts[rank as usize][at as usize] = row * 1000 + column;
        }
        for mut engine in every_engine(&plan) {
            let mut moved: Vec<_> = array.targets().iter().map(|part| zeroed(part.span)).collect();
            engine.run(&parts, &mut moved).unwrap();
            for (column, row) in (0..shape[1]).flat_map(|column| (0..shape[0]).map(move |row| (column, row)))
            {
                let (rank, at) = moving.to().locate(&[column, row]).unwrap();
                assert_eq!(moved[rank as usize][at as usize], row * 1000 + column);
            }
        }
    }
}

#[test]
fn triangles_of_all_kinds() {
    let mut random = Random::new(31);
    let parts = [Triangle::UPPER, Triangle::LOWER, Triangle::STRICTLY_UPPER, Triangle::STRICTLY_LOWER];
    for number in 0..if full_sweep() { 8000 } else { 60 } {
        let kinds = Kinds { dims: 2..3, procs: 4, elems: 900, ..Kinds::default() };
        let mut case = Case::random(&mut random, &kinds);
        case.moving = case.moving.only(parts[number % 4]).unwrap();
        for mut engine in every_engine(&plan_of(&case.moving)) {
            case.judge(|_, from, to| {
                engine.run_bytes(from, to).unwrap();
            });
        }
    }
}

/// Tasks of 256 bytes, rows of a few, more threads than cores: where two tasks meet, exactly one writes each element.
#[test]
fn tiny_rows_at_any_address_by_many_threads() {
    let mut random = Random::new(32);
    for _ in 0..if full_sweep() { 4000 } else { 30 } {
        let (height, width) = (random.within(1, 21), random.within(100, 900));
        let shape = format!("{height}x{width}");
        let procs = random.within(1, 10);
        let from = layout(&format!("2x1/1x{width} of {shape}"), COL);
        let to = layout(&format!("{procs}x1/{}x{width} of {shape}", random.within(1, 3)), COL);
        let elem = [1, 2, 4, 8, 16, 3, 12][random.within(0, 6) as usize];
        let moving = Move::of::<f64>(from, to).unwrap().of_bytes(elem).unwrap();
        let plan = plan_of(&moving);
        let skew = [random.within(0, 63) as usize, random.within(0, 63) as usize];
        let case = Case { moving, skew, salt: random.bits(), equal_copies: false };
        for engine in Threads::every_way(&plan, 5).unwrap() {
            let mut engine = Redistribution::with(engine);
            case.judge(|_, from, to| {
                engine.run_bytes(from, to).unwrap();
            });
        }
    }
}

#[test]
fn arrays_without_elements_and_plans_without_arrays() {
    for (from, to) in
        [("2x2/3x3 of 0x9", "3x1/1x9 of 0x9"), ("2x2/3x3 of 9x0", "1x1/9x1 of 9x0"), ("2/1 of 0", "3/2 of 0")]
    {
        let moving = Move::of::<f64>(layout(from, COL), layout(to, ROW)).unwrap();
        let case = Case { moving, skew: [0, 0], salt: 1, equal_copies: false };
        for mut engine in every_engine(&plan_of(&case.moving)) {
            case.judge(|_, from, to| assert_eq!(engine.run_bytes(from, to).unwrap().bytes, 0));
        }
    }
    let nothing = Window::of(&[3, 0]).from(&[6, 9]).to(&[2, 4]);
    let windowed =
        Move::windowed::<f64>(layout("2x2/3x3 of 9x9", COL), layout("4x1/1x9 of 9x9", ROW), nothing).unwrap();
    let case = Case { moving: windowed, skew: [3, 5], salt: 2, equal_copies: false };
    for mut engine in every_engine(&plan_of(&case.moving)) {
        case.judge(|_, from, to| assert_eq!(engine.run_bytes(from, to).unwrap().bytes, 0));
    }
    for mut engine in every_engine(&Arc::new(Plan::new(Vec::new()).unwrap())) {
        assert_eq!(engine.run_all(&mut []).unwrap().bytes, 0);
    }
}

/// Numbers with an x in between.
fn by_x(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

#[test]
fn eight_dimensions_in_any_order() {
    let mut random = Random::new(33);
    for _ in 0..if full_sweep() { 3000 } else { 40 } {
        let mut extents = |least, most| -> Vec<u64> { (0..8).map(|_| random.within(least, most)).collect() };
        let shape = extents(1, 3);
        let (from, to) = ([extents(1, 2), extents(1, 2)], [extents(1, 2), extents(1, 2)]);
        let mut axes: Vec<usize> = (0..8).collect();
        (1..8).for_each(|k| axes.swap(k, random.within(0, k as u64) as usize));
        let turned: Vec<u64> = axes.iter().map(|&dim| shape[dim]).collect();
        let side = |[procs, blocks]: [Vec<u64>; 2], shape: &[u64], order| {
            layout(&format!("{}/{} of {}", by_x(&procs), by_x(&blocks), by_x(shape)), order)
        };
        let (from, to) = (side(from, &shape, ROW), side(to, &turned, COL));
        let moving = Move::windowed::<f64>(from, to, Window::of(&shape).permuted(&axes)).unwrap();
        let case = Case { moving, skew: [1, 2], salt: random.bits(), equal_copies: false };
        for engine in Threads::every_way(&plan_of(&case.moving), 2).unwrap() {
            let mut engine = Redistribution::with(engine);
            case.judge(|_, from, to| {
                engine.run_bytes(from, to).unwrap();
            });
        }
    }
}

#[test]
fn more_ranks_than_elements() {
    let mut random = Random::new(34);
    for _ in 0..if full_sweep() { 3000 } else { 30 } {
        let kinds = Kinds { dims: 1..3, procs: 7, elems: 6, ..Kinds::default() };
        let case = Case::random(&mut random, &kinds);
        for mut engine in every_engine(&plan_of(&case.moving)) {
            case.judge(|_, from, to| {
                engine.run_bytes(from, to).unwrap();
            });
        }
    }
}
