//! What one process shares with every process of the other side, along one axis.
//!
//! Five methods find it, one algorithm to a file, and all give the same canonical [`Overlap`]:
//!
//! | method | looks at | why it is here |
//! |---|---|---|
//! | [`naive`](Method::Naive) | every element | the oracle: too simple to be wrong |
//! | [`classical`](Method::Classical) | every own block against every block of every peer | what one writes first |
//! | [`falls`](Method::Falls) | own blocks of one period, a bounded range of each peer's | the literature's best before ASPEN |
//! | [`scan`](Method::Scan) | own and each peer's blocks merged, up to the period | ScaLAPACK's; takes irregular axes too |
//! | [`aspen`](Method::Aspen) | own blocks only, peers follow by shifting | the default: no loop over peers |
//!
//! Indices here are *window* indices: 0 is the first element moved, wherever the window begins on either side.
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

/// The most runs an overlap may hold: past this the two layouts have no useful common period.
const MAX_RUNS: u64 = 1 << 24;

/// Fewer runs fit in memory wherever anything does.
const MANY_RUNS: u64 = 1 << 14;

/// The most steps a slow method may take before it is refused rather than left to run for hours: seconds.
pub(crate) const MAX_STEPS: u128 = 1 << 30;

/// One side of a move along one axis: the axis, and where on it the window begins.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The axis.
    pub axis: &'a Axis,
    /// Global index of the window's first element.
    pub offset: u64,
}

/// Both sides of a move along one axis. `here` are the processes one asks about, `there` their peers.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    here: Side<'a>,
    there: Side<'a>,
    extent: u64,
    rhythm: Rhythm,
}

/// What all processes have in common along one axis: found once, then known to every rank's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rhythm {
    period: u64,
    /// At most so many runs a process of this side has in a period, and one of the other; 0 for irregular axes, where it
    /// depends on the process.
    most_here: u64,
    most_there: u64,
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
        let mut sides =
            Self { here, there, extent, rhythm: Rhythm { period: 0, most_here: 0, most_there: 0 } };
        sides.rhythm.period = sides.find_period();
        if sides.are_cyclic() {
            let most = |sides: &Self| {
                u64::try_from(aspen::most_runs(sides, sides.rhythm.period)).unwrap_or(u64::MAX)
            };
            (sides.rhythm.most_here, sides.rhythm.most_there) = (most(&sides), most(&sides.reversed()));
        }
        Ok(sides)
    }

    /// Sides that were made before and whose rhythm was kept.
    pub(crate) fn known(here: Side<'a>, there: Side<'a>, extent: u64, rhythm: Rhythm) -> Self {
        Self { here, there, extent, rhythm }
    }

    /// What to keep for [`Sides::known`].
    pub(crate) fn rhythm(&self) -> Rhythm {
        self.rhythm
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

    /// The same move asked from the other side.
    #[must_use]
    pub fn reversed(self) -> Self {
        let Rhythm { period, most_here, most_there } = self.rhythm;
        let rhythm = Rhythm { period, most_here: most_there, most_there: most_here };
        Self { here: self.there, there: self.here, extent: self.extent, rhythm }
    }

    /// Whose processes one asks about.
    pub fn here(&self) -> Side<'a> {
        self.here
    }

    /// Their peers.
    pub fn there(&self) -> Side<'a> {
        self.there
    }

    /// Elements in the window.
    pub fn extent(&self) -> u64 {
        self.extent
    }

    /// After how many elements both sides begin again; the extent if they do not within the window.
    pub fn period(&self) -> u64 {
        self.rhythm.period
    }

    fn find_period(&self) -> u64 {
        // One process owns everything: that begins again with every element.
        let round = |axis: &Axis| match axis.is_cyclic() {
            true if axis.procs() == 1 => Some(1),
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

    /// The processes of this side that own anything in the window, ascending; `None` if there are more than `most`.
    pub(crate) fn busy(&self, most: u64) -> Option<Vec<u64>> {
        let (axis, offset) = (self.here.axis, self.here.offset);
        if self.extent == 0 {
            return Some(Vec::new());
        }
        let mut busy: Vec<u64> = if axis.is_cyclic() {
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

    /// At most so many runs all processes of this side have together, `busy` of which own anything.
    pub(crate) fn most_runs(&self, busy: u64) -> u128 {
        let (busy, pieces) = (u128::from(busy), |side: Side<'_>| side.axis.pieces() as u128);
        match (self.here.axis.is_cyclic(), self.there.axis.is_cyclic()) {
            (true, true) => busy.saturating_mul(self.rhythm.most_here.into()),
            (true, false) => busy.saturating_mul(3 * pieces(self.there) + 2),
            (false, true) => {
                let folded = pieces(self.here).saturating_mul(u128::from(self.there.axis.procs()) + 2);
                folded.min(pieces(self.here) + Self::blocks_of_all(self.there, self.extent))
            }
            (false, false) => pieces(self.here) + pieces(self.there),
        }
    }

    fn are_cyclic(&self) -> bool {
        self.here.axis.is_cyclic() && self.there.axis.is_cyclic()
    }

    /// At most so many blocks of one process of `side` meet `span` elements.
    fn blocks_of_one(side: Side<'_>, process: u64, span: u64) -> u128 {
        if side.axis.is_cyclic() {
            u128::from(span / side.axis.cycle().stride) + 2
        } else {
            side.axis.blocks(process, side.offset).count() as u128
        }
    }

    /// At most so many blocks of all processes of `side` meet `span` elements.
    fn blocks_of_all(side: Side<'_>, span: u64) -> u128 {
        if side.axis.is_cyclic() {
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
    /// `falls` and `aspen`, which live on periods, give way to `scan`.
    pub fn visit(self, sides: &Sides<'_>, process: u64, visit: &mut impl FnMut(u64, u64, u64)) -> Result<()> {
        let method = self.fitting(sides);
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

    /// FALLS and ASPEN live on periods: an irregular axis takes the scan instead.
    fn fitting(self, sides: &Sides<'_>) -> Self {
        match self {
            Self::Falls | Self::Aspen if !sides.are_cyclic() => Self::Scan,
            _ => self,
        }
    }

    /// About how many steps one process takes, and how many runs it has at most.
    fn work(self, sides: &Sides<'_>, process: u64, span: u64) -> (u128, u128) {
        let peers = u128::from(sides.there.axis.procs());
        let own = |span| Sides::blocks_of_one(sides.here, process, span);
        let all = |span| Sides::blocks_of_all(sides.there, span);
        match self {
            Self::Aspen => (0, sides.rhythm.most_here.into()),
            Self::Scan if !sides.are_cyclic() => (0, scan::most_irregular_runs(sides, process)),
            Self::Naive => (u128::from(span), own(span) + all(span)),
            Self::Classical => {
                (own(sides.extent).saturating_mul(all(sides.extent) + peers), own(span) + all(span))
            }
            Self::Falls | Self::Scan => (peers.saturating_mul(own(span)) + all(span), own(span) + all(span)),
        }
    }

    /// About how many steps it takes to find the overlaps of these processes one after the other.
    pub(crate) fn steps_of(self, sides: &Sides<'_>, busy: &[u64]) -> u128 {
        let method = self.fitting(sides);
        let of_one = busy.first().map_or(0, |&process| method.work(sides, process, sides.period()).0);
        of_one.saturating_mul(busy.len() as u128)
    }

    /// Refuses what would take hours or all memory, before it begins. Gives a bound on the number of runs.
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
    /// What `process` shares with every process of the other side, by the default method.
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

    /// The same by a method of one's choice.
    pub fn by(method: Method, sides: &Sides<'_>, process: u64) -> Result<Self> {
        let procs = sides.here.axis.procs();
        if process >= procs {
            return Err(Error::out_of_range(format!(
                "process {process} was asked for on an axis of {procs} processes, numbered from 0"
            )));
        }
        let method = method.fitting(sides);
        let period = sides.period();
        let most = method.check_work(sides, process, period)?;
        if most > MANY_RUNS {
            // A list that grows is there twice when it is copied.
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
