//! What an engine runs: for every destination rank, where each of its elements comes from, as addresses.
//!
//! A [`Move`] is the request: one layout into another, through a window, perhaps only a triangle. A [`Plan`] is the
//! result, computed once: for each destination rank a [`Target`] with one [`Track`](crate::Track) for each axis, and for each source
//! rank its strides. Engines see nothing else: no distribution, no grid, no element type, only indices, strides and sizes.
//! Several arrays may go in one plan; an engine moves them together.
//!
//! A process *hosts* some of the ranks: all of them (threads), one (a process of MPI), or a few. [`Plan::for_ranks`] works out
//! the hosted ranks alone, at a cost that does not depend on how many others there are; [`Plan::with_peers`] adds those they
//! exchange data with.

mod array;
mod moves;
mod runs;
mod within;

pub use array::{Array, Source, Target};
pub use moves::Move;
pub use runs::MemoryRun;

use crate::error::Result;
use crate::grid::Grid;
use std::ops::Range;

/// Everything that engines need before data moves: a plain value, a function of the moves and the hosted ranks alone.
///
/// ```
/// use reshard_plan::{Move, Plan};
/// let moving = Move::of::<f64>("1024x1024/8x8 of 65536x65536".parse()?, "3x3/64x64 of 65536x65536".parse()?)?;
/// let mine = Plan::for_rank(vec![moving], 1000)?; // microseconds, on any number of ranks
/// assert_eq!(mine.arrays()[0].sources().len(), 1);
/// assert_eq!(mine.with_peers()?.arrays()[0].targets().len(), 9); // the ranks that rank 1000 sends to
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    arrays: Vec<Array>,
    hosted: Hosted,
    /// Bytes that move, reported by every run and counted once.
    bytes: u64,
}

/// The ranks that a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosted {
    All,
    /// These, ascending; whether their peers are listed, too.
    Ranks {
        ranks: Vec<u64>,
        with_peers: bool,
    },
}

impl Plan {
    /// Works out the moves, for all ranks of both sides.
    pub fn new(moves: Vec<Move>) -> Result<Self> {
        Self::made(moves, Hosted::All, Array::of_all)
    }

    /// Works out the moves for some ranks, those that this process hosts. Ranks that take no part are ignored. Engines in one
    /// process run plans for all ranks; an engine between processes takes that of its own rank.
    pub fn for_ranks(moves: Vec<Move>, hosted: &[u64]) -> Result<Self> {
        let mut ranks = hosted.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let hosted = Hosted::Ranks { ranks: ranks.clone(), with_peers: false };
        Self::made(moves, hosted, |wanted| Array::of_hosted(wanted, &ranks))
    }

    /// Works out the moves for one rank, which this process hosts.
    pub fn for_rank(moves: Vec<Move>, rank: u64) -> Result<Self> {
        Self::for_ranks(moves, &[rank])
    }

    /// Extends the plan by all ranks that the hosted ranks send to and receive from. Takes time and memory in proportion to
    /// their number.
    pub fn with_peers(self) -> Result<Self> {
        match self.hosted {
            Hosted::Ranks { ranks, with_peers: false } => {
                let arrays = self.arrays.into_iter().map(Array::with_peers).collect::<Result<_>>()?;
                Ok(Self { arrays, hosted: Hosted::Ranks { ranks, with_peers: true }, bytes: self.bytes })
            }
            _ => Ok(self),
        }
    }

    fn made(moves: Vec<Move>, hosted: Hosted, array: impl Fn(Move) -> Result<Array>) -> Result<Self> {
        let arrays: Vec<Array> = moves.into_iter().map(array).collect::<Result<_>>()?;
        Ok(Self::of_arrays(arrays, hosted))
    }

    fn of_arrays(arrays: Vec<Array>, hosted: Hosted) -> Self {
        let of_one = |array: &Array| array.elems().saturating_mul(array.wanted.elem_bytes());
        let bytes = arrays.iter().map(of_one).fold(0, u64::saturating_add);
        Self { arrays, hosted, bytes }
    }

    /// The hosted ranks, ascending; `None` for all ranks.
    pub fn hosted(&self) -> Option<&[u64]> {
        match &self.hosted {
            Hosted::All => None,
            Hosted::Ranks { ranks, .. } => Some(ranks),
        }
    }

    /// True if the plan lists every rank with which a hosted one shares elements.
    pub fn lists_peers(&self) -> bool {
        !matches!(self.hosted, Hosted::Ranks { with_peers: false, .. })
    }

    /// The arrays, as they were given.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// All ranks the plan lists, of all arrays, ascending.
    pub fn ranks(&self) -> Vec<u64> {
        let sources = self.arrays.iter().flat_map(|array| array.sources.iter().map(|source| source.rank));
        let targets = self.arrays.iter().flat_map(|array| array.targets.iter().map(|target| target.rank));
        let mut ranks: Vec<u64> = sources.chain(targets).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The number of ranks that take part, also of those the plan does not list.
    pub fn rank_count(&self) -> u64 {
        let layouts = self.arrays.iter().flat_map(|array| [array.wanted.from(), array.wanted.to()]);
        let ranges = |grid: &Grid| match grid.rank_range() {
            Some(range) => vec![range],
            None => grid.ranks().map(|rank| rank..rank + 1).collect(),
        };
        let mut ranges: Vec<Range<u64>> =
            layouts.flat_map(|layout| ranges(layout.distribution().grid())).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut count, mut end) = (0, 0);
        for range in ranges {
            count += range.end.saturating_sub(range.start.max(end));
            end = range.end.max(end);
        }
        count
    }

    /// The largest rank that takes part, also of those the plan does not list.
    pub fn max_rank(&self) -> Option<u64> {
        let grids = self.arrays.iter().flat_map(|array| [array.wanted.from(), array.wanted.to()]);
        grids.filter_map(|layout| layout.distribution().grid().max_rank()).max()
    }

    /// Bytes that move, of all arrays. Saturates at 2^64 - 1.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
