//! Chains as soon as possible, exactly: what leaves a process when, if it sends every item as soon as it has it.
//!
//! In one direction nothing can be faster, empty processes or not: item `k` of a link leaves after item `k - 1` has
//! arrived, and after the item it needs has; every program obeys the same inequalities, and as soon as possible is their
//! least solution. (More items round the ring only add inequalities.)
//!
//! A link's items are a list of runs, each with its own pace, so the work does not grow with the number of items. Along a
//! chain that gets faster and faster the lists grow by a run a link; past a limit a list is replaced by one run that is
//! nowhere earlier and ends at the same moment. That is still a program, only perhaps no longer the best.

use super::chains::{Chain, Net};
use super::problem::Side;
use super::program::{Program, Transfer};

/// Runs kept for all links together before lists are cut short.
const MOST_RUNS: usize = 4_000_000;

/// Items that leave `period` after each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    items: u64,
    start: u64,
    period: u64,
}

impl Run {
    fn last(&self) -> u64 {
        self.start + (self.items - 1) * self.period
    }
}

/// The items over one link.
#[derive(Clone, Debug, Default)]
struct Stream {
    runs: Vec<Run>,
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
        self.runs.push(Run { items, start, period });
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

    /// One run that is nowhere earlier and ends at the same moment.
    fn flatten(&mut self) {
        let (Some(first), Some(last)) = (self.runs.first().copied(), self.runs.last().copied()) else {
            return;
        };
        let items: u64 = self.runs.iter().map(|run| run.items).sum();
        let pairs = || self.runs.windows(2);
        let slows = pairs().all(|pair| {
            let gap = pair[1].start - pair[0].last();
            (pair[0].items == 1 || pair[0].period <= gap) && (pair[1].items == 1 || gap <= pair[1].period)
        });
        // If the pace only gets slower, an even one is later everywhere; else going at full speed, but late, is.
        let even = if slows { (last.last() - first.start) / (items - 1).max(1) } else { self.cost };
        let start = last.last() - (items - 1) * even;
        self.runs = vec![Run { items, start, period: even }];
    }
}

/// A program, and whether every item leaves as soon as it can.
pub(crate) struct Soonest {
    pub program: Program,
    pub exact: bool,
}

/// As soon as possible, chains towards `first` before the others where they meet.
pub(crate) fn soonest(net: &Net<'_>, first: Side) -> Soonest {
    let procs = net.flow.len();
    let mut all = Streams {
        net,
        transfers: Vec::new(),
        sent: vec![0; procs],
        received: vec![0; procs],
        most_runs: (MOST_RUNS / procs).clamp(2, 64),
        exact: true,
    };
    for side in [first, first.opposite()] {
        for chain in net.chains(side) {
            all.run_chain(chain);
        }
    }
    Soonest { program: Program::new(procs, all.transfers), exact: all.exact }
}

struct Streams<'a> {
    net: &'a Net<'a>,
    transfers: Vec<Transfer>,
    /// When each process has done with what it sends and receives so far.
    sent: Vec<u64>,
    received: Vec<u64>,
    most_runs: usize,
    exact: bool,
}

impl Streams<'_> {
    fn run_chain(&mut self, chain: Chain) {
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
            if stream.runs.len() > self.most_runs {
                stream.flatten();
                self.exact = false;
            }
            self.transfers.extend(stream.runs.iter().map(|run| Transfer {
                from: rank as u64,
                side: chain.side,
                items: run.items,
                start: run.start,
                end: run.last() + cost,
            }));
            self.sent[rank] = self.sent[rank].max(stream.free);
            self.received[to] = self.received[to].max(stream.free);
            arriving = stream;
        }
    }
}
