//! The ownership of elements by ranks: a grid of processes and one axis for each dimension of the array.
//!
//! A [`Pattern`] does not need to know the array (`4x4/64x64`); applied to a shape it becomes a
//! [`Distribution`], which converts indices. Both are plain values that print and parse back (see
//! [`notation`](crate::notation)); a distribution prints its shape too: `4x4/64x64 of 8192x8192`.
//!
//! The owner of an element is found by the methods here. A tile map, with any owner for each n-dimensional tile, can be
//! added later as a second kind behind them; only modules that plan axis by axis use `axes`.

use crate::axis::{Axis, Deal, MAX_LEN, lcm_upto};
use crate::error::{Error, Result, counted};
use crate::grid::{Grid, by_x, elems_of, product};
use crate::memory;

/// A grid and a rule for each dimension, for an array of any shape: `4x4/64x64`, `(block, *) on 3x1`.
///
/// ```
/// use reshard_plan::Pattern;
/// let pattern: Pattern = "(cyclic(64), cyclic(64)) on 4x4".parse()?;
/// assert_eq!(pattern.to_string(), "4x4/64x64");
/// assert_eq!(pattern.over(&[8192, 8192])?.local_shape(5)?, [2048, 2048]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    grid: Grid,
    deals: Vec<Deal>,
    first: Vec<u64>,
}

impl Pattern {
    /// One rule and one first process for each dimension of the grid.
    pub fn new(grid: Grid, deals: Vec<Deal>, first: Vec<u64>) -> Result<Self> {
        let dims = grid.dims();
        if deals.len() != dims || first.len() != dims {
            return Err(Error::mismatch(format!(
                "the grid {} has {}, but {} and {} were given; give one of each for every dimension",
                by_x(grid.extents()),
                counted(dims, "dimension"),
                counted(deals.len(), "rule"),
                if first.len() == 1 {
                    "1 first process".to_string()
                } else {
                    format!("{} first processes", first.len())
                }
            )));
        }
        let pattern = Self { grid, deals, first };
        (0..dims).try_for_each(|dim| pattern.check(dim).map_err(|error| in_dimension(&error, dim, dims)))?;
        Ok(pattern)
    }

    /// Checks all of a dimension that can be checked without knowing the shape.
    fn check(&self, dim: usize) -> Result<()> {
        check_deal(&self.deals[dim], self.grid.extents()[dim], self.first[dim])
    }

    /// The grid of processes.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The rule of each dimension.
    pub fn deals(&self) -> &[Deal] {
        &self.deals
    }

    /// The process that owns the first block, for each dimension.
    pub fn first(&self) -> &[u64] {
        &self.first
    }

    /// The pattern applied to an array.
    pub fn over(&self, shape: &[u64]) -> Result<Distribution> {
        let dims = self.grid.dims();
        if shape.len() != dims {
            return Err(Error::mismatch(format!(
                "the array {} has {}, but the layout {self} has {dims}; they must be equal",
                by_x(shape),
                counted(shape.len(), "dimension")
            )));
        }
        let axes = shape
            .iter()
            .enumerate()
            .map(|(dim, &len)| self.axis(dim, len).map_err(|error| in_dimension(&error, dim, dims)))
            .collect::<Result<Vec<_>>>()?;
        Distribution::new(self.grid.clone(), axes)
    }

    /// Period of a dimension in elements: block times processes, or the length that the rule fixes; `None` if it depends on
    /// an array not yet known.
    pub fn round(&self, dim: usize) -> Option<u128> {
        match self.deals.get(dim)? {
            Deal::Cyclic(block) => Some(u128::from(*block) * u128::from(self.grid.extents()[dim])),
            Deal::Whole => Some(1),
            Deal::Block => None,
            deal => fixed_len(deal),
        }
    }

    /// True if the dimension's rule fixes the array's length (`gen_block`, `cuts`).
    pub fn fixes_length(&self, dim: usize) -> bool {
        self.deals.get(dim).is_some_and(|deal| fixed_len(deal).is_some())
    }

    fn axis(&self, dim: usize, len: u64) -> Result<Axis> {
        Axis::new(len, self.grid.extents()[dim], &self.deals[dim], self.first[dim])
    }

    /// The shape of one period in every dimension: the smallest array that has the whole pattern.
    pub fn one_round(&self) -> Result<Vec<u64>> {
        (0..self.grid.dims())
            .map(|dim| match self.round(dim) {
                Some(round) => u64::try_from(round).ok().filter(|&len| len <= MAX_LEN).ok_or_else(|| {
                    Error::too_large(format!(
                        "one round of {self} is longer than 2^62 elements; give the shape of the array"
                    ))
                }),
                None => Err(Error::mismatch(format!(
                    "dimension {dim} of {self} uses BLOCK, whose block size depends on the array; \
                     give the shape of the array"
                ))),
            })
            .collect()
    }
}

/// Checks a rule with a length that fits it.
pub(crate) fn check_deal(deal: &Deal, procs: u64, first: u64) -> Result<()> {
    let len = match fixed_len(deal) {
        Some(len) => u64::try_from(len).ok().filter(|&len| len <= MAX_LEN).ok_or_else(|| {
            Error::too_large(format!("the sizes given add up to {len}; at most 2^62 is possible"))
        })?,
        None => 0,
    };
    Axis::new(len, procs, deal, first).map(|_| ())
}

/// The length of the array, where the rule fixes it.
fn fixed_len(deal: &Deal) -> Option<u128> {
    match deal {
        Deal::GenBlock(sizes) => Some(sizes.iter().map(|&size| u128::from(size)).sum()),
        Deal::Cuts(pieces) => Some(pieces.iter().map(|piece| u128::from(piece.len)).sum()),
        Deal::Block | Deal::Cyclic(_) | Deal::Whole => None,
    }
}

/// The common period of two patterns, as the papers draw it: the smallest shape after which both patterns repeat in every
/// dimension, `lcm(P r, Q s)`.
///
/// ```
/// use reshard_plan::{Pattern, one_period};
/// let (from, to): (Pattern, Pattern) = ("16/3".parse()?, "16/5".parse()?);
/// assert_eq!(one_period(&from, &to)?, [240]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn one_period(from: &Pattern, to: &Pattern) -> Result<Vec<u64>> {
    same_dims(from.grid.dims(), to.grid.dims())?;
    (0..from.grid.dims())
        .map(|dim| {
            let (a, b) = (from.round(dim), to.round(dim));
            if from.fixes_length(dim) || to.fixes_length(dim) {
                // A rule that fixes the length leaves no choice; if the two disagree, `over` reports it.
                let fixed = if from.fixes_length(dim) { a } else { b };
                return fixed.and_then(|len| u64::try_from(len).ok()).ok_or_else(too_long);
            }
            match (a, b) {
                (Some(a), Some(b)) => {
                    let fits = |round: u128| u64::try_from(round).ok();
                    fits(a).zip(fits(b)).and_then(|(a, b)| lcm_upto(a, b, MAX_LEN)).ok_or_else(too_long)
                }
                _ => Err(Error::mismatch(format!(
                    "dimension {dim} of {from} or {to} uses BLOCK, whose block size depends on the array; \
                     give the shape of the array"
                ))),
            }
        })
        .collect()
}

fn too_long() -> Error {
    Error::too_large(
        "one period of these two layouts is longer than 2^62 elements; give the shape of the array",
    )
}

pub(crate) fn same_dims(from: usize, to: usize) -> Result<()> {
    if from == to {
        return Ok(());
    }
    Err(Error::mismatch(format!(
        "the source has {} and the destination {to}; they must have the same number",
        counted(from, "dimension")
    )))
}

fn in_dimension(error: &Error, dim: usize, dims: usize) -> Error {
    if dims == 1 {
        return error.clone();
    }
    Error::new(error.kind(), format!("in dimension {dim}: {error}"))
}

/// The ownership of the elements of one array by ranks. A pure value: it compares, hashes, prints and parses.
///
/// ```
/// use reshard_plan::Distribution;
/// let matrix: Distribution = "2x2/3x3 of 10x10".parse()?;
/// assert_eq!(matrix.owner(&[4, 7])?, 2);
/// assert_eq!(matrix.local_from_global(&[4, 7])?, (2, vec![1, 4]));
/// assert_eq!(matrix.local_shape(0)?, [6, 6]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distribution {
    grid: Grid,
    axes: Vec<Axis>,
}

impl Distribution {
    /// One axis for each dimension of the grid, with as many processes as the grid has there.
    pub fn new(grid: Grid, axes: Vec<Axis>) -> Result<Self> {
        same_dims(axes.len(), grid.dims())?;
        if let Some(dim) = (0..axes.len()).find(|&dim| axes[dim].procs() != grid.extents()[dim]) {
            return Err(Error::mismatch(format!(
                "the axis of dimension {dim} is dealt to {} processes, but the grid has {} there",
                axes[dim].procs(),
                grid.extents()[dim]
            )));
        }
        let distribution = Self { grid, axes };
        let shape = distribution.shape();
        if product(&shape).is_none() {
            return Err(Error::too_large(format!(
                "the array {} has more than 2^62 elements, the most that are possible",
                by_x(&shape)
            )));
        }
        Ok(distribution)
    }

    /// The grid of processes.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The axes, one for each dimension.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of dimensions.
    pub fn dims(&self) -> usize {
        self.axes.len()
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(Axis::len).collect()
    }

    /// Number of elements of the whole array.
    pub fn elems(&self) -> u64 {
        elems_of(&self.shape())
    }

    /// True if every element is on several ranks: a dimension is kept whole (`*`) on more than one process.
    ///
    /// ```
    /// use reshard_plan::Distribution;
    /// let rows: Distribution = "(block, *) on 2x3 of 10x10".parse()?;
    /// assert_eq!((rows.is_replicated(), rows.copies()), (true, 3));
    /// assert_eq!(rows.owners(&[7, 7])?, [3, 4, 5]);
    /// assert_eq!(rows.owner(&[7, 7])?, 3); // the first of them
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn is_replicated(&self) -> bool {
        self.axes.iter().any(Axis::is_replicated)
    }

    /// Number of ranks that have each element: 1 unless a dimension is replicated.
    pub fn copies(&self) -> u64 {
        // No more than the grid has processes.
        self.axes.iter().map(Axis::copies).product()
    }

    /// The pattern of this distribution, in its simplest form.
    pub fn pattern(&self) -> Pattern {
        let (deals, first) = self.axes.iter().map(Axis::deal).unzip();
        Pattern { grid: self.grid.clone(), deals, first }
    }

    /// The ranks that have an element, by their coordinates: one, or one for each copy.
    pub fn owners(&self, global: &[u64]) -> Result<Vec<u64>> {
        let first = self.owner(global)?;
        let mut all = memory::with_room(self.copies() as usize, "the ranks that have an element")?;
        all.push(self.coords(first)?);
        for (dim, axis) in self.axes.iter().enumerate().filter(|(_, axis)| axis.is_replicated()) {
            let at = |coords: &Vec<u64>, copy: u64| {
                let mut coords = coords.clone();
                coords[dim] = copy;
                coords
            };
            all = all.iter().flat_map(|coords| axis.holders(0).map(|copy| at(coords, copy))).collect();
        }
        Ok(all.iter().filter_map(|coords| self.grid.rank(coords)).collect())
    }

    /// The rank that owns an element, the first of those that have it.
    pub fn owner(&self, global: &[u64]) -> Result<u64> {
        Ok(self.local_from_global(global)?.0)
    }

    /// The rank that owns an element, the first of those that have it, and the element's local index in that rank's part.
    pub fn local_from_global(&self, global: &[u64]) -> Result<(u64, Vec<u64>)> {
        let outside = || {
            let element: Vec<_> = global.iter().map(u64::to_string).collect();
            Error::out_of_range(format!(
                "element ({}) does not lie in the array {}; indices count from 0",
                element.join(", "),
                by_x(&self.shape())
            ))
        };
        if global.len() != self.dims() {
            return Err(outside());
        }
        let on_axes: Option<Vec<_>> =
            self.axes.iter().zip(global).map(|(axis, &index)| axis.local_from_global(index)).collect();
        let (coords, local): (Vec<_>, Vec<_>) = on_axes.ok_or_else(outside)?.into_iter().unzip();
        let rank = self.grid.rank(&coords).ok_or_else(outside)?;
        Ok((rank, local))
    }

    /// The global index of an element of a rank's part.
    pub fn global_from_local(&self, rank: u64, local: &[u64]) -> Result<Vec<u64>> {
        let coords = self.coords(rank)?;
        let outside = || {
            let element: Vec<_> = local.iter().map(u64::to_string).collect();
            Error::out_of_range(format!(
                "rank {rank} has no local element ({}); indices count from 0",
                element.join(", ")
            ))
        };
        if local.len() != self.dims() {
            return Err(outside());
        }
        self.axes
            .iter()
            .zip(coords.iter().zip(local))
            .map(|(axis, (&process, &index))| axis.global_from_local(process, index).ok_or_else(outside))
            .collect()
    }

    /// Number of elements a rank owns along each dimension.
    pub fn local_shape(&self, rank: u64) -> Result<Vec<u64>> {
        let coords = self.coords(rank)?;
        Ok(self.axes.iter().zip(coords).map(|(axis, process)| axis.local_len(process)).collect())
    }

    /// Number of elements a rank owns.
    pub fn local_elems(&self, rank: u64) -> Result<u64> {
        Ok(elems_of(&self.local_shape(rank)?))
    }

    /// The coordinates of a rank on the grid; an error if it is not part of it.
    pub fn coords(&self, rank: u64) -> Result<Vec<u64>> {
        self.grid.coords(rank).ok_or_else(|| {
            let ranks = match self.grid.rank_range() {
                Some(range) => format!("the ranks {} to {}", range.start, range.end - 1),
                None => format!("{} listed ranks", self.grid.size()),
            };
            Error::out_of_range(format!(
                "rank {rank} is not part of the grid {}, which has {ranks}",
                by_x(self.grid.extents())
            ))
        })
    }
}
