//! Layouts: who owns which element, and where in its memory.

use crate::error::{OrRaise, wrong, wrong_type};
use crate::memory::{Memory, Role, allocate, described, dtype_of};
use crate::numbers::{Whole, numbers, shown};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use reshard::MemoryOrder;
use reshard::distribution::Pattern;
use reshard::grid::Grid;
use reshard_plan::memory;

/// Which rank owns which element of an array, and where in its memory.
///
/// `Layout("4x4/64x64", shape=(8192, 8192), order="F")`: a grid, blocks, a shape; or all in the notation, "4x4/64x64 of 8192x8192".
#[pyclass(module = "reshard", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct Layout(pub reshard::Layout);

/// Extents: one number, or a sequence of them.
pub fn extents(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    if let Ok(one) = given.extract::<u64>() {
        return Ok(vec![one]);
    }
    given.extract::<Vec<u64>>().map_err(|_| {
        let sentence = format!(
            "{what} was given as {}; give whole numbers from 0 on, such as (8192, 8192)",
            shown(given)
        );
        let numbers = given.extract::<Vec<i128>>().is_ok() || given.extract::<i128>().is_ok();
        if numbers { wrong(sentence) } else { wrong_type(sentence) }
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

/// A layout in this order, if one is given: every part tight.
fn ordered(layout: reshard::Layout, order: Option<&str>) -> PyResult<reshard::Layout> {
    let Some(letter) = order else { return Ok(layout) };
    let order = order_of(letter)?;
    if layout.to_string().contains(" strides=") {
        return Err(wrong(format!(
            "order was given for the layout {layout}, which says its strides itself; leave one of them out"
        )));
    }
    Ok(reshard::Layout::new(layout.distribution().clone(), order))
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
pub fn ranks(layout: &reshard::Layout) -> PyResult<Vec<u64>> {
    let grid = layout.distribution().grid();
    memory::check(8 * u128::from(grid.size()), "the ranks of a grid").or_raise()?;
    Ok(grid.sorted_ranks())
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
    /// A block-cyclic array from numbers.
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
    /// All of an array on rank 0.
    #[staticmethod]
    #[pyo3(signature = (shape, order=None))]
    fn whole(shape: &Bound<'_, PyAny>, order: Option<&str>) -> PyResult<Self> {
        Ok(Self(whole(&extents(shape, "shape")?, order_of(order.unwrap_or("F"))?)?))
    }
    /// A matrix as ScaLAPACK's descriptor says it, on a grid; its leading dimension counts if `rank` says whose descriptor it is.
    #[staticmethod]
    #[pyo3(signature = (descriptor, grid, rank=None))]
    fn from_descriptor(descriptor: Vec<i32>, grid: &Bound<'_, PyAny>, rank: Option<Whole>) -> PyResult<Self> {
        let nine: [i32; 9] = descriptor.as_slice().try_into().map_err(|_| {
            wrong(format!(
                "a descriptor of {} numbers was given; ScaLAPACK's have 9: DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD",
                descriptor.len()
            ))
        })?;
        let grid = Grid::new(&extents(grid, "grid")?).or_raise()?;
        if let Some(Whole(rank)) = rank
            && !grid.contains(rank)
        {
            return Err(wrong(format!(
                "rank was given as {rank}, which is not on the grid of {} ranks",
                grid.size()
            )));
        }
        // A rank outside of the grid has no leading dimension.
        let rank = rank.map_or(u64::MAX, |rank| rank.0);
        Ok(Self(reshard::Layout::from_descriptor(&nine, grid, rank).or_raise()?))
    }
    /// The shape of the whole array.
    #[getter]
    fn shape<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().shape())
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.0.distribution().dims()
    }
    /// How many elements the whole array has.
    #[getter]
    fn size(&self) -> u64 {
        self.0.distribution().elems()
    }
    /// The extents of the grid of processes.
    #[getter]
    fn grid<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyTuple>> {
        PyTuple::new(py, self.0.distribution().grid().extents())
    }
    /// The ranks, ascending: the order of parts in lists.
    #[getter]
    fn ranks(&self) -> PyResult<Vec<u64>> {
        ranks(&self.0)
    }
    /// "F" or "C".
    #[getter]
    fn order(&self) -> &'static str {
        match self.0.order() {
            MemoryOrder::RowMajor => "C",
            MemoryOrder::ColMajor => "F",
        }
    }
    /// On how many ranks each element is.
    #[getter]
    fn copies(&self) -> u64 {
        self.0.distribution().copies()
    }
    /// The rank that owns an element; of copies the first.
    #[pyo3(signature = (*index))]
    fn owner(&self, index: Vec<Whole>) -> PyResult<u64> {
        self.0.distribution().owner(&numbers(&index)).or_raise()
    }
    /// All ranks that have an element.
    #[pyo3(signature = (*index))]
    fn owners(&self, index: Vec<Whole>) -> PyResult<Vec<u64>> {
        self.0.distribution().owners(&numbers(&index)).or_raise()
    }
    /// The rank that owns an element, and its index in that rank's part.
    #[pyo3(signature = (*index))]
    fn locate<'p>(&self, py: Python<'p>, index: Vec<Whole>) -> PyResult<(u64, Bound<'p, PyTuple>)> {
        let (rank, local) = self.0.distribution().local_from_global(&numbers(&index)).or_raise()?;
        Ok((rank, PyTuple::new(py, local)?))
    }
    /// The index in the whole array of an element of a rank's part.
    #[pyo3(signature = (rank, *index))]
    fn global_index<'p>(
        &self,
        py: Python<'p>,
        rank: Whole,
        index: Vec<Whole>,
    ) -> PyResult<Bound<'p, PyTuple>> {
        let rank = rank.0;
        PyTuple::new(py, self.0.distribution().global_from_local(rank, &numbers(&index)).or_raise()?)
    }
    /// The shape of a rank's part.
    fn local_shape<'p>(&self, py: Python<'p>, rank: Whole) -> PyResult<Bound<'p, PyTuple>> {
        let rank = rank.0;
        PyTuple::new(py, self.0.distribution().local_shape(rank).or_raise()?)
    }
    /// The strides of a rank's part, in elements.
    fn strides<'p>(&self, py: Python<'p>, rank: Whole) -> PyResult<Bound<'p, PyTuple>> {
        let rank = rank.0;
        PyTuple::new(py, self.0.strides(rank).or_raise()?)
    }

    /// For each dimension the indices that a rank has: `whole[np.ix_(*layout.indices(rank))]` is its part.
    fn indices<'p>(&self, py: Python<'p>, rank: Whole) -> PyResult<Bound<'p, PyTuple>> {
        let rank = rank.0;
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
    /// A new array for a rank's part, its elements anything.
    #[pyo3(signature = (rank, dtype=None))]
    fn empty<'p>(
        &self,
        py: Python<'p>,
        rank: Whole,
        dtype: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        let rank = rank.0;
        allocate(&self.0, rank, &dtype_of(py, dtype)?, false)
    }
    /// A new array for a rank's part, of zeros.
    #[pyo3(signature = (rank, dtype=None))]
    fn zeros<'p>(
        &self,
        py: Python<'p>,
        rank: Whole,
        dtype: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        let rank = rank.0;
        allocate(&self.0, rank, &dtype_of(py, dtype)?, true)
    }
    /// The parts of a whole array, by ascending rank.
    fn scatter<'p>(slf: &Bound<'p, Self>, array: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        slf.py().import("reshard._parts")?.call_method1("scatter", (slf, array))
    }
    /// The whole array out of all ranks' parts.
    fn gather<'p>(slf: &Bound<'p, Self>, parts: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        slf.py().import("reshard._parts")?.call_method1("gather", (slf, parts))
    }
    /// The same distribution, every part tight in the order "F" or "C"; strides that were given are forgotten.
    fn with_order(&self, order: &str) -> PyResult<Self> {
        Ok(Self(reshard::Layout::new(self.0.distribution().clone(), order_of(order)?)))
    }
    /// Every part in memory of these extents, as with ScaLAPACK's leading dimension.
    fn with_allocated(&self, extents: &Bound<'_, PyAny>) -> PyResult<Self> {
        let extents = self::extents(extents, "the extents of the memory")?;
        Ok(Self(self.0.clone().with_allocated(&extents).or_raise()?))
    }
    /// One rank's part with the strides of an array, or with a tuple of strides in elements.
    fn with_strides_of(&self, rank: Whole, memory: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rank = rank.0;
        if let Ok(strides) = memory.extract::<Vec<u64>>()
            && memory.cast::<PyTuple>().is_ok()
        {
            return Ok(Self(self.0.clone().with_strides_of(rank, &strides).or_raise()?));
        }
        let role = Role::Part(rank);
        Ok(Self(Memory::of(memory, role)?.laid_out(self.0.clone(), rank, role)?))
    }
    /// The same parts on other ranks, one for each process of the grid, the last dimension fastest.
    fn with_ranks(&self, ranks: Vec<Whole>) -> PyResult<Self> {
        Ok(Self(self.0.clone().with_ranks(&numbers(&ranks)).or_raise()?))
    }
    /// The same layout with a number added to all ranks.
    fn shifted(&self, by: Whole) -> PyResult<Self> {
        let by = by.0;
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
