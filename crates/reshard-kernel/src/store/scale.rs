//! `alpha * op(A) + beta * B`, element by element, by the rules of the BLAS: a beta of zero overwrites B without reading it,
//! an alpha of zero does not read A, and `op` may conjugate.
//!
//! Plans know no element types, so a [`Scaling`] carries a function pointer to the loop for its type.

use crate::simd::Strided;
use bytemuck::{Pod, Zeroable};
use num_complex::Complex;
use std::any::TypeId;
use std::ops::{Add, Mul};

/// An element type that can be scaled: one of the four types of the BLAS. The trait is sealed, as a [`Scaling`] stores each
/// factor in 16 bytes.
pub trait Number:
    sealed::Sealed + Pod + PartialEq + Add<Output = Self> + Mul<Output = Self> + Zeroable + Send + Sync
{
    /// The number one.
    const ONE: Self;
    /// True if the type has an imaginary part.
    const COMPLEX: bool;
    /// Returns the complex conjugate; for a real number, the number itself.
    #[must_use]
    fn conjugate(self) -> Self;
}

mod sealed {
    /// Not nameable outside this crate, so nobody else implements [`super::Number`].
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

/// The bytes of one number of any of the four types.
type Bits = [u64; 2];

/// The operation `B = alpha * op(A) + beta * B` for elements of one type.
#[derive(Clone, Copy)]
pub struct Scaling {
    alpha: Bits,
    beta: Bits,
    conjugated: bool,
    /// True if alpha is zero, so that A is not read.
    pub(crate) ignores_source: bool,
    /// The element type, and its name.
    of: TypeId,
    name: fn() -> &'static str,
    elem_bytes: u64,
    run: unsafe fn(&Self, Strided, usize),
}

impl Scaling {
    /// Returns the operation `alpha * op(A) + beta * B`, or `None` if that is a plain copy, bit for bit.
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
            elem_bytes: size_of::<T>() as u64,
            run,
        })
    }

    /// Returns alpha, beta, and whether the source is conjugated: equal for equal operations.
    pub(crate) fn parts(&self) -> (Bits, Bits, bool) {
        (self.alpha, self.beta, self.conjugated)
    }

    /// True if the scaling is for elements of type `T`.
    pub(crate) fn is_of<T: 'static>(&self) -> bool {
        self.of == TypeId::of::<T>()
    }

    /// Returns the bytes of an element.
    pub(crate) fn elem_bytes(&self) -> u64 {
        self.elem_bytes
    }

    /// Returns the name of the element type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.name)()
    }

    /// Scales `count` elements.
    ///
    /// # Safety
    /// Both sides hold `count` elements of the scaling's type at their strides; nobody else accesses those of the
    /// destination; unless `ignores_source`, those of the source are readable.
    #[inline(always)]
    pub(crate) unsafe fn apply(&self, strided: Strided, count: usize) {
        // SAFETY: by the caller's contract.
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

/// `B = B`: does nothing, so all bits are kept.
unsafe fn keep(_: &Scaling, _: Strided, _: usize) {}

/// Returns `factor * value`, or `value` itself if the factor is one: a complex product of one and infinity would be NaN.
#[inline(always)]
fn times<T: Number>(factor: T, value: T) -> T {
    if factor == T::ONE { value } else { factor * value }
}

/// `B = beta * B`; a beta of zero does not read B.
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
