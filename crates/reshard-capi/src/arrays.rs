//! The memory of one run: the parts of each array, and how its numbers are scaled on the way.

use crate::border::{Failure, Outcome, list};
use reshard::engine::{RawPart, Scaling};
use reshard::error::counted;
use reshard::num_complex::Complex;
use reshard::{ErrorKind, Number};
use reshard_mpi::{Own, OwnParts};
use std::ffi::{c_int, c_void};

/// Elements of any kind: copied bit for bit.
pub const RESHARD_BITS: c_int = 0;
/// Elements are of type float; they can be scaled.
pub const RESHARD_F32: c_int = 1;
/// Elements are of type double; they can be scaled.
pub const RESHARD_F64: c_int = 2;
/// Elements are complex numbers of two floats, the real part first; they can be scaled and conjugated.
pub const RESHARD_COMPLEX_F32: c_int = 3;
/// Elements are complex numbers of two doubles, the real part first; they can be scaled and conjugated.
pub const RESHARD_COMPLEX_F64: c_int = 4;

/// Memory that a run reads: the source part of one rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct reshard_source {
    /// Null where there are no elements.
    pub address: *const c_void,
    /// How many bytes there are: at least what the part spans.
    pub bytes: usize,
}

/// Memory that a run writes: the destination part of one rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct reshard_target {
    /// Null where there are no elements.
    pub address: *mut c_void,
    /// How many bytes there are: at least what the part spans.
    pub bytes: usize,
}

/// One array of a run. With an engine of threads it has the parts of all ranks of its layouts, by ascending rank; between
/// processes that of this rank alone, or none if it has none.
///
/// A source and a destination may be the same memory, or overlap: then the source is copied when the run begins. No two
/// destinations may have an element in common, which is refused; they may interleave, as blocks of one matrix do.
///
/// With type 0 (RESHARD_BITS) elements are copied as they are, and alpha, beta and conjugate must be null and 0. With a type of numbers
/// the destination becomes alpha * source + beta * destination; alpha and beta point to one number of that type each, and null
/// means 1 for alpha and 0 for beta. A beta of 0 does not read the destination. All ranks must give the same alpha and beta.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct reshard_array {
    /// The source parts.
    pub from: *const reshard_source,
    /// How many there are.
    pub from_count: usize,
    /// The destination parts.
    pub to: *const reshard_target,
    /// How many there are.
    pub to_count: usize,
    /// RESHARD_BITS, RESHARD_F32, RESHARD_F64, RESHARD_COMPLEX_F32 or RESHARD_COMPLEX_F64.
    pub element_type: c_int,
    /// Not 0: the conjugate of the source is taken.
    pub conjugate: c_int,
    /// The factor of the source; null: 1.
    pub alpha: *const c_void,
    /// The factor of the destination; null: 0.
    pub beta: *const c_void,
}

/// Alpha, beta, and whether the source is conjugated, for elements of one type.
#[derive(Clone, Copy)]
struct Scales<T> {
    alpha: T,
    beta: T,
    conjugated: bool,
}

#[derive(Clone, Copy)]
enum Elements {
    Bits,
    F32(Scales<f32>),
    F64(Scales<f64>),
    ComplexF32(Scales<Complex<f32>>),
    ComplexF64(Scales<Complex<f64>>),
}

/// One array of a run, as it was given.
pub struct RunArray {
    pub from: Vec<RawPart>,
    pub to: Vec<RawPart>,
    /// The addresses of the destinations.
    pub to_addresses: Vec<u64>,
    elements: Elements,
}

/// Reads the arrays of a run. No part is accessed.
///
/// # Safety
/// The lists are as their counts say; alpha and beta point to numbers of the type that is said.
pub unsafe fn read(arrays: *const reshard_array, count: usize) -> Outcome<Vec<RunArray>> {
    // SAFETY: promised by the caller.
    let arrays = unsafe { list(arrays, count, "arrays")? };
    // SAFETY: likewise.
    arrays.iter().enumerate().map(|(index, array)| unsafe { read_one(index, array) }).collect()
}

/// # Safety
/// As for [`read`].
unsafe fn read_one(index: usize, array: &reshard_array) -> Outcome<RunArray> {
    // SAFETY: promised by the caller.
    let (from, to) = unsafe {
        let from = list(array.from, array.from_count, &format!("arrays[{index}].from"))?;
        (from, list(array.to, array.to_count, &format!("arrays[{index}].to"))?)
    };
    // SAFETY: promised by the caller.
    let elements = unsafe {
        match array.element_type {
            RESHARD_BITS if !array.alpha.is_null() || !array.beta.is_null() || array.conjugate != 0 => {
                return Err(Failure::argument(format!(
                    "array {index} is to be scaled, but its type is RESHARD_BITS; give the type of its numbers"
                )));
            }
            RESHARD_BITS => Elements::Bits,
            RESHARD_F32 => Elements::F32(scales(array)),
            RESHARD_F64 => Elements::F64(scales(array)),
            RESHARD_COMPLEX_F32 => Elements::ComplexF32(scales(array)),
            RESHARD_COMPLEX_F64 => Elements::ComplexF64(scales(array)),
            other => {
                return Err(Failure::argument(format!(
                    "array {index} is of type {other}; there are RESHARD_BITS (0) to RESHARD_COMPLEX_F64 ({RESHARD_COMPLEX_F64})"
                )));
            }
        }
    };
    let from = from.iter().map(|part| raw(part.address.cast_mut(), part.bytes, index, "source"));
    let to_addresses = to.iter().map(|part| part.address.addr() as u64).collect();
    let to = to.iter().map(|part| raw(part.address, part.bytes, index, "destination"));
    let (from, to) = (from.collect::<Outcome<_>>()?, to.collect::<Outcome<_>>()?);
    Ok(RunArray { from, to, to_addresses, elements })
}

/// A part as an address. More bytes than half of the address space are a negative number that became unsigned.
fn raw(address: *mut c_void, bytes: usize, index: usize, side: &str) -> Outcome<RawPart> {
    match isize::try_from(bytes) {
        Ok(_) => Ok(RawPart::new(address.cast(), bytes)),
        Err(_) => Err(Failure::argument(format!(
            "a {side} part of array {index} was given with {bytes} bytes, which no memory has"
        ))),
    }
}

/// # Safety
/// Alpha and beta are null or point to a number of this type.
unsafe fn scales<T: Number>(array: &reshard_array) -> Scales<T> {
    // SAFETY: promised by the caller; at any address.
    let number = |pointer: *const c_void, none: T| match pointer.is_null() {
        true => none,
        false => unsafe { pointer.cast::<T>().read_unaligned() },
    };
    Scales {
        alpha: number(array.alpha, T::ONE),
        beta: number(array.beta, T::zeroed()),
        conjugated: array.conjugate != 0,
    }
}

impl RunArray {
    /// Fails if the elements are numbers of another size than planned: also where a factor of 1 would make a plain copy of it.
    pub fn check(&self, index: usize, planned: u64) -> Outcome<()> {
        let (bytes, name) = match self.elements {
            Elements::Bits => return Ok(()),
            Elements::F32(_) => (4, "float"),
            Elements::F64(_) => (8, "double"),
            Elements::ComplexF32(_) => (8, "complex float"),
            Elements::ComplexF64(_) => (16, "complex double"),
        };
        if bytes == planned {
            return Ok(());
        }
        Err(Failure::of(
            ErrorKind::Mismatch,
            format!(
                "array {index} was given as numbers of type {name}, which have {}, and was planned for elements of {}; give the type \
                 of its elements",
                counted(bytes, "byte"),
                counted(planned, "byte")
            ),
        ))
    }

    /// The scaling of an array; none if it is copied as it is.
    pub fn scaling(&self) -> Option<Scaling> {
        fn of<T: Number>(scales: Scales<T>) -> Option<Scaling> {
            Scaling::new(scales.alpha, scales.beta, scales.conjugated)
        }
        match self.elements {
            Elements::Bits => None,
            Elements::F32(scales) => of(scales),
            Elements::F64(scales) => of(scales),
            Elements::ComplexF32(scales) => of(scales),
            Elements::ComplexF64(scales) => of(scales),
        }
    }

    /// The array as the parts of one rank.
    ///
    /// # Safety
    /// Until the run has ended: sources can be read, destinations can be read and written, and nobody else writes to the ones or accesses
    /// the others.
    pub unsafe fn own(&self, index: usize) -> Outcome<Box<dyn OwnParts<'static>>> {
        let only = |parts: &[RawPart], side: &str| match parts {
            [] => Ok(RawPart::NONE),
            [part] => Ok(*part),
            _ => Err(Failure::of(
                ErrorKind::Mismatch,
                format!(
                    "array {index} was given with {} {side} parts; between processes each rank gives its own, which is one",
                    parts.len()
                ),
            )),
        };
        let (from, to) = (only(&self.from, "source")?, only(&self.to, "destination")?);
        // SAFETY: promised by the caller.
        Ok(Box::new(unsafe { Own::<u8>::raw(from, to) }.as_bytes_scaled(self.scaling())))
    }
}
