//! The arguments of a call, as the caller's language passes them, in integers of either width.
//!
//! On a process outside of a grid nothing of that side's descriptor but the context is read: callers leave the rest unset.

#![allow(unsafe_code)]

use crate::routine::{Element, Routine, Shape};
use std::ffi::c_char;

/// Entries of an array descriptor.
pub const DESCRIPTOR_ENTRIES: usize = 9;

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
    }
}
