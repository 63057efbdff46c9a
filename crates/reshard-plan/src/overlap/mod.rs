//! The elements that one process shares with every process of the other side, along one axis.
//!
//! Five methods find them, one algorithm in each file, and all return equal canonical [`Overlap`]s:
//!
//! | method | visits | why it is here |
//! |---|---|---|
//! | [`naive`](Method::Naive) | every element | the oracle: too simple to be wrong |
//! | [`classical`](Method::Classical) | every own block against every block of every peer | the obvious algorithm |
//! | [`falls`](Method::Falls) | own blocks of one period, a bounded range of each peer's | the literature's best before ASPEN |
//! | [`scan`](Method::Scan) | own and each peer's blocks merged, up to the period | ScaLAPACK's; takes irregular axes too |
//! | [`aspen`](Method::Aspen) | own blocks only, peers follow by shifting | the default: no loop over peers |
//!
//! Indices here are *window* indices: 0 is the first element moved, wherever the window begins on either side. Of a replicated
//! axis all processes have equal overlaps, and as a peer process 0 stands for all of them.
//! The canonical form of the answer is described in [`run`].

mod aspen;
mod classical;
mod falls;
mod naive;
pub mod run;
mod scan;

use crate::axis::{Axis, lcm_upto};
use crate::error::{Error, Result};
use crate::memory;
use run::{Flat, Fold};
pub use run::{Overlap, Run};
use std::fmt;
use std::str::FromStr;

/// The most runs of an overlap: with more, the two layouts have no useful common period.
const MAX_RUNS: u64 = 1 << 24;

/// Lists of no more runs than this are allocated without checking the memory first.
const MIN_CHECKED_RUNS: u64 = 1 << 14;

/// The most steps of a slow method, seconds of work; with more it is refused, as it could run for hours.
pub(crate) const MAX_STEPS: u128 = 1 << 30;

/// One side of a move along one axis: the axis, and where on it the window begins.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The axis.
    pub axis: &'a Axis,
    /// Global index of the window's first element.
    pub offset: u64,
}

/// Both sides of a move along one axis: overlaps are found for processes of `here`; those of `there` are their peers.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    here: Side<'a>,
    there: Side<'a>,
    extent: u64,
    common: CommonPeriod,
}

/// The common period of both sides along one axis: computed once for all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CommonPeriod {
    period: u64,
    /// The most runs in a period of a process of `here`; 0 for irregular axes, where it depends on the process.
    max_runs_here: u64,
    /// The most runs in a period of a process of `there`; 0 for irregular axes.
    max_runs_there: u64,
}

impl<'a> Sides<'a> {
    /// A window of `extent` elements that must lie on both axes.
    pub fn new(here: Side<'a>, there: Side<'a>, extent: u64) -> Result<Self> {
        for side in [here, there] {
            if side.offset.checked_add(extent).is_none_or(|end| end > side.axis.len()) {
                return Err(Error::out_of_range(format!(
                    "a window of {extent} elements from index {} does not fit on an axis of {}",
                    side.offset,
                    side.axis.len()
                )));
            }
        }
        let mut sides = Self {
            here,
            there,
            extent,
            common: CommonPeriod { period: 0, max_runs_here: 0, max_runs_there: 0 },
        };
        sides.common.period = sides.find_period();
        if sides.are_cyclic() {
            let most = |sides: &Self| {
                u64::try_from(aspen::most_runs(sides, sides.common.period)).unwrap_or(u64::MAX)
            };
            (sides.common.max_runs_here, sides.common.max_runs_there) =
                (most(&sides), most(&sides.reversed()));
        }
        Ok(sides)
    }

    /// Sides whose common period is known already.
    pub(crate) fn known(here: Side<'a>, there: Side<'a>, extent: u64, common: CommonPeriod) -> Self {
        Self { here, there, extent, common }
    }

    /// The common period, to be kept for [`Sides::known`].
    pub(crate) fn common_period(&self) -> CommonPeriod {
        self.common
    }

    /// Two whole axes of one length.
    pub fn whole(here: &'a Axis, there: &'a Axis) -> Result<Self> {
        if here.len() != there.len() {
            return Err(Error::mismatch(format!(
                "one axis has {} elements and the other {}; give a window to move a part",
                here.len(),
                there.len()
            )));
        }
        Self::new(Side { axis: here, offset: 0 }, Side { axis: there, offset: 0 }, here.len())
    }

    /// Exchanges `here` and `there`.
    #[must_use]
    pub fn reversed(self) -> Self {
        let CommonPeriod { period, max_runs_here, max_runs_there } = self.common;
        let common = CommonPeriod { period, max_runs_here: max_runs_there, max_runs_there: max_runs_here };
        Self { here: self.there, there: self.here, extent: self.extent, common }
    }

    /// The side whose processes overlaps are found for.
    pub fn here(&self) -> Side<'a> {
        self.here
    }

    /// The side of the peers.
    pub fn there(&self) -> Side<'a> {
        self.there
    }

    /// Elements in the window.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// Period of both sides in elements; the extent if they do not repeat within the window.
    pub fn period(&self) -> u64 {
        self.common.period
    }

    fn find_period(&self) -> u64 {
        // If one process owns everything, the period is 1.
        let round = |axis: &Axis| match axis.has_cycle() {
            true if axis.parts() == 1 => Some(1),
            true => Some(axis.cycle().stride).filter(|&stride| stride < self.extent),
            false => None,
        };
        match (round(self.here.axis), round(self.there.axis)) {
            (Some(1), Some(1)) => self.extent,
            (Some(a), Some(b)) => lcm_upto(a, b, self.extent).unwrap_or(self.extent),
            _ => self.extent,
        }
    }

    /// True if the window holds at least one whole period of both sides, so that every message of the pattern occurs.
    pub(crate) fn covers_a_period(&self) -> bool {
        let round = |axis: &Axis| {
            axis.cyclic_parameters().and_then(|(block, _)| {
                if axis.procs() == 1 { Some(1) } else { block.checked_mul(axis.procs()) }
            })
        };
        let (here, there) = (round(self.here.axis), round(self.there.axis));
        here.zip(there).is_some_and(|(here, there)| lcm_upto(here, there, self.extent).is_some())
    }

    /// The processes of this side that own anything in the window, ascending, of a replicated axis one for all; `None` if there are
    /// more than `most`.
    pub(crate) fn busy(&self, most: u64) -> Option<Vec<u64>> {
        let (axis, offset) = (self.here.axis, self.here.offset);
        if self.extent == 0 {
            return Some(Vec::new());
        }
        let mut busy: Vec<u64> = if axis.has_cycle() {
            let cycle = axis.cycle();
            let blocks = (offset + self.extent - 1) / cycle.block - offset / cycle.block + 1;
            let count = blocks.min(cycle.procs);
            if count > most {
                return None;
            }
            let first = cycle.owner(offset);
            (0..count).map(|turn| (first + turn) % cycle.procs).collect()
        } else {
            let from = |start: u64| axis.block_at(start).filter(|_| start < offset + self.extent);
            std::iter::successors(from(offset), |&(_, end)| from(end)).map(|(owner, _)| owner).collect()
        };
        busy.sort_unstable();
        busy.dedup();
        (busy.len() as u64 <= most).then_some(busy)
    }

    /// An upper bound of the runs of all processes of this side together, `busy` of which own elements.
    pub(crate) fn most_runs(&self, busy: u64) -> u128 {
        let (busy, pieces) = (u128::from(busy), |side: Side<'_>| side.axis.pieces() as u128);
        match (self.here.axis.has_cycle(), self.there.axis.has_cycle()) {
            (true, true) => busy.saturating_mul(self.common.max_runs_here.into()),
            (true, false) => busy.saturating_mul(3 * pieces(self.there) + 2),
            (false, true) => {
                let folded = pieces(self.here).saturating_mul(u128::from(self.there.axis.parts()) + 2);
                folded.min(pieces(self.here) + Self::blocks_of_all(self.there, self.extent))
            }
            (false, false) => pieces(self.here) + pieces(self.there),
        }
    }

    fn are_cyclic(&self) -> bool {
        self.here.axis.has_cycle() && self.there.axis.has_cycle()
    }

    /// An upper bound of the blocks of one process of `side` that meet `span` elements.
    fn blocks_of_one(side: Side<'_>, process: u64, span: u64) -> u128 {
        if side.axis.has_cycle() {
            u128::from(span / side.axis.cycle().stride) + 2
        } else {
            side.axis.blocks(process, side.offset).count() as u128
        }
    }

    /// An upper bound of the blocks of all processes of `side` that meet `span` elements.
    fn blocks_of_all(side: Side<'_>, span: u64) -> u128 {
        if side.axis.has_cycle() {
            u128::from(span / side.axis.cycle().block) + 2
        } else {
            side.axis.pieces() as u128
        }
    }
}

/// A way to find overlaps. All give equal results; they differ in cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// Element by element.
    Naive,
    /// Every block against every block.
    Classical,
    /// One period, bounded search among each peer's blocks.
    Falls,
    /// Two counters merged for each peer, stopped at the period.
    Scan,
    /// A walk along the own blocks that knows the peers by shifting.
    #[default]
    Aspen,
}

impl Method {
    /// All methods, slowest first.
    pub const ALL: [Self; 5] = [Self::Naive, Self::Classical, Self::Falls, Self::Scan, Self::Aspen];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Classical => "classical",
            Self::Falls => "falls",
            Self::Scan => "scan",
            Self::Aspen => "aspen",
        }
    }

    /// Calls `visit(peer, start, len)` for each piece in the order the method finds them, as the papers' programs
    /// do; no canonical form. `naive` gives single elements, `classical` pieces of all periods. On irregular axes
    /// `falls` and `aspen`, which need periods, are replaced by `scan`.
    pub fn visit(self, sides: &Sides<'_>, process: u64, visit: &mut impl FnMut(u64, u64, u64)) -> Result<()> {
        let method = self.fitting(sides);
        let process = sides.here.axis.part_of(process);
        let span = sides.period().min(sides.extent);
        let most = method.check_work(sides, process, span)?;
        match method {
            Self::Naive => naive::visit(sides, process, span, visit),
            Self::Classical => classical::visit(sides, process, visit),
            Self::Falls => falls::visit(sides, process, span, visit),
            Self::Scan => scan::visit(sides, process, span, visit),
            Self::Aspen => {
                for run in aspen::runs(sides, process, span, most) {
                    run.pieces().for_each(|piece| visit(run.peer, piece.start, piece.end - piece.start));
                }
            }
        }
        Ok(())
    }

    /// FALLS and ASPEN need periods: an irregular axis uses the scan instead.
    fn fitting(self, sides: &Sides<'_>) -> Self {
        match self {
            Self::Falls | Self::Aspen if !sides.are_cyclic() => Self::Scan,
            _ => self,
        }
    }

    /// The approximate number of steps for one process, and an upper bound of its runs.
    fn work(self, sides: &Sides<'_>, process: u64, span: u64) -> (u128, u128) {
        let peers = u128::from(sides.there.axis.parts());
        let own = |span| Sides::blocks_of_one(sides.here, process, span);
        let all = |span| Sides::blocks_of_all(sides.there, span);
        match self {
            Self::Aspen => (0, sides.common.max_runs_here.into()),
            Self::Scan if !sides.are_cyclic() => (0, scan::most_irregular_runs(sides, process)),
            Self::Naive => (u128::from(span), own(span) + all(span)),
            Self::Classical => {
                (own(sides.extent).saturating_mul(all(sides.extent) + peers), own(span) + all(span))
            }
            Self::Falls | Self::Scan => (peers.saturating_mul(own(span)) + all(span), own(span) + all(span)),
        }
    }

    /// The approximate number of steps to find the overlaps of these processes one after the other.
    pub(crate) fn steps_of(self, sides: &Sides<'_>, busy: &[u64]) -> u128 {
        let method = self.fitting(sides);
        let of_one = busy.first().map_or(0, |&process| method.work(sides, process, sides.period()).0);
        of_one.saturating_mul(busy.len() as u128)
    }

    /// Fails if it would take hours or all memory. Returns an upper bound of the number of runs.
    fn check_work(self, sides: &Sides<'_>, process: u64, span: u64) -> Result<u64> {
        let (steps, runs) = self.work(sides, process, span);
        if steps > MAX_STEPS {
            return Err(Error::too_large(format!(
                "the method {self} would take about {steps} steps here; use aspen, the default"
            )));
        }
        u64::try_from(runs).ok().filter(|&runs| runs <= MAX_RUNS).ok_or_else(|| {
            Error::too_large(format!(
                "these two layouts meet in up to {runs} runs before they repeat, more than 2^24; \
                 choose block sizes nearer to multiples of each other, or smaller grids"
            ))
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|method| method.name()).collect();
            Error::mismatch(format!("the method {text:?} is not known; choose one of {}", names.join(", ")))
        })
    }
}

impl Overlap {
    /// The elements that `process` shares with every process of the other side, found by the default method.
    ///
    /// ```
    /// use reshard_plan::{Axis, Overlap, Sides};
    /// let (from, to) = (Axis::block_cyclic(240, 16, 3, 0)?, Axis::block_cyclic(240, 16, 5, 0)?);
    /// let overlap = Overlap::new(&Sides::whole(&from, &to)?, 0)?;
    /// // Process 0 holds 0..3, 48..51, 96..99, 144..147 and 192..195: the first row of the paper's Table 1.
    /// assert_eq!(overlap.shares(), [(0, 3), (3, 3), (6, 3), (9, 2), (10, 1), (12, 1), (13, 2)]);
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn new(sides: &Sides<'_>, process: u64) -> Result<Self> {
        Self::by(Method::default(), sides, process)
    }

    /// The elements that `process` shares with every process of the other side, found by `method`.
    pub fn by(method: Method, sides: &Sides<'_>, process: u64) -> Result<Self> {
        let procs = sides.here.axis.procs();
        if process >= procs {
            return Err(Error::out_of_range(format!(
                "process {process} was asked for on an axis of {procs} processes, numbered from 0"
            )));
        }
        let method = method.fitting(sides);
        let process = sides.here.axis.part_of(process);
        let period = sides.period();
        let most = method.check_work(sides, process, period)?;
        if most > MIN_CHECKED_RUNS {
            // A list that grows exists twice while it is copied.
            memory::check(2 * u128::from(most) * size_of::<Run>() as u128, "the runs of an overlap")?;
        }
        let runs = match method {
            Method::Aspen => aspen::runs(sides, process, period, most),
            Method::Scan if !sides.are_cyclic() => scan::irregular_runs(sides, process),
            _ => {
                let mut flat: Vec<Flat> = Vec::new();
                method.visit(sides, process, &mut |peer, start, len| {
                    let piece = Flat { peer, start, end: (start + len).min(period) };
                    match flat.last_mut() {
                        Some(Flat { end, peer: last, .. }) if *end == start && *last == peer => {
                            *end = piece.end;
                        }
                        _ if start < period => flat.push(piece),
                        _ => {}
                    }
                })?;
                Fold::flat(flat, sides.there.axis)
            }
        };
        Ok(Self::from_runs(sides.extent, period, runs))
    }
}
