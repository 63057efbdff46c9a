//! The engine between processes: every rank is a process, and gives and gets its own parts.
//!
//! Making one is collective: all ranks of the communicator plan the same, find out whether they do, and share what they
//! need. Running it again and again takes no more memory and no more talk than the data itself. A run can be begun with
//! [`MpiEngine::start`] and looked after while something else is computed.

mod shared;

use crate::agree::{Field, agree};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::mover::collective::{AllToAllV, AllToAllW};
use crate::mover::direct::{DirectMover, Hands};
use crate::mover::messages::{MessagesMover, Room};
use crate::mover::readers::Readers;
use crate::mover::relay::RelayMover;
use crate::mover::{Mover, Moving, too_little};
use crate::running::{Running, Ways};
use bytemuck::Pod;
use reshard::Number;
use reshard::engine::{Data, Engine, MessagesOptions, Report, Scaling, Table};
use reshard_plan::{Error, ErrorKind, Move, Plan, Result};
use std::sync::Arc;
use std::time::Duration;

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiOptions {
    /// How bytes travel.
    pub mover: Mover,
    /// For messages: strategy and barriers. For all movers: memory, of all ranks together, kept or refused before anything
    /// moves; what MPI itself takes is not counted.
    pub messages: MessagesOptions,
    /// So long a rank waits for another before it gives up.
    pub deadline: Option<Duration>,
}

impl Default for MpiOptions {
    fn default() -> Self {
        Self {
            mover: Mover::Auto,
            messages: MessagesOptions::default(),
            deadline: Some(Duration::from_secs(120)),
        }
    }
}

/// The boxes of a chunk have together about so many bytes. Long ones are read and written a few hundredths faster; among many
/// ranks each has boxes for all others, and shorter ones are enough to keep everybody busy.
const LONG_CHUNK: u64 = 1 << 20;
const CHUNK: u64 = 1 << 19;

/// Up to so many ranks have long chunks, and from so many on they are shorter still, so that a rank's boxes do not grow.
const FEW_RANKS: usize = 8;
const MANY_RANKS: usize = 64;

fn chunk(ranks: usize) -> u64 {
    match ranks {
        0..=FEW_RANKS => LONG_CHUNK,
        _ => CHUNK * MANY_RANKS as u64 / ranks.max(MANY_RANKS) as u64,
    }
}

/// The engine between processes.
///
/// ```no_run
/// use reshard::{Distribution, Layout, Move, Order, Plan};
/// use reshard_mpi::{Mpi, MpiEngine, MpiOptions};
/// use std::sync::Arc;
/// let session = Mpi::load(None)?.init()?;
/// let layout = |text: &str| Ok::<_, reshard::Error>(Layout::new(text.parse::<Distribution>()?, Order::ColMajor));
/// let plan = Plan::new(vec![Move::new(layout("2x2/64x64 of 1000x1000")?, layout("1x4/32x32 of 1000x1000")?)?])?;
/// let mut engine = MpiEngine::new(Arc::new(plan), session.world(), MpiOptions::default())?;
/// let from = vec![0.0; engine.source_len(0)];
/// let mut to = vec![0.0; engine.target_len(0)];
/// engine.run_own(&from, &mut to)?;
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct MpiEngine {
    plan: Arc<Plan>,
    chosen: Mover,
    ways: Ways,
    /// For the movers `Shared` and `SharedSource`: for each array, the sources this rank reads and the destinations it writes.
    parts: Vec<[Vec<usize>; 2]>,
    /// For the same: who reads this rank's.
    readers: Option<Arc<Readers>>,
    table: Table,
}

impl MpiEngine {
    /// As [`MpiEngine::new`], for moves that this rank may have been unable to make: then all ranks are told why, instead of
    /// waiting for it. All ranks must use the same of the two.
    pub fn of_moves(moves: Result<Vec<Move>>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        let plan = moves.and_then(Plan::new).map(Arc::new);
        Self::new(told(plan, &*comm.private()?, options.deadline)?, comm, options)
    }

    /// Ready to run the plan: rank `r` of the plan is rank `r` of the communicator. Collective; ends alike on all ranks.
    pub fn new(plan: Arc<Plan>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        Self::with_hands(plan, comm, options, Hands::All)
    }

    /// The same, but with the mover `Shared` all ranks copy everything, however little, in units of so many bytes.
    #[doc(hidden)]
    pub fn in_units(plan: Arc<Plan>, comm: &Comm, options: MpiOptions, unit_bytes: u64) -> Result<Self> {
        Self::with_hands(plan, comm, options, Hands::AllInUnits(unit_bytes))
    }

    fn with_hands(plan: Arc<Plan>, comm: &Comm, options: MpiOptions, shared: Hands) -> Result<Self> {
        let comm = comm.private()?;
        agree(&comm, &fields(&plan, &options), Self::check(&plan, &comm), options.deadline)?;
        let chosen = choose(options.mover, &comm, options.deadline)?;
        let (limit, memory) = (options.deadline, options.messages.memory);
        let (mut parts, mut readers) = (Vec::new(), None);
        let moving: Box<dyn Moving> = match chosen {
            Mover::Shared | Mover::SharedSource => {
                let hands = if chosen == Mover::Shared { shared } else { Hands::Own };
                let mover = DirectMover::new(&plan, &comm, hands, limit)?;
                parts = mover.parts(plan.arrays().len());
                readers = Some(Arc::clone(mover.readers()));
                Box::new(mover)
            }
            Mover::Auto | Mover::Private => {
                Box::new(RelayMover::new(&plan, &comm, chunk(comm.size()), memory, limit)?)
            }
            Mover::Messages | Mover::Mixed | Mover::Lockstep => {
                let room = Room::new(&plan, &comm, &options.messages, chosen == Mover::Mixed, limit);
                let mut room = told(room, &comm, limit)?;
                // Both sides of a message cut it alike.
                let mut shortest = [room.letter as u64];
                comm.all_reduce_within(&mut shortest, Reduce::Min, limit)?;
                room.letter = shortest[0] as usize;
                let lockstep = chosen == Mover::Lockstep;
                let made = MessagesMover::new(&comm, room, lockstep, limit);
                Box::new(told(made, &comm, limit)?)
            }
            Mover::Alltoallv => Box::new(told(AllToAllV::new(&plan, &comm), &comm, limit)?),
            Mover::Alltoallw => Box::new(told(AllToAllW::new(&plan, &comm), &comm, limit)?),
        };
        if let Some(memory) = memory {
            let mut all = [moving.scratch_bytes()];
            comm.all_reduce_within(&mut all, Reduce::Sum, limit)?;
            if all[0] > memory {
                return Err(too_little(memory, all[0]));
            }
        }
        let table = Table::new(Arc::clone(&plan));
        Ok(Self { plan, chosen, ways: Ways::new(comm, moving, limit)?, parts, readers, table })
    }

    /// With the mover `Shared`: how many units this rank copied in the last run, whoever they were for.
    #[doc(hidden)]
    pub fn units(&self) -> u64 {
        self.ways.tally().units
    }

    /// How bytes travel.
    pub fn mover(&self) -> Mover {
        self.chosen
    }

    /// The private communicator it talks on.
    pub fn comm(&self) -> &Arc<Comm> {
        self.ways.comm()
    }

    /// Fails if a communicator has not all ranks of a plan. [`MpiEngine::new`] asks this first.
    pub fn check(plan: &Plan, comm: &Comm) -> Result<()> {
        match plan.ranks().last().copied() {
            Some(most) if most >= comm.size() as u64 => Err(Error::new(
                ErrorKind::OutOfRange,
                format!(
                    "the plan has a rank {most}, but the communicator has {} ranks, 0 to {}; start {} processes or use smaller grids",
                    comm.size(),
                    comm.size() - 1,
                    most + 1
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Elements this rank's source part of an array reaches over; 0 if it has none.
    pub fn source_len(&self, array: usize) -> usize {
        let rank = self.comm().rank() as u64;
        let mine = self.plan.arrays()[array].sources().iter().find(|source| source.rank == rank);
        mine.map_or(0, |source| source.span as usize)
    }

    /// Elements this rank's destination part of an array reaches over; 0 if it has none.
    pub fn target_len(&self, array: usize) -> usize {
        let rank = self.comm().rank() as u64;
        let mine = self.plan.arrays()[array].targets().iter().find(|target| target.rank == rank);
        mine.map_or(0, |target| target.span as usize)
    }

    /// Moves a plan's only array: this rank's parts.
    pub fn run_own<T: Pod>(&mut self, from: &[T], to: &mut [T]) -> Result<Report> {
        self.start(from, to)?.wait()
    }

    /// The same for parts given as bytes.
    pub fn run_own_bytes(&mut self, from: &[u8], to: &mut [u8]) -> Result<Report> {
        self.start_bytes(from, to)?.wait()
    }

    /// Begins to move a plan's only array, for this rank to compute something else meanwhile: [`Running::test`] moves on
    /// what can be moved. All ranks must begin and end their runs in the same order. The movers `alltoallv` and `alltoallw`
    /// move everything when they are first looked after.
    pub fn start<'r, T: Pod>(&'r mut self, from: &'r [T], to: &'r mut [T]) -> Result<Running<'r>> {
        self.check_private()?;
        let (rank, Self { plan, ways, table, .. }) = (self.comm().rank() as u64, self);
        let mut data = table.fill();
        data.enter_own(0, rank, from, to, None)?;
        ways.start(plan, data)
    }

    /// The same for parts given as bytes.
    pub fn start_bytes<'r>(&'r mut self, from: &'r [u8], to: &'r mut [u8]) -> Result<Running<'r>> {
        self.check_private()?;
        let (rank, Self { plan, ways, table, .. }) = (self.comm().rank() as u64, self);
        let mut data = table.fill();
        data.enter_own_bytes(0, rank, from, to)?;
        ways.start(plan, data)
    }

    /// Moves a plan's only array: the destination becomes `alpha * source + beta * destination`.
    pub fn run_scaled<T: Number>(&mut self, from: &[T], to: &mut [T], alpha: T, beta: T) -> Result<Report> {
        self.check_private()?;
        let (rank, Self { plan, ways, table, .. }) = (self.comm().rank() as u64, self);
        let mut data = table.fill();
        data.enter_own(0, rank, from, to, Scaling::new(alpha, beta, false))?;
        ways.start(plan, data)?.wait()
    }

    /// Parts that are lent to others must be known to be.
    fn check_private(&self) -> Result<()> {
        if let Mover::Shared | Mover::SharedSource = self.chosen {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the mover `{}` moves parts made with `Shared`, and other parts were given; use `run_{}`, or choose another \
                     mover",
                    self.chosen,
                    self.chosen.name().replace('-', "_")
                ),
            ));
        }
        Ok(())
    }
}

/// What `Auto` stands for here.
fn choose(wanted: Mover, comm: &Comm, limit: Option<Duration>) -> Result<Mover> {
    if wanted != Mover::Auto {
        return Ok(wanted);
    }
    Ok(match comm.node(limit)?.largest() {
        all if all == comm.size() => Mover::Private,
        1 => Mover::Messages,
        _ => Mover::Mixed,
    })
}

/// What a rank could make, once all ranks have; the same error on all if one could not.
pub fn told<T>(made: Result<T>, comm: &Comm, limit: Option<Duration>) -> Result<T> {
    let outcome = made.as_ref().map(|_| ()).map_err(|error| Error::new(error.kind(), error.to_string()));
    agree(comm, &[], outcome, limit)?;
    made
}

impl Engine for MpiEngine {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> u64 {
        self.ways.scratch_bytes()
    }

    /// Moves this rank's parts, entered with [`Data::enter_own`]. All ranks of the communicator must call it.
    fn run(&mut self, data: &mut Data<'_>) -> Result<Report> {
        self.check_private()?;
        self.ways.run(&self.plan, data)
    }
}

/// What all ranks must have been given alike, in words.
fn fields(plan: &Plan, options: &MpiOptions) -> Vec<Field> {
    let all = |of: &dyn Fn(&reshard_plan::Move) -> String| -> String {
        let each: Vec<String> = plan.arrays().iter().map(|array| of(array.wanted())).collect();
        each.join("; ")
    };
    let field = |name: &'static str, value: String| Field { name, value };
    vec![
        field("the version of reshard", env!("CARGO_PKG_VERSION").into()),
        field("the number of arrays", plan.arrays().len().to_string()),
        field("the shape of what moves", all(&|moving| format!("{:?}", moving.problem().shape()))),
        field("the size of an element", all(&|moving| format!("{} bytes", moving.elem_bytes()))),
        field("the source", all(&|moving| format!("{}", moving.from().distribution()))),
        field("the destination", all(&|moving| format!("{}", moving.to().distribution()))),
        field("the order of axes", all(&|moving| format!("{:?}", moving.problem().axes()))),
        field(
            "the window",
            all(&|moving| {
                format!(
                    "{:?} of the source to {:?} of the destination",
                    moving.problem().from_offset(),
                    moving.problem().to_offset()
                )
            }),
        ),
        field("the triangle", all(&|moving| format!("{:?}", moving.triangle()))),
        field("the order of the destination in memory", all(&|moving| format!("{:?}", moving.to().order()))),
        field("the mover", options.mover.to_string()),
        field("the options of messages", format!("{:?}", options.messages)),
    ]
}
