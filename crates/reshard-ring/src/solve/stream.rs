//! Chains as soon as possible, exactly: what leaves a process when, if it sends every item as soon as it has it.
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

/// Runs kept for one link, and for all together, before some are joined; and how many become one.
const MOST_RUNS: usize = 64;
const MOST_RUNS_IN_ALL: usize = 10_000_000;
const JOINED_RUNS: usize = 8;

/// Items that leave `period` after each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemRun {
    items: u64,
    start: u64,
    period: u64,
}

impl ItemRun {
    fn last(&self) -> u64 {
        self.start + (self.items - 1) * self.period
    }
}

/// The items over one link.
#[derive(Clone, Debug, Default)]
struct Stream {
    runs: Vec<ItemRun>,
    cost: u64,
    /// When the port is free again.
    free: u64,
}

impl Stream {
    fn new(cost: u64, free: u64) -> Self {
        Self { runs: Vec::new(), cost, free }
    }

    fn push(&mut self, items: u64, start: u64, period: u64) {
        if items == 0 {
            return;
        }
        self.free = start + (items - 1) * period + self.cost;
        if let Some(last) = self.runs.last_mut() {
            // A single item goes with any pace.
            let pace = start - last.last();
            let fits = |run_items: u64, run_period: u64| run_items == 1 || run_period == pace;
            if fits(last.items, last.period) && fits(items, period) {
                (last.items, last.period) = (last.items + items, pace);
                return;
            }
        }
        self.runs.push(ItemRun { items, start, period });
    }

    /// Sends what is there: without pauses.
    fn push_held(&mut self, items: u64) {
        self.push(items, self.free, self.cost);
    }

    /// Sends on items that arrive from `first` on, `period` after each other, each as soon as possible.
    fn push_arriving(&mut self, items: u64, first: u64, period: u64) {
        if period <= self.cost || first >= self.free {
            // Either nothing piles up after the first, or everything does.
            let (start, pace) = (first.max(self.free), period.max(self.cost));
            return self.push(items, start, pace);
        }
        // The port is behind, and catches up.
        let behind = (self.free - first).div_ceil(period - self.cost).min(items);
        self.push_held(behind);
        self.push(items - behind, first + behind * period, period);
    }

    /// Fewer runs: each joins some, is nowhere earlier than they are and ends at the same moment.
    fn flatten(&mut self) {
        self.runs = self.runs.chunks(JOINED_RUNS).map(joined).collect();
    }
}

/// The straight line through the last item of some runs that is nowhere earlier than they are.
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

/// A program, and whether every item leaves as soon as it can.
pub(crate) struct Soonest {
    pub program: Program,
    pub exact: bool,
}

/// As soon as possible, chains towards `first` before the others where they meet.
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

struct Streams<'a> {
    net: &'a Net<'a>,
    transfers: Vec<Transfer>,
    /// When each process has done with what it sends and receives so far.
    sent: Vec<u64>,
    received: Vec<u64>,
    exact: bool,
}

impl Streams<'_> {
    fn run_chain(&mut self, chain: Chain) -> Result<()> {
        let mut arriving = Stream::default();
        for rank in self.net.senders(chain) {
            let to = self.net.next(rank, chain.side);
            let cost = self.net.problem.cost(rank, chain.side);
            let mut stream = Stream::new(cost, self.sent[rank].max(self.received[to]));
            let items = self.net.sends(rank, chain.side);
            // A process that sends both ways has all it sends.
            let mut left = items - items.min(self.net.problem.loads()[rank]);
            stream.push_held(items - left);
            for run in &arriving.runs {
                let items = run.items.min(left);
                stream.push_arriving(items, run.start + arriving.cost, run.period);
                left -= items;
            }
            let crowded = self.transfers.len() > MOST_RUNS_IN_ALL && stream.runs.len() > JOINED_RUNS;
            if crowded || stream.runs.len() > MOST_RUNS {
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
