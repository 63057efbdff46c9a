//! One copy: each rank reads what it receives straight out of the others' shared parts.
//!
//! Two numbers for each rank say how far it is. A source may be read once its owner has begun the run, and the owner's run
//! ends once all who read from it are through. No rank waits for one it has nothing to do with.

use super::{Patience, named};
use crate::ffi::comm::Comm;
use crate::shared::Neighbours;
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
}

impl DirectMover {
    /// Collective.
    pub fn new(plan: &Arc<Plan>, comm: &Comm, limit: Option<Duration>) -> Result<Self> {
        let rank = comm.rank() as u64;
        let direct = Direct::new(Arc::clone(plan), rank);
        let (mut owners, mut readers) = (Vec::new(), Vec::new());
        for array in plan.arrays() {
            for target in array.targets().iter().filter(|target| target.elems() > 0) {
                for &part in &target.parts {
                    let owner = array.sources()[part as usize].rank;
                    match (owner == rank, target.rank == rank) {
                        (false, true) => owners.push(owner as usize),
                        (true, false) => readers.push(target.rank as usize),
                        _ => {}
                    }
                }
            }
        }
        for ranks in [&mut owners, &mut readers] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        Ok(Self { direct, neighbours: Neighbours::share(comm, 128, limit)?, owners, readers, runs: 0 })
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.direct.scratch_bytes() + 128
    }

    /// For each array, the sources that must have been entered.
    pub fn sources(&self) -> &[Vec<usize>] {
        self.direct.sources()
    }

    pub fn run(&mut self, data: &mut Data<'_>, patience: &mut Patience) -> Result<()> {
        self.runs += 1;
        let Self { direct, neighbours, owners, readers, runs } = self;
        neighbours.counter(neighbours.rank(), BEGUN).store(*runs, Ordering::Release);
        await_all(neighbours, owners, BEGUN, *runs, patience)?;
        direct.run(data);
        neighbours.counter(neighbours.rank(), READ).store(*runs, Ordering::Release);
        await_all(neighbours, readers, READ, *runs, patience)
    }
}

fn await_all(
    neighbours: &Neighbours,
    ranks: &[usize],
    at: usize,
    run: u64,
    patience: &mut Patience,
) -> Result<()> {
    let late = |rank: &usize| neighbours.counter(*rank, at).load(Ordering::Acquire) < run;
    for rank in ranks {
        while late(rank) {
            patience.wait(|| named(ranks.iter().copied().filter(|rank| late(rank))))?;
        }
        patience.begin_again();
    }
    Ok(())
}
