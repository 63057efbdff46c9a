//! The arguments of a call, as the caller's language passes them, in integers of either width.
//!
//! On a process outside of a grid nothing of that side's descriptor but the context is read: callers leave the rest unset.

#![allow(unsafe_code)]

use crate::routine::{Element, Routine, Shape};
use std::ffi::c_char;

/// Entries of an array descriptor.
pub const DESCRIPTOR_ENTRIES: usize = 9;

/// The entry with the context, counted from 0, in descriptors of every type.
const CONTEXT: usize = 1;

/// An integer of the caller: of 4 bytes (LP64), or of 8 (ILP64).
pub trait Integer: Copy {
    /// The number.
    fn wide(self) -> i64;

    /// The number in this width, if it fits.
    fn narrow(number: i64) -> Option<Self>;
}

impl Integer for i32 {
    fn wide(self) -> i64 {
        i64::from(self)
    }

    fn narrow(number: i64) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

impl Integer for i64 {
    fn wide(self) -> i64 {
        self
    }

    fn narrow(number: i64) -> Option<Self> {
        Some(number)
    }
}

/// One matrix of a call: this process's part, the first row and column of the window (from 1), and the descriptor.
#[derive(Clone, Copy, Debug)]
pub struct MatrixArgument<I> {
    pub part: *mut u8,
    pub row: i64,
    pub column: i64,
    pub descriptor: *const I,
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<I> {
    pub routine: Routine,
    pub rows: i64,
    pub columns: i64,
    pub a: MatrixArgument<I>,
    pub b: MatrixArgument<I>,
    /// The context of all processes that call; none for the `o` forms, which all processes of the job call.
    pub context: Option<i64>,
    /// The factors of p?tran.
    pub scales: Option<Scales>,
}

/// Factors, each as the bytes of an element: the destination becomes alpha times the source plus beta times the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scales {
    pub alpha: [u8; 16],
    pub beta: [u8; 16],
}

impl Scales {
    /// What processes compare: a zero has no sign.
    pub fn compared(self) -> Self {
        // The sign is the highest bit of a number of 4 or 8 bytes.
        let is_zero = |factor: &[u8; 16]| {
            factor.iter().enumerate().all(|(k, byte)| *byte & !(u8::from(k % 4 == 3) << 7) == 0)
        };
        let compared = |factor: [u8; 16]| if is_zero(&factor) { [0; 16] } else { factor };
        Self { alpha: compared(self.alpha), beta: compared(self.beta) }
    }
}

impl<I: Integer> MatrixArgument<I> {
    /// An entry of the descriptor, counted from 0.
    ///
    /// # Safety
    /// The descriptor is not null and has [`DESCRIPTOR_ENTRIES`] entries.
    pub unsafe fn entry(&self, number: usize) -> i64 {
        debug_assert!(number < DESCRIPTOR_ENTRIES, "entry {number}");
        // SAFETY: promised by the caller.
        unsafe { self.descriptor.add(number).read() }.wide()
    }
}

/// An integer as a language passes it: a value, or the address of one.
pub trait Passed<I> {
    /// The number.
    ///
    /// # Safety
    /// An address is that of an integer.
    unsafe fn number(self) -> i64;
}

impl<I: Integer> Passed<I> for I {
    unsafe fn number(self) -> i64 {
        self.wide()
    }
}

impl<I: Integer> Passed<I> for *const I {
    unsafe fn number(self) -> i64 {
        // SAFETY: promised by the caller.
        unsafe { self.read() }.wide()
    }
}

/// One matrix as it is passed: part, first row, first column, descriptor.
type PassedMatrix<I, N> = (*mut u8, N, N, *const I);

/// The arguments of a call. `letters` are UPLO and DIAG, or none; `context` is one, or none.
///
/// # Safety
/// Addresses of integers and letters are such.
pub unsafe fn arguments<I: Integer, N: Passed<I> + Copy>(
    element: Element,
    letters: &[*const c_char],
    [rows, columns]: [N; 2],
    a: PassedMatrix<I, N>,
    b: PassedMatrix<I, N>,
    context: &[N],
) -> Arguments<I> {
    // SAFETY: promised by the caller.
    let letter =
        |text: *const c_char| if text.is_null() { b' ' } else { unsafe { text.cast::<u8>().read() } };
    // SAFETY: promised by the caller.
    let number = |number: N| unsafe { number.number() };
    let matrix = |(part, row, column, descriptor): PassedMatrix<I, N>| MatrixArgument {
        part,
        row: number(row),
        column: number(column),
        descriptor,
    };
    let shape = match letters {
        &[uplo, diag] => Shape::trapezoid(letter(uplo), letter(diag)),
        _ => Shape::General,
    };
    Arguments {
        routine: Routine { element, shape, of_all: context.is_empty() },
        rows: number(rows),
        columns: number(columns),
        a: matrix(a),
        b: matrix(b),
        context: context.first().map(|&context| number(context)),
        scales: None,
    }
}

/// The arguments of a call of p?tran, whose matrices must have one context: that of all processes that call.
///
/// # Safety
/// As for [`arguments`]; factors that are not null are elements; descriptors that are not null have two entries.
pub unsafe fn transposing<I: Integer>(
    element: Element,
    conjugated: bool,
    window: [*const I; 2],
    a: PassedMatrix<I, *const I>,
    b: PassedMatrix<I, *const I>,
    [alpha, beta]: [*const u8; 2],
) -> Arguments<I> {
    let factor = |place: *const u8| {
        let mut bytes = [0; 16];
        if !place.is_null() {
            let own = &mut bytes[..element.bytes(size_of::<I>()) as usize];
            // SAFETY: promised by the caller.
            unsafe { std::ptr::copy_nonoverlapping(place, own.as_mut_ptr(), own.len()) };
        }
        bytes
    };
    // SAFETY: promised by the caller.
    let call = unsafe { arguments(element, &[], window, a, b, &[]) };
    let routine = Routine { element, shape: Shape::Transposed { conjugated }, of_all: false };
    // SAFETY: promised by the caller.
    let context = if a.3.is_null() { -1 } else { unsafe { a.3.add(CONTEXT).read() }.wide() };
    let scales = Some(Scales { alpha: factor(alpha), beta: factor(beta) });
    Arguments { routine, context: Some(context), scales, ..call }
}
