//! A box of an array, distributed as the array is: every element stays where it is. So an array that is larger than the memory can be moved
//! box by box, each with a plan of its own.

use crate::axis::{Axis, Deal, Piece};
use crate::distribution::Distribution;
use crate::error::{Error, ErrorKind, Result, counted};
use std::ops::Range;

impl Axis {
    /// The indices of a range, owned as in this axis and counted from its start.
    ///
    /// ```
    /// use reshard_plan::Axis;
    /// let axis = Axis::block_cyclic(10, 3, 2, 0)?; // 0011220011
    /// let within = axis.within(3..9)?; // 122001
    /// assert_eq!((0..6).map(|index| within.owner(index)).collect::<Option<Vec<_>>>(), Some(vec![1, 2, 2, 0, 0, 1]));
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn within(&self, range: Range<u64>) -> Result<Self> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("the range {}..{} was given of an axis of {}", range.start, range.end, self.len()),
            ));
        }
        let length = range.end - range.start;
        if self.is_replicated() {
            return Self::new(length, self.procs(), &Deal::Whole, 0);
        }
        if let (Some((block, _)), Some(first)) = (self.cyclic_parameters(), self.owner(range.start))
            && (range.start.is_multiple_of(block) || self.procs() == 1)
        {
            return Self::block_cyclic(length, self.procs(), block, first);
        }
        let (mut pieces, mut start) = (Vec::new(), range.start);
        while start < range.end
            && let Some((owner, end)) = self.block_at(start)
        {
            let end = end.min(range.end);
            pieces.push(Piece { len: end - start, owner });
            start = end;
        }
        if pieces.is_empty() {
            pieces.push(Piece { len: 0, owner: 0 });
        }
        Self::new(length, self.procs(), &Deal::Cuts(pieces), 0)
    }

    /// Which of its elements a process has in a range: their local indices follow each other.
    pub fn local_range(&self, process: u64, range: &Range<u64>) -> Range<u64> {
        self.elems_before(process, range.start)..self.elems_before(process, range.end)
    }
}

impl Distribution {
    /// The elements of a box, one range for each dimension, on the ranks that own them here, counted from the box's first corner.
    pub fn within(&self, region: &[Range<u64>]) -> Result<Self> {
        self.check_dims(region)?;
        let axes = self.axes().iter().zip(region).map(|(axis, range)| axis.within(range.clone()));
        Self::new(self.grid().clone(), axes.collect::<Result<_>>()?)
    }

    /// Which of its elements a rank has in a box: a box of its part, in local indices.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2x2/3x3 of 10x10".parse()?;
    /// // Of the rows 4 to 9 rank 0 has 6, 7 and 8: its local rows 3, 4 and 5.
    /// assert_eq!(layout.distribution().local_region(0, &[4..10, 0..10])?, [3..6, 0..6]);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn local_region(&self, rank: u64, region: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        self.check_dims(region)?;
        let coords = self.coords(rank)?;
        let axes = self.axes().iter().zip(coords).zip(region);
        Ok(axes.map(|((axis, process), range)| axis.local_range(process, range)).collect())
    }

    fn check_dims(&self, region: &[Range<u64>]) -> Result<()> {
        match region.len() == self.dims() {
            true => Ok(()),
            false => Err(Error::mismatch(format!(
                "a box of {} was given for an array of {}; give a range for each",
                counted(region.len(), "dimension"),
                self.dims()
            ))),
        }
    }
}
