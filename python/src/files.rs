//! Sets of files: opened, checked, read by rank, written, and written anew under another layout.

use crate::comm::{communicator, time};
use crate::error::{OrRaise, told, wrong, wrong_type};
use crate::layout::{Layout, extents, layout_of, ranks};
use crate::memory::{Memory, Place, Role, allocate, described, dtype_of};
use crate::numbers::{Whole, optional, shown};
use crate::request::permutation;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use reshard::{ElementType, MemoryOrder};
use reshard_shards::collective::Ranks;
use reshard_shards::{
    ConvertOptions, Converted, Format, Import, Layouts, convert_arrays, element_from_npy, npy_descr,
};
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
struct Described<'a, 'p> {
    layout: Option<&'a Bound<'p, PyAny>>,
    shape: Option<&'a Bound<'p, PyAny>>,
    dtype: Option<&'a Bound<'p, PyAny>>,
}

impl Described<'_, '_> {
    fn open(&self, path: &Path) -> PyResult<reshard_shards::ShardSet> {
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
fn is_pattern(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(['{', '}']))
}

/// Layouts: one for all arrays, or rules `PATTERN=LAYOUT` by their names, as a list or a dict.
fn rules(given: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<String>> {
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
fn ranks_of(comm: &Bound<'_, PyAny>, deadline: PyResult<Duration>) -> PyResult<(Ranks, u64)> {
    let raw = communicator(comm)?;
    let deadline = deadline.unwrap_or(PATIENCE);
    let own = comm.py().detach(|| Ranks::of(&raw, deadline)).or_raise()?;
    Ok((own, raw.rank() as u64))
}

/// How long ranks wait for each other.
fn patience(deadline: Option<&Bound<'_, PyAny>>) -> PyResult<Duration> {
    Ok(deadline.map_or(Ok(Some(PATIENCE)), time)?.unwrap_or(Duration::MAX / 4))
}

/// What this rank prepared alone, if all ranks have; its own exception says more than what all are told. Collective.
fn agreed<T>(py: Python<'_>, ranks: &Ranks, mine: PyResult<T>) -> PyResult<T> {
    let said = mine.as_ref().map(|_| ()).map_err(told);
    let all = py.detach(|| ranks.agree(said));
    let mine = mine?;
    all.or_raise().map(|()| mine)
}

/// The path that Python gives for something.
fn path_of(given: &Bound<'_, PyAny>, what: &str) -> PyResult<PathBuf> {
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

/// What a conversion is to do, as it was given.
struct Conversion<'a, 'p> {
    src: &'a Bound<'p, PyAny>,
    dst: &'a Bound<'p, PyAny>,
    to: &'a Bound<'p, PyAny>,
    described: Described<'a, 'p>,
    memory: Option<&'a Bound<'p, PyAny>>,
    axes: Option<&'a Bound<'p, PyAny>>,
    format: Option<&'a Bound<'p, PyAny>>,
    names: Option<&'a Bound<'p, PyAny>>,
    threads: Option<&'a Bound<'p, PyAny>>,
    resume: &'a Bound<'p, PyAny>,
    checksums: &'a Bound<'p, PyAny>,
}

/// What is converted: source, destination, options, and a layout for each array.
type Prepared = (reshard_shards::ShardSet, PathBuf, ConvertOptions, Vec<reshard::Layout>);

impl Conversion<'_, '_> {
    fn prepared(&self) -> PyResult<Prepared> {
        let source = self.described.open(&path_of(self.src, "src")?)?;
        let mut options = ConvertOptions::default().resuming(self.resume.is_truthy()?);
        if let Some(bytes) = optional(self.memory, "memory")? {
            options = options.with_memory(bytes);
        }
        if let Some(threads) = optional(self.threads, "threads")? {
            options = options.with_threads(usize::try_from(threads.max(1)).unwrap_or(usize::MAX));
        }
        if !self.checksums.is_truthy()? {
            options = options.without_checksums();
        }
        let mut shape =
            source.arrays().first().map_or(Vec::new(), |array| array.layout().distribution().shape());
        if let Some(axes) = self.axes {
            let axes = permutation(axes, shape.len())?;
            if axes.iter().all(|&axis| axis < shape.len()) {
                shape = axes.iter().map(|&axis| shape[axis]).collect();
            }
            options = options.with_axes(&axes);
        }
        if let (Ok(layout), [_]) = (self.to.cast::<Layout>(), source.arrays()) {
            let wanted = layout.get().0.distribution().shape();
            if wanted != shape {
                return Err(wrong(format!(
                    "to was given as {}, and the array becomes {shape:?}; give a layout of that shape, or its notation without one",
                    layout.get().0
                )));
            }
        }
        let (dst, options) = self.named(&source, options)?;
        let layouts =
            options.layouts(&source, &Layouts::new(rules(self.to, "to")?).or_raise()?).or_raise()?;
        if is_one_file(&dst)
            && let Some(layout) = layouts.iter().find(|layout| layout.distribution().grid().size() != 1)
        {
            return Err(wrong(format!(
                "dst was given as {}, one file, and the layout {layout} has {} ranks; give a directory, or a layout of one rank",
                dst.display(),
                layout.distribution().grid().size()
            )));
        }
        Ok((source, dst, options, layouts))
    }

    /// Where the new files go, how they are named and what they are: the directory may have a pattern of names after it, and what names end in
    /// says what they are.
    fn named(
        &self,
        source: &reshard_shards::ShardSet,
        options: ConvertOptions,
    ) -> PyResult<(PathBuf, ConvertOptions)> {
        let mut dst = path_of(self.dst, "dst")?;
        let mut names = self.names.map(PyAnyMethods::extract::<String>).transpose()?;
        if is_pattern(&dst) {
            let pattern = dst.file_name().map(|name| name.to_string_lossy().into_owned());
            if names.is_some() {
                return Err(wrong("names were given twice, in dst and as names; give one of them"));
            }
            names = pattern;
            dst.pop();
        }
        let one_file = is_one_file(&dst);
        if one_file && names.is_some() {
            return Err(wrong(format!(
                "names was given, and dst is one file, {}, which has its own name; leave names out",
                dst.display()
            )));
        }
        let called = names.clone().map_or_else(|| dst.clone(), PathBuf::from);
        let by_name = format_by_name(&called).or(names.is_some().then_some(Format::Raw));
        let format = match (self.format.map(format_of).transpose()?, by_name) {
            (Some(format), Some(other)) if format != other && format_by_name(&called).is_some() => {
                return Err(wrong(format!(
                    "files of the format {} were to be called {}; npy files end in .npy, safetensors files in .safetensors, raw ones in .bin \
                     or otherwise",
                    format.name(),
                    called.display()
                )));
            }
            (Some(format), _) | (None, Some(format)) => format,
            (None, None) if source.arrays().len() > 1 => Format::Safetensors,
            (None, None) => Format::Npy,
        };
        let mut options = options.with_format(format);
        if let Some(names) = names {
            options = options.with_names(names);
        }
        Ok((dst, if one_file { options.as_one_file() } else { options }))
    }
}

fn format_by_name(path: &Path) -> Option<Format> {
    let ending = path.extension()?.to_str()?;
    let all = [("npy", Format::Npy), ("bin", Format::Raw), ("safetensors", Format::Safetensors)];
    all.into_iter().find_map(|(known, format)| (ending == known).then_some(format))
}

/// True if a destination is one file, by its ending.
fn is_one_file(path: &Path) -> bool {
    format_by_name(path).is_some()
}

/// Writes a set anew under another layout, in at most `memory` bytes whatever its size. Returns what it did.
#[pyfunction]
#[pyo3(signature = (src, dst, to, comm=None, *, layout=None, shape=None, dtype=None, memory=None, axes=None, format=None, names=None, threads=None, resume=None, checksums=None, progress=None, deadline=None))]
#[allow(clippy::too_many_arguments)]
pub fn convert<'p>(
    py: Python<'p>,
    src: &Bound<'p, PyAny>,
    dst: &Bound<'p, PyAny>,
    to: &Bound<'p, PyAny>,
    comm: Option<&Bound<'p, PyAny>>,
    layout: Option<&Bound<'p, PyAny>>,
    shape: Option<&Bound<'p, PyAny>>,
    dtype: Option<&Bound<'p, PyAny>>,
    memory: Option<&Bound<'p, PyAny>>,
    axes: Option<&Bound<'p, PyAny>>,
    format: Option<&Bound<'p, PyAny>>,
    names: Option<&Bound<'p, PyAny>>,
    threads: Option<&Bound<'p, PyAny>>,
    resume: Option<&Bound<'p, PyAny>>,
    checksums: Option<&Bound<'p, PyAny>>,
    progress: Option<Py<PyAny>>,
    deadline: Option<&Bound<'p, PyAny>>,
) -> PyResult<Bound<'p, PyDict>> {
    let (no, yes) = (PyBool::new(py, false), PyBool::new(py, true));
    let conversion = Conversion {
        src,
        dst,
        to,
        described: Described { layout, shape, dtype },
        memory,
        axes,
        format,
        names,
        threads,
        resume: resume.unwrap_or(&no),
        checksums: checksums.unwrap_or(&yes),
    };
    let Some(comm) = comm else {
        if deadline.is_some() {
            return Err(wrong("deadline is for ranks on a communicator; give comm, too, or leave it out"));
        }
        let (source, dst, options, layouts) = conversion.prepared()?;
        let converted =
            watched(py, progress, true, |watch| convert_arrays(&source, &dst, &layouts, &options, watch))?;
        return told_conversion(py, &converted);
    };
    let wait = patience(deadline);
    let refused = wait.as_ref().map(|_| ()).map_err(|error| error.clone_ref(py));
    let (own, _) = ranks_of(comm, wait)?;
    let (source, dst, options, layouts) = agreed(py, &own, refused.and_then(|()| conversion.prepared()))?;
    // Other ranks would wait for one that stops.
    let converted =
        watched(py, progress, false, |watch| own.convert_arrays(&source, &dst, &layouts, &options, watch))?;
    told_conversion(py, &converted)
}

fn format_of(given: &Bound<'_, PyAny>) -> PyResult<Format> {
    let all = [Format::Npy, Format::Raw, Format::Safetensors];
    let name = given.extract::<String>().unwrap_or_default();
    all.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        wrong(format!("format was given as {}; there are {}", shown(given), all.map(Format::name).join(", ")))
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

/// Does what takes long without the interpreter, and tells `progress` how far it has come. If that raises an exception or Ctrl-C was pressed it ends early,
/// or, if it may not stop, raises that at its end.
fn watched<T: Send>(
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
