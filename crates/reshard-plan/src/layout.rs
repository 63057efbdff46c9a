//! A distribution with addresses: where in its owner's memory an element lies.
//!
//! The planner never touches memory; it needs to know only how far apart neighbours lie along each dimension of
//! a rank's part. Parts may be tight, padded to common extents (ScaLAPACK's LLD in n dimensions), or have any
//! strides of their own, the same for all ranks or for one. Addresses count elements, not bytes.

use crate::axis::{Axis, MAX_LEN};
use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::grid::{MAX_DIMS, Order, by_x};
use std::collections::BTreeMap;

/// Which rank owns which element, and at which address.
///
/// ```
/// use reshard_plan::{Distribution, Layout, Order};
/// let matrix: Distribution = "2x2/3x3 of 10x10".parse()?;
/// let layout = Layout::new(matrix, Order::ColMajor).with_allocated(&[8, 6])?; // LLD 8
/// assert_eq!(layout.strides(0)?, [1, 8]);
/// assert_eq!(layout.locate(&[4, 7])?, (2, 1 + 4 * 8));
/// assert_eq!(layout.span(0)?, 5 * 8 + 6);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    distribution: Distribution,
    order: Order,
    padding: Padding,
    of_rank: BTreeMap<u64, Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Padding {
    /// Each rank's part as small as it can be.
    Tight,
    /// The same strides on every rank.
    Strides(Vec<u64>),
}

impl Layout {
    /// Every rank's part tight, in the given order.
    pub fn new(distribution: Distribution, order: Order) -> Self {
        Self { distribution, order, padding: Padding::Tight, of_rank: BTreeMap::new() }
    }

    /// Every rank's part in memory of these extents. In column-major order the first is ScaLAPACK's leading
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
        Ok(self)
    }

    /// Every rank's part with these strides, in elements. No two elements may share an address.
    pub fn with_strides(mut self, strides: &[u64]) -> Result<Self> {
        let most: Vec<u64> = self.distribution.axes().iter().map(Axis::max_local_len).collect();
        check_strides(strides, &most)?;
        self.padding = Padding::Strides(strides.to_vec());
        Ok(self)
    }

    /// One rank's part with strides of its own: under MPI each rank knows its own leading dimension only.
    pub fn with_strides_of(mut self, rank: u64, strides: &[u64]) -> Result<Self> {
        check_strides(strides, &self.distribution.local_shape(rank)?)?;
        self.of_rank.insert(rank, strides.to_vec());
        Ok(self)
    }

    /// Who owns what.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// The order of the local dimensions.
    pub fn order(&self) -> Order {
        self.order
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

    /// How many elements of memory a rank's part reaches over, padding included; 0 if it has none.
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
}

/// Strides of a dense box; `None` if an address would pass 2^62.
fn tight_strides(extents: &[u64], order: Order) -> Option<Vec<u64>> {
    let mut strides = vec![1; extents.len()];
    let mut stride = 1_u64;
    let mut lay = |dim: usize| {
        strides[dim] = stride;
        stride = stride.checked_mul(extents[dim].max(1))?;
        (stride <= MAX_LEN).then_some(())
    };
    let fits = match order {
        Order::RowMajor => (0..extents.len()).rev().try_for_each(&mut lay),
        Order::ColMajor => (0..extents.len()).try_for_each(&mut lay),
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
            "{} strides were given for {} dimensions; give one for each",
            strides.len(),
            shape.len()
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
