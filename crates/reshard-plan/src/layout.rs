//! A distribution with addresses: where in its owner's memory an element lies.
//!
//! The planner never touches memory; it needs to know only how far apart neighbours lie along each dimension of
//! a rank's part. Parts may be tight, padded to common extents (ScaLAPACK's LLD in n dimensions), or have any
//! strides of their own, the same for all ranks or for one. Addresses count elements, not bytes.

use crate::axis::{Axis, Deal, MAX_LEN};
use crate::distribution::{Distribution, Pattern};
use crate::error::{Error, Result, counted};
use crate::grid::{Grid, MAX_DIMS, by_x};
use crate::memory;
use std::collections::BTreeMap;

/// The index of a rank's part that runs fastest in memory. The order in which ranks number a grid is another property:
/// [`RankOrder`](crate::RankOrder).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryOrder {
    /// The last index runs fastest, as in C and NumPy.
    RowMajor,
    /// The first index runs fastest, as in Fortran and ScaLAPACK.
    #[default]
    ColMajor,
}

/// Which rank owns which element, and at which address.
///
/// Column-major, as in ScaLAPACK, unless `memory=row` or [`Layout::row_major`] says otherwise. The text is the
/// [notation](crate::notation) of layouts.
///
/// ```
/// use reshard_plan::Layout;
/// let layout = "2x2/3x3 of 10x10".parse::<Layout>()?.with_allocated(&[8, 6])?; // LLD 8
/// assert_eq!(layout.strides(0)?, [1, 8]);
/// assert_eq!(layout.locate(&[4, 7])?, (2, 1 + 4 * 8));
/// assert_eq!(layout.span(0)?, 5 * 8 + 6);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    distribution: Distribution,
    order: MemoryOrder,
    padding: Padding,
    of_rank: BTreeMap<u64, Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Padding {
    /// Each rank's part as small as it can be.
    Tight,
    /// Equal strides on every rank.
    Strides(Vec<u64>),
}

impl Layout {
    /// Every rank's part tight, in the given order.
    pub fn new(distribution: Distribution, order: MemoryOrder) -> Self {
        Self { distribution, order, padding: Padding::Tight, of_rank: BTreeMap::new() }
    }

    /// A block-cyclic array from numbers: its shape, the extents of the grid and of a block, one for each dimension.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout = Layout::block_cyclic([4096, 4096], [2, 2], [64, 64])?;
    /// assert_eq!(layout, "2x2/64x64 of 4096x4096".parse()?);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn block_cyclic(
        shape: impl AsRef<[u64]>,
        grid: impl AsRef<[u64]>,
        blocks: impl AsRef<[u64]>,
    ) -> Result<Self> {
        let grid = Grid::new(grid.as_ref())?;
        let deals = blocks.as_ref().iter().map(|&block| Deal::Cyclic(block)).collect();
        let first = vec![0; grid.dims()];
        Ok(Self::new(Pattern::new(grid, deals, first)?.over(shape.as_ref())?, MemoryOrder::default()))
    }

    /// A matrix as a ScaLAPACK array descriptor says it: `[DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD]`, on a process grid
    /// whose ranks are numbered as the BLACS context numbers them. The leading dimension is that of `rank`, whose descriptor
    /// it is: each rank knows its own only.
    ///
    /// ```
    /// use reshard_plan::{Grid, Layout};
    /// let descriptor = [1, 0, 1000, 800, 64, 32, 0, 1, 520];
    /// let layout = Layout::from_descriptor(&descriptor, Grid::new(&[2, 3])?, 0)?;
    /// assert_eq!(layout.strides(0)?, [1, 520]);
    /// assert_eq!(layout.to_string(), "2x3/64x32 first=0x1 of 1000x800");
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn from_descriptor(descriptor: &[i32; 9], grid: Grid, rank: u64) -> Result<Self> {
        let [dtype, _, m, n, mb, nb, rsrc, csrc, lld] = *descriptor;
        if dtype != 1 {
            return Err(Error::unsupported(format!(
                "a descriptor of type {dtype} was given; only type 1, a dense block-cyclic matrix, has a layout"
            )));
        }
        let number = |name: &str, value: i32| {
            u64::try_from(value).map_err(|_| {
                Error::out_of_range(format!("{name} of the descriptor is {value}; it cannot be negative"))
            })
        };
        let blocks = [number("MB", mb)?, number("NB", nb)?].map(Deal::Cyclic).to_vec();
        let first = vec![number("RSRC", rsrc)?, number("CSRC", csrc)?];
        let matrix = Pattern::new(grid, blocks, first)?.over(&[number("M", m)?, number("N", n)?])?;
        let layout = Self::new(matrix, MemoryOrder::ColMajor);
        match layout.distribution.grid().contains(rank) {
            true => layout.with_strides_of(rank, &[1, number("LLD", lld)?]),
            false => Ok(layout),
        }
    }

    /// Sets the memory order to row-major: the last index of every part runs fastest, as in C. Strides that were given are kept.
    #[must_use]
    pub fn row_major(mut self) -> Self {
        self.order = MemoryOrder::RowMajor;
        self
    }

    /// Every rank's part in memory of these extents, whatever single ranks were given before. In column-major order the first is ScaLAPACK's leading
    /// dimension; the slowest extent may be anything large enough.
    pub fn with_allocated(mut self, extents: &[u64]) -> Result<Self> {
        let most: Vec<u64> = self.distribution.axes().iter().map(Axis::max_local_len).collect();
        if extents.len() != most.len() || extents.iter().zip(&most).any(|(has, needs)| has < needs) {
            return Err(Error::mismatch(format!(
                "memory of {} was given for parts of up to {}; every extent must be at least as large",
                by_x(extents),
                by_x(&most)
            )));
        }
        let strides = tight_strides(extents, self.order).ok_or_else(too_far)?;
        check_strides(&strides, &most)?;
        self.padding = Padding::Strides(strides);
        self.of_rank.clear();
        Ok(self)
    }

    /// Every rank's part with these strides, in elements, whatever single ranks were given before. No two elements may share an address.
    pub fn with_strides(mut self, strides: &[u64]) -> Result<Self> {
        let most: Vec<u64> = self.distribution.axes().iter().map(Axis::max_local_len).collect();
        check_strides(strides, &most)?;
        self.padding = Padding::Strides(strides.to_vec());
        self.of_rank.clear();
        Ok(self)
    }

    /// This layout with its parts on other ranks, one for each process in the grid's order; strides stay those of their process.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2x1/4x4 of 10x10".parse()?;
    /// let layout = layout.with_strides_of(1, &[1, 7])?.with_ranks(&[8, 5])?;
    /// assert_eq!((layout.strides(8)?, layout.strides(5)?), (vec![1, 6], vec![1, 7]));
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn with_ranks(self, ranks: &[u64]) -> Result<Self> {
        let before = self.distribution.grid();
        let grid = before.clone().with_ranks(ranks)?;
        let renumbered = |(rank, strides)| {
            let rank = before.coords(rank).and_then(|coords| grid.rank(&coords));
            rank.map(|rank| (rank, strides))
        };
        let of_rank = self.of_rank.clone().into_iter().filter_map(renumbered).collect();
        let distribution = Distribution::new(grid, self.distribution.axes().to_vec())?;
        Ok(Self { distribution, of_rank, ..self })
    }

    /// This layout with a number added to all its ranks, whose parts and strides they keep: to number the ranks of two jobs as if they
    /// were of one.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2x1/4x4 of 10x10".parse()?;
    /// assert_eq!(layout.shifted(1000)?.strides(1001)?, [1, 4]);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn shifted(self, by: u64) -> Result<Self> {
        let grid = self.distribution.grid().clone().shifted(by)?;
        let of_rank = self.of_rank.into_iter().map(|(rank, strides)| (rank + by, strides)).collect();
        let distribution = Distribution::new(grid, self.distribution.axes().to_vec())?;
        Ok(Self { distribution, of_rank, ..self })
    }

    /// One rank's part with strides of its own: under MPI each rank knows its own leading dimension only.
    pub fn with_strides_of(mut self, rank: u64, strides: &[u64]) -> Result<Self> {
        check_strides(strides, &self.distribution.local_shape(rank)?)?;
        self.of_rank.insert(rank, strides.to_vec());
        Ok(self)
    }

    /// The ownership of elements, without addresses.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// The order of the local dimensions.
    pub fn order(&self) -> MemoryOrder {
        self.order
    }

    /// The strides given for the parts of all ranks; none if each part is as small as it can be.
    pub(crate) fn common_strides(&self) -> Option<&[u64]> {
        match &self.padding {
            Padding::Tight => None,
            Padding::Strides(strides) => Some(strides),
        }
    }

    /// The strides that single ranks have for themselves.
    #[cfg(feature = "serde")]
    pub(crate) fn strides_of_ranks(&self) -> &BTreeMap<u64, Vec<u64>> {
        &self.of_rank
    }

    /// From one element of a rank's part to the next along each dimension, in elements.
    pub fn strides(&self, rank: u64) -> Result<Vec<u64>> {
        let shape = self.distribution.local_shape(rank)?;
        if let Some(strides) = self.of_rank.get(&rank) {
            return Ok(strides.clone());
        }
        match &self.padding {
            Padding::Tight => tight_strides(&shape, self.order).ok_or_else(too_far),
            Padding::Strides(strides) => Ok(strides.clone()),
        }
    }

    /// Elements of memory that a rank's part spans, padding included; 0 if it has none.
    pub fn span(&self, rank: u64) -> Result<u64> {
        let shape = self.distribution.local_shape(rank)?;
        reach(&self.strides(rank)?, &shape).ok_or_else(too_far)
    }

    /// The address of an element of a rank's part.
    pub fn address(&self, rank: u64, local: &[u64]) -> Result<u64> {
        // Asking for the global index checks that the element exists.
        self.distribution.global_from_local(rank, local)?;
        Ok(self.strides(rank)?.iter().zip(local).map(|(stride, index)| stride * index).sum())
    }

    /// The rank and address of an element of the array.
    pub fn locate(&self, global: &[u64]) -> Result<(u64, u64)> {
        let (rank, local) = self.distribution.local_from_global(global)?;
        Ok((rank, self.address(rank, &local)?))
    }

    /// Memory for a rank's part, padding included, every element the default of its type.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2x2/3x3 of 10x10".parse()?;
    /// assert_eq!(layout.allocate::<f32>(3)?, [0.0; 4 * 4]);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn allocate<T: Clone + Default>(&self, rank: u64) -> Result<Vec<T>> {
        let span = self.span(rank)?;
        let elems = usize::try_from(span).map_err(|_| {
            Error::too_large(format!("the part of rank {rank} has {span} elements, which no memory holds"))
        })?;
        memory::filled(T::default(), elems, &format!("the part of rank {rank}"))
    }

    /// A rank's part with each element computed from its index in the whole array.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2/3 of 10".parse()?;
    /// assert_eq!(layout.filled(1, |index| index[0] * 10)?, [30, 40, 50, 90]);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn filled<T: Clone + Default>(&self, rank: u64, value: impl FnMut(&[u64]) -> T) -> Result<Vec<T>> {
        let mut part = self.allocate(rank)?;
        self.fill(rank, &mut part, value)?;
        Ok(part)
    }

    /// Computes each element of a rank's part from its index in the whole array. Padding stays as it is.
    pub fn fill<T>(&self, rank: u64, part: &mut [T], mut value: impl FnMut(&[u64]) -> T) -> Result<()> {
        let span = self.span(rank)?;
        if (part.len() as u64) < span {
            return Err(Error::mismatch(format!(
                "{} of memory were given for the part of rank {rank}, which reaches over {span}",
                counted(part.len(), "element")
            )));
        }
        let (shape, strides) = (self.distribution.local_shape(rank)?, self.strides(rank)?);
        if shape.contains(&0) {
            return Ok(());
        }
        let mut local = vec![0; shape.len()];
        let mut global = self.distribution.global_from_local(rank, &local)?;
        let coords = self.distribution.coords(rank)?;
        loop {
            let at: u64 = strides.iter().zip(&local).map(|(stride, index)| stride * index).sum();
            part[at as usize] = value(&global);
            // The next local index, the last dimension fastest.
            let Some(dim) = (0..shape.len()).rev().find(|&dim| local[dim] + 1 < shape[dim]) else {
                return Ok(());
            };
            local[dim] += 1;
            local[dim + 1..].fill(0);
            for dim in dim..shape.len() {
                let axis = &self.distribution.axes()[dim];
                // It lies in the part, whose shape this is.
                global[dim] = axis.global_from_local(coords[dim], local[dim]).unwrap_or(0);
            }
        }
    }

    /// All ranks' parts, by ascending rank, with each element computed from its index in the whole array.
    ///
    /// ```
    /// use reshard_plan::Layout;
    /// let layout: Layout = "2/3 of 10".parse()?;
    /// let parts = layout.parts(|index| index[0])?;
    /// assert_eq!(parts, [vec![0, 1, 2, 6, 7, 8], vec![3, 4, 5, 9]]);
    /// assert_eq!(layout.get(&parts, &[7])?, &7);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn parts<T: Clone + Default>(&self, mut value: impl FnMut(&[u64]) -> T) -> Result<Vec<Vec<T>>> {
        let grid = self.distribution.grid();
        let each = size_of::<u64>() + size_of::<Vec<T>>();
        memory::check(u128::from(grid.size()) * each as u128, "the parts of all ranks")?;
        grid.sorted_ranks().into_iter().map(|rank| self.filled(rank, &mut value)).collect()
    }

    /// An element of the array out of all ranks' parts, which are given by ascending rank.
    pub fn get<'p, T: 'p>(&self, parts: &'p [impl AsRef<[T]>], global: &[u64]) -> Result<&'p T> {
        let (rank, at) = self.locate(global)?;
        let position = self.distribution.grid().sorted_position(rank);
        let part = position.and_then(|position| parts.get(position as usize)).map(AsRef::as_ref);
        part.and_then(|part| part.get(usize::try_from(at).ok()?)).ok_or_else(|| {
            Error::mismatch(format!(
                "rank {rank} has the element at address {at} of its part, which was not given: {} parts were, one for each \
                 of {} ranks by ascending rank is needed",
                parts.len(),
                self.distribution.grid().size()
            ))
        })
    }
}

/// Strides of a dense box; `None` if an address would pass 2^62.
fn tight_strides(extents: &[u64], order: MemoryOrder) -> Option<Vec<u64>> {
    let mut strides = vec![1; extents.len()];
    let mut stride = 1_u64;
    let mut lay = |dim: usize| {
        strides[dim] = stride;
        stride = stride.checked_mul(extents[dim].max(1))?;
        (stride <= MAX_LEN).then_some(())
    };
    let fits = match order {
        MemoryOrder::RowMajor => (0..extents.len()).rev().try_for_each(&mut lay),
        MemoryOrder::ColMajor => (0..extents.len()).try_for_each(&mut lay),
    };
    fits.map(|()| strides)
}

/// One past the last address of a box; `None` past 2^62.
fn reach(strides: &[u64], shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let last = strides.iter().zip(shape).try_fold(0_u64, |last, (stride, extent)| {
        stride.checked_mul(extent - 1).and_then(|far| last.checked_add(far))
    })?;
    (last < MAX_LEN).then_some(last + 1)
}

fn check_strides(strides: &[u64], shape: &[u64]) -> Result<()> {
    if strides.len() != shape.len() || strides.len() > MAX_DIMS {
        return Err(Error::mismatch(format!(
            "{} given for {}; give one for each",
            if strides.len() == 1 {
                "1 stride was".to_string()
            } else {
                format!("{} strides were", strides.len())
            },
            counted(shape.len(), "dimension")
        )));
    }
    if shape.contains(&0) {
        return Ok(());
    }
    reach(strides, shape).ok_or_else(too_far)?;
    // From the smallest stride up, each must step over all that the smaller ones reach.
    let mut dims: Vec<usize> = (0..shape.len()).filter(|&dim| shape[dim] > 1).collect();
    dims.sort_by_key(|&dim| strides[dim]);
    let mut reached = 0;
    for dim in dims {
        if strides[dim] <= reached {
            return Err(Error::mismatch(format!(
                "strides {strides:?} put two elements of a part of {} at one address; dimension {dim} needs a \
                 stride of at least {}",
                by_x(shape),
                reached + 1
            )));
        }
        reached += strides[dim] * (shape[dim] - 1);
    }
    Ok(())
}

fn too_far() -> Error {
    Error::too_large("the strides given reach past 2^62 elements, the most that are possible")
}
