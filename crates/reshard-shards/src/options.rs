//! How a set is converted, and what came of it.

use crate::array::Array;
use crate::element::called;
use crate::layouts::Layouts;
use crate::manifest::Format;
use crate::set::ShardSet;
use reshard::{Error, Layout, MemoryOrder, Result};

/// The least memory that is asked for.
pub const MIN_MEMORY: u64 = 16 << 20;

/// How a set is converted; every option has a default.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    pub(crate) memory: u64,
    pub(crate) threads: Option<usize>,
    pub(crate) resume: bool,
    pub(crate) axes: Option<Vec<usize>>,
    pub(crate) format: Format,
    names: String,
    pub(crate) checksums: bool,
    pub(crate) file: bool,
    pub(crate) box_bytes: Option<u64>,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            threads: None,
            resume: false,
            axes: None,
            format: Format::Npy,
            names: String::new(),
            checksums: true,
            file: false,
            box_bytes: None,
        }
    }
}

impl ConvertOptions {
    /// The most memory for elements in each process, in bytes. Default: 256 MiB.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory: bytes, ..self }
    }

    /// The number of threads; one on each core if not said.
    #[must_use]
    pub fn with_threads(self, threads: impl Into<Option<usize>>) -> Self {
        Self { threads: threads.into(), ..self }
    }

    /// Continues a run that did not come to its end.
    #[must_use]
    pub fn resuming(self, resume: bool) -> Self {
        Self { resume, ..self }
    }

    /// Dimension `d` of the new array is dimension `axes[d]` of the old one.
    #[must_use]
    pub fn with_axes(self, axes: &[usize]) -> Self {
        Self { axes: Some(axes.to_vec()), ..self }
    }

    /// What the new files are. Default: `.npy`.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// The names of the new files, such as `rank_{rank:04}.npy`. Default: that, or `.bin` for raw files, `.safetensors`.
    #[must_use]
    pub fn with_names(self, pattern: impl Into<String>) -> Self {
        Self { names: pattern.into(), ..self }
    }

    /// Writes one file, the destination, without a directory and a manifest: for layouts of one rank.
    #[must_use]
    pub fn as_one_file(self) -> Self {
        Self { file: true, ..self }
    }

    /// Neither checks the source's checksums nor writes any: faster, and nobody will notice what a disk or a network changes.
    #[must_use]
    pub fn without_checksums(self) -> Self {
        Self { checksums: false, ..self }
    }

    /// The bytes of a box, for tests: many boxes of small arrays.
    #[doc(hidden)]
    #[must_use]
    pub fn with_box_bytes(self, bytes: u64) -> Self {
        Self { box_bytes: Some(bytes), ..self }
    }

    /// The layout of each array of a set under some layouts by name. Parts are in the order that is said there, else in that of the source, or in
    /// the only one that the new files can have.
    pub fn layouts(&self, source: &ShardSet, layouts: &Layouts) -> Result<Vec<Layout>> {
        let dims = |array: &Array| array.layout.distribution().dims();
        layouts.check_used(source.arrays.iter().map(|array| (array.name(), dims(array))))?;
        let layout = |array: &Array| {
            let mut shape = array.layout.distribution().shape();
            let (pattern, order) = layouts.of(array.name(), shape.len())?;
            if let Some(axes) = self.axes.as_ref().filter(|axes| axes.iter().all(|&axis| axis < shape.len()))
            {
                shape = axes.iter().map(|&axis| shape[axis]).collect();
            }
            let only = (self.format == Format::Safetensors).then_some(MemoryOrder::RowMajor);
            let order = order.or(only).unwrap_or(array.layout.order());
            let distribution = pattern.over(&shape).map_err(|error| match array.name() {
                "" => error,
                name => Error::new(error.kind(), format!("{}: {error}", called(name))),
            })?;
            Ok(Layout::new(distribution, order))
        };
        source.arrays.iter().map(layout).collect()
    }

    /// The pattern of names.
    pub(crate) fn pattern(&self) -> &str {
        if self.names.is_empty() { self.format.default_names() } else { &self.names }
    }
}

/// What a conversion did, or would do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Converted {
    /// Bytes of all elements.
    pub bytes: u64,
    /// Boxes, each of which was read, moved and written; if several processes share them, those of this one.
    pub boxes: u64,
    /// Boxes that an earlier run had done: they are read and moved for their checksums, and not written.
    pub resumed: u64,
    /// Calls that read a run of elements, and that wrote one.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// Bytes of new files that were read once more for their checksums; if several processes share them, those of this one.
    pub reread_bytes: u64,
    /// Duration of all, and of its parts.
    pub seconds: f64,
    /// Reading, and checking what was read.
    pub read_seconds: f64,
    /// Moving from one layout to the other.
    pub move_seconds: f64,
    /// Writing, and the checksums of what was written.
    pub write_seconds: f64,
    /// Making it durable.
    pub sync_seconds: f64,
}
