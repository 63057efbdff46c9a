//! One copy: what a rank receives is read straight out of the others' shared parts.
//!
//! Numbers that only grow say how far each rank is: see [`Board`]. A source may be read once its owner has begun the run. A
//! rank's run ends when it has everything; others may still read its source, so it is *lent* to them, and whoever wants to
//! write to it waits for them first: see [`Shared`](crate::Shared). If that is in vain it is taken back, and who reads it then
//! finds out. No rank waits for one it has nothing to do with, but those that receive parts of the same rows are one lot.
//!
//! Where destinations are shared, too, it does not matter who copies: units are taken by whoever has time, own ones first. So
//! processors are busy until all is done, however few ranks receive something and whatever else they have to do, and what
//! leads to several ranks is read once for all of them. Ranks never wait for something to help with.

use super::board::{Board, MOST_UNITS, Note, Tickets};
use super::readers::Readers;
use super::{Moving, Progress, Tally, named};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use reshard::engine::Data;
use reshard::rank::Direct;
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
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
pub enum Hands {
    /// Each rank what it receives.
    Own,
    /// All ranks everything, if there is enough of it.
    All,
    /// All ranks everything, in units of so many bytes: for tests.
    AllInUnits(u64),
}

pub struct DirectMover {
    direct: Direct,
    /// Those that lead to this rank, then all others.
    lots: Vec<Lot>,
    own: usize,
    /// Ranks whose sources this one needs; itself is not among them.
    owners: Vec<usize>,
    board: Arc<Board>,
    readers: Arc<Readers>,
    runs: u64,
    /// All of this rank's destination is there.
    received: bool,
    /// Units it has copied in this run.
    copied: u64,
    /// Whether it gives way now and then, and since when it has not; none if it has just done so.
    gives_way: bool,
    at_work: Option<Instant>,
}

/// Units with the same sources and destinations.
struct Lot {
    /// Its number, the same for all ranks that know of it.
    number: usize,
    units: u64,
    /// The rank that keeps its tickets, and as which of its lots.
    home: (usize, usize),
    /// Ranks it leads from or to: they must have begun.
    ranks: Vec<usize>,
    /// Ranks it leads to.
    receivers: Vec<usize>,
    /// The last run in which they had.
    ready: u64,
}

impl DirectMover {
    /// Collective.
    pub fn new(plan: &Arc<Plan>, comm: &Comm, hands: Hands, limit: Option<Duration>) -> Result<Self> {
        let rank = comm.rank();
        let (together, unit_bytes) = match hands {
            Hands::Own => (false, None),
            Hands::All => (comm.size() <= MOST_RANKS && Direct::is_worth_sharing(plan, comm.size()), None),
            Hands::AllInUnits(bytes) => (true, Some(bytes)),
        };
        let direct = match together {
            true => Direct::of_all(Arc::clone(plan), comm.size(), unit_bytes),
            false => Direct::new(Arc::clone(plan), rank as u64),
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
        let (owners, readers) = owners_and_readers(plan, rank as u64);
        let crowded = comm.node(limit)?.is_crowded();
        let board = Arc::new(Board::share(comm, at_home, limit)?);
        let readers = Arc::new(Readers::new(Arc::clone(&board), readers, limit, crowded));
        Ok(Self {
            direct,
            lots,
            own,
            owners,
            board,
            readers,
            runs: 0,
            received: false,
            copied: 0,
            gives_way: together && crowded,
            at_work: None,
        })
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
        &self.readers
    }

    /// Takes a unit whose ranks have all begun: the lot's place, and the unit.
    fn take(&mut self) -> Result<Option<(usize, u64)>> {
        let Self { lots, own, board, readers, runs, .. } = self;
        for (at, lot) in lots.iter_mut().enumerate() {
            let tickets = lot.tickets(board);
            if tickets.next(*runs, lot.units).is_none() {
                continue;
            }
            if lot.ready < *runs {
                if board.behind(&lot.ranks, Note::Begun, *runs).next().is_some() {
                    continue;
                }
                let other = lot.ranks.iter().find(|&&rank| board.moves_others(rank, *runs, readers.arrays()));
                match other {
                    Some(&rank) if at < *own => return Err(other_arrays(rank)),
                    // Whom it concerns finds out.
                    Some(_) => continue,
                    None => lot.ready = *runs,
                }
            }
            if let Some(unit) = tickets.take(*runs, lot.units) {
                return Ok(Some((at, unit)));
            }
        }
        Ok(None)
    }

    #[allow(unsafe_code)]
    fn copy(&self, at: usize, unit: u64, data: &mut Data<'_>) {
        let lot = &self.lots[at];
        self.board.work_on(Some(lot.number));
        // SAFETY: the unit is this rank's alone, taken by its ticket. Its sources' owners have begun, and do not write to them
        // before the ranks that receive something of them say that they have it, or have given up, which is after this; neither
        // do these look at their destinations before. Who did not wait for that, an owner that took its part back or a receiver
        // that gave up, has told the others, or does not look at its destination any more.
        unsafe { self.direct.run(lot.number, unit as usize, data) };
        // After everything was read.
        fence(Ordering::SeqCst);
        lot.tickets(&self.board).put_down();
        self.board.work_on(None);
    }

    /// Own lots of which not all units are copied.
    fn unfinished(&self) -> impl Iterator<Item = &Lot> {
        self.lots[..self.own].iter().filter(|lot| !lot.tickets(&self.board).are_through(self.runs, lot.units))
    }

    /// Receivers of unfinished lots that have given up.
    fn gave_up(&self) -> impl Iterator<Item = usize> {
        let gave_up = |rank: &usize| self.board.read(*rank, Note::GivenUp) >= self.runs;
        self.unfinished().flat_map(|lot| &lot.receivers).copied().filter(gave_up)
    }

    /// Everything is there, if it could be read in time.
    fn receive(&mut self) -> Result<()> {
        fence(Ordering::SeqCst);
        if let Some(rank) =
            self.owners.iter().find(|&&rank| self.board.read(rank, Note::TakenBack) >= self.runs)
        {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "rank {rank} waited in vain for this one and took its shared part back; the destination is an unfinished \
                     mixture"
                ),
            ));
        }
        self.board.write(Note::Received, self.runs);
        self.received = true;
        Ok(())
    }
}

impl Lot {
    fn tickets<'a>(&self, board: &'a Board) -> Tickets<'a> {
        board.tickets(self.home.0, self.home.1)
    }
}

/// The lots, each with its tickets at the first rank it leads to.
fn lots_of(plan: &Plan, direct: &Direct) -> Vec<Lot> {
    let mut at_home = std::collections::HashMap::new();
    let lot = |(number, lot): (usize, &reshard::rank::Lot)| {
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
        Lot { number, units, home, ranks, receivers, ready: 0 }
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

fn other_arrays(rank: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {rank} moves other shared arrays in this run; give the same on all ranks, in the same order; the destination is an \
             unfinished mixture"
        ),
    )
}

fn gave_up(rank: usize) -> Error {
    Error::new(
        ErrorKind::Mpi,
        format!(
            "rank {rank} gave the run up, and what it receives is copied together with what this one does; the destination is an \
             unfinished mixture"
        ),
    )
}

/// All ranks must have cut the plan alike, or two would copy the same unit as different ones.
fn check_alike(comm: &Comm, lots: &[Lot], limit: Option<Duration>) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    for lot in lots {
        (lot.number, lot.units, lot.home, &lot.ranks, &lot.receivers).hash(&mut hasher);
    }
    let number = hasher.finish();
    let mut most = [number, !number];
    comm.all_reduce_within(&mut most, Reduce::Max, limit)?;
    if most[0] != !most[1] {
        return Err(Error::new(
            ErrorKind::Mpi,
            "the ranks have cut the same plan differently: their processors are not alike; use the mover `shared-source`",
        ));
    }
    Ok(())
}

impl Moving for DirectMover {
    fn begin(&mut self, _: &mut Data<'_>) {
        self.runs += 1;
        (self.received, self.copied, self.at_work) = (false, 0, None);
        self.board.begin(self.runs, self.readers.arrays());
    }

    fn advance(&mut self, data: &mut Data<'_>) -> Result<Progress> {
        // Before others are helped: who waits for this source need not wait for that.
        if !self.received && self.unfinished().next().is_none() {
            self.receive()?;
        }
        // After it has given way it goes on, however long that took.
        if self.gives_way && self.at_work.get_or_insert_with(Instant::now).elapsed() > SPELL {
            self.at_work = None;
            return Ok(Progress::Waits);
        }
        match self.take()? {
            Some((at, unit)) => {
                self.copy(at, unit, data);
                self.copied += 1;
                Ok(Progress::Moved)
            }
            None if self.received => Ok(Progress::Done),
            None => {
                self.at_work = None;
                match self.gave_up().next() {
                    Some(rank) => Err(gave_up(rank)),
                    None => Ok(Progress::Waits),
                }
            }
        }
    }

    fn give_up(&mut self) {
        self.board.write(Note::GivenUp, self.runs);
        let close = |lot: &Lot| {
            let tickets = lot.tickets(&self.board);
            (tickets, tickets.close(self.runs, lot.units))
        };
        let closed: Vec<(Tickets<'_>, u64)> = self.lots[..self.own].iter().map(close).collect();
        let end = Instant::now() + LAST_UNITS;
        while closed.iter().any(|(tickets, taken)| tickets.copied() < *taken) {
            if Instant::now() > end {
                self.readers.lose_destination();
                break;
            }
            std::thread::yield_now();
        }
        // Nobody needs to wait for what is not read any more.
        self.board.write(Note::Received, self.runs);
    }

    fn late(&self) -> String {
        let absent = |lot: &Lot| self.board.behind(&lot.ranks, Note::Begun, self.runs).collect::<Vec<_>>();
        let late: Vec<usize> = self.unfinished().flat_map(absent).collect();
        if !late.is_empty() {
            return named(late);
        }
        let busy = |rank: &usize| self.unfinished().any(|lot| self.board.works_on(*rank, lot.number));
        named((0..self.board.ranks()).filter(busy))
    }

    fn tally(&self) -> Tally {
        Tally { units: self.copied, ..Tally::default() }
    }

    fn scratch_bytes(&self) -> u64 {
        let at_home = self.lots.iter().filter(|lot| lot.home.0 == self.board.rank()).count();
        self.direct.scratch_bytes() + Board::bytes(at_home) as u64
    }
}
