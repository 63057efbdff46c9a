//! Tensors of other libraries, by DLPack: where they lie, without a copy. Only those in main memory; a capsule is held, never consumed, so
//! its maker frees it as soon as it is let go.

use crate::error::{wrong, wrong_type};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::c_void;

/// Whether memory can be written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writable {
    Yes,
    No,
    /// A tensor that does not say so.
    Unknown,
    /// A tensor that was copied to be given out.
    Copied,
}

/// A tensor in main memory.
pub struct Tensor {
    pub address: *mut u8,
    pub shape: Vec<usize>,
    /// In elements.
    pub strides: Vec<isize>,
    /// The type of its elements as NumPy writes it; raw bytes where NumPy has none.
    pub dtype: String,
    pub bytes: usize,
    pub writable: Writable,
    pub capsule: Py<PyAny>,
}

const CPU: i32 = 1;
/// Main memory that a GPU can read, too.
const PINNED: [i32; 2] = [3, 11];
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;

/// DLPack's `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// DLPack's `DLManagedTensorVersioned`, up to what is read here.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

/// The tensor behind an object with `__dlpack__`.
pub fn tensor(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Tensor> {
    let py = object.py();
    let (device, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if device != CPU && !PINNED.contains(&device) {
        return Err(wrong_type(format!(
            "{what} was given as a tensor on device {number} of type {device} of DLPack, such as a GPU; give one in main memory, as \
             tensor.cpu() or cupy.asnumpy(tensor) make it"
        )));
    }
    let newest = PyDict::new(py);
    newest.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&newest)) {
        // Those of before 2024 know no versions.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        capsule => capsule?,
    };
    let capsule = capsule.cast_into::<PyCapsule>()?;
    let old = c"dltensor";
    let versioned = capsule.is_valid_checked(Some(c"dltensor_versioned"));
    if !versioned && !capsule.is_valid_checked(Some(old)) {
        return Err(wrong_type(format!("{what} gave a capsule that is no tensor of DLPack")));
    }
    // SAFETY: the name says what a capsule points to, and the capsule, which is held, keeps it there.
    let (tensor, writable) = unsafe {
        if versioned {
            let at: &Versioned =
                capsule.pointer_checked(Some(c"dltensor_versioned"))?.cast::<Versioned>().as_ref();
            if at.major != 1 {
                return Err(wrong_type(format!(
                    "{what} is a tensor of DLPack {}.{}; 1 is known, make a NumPy array of it",
                    at.major, at.minor
                )));
            }
            let writable = match at.flags {
                flags if flags & READ_ONLY != 0 => Writable::No,
                flags if flags & COPIED != 0 => Writable::Copied,
                _ => Writable::Yes,
            };
            (&at.tensor, writable)
        } else {
            (capsule.pointer_checked(Some(old))?.cast::<DlTensor>().as_ref(), Writable::Unknown)
        }
    };
    let dims = usize::try_from(tensor.ndim).unwrap_or(0);
    let list = |first: *const i64| -> Vec<i64> {
        // SAFETY: as many numbers as there are dimensions, by DLPack.
        if first.is_null() || dims == 0 {
            Vec::new()
        } else {
            unsafe { std::slice::from_raw_parts(first, dims) }.to_vec()
        }
    };
    let shape: Vec<usize> =
        list(tensor.shape).into_iter().map(|extent| usize::try_from(extent).unwrap_or(0)).collect();
    let strides = match tensor.strides.is_null() {
        false => list(tensor.strides).into_iter().map(|stride| stride as isize).collect(),
        // Without strides the last index runs fastest.
        true => (0..dims).map(|dim| shape[dim + 1..].iter().product::<usize>() as isize).collect(),
    };
    let bytes = usize::from(tensor.bits) * usize::from(tensor.lanes) / 8;
    let kind = match tensor.code {
        _ if tensor.lanes != 1 => "V",
        0 => "i",
        1 => "u",
        2 => "f",
        5 => "c",
        6 => "b",
        _ => "V",
    };
    if bytes == 0 || tensor.bits % 8 != 0 {
        return Err(wrong(format!("{what} has elements of {} bits; whole bytes are moved", tensor.bits)));
    }
    Ok(Tensor {
        address: tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize),
        shape,
        strides,
        dtype: format!("{kind}{bytes}"),
        bytes,
        writable,
        capsule: capsule.into_any().unbind(),
    })
}
