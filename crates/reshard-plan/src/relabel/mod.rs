//! Relabelling: which process should take which position of the destination grid, so that most bytes stay where they are.
//!
//! A layout says how an array is cut; the order of the processes on the grid often does not matter. Giving the
//! destination's positions to processes that hold the data already costs nothing at run time and can save all of
//! the traffic: two layouts that differ by a permutation of ranks move nothing. The result is exact, in integers,
//! and equal on every rank:
//!
//! | solver | takes | in |
//! |---|---|---|
//! | [`assignment`](Solver::Assignment) | anything up to 4096 positions, several arrays together, weights | O(n^3) |
//! | [`quotient`](Solver::Quotient) | one block-cyclic dimension over whole periods | independent of P and Q, but for writing the answer |

mod assignment;
mod quotient;

use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::grid::{Grid, by_x};
use crate::problem::{Problem, Window};
use std::str::FromStr;

/// The processes that the destination's positions may be given to.
///
/// ```
/// use reshard_plan::{Among, Problem, Relabel};
/// // The destination lives on other processes than the source: only among both can anything stay.
/// let problem = Problem::new("4/8 of 64".parse()?, "2/16 ranks=4..6 of 64".parse()?)?;
/// assert_eq!(Relabel::new(&problem).find()?.after().kept_elems, 0);
/// assert_eq!(Relabel::new(&problem).among(Among::Both).find()?.after().kept_elems, 32);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Among {
    /// The ranks of the destination, in another order.
    #[default]
    Destination,
    /// Any ranks of source and destination together.
    Both,
}

impl FromStr for Among {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "destination" => Ok(Self::Destination),
            "both" => Ok(Self::Both),
            _ => Err(Error::mismatch(format!(
                "ranks among {text:?} were asked for; choose destination, the ranks it has, or both, those of the \
                 source as well"
            ))),
        }
    }
}

/// An algorithm that finds the best labelling. Both keep equally many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Solver {
    /// The assignment problem over all positions and candidates. Among equally good labellings it changes the
    /// fewest ranks.
    Assignment,
    /// A transportation problem over classes of equal messages. Takes one array of one block-cyclic dimension,
    /// moved in whole periods, without weights, all source ranks being candidates.
    Quotient,
}

/// A weight for each byte that goes from one rank to another.
type Cost<'a> = &'a dyn Fn(u64, u64) -> u64;

/// A search for the labelling of the destination's grid that keeps most bytes where they are.
///
/// ```
/// use reshard_plan::{Problem, Relabel};
/// let of = |text: &str| text.parse::<reshard_plan::Distribution>();
/// // Two matrices move together; their elements have 8 and 4 bytes.
/// let a = Problem::new(of("2x2/8x8 of 64x64")?, of("2x2/8x8 rank-order=col of 64x64")?)?;
/// let b = Problem::new(of("4x1/8x8 of 32x32")?, of("2x2/4x4 rank-order=col of 32x32")?)?;
/// let both = Relabel::together(&[(&a, 8), (&b, 4)]).find()?;
/// assert_eq!(both.before().moved_bytes, 16384 + 3072);
/// assert_eq!(both.after().moved_bytes, 3072);
/// // Ranks 0 and 1 share a node, 2 and 3 another: bytes within a node cost 1, between nodes 10.
/// let hops = |from: u64, to: u64| if from == to { 0 } else if from / 2 == to / 2 { 1 } else { 10 };
/// let near = Relabel::together(&[(&a, 8), (&b, 4)]).weighed(&hops).find()?;
/// assert!(near.after().cost <= near.before().cost);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone)]
pub struct Relabel<'a> {
    /// Each array with the bytes of its elements.
    arrays: Vec<(&'a Problem, u64)>,
    among: Among,
    cost: Option<Cost<'a>>,
    solver: Option<Solver>,
}

impl<'a> Relabel<'a> {
    /// Relabels one array. Elements count as one byte each.
    pub fn new(problem: &'a Problem) -> Self {
        Self::together(&[(problem, 1)])
    }

    /// Relabels several arrays that move together, each with the size of its elements in bytes. Every array has a
    /// source of its own, but all must have one destination grid.
    pub fn together(arrays: &[(&'a Problem, u64)]) -> Self {
        Self { arrays: arrays.to_vec(), among: Among::default(), cost: None, solver: None }
    }

    /// Sets the processes to choose from.
    #[must_use]
    pub fn among(mut self, among: Among) -> Self {
        self.among = among;
        self
    }

    /// Minimizes a cost instead of keeping most bytes: `cost(from, to)` for each byte that goes from one rank to another
    /// or stays (`from == to`), as the machine's topology has it.
    #[must_use]
    pub fn weighed(mut self, cost: Cost<'a>) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the solver. The default is the quotient where it applies, and the assignment elsewhere.
    #[must_use]
    pub fn by(mut self, solver: Solver) -> Self {
        self.solver = Some(solver);
        self
    }

    /// Finds the best labelling. If the given one is as good as any, it is returned unchanged.
    pub fn find(&self) -> Result<Relabelling> {
        let given = self.grid()?;
        if let Some((problem, _)) = self.arrays.iter().find(|(problem, _)| problem.from().is_replicated()) {
            return Err(Error::unsupported(format!(
                "the best labelling of a destination was asked for whose source, {}, is replicated: which copy a rank takes \
                 depends on its label; give a source without * on several processes",
                problem.from().pattern()
            )));
        }
        let from_quotient = match self.solver {
            Some(Solver::Assignment) => None,
            _ => quotient::find(self, given)?,
        };
        let found = match (from_quotient, self.solver) {
            (Some(found), _) => found,
            (None, Some(Solver::Quotient)) => {
                return Err(Error::unsupported(
                    "the quotient takes one array of one block-cyclic dimension over whole periods, without weights, \
                     all source ranks being candidates; leave the choice of solver open",
                ));
            }
            (None, _) => assignment::find(self, given)?,
        };
        let grid = given.clone().with_ranks(&found.labels)?;
        Ok(Relabelling { given: given.clone(), grid, before: found.before, after: found.after })
    }

    /// The grid that all arrays go to.
    fn grid(&self) -> Result<&'a Grid> {
        let mut grids = self.arrays.iter().map(|(problem, _)| problem.to().grid());
        let first = grids.next().ok_or_else(|| {
            Error::mismatch(
                "no array was given to relabel; give at least one problem and its bytes per element",
            )
        })?;
        match grids.find(|grid| *grid != first) {
            None => Ok(first),
            Some(other) => Err(Error::mismatch(format!(
                "the arrays go to the grids {} and {}, which differ in extents, order or ranks; relabel arrays \
                 together only if they go to one grid",
                by_x(first.extents()),
                by_x(other.extents())
            ))),
        }
    }

    fn cost_of(&self, from: u64, to: u64) -> u64 {
        self.cost.map_or(u64::from(from != to), |cost| cost(from, to))
    }
}

/// The result of a solver: a rank for each position of the given grid, in its order.
struct Labelling {
    labels: Vec<u64>,
    before: Volume,
    after: Volume,
}

/// The volume that stays on its rank and the volume that moves, over all arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Volume {
    /// Elements that stay on their rank.
    pub kept_elems: u128,
    /// Elements that go to another rank.
    pub moved_elems: u128,
    /// Bytes that stay on their rank.
    pub kept_bytes: u128,
    /// Bytes that go to another rank.
    pub moved_bytes: u128,
    /// Bytes times weights: without weights the bytes that move.
    pub cost: u128,
}

impl Volume {
    fn plain(kept: u128, moved: u128, bytes: u64) -> Self {
        // Elements of one array are at most 2^62.
        let (kept_bytes, moved_bytes) = (kept * u128::from(bytes), moved * u128::from(bytes));
        Self { kept_elems: kept, moved_elems: moved, kept_bytes, moved_bytes, cost: moved_bytes }
    }
}

/// The result: the destination's grid on the ranks that keep most bytes, with the volumes before and after.
///
/// ```
/// use reshard_plan::{Problem, Relabel};
/// let problem = Problem::new("2x4/8x8 of 64x64".parse()?, "2x4/8x8 rank-order=col of 64x64".parse()?)?;
/// let relabelling = Relabel::new(&problem).find()?;
/// assert_eq!(relabelling.before().moved_elems, 3072);
/// assert_eq!(relabelling.after().moved_elems, 0);
/// let to = relabelling.distribution(problem.to())?;
/// assert_eq!(to.pattern().to_string(), "2x4/8x8 rank-order=col ranks=0,4,1,5,2,6,3,7");
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relabelling {
    given: Grid,
    grid: Grid,
    before: Volume,
    after: Volume,
}

impl Relabelling {
    /// The destination's grid with its new ranks.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// True if no other labelling is better than the given one.
    pub fn is_unchanged(&self) -> bool {
        self.grid == self.given
    }

    /// The volume that stays and moves with the given labelling.
    pub fn before(&self) -> Volume {
        self.before
    }

    /// The volume that stays and moves with the new labelling.
    pub fn after(&self) -> Volume {
        self.after
    }

    /// A distribution on the destination's grid, on its new ranks.
    pub fn distribution(&self, to: &Distribution) -> Result<Distribution> {
        if *to.grid() != self.given {
            return Err(Error::mismatch(format!(
                "a layout on the grid {} was given to relabel, which is not the one the relabelling was found for, {}; \
                 give the destination as it was",
                by_x(to.grid().extents()),
                by_x(self.given.extents())
            )));
        }
        Distribution::new(self.grid.clone(), to.axes().to_vec())
    }

    /// The problem with its destination on the new ranks.
    pub fn problem(&self, problem: &Problem) -> Result<Problem> {
        let window = Window::of(problem.shape())
            .from(problem.from_offset())
            .to(problem.to_offset())
            .permuted(problem.axes());
        Problem::windowed(problem.from().clone(), self.distribution(problem.to())?, window)
    }
}
