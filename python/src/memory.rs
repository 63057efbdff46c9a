//! Arrays as addresses: where the elements of an array, a buffer or a tensor lie, without a copy.
//!
//! A [`Memory`] keeps its array alive, so the array cannot be resized or freed while its memory is used.

use crate::dlpack::{self, Writable};
use crate::error::{OrRaise, wrong, wrong_type};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMemoryView, PyTuple, PyWeakrefReference};
use reshard::engine::RawPart;
use reshard::error::counted;
use reshard::{Layout, MemoryOrder};
use std::fmt;

/// The elements of one array.
pub struct Memory {
    address: *mut u8,
    pub shape: Vec<u64>,
    /// In elements. Where there are less than two along a dimension, any number.
    strides: Vec<u64>,
    /// From the first to the end of the last element.
    bytes: usize,
    pub dtype: Py<PyArrayDescr>,
    writable: Writable,
    /// What was given.
    pub object: Py<PyAny>,
    /// What keeps the memory, if it is not that.
    kept: Option<Py<PyAny>>,
    /// To the array, and to those that it is a view of: NumPy resizes none that has one.
    _pins: Vec<Py<PyWeakrefReference>>,
}

// SAFETY: an address alone, and objects that are used with the interpreter attached only.
unsafe impl Send for Memory {}
// SAFETY: likewise.
unsafe impl Sync for Memory {}

/// What a layout says of the part of a rank.
pub struct Place {
    pub rank: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

impl Place {
    pub fn of(layout: &Layout, rank: u64) -> PyResult<Self> {
        let shape = layout.distribution().local_shape(rank).or_raise()?;
        Ok(Self { rank, shape, strides: layout.strides(rank).or_raise()? })
    }
}

/// What an array is for, in words.
#[derive(Clone, Copy)]
pub enum Role {
    Source(u64),
    Target(u64),
    Part(u64),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(rank) => write!(f, "the source part of rank {rank}"),
            Self::Target(rank) => write!(f, "the destination part of rank {rank}"),
            Self::Part(rank) => write!(f, "the part of process {rank}"),
        }
    }
}

impl Memory {
    /// The memory of an array of NumPy, of anything with `__dlpack__`, the buffer protocol or `__array_interface__`.
    pub fn of(object: &Bound<'_, PyAny>, role: Role) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            if !object.is_exact_instance_of::<PyUntypedArray>() && object.hasattr("mask")? {
                return Err(wrong_type(format!(
                    "{role} is a masked array, whose mask would be left behind; move its data and its mask, one after the other"
                )));
            }
            return Self::of_array(array, object, role);
        }
        let py = object.py();
        if object.hasattr("__dlpack__")? && object.hasattr("__dlpack_device__")? {
            let tensor = dlpack::tensor(object, &role.to_string())?;
            let dtype = PyArrayDescr::new(py, tensor.dtype.as_str())?;
            let form = Form { shape: tensor.shape, strides: tensor.strides, item: tensor.bytes };
            let memory = Self::new(tensor.address, form, dtype, object, role)?;
            return Ok(Self { writable: tensor.writable, kept: Some(tensor.capsule), ..memory });
        }
        let viewed = match PyMemoryView::from(object) {
            Ok(view) => view.into_any(),
            Err(_) if object.hasattr("__array_interface__")? => object.clone(),
            Err(_) => {
                return Err(wrong_type(format!(
                    "{role} was given as {}; give an array of NumPy, or anything with __dlpack__ or the buffer protocol",
                    described(object)
                )));
            }
        };
        let array = numpy_function(py, &ASARRAY, "asarray")?.call1((viewed,))?;
        Self::of_array(&array.cast_into::<PyUntypedArray>()?, object, role)
    }

    fn of_array(array: &Bound<'_, PyUntypedArray>, object: &Bound<'_, PyAny>, role: Role) -> PyResult<Self> {
        let dtype = array.dtype();
        if dtype.has_object() {
            return Err(wrong_type(format!(
                "{role} has elements of type {dtype}, which are Python objects; only plain data can be moved"
            )));
        }
        // SAFETY: an array of NumPy, which is alive.
        let fields = unsafe { &(*array.as_array_ptr()).fields };
        let (address, flags) = (fields.data.cast::<u8>(), fields.flags);
        let item = dtype.itemsize();
        if item == 0 {
            return Err(wrong_type(format!(
                "{role} has elements of type {dtype}, which has no size; there is nothing to move"
            )));
        }
        let mut strides = Vec::with_capacity(array.ndim());
        let has_elements = !array.is_empty();
        for (&stride, &extent) in array.strides().iter().zip(array.shape()) {
            if has_elements && extent > 1 && stride % item as isize != 0 {
                return Err(wrong(format!(
                    "{role} has elements of {} that lie {stride} bytes apart, as a field of a structured array does; give a copy \
                     (numpy.ascontiguousarray)",
                    counted(item, "byte")
                )));
            }
            strides.push(stride / item as isize);
        }
        let form = Form { shape: array.shape().to_vec(), strides, item };
        let writable = flags & numpy::npyffi::NPY_ARRAY_WRITEABLE != 0;
        let writable = if writable { Writable::Yes } else { Writable::No };
        let kept = (!array.is(object)).then(|| array.clone().into_any().unbind());
        let memory = Self::new(address, form, dtype, object, role)?;
        Ok(Self { writable, kept, _pins: pinned(array)?, ..memory })
    }

    fn new(
        address: *mut u8,
        Form { shape, strides, item }: Form,
        dtype: Bound<'_, PyArrayDescr>,
        object: &Bound<'_, PyAny>,
        role: Role,
    ) -> PyResult<Self> {
        let mut last = 0_usize;
        let mut positive = Vec::with_capacity(strides.len());
        // The strides of an array without elements mean nothing.
        let has_elements = !shape.contains(&0);
        for (&stride, &extent) in strides.iter().zip(&shape) {
            if has_elements && extent > 1 && stride <= 0 {
                return Err(wrong(format!(
                    "{role} goes {} along a dimension, with a stride of {stride} elements; give a copy (numpy.ascontiguousarray)",
                    if stride < 0 { "backwards" } else { "nowhere" }
                )));
            }
            let stride = if has_elements && extent > 1 { stride as usize } else { 1 };
            last = last.saturating_add(stride.saturating_mul(extent.saturating_sub(1)));
            positive.push(stride as u64);
        }
        let bytes = if has_elements { last.saturating_add(1).saturating_mul(item) } else { 0 };
        let shape = shape.into_iter().map(|extent| extent as u64).collect();
        let (dtype, object) = (dtype.unbind(), object.clone().unbind());
        let writable = Writable::No;
        Ok(Self {
            address,
            shape,
            strides: positive,
            bytes,
            dtype,
            writable,
            object,
            kept: None,
            _pins: Vec::new(),
        })
    }

    /// The part of a rank, if it has the shape and the strides of its place in the layout, and these elements.
    pub fn part(
        &self,
        py: Python<'_>,
        layout: &Layout,
        place: &Place,
        dtype: &Bound<'_, PyArrayDescr>,
        role: Role,
    ) -> PyResult<RawPart> {
        let Place { rank, shape, strides } = place;
        self.check_elements(py, dtype, role)?;
        self.check_shape(layout, shape, role)?;
        let same = |dim: usize| self.shape[dim] < 2 || self.strides[dim] == strides[dim];
        if self.bytes > 0 && !(0..strides.len()).all(same) {
            return Err(wrong(format!(
                "{role} has strides of {:?} elements, and the plan was made for {strides:?}, as in {layout}; give an array in that order, or \
                 plan for this memory with layout.with_strides_of({rank}, array)",
                self.strides
            )));
        }
        Ok(self.raw())
    }

    /// The layout with the strides of this memory for a rank, whose part it is.
    pub fn laid_out(&self, layout: Layout, rank: u64, role: Role) -> PyResult<Layout> {
        let Place { shape, strides, .. } = Place::of(&layout, rank)?;
        self.check_shape(&layout, &shape, role)?;
        let differs = |dim: usize| self.shape[dim] > 1 && self.strides[dim] != strides[dim];
        if self.bytes == 0 || !(0..strides.len()).any(differs) {
            return Ok(layout);
        }
        layout.with_strides_of(rank, &self.strides).or_raise()
    }

    pub fn raw(&self) -> RawPart {
        RawPart::new(self.address, self.bytes)
    }

    /// Whether it shares an element with another; where that is hard to say, or the memory is not NumPy's, whether it may.
    pub fn shares(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        let [one, other] = [self, other].map(|memory| memory.object.bind(py));
        if one.cast::<PyUntypedArray>().is_err() || other.cast::<PyUntypedArray>().is_err() {
            return Ok(true);
        }
        match py.import("numpy")?.getattr("shares_memory")?.call1((one, other, 1_000_000)) {
            Ok(shares) => shares.is_truthy(),
            Err(error) if error.is_instance_of::<PyException>(py) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// An array of NumPy of the same memory; of a tensor NumPy makes one, if it can.
    pub fn array<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyAny>> {
        let object = self.object.bind(py);
        match &self.kept {
            _ if object.cast::<PyUntypedArray>().is_ok() => Ok(object.clone()),
            Some(kept) if kept.bind(py).cast::<PyUntypedArray>().is_ok() => Ok(kept.bind(py).clone()),
            _ => py.import("numpy")?.call_method1("from_dlpack", (object,)),
        }
    }

    /// Its bytes, to be read, for arrays without gaps.
    ///
    /// # Safety
    /// Nobody writes to the array as long as the slice is used.
    pub unsafe fn bytes(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: so many bytes, and nobody writes to them, as the caller promises.
            bytes => unsafe { std::slice::from_raw_parts(self.address, bytes) },
        }
    }

    /// Its bytes, for arrays without gaps.
    ///
    /// # Safety
    /// Nobody else uses the array as long as the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        match self.bytes {
            0 => &mut [],
            // SAFETY: so many bytes, and nobody else uses them, as the caller promises.
            bytes => unsafe { std::slice::from_raw_parts_mut(self.address, bytes) },
        }
    }

    /// The addresses from its first element to the end of its last.
    pub fn span(&self) -> (usize, usize) {
        (self.address.addr(), self.address.addr() + self.bytes)
    }

    fn check_shape(&self, layout: &Layout, wanted: &[u64], role: Role) -> PyResult<()> {
        if self.shape == wanted {
            return Ok(());
        }
        Err(wrong(format!(
            "{role} has the shape {:?}, and under the layout {layout} it is {wanted:?}",
            self.shape
        )))
    }

    pub fn check_elements(
        &self,
        py: Python<'_>,
        dtype: &Bound<'_, PyArrayDescr>,
        role: Role,
    ) -> PyResult<()> {
        let mine = self.dtype.bind(py);
        if mine.is(dtype) || mine.is_equiv_to(dtype) {
            return Ok(());
        }
        Err(wrong_type(format!(
            "{role} has elements of type {mine}, and the others have {dtype}; nothing is converted on the way, give one type to all \
             (array.astype)"
        )))
    }

    /// Fails if it cannot be written to.
    pub fn check_writable(&self, role: Role) -> PyResult<()> {
        match self.writable {
            Writable::Yes => Ok(()),
            Writable::No => Err(wrong(format!("{role} is read-only; give memory that can be written to"))),
            Writable::Unknown => Err(wrong(format!(
                "{role} was given as a tensor that does not say whether it may be written to; give an array of NumPy of its memory, as \
                 tensor.numpy() makes it"
            ))),
            Writable::Copied => Err(wrong(format!(
                "{role} was given as a tensor that gives out a copy of its memory, which nobody would see; give an array of NumPy"
            ))),
        }
    }
}

/// Where elements lie, as an array says it.
struct Form {
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<isize>,
    /// Bytes of an element.
    item: usize,
}

/// Weak references to an array and to those that it is a view of: NumPy resizes no array that has one, whatever it is told.
fn pinned(array: &Bound<'_, PyUntypedArray>) -> PyResult<Vec<Py<PyWeakrefReference>>> {
    let mut pins = vec![PyWeakrefReference::new(array.as_any())?.unbind()];
    let mut base = base_of(array);
    while let Some(array) = base {
        pins.push(PyWeakrefReference::new(array.as_any())?.unbind());
        base = base_of(&array);
    }
    Ok(pins)
}

/// The array that an array is a view of.
fn base_of<'p>(array: &Bound<'p, PyUntypedArray>) -> Option<Bound<'p, PyUntypedArray>> {
    // SAFETY: an array of NumPy, which is alive and keeps its base alive.
    let base = unsafe { Bound::from_borrowed_ptr_or_opt(array.py(), (*array.as_array_ptr()).fields.base) };
    base.and_then(|base| base.cast_into::<PyUntypedArray>().ok())
}

static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ZEROS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static AS_STRIDED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn numpy_function<'p>(
    py: Python<'p>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<&'p Bound<'p, PyAny>> {
    let found = cell.get_or_try_init(py, || Ok::<_, PyErr>(py.import("numpy")?.getattr(name)?.unbind()))?;
    Ok(found.bind(py))
}

/// A new array of NumPy.
pub fn new_array<'p>(
    shape: &[u64],
    dtype: &Bound<'p, PyArrayDescr>,
    order: &str,
    zeroed: bool,
) -> PyResult<Bound<'p, PyAny>> {
    let py = dtype.py();
    let make = match zeroed {
        true => numpy_function(py, &ZEROS, "zeros")?,
        false => numpy_function(py, &EMPTY, "empty")?,
    };
    make.call1((PyTuple::new(py, shape)?, dtype, order))
}

/// A new array for the part of a rank, in the order and with the strides of the layout; zeros if wanted.
pub fn allocate<'p>(
    layout: &Layout,
    rank: u64,
    dtype: &Bound<'p, PyArrayDescr>,
    zeroed: bool,
) -> PyResult<Bound<'p, PyAny>> {
    let py = dtype.py();
    let shape = layout.distribution().local_shape(rank).or_raise()?;
    let order = match layout.order() {
        MemoryOrder::RowMajor => "C",
        MemoryOrder::ColMajor => "F",
    };
    let strides = layout.strides(rank).or_raise()?;
    let tight = Layout::new(layout.distribution().clone(), layout.order()).strides(rank).or_raise()?;
    if shape.contains(&0) || strides == tight {
        return new_array(&shape, dtype, order, zeroed);
    }
    let base = new_array(&[layout.span(rank).or_raise()?], dtype, "C", zeroed)?;
    let item = dtype.itemsize() as u64;
    let as_strided = AS_STRIDED.get_or_try_init(py, || {
        let tricks = py.import("numpy.lib.stride_tricks")?;
        Ok::<_, PyErr>(tricks.getattr("as_strided")?.unbind())
    })?;
    let strides: Vec<u64> = strides.into_iter().map(|stride| stride * item).collect();
    as_strided.bind(py).call1((base, PyTuple::new(py, shape)?, PyTuple::new(py, strides)?))
}

/// A type of elements, given as anything that NumPy takes for one.
pub fn dtype_of<'p>(py: Python<'p>, given: Option<&Bound<'p, PyAny>>) -> PyResult<Bound<'p, PyArrayDescr>> {
    let dtype = match given {
        None => PyArrayDescr::of::<f64>(py),
        Some(given) => match given.cast::<PyArrayDescr>() {
            Ok(dtype) => dtype.clone(),
            Err(_) => PyArrayDescr::new(py, given)?,
        },
    };
    if dtype.has_object() {
        return Err(wrong_type(format!(
            "the type of elements was given as {dtype}, which are Python objects; only plain data can be moved"
        )));
    }
    if dtype.has_subarray() {
        return Err(wrong_type(format!(
            "the type of elements was given as {dtype}, an array of its own; give the array one more dimension, or a structured type"
        )));
    }
    if dtype.itemsize() == 0 {
        return Err(wrong_type(format!(
            "the type of elements was given as {dtype}, which has no size; give one with a length"
        )));
    }
    Ok(dtype)
}

/// What an object is, in a few words.
pub fn described(object: &Bound<'_, PyAny>) -> String {
    match object.get_type().name() {
        Ok(_) if object.is_none() => "None".into(),
        Ok(name) => format!("an object of type {name}"),
        Err(_) => "an object".into(),
    }
}
