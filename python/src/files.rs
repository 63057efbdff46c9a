//! Sets of files: opened, checked, read by rank, written, and written anew under another layout.

use crate::comm::communicator;
use crate::error::{OrRaise, wrong, wrong_type};
use crate::layout::{Layout, extents, layout_of, ranks};
use crate::memory::{Memory, Role, allocate, described, dtype_of};
use crate::request::permutation;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reshard::ElementType;
use reshard_shards::collective::Ranks;
use reshard_shards::{
    ConvertOptions, Converted, Format, Import, Layouts, convert_arrays, element_from_npy, npy_descr,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Duration;

/// How long the ranks of a job wait for each other: one may have far more to read.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// A set of files that is open.
#[pyclass(module = "reshard", frozen)]
pub struct ShardSet {
    set: reshard_shards::ShardSet,
    path: PathBuf,
}

#[pymethods]
impl ShardSet {
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.set.names().map(str::to_string).collect()
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.set.bytes()
    }

    #[getter]
    fn layout(&self) -> PyResult<Layout> {
        self.array(None).map(|array| Layout(array.layout().clone()))
    }

    #[getter]
    fn dtype<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyArrayDescr>> {
        dtype_of_element(py, self.array(None)?.element())
    }

    fn layout_of(&self, name: &str) -> PyResult<Layout> {
        self.array(Some(name)).map(|array| Layout(array.layout().clone()))
    }

    fn dtype_of<'p>(&self, py: Python<'p>, name: &str) -> PyResult<Bound<'p, PyArrayDescr>> {
        dtype_of_element(py, self.array(Some(name))?.element())
    }

    #[pyo3(signature = (layout, rank=0, *, name=None))]
    fn load_as<'p>(
        &self,
        py: Python<'p>,
        layout: &Bound<'p, PyAny>,
        rank: u64,
        name: Option<&str>,
    ) -> PyResult<Bound<'p, PyAny>> {
        let (layout, array) = (layout_of(layout, "layout")?, self.array(name)?);
        let part = allocate(&layout, rank, &dtype_of_element(py, array.element())?, true)?;
        let memory = Memory::of(&part, Role::Part(rank))?;
        // SAFETY: a new array that nobody else knows.
        let bytes = unsafe { memory.bytes_mut() };
        py.detach(|| self.set.load_array_bytes_as(array.name(), &layout, rank, bytes)).or_raise()?;
        Ok(part)
    }

    #[pyo3(signature = (progress=None))]
    fn verify<'p>(&self, py: Python<'p>, progress: Option<Py<PyAny>>) -> PyResult<Bound<'p, PyDict>> {
        let verified = watched(py, progress, |watch| self.set.verify(watch))?;
        let told = PyDict::new(py);
        told.set_item("files", verified.files)?;
        told.set_item("bytes", verified.bytes)?;
        told.set_item("elements", verified.elements)?;
        told.set_item("replicated", verified.replicated)?;
        Ok(told)
    }

    fn __repr__(&self) -> String {
        match self.set.arrays() {
            [array] => format!("ShardSet({:?}: {}, {})", self.path, array.layout(), array.element()),
            arrays => format!("ShardSet({:?}: {} arrays)", self.path, arrays.len()),
        }
    }
}

impl ShardSet {
    fn array(&self, name: Option<&str>) -> PyResult<&reshard_shards::Array> {
        match (name, self.set.arrays()) {
            (Some(name), _) => self.set.array(name).or_raise(),
            (None, [array]) => Ok(array),
            (None, arrays) => Err(wrong(format!(
                "the set has {} arrays; say which by its name (set.names lists them)",
                arrays.len()
            ))),
        }
    }
}

/// What is said of files without a manifest.
struct Described<'a, 'p> {
    layout: Option<&'a Bound<'p, PyAny>>,
    shape: Option<&'a Bound<'p, PyAny>>,
    dtype: Option<&'a Bound<'p, PyAny>>,
}

impl Described<'_, '_> {
    fn open(&self, path: &PathBuf, ranks: Option<&Ranks>) -> PyResult<reshard_shards::ShardSet> {
        let is_pattern = path.file_name().is_some_and(|name| name.to_string_lossy().contains(['{', '}']));
        let says = self.layout.is_some() || self.shape.is_some() || self.dtype.is_some();
        if !is_pattern && !path.is_file() {
            if says {
                return Err(wrong(format!(
                    "layout, shape or dtype was given for {}, and describes files without a manifest; name them, as in \
                     \"folder/rank_{{rank:04}}.npy\", or leave it out",
                    path.display()
                )));
            }
            return ranks
                .map_or_else(|| reshard_shards::ShardSet::open(path), |ranks| ranks.open(path))
                .or_raise();
        }
        let mut import = Import::default();
        if let Some(layout) = self.layout {
            import = import.with_layouts(Layouts::new(rules(layout, "layout")?).or_raise()?);
        }
        if let Some(shape) = self.shape {
            import = import.with_shape(&extents(shape, "shape")?);
        }
        if let Some(dtype) = self.dtype {
            import = import.with_element(element_of(dtype)?);
        }
        let opened = ranks.map_or_else(
            || reshard_shards::ShardSet::import(path, &import),
            |ranks| ranks.import(path, &import),
        );
        opened.or_raise()
    }
}

/// Layouts: one for all arrays, or rules `PATTERN=LAYOUT` by their names, as a list or a dict.
fn rules(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<String>> {
    if let Ok(layout) = given.cast::<Layout>() {
        let layout = &layout.get().0;
        let memory = if layout.order() == reshard::MemoryOrder::RowMajor { " memory=row" } else { "" };
        return Ok(vec![format!("{}{memory}", layout.distribution().pattern())]);
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(vec![text.to_string()]);
    }
    if let Ok(by_name) = given.cast::<PyDict>() {
        let rule = |(name, layout): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok(format!("{name}={layout}"));
        return by_name.iter().map(rule).collect();
    }
    given.extract().map_err(|_| {
        wrong_type(format!(
            "{what} was given as {}; give a layout such as \"3x3/100x100\", or a dict of such by patterns of names",
            described(given)
        ))
    })
}

/// The element type of a type of NumPy, or of a name that NumPy has not, such as bf16.
fn element_of(given: &Bound<'_, PyAny>) -> PyResult<ElementType> {
    if let Ok(text) = given.cast::<PyString>()
        && let Ok(element) = text.to_cow()?.parse()
    {
        return Ok(element);
    }
    let dtype = dtype_of(given.py(), Some(given))?;
    let name: String = dtype.getattr("str")?.extract()?;
    match dtype.has_fields() || dtype.has_subarray() {
        true => ElementType::opaque(dtype.itemsize() as u64).or_raise(),
        false => element_from_npy(&name)
            .or_else(|error| match dtype.kind() {
                // Moved as bytes: strings, dates and the like.
                b'S' | b'U' | b'm' | b'M' => ElementType::opaque(dtype.itemsize() as u64),
                _ => Err(error),
            })
            .or_raise(),
    }
}

fn dtype_of_element(py: Python<'_>, element: ElementType) -> PyResult<Bound<'_, PyArrayDescr>> {
    PyArrayDescr::new(py, npy_descr(element).as_str())
}

#[pyfunction]
#[pyo3(name = "open", signature = (path, *, layout=None, shape=None, dtype=None))]
pub fn open_set(
    path: PathBuf,
    layout: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<ShardSet> {
    let set = Described { layout, shape, dtype }.open(&path, None)?;
    Ok(ShardSet { set, path })
}

#[pyfunction]
#[pyo3(signature = (path, layout, parts, comm=None, *, format="npy", dtype=None))]
pub fn save(
    py: Python<'_>,
    path: PathBuf,
    layout: &Bound<'_, PyAny>,
    parts: &Bound<'_, PyAny>,
    comm: Option<&Bound<'_, PyAny>>,
    format: &str,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let (layout, format) = (layout_of(layout, "layout")?, format_of(format)?);
    let read = |part: &Bound<'_, PyAny>, rank: u64| -> PyResult<(Memory, ElementType)> {
        let role = Role::Source(rank);
        let memory = Memory::of(part, role)?;
        memory.part(py, &layout, &memory.dtype.bind(py).clone(), role)?;
        let kind = memory.dtype.bind(py).as_any();
        let element = element_of(dtype.unwrap_or(kind))?;
        if element.bytes() != element_of(kind)?.bytes() {
            return Err(wrong_type(format!(
                "{role} has elements of type {kind}, and dtype was given as {element}; they must have one size"
            )));
        }
        Ok((memory, element))
    };
    if let Some(comm) = comm {
        let raw = communicator(comm)?;
        let rank = raw.rank() as u64;
        let own = py.detach(|| Ranks::of(&raw, PATIENCE)).or_raise()?;
        let has = layout.distribution().grid().contains(rank);
        let part = match (has, dtype) {
            (true, _) => read(parts, rank).map(|(memory, element)| (Some(memory), element)),
            (false, Some(dtype)) => element_of(dtype).map(|element| (None, element)),
            (false, None) => Err(wrong(
                "this rank has no part under the layout, so give the type of the elements as dtype",
            )),
        };
        let told = part.as_ref().map(|_| ()).map_err(crate::error::told);
        let agreed = py.detach(|| own.agree(told));
        // This rank's own exception says more than what all were told.
        let (part, element) = part?;
        agreed.or_raise()?;
        // SAFETY: the caller uses the array for nothing else meanwhile.
        let bytes: &[u8] = part.as_ref().map_or(&[], |memory| unsafe { memory.bytes_mut() });
        return py.detach(|| own.save_bytes(&path, &layout, element, bytes, format)).or_raise();
    }
    let given: Vec<Bound<'_, PyAny>> = parts.extract().map_err(|_| {
        wrong_type(format!(
            "the parts were given as {}; give a list of the parts of all ranks",
            described(parts)
        ))
    })?;
    let read = given.iter().zip(ranks(&layout)).map(|(part, rank)| read(part, rank));
    let memories = read.collect::<PyResult<Vec<_>>>()?;
    let Some((_, element)) = memories.first() else { return Err(wrong("no part was given")) };
    if let Some((_, other)) = memories.iter().find(|(_, other)| other != element) {
        return Err(wrong_type(format!(
            "parts with elements of type {element} and {other} were given; give one type to all"
        )));
    }
    if given.len() != memories.len() {
        return Err(wrong(format!(
            "{} parts were given for the {} ranks of {layout}",
            given.len(),
            memories.len()
        )));
    }
    // SAFETY: the caller uses the arrays for nothing else meanwhile.
    let slices: Vec<&[u8]> = memories.iter().map(|(memory, _)| unsafe { &*memory.bytes_mut() }).collect();
    py.detach(|| reshard_shards::save_bytes(&path, &layout, *element, &slices, format)).or_raise()
}

#[pyfunction]
#[pyo3(signature = (src, dst, to, comm=None, *, layout=None, shape=None, dtype=None, memory=None, axes=None, format=None, names=None, threads=None, resume=false, checksums=true, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn convert<'p>(
    py: Python<'p>,
    src: PathBuf,
    dst: PathBuf,
    to: &Bound<'p, PyAny>,
    comm: Option<&Bound<'p, PyAny>>,
    layout: Option<&Bound<'p, PyAny>>,
    shape: Option<&Bound<'p, PyAny>>,
    dtype: Option<&Bound<'p, PyAny>>,
    memory: Option<u64>,
    axes: Option<&Bound<'p, PyAny>>,
    format: Option<&str>,
    names: Option<String>,
    threads: Option<usize>,
    resume: bool,
    checksums: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'p, PyDict>> {
    let own = match comm {
        Some(comm) => {
            let raw = communicator(comm)?;
            Some(py.detach(|| Ranks::of(&raw, PATIENCE)).or_raise()?)
        }
        None => None,
    };
    let prepared = || {
        let source = Described { layout, shape, dtype }.open(&src, None)?;
        let mut options = ConvertOptions::default().resuming(resume).with_threads(threads);
        if let Some(bytes) = memory {
            options = options.with_memory(bytes);
        }
        if let Some(axes) = axes {
            let dims = source.arrays().first().map_or(0, |array| array.layout().distribution().dims());
            options = options.with_axes(&permutation(axes, dims)?);
        }
        let ending = |ending: &str| dst.extension().is_some_and(|found| found == ending);
        let by_name = [("npy", Format::Npy), ("bin", Format::Raw), ("safetensors", Format::Safetensors)]
            .into_iter()
            .find_map(|(name, format)| ending(name).then_some(format));
        let of_source = source.arrays().len() > 1;
        let format = match (format, by_name) {
            (Some(format), _) => format_of(format)?,
            (None, Some(format)) => format,
            (None, None) if of_source => Format::Safetensors,
            (None, None) => Format::Npy,
        };
        options = options.with_format(format);
        if by_name.is_some() {
            options = options.as_one_file();
        }
        if let Some(names) = names {
            options = options.with_names(names);
        }
        if !checksums {
            options = options.without_checksums();
        }
        let layouts = options.layouts(&source, &Layouts::new(rules(to, "to")?).or_raise()?).or_raise()?;
        Ok((source, options, layouts))
    };
    let prepared = prepared();
    if let Some(own) = &own {
        let told = prepared.as_ref().map(|_| ()).map_err(crate::error::told);
        let agreed = py.detach(|| own.agree(told));
        if prepared.is_ok() {
            agreed.or_raise()?;
        }
    }
    let (source, options, layouts) = prepared?;
    let converted = watched(py, progress, |watch| match &own {
        None => convert_arrays(&source, &dst, &layouts, &options, watch),
        Some(own) => own.convert_arrays(&source, &dst, &layouts, &options, watch),
    })?;
    told_conversion(py, &converted)
}

fn format_of(name: &str) -> PyResult<Format> {
    let all = [Format::Npy, Format::Raw, Format::Safetensors];
    all.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        wrong(format!("format was given as {name:?}; there are {}", all.map(Format::name).join(", ")))
    })
}

fn told_conversion<'p>(py: Python<'p>, converted: &Converted) -> PyResult<Bound<'p, PyDict>> {
    let told = PyDict::new(py);
    for (name, count) in [
        ("bytes", converted.bytes),
        ("boxes", converted.boxes),
        ("resumed_boxes", converted.resumed),
        ("reads", converted.reads),
        ("writes", converted.writes),
        ("reread_bytes", converted.reread_bytes),
    ] {
        told.set_item(name, count)?;
    }
    for (name, seconds) in [
        ("seconds", converted.seconds),
        ("read_seconds", converted.read_seconds),
        ("move_seconds", converted.move_seconds),
        ("write_seconds", converted.write_seconds),
        ("sync_seconds", converted.sync_seconds),
    ] {
        told.set_item(name, seconds)?;
    }
    Ok(told)
}

/// What ends a long piece of work in the middle: Ctrl-C, or an exception of the caller's own function.
struct Stopped(PyErr);

/// Does what takes long without the interpreter, tells `progress` how far it has come, and ends early if that raises an exception or Ctrl-C
/// was pressed.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> reshard::Result<T> + Send,
) -> PyResult<T> {
    let mut watch = |done: u64, all: u64| {
        let seen = Python::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, all)).map(drop))
        });
        if let Err(stopped) = seen {
            // The work is undone on the way out, as after any failure; nothing is printed.
            resume_unwind(Box::new(Stopped(stopped)));
        }
    };
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&mut watch))));
    match outcome {
        Ok(outcome) => outcome.or_raise(),
        Err(panic) => match panic.downcast::<Stopped>() {
            Ok(stopped) => Err(stopped.0),
            Err(panic) => resume_unwind(panic),
        },
    }
}
