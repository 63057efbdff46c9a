//! Sets of files written anew under another layout: what was said becomes options, of one process or of all ranks of a communicator.

use crate::error::{OrRaise, wrong};
use crate::files::{Described, agreed, format_of, is_pattern, path_of, patience, ranks_of, rules, watched};
use crate::layout::Layout;
use crate::numbers::optional;
use crate::request::permutation;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use reshard_shards::{ConvertOptions, Converted, Format, Layouts, convert_arrays};
use std::path::{Path, PathBuf};

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
