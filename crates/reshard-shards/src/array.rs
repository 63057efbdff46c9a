//! What is in a set, apart from the files that hold it: arrays, each with a name, a type and a layout, and for each of its parts in which
//! file it is, and where. Files of tensors hold parts of many arrays, the others of one, which then has no name.

use crate::element::called;
use crate::manifest::Made;
use crate::region::Region;
use reshard::{ElementType, Error, ErrorKind, Layout, Result};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

/// An array of a set.
#[derive(Clone, Debug)]
pub struct Array {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) element: ElementType,
    /// It is one number without dimensions, whose layout says that it has one dimension of length 1.
    pub(crate) scalar: bool,
    pub(crate) made: Option<Made>,
    /// By ascending rank.
    pub(crate) parts: Vec<Part>,
}

/// The part that one rank has of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub rank: u64,
    /// The file it is in.
    pub file: usize,
    /// Where in the file its elements begin.
    pub start: u64,
}

impl Array {
    /// An array without a name, of which no part is anywhere yet.
    pub(crate) fn new(layout: Layout, element: ElementType) -> Self {
        Self { name: String::new(), layout, element, scalar: false, made: None, parts: Vec::new() }
    }

    /// Its name; empty if the files of the set have one array each.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is distributed over the files. A number without dimensions has one of length 1 here.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Type of its elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Set if the elements are a function of their index.
    pub fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }

    /// Bytes of all its elements, copies not counted.
    pub fn bytes(&self) -> u64 {
        self.layout.distribution().elems() * self.element.bytes()
    }

    /// As errors call it.
    pub(crate) fn called(&self) -> String {
        called(&self.name)
    }

    /// Its place among others: larger elements first, then by name, as the parts follow each other in files of tensors.
    pub(crate) fn place(&self) -> (Reverse<u64>, &str) {
        (Reverse(self.element.bytes()), &self.name)
    }

    /// The shape of a rank's part, as the header of its file says it.
    pub(crate) fn part_shape(&self, rank: u64) -> Result<Vec<u64>> {
        if self.scalar {
            return Ok(Vec::new());
        }
        self.layout.distribution().local_shape(rank)
    }

    /// Fails if it is a number and some rank of its layout has no part of it: headers of files cannot say so.
    pub(crate) fn check_number(&self) -> Result<()> {
        let distribution = self.layout.distribution();
        if !self.scalar || distribution.copies() == distribution.grid().size() {
            return Ok(());
        }
        let pattern = distribution.pattern();
        Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "{} is a number, and its layout {pattern} divides it; give one in which each rank has it, as in '(*) on {}'",
                self.called(),
                distribution.grid().size()
            ),
        ))
    }

    /// A box of a part in its file.
    pub(crate) fn region(&self, part: &Part, region: &[Range<u64>]) -> Result<Region> {
        let distribution = self.layout.distribution();
        let local = distribution.local_region(part.rank, region)?;
        let shape = distribution.local_shape(part.rank)?;
        Ok(Region::new(&shape, self.layout.order(), &local, self.element.bytes(), part.start))
    }

    /// For each part the first one that has the same elements; nothing if each element is in one part.
    pub(crate) fn first_copies(&self) -> Result<Vec<usize>> {
        let distribution = self.layout.distribution();
        if distribution.copies() == 1 {
            return Ok(Vec::new());
        }
        let mut seen = HashMap::new();
        let first = |(number, part): (usize, &Part)| {
            let mut coords = distribution.coords(part.rank)?;
            for (coord, axis) in coords.iter_mut().zip(distribution.axes()) {
                *coord = if axis.copies() > 1 { 0 } else { *coord };
            }
            Ok(*seen.entry(coords).or_insert(number))
        };
        self.parts.iter().enumerate().map(first).collect()
    }
}
