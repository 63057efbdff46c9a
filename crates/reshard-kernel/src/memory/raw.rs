//! Parts given as addresses, for callers without Rust's borrows: C, Python, files mapped by somebody else.
//!
//! All other ways in take slices, and the compiler keeps them apart. Here a source may be the very memory of a destination: what
//! would be overwritten before it is read is copied first.

use super::checks::{check_length, mismatch};
use reshard_plan::error::counted;
use reshard_plan::{Layout, MAX_DIMS, Result, memory};
use std::ops::Range;

/// One rank's part of an array, as an address.
#[derive(Clone, Copy, Debug)]
pub struct RawPart {
    address: *mut u8,
    bytes: usize,
    /// The strides, of as many dimensions as there is room for, and how many were given.
    strides: Option<([u64; MAX_DIMS], usize)>,
}

// SAFETY: an address alone; who enters it into a run vouches for its use.
unsafe impl Send for RawPart {}
// SAFETY: likewise.
unsafe impl Sync for RawPart {}

impl RawPart {
    /// The part of a rank that has none.
    pub const NONE: Self = Self { address: std::ptr::null_mut(), bytes: 0, strides: None };

    /// Memory of so many bytes from an address on. A source is only read.
    pub fn new(address: *mut u8, bytes: usize) -> Self {
        Self { address, bytes, strides: None }
    }

    /// States the strides of the part, in elements, one for each dimension of the array: a run refuses them if the plan has
    /// others.
    #[must_use]
    pub fn with_strides(self, strides: &[u64]) -> Self {
        let mut all = [0; MAX_DIMS];
        all.iter_mut().zip(strides).for_each(|(place, stride)| *place = *stride);
        Self { strides: Some((all, strides.len())), ..self }
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.address
    }

    /// The addresses it spans.
    fn span(&self) -> (usize, usize) {
        let begin = self.address.addr();
        (begin, begin.saturating_add(self.bytes))
    }

    /// Fails if the part is too short, or has other strides than the plan.
    pub(super) fn check(&self, side: &str, rank: u64, span: u64, elem: u64, layout: &Layout) -> Result<()> {
        check_length(side, rank, self.bytes, span, elem)?;
        if self.address.is_null() && span > 0 {
            return Err(mismatch(format!(
                "the {side} part of rank {rank} was given as a null pointer; it has elements"
            )));
        }
        let Some((strides, dims)) = &self.strides else { return Ok(()) };
        let planned = layout.strides(rank)?;
        let Some(given) = strides.get(..*dims) else {
            return Err(mismatch(format!(
                "the {side} part of rank {rank} was given with {dims} strides; its array has {}",
                counted(planned.len(), "dimension")
            )));
        };
        if given == planned {
            return Ok(());
        }
        Err(mismatch(format!(
            "the {side} part of rank {rank} was given with strides {given:?}, and the plan was made for {planned:?}; plan with the \
             strides of the memory"
        )))
    }
}

/// What was entered as addresses since the table began to be filled.
#[derive(Default)]
pub struct RawEntries {
    /// Sources that are read where they are, and their places in the table.
    sources: Vec<(usize, RawPart)>,
    /// The first address and the end of every destination, and its place in the table.
    targets: Vec<((usize, usize), usize)>,
    /// Copies of sources that a destination overlaps.
    copies: Vec<Vec<u8>>,
}

impl RawEntries {
    pub fn add_source(&mut self, at: usize, part: &RawPart) {
        self.sources.push((at, *part));
    }

    pub fn add_target(&mut self, at: usize, part: &RawPart) {
        self.targets.push((part.span(), at));
    }

    /// Copies the sources that a destination overlaps. Returns their places in the table, and the addresses of the copies.
    ///
    /// # Safety
    /// The raw sources can be read.
    pub unsafe fn copy_overlapped_sources(&mut self) -> Result<Vec<(usize, *const u8)>> {
        let Self { sources, targets, copies } = self;
        targets.sort_unstable();
        // For each destination, the furthest end of those before it: they may interleave.
        let mut furthest = 0;
        let ends = targets.iter().map(|&((_, end), _)| {
            furthest = end.max(furthest);
            furthest
        });
        let ends: Vec<usize> = ends.collect();
        let overlaps = |(begin, end): (usize, usize)| {
            let before = targets.partition_point(|&((first, _), _)| first < end);
            begin < end && before > 0 && ends[before - 1] > begin
        };
        // All copies, or none: a source that is not copied stays on the list.
        let mut copied = Vec::new();
        for (at, part) in sources.iter().filter(|(_, part)| overlaps(part.span())) {
            let mut copy = memory::with_room(part.bytes, "the copy of a source that a destination overlaps")?;
            // SAFETY: readable by the caller's promise.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(part.address, part.bytes) });
            copied.push((*at, copy));
        }
        sources.retain(|(_, part)| !overlaps(part.span()));
        let addresses = copied.iter().map(|(at, copy)| (*at, copy.as_ptr())).collect();
        copies.extend(copied.into_iter().map(|(_, copy)| copy));
        Ok(addresses)
    }

    pub fn clear(&mut self) {
        // Copies may be as large as the arrays: their memory is given back.
        *self = Self::default();
    }

    /// Forgets the parts at some places of the table.
    pub fn forget(&mut self, sources: &Range<usize>, targets: &Range<usize>) {
        self.sources.retain(|(at, _)| !sources.contains(at));
        self.targets.retain(|(_, at)| !targets.contains(at));
    }

    /// True if a source is read from a copy, as its own memory is written to.
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}
