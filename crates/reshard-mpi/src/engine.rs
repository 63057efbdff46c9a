//! The engine between processes: every rank is a process, and gives and gets its own parts.
//!
//! Making one is collective: all ranks of the communicator plan the same, find out whether they do, and share what they
//! need. Running it again and again takes no more memory and no more talk than the data itself.

use crate::agree::{Field, agree};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::mover::collective::{AllToAllV, AllToAllW};
use crate::mover::direct::DirectMover;
use crate::mover::messages::{MessagesMover, Room};
use crate::mover::relay::RelayMover;
use crate::mover::{Patience, too_little};
use crate::shared::Shared;
use bytemuck::Pod;
use reshard::Number;
use reshard::engine::{Data, Engine, MessagesOptions, Report, Scaling, Table};
use reshard_plan::{Error, ErrorKind, Move, Plan, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mover {
    /// `Private` if all ranks are on one node, else `Messages`.
    #[default]
    Auto,
    /// One copy, out of sources that are [`Shared`].
    Shared,
    /// Two copies through small boxes that stay in the caches. All ranks on one node.
    Private,
    /// Packed messages in the order of a schedule.
    Messages,
    /// Everything packed, one `MPI_Alltoallv`: to compare with.
    Alltoallv,
    /// Everything described by datatypes, one `MPI_Alltoallw`: to compare with.
    Alltoallw,
}

impl Mover {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Shared, Self::Private, Self::Messages, Self::Alltoallv, Self::Alltoallw];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shared => "shared",
            Self::Private => "private",
            Self::Messages => "messages",
            Self::Alltoallv => "alltoallv",
            Self::Alltoallw => "alltoallw",
        }
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mover {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mover| mover.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|mover| mover.name()).collect();
            Error::new(
                ErrorKind::Notation,
                format!("there is no mover `{text}`; choose one of {}", names.join(", ")),
            )
        })
    }
}

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

/// The boxes of a chunk have together about so many bytes: with two of each they stay in the second-level cache. Half or
/// twice as much makes little difference.
const CHUNK: u64 = 1 << 19;

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
    comm: Arc<Comm>,
    options: MpiOptions,
    chosen: Mover,
    moving: Moving,
    /// Taken out while it is filled.
    table: Option<Table>,
    /// Why nothing can be moved any more.
    broken: Option<String>,
}

enum Moving {
    Shared(DirectMover),
    Private(RelayMover),
    Messages(Box<MessagesMover>),
    Alltoallv(Box<AllToAllV>),
    Alltoallw(AllToAllW),
}

impl Moving {
    /// Bytes this rank takes beside plan and data.
    fn scratch_bytes(&self) -> u64 {
        match self {
            Self::Shared(mover) => mover.scratch_bytes(),
            Self::Private(mover) => mover.scratch_bytes(),
            Self::Messages(mover) => mover.scratch_bytes(),
            Self::Alltoallv(mover) => mover.scratch_bytes(),
            Self::Alltoallw(_) => 0,
        }
    }
}

impl MpiEngine {
    /// As [`MpiEngine::new`], for moves that this rank may have been unable to make: then all ranks are told why, instead of
    /// waiting for it. All ranks must use the same of the two.
    pub fn of_moves(moves: Result<Vec<Move>>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        let plan = moves.and_then(Plan::new).map(Arc::new);
        agree(&*comm.private()?, &[], outcome(&plan), options.deadline)?;
        Self::new(plan?, comm, options)
    }

    /// Ready to run the plan: rank `r` of the plan is rank `r` of the communicator. Collective; ends alike on all ranks.
    pub fn new(plan: Arc<Plan>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        let comm = comm.private()?;
        agree(&comm, &fields(&plan, &options), check(&plan, &comm), options.deadline)?;
        let chosen = match options.mover {
            Mover::Auto if comm.split_shared()?.size() == comm.size() => Mover::Private,
            Mover::Auto => Mover::Messages,
            chosen => chosen,
        };
        // Nodes may differ in size, but all must choose alike.
        let mut choice = [chosen as u64];
        comm.all_reduce_within(&mut choice, Reduce::Max, options.deadline)?;
        let chosen = Mover::ALL[choice[0] as usize];
        let moving = match chosen {
            Mover::Shared => Moving::Shared(DirectMover::new(&plan, &comm, options.deadline)?),
            Mover::Auto | Mover::Private => Moving::Private(RelayMover::new(
                &plan,
                &comm,
                CHUNK,
                options.messages.memory,
                options.deadline,
            )?),
            Mover::Messages => {
                let room = Room::new(&plan, &comm, &options.messages);
                agree(&comm, &[], outcome(&room), options.deadline)?;
                let mut room = room?;
                // Both sides of a message cut it alike.
                let mut shortest = [room.letter as u64];
                comm.all_reduce_within(&mut shortest, Reduce::Min, options.deadline)?;
                room.letter = shortest[0] as usize;
                let made = MessagesMover::new(&plan, &comm, &options.messages, room);
                agree(&comm, &[], outcome(&made), options.deadline)?;
                Moving::Messages(Box::new(made?))
            }
            Mover::Alltoallv => {
                let made = AllToAllV::new(&plan, &comm);
                agree(&comm, &[], outcome(&made), options.deadline)?;
                Moving::Alltoallv(Box::new(made?))
            }
            Mover::Alltoallw => {
                let made = AllToAllW::new(&plan, &comm);
                agree(&comm, &[], outcome(&made), options.deadline)?;
                Moving::Alltoallw(made?)
            }
        };
        let needed = moving.scratch_bytes();
        if let Some(memory) = options.messages.memory {
            let mut all = [needed];
            comm.all_reduce_within(&mut all, Reduce::Sum, options.deadline)?;
            if all[0] > memory {
                return Err(too_little(memory, all[0]));
            }
        }
        let table = Some(Table::new(Arc::clone(&plan)));
        Ok(Self { plan, comm, options, chosen, moving, table, broken: None })
    }

    /// How bytes travel.
    pub fn mover(&self) -> Mover {
        self.chosen
    }

    /// The private communicator it talks on.
    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Elements this rank's source part of an array reaches over; 0 if it has none.
    pub fn source_len(&self, array: usize) -> usize {
        let rank = self.comm.rank() as u64;
        let mine = self.plan.arrays()[array].sources().iter().find(|source| source.rank == rank);
        mine.map_or(0, |source| source.span as usize)
    }

    /// Elements this rank's destination part of an array reaches over; 0 if it has none.
    pub fn target_len(&self, array: usize) -> usize {
        let rank = self.comm.rank() as u64;
        let mine = self.plan.arrays()[array].targets().iter().find(|target| target.rank == rank);
        mine.map_or(0, |target| target.span as usize)
    }

    /// Moves a plan's only array: this rank's parts.
    pub fn run_own<T: Pod>(&mut self, from: &[T], to: &mut [T]) -> Result<Report> {
        self.with_table(|engine, table| {
            let mut data = table.fill();
            data.enter_own(0, engine.comm.rank() as u64, from, to, None)?;
            engine.run(&mut data)
        })
    }

    /// The same for parts given as bytes.
    pub fn run_own_bytes(&mut self, from: &[u8], to: &mut [u8]) -> Result<Report> {
        self.with_table(|engine, table| {
            let mut data = table.fill();
            data.enter_own_bytes(0, engine.comm.rank() as u64, from, to)?;
            engine.run(&mut data)
        })
    }

    /// Moves a plan's only array: the destination becomes `alpha * source + beta * destination`.
    pub fn run_scaled<T: Number>(&mut self, from: &[T], to: &mut [T], alpha: T, beta: T) -> Result<Report> {
        self.with_table(|engine, table| {
            let mut data = table.fill();
            let scaling = Scaling::new(alpha, beta, false);
            data.enter_own(0, engine.comm.rank() as u64, from, to, scaling)?;
            engine.run(&mut data)
        })
    }

    /// Moves a plan's only array out of shared memory: one copy. Only for the mover [`Mover::Shared`].
    pub fn run_shared<T: Pod>(&mut self, from: &Shared<T>, to: &mut [T]) -> Result<Report> {
        self.with_table(|engine, table| {
            let mut data = table.fill();
            data.enter_own(0, engine.comm.rank() as u64, from, to, None)?;
            engine.enter_shared(&mut data, 0, from)?;
            engine.run(&mut data)
        })
    }

    /// The same for parts given as bytes.
    pub fn run_shared_bytes(&mut self, from: &Shared<u8>, to: &mut [u8]) -> Result<Report> {
        self.with_table(|engine, table| {
            let mut data = table.fill();
            data.enter_own_bytes(0, engine.comm.rank() as u64, from, to)?;
            engine.enter_shared(&mut data, 0, from)?;
            engine.run(&mut data)
        })
    }

    fn with_table<R>(&mut self, run: impl FnOnce(&mut Self, &mut Table) -> Result<R>) -> Result<R> {
        let mut table = self.table.take().unwrap_or_else(|| Table::new(Arc::clone(&self.plan)));
        let outcome = run(self, &mut table);
        self.table = Some(table);
        outcome
    }

    /// Enters the other ranks' sources that this rank reads.
    #[allow(unsafe_code)]
    fn enter_shared<T: Pod>(&self, data: &mut Data<'_>, array: usize, from: &Shared<T>) -> Result<()> {
        let Moving::Shared(mover) = &self.moving else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("shared parts were given to the mover `{}`; choose the mover `shared`", self.chosen),
            ));
        };
        if from.ranks() != self.comm.size() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("{} ranks share the source, and {} move it", from.ranks(), self.comm.size()),
            ));
        }
        let planned = &self.plan.arrays()[array];
        for &source in &mover.sources()[array] {
            let part = &planned.sources()[source];
            let bytes = part.span * planned.wanted().elem_bytes();
            let first = from.part(part.rank as usize, bytes as usize)?;
            // SAFETY: mapped over the whole span. Its owner's run borrows it and ends when all readers are through: it is not
            // written to meanwhile.
            unsafe { data.enter_foreign(array, source, first) };
        }
        Ok(())
    }
}

impl Engine for MpiEngine {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> u64 {
        self.moving.scratch_bytes()
    }

    /// Moves this rank's parts, entered with [`Data::enter_own`]. All ranks of the communicator must call it.
    fn run(&mut self, data: &mut Data<'_>) -> Result<Report> {
        data.check(&self.plan)?;
        if let Some(why) = &self.broken {
            return Err(Error::new(
                ErrorKind::Mpi,
                format!(
                    "an earlier run failed ({why}), and nothing more can be moved with it; make a new one"
                ),
            ));
        }
        let begin = Instant::now();
        let mut patience = Patience::new(self.options.deadline);
        let mut report = Report::default();
        report.bytes = self.plan.bytes();
        let moved = match &mut self.moving {
            Moving::Shared(mover) => mover.run(data, &mut patience),
            Moving::Private(mover) => mover.run(data, &mut patience).map(|spent| {
                (report.pack_seconds, report.unpack_seconds) =
                    (spent.pack.as_secs_f64(), spent.unpack.as_secs_f64());
            }),
            Moving::Messages(mover) => mover.run(data, &mut patience).map(|done| {
                (report.messages, report.steps) = (done.messages, mover.num_steps());
                (report.pack_seconds, report.unpack_seconds) =
                    (done.pack.as_secs_f64(), done.unpack.as_secs_f64());
            }),
            Moving::Alltoallv(mover) => mover.run(data).map(|messages| report.messages = messages),
            Moving::Alltoallw(mover) => mover.run(data),
        };
        if let Err(error) = moved {
            self.broken = Some(error.to_string());
            return Err(error);
        }
        report.wait_seconds = patience.waited().as_secs_f64();
        report.seconds = begin.elapsed().as_secs_f64();
        Ok(report)
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

/// Whether something could be made, for the others to know.
fn outcome<T>(made: &Result<T>) -> Result<()> {
    made.as_ref().map(|_| ()).map_err(|error| Error::new(error.kind(), error.to_string()))
}

/// Whether this rank can take part.
fn check(plan: &Plan, comm: &Comm) -> Result<()> {
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
