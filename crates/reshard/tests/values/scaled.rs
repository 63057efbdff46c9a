//! `alpha * op(A) + beta * B` against a plain loop, for the four types of the BLAS.

use super::arrays::{Places, every_engine, for_each_moved, layout, plan_of, same_bits};
use num_complex::Complex;
use reshard::engine::Threads;
use reshard::{MemoryOrder, Move, Number, Pair, Redistribution};
use reshard_testkit::conformance::{Case, Kinds};
use reshard_testkit::{Random, full_sweep};

/// A number made of two small integers: sums and products of such are exact, in any order.
trait Small: Number + std::fmt::Debug {
    fn small(re: i32, im: i32) -> Self;
    const NAN: Self;
}

macro_rules! small {
    ($($real:ident),*) => { $(
        impl Small for $real {
            fn small(re: i32, _: i32) -> Self {
                re as $real
            }
            const NAN: Self = $real::NAN;
        }
        impl Small for Complex<$real> {
            fn small(re: i32, im: i32) -> Self {
                Complex::new(re as $real, im as $real)
            }
            const NAN: Self = Complex::new($real::NAN, $real::NAN);
        }
    )* };
}
small!(f32, f64);

/// The expected element, without a product by 0 or 1.
fn expected<T: Number>(alpha: T, a: T, beta: T, b: T, conjugated: bool) -> T {
    let (zero, a) = (T::zeroed(), if conjugated { a.conjugate() } else { a });
    match (alpha == zero, beta == zero) {
        (true, true) => zero,
        (true, false) => beta * b,
        (false, true) => alpha * a,
        (false, false) => alpha * a + beta * b,
    }
}

fn judge<T: Small>(moving: &Move, random: &mut Random, alpha: T, beta: T, conjugated: bool) {
    let moving = moving.clone().of_bytes(size_of::<T>() as u64).unwrap();
    let mut some = || T::small(random.within(0, 200) as i32 - 100, random.within(0, 200) as i32 - 100);
    // Elements that must not be read are NaN.
    let a = Places::of(moving.from()).parts(|| if alpha == T::zeroed() { T::NAN } else { some() });
    let b = Places::of(moving.to()).parts(|| if beta == T::zeroed() { T::NAN } else { some() });
    let mut wanted = b.clone();
    for_each_moved(&moving, |(part, at), (to_part, to_at)| {
        let place = &mut wanted[to_part][to_at];
        *place = expected(alpha, a[part][at], beta, *place, conjugated);
    });
    for mut engine in every_engine(&plan_of(&moving)) {
        let mut to = b.clone();
        // In either order.
        let pair = Pair::new(&a, &mut to);
        let mut pair = match (conjugated, alpha == beta) {
            (true, true) => pair.conjugated().scaled(alpha, beta),
            (true, false) => pair.scaled(alpha, beta).conjugated(),
            (false, _) => pair.scaled(alpha, beta),
        };
        engine.run_all(&mut [&mut pair]).unwrap();
        // Elements that do not move may be NaN, and minus zero is zero: equal bits, or equal values.
        let equal = |(a, b): (&T, &T)| a == b || bytemuck::bytes_of(a) == bytemuck::bytes_of(b);
        for (to, wanted) in to.iter().zip(&wanted) {
            assert!(
                to.iter().zip(wanted).all(equal),
                "{}: {alpha:?} {beta:?} {conjugated}: {moving:?}",
                engine.engine().name()
            );
        }
    }
}

#[test]
fn every_scaling_of_every_type() {
    let mut random = Random::new(41);
    let alphas = [(0, 0), (1, 0), (-1, 0), (3, -2)];
    let betas = [(0, 0), (1, 0), (-2, 5)];
    for number in 0..if full_sweep() { 4000 } else { 24 } {
        let kinds = Kinds { procs: 3, elems: 500, dims: 1..4, ..Kinds::default() };
        let moving = Case::random(&mut random, &kinds).moving;
        let ((a_re, a_im), (b_re, b_im)) = (alphas[number % 4], betas[number / 4 % 3]);
        for conjugated in [false, true] {
            match (number / 12 + number) % 2 {
                0 => {
                    judge(&moving, &mut random, f32::small(a_re, 0), f32::small(b_re, 0), conjugated);
                    let scales = [Complex::<f64>::small(a_re, a_im), Complex::small(b_re, b_im)];
                    judge(&moving, &mut random, scales[0], scales[1], conjugated);
                }
                _ => {
                    judge(&moving, &mut random, f64::small(a_re, 0), f64::small(b_re, 0), conjugated);
                    let scales = [Complex::<f32>::small(a_re, a_im), Complex::small(b_re, b_im)];
                    judge(&moving, &mut random, scales[0], scales[1], conjugated);
                }
            }
        }
    }
}

#[test]
fn short_pieces_and_transpositions_are_scaled_too() {
    let mut random = Random::new(42);
    for (from, to, order) in [
        ("2x2/1x1 of 150x7", "1x2/150x3 of 150x7", MemoryOrder::ColMajor),
        ("1x1/150x7 of 150x7", "2x1/1x7 of 150x7", MemoryOrder::ColMajor),
        ("2x1/30x50 of 60x50", "1x2/60x20 of 60x50", MemoryOrder::RowMajor),
    ] {
        let moving = Move::of::<f64>(layout(from, MemoryOrder::ColMajor), layout(to, order)).unwrap();
        for (alpha, beta) in [(0, 0), (0, 3), (1, 1), (2, 0), (-3, 2)] {
            judge(&moving, &mut random, f32::small(alpha, 0), f32::small(beta, 0), false);
            judge(&moving, &mut random, f64::small(alpha, 0), f64::small(beta, 0), false);
            judge(&moving, &mut random, Complex::<f32>::small(alpha, 1), Complex::small(beta, 2), true);
            judge(&moving, &mut random, Complex::<f64>::small(alpha, 1), Complex::small(beta, 2), true);
        }
    }
}

/// Any bit pattern: signalling NaNs, infinities, minus zero.
fn keeps_all_bits<T: Number>(alpha: T, beta: T) {
    let moving = Move::of::<f64>(
        layout("2x2/1x1 of 90x6", MemoryOrder::ColMajor),
        layout("1x2/90x2 of 90x6", MemoryOrder::ColMajor),
    );
    let moving = moving.unwrap().of_bytes(size_of::<T>() as u64).unwrap();
    let mut random = Random::new(43);
    let mut bits = || {
        let mut value = T::zeroed();
        for byte in bytemuck::bytes_of_mut(&mut value) {
            *byte = [0x00, 0x7f, 0x80, 0xff, 0xf0, 0x01][random.within(0, 5) as usize];
        }
        value
    };
    let a = Places::of(moving.from()).parts(&mut bits);
    let b = Places::of(moving.to()).parts(&mut bits);
    for mut engine in every_engine(&plan_of(&moving)) {
        let mut to = b.clone();
        engine.run_all(&mut [&mut Pair::new(&a, &mut to).scaled(alpha, beta)]).unwrap();
        assert!(same_bits(&to, &b), "{}", engine.engine().name());
    }
}

#[test]
fn nothing_of_a_and_one_of_b_leaves_b_as_it_is() {
    keeps_all_bits(0.0_f32, 1.0);
    keeps_all_bits(0.0_f64, 1.0);
    keeps_all_bits(Complex::new(0.0_f32, 0.0), Complex::new(1.0, 0.0));
    keeps_all_bits(Complex::new(0.0_f64, 0.0), Complex::new(1.0, 0.0));
}

/// By the rules of complex products one times infinity is not a number; a sum has no products.
#[test]
fn a_factor_of_one_is_no_product() {
    let infinite = Complex::new(f64::INFINITY, 1.0);
    let two = Complex::new(2.0, 0.0);
    let one = Complex::new(1.0, 0.0);
    let moving =
        Move::of::<f64>(layout("2/1 of 8", MemoryOrder::ColMajor), layout("1/8 of 8", MemoryOrder::ColMajor))
            .unwrap();
    let moving = moving.of_bytes(16).unwrap();
    for mut engine in every_engine(&plan_of(&moving)) {
        for (a, b, alpha, beta) in
            [(infinite, two, one, one), (infinite, two, one, two), (two, infinite, two, one)]
        {
            let mut to = [[b; 8]];
            engine.run_all(&mut [&mut Pair::new(&[[a; 4]; 2], &mut to).scaled(alpha, beta)]).unwrap();
            assert!(to[0].iter().all(|sum| sum.re == f64::INFINITY && sum.im.is_finite()), "{to:?}");
        }
    }
}

/// Rows of a few bytes, tasks of a few rows, more threads than cores. An element written by two tasks, or by none, would
/// change the sum.
#[test]
fn no_element_is_added_twice_where_tasks_meet() {
    let mut random = Random::new(44);
    for _ in 0..if full_sweep() { 4000 } else { 30 } {
        let (height, width) = (random.within(1, 40), random.within(50, 300));
        let procs = random.within(1, 10);
        let from = layout(&format!("2x1/1x{width} of {height}x{width}"), MemoryOrder::ColMajor);
        let block = random.within(1, 5);
        let to = layout(&format!("{procs}x1/{block}x{width} of {height}x{width}"), MemoryOrder::ColMajor);
        let moving = Move::of::<f64>(from, to).unwrap().of_bytes(4).unwrap();
        let a = Places::of(moving.from()).parts(|| random.within(0, 999) as f32);
        // A few elements more than needed, so that parts begin anywhere in a cache line.
        let skew = random.within(0, 15) as usize;
        let b: Vec<Vec<f32>> = Places::of(moving.to())
            .parts(|| 1000.0)
            .iter()
            .map(|part| vec![1000.0; part.len() + skew])
            .collect();
        let mut wanted = b.clone();
        for_each_moved(&moving, |(part, at), (to_part, to_at)| wanted[to_part][to_at + skew] += a[part][at]);
        for engine in Threads::every_way(&plan_of(&moving), 5).unwrap() {
            let mut engine = Redistribution::with(engine);
            let mut room = b.clone();
            let mut to: Vec<&mut [f32]> = room.iter_mut().map(|part| &mut part[skew..]).collect();
            engine.run_all(&mut [&mut Pair::new(&a, &mut to).scaled(1.0, 1.0)]).unwrap();
            assert_eq!(room, wanted, "{moving:?}");
        }
    }
}
