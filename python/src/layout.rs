//! Layouts: who owns which element, and where in its memory.

use crate::error::{OrRaise, wrong, wrong_type};
use crate::memory::{Memory, Role, allocate, described, dtype_of};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard::distribution::Pattern;
use reshard::grid::Grid;
use reshard::{MemoryOrder, Move};
use reshard_plan::memory;

#[pyclass(module = "reshard", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct Layout(pub reshard::Layout);

/// Extents: one number, or a sequence of them.
pub fn extents(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    if let Ok(one) = given.extract::<u64>() {
        return Ok(vec![one]);
    }
    given.extract::<Vec<u64>>().map_err(|_| {
        let shown = given.repr().map_or_else(|_| described(given), |text| text.to_string());
        wrong_type(format!("{what} was given as {shown}; give whole numbers from 0 on, such as (8192, 8192)"))
    })
}

/// A memory order by its letter.
fn order_of(letter: &str) -> PyResult<MemoryOrder> {
    match letter {
        "C" => Ok(MemoryOrder::RowMajor),
        "F" => Ok(MemoryOrder::ColMajor),
        _ => Err(wrong(format!(
            "order was given as {letter:?}; give \"F\" (the first index runs fastest) or \"C\" (the last one)"
        ))),
    }
}

fn ordered(layout: reshard::Layout, order: Option<&str>) -> PyResult<reshard::Layout> {
    let Some(letter) = order else { return Ok(layout) };
    let order = order_of(letter)?;
    match layout.order() == order {
        true => Ok(layout),
        false => Ok(reshard::Layout::new(layout.distribution().clone(), order)),
    }
}

/// A layout given as one, or as its notation.
pub fn layout_of(given: &Bound<'_, PyAny>, what: &str) -> PyResult<reshard::Layout> {
    if let Ok(layout) = given.cast::<Layout>() {
        return Ok(layout.get().0.clone());
    }
    match given.cast::<PyString>() {
        Ok(text) => text.to_cow()?.parse().or_raise(),
        Err(_) => Err(wrong_type(format!(
            "{what} was given as {}; give a layout, or its notation, such as \"4x4/64x64 of 8192x8192\"",
            described(given)
        ))),
    }
}

/// All of an array in the memory of one process: rank 0.
fn whole(shape: &[u64], order: MemoryOrder) -> PyResult<reshard::Layout> {
    let ones = vec![1; shape.len()];
    let blocks: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
    let layout = reshard::Layout::block_cyclic(shape, ones, blocks).or_raise()?;
    Ok(reshard::Layout::new(layout.distribution().clone(), order))
}

/// The ranks of a layout, ascending: the order of its parts.
pub fn ranks(layout: &reshard::Layout) -> Vec<u64> {
    layout.distribution().grid().sorted_ranks()
}

#[pymethods]
impl Layout {
    #[new]
    #[pyo3(signature = (notation, shape=None, order=None))]
    fn new(notation: &str, shape: Option<&Bound<'_, PyAny>>, order: Option<&str>) -> PyResult<Self> {
        let layout = match shape {
            None => notation.parse().or_raise()?,
            Some(shape) => {
                let pattern: Pattern = notation.parse().or_raise()?;
                let distribution = pattern.over(&extents(shape, "shape")?).or_raise()?;
                reshard::Layout::new(distribution, MemoryOrder::ColMajor)
            }
        };
        Ok(Self(ordered(layout, order)?))
    }

    #[staticmethod]
    #[pyo3(signature = (shape, grid, blocks, order=None))]
    fn block_cyclic(
        shape: &Bound<'_, PyAny>,
        grid: &Bound<'_, PyAny>,
        blocks: &Bound<'_, PyAny>,
        order: Option<&str>,
    ) -> PyResult<Self> {
        let (shape, grid, blocks) =
            (extents(shape, "shape")?, extents(grid, "grid")?, extents(blocks, "blocks")?);
        let layout = reshard::Layout::block_cyclic(shape, grid, blocks).or_raise()?;
        Ok(Self(ordered(layout, order)?))
    }

    #[staticmethod]
    #[pyo3(signature = (shape, order=None))]
    fn whole(shape: &Bound<'_, PyAny>, order: Option<&str>) -> PyResult<Self> {
        Ok(Self(whole(&extents(shape, "shape")?, order_of(order.unwrap_or("F"))?)?))
    }

    #[staticmethod]
    #[pyo3(signature = (descriptor, grid, rank=None))]
    fn from_descriptor(descriptor: Vec<i32>, grid: &Bound<'_, PyAny>, rank: Option<u64>) -> PyResult<Self> {
        let nine: [i32; 9] = descriptor.as_slice().try_into().map_err(|_| {
            wrong(format!(
                "a descriptor of {} numbers was given; ScaLAPACK's have 9: DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD",
                descriptor.len()
            ))
        })?;
        let grid = Grid::new(&extents(grid, "grid")?).or_raise()?;
        // A rank outside of the grid has no leading dimension.
        let rank = rank.unwrap_or(u64::MAX);
        Ok(Self(reshard::Layout::from_descriptor(&nine, grid, rank).or_raise()?))
    }

    #[getter]
    fn shape<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().shape())
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.0.distribution().dims()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.0.distribution().elems()
    }

    #[getter]
    fn grid<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().grid().extents())
    }

    #[getter]
    fn ranks(&self) -> Vec<u64> {
        ranks(&self.0)
    }

    #[getter]
    fn order(&self) -> &'static str {
        match self.0.order() {
            MemoryOrder::RowMajor => "C",
            MemoryOrder::ColMajor => "F",
        }
    }

    #[getter]
    fn copies(&self) -> u64 {
        self.0.distribution().copies()
    }

    #[pyo3(signature = (*index))]
    fn owner(&self, index: Vec<u64>) -> PyResult<u64> {
        self.0.distribution().owner(&index).or_raise()
    }

    #[pyo3(signature = (*index))]
    fn owners(&self, index: Vec<u64>) -> PyResult<Vec<u64>> {
        self.0.distribution().owners(&index).or_raise()
    }

    #[pyo3(signature = (*index))]
    fn locate<'p>(&self, py: Python<'p>, index: Vec<u64>) -> PyResult<(u64, Bound<'p, PyTuple>)> {
        let (rank, local) = self.0.distribution().local_from_global(&index).or_raise()?;
        Ok((rank, PyTuple::new(py, local)?))
    }

    #[pyo3(signature = (rank, *index))]
    fn global_index<'p>(&self, py: Python<'p>, rank: u64, index: Vec<u64>) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().global_from_local(rank, &index).or_raise()?)
    }

    fn local_shape<'p>(&self, py: Python<'p>, rank: u64) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().local_shape(rank).or_raise()?)
    }

    fn strides<'p>(&self, py: Python<'p>, rank: u64) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.strides(rank).or_raise()?)
    }

    /// For each dimension, the indices in the whole array of what a rank has along it.
    fn indices<'p>(&self, py: Python<'p>, rank: u64) -> PyResult<Bound<'p, PyTuple>> {
        let distribution = self.0.distribution();
        let coords = distribution.coords(rank).or_raise()?;
        let of_axis = |(axis, &process): (&reshard::axis::Axis, &u64)| {
            let count = usize::try_from(axis.local_len(process)).unwrap_or(usize::MAX);
            let mut indices: Vec<i64> = memory::with_room(count, "the indices of a part")?;
            for block in axis.blocks(process, 0) {
                indices.extend(block.map(|index| index as i64));
            }
            Ok(indices)
        };
        let lists: reshard::Result<Vec<Vec<i64>>> =
            distribution.axes().iter().zip(&coords).map(of_axis).collect();
        PyTuple::new(py, lists.or_raise()?.into_iter().map(|list| PyArray1::from_vec(py, list)))
    }

    #[pyo3(signature = (rank, dtype=None))]
    fn empty<'p>(
        &self,
        py: Python<'p>,
        rank: u64,
        dtype: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        allocate(&self.0, rank, &dtype_of(py, dtype)?, false)
    }

    #[pyo3(signature = (rank, dtype=None))]
    fn zeros<'p>(
        &self,
        py: Python<'p>,
        rank: u64,
        dtype: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        allocate(&self.0, rank, &dtype_of(py, dtype)?, true)
    }

    fn scatter<'p>(&self, py: Python<'p>, array: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        let memory = Memory::of(array, Role::Array)?;
        let from = memory.laid_out(whole(&memory.shape, MemoryOrder::RowMajor)?, 0, Role::Source(0))?;
        let to = reshard::Layout::clone(&self.0);
        let moving = Move::of::<u8>(from, to).or_raise()?;
        crate::plan::move_all(py, moving, &[array.clone()])
    }

    fn gather<'p>(&self, py: Python<'p>, parts: Vec<Bound<'p, PyAny>>) -> PyResult<Bound<'p, PyAny>> {
        let shape = self.0.distribution().shape();
        let mut from = self.0.clone();
        let ranks = ranks(&self.0);
        for (part, &rank) in parts.iter().zip(&ranks) {
            let role = Role::Source(rank);
            from = Memory::of(part, role)?.laid_out(from, rank, role)?;
        }
        let moving = Move::of::<u8>(from, whole(&shape, self.0.order())?).or_raise()?;
        crate::plan::move_all(py, moving, &parts)?.get_item(0)
    }

    fn with_order(&self, order: &str) -> PyResult<Self> {
        Ok(Self(ordered(self.0.clone(), Some(order))?))
    }

    fn with_allocated(&self, extents_given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let extents = extents(extents_given, "the extents of the memory")?;
        Ok(Self(self.0.clone().with_allocated(&extents).or_raise()?))
    }

    fn with_strides_of(&self, rank: u64, memory: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(strides) = memory.extract::<Vec<u64>>()
            && memory.cast::<PyTuple>().is_ok()
        {
            return Ok(Self(self.0.clone().with_strides_of(rank, &strides).or_raise()?));
        }
        let role = Role::Part(rank);
        Ok(Self(Memory::of(memory, role)?.laid_out(self.0.clone(), rank, role)?))
    }

    fn with_ranks(&self, ranks: Vec<u64>) -> PyResult<Self> {
        Ok(Self(self.0.clone().with_ranks(&ranks).or_raise()?))
    }

    fn shifted(&self, by: u64) -> PyResult<Self> {
        Ok(Self(self.0.clone().shifted(by).or_raise()?))
    }

    fn _repr_svg_(&self) -> PyResult<String> {
        crate::looks::check_drawn(&[self.0.distribution()])?;
        Ok(reshard_draw::layout(&self.0.to_string(), self.0.distribution()))
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'p>(&self, py: Python<'p>) -> PyResult<(Bound<'p, PyAny>, (String,))> {
        let state = serde_json::to_string(&self.0).map_err(|error| wrong(error.to_string()))?;
        Ok((py.import("reshard._reshard")?.getattr("layout_from_state")?, (state,)))
    }
}

/// A layout as it was pickled.
#[pyfunction]
pub fn layout_from_state(state: &str) -> PyResult<Layout> {
    serde_json::from_str(state)
        .map(Layout)
        .map_err(|error| wrong(format!("the pickled layout cannot be read: {error}")))
}
