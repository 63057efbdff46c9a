//! The processes of one side of a redistribution, arranged as an n-dimensional box.
//!
//! A grid is a shape plus a numbering: row-major or column-major from some first rank on, or an explicit list
//! of ranks. Ranks are those of a common world, so two grids may be equal, overlap, or share nothing.

use crate::axis::MAX_LEN;
use crate::error::{Error, Result, counted};
use crate::memory;
use std::sync::Arc;

/// The most dimensions a grid or an array may have.
pub const MAX_DIMS: usize = 8;

/// The order in which ranks number the processes of a grid. The order of elements in memory is another property:
/// [`MemoryOrder`](crate::MemoryOrder).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RankOrder {
    /// Row by row: the last coordinate runs fastest, as in C and in the BLACS by default.
    #[default]
    RowMajor,
    /// Column by column: the first coordinate runs fastest, as in Fortran.
    ColMajor,
}

/// Processes as an n-dimensional box of ranks.
///
/// ```
/// use reshard_plan::{Grid, RankOrder};
/// let grid = Grid::new(&[2, 3])?.with_order(RankOrder::ColMajor);
/// assert_eq!(grid.rank(&[1, 2]), Some(5));
/// assert_eq!(grid.coords(2), Some(vec![0, 1]));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    extents: Vec<u64>,
    order: RankOrder,
    ranks: Ranks,
}

/// The rank at each position of the box.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ranks {
    /// Consecutive ranks from this one on.
    From(u64),
    /// A rank for each position, and the positions sorted by rank for the inverse.
    Listed { ranks: Arc<[u64]>, by_rank: Arc<[u64]> },
}

impl Grid {
    /// A box of processes, ranks `0, 1, 2, ...` in row-major order.
    pub fn new(extents: &[u64]) -> Result<Self> {
        if extents.is_empty() || extents.len() > MAX_DIMS {
            return Err(Error::mismatch(format!(
                "a grid of {} was given; 1 to {MAX_DIMS} are possible",
                counted(extents.len(), "dimension")
            )));
        }
        if extents.contains(&0) {
            return Err(Error::out_of_range(format!(
                "the grid {} has a dimension of 0 processes; each needs at least 1",
                by_x(extents)
            )));
        }
        if product(extents).is_none() {
            return Err(Error::too_large(format!(
                "the grid {} has more than 2^62 processes, the most that are possible",
                by_x(extents)
            )));
        }
        Ok(Self { extents: extents.to_vec(), order: RankOrder::RowMajor, ranks: Ranks::From(0) })
    }

    /// Sets the order in which ranks number the box.
    #[must_use]
    pub fn with_order(mut self, order: RankOrder) -> Self {
        self.order = order;
        self
    }

    /// Numbers the box with consecutive ranks from `first` on.
    pub fn with_first_rank(mut self, first: u64) -> Result<Self> {
        if first > MAX_LEN {
            return Err(Error::too_large(format!("rank {first} was given; ranks reach 2^62 at most")));
        }
        self.ranks = Ranks::From(first);
        Ok(self)
    }

    /// Adds a number to all ranks.
    pub fn shifted(mut self, by: u64) -> Result<Self> {
        let largest = self.max_rank().unwrap_or(0).checked_add(by);
        if largest.is_none_or(|rank| rank > MAX_LEN) {
            return Err(Error::too_large(format!(
                "{by} was to be added to all ranks; they reach 2^62 at most"
            )));
        }
        self.ranks = match self.ranks {
            Ranks::From(first) => Ranks::From(first + by),
            Ranks::Listed { ranks, by_rank } => {
                Ranks::Listed { ranks: ranks.iter().map(|rank| rank + by).collect(), by_rank }
            }
        };
        Ok(self)
    }

    /// Numbers the box with listed ranks, one for each position in the grid's order.
    pub fn with_ranks(mut self, ranks: &[u64]) -> Result<Self> {
        if ranks.len() as u64 != self.size() {
            return Err(Error::mismatch(format!(
                "{} listed for a grid of {}; list one for each",
                if ranks.len() == 1 {
                    "1 rank was".to_string()
                } else {
                    format!("{} ranks were", ranks.len())
                },
                if self.size() == 1 { "1 process".to_string() } else { format!("{} processes", self.size()) }
            )));
        }
        if let Some(&rank) = ranks.iter().find(|&&rank| rank > MAX_LEN) {
            return Err(Error::too_large(format!("rank {rank} was given; ranks reach 2^62 at most")));
        }
        // The sorted ranks, and both lists as they are kept.
        memory::check(3 * ranks.len() as u128 * 8, "the ranks of a grid")?;
        let mut by_rank: Vec<u64> = (0..self.size()).collect();
        by_rank.sort_unstable_by_key(|&at| ranks[at as usize]);
        if let Some(twice) = by_rank.windows(2).find(|two| ranks[two[0] as usize] == ranks[two[1] as usize]) {
            return Err(Error::mismatch(format!(
                "rank {} is listed twice; each process of a grid needs a rank of its own",
                ranks[twice[0] as usize]
            )));
        }
        let consecutive = ranks.windows(2).all(|two| two[0] + 1 == two[1]);
        self.ranks = if consecutive {
            Ranks::From(ranks[0])
        } else {
            Ranks::Listed { ranks: ranks.into(), by_rank: by_rank.into() }
        };
        Ok(self)
    }

    /// Number of dimensions.
    pub fn dims(&self) -> usize {
        self.extents.len()
    }

    /// Processes along each dimension.
    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// Number of processes.
    pub fn size(&self) -> u64 {
        self.extents.iter().product()
    }

    /// The order in which ranks number the box.
    pub fn order(&self) -> RankOrder {
        self.order
    }

    /// The rank at a position in the grid's order: `rank_at(0)` is one corner, `rank_at(size - 1)` the opposite one.
    pub fn rank_at(&self, position: u64) -> Option<u64> {
        (position < self.size()).then(|| match &self.ranks {
            Ranks::From(first) => first + position,
            Ranks::Listed { ranks, .. } => ranks[position as usize],
        })
    }

    /// The consecutive ranks of this grid's numbering; `None` if they are listed one by one.
    pub fn rank_range(&self) -> Option<std::ops::Range<u64>> {
        match self.ranks {
            Ranks::From(first) => Some(first..first + self.size()),
            Ranks::Listed { .. } => None,
        }
    }

    /// The largest rank.
    pub fn max_rank(&self) -> Option<u64> {
        match &self.ranks {
            Ranks::From(first) => (first + self.size()).checked_sub(1),
            Ranks::Listed { ranks, by_rank } => by_rank.last().map(|&at| ranks[at as usize]),
        }
    }

    /// All ranks, in the grid's order.
    pub fn ranks(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.size()).filter_map(|position| self.rank_at(position))
    }

    /// All ranks, ascending.
    pub fn sorted_ranks(&self) -> Vec<u64> {
        let mut ranks: Vec<u64> = self.ranks().collect();
        ranks.sort_unstable();
        ranks
    }

    /// Number of ranks of the grid that are smaller than `rank`; `None` if `rank` is not part of the grid.
    pub(crate) fn sorted_position(&self, rank: u64) -> Option<u64> {
        match &self.ranks {
            Ranks::From(_) => self.position(rank),
            Ranks::Listed { ranks, by_rank } => {
                by_rank.binary_search_by_key(&rank, |&at| ranks[at as usize]).ok().map(|found| found as u64)
            }
        }
    }

    /// The rank at these coordinates; `None` outside the box.
    pub fn rank(&self, coords: &[u64]) -> Option<u64> {
        let inside = coords.len() == self.dims() && coords.iter().zip(&self.extents).all(|(c, e)| c < e);
        if !inside {
            return None;
        }
        let fold = |at: u64, (c, e): (&u64, &u64)| at * e + c;
        let position = match self.order {
            RankOrder::RowMajor => coords.iter().zip(&self.extents).fold(0, fold),
            RankOrder::ColMajor => coords.iter().zip(&self.extents).rev().fold(0, fold),
        };
        self.rank_at(position)
    }

    /// The coordinates of a rank; `None` if it is not part of this grid.
    pub fn coords(&self, rank: u64) -> Option<Vec<u64>> {
        let mut position = self.position(rank)?;
        let mut coords = vec![0; self.dims()];
        let mut peel = |dim: usize| {
            coords[dim] = position % self.extents[dim];
            position /= self.extents[dim];
        };
        match self.order {
            RankOrder::RowMajor => (0..self.dims()).rev().for_each(&mut peel),
            RankOrder::ColMajor => (0..self.dims()).for_each(&mut peel),
        }
        Some(coords)
    }

    /// True if the rank is part of this grid.
    pub fn contains(&self, rank: u64) -> bool {
        self.position(rank).is_some()
    }

    fn position(&self, rank: u64) -> Option<u64> {
        match &self.ranks {
            Ranks::From(first) => rank.checked_sub(*first).filter(|&position| position < self.size()),
            Ranks::Listed { ranks, by_rank } => {
                let found = by_rank.binary_search_by_key(&rank, |&at| ranks[at as usize]).ok()?;
                Some(by_rank[found])
            }
        }
    }
}

/// Writes extents in the notation: `4x4`.
pub(crate) fn by_x(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

/// Number of elements of a part of an array; it cannot overflow, as the array was checked.
pub(crate) fn elems_of(shape: &[u64]) -> u64 {
    product(shape).expect("parts are no larger than their array, which was checked")
}

/// The product of all factors if it is at most 2^62; it is 0 if one factor is 0, however large the others are.
pub(crate) fn product(extents: &[u64]) -> Option<u64> {
    if extents.contains(&0) {
        return Some(0);
    }
    extents.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent)).filter(|&p| p <= MAX_LEN)
}
