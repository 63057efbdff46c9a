//! Where elements are: what one asks of a layout, to allocate, fill and read parts.

use crate::border::{Outcome, border, object, place, places};
use crate::layout::{index_of, reshard_layout, same_dims, span};
use std::ffi::c_int;

/// The number of dimensions.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_dims(layout: *const reshard_layout, dims: *mut usize) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, dims) = unsafe { (object(layout, "layout")?, place(dims, "dims")?) };
        *dims = layout.0.distribution().dims();
        Ok(())
    })
}

/// The shape of the array: `dims` numbers, one for each dimension.
///
/// # Safety
/// Pointers as C promises them; `shape` has room for `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_shape(
    layout: *const reshard_layout,
    dims: usize,
    shape: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { object(layout, "layout")? };
        // SAFETY: likewise.
        unsafe { answer(&layout.0.distribution().shape(), dims, shape, "shape") }
    })
}

/// The shape of a rank's part.
///
/// # Safety
/// As for `reshard_layout_shape`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_local_shape(
    layout: *const reshard_layout,
    rank: u64,
    dims: usize,
    shape: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { object(layout, "layout")? };
        // SAFETY: likewise.
        unsafe { answer(&layout.0.distribution().local_shape(rank)?, dims, shape, "shape") }
    })
}

/// How far apart neighbours lie in a rank's part, in elements.
///
/// # Safety
/// As for `reshard_layout_shape`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_strides(
    layout: *const reshard_layout,
    rank: u64,
    dims: usize,
    strides: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { object(layout, "layout")? };
        // SAFETY: likewise.
        unsafe { answer(&layout.0.strides(rank)?, dims, strides, "strides") }
    })
}

/// How many elements of memory a rank's part spans, padding included: what to allocate. 0 for ranks that have none.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_span(
    layout: *const reshard_layout,
    rank: u64,
    elements: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, elements) = unsafe { (object(layout, "layout")?, place(elements, "elements")?) };
        *elements = span(&layout.0, rank)?;
        Ok(())
    })
}

/// Where an element is: the rank that owns it, and its address in that rank's part, in elements.
///
/// # Safety
/// Pointers as C promises them; `index` has `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_locate(
    layout: *const reshard_layout,
    dims: usize,
    index: *const u64,
    rank: *mut u64,
    address: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, rank, address) =
            unsafe { (object(layout, "layout")?, place(rank, "rank")?, place(address, "address")?) };
        // SAFETY: likewise.
        let index = unsafe { index_of(&layout.0, dims, index, "index")? };
        (*rank, *address) = layout.0.locate(index)?;
        Ok(())
    })
}

/// Which element of the array a rank has at an index of its own part.
///
/// # Safety
/// Pointers as C promises them; both lists have `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_global_index(
    layout: *const reshard_layout,
    rank: u64,
    dims: usize,
    local_index: *const u64,
    global_index: *mut u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { object(layout, "layout")? };
        let dealt = layout.0.distribution();
        // SAFETY: likewise.
        let local = unsafe { index_of(&layout.0, dims, local_index, "local_index")? };
        // SAFETY: likewise.
        unsafe { answer(&dealt.global_from_local(rank, local)?, dims, global_index, "global_index") }
    })
}

/// Writes an answer of one number for each dimension.
///
/// # Safety
/// Null, or room for so many.
unsafe fn answer(numbers: &[u64], dims: usize, to: *mut u64, name: &str) -> Outcome<()> {
    same_dims(dims, numbers.len(), name)?;
    // SAFETY: promised by the caller.
    unsafe { places(to, dims, name)? }.copy_from_slice(numbers);
    Ok(())
}
