//! One copy: each rank reads what it receives straight out of the others' shared parts.
//!
//! Two numbers for each rank say how far it is. A source may be read once its owner has begun the run, and the owner's run
//! ends once all who read from it are through. No rank waits for one it has nothing to do with.

use super::{Moving, Progress, Tally, named};
use crate::ffi::comm::Comm;
use crate::shared::{Neighbours, Pages};
use reshard::engine::Data;
use reshard::rank::Direct;
use reshard_plan::{Plan, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where a rank writes down which run it has begun, and which it has read everything for.
const BEGUN: usize = 0;
const READ: usize = 64;

pub struct DirectMover {
    direct: Direct,
    neighbours: Neighbours,
    /// Ranks this one reads from, and ranks that read from it; itself is among neither.
    owners: Vec<usize>,
    readers: Vec<usize>,
    runs: u64,
    phase: Phase,
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The owners may not have begun.
    Begins,
    /// This rank has read everything; others may still read from it.
    Lingers,
}

impl DirectMover {
    /// Collective.
    pub fn new(plan: &Arc<Plan>, comm: &Comm, limit: Option<Duration>) -> Result<Self> {
        let rank = comm.rank() as u64;
        let direct = Direct::new(Arc::clone(plan), rank);
        let (mut owners, mut readers) = (Vec::new(), Vec::new());
        for array in plan.arrays() {
            for target in array.targets().iter().filter(|target| target.elems() > 0) {
                let places = array.places_of(target, rank);
                if target.rank != rank {
                    readers.extend(places.map(|_| target.rank as usize));
                    continue;
                }
                let ranks = places.map(|place| array.sources()[array.part(target, place)].rank);
                owners.extend(ranks.filter(|&owner| owner != rank).map(|owner| owner as usize));
            }
        }
        for ranks in [&mut owners, &mut readers] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        let neighbours = Neighbours::share(comm, 128, Pages::Ordinary, limit)?;
        Ok(Self { direct, neighbours, owners, readers, runs: 0, phase: Phase::Begins })
    }

    /// For each array, the sources that must have been entered.
    pub fn sources(&self) -> &[Vec<usize>] {
        self.direct.sources()
    }

    /// Ranks this one waits for: owners that have not begun, or readers that are not through.
    fn awaited(&self) -> impl Iterator<Item = usize> {
        let (ranks, at) = match self.phase {
            Phase::Begins => (&self.owners, BEGUN),
            Phase::Lingers => (&self.readers, READ),
        };
        let late = move |rank: &usize| self.neighbours.counter(*rank, at).load(Ordering::Acquire) < self.runs;
        ranks.iter().copied().filter(late)
    }

    fn write_down(&self, at: usize) {
        self.neighbours.counter(self.neighbours.rank(), at).store(self.runs, Ordering::Release);
    }
}

impl Moving for DirectMover {
    fn begin(&mut self, _: &mut Data<'_>) {
        self.runs += 1;
        self.phase = Phase::Begins;
        self.write_down(BEGUN);
    }

    fn advance(&mut self, data: &mut Data<'_>) -> Result<Progress> {
        if self.awaited().next().is_some() {
            return Ok(Progress::Waits);
        }
        if self.phase == Phase::Lingers {
            return Ok(Progress::Done);
        }
        self.direct.run(data);
        self.write_down(READ);
        self.phase = Phase::Lingers;
        Ok(Progress::Moved)
    }

    fn late(&self) -> String {
        named(self.awaited())
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }

    fn scratch_bytes(&self) -> u64 {
        self.direct.scratch_bytes() + 128
    }
}
