//! `alpha * op(A) + beta * B` for the four types of the BLAS, by value.
//!
//! Values and factors are small integers, of which sums and products are exact in any order. What must not be read (A if alpha
//! is zero, B if beta is) is not a number.

use super::{Case, Kinds, for_each_element};
use crate::random::Random;
use num_complex::Complex;
use reshard_plan::{Layout, Plan};
use std::fmt::Debug;
use std::ops::{Add, Mul};

/// A complex number of two `f32`.
pub type C64 = Complex<f32>;
/// A complex number of two `f64`.
pub type C128 = Complex<f64>;

/// Elements before and after every part.
const MARGIN: usize = 8;

/// A number of the BLAS, made of two small integers.
pub trait Element: Copy + Debug + PartialEq + Add<Output = Self> + Mul<Output = Self> {
    /// Neither part is a number.
    const NAN: Self;
    /// Real numbers leave out the second.
    fn small(re: i32, im: i32) -> Self;
    /// Of a real number, the number itself.
    #[must_use]
    fn conjugate(self) -> Self;
    /// All bits, to tell numbers apart that are equal, or none.
    fn bits(self) -> [u64; 2];
}

macro_rules! elements {
    ($($real:ident),*) => { $(
        impl Element for $real {
            const NAN: Self = $real::NAN;
            fn small(re: i32, _: i32) -> Self {
                re as $real
            }
            fn conjugate(self) -> Self {
                self
            }
            fn bits(self) -> [u64; 2] {
                [u64::from(self.to_bits()), 0]
            }
        }
        impl Element for Complex<$real> {
            const NAN: Self = Complex::new($real::NAN, $real::NAN);
            fn small(re: i32, im: i32) -> Self {
                Complex::new(re as $real, im as $real)
            }
            fn conjugate(self) -> Self {
                Complex::new(self.re, -self.im)
            }
            fn bits(self) -> [u64; 2] {
                [u64::from(self.re.to_bits()), u64::from(self.im.to_bits())]
            }
        }
    )* };
}
elements!(f32, f64);

/// A redistribution of numbers that are scaled on the way.
#[derive(Clone, Debug)]
pub struct Scaled<T> {
    /// What moves, with the size of `T`. Its skew counts elements here, modulo 8.
    pub case: Case,
    /// The factor of A.
    pub alpha: T,
    /// The factor of B.
    pub beta: T,
    /// Whether A is conjugated.
    pub conjugated: bool,
}

/// All parts of a scaled case, with their margins.
#[derive(Clone)]
pub struct ScaledParts<T> {
    from: Vec<Vec<T>>,
    to: Vec<Vec<T>>,
}

impl<T: Element> Scaled<T> {
    /// Some redistribution, and one of all sorts of factors: zero, one and others on both sides. Plain ones are among them.
    pub fn random(random: &mut Random, kinds: &Kinds) -> Self {
        let elem = size_of::<T>() as u64;
        let case = Case::random(random, &Kinds { elem_bytes: elem..elem + 1, ..kinds.clone() });
        Self::of(random, case)
    }

    /// Factors for a case, whose elements must have the size of `T`.
    pub fn of(random: &mut Random, case: Case) -> Self {
        let alphas = [(0, 0), (1, 0), (-1, 0), (3, -2)];
        let betas = [(0, 0), (1, 0), (-2, 5)];
        let some = |(re, im)| T::small(re, im);
        let alpha = some(alphas[random.within(0, 3) as usize]);
        let beta = some(betas[random.within(0, 2) as usize]);
        Self { case, alpha, beta, conjugated: random.one_in(2) }
    }

    /// Runs a redistribution and looks at every element of every part. `run` gets the plan, the source parts and the
    /// destination parts, both by ascending rank.
    ///
    /// # Panics
    /// If an element is not what it must be; the message names the case.
    pub fn judge(&self, run: impl FnOnce(&Plan, &[&[T]], &mut [&mut [T]])) {
        let plan =
            Plan::new(vec![self.case.moving.clone()]).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let mut parts = self.parts();
        let (from, mut to) = self.slices(&mut parts);
        run(&plan, &from, &mut to);
        self.check(&parts);
    }

    /// Memory for all parts, filled.
    pub fn parts(&self) -> ScaledParts<T> {
        let from = self.case.moving.from();
        let ranks = from.distribution().grid().sorted_ranks();
        let source = |rank: u64| {
            let skew = self.skew(0);
            let mut part = vec![T::NAN; length(from, rank, skew)];
            let copy = self.case.copy_of(rank);
            for_each_element(from, rank, |address, global| {
                part[MARGIN + skew + address as usize] = self.value(copy, global);
            });
            part
        };
        let to = self.case.moving.to();
        let targets = to.distribution().grid().sorted_ranks();
        let target =
            |rank: u64| (0..length(to, rank, self.skew(1))).map(|at| self.before(rank, at)).collect();
        ScaledParts {
            from: ranks.into_iter().map(source).collect(),
            to: targets.into_iter().map(target).collect(),
        }
    }

    /// Source and destination parts as slices, without their margins.
    pub fn slices<'a>(&self, parts: &'a mut ScaledParts<T>) -> (Vec<&'a [T]>, Vec<&'a mut [T]>) {
        let skews = [self.skew(0), self.skew(1)];
        let inside = |part: &[T], skew: usize| MARGIN + skew..part.len() - MARGIN;
        let from = parts.from.iter().map(|part| &part[inside(part, skews[0])]);
        let to = parts.to.iter_mut().map(|part| {
            let range = inside(part, skews[1]);
            &mut part[range]
        });
        (from.collect(), to.collect())
    }

    /// Looks at every element of every destination part.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check(&self, parts: &ScaledParts<T>) {
        for rank in self.case.moving.to().distribution().grid().sorted_ranks() {
            self.check_rank(parts, rank);
        }
    }

    /// Looks at every element of one rank's destination part, if it has one.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn check_rank(&self, parts: &ScaledParts<T>, rank: u64) {
        let ranks = self.case.moving.to().distribution().grid().sorted_ranks();
        for (part, rank) in parts.to.iter().zip(ranks).filter(|(_, other)| *other == rank) {
            let before: Vec<T> = (0..part.len()).map(|at| self.before(rank, at)).collect();
            let mut expected = before.clone();
            let copy = self.case.copy_taken_by(rank);
            self.case.for_each_arrival(rank, |address, source| {
                let at = MARGIN + self.skew(1) + address as usize;
                expected[at] = self.combined(self.value(copy, source), before[at]);
            });
            // What did not move may be no number; minus zero is zero.
            let equal = |at: usize| part[at] == expected[at] || part[at].bits() == expected[at].bits();
            if let Some(at) = (0..part.len()).find(|&at| !equal(at)) {
                panic!(
                    "rank {rank}: element {at} of {} is {:?} and must be {:?}: {self:?}",
                    part.len(),
                    part[at],
                    expected[at]
                );
            }
        }
    }

    /// Elements by which parts are out of line.
    fn skew(&self, side: usize) -> usize {
        self.case.skew[side] % 8
    }

    /// An element of the source array.
    fn value(&self, copy: u64, global: &[u64]) -> T {
        match self.alpha == T::small(0, 0) {
            true => T::NAN,
            false => some([0, 1].map(|byte| self.case.value(copy, global, byte))),
        }
    }

    /// What a destination holds before, at any place.
    fn before(&self, rank: u64, at: usize) -> T {
        match self.beta == T::small(0, 0) {
            true => T::NAN,
            false => some([2, 3].map(|byte| self.case.value(0, &[rank, at as u64], byte))),
        }
    }

    /// What an element must become, without a product by zero.
    fn combined(&self, a: T, b: T) -> T {
        let zero = T::small(0, 0);
        let a = if self.conjugated { a.conjugate() } else { a };
        match (self.alpha == zero, self.beta == zero) {
            (true, true) => zero,
            (true, false) => self.beta * b,
            (false, true) => self.alpha * a,
            (false, false) => self.alpha * a + self.beta * b,
        }
    }
}

fn some<T: Element>(bytes: [u8; 2]) -> T {
    T::small(i32::from(bytes[0]) - 128, i32::from(bytes[1]) - 128)
}

fn length(layout: &Layout, rank: u64, skew: usize) -> usize {
    MARGIN + skew + layout.span(rank).expect("a rank of the grid") as usize + MARGIN
}
