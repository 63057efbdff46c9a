//! One copy: each rank reads what it receives straight out of the others' shared parts.
//!
//! Numbers that only grow say how far each rank is. A source may be read once its owner has begun the run. A rank's run ends
//! when it has read everything itself; others may still read its source, so it is *lent* to them, and whoever wants to write
//! to it waits for them first: see [`Shared`](crate::Shared). If that is in vain it is taken back, and who reads it then
//! finds out. No rank waits for one it has nothing to do with.

use super::{Moving, Patience, Progress, Tally, named};
use crate::ffi::comm::Comm;
use crate::shared::{Neighbours, Pages};
use reshard::engine::Data;
use reshard::rank::Direct;
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Where a rank writes down which run it has begun, which it has read everything for, and which it has taken its source back
/// from before all had read it.
const BEGUN: usize = 0;
const READ: usize = 64;
const TAKEN_BACK: usize = 128;
const NUMBERS: usize = 192;

pub struct DirectMover {
    direct: Direct,
    /// Ranks this one reads from; itself is not among them.
    owners: Vec<usize>,
    readers: Arc<Readers>,
    runs: u64,
}

/// The ranks that read a rank's source, and how far they are.
pub struct Readers {
    neighbours: Neighbours,
    /// This rank is not among them.
    ranks: Vec<usize>,
    limit: Option<Duration>,
    crowded: bool,
}

impl Readers {
    /// The run this rank has begun last.
    pub fn run(&self) -> u64 {
        self.neighbours.counter(self.neighbours.rank(), BEGUN).load(Ordering::Relaxed)
    }

    /// They are through with a run.
    pub fn are_through(&self, run: u64) -> bool {
        behind(&self.neighbours, &self.ranks, READ, run).next().is_none()
    }

    /// Waits until they are through with a run; not longer than the engine waits for anything. If it is in vain, the source is
    /// taken back: who reads it later than this finds that out.
    pub fn wait(&self, run: u64) -> Result<()> {
        let waited = self.wait_for(run);
        if waited.is_err() {
            self.neighbours.counter(self.neighbours.rank(), TAKEN_BACK).store(run, Ordering::Release);
            // Before anything is written to the source.
            fence(Ordering::SeqCst);
        }
        waited
    }

    fn wait_for(&self, run: u64) -> Result<()> {
        let mut patience = Patience::lent(self.limit, self.crowded);
        loop {
            let mut late = behind(&self.neighbours, &self.ranks, READ, run).peekable();
            if late.peek().is_none() {
                return Ok(());
            }
            patience.wait(|| named(late))?;
        }
    }
}

/// Those of some ranks whose number is below that of a run.
fn behind(neighbours: &Neighbours, ranks: &[usize], at: usize, run: u64) -> impl Iterator<Item = usize> {
    let late = move |rank: &usize| neighbours.counter(*rank, at).load(Ordering::Acquire) < run;
    ranks.iter().copied().filter(late)
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
        let crowded = comm.node(limit)?.is_crowded();
        let neighbours = Neighbours::share(comm, NUMBERS, Pages::Ordinary, limit)?;
        let readers = Arc::new(Readers { neighbours, ranks: readers, limit, crowded });
        Ok(Self { direct, owners, readers, runs: 0 })
    }

    /// For each array, the sources that must have been entered.
    pub fn sources(&self) -> &[Vec<usize>] {
        self.direct.sources()
    }

    /// Those that this rank's source is lent to.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Ranks this one waits for: owners that have not begun.
    fn awaited(&self) -> impl Iterator<Item = usize> {
        behind(&self.readers.neighbours, &self.owners, BEGUN, self.runs)
    }

    fn write_down(&self, at: usize) {
        let neighbours = &self.readers.neighbours;
        neighbours.counter(neighbours.rank(), at).store(self.runs, Ordering::Release);
    }
}

impl Moving for DirectMover {
    fn begin(&mut self, _: &mut Data<'_>) {
        self.runs += 1;
        self.write_down(BEGUN);
    }

    fn advance(&mut self, data: &mut Data<'_>) -> Result<Progress> {
        if self.awaited().next().is_some() {
            return Ok(Progress::Waits);
        }
        self.direct.run(data);
        // After everything was read.
        fence(Ordering::SeqCst);
        let neighbours = &self.readers.neighbours;
        let back =
            |&&rank: &&usize| neighbours.counter(rank, TAKEN_BACK).load(Ordering::Acquire) >= self.runs;
        if let Some(rank) = self.owners.iter().find(back) {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "rank {rank} waited in vain for this one and took its shared part back; the destination is an unfinished \
                     mixture"
                ),
            ));
        }
        self.write_down(READ);
        Ok(Progress::Done)
    }

    fn give_up(&mut self) {
        // Nobody needs to wait for what is not read any more.
        self.write_down(READ);
    }

    fn late(&self) -> String {
        named(self.awaited())
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }

    fn scratch_bytes(&self) -> u64 {
        self.direct.scratch_bytes() + NUMBERS as u64
    }
}
