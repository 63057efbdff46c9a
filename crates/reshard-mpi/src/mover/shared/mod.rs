//! One copy: what a rank receives is read straight out of the others' shared parts.
//!
//! Who may copy what, and when, say [`TaskGroups`]. A source may be read once its owner has begun the run. A rank's run ends when it has
//! everything; others may still read its source, so it is *lent* to them, and whoever wants to write to it waits for them first:
//! see [`Shared`](crate::Shared). If that is in vain it is taken back, and who reads it then finds out. No rank waits for one it
//! has nothing to do with, unless it is many runs ahead; but those that receive parts of the same rows are one lot.
//!
//! Where destinations are shared, too, it does not matter who copies: units are taken by whoever has time, own ones first. So
//! processors are busy until all is done, however few ranks receive something and whatever else they have to do, and what
//! leads to several ranks is read once for all of them. Ranks never wait for something to help with.

#[allow(unsafe_code)]
pub mod array;
pub(super) mod groups;
pub(super) mod progress;
pub mod readers;

use super::{MoverBackend, Progress, RunCounters};
use crate::ffi::collective::Reduce;
use crate::private_comm::PrivateComm;
use groups::{GroupState, TaskGroups};
use progress::{MOST_UNITS, ProgressBoard};
use readers::Readers;
use reshard::engine::Buffers;
use reshard::rank::GroupedTasks;
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Among more ranks than this, each copies its own: to know everybody's units takes each as long as there are ranks.
const MOST_RANKS: usize = 256;

/// Where ranks outnumber processors, one that has copied for so long gives way before it takes another unit. If the system takes
/// the processor away instead, it is in the middle of a unit, and those who wait for it in an MPI that does not give way use up
/// their own share of the time before it can go on.
const SPELL: Duration = Duration::from_micros(1500);

/// So long a rank that has given up waits for those that copy to its destination.
const LAST_UNITS: Duration = Duration::from_secs(1);

/// Who copies what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkSharing {
    /// Each rank what it receives.
    Own,
    /// All ranks everything, if there is enough of it.
    All,
    /// All ranks everything, in units of so many bytes: for tests.
    AllInTasks(u64),
}

pub struct SharedMover {
    direct: GroupedTasks,
    lots: TaskGroups,
    /// Units it has copied in this run.
    copied: u64,
    /// Whether it gives way now and then, and since when it has not; none if it has just done so.
    gives_way: bool,
    at_work: Option<Instant>,
}

impl SharedMover {
    /// Collective.
    pub fn new(
        plan: &Arc<Plan>,
        comm: &PrivateComm,
        hands: WorkSharing,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let rank = comm.rank();
        let (together, unit_bytes) = match hands {
            WorkSharing::Own => (false, None),
            WorkSharing::All => {
                (comm.size() <= MOST_RANKS && GroupedTasks::is_worth_sharing(plan, comm.size()), None)
            }
            WorkSharing::AllInTasks(bytes) => (true, Some(bytes)),
        };
        let direct = match together {
            true => GroupedTasks::of_all(Arc::clone(plan), comm.size(), unit_bytes),
            false => GroupedTasks::new(Arc::clone(plan), rank as u64),
        };
        let mut lots = lots_of(plan, &direct);
        if together {
            check_alike(comm, &lots, limit)?;
        }
        let at_home = lots.iter().filter(|lot| lot.home.0 == rank).count();
        // Own ones first; then each begins with others, so that they do not all help the same.
        lots.sort_by_key(|lot| {
            let own = lot.receivers.contains(&rank);
            (!own, (lot.receivers[0] + comm.size() - rank) % comm.size(), lot.number)
        });
        let own = lots.iter().filter(|lot| lot.receivers.contains(&rank)).count();
        let (owners, mut readers) = owners_and_readers(plan, rank as u64);
        if together {
            // All that receive something of a lot look at how its owners were called, whether they read from each or not.
            let of_lot = direct.lots().iter().flat_map(|lot| {
                let array = &plan.arrays()[lot.array];
                let owned = lot.sources.iter().any(|&source| array.sources()[source].rank == rank as u64);
                let receivers = lot.targets.iter().map(|&target| array.targets()[target].rank as usize);
                receivers.filter(move |&receiver| owned && receiver != rank)
            });
            readers.extend(of_lot);
            readers = sorted(readers);
        }
        let oversubscribed = comm.node(limit)?.is_oversubscribed();
        let board = Arc::new(ProgressBoard::share(comm, at_home, limit)?);
        let readers = Arc::new(Readers::new(Arc::clone(&board), readers, limit, oversubscribed));
        let lots = TaskGroups::new(lots, own, owners, board, readers);
        Ok(Self { direct, lots, copied: 0, gives_way: together && oversubscribed, at_work: None })
    }

    /// For each array, the sources that must have been entered, and the destinations.
    pub fn parts(&self, arrays: usize) -> Vec<[Vec<usize>; 2]> {
        let mut parts = vec![<[Vec<usize>; 2]>::default(); arrays];
        for lot in self.direct.lots() {
            let [sources, targets] = &mut parts[lot.array];
            sources.extend(&lot.sources);
            targets.extend(&lot.targets);
        }
        for numbers in parts.as_flattened_mut() {
            numbers.sort_unstable();
            numbers.dedup();
        }
        parts
    }

    /// Those that this rank's source is lent to.
    pub fn readers(&self) -> &Arc<Readers> {
        self.lots.readers()
    }
}

/// The lots, each with its tickets at the first rank it leads to.
fn lots_of(plan: &Plan, direct: &GroupedTasks) -> Vec<GroupState> {
    let mut at_home = std::collections::HashMap::new();
    let lot = |(number, lot): (usize, &reshard::rank::TaskGroup)| {
        let array = &plan.arrays()[lot.array];
        let receivers: Vec<usize> =
            lot.targets.iter().map(|&target| array.targets()[target].rank as usize).collect();
        let owners = lot.sources.iter().map(|&source| array.sources()[source].rank as usize);
        let ranks = sorted(owners.chain(receivers.iter().copied()).collect());
        let count = at_home.entry(receivers[0]).or_insert(0);
        let home = (receivers[0], *count);
        *count += 1;
        let units = lot.units() as u64;
        assert!(units < MOST_UNITS, "{units} units");
        GroupState { number, units, home, ranks, receivers }
    };
    direct.lots().iter().enumerate().map(lot).collect()
}

/// Ranks whose sources a rank needs, and ranks that need its: without itself.
fn owners_and_readers(plan: &Plan, rank: u64) -> (Vec<usize>, Vec<usize>) {
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
    (sorted(owners), sorted(readers))
}

fn sorted(mut ranks: Vec<usize>) -> Vec<usize> {
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// All ranks must have cut the plan alike, or two would copy the same unit as different ones.
fn check_alike(comm: &PrivateComm, lots: &[GroupState], limit: Option<Duration>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    lots.hash(&mut hasher);
    let number = hasher.finish();
    let most = comm.reduce(number, Reduce::Max, limit)?;
    if comm.reduce(number, Reduce::Min, limit)? != most {
        return Err(Error::new(
            ErrorKind::Mpi,
            "the ranks have cut the same plan differently: their processors are not alike; use the mover `shared-source`",
        ));
    }
    Ok(())
}

impl MoverBackend for SharedMover {
    fn begin(&mut self, _: &mut Buffers<'_>, call: u64) {
        (self.copied, self.at_work) = (0, None);
        self.lots.begin(call);
    }

    #[allow(unsafe_code)]
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        // Before others are helped: who waits for this source need not wait for that.
        if !self.lots.look()? {
            return Ok(Progress::Waits);
        }
        // After it has given way it goes on, however long that took.
        if self.gives_way && self.at_work.get_or_insert_with(Instant::now).elapsed() > SPELL {
            self.at_work = None;
            return Ok(Progress::Waits);
        }
        let Self { direct, lots, .. } = self;
        let copied = lots.copy(|lot, unit| {
            // SAFETY: the unit is this rank's alone, and its sources and destinations may be read and written until it is copied:
            // see `TaskGroups::copy`.
            unsafe { direct.run(lot.number, unit as usize, data) };
        })?;
        match copied {
            Progress::Moved => self.copied += 1,
            Progress::Waits => self.at_work = None,
            Progress::Done => {}
        }
        Ok(copied)
    }

    fn give_up(&mut self) {
        let taken = self.lots.close();
        let end = Instant::now() + LAST_UNITS;
        let mut are_back = self.lots.are_back(&taken);
        while !are_back && Instant::now() < end {
            std::thread::yield_now();
            are_back = self.lots.are_back(&taken);
        }
        if are_back {
            self.lots.end();
        }
        self.lots.leave();
    }

    fn refuse(&mut self) {
        self.lots.skip();
    }

    fn late(&self) -> String {
        self.lots.late()
    }

    fn tally(&self) -> RunCounters {
        RunCounters { units: self.copied, ..RunCounters::default() }
    }

    fn scratch_bytes(&self) -> u64 {
        self.direct.scratch_bytes() + self.lots.board_bytes()
    }
}
