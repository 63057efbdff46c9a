//! One array of a conversion: where it comes from and where it goes, into which boxes it is cut, and how a box is moved. The boxes of all
//! arrays are numbered through, so whoever reads, writes or continues them need not know how many arrays there are.

use crate::array::Array;
use crate::boxes::{Boxes, Files};
use crate::contents::ONLY_NAME;
use crate::manifest::{Format, Made};
use crate::options::ConvertOptions;
use reshard::error::counted;
use reshard::{Error, ErrorKind, Layout, Move, Result, Window};
use std::ops::Range;

/// Memory for everything but the boxes: file buffers, plans, threads.
const OVERHEAD_BYTES: u64 = 8 << 20;

/// Bytes of a box that caches have twice, once for each side: half of it takes longer, as more boxes are begun, and eight times of it
/// twice as long (Xeon of model 85, 33 MiB).
const CACHED_BOX_BYTES: u64 = 16 << 20;

/// An array of a conversion.
pub struct OneArray<'s> {
    pub from: &'s Array,
    /// Without parts.
    pub to: Array,
    /// Dimension `d` of the destination is dimension `axes[d]` of the source.
    axes: Vec<usize>,
    pub boxes: Boxes,
    /// The number of its first box.
    pub first_box: u64,
    /// Which parts of the source must be equal.
    pub firsts: Vec<usize>,
}

impl<'s> OneArray<'s> {
    pub fn new(from: &'s Array, to: &Layout, options: &ConvertOptions) -> Result<Self> {
        let dims = to.distribution().dims();
        let axes = options.axes.clone().unwrap_or_else(|| (0..dims).collect());
        let shape = to.distribution().shape();
        let from_shape = from.layout.distribution().shape();
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..from_shape.len())
            || axes.iter().map(|&axis| from_shape[axis]).ne(shape.iter().copied())
        {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} has the shape {from_shape:?}, and the layout {to} was given for it{}; give one of that shape",
                    if from.name.is_empty() { "the set".into() } else { from.called() },
                    if options.axes.is_some() { format!(" with the axes {axes:?}") } else { String::new() }
                ),
            ));
        }
        let made = from.made.as_ref();
        let made = made
            .map(|made| Made { seed: made.seed, axes: axes.iter().map(|&axis| made.axes[axis]).collect() });
        let name = match (options.format, &from.name[..]) {
            (Format::Npy | Format::Raw, _) => "",
            (Format::Safetensors, "") => ONLY_NAME,
            (Format::Safetensors, name) => name,
        };
        // Manifests of the other formats have no numbers without dimensions.
        let scalar = from.scalar && options.format == Format::Safetensors;
        let array = Array { name: name.into(), scalar, made, ..Array::new(to.clone(), from.element) };
        let source = Files::of(&from.layout, Some(&axes));
        let there = Files::of(to, None);
        // Every copy of a replicated array is read, for its checksums, and written.
        let copies = to.distribution().copies().max(from.layout.distribution().copies());
        let budget = options.box_bytes.unwrap_or((options.memory - OVERHEAD_BYTES) / 2 / copies);
        let of = |budget| Boxes::new(&shape, from.element.bytes(), budget, &source, &there);
        let in_order =
            |boxes: &Boxes| boxes.are_in_order(&source.slow_first) && boxes.are_in_order(&there.slow_first);
        // Where files are passed through from the first byte to the last anyway, what is read stays in the caches until it is written.
        let cached = Some(of(budget.min(CACHED_BOX_BYTES))).filter(in_order);
        let boxes = cached.unwrap_or_else(|| of(budget));
        let firsts = from.first_copies()?;
        Ok(Self { from, to: array, axes, boxes, first_box: 0, firsts })
    }

    /// What is moved: another run does not continue it.
    pub fn identity(&self) -> String {
        let Self { from, to, axes, boxes, .. } = self;
        let name = if to.name.is_empty() { String::new() } else { format!("{:?} ", to.name) };
        let Array { layout, element, .. } = from;
        format!("{name}{element} {layout} to {} axes {axes:?} boxes {:?}", to.layout, boxes.extents())
    }

    /// The numbers of its boxes.
    pub fn numbers(&self) -> Range<u64> {
        self.first_box..self.first_box + self.boxes.count()
    }

    /// A box of the destination.
    pub fn region(&self, number: u64) -> Vec<Range<u64>> {
        self.boxes.region(number - self.first_box)
    }

    /// Bytes of a box, without copies.
    pub fn bytes_of(&self, region: &[Range<u64>]) -> u64 {
        self.from.element.bytes() * region.iter().map(|range| range.end - range.start).product::<u64>()
    }

    /// The box of the source that becomes a box of the destination.
    pub fn source_region(&self, region: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut from = vec![0..0; region.len()];
        for (range, &axis) in region.iter().zip(&self.axes) {
            from[axis] = range.clone();
        }
        from
    }

    /// What is to be moved for a box of the destination.
    pub fn moving(&self, region: &[Range<u64>]) -> Result<Move> {
        let from_region = self.source_region(region);
        let part = |layout: &Layout, region: &[Range<u64>]| -> Result<Layout> {
            Ok(Layout::new(layout.distribution().within(region)?, layout.order()))
        };
        let (from, to) = (part(&self.from.layout, &from_region)?, part(&self.to.layout, region)?);
        let shape: Vec<u64> = from_region.iter().map(|range| range.end - range.start).collect();
        let zero = vec![0; shape.len()];
        let window = Window::of(&shape).from(&zero).to(&zero).permuted(&self.axes);
        Move::windowed::<u8>(from, to, window)?.of_bytes(self.from.element.bytes())
    }
}

/// Fails unless one file can hold all arrays: each on one rank, and all on the same.
pub fn check_one_rank(to: &[Layout]) -> Result<()> {
    let grid = |to: &Layout| (to.distribution().grid().size(), to.distribution().grid().max_rank());
    let why = if let Some(other) = to.iter().find(|to| grid(to).0 != 1) {
        let ranks = counted(grid(other).0, "rank");
        format!("the layout {other} has {ranks}; give a directory, or a layout of one rank")
    } else if let Some(other) = to.iter().find(|other| grid(other) != grid(&to[0])) {
        let ranks = [&to[0], other].map(|to| grid(to).1.unwrap_or_default());
        format!(
            "the layouts {} and {other} have the ranks {} and {}; give a directory, or layouts of the same rank",
            to[0], ranks[0], ranks[1]
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Mismatch, format!("one file was to be written, and {why}")))
}
