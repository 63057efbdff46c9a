//! Programs: which process sends how many items to which neighbour, in which order, and when.
//!
//! A transfer is a run of items over one link, evenly spaced from its first to its last, so that a program has a few
//! transfers for each process, however many items move. Its times are one valid timetable. The order alone is enough to
//! run it: a process that makes its sends in order, each item as soon as it holds one, and accepts whatever its
//! neighbours send, never deadlocks. Only the process itself removes items from those it holds, so a send that is possible
//! stays possible until it is made; whatever the order in which sends happen, all end like the timetable.

use super::problem::{RingProblem, Side};

/// A run of items over one link, one after the other.
///
/// Item `k` (from 0) starts at `start + floor(k * (end - start - cost) / (items - 1))` and takes the link's cost; the last
/// ends at `end`. If `end - start` is `items * cost` there are no pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The sender.
    pub from: u64,
    /// The side of the neighbour that receives.
    pub side: Side,
    /// Number of items, at least 1.
    pub items: u64,
    /// Time at which the first item leaves.
    pub start: u64,
    /// Time at which the last item has arrived.
    pub end: u64,
}

impl Transfer {
    /// The receiver, in a ring of `procs` processes.
    pub fn to(&self, procs: u64) -> u64 {
        self.side.of(self.from, procs)
    }
}

/// The transfers of all processes of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    procs: usize,
    /// All transfers by sender, those of a sender in the order in which it makes them.
    transfers: Vec<Transfer>,
}

/// A number of items to or from a neighbour, without times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The side of the neighbour.
    pub side: Side,
    /// The rank of the neighbour.
    pub peer: u64,
    /// Number of items.
    pub items: u64,
}

/// One process's part of a program.
///
/// In an ordered run, items sent right leave from the right end of the slice and arrive at the left end of the
/// neighbour's; items sent left leave from the left end and arrive at the right end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankProgram {
    /// Its sends in order, each item as soon as the process holds one.
    pub sends: Vec<Step>,
    /// Its receives in the order of the timetable. Items must be accepted whenever they arrive: between the two neighbours
    /// the order is not fixed.
    pub receives: Vec<Step>,
}

impl Program {
    /// Makes a program of transfers in any order; each process makes its sends in the order of their starts.
    pub fn new(procs: usize, mut transfers: Vec<Transfer>) -> Self {
        let key = |transfer: &Transfer| (transfer.from, transfer.start);
        if !transfers.is_sorted_by_key(key) {
            // Stable, so that transfers with equal starts stay in the order given; nearly sorted lists cost little.
            transfers.sort_by_key(key);
        }
        Self { procs, transfers }
    }

    /// Number of processes of the ring.
    pub fn procs(&self) -> usize {
        self.procs
    }

    /// All transfers, by sender and start.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The sends of a process, in order.
    pub fn sends(&self, rank: u64) -> &[Transfer] {
        let begin = self.transfers.partition_point(|transfer| transfer.from < rank);
        let end = begin + self.transfers[begin..].partition_point(|transfer| transfer.from == rank);
        &self.transfers[begin..end]
    }

    /// The transfers that a process receives, by start.
    pub fn receives(&self, rank: u64) -> Vec<Transfer> {
        let procs = self.procs as u64;
        let mut neighbours =
            vec![(Side::Left.of(rank, procs), Side::Right), (Side::Right.of(rank, procs), Side::Left)];
        neighbours.dedup();
        let mut received: Vec<Transfer> = neighbours
            .into_iter()
            .flat_map(|(from, side)| self.sends(from).iter().filter(move |sent| sent.side == side))
            .copied()
            .collect();
        received.sort_by_key(|transfer| transfer.start);
        received
    }

    /// The part of a process, without times.
    pub fn of_rank(&self, rank: u64) -> RankProgram {
        let procs = self.procs as u64;
        let sent = |transfer: &Transfer| Step {
            side: transfer.side,
            peer: transfer.to(procs),
            items: transfer.items,
        };
        let received = |transfer: &Transfer| Step {
            side: transfer.side.opposite(),
            peer: transfer.from,
            items: transfer.items,
        };
        RankProgram {
            sends: merged(self.sends(rank).iter().map(sent)),
            receives: merged(self.receives(rank).iter().map(received)),
        }
    }

    /// The most items a process can ever hold if it accepts all items as they arrive and is slow to send: its load and all
    /// that it receives. A process that accepts no more than [`enough_room`](Self::enough_room) needs less.
    pub fn max_held(&self, problem: &RingProblem, rank: u64) -> u64 {
        let received: u64 = self.receives(rank).iter().map(|transfer| transfer.items).sum();
        problem.loads().get(rank as usize).map_or(0, |load| load.saturating_add(received))
    }

    /// True if no link carries items both ways, as in all programs of [`solve`](super::solve).
    pub fn is_net(&self) -> bool {
        let link = |transfer: &Transfer| match transfer.side {
            Side::Right => transfer.from,
            Side::Left => transfer.to(self.procs as u64),
        };
        let mut carries = vec![None; self.procs];
        self.transfers.iter().all(|transfer| match carries.get_mut(link(transfer) as usize) {
            Some(side) => *side.get_or_insert(transfer.side) == transfer.side,
            None => true,
        })
    }

    /// The number of items for which room is enough: the larger of load and target, and at least 1, to pass items on.
    ///
    /// If every process makes its neighbours wait while it is full, a program of [`solve`](super::solve) still ends: a full
    /// process that is to receive another item holds at least its target, so it has something to send, and holds it. If
    /// its receiver is full, too, that process has something to send as well. The flows have no cycle and no link carries
    /// items both ways, so the row of full processes ends with one that is full, is to receive an item and has nothing to
    /// send: there is no such process.
    pub fn enough_room(problem: &RingProblem, rank: u64) -> u64 {
        let at = rank as usize;
        problem
            .loads()
            .get(at)
            .zip(problem.targets().get(at))
            .map_or(0, |(&load, &target)| load.max(target).max(1))
    }

    /// Net number of items over each link `i -> i + 1`; items to the left count negative.
    pub fn net_flow(&self) -> Vec<i64> {
        let mut flow = vec![0_i64; self.procs];
        for transfer in &self.transfers {
            let link = match transfer.side {
                Side::Right => transfer.from,
                Side::Left => Side::Left.of(transfer.from, self.procs as u64),
            };
            if let Some(flow) = flow.get_mut(link as usize) {
                let items = i64::try_from(transfer.items).unwrap_or(i64::MAX);
                *flow = match transfer.side {
                    Side::Right => flow.saturating_add(items),
                    Side::Left => flow.saturating_sub(items),
                };
            }
        }
        flow
    }

    /// Time at which the last item has arrived.
    pub fn makespan(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.end).max().unwrap_or(0)
    }
}

/// Merges consecutive steps with one neighbour.
fn merged(steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for step in steps {
        match all.last_mut() {
            Some(last) if last.side == step.side => last.items += step.items,
            _ => all.push(step),
        }
    }
    all
}
