//! A plain move is no arithmetic: every pattern of bits arrives as it was.

use super::arrays::{Places, every_engine, for_each_moved, layout, plan_of, same_bits};
use bytemuck::Pod;
use reshard::{MemoryOrder, Move, Pair, redistribute};
use reshard_testkit::Random;

/// Moves with every engine, and once with `redistribute`.
fn judge<T: Pod>(moving: &Move, next: impl FnMut() -> T) {
    let moving = moving.clone().of_bytes(size_of::<T>() as u64).unwrap();
    let from = Places::of(moving.from()).parts(next);
    let empty = Places::of(moving.to()).parts(T::zeroed);
    let mut expected = empty.clone();
    for_each_moved(&moving, |(part, at), (to_part, to_at)| expected[to_part][to_at] = from[part][at]);
    for mut engine in every_engine(&plan_of(&moving)) {
        let mut to = empty.clone();
        engine.run(&from, &mut to).unwrap();
        assert!(same_bits(&to, &expected), "{}: {moving:?}", engine.engine().name());
    }
    let mut to = empty.clone();
    redistribute(moving.from(), &from, moving.to(), &mut to).unwrap();
    assert!(same_bits(&to, &expected), "{moving:?}");
}

#[test]
fn every_half_precision_number() {
    for (from, to, order) in [
        ("2x2/1x1 of 256x256", "1x2/256x100 of 256x256", MemoryOrder::ColMajor),
        ("2x1/100x256 of 256x256", "2x2/2x2 of 256x256", MemoryOrder::RowMajor),
    ] {
        let moving = Move::of::<f64>(layout(from, MemoryOrder::ColMajor), layout(to, order)).unwrap();
        let mut patterns = 0..=u16::MAX;
        judge(&moving, || patterns.next().unwrap());
    }
}

/// A random bit pattern, mostly one that arithmetic would change.
fn odd_bits(random: &mut Random) -> u64 {
    let bits = random.bits();
    let sign = bits & 1 << 63;
    match bits % 8 {
        0 => bits,
        1 => sign,
        2 => sign | 0x7ff << 52,
        3 => sign | bits >> 12, // subnormal
        // Not a number, quiet or signalling, with a payload.
        _ => sign | 0x7ff << 52 | (bits >> 12).max(1),
    }
}

#[test]
fn a_million_doubles_that_are_mostly_not_numbers() {
    let mut random = Random::new(34);
    for (from, to, order) in [
        ("2x2/2x2 of 1021x980", "2x1/64x64 of 1021x980", MemoryOrder::ColMajor),
        ("2x2/50x50 of 500x400", "1x2/500x7 of 500x400", MemoryOrder::RowMajor),
    ] {
        let moving = Move::of::<f64>(layout(from, MemoryOrder::ColMajor), layout(to, order)).unwrap();
        judge(&moving, || f64::from_bits(odd_bits(&mut random)));
    }
}

#[test]
fn one_times_and_nothing_added_is_a_plain_move() {
    let moving = Move::of::<f64>(
        layout("2x1/3x9 of 20x9", MemoryOrder::ColMajor),
        layout("1x3/20x2 of 20x9", MemoryOrder::RowMajor),
    );
    let moving = moving.unwrap();
    let mut random = Random::new(35);
    let from = Places::of(moving.from()).parts(|| f64::from_bits(odd_bits(&mut random)));
    let mut results = Vec::new();
    for mut engine in every_engine(&plan_of(&moving)) {
        for scaled in [false, true] {
            let mut to = Places::of(moving.to()).parts(|| f64::NAN);
            let pair = Pair::new(&from, &mut to);
            // A real number is its own conjugate.
            let mut pair = if scaled { pair.conjugated().scaled(1.0, -0.0) } else { pair };
            engine.run_all(&mut [&mut pair]).unwrap();
            results.push(to);
        }
    }
    assert!(results.iter().all(|result| same_bits(result, &results[0])));
}
