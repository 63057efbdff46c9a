//! `alpha * op(A) + beta * B`, element by element, by the rules of the BLAS: a beta of zero overwrites B without reading it,
//! an alpha of zero does not read A, and `op` may conjugate.
//!
//! The planner knows no element types, so a [`Scaling`] carries its own loop, made for the type when the type was known.

use crate::simd::Strided;
use bytemuck::{Pod, Zeroable};
use num_complex::Complex;
use std::any::TypeId;
use std::ops::{Add, Mul};

/// A number that can be scaled: one of the four types of the BLAS. No other can be: kernels keep factors in 16 bytes.
pub trait Number:
    sealed::Sealed + Pod + PartialEq + Add<Output = Self> + Mul<Output = Self> + Zeroable + Send + Sync
{
    /// One.
    const ONE: Self;
    /// Whether it has an imaginary part.
    const COMPLEX: bool;
    /// The conjugate; of a real number, the number itself.
    #[must_use]
    fn conjugate(self) -> Self;
}

mod sealed {
    /// Nobody else can name it.
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($real:ty),*) => { $(
        impl sealed::Sealed for $real {}
        impl sealed::Sealed for Complex<$real> {}
        impl Number for $real {
            const ONE: Self = 1.0;
            const COMPLEX: bool = false;
            fn conjugate(self) -> Self {
                self
            }
        }
        impl Number for Complex<$real> {
            const ONE: Self = Complex::new(1.0, 0.0);
            const COMPLEX: bool = true;
            fn conjugate(self) -> Self {
                self.conj()
            }
        }
    )* };
}
numbers!(f32, f64);

/// Places for one number of any type.
type Bits = [u64; 2];

/// What to do with each element on its way.
#[derive(Clone, Copy)]
pub struct Scaling {
    alpha: Bits,
    beta: Bits,
    conjugated: bool,
    /// alpha is zero: A is not read.
    pub(crate) ignores_source: bool,
    /// The type it was made for, and its name.
    of: TypeId,
    name: fn() -> &'static str,
    run: unsafe fn(&Self, Strided, usize),
}

impl Scaling {
    /// `alpha * op(A) + beta * B`. `None` if that is a plain copy, bit for bit.
    pub fn new<T: Number>(alpha: T, beta: T, conjugated: bool) -> Option<Self> {
        let zero = T::zeroed();
        // Conjugating a real number does nothing, and a plain copy keeps all bits.
        let conjugated = conjugated && T::COMPLEX;
        if alpha == T::ONE && beta == zero && !conjugated {
            return None;
        }
        let run = match (alpha == zero, beta == zero, conjugated) {
            (true, _, _) if beta == T::ONE => keep,
            (true, _, _) => scale::<T>,
            (false, true, false) => multiply::<T, false>,
            (false, true, true) => multiply::<T, true>,
            (false, false, false) => combine::<T, false>,
            (false, false, true) => combine::<T, true>,
        };
        let (of, name) = (TypeId::of::<T>(), std::any::type_name::<T>);
        Some(Self {
            alpha: bits(alpha),
            beta: bits(beta),
            conjugated,
            ignores_source: alpha == zero,
            of,
            name,
            run,
        })
    }

    /// What tells it from others: alpha, beta, and whether the source is conjugated.
    pub(crate) fn parts(&self) -> (Bits, Bits, bool) {
        (self.alpha, self.beta, self.conjugated)
    }

    /// Whether it was made for elements of this type.
    pub(crate) fn is_of<T: 'static>(&self) -> bool {
        self.of == TypeId::of::<T>()
    }

    /// The name of the type it was made for.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.name)()
    }

    /// Scales `count` elements.
    ///
    /// # Safety
    /// Both sides hold `count` elements of the scaling's type at the strides given; the destination's are
    /// nobody else's; unless `ignores_source`, the source's are readable.
    #[inline(always)]
    pub(crate) unsafe fn apply(&self, strided: Strided, count: usize) {
        // SAFETY: passed on.
        unsafe { (self.run)(self, strided, count) }
    }
}

fn bits<T: Pod>(value: T) -> Bits {
    let mut bits = [0; 2];
    bytemuck::bytes_of_mut(&mut bits)[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
    bits
}

fn value<T: Pod>(bits: &Bits) -> T {
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(bits)[..size_of::<T>()])
}

/// `B = B`, to the last bit.
unsafe fn keep(_: &Scaling, _: Strided, _: usize) {}

/// A product, but for a factor of one: by the rules of complex products, one times infinity is not a number.
#[inline(always)]
fn times<T: Number>(factor: T, value: T) -> T {
    if factor == T::ONE { value } else { factor * value }
}

/// `B = beta * B`, with a zero that does not read.
unsafe fn scale<T: Number>(scaling: &Scaling, s: Strided, count: usize) {
    let beta: T = value(&scaling.beta);
    for k in 0..count {
        // SAFETY: element k of the destination, as the caller promises.
        unsafe {
            let to = s.to.add(k * s.to_stride).cast::<T>();
            to.write_unaligned(if beta == T::zeroed() { beta } else { beta * to.read_unaligned() });
        }
    }
}

/// `B = alpha * op(A)`.
unsafe fn multiply<T: Number, const CONJUGATED: bool>(scaling: &Scaling, s: Strided, count: usize) {
    let alpha: T = value(&scaling.alpha);
    for k in 0..count {
        // SAFETY: element k of both sides, as the caller promises.
        unsafe {
            let from = s.from.add(k * s.from_stride).cast::<T>().read_unaligned();
            let from = if CONJUGATED { from.conjugate() } else { from };
            let to = s.to.add(k * s.to_stride).cast::<T>();
            to.write_unaligned(times(alpha, from));
        }
    }
}

/// `B = alpha * op(A) + beta * B`.
unsafe fn combine<T: Number, const CONJUGATED: bool>(scaling: &Scaling, s: Strided, count: usize) {
    let (alpha, beta): (T, T) = (value(&scaling.alpha), value(&scaling.beta));
    for k in 0..count {
        // SAFETY: element k of both sides, as the caller promises.
        unsafe {
            let from = s.from.add(k * s.from_stride).cast::<T>().read_unaligned();
            let from = if CONJUGATED { from.conjugate() } else { from };
            let to = s.to.add(k * s.to_stride).cast::<T>();
            to.write_unaligned(times(alpha, from) + times(beta, to.read_unaligned()));
        }
    }
}
