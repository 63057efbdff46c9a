//! Programs in which every process sends every item as soon as it holds it, computed exactly.
//!
//! In one direction nothing can be faster, empty processes or not: item `k` of a link leaves after item `k - 1` has
//! arrived, and after the item it needs has; every program obeys the same inequalities, and as soon as possible is their
//! least solution. (More items round the ring only add inequalities.)
//!
//! A link's items are a list of runs, each with its own pace, so the work does not grow with the number of items. Along a
//! chain that gets faster and faster the lists grow by a run a link; past a limit runs are joined into longer ones that are
//! nowhere earlier and end at the same moment. That is still a program, only perhaps no longer the best.

use super::chains::{Chain, Net};
use super::problem::Side;
use super::program::{Program, Transfer};
use reshard_plan::Result;
use reshard_plan::memory;

/// The most runs of one link before some are joined.
const MAX_RUNS_PER_LINK: usize = 64;
/// The most runs of all links together before those of further links are joined.
const MAX_RUNS: usize = 10_000_000;
/// Number of runs that are joined into one.
const JOINED_RUNS: usize = 8;

/// Items that leave `period` after each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemRun {
    items: u64,
    start: u64,
    period: u64,
}

impl ItemRun {
    /// Time at which the last item leaves.
    fn last(&self) -> u64 {
        self.start + (self.items - 1) * self.period
    }
}

/// The items over one link, as runs.
#[derive(Clone, Debug, Default)]
struct Stream {
    runs: Vec<ItemRun>,
    cost: u64,
    /// Time at which the ports of the link are free again.
    free: u64,
}

impl Stream {
    fn new(cost: u64, free: u64) -> Self {
        Self { runs: Vec::new(), cost, free }
    }

    /// Appends items that leave `period` after each other from `start` on; joins them to the last run if the pace is equal.
    fn push(&mut self, items: u64, start: u64, period: u64) {
        if items == 0 {
            return;
        }
        self.free = start + (items - 1) * period + self.cost;
        if let Some(last) = self.runs.last_mut() {
            // A single item fits any pace.
            let pace = start - last.last();
            let fits = |run_items: u64, run_period: u64| run_items == 1 || run_period == pace;
            if fits(last.items, last.period) && fits(items, period) {
                (last.items, last.period) = (last.items + items, pace);
                return;
            }
        }
        self.runs.push(ItemRun { items, start, period });
    }

    /// Appends items that the sender holds: they leave without pauses.
    fn push_held(&mut self, items: u64) {
        self.push(items, self.free, self.cost);
    }

    /// Appends items that arrive `period` after each other from `first` on and are passed on as soon as possible.
    fn push_arriving(&mut self, items: u64, first: u64, period: u64) {
        if period <= self.cost || first >= self.free {
            // Either no item has to queue after the first, or every item does.
            let (start, pace) = (first.max(self.free), period.max(self.cost));
            return self.push(items, start, pace);
        }
        // The port is busy when items arrive, and catches up.
        let behind = (self.free - first).div_ceil(period - self.cost).min(items);
        self.push_held(behind);
        self.push(items - behind, first + behind * period, period);
    }

    /// Joins runs to fewer: each new run is nowhere earlier than the runs it replaces and ends when they end.
    fn flatten(&mut self) {
        self.runs = self.runs.chunks(JOINED_RUNS).map(joined).collect();
    }
}

/// The run (a straight line in time) through the last item of `runs` that is nowhere earlier than they are.
fn joined(runs: &[ItemRun]) -> ItemRun {
    let (start, end) = (runs[0].start, runs[runs.len() - 1].last());
    // A line bends only where runs begin: it is the flattest from any of these to the end.
    let (mut items, mut pace) = (0, u64::MAX);
    for run in runs.iter().rev() {
        for (from_end, at) in [(items, run.last()), (items + run.items - 1, run.start)] {
            pace = pace.min((end - at).checked_div(from_end).unwrap_or(u64::MAX));
        }
        items += run.items;
    }
    let pace = if items == 1 { end - start } else { pace };
    ItemRun { items, start: end - (items - 1) * pace, period: pace }
}

/// A program, and whether every item in it leaves as soon as it can.
pub(crate) struct Soonest {
    pub program: Program,
    pub exact: bool,
}

/// Computes the program as soon as possible; where chains meet, those towards `first` go before the others.
pub(crate) fn soonest(net: &Net<'_>, first: Side) -> Result<Soonest> {
    let procs = net.flow.len();
    let mut all =
        Streams { net, transfers: Vec::new(), sent: vec![0; procs], received: vec![0; procs], exact: true };
    for side in [first, first.opposite()] {
        for chain in net.chains(side) {
            all.run_chain(chain)?;
        }
    }
    Ok(Soonest { program: Program::new(procs, all.transfers), exact: all.exact })
}

/// The transfers of all chains so far.
struct Streams<'a> {
    net: &'a Net<'a>,
    transfers: Vec<Transfer>,
    /// Time at which each process has sent all items so far.
    sent: Vec<u64>,
    /// Time at which each process has received all items so far.
    received: Vec<u64>,
    exact: bool,
}

impl Streams<'_> {
    /// Adds the transfers of a chain.
    fn run_chain(&mut self, chain: Chain) -> Result<()> {
        let mut arriving = Stream::default();
        for rank in self.net.senders(chain) {
            let to = self.net.next(rank, chain.side);
            let cost = self.net.problem.cost(rank, chain.side);
            let mut stream = Stream::new(cost, self.sent[rank].max(self.received[to]));
            let items = self.net.sends(rank, chain.side);
            // A process that sends to both sides receives nothing, so it holds all it sends.
            let mut left = items - items.min(self.net.problem.loads()[rank]);
            stream.push_held(items - left);
            for run in &arriving.runs {
                let items = run.items.min(left);
                stream.push_arriving(items, run.start + arriving.cost, run.period);
                left -= items;
            }
            let too_many = self.transfers.len() > MAX_RUNS && stream.runs.len() > JOINED_RUNS;
            if too_many || stream.runs.len() > MAX_RUNS_PER_LINK {
                stream.flatten();
                self.exact = false;
            }
            let transfers = stream.runs.iter().map(|run| Transfer {
                from: rank as u64,
                side: chain.side,
                items: run.items,
                start: run.start,
                end: run.last() + cost,
            });
            memory::extend(&mut self.transfers, transfers, "the transfers of a ring")?;
            self.sent[rank] = self.sent[rank].max(stream.free);
            self.received[to] = self.received[to].max(stream.free);
            arriving = stream;
        }
        Ok(())
    }
}
