//! Sets of files: opened, checked, read by rank, written, and written anew under another layout.

use crate::comm::{communicator, time};
use crate::error::{OrRaise, told, wrong, wrong_type};
use crate::layout::{Layout, extents, layout_of, ranks};
use crate::memory::{Memory, Place, Role, allocate, described, dtype_of};
use crate::numbers::{Whole, shown};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use reshard::{ElementType, MemoryOrder};
use reshard_shards::collective::Ranks;
use reshard_shards::{Format, Import, Layouts, element_from_npy, npy_descr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the ranks of a job wait for each other, if nothing is said: one may have far more to read.
const PATIENCE: Duration = Duration::from_secs(3600);

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
    /// The names of its arrays; that of the only one may be empty.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.set.arrays().iter().map(|array| array.name().to_string()).collect()
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.set.bytes()
    }
    /// The layout of the only array.
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
    /// The part that a rank has under any layout: what it needs is read, and of the rest what lies between short pieces. Rank 0 if none is said.
    #[pyo3(signature = (layout, rank=None, *, name=None))]
    fn load_as<'p>(
        &self,
        py: Python<'p>,
        layout: &Bound<'p, PyAny>,
        rank: Option<Whole>,
        name: Option<&str>,
    ) -> PyResult<Bound<'p, PyAny>> {
        let (layout, array) = (layout_of(layout, "layout")?, self.array(name)?);
        let rank = rank.map_or(0, |rank| rank.0);
        let part = allocate(&layout, rank, &dtype_of_element(py, array.element())?, true)?;
        let memory = Memory::of(&part, Role::Part(rank))?;
        // SAFETY: a new array that nobody else knows.
        let bytes = unsafe { memory.bytes_mut() };
        py.detach(|| self.set.load_array_bytes_as(array.name(), &layout, rank, bytes)).or_raise()?;
        Ok(part)
    }
    /// Reads everything, and checks it.
    #[pyo3(signature = (progress=None))]
    fn verify<'p>(&self, py: Python<'p>, progress: Option<Py<PyAny>>) -> PyResult<Bound<'p, PyDict>> {
        let verified = watched(py, progress, true, |watch| self.set.verify(watch))?;
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
pub struct Described<'a, 'p> {
    pub layout: Option<&'a Bound<'p, PyAny>>,
    pub shape: Option<&'a Bound<'p, PyAny>>,
    pub dtype: Option<&'a Bound<'p, PyAny>>,
}

impl Described<'_, '_> {
    pub fn open(&self, path: &Path) -> PyResult<reshard_shards::ShardSet> {
        let says = self.layout.is_some() || self.shape.is_some() || self.dtype.is_some();
        if !is_pattern(path) && !path.is_file() {
            if says {
                return Err(wrong(format!(
                    "layout, shape or dtype was given for {}, and describes files without a manifest; name them, as in \
                     \"folder/rank_{{rank:04}}.npy\", or leave it out",
                    path.display()
                )));
            }
            return reshard_shards::ShardSet::open(path).or_raise();
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
        reshard_shards::ShardSet::import(path, &import).or_raise()
    }
}

/// True if the last part of a path is a pattern of names.
pub fn is_pattern(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(['{', '}']))
}

/// Layouts: one for all arrays, or rules `PATTERN=LAYOUT` by their names, as a list or a dict.
pub fn rules(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<String>> {
    if given.cast::<Layout>().is_ok() || given.cast::<PyString>().is_ok() {
        return Ok(vec![rule(given)?]);
    }
    if let Ok(by_name) = given.cast::<PyDict>() {
        let named =
            |(name, layout): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok(format!("{name}={}", rule(&layout)?));
        return by_name.iter().map(named).collect();
    }
    given.extract().map_err(|_| {
        wrong_type(format!(
            "{what} was given as {}; give a layout such as \"3x3/100x100\", or a dict of such by patterns of names",
            described(given)
        ))
    })
}

/// The layout of a rule: without a shape, which the files have.
fn rule(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let Ok(layout) = given.cast::<Layout>() else { return Ok(given.str()?.to_string()) };
    let layout = &layout.get().0;
    let memory = if layout.order() == MemoryOrder::RowMajor { " memory=row" } else { "" };
    Ok(format!("{}{memory}", layout.distribution().pattern()))
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

/// Opens a set of files: a directory with a manifest; or files without one, as a pattern of names and their layout.
#[pyfunction]
#[pyo3(name = "open", signature = (path, *, layout=None, shape=None, dtype=None))]
pub fn open_set(
    path: PathBuf,
    layout: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<ShardSet> {
    let set = Described { layout, shape, dtype }.open(&path)?;
    Ok(ShardSet { set, path })
}

/// The ranks of a communicator that work on files together.
pub fn ranks_of(comm: &Bound<'_, PyAny>, deadline: PyResult<Duration>) -> PyResult<(Ranks, u64)> {
    let raw = communicator(comm)?;
    let deadline = deadline.unwrap_or(PATIENCE);
    let own = comm.py().detach(|| Ranks::of(&raw, deadline)).or_raise()?;
    Ok((own, raw.rank() as u64))
}

/// How long ranks wait for each other.
pub fn patience(deadline: Option<&Bound<'_, PyAny>>) -> PyResult<Duration> {
    Ok(deadline.map_or(Ok(Some(PATIENCE)), time)?.unwrap_or(Duration::MAX / 4))
}

/// What this rank prepared alone, if all ranks have; its own exception says more than what all are told. Collective.
pub fn agreed<T>(py: Python<'_>, ranks: &Ranks, mine: PyResult<T>) -> PyResult<T> {
    let said = mine.as_ref().map(|_| ()).map_err(told);
    let all = py.detach(|| ranks.agree(said));
    let mine = mine?;
    all.or_raise().map(|()| mine)
}

/// The path that Python gives for something.
pub fn path_of(given: &Bound<'_, PyAny>, what: &str) -> PyResult<PathBuf> {
    given.extract().map_err(|_| wrong_type(format!("{what} was given as {}; give a path", shown(given))))
}

/// Writes the parts of all ranks, or each rank its own over a communicator, as a set that is absent or complete.
#[pyfunction]
#[pyo3(signature = (path, layout, parts, comm=None, *, format=None, dtype=None, deadline=None))]
#[allow(clippy::too_many_arguments)]
pub fn save(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    layout: &Bound<'_, PyAny>,
    parts: &Bound<'_, PyAny>,
    comm: Option<&Bound<'_, PyAny>>,
    format: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    deadline: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let stated = || {
        let format = format.map_or(Ok(Format::Npy), format_of)?;
        let named = dtype.map(element_of).transpose()?;
        Ok::<_, PyErr>((path_of(path, "path")?, layout_of(layout, "layout")?, format, named))
    };
    // What the parts are called must be what they are, unless NumPy has no name for it.
    let element = |kind: &Bound<'_, PyArrayDescr>, named: Option<ElementType>, role: Role| {
        let found = element_of(kind.as_any())?;
        match named {
            None => Ok(found),
            Some(named) if named == found => Ok(named),
            Some(named) if found.name().is_none() && named.bytes() == found.bytes() => Ok(named),
            Some(named) => Err(wrong_type(format!(
                "{role} has elements of type {kind}, and dtype was given as {named}; only raw bytes (as V2) can be called another type of \
                 their size"
            ))),
        }
    };
    let read = |part: &Bound<'_, PyAny>, layout: &reshard::Layout, named, rank: u64| {
        let role = Role::Source(rank);
        let memory = Memory::of(part, role)?;
        let kind = memory.dtype.bind(py).clone();
        memory.part(py, layout, &Place::of(layout, rank)?, &kind, role)?;
        Ok::<_, PyErr>((memory, element(&kind, named, role)?))
    };
    if let Some(comm) = comm {
        let wait = patience(deadline);
        let refused = wait.as_ref().map(|_| ()).map_err(|error| error.clone_ref(py));
        let (own, rank) = ranks_of(comm, wait)?;
        let mine = refused.and_then(|()| {
            let (path, layout, format, named) = stated()?;
            if layout.distribution().grid().contains(rank) {
                let (memory, element) = read(parts, &layout, named, rank)?;
                return Ok((path, layout, format, element, Some(memory)));
            }
            if !parts.is_none() && !Memory::of(parts, Role::Source(rank))?.shape.contains(&0) {
                return Err(wrong("a part was given, and this rank has none under the layout; give None"));
            }
            let none =
                || wrong("this rank has no part under the layout, so give the type of the elements as dtype");
            Ok((path, layout, format, named.ok_or_else(none)?, None))
        });
        let (path, layout, format, element, memory) = agreed(py, &own, mine)?;
        // SAFETY: the caller writes to the array for nothing else meanwhile.
        let bytes: &[u8] = memory.as_ref().map_or(&[], |memory| unsafe { memory.bytes() });
        return py.detach(|| own.save_bytes(&path, &layout, element, bytes, format)).or_raise();
    }
    if deadline.is_some() {
        return Err(wrong("deadline is for ranks on a communicator; give comm, too, or leave it out"));
    }
    let (path, layout, format, named) = stated()?;
    let given: Vec<Bound<'_, PyAny>> = parts.extract().map_err(|_| {
        wrong_type(format!(
            "the parts were given as {}; give a list of the parts of all ranks",
            described(parts)
        ))
    })?;
    let ranks = ranks(&layout)?;
    if given.len() != ranks.len() {
        return Err(wrong(format!(
            "{} parts were given for the {} ranks of {layout}",
            given.len(),
            ranks.len()
        )));
    }
    let memories = given.iter().zip(ranks).map(|(part, rank)| read(part, &layout, named, rank));
    let memories = memories.collect::<PyResult<Vec<_>>>()?;
    let Some((_, element)) = memories.first() else { return Err(wrong("no part was given")) };
    if let Some((_, other)) = memories.iter().find(|(_, other)| other != element) {
        return Err(wrong_type(format!(
            "parts with elements of type {element} and {other} were given; give one type to all"
        )));
    }
    // SAFETY: the caller writes to the arrays for nothing else meanwhile.
    let slices: Vec<&[u8]> = memories.iter().map(|(memory, _)| unsafe { memory.bytes() }).collect();
    py.detach(|| reshard_shards::save_bytes(&path, &layout, *element, &slices, format)).or_raise()
}

pub fn format_of(given: &Bound<'_, PyAny>) -> PyResult<Format> {
    let all = [Format::Npy, Format::Raw, Format::Safetensors];
    let name = given.extract::<String>().unwrap_or_default();
    all.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        wrong(format!("format was given as {}; there are {}", shown(given), all.map(Format::name).join(", ")))
    })
}

/// What ends a long piece of work in the middle: Ctrl-C, or an exception of the caller's own function.
struct Stopped(PyErr);

/// Does what takes long without the interpreter, and tells `progress` how far it has come. If that raises an exception or Ctrl-C was pressed it ends early,
/// or, if it may not stop, raises that at its end.
pub fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    may_stop: bool,
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> reshard::Result<T> + Send,
) -> PyResult<T> {
    let mut later = None;
    let mut watch = |done: u64, all: u64| {
        if later.is_some() {
            return;
        }
        let seen = Python::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, all)).map(drop))
        });
        match seen {
            // The work is undone on the way out, as after any failure; nothing is printed.
            Err(stopped) if may_stop => resume_unwind(Box::new(Stopped(stopped))),
            Err(stopped) => later = Some(stopped),
            Ok(()) => {}
        }
    };
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&mut watch))));
    match outcome {
        Ok(outcome) => outcome.or_raise().and_then(|done| later.map_or(Ok(done), Err)),
        Err(panic) => match panic.downcast::<Stopped>() {
            Ok(stopped) => Err(stopped.0),
            Err(panic) => resume_unwind(panic),
        },
    }
}
