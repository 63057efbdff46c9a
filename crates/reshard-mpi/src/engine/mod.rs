//! The engine between processes: every rank is a process, and gives and gets its own parts.
//!
//! Making one is collective: all ranks of the communicator plan the same, find out whether they do, and share what they
//! need. Running it again and again takes no more memory and no more talk than the data itself. A run can be begun with
//! [`MpiEngine::start`] and looked after while something else is computed.

mod own;
mod running;
mod strides;

pub use own::{Own, OwnParts};
pub use running::Running;

use crate::agree::{Field, agree, agree_on_result, register};
use crate::baselines::alltoall::{AllToAllV, AllToAllW};
use crate::ffi::collective::Reduce;
use crate::ffi::comm::Comm;
use crate::ffi::wait::DEADLINE;
use crate::mover::messages::{MessageSizing, MessagesMover};
use crate::mover::private::PrivateMover;
use crate::mover::shared::readers::Readers;
use crate::mover::shared::{SharedMover, WorkSharing};
use crate::mover::{Mover, MoverBackend, too_little_memory};
use crate::private_comm::PrivateComm;
use bytemuck::Pod;
use own::Entering;
use reshard::Number;
use reshard::engine::{BufferTable, Buffers, Engine, MessagesOptions, Report};
use reshard_plan::{Error, ErrorKind, Move, Plan, Result};
use running::MoverDriver;
use std::hash::{DefaultHasher, Hash, Hasher};
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
    /// So long a rank waits for another before it gives up, in making an engine and in every run. Only runs of `alltoallv` and
    /// `alltoallw`, which are one call of MPI each, wait as long as MPI does.
    pub deadline: Option<Duration>,
}

impl Default for MpiOptions {
    fn default() -> Self {
        Self { mover: Mover::Auto, messages: MessagesOptions::default(), deadline: Some(DEADLINE) }
    }
}

/// The boxes of a chunk have together about so many bytes. Long ones are read and written a few hundredths faster; among many
/// ranks each has boxes for all others, and shorter ones are enough to keep everybody busy.
const LONG_CHUNK: u64 = 1 << 20;
const CHUNK: u64 = 1 << 19;

/// Up to so many ranks have long chunks, and from so many on they are shorter still, so that a rank's boxes do not grow.
const FEW_RANKS: usize = 8;
const MANY_RANKS: usize = 64;

/// The most chunks of all ranks: each rank lists those of all. Arrays of more than a hundred gigabytes have longer chunks.
const MOST_CHUNKS: u64 = 1 << 17;

fn chunk(plan: &Plan, ranks: usize) -> u64 {
    let chunk = match ranks {
        0..=FEW_RANKS => LONG_CHUNK,
        _ => CHUNK * MANY_RANKS as u64 / ranks.max(MANY_RANKS) as u64,
    };
    chunk.max(plan.bytes() / MOST_CHUNKS)
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
    why: String,
    ways: MoverDriver,
    /// For the movers `Shared` and `SharedSource`: for each array, the sources this rank reads and the destinations it writes.
    parts: Vec<[Vec<usize>; 2]>,
    /// For the same: who reads this rank's.
    readers: Option<Arc<Readers>>,
    table: BufferTable,
}

impl MpiEngine {
    /// As [`MpiEngine::new`], for moves that this rank may have been unable to make: then all ranks are told why, instead of
    /// waiting for it. All ranks must use the same of the two.
    pub fn of_moves(moves: Result<Vec<Move>>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        let plan = moves.and_then(Plan::new).map(Arc::new);
        let private = comm.private_within(options.deadline)?;
        Self::new(agree_on_result("a plan", plan, &private, options.deadline)?, comm, options)
    }

    /// Ready to run the plan: rank `r` of the plan is rank `r` of the communicator. Collective; ends alike on all ranks. All
    /// ranks must make their engines in the same order, and may then run them in any.
    pub fn new(plan: Arc<Plan>, comm: &Comm, options: MpiOptions) -> Result<Self> {
        Self::with_hands(plan, comm, options, WorkSharing::All)
    }

    /// The same, but with the mover `Shared` all ranks copy everything, however little, in units of so many bytes.
    #[doc(hidden)]
    pub fn in_tasks(plan: Arc<Plan>, comm: &Comm, options: MpiOptions, task_bytes: u64) -> Result<Self> {
        Self::with_hands(plan, comm, options, WorkSharing::AllInTasks(task_bytes))
    }

    fn with_hands(plan: Arc<Plan>, comm: &Comm, options: MpiOptions, shared: WorkSharing) -> Result<Self> {
        let (limit, memory) = (options.deadline, options.messages.memory);
        let comm = comm.private_within(limit)?;
        // One for each group of arrays, and one for barriers.
        let tags = plan.arrays().len() as u64 + 1;
        let proposal = comm.propose(0, tags);
        let local = Self::check(&plan, &comm).and(proposal.as_ref().map(|_| ()).map_err(Clone::clone));
        let proposed =
            agree(&comm, "an engine", &fields(&plan, &options), local, proposal.unwrap_or(0), limit)?;
        let registration = register(&comm, proposed, tags, limit)?;
        let (chosen, why) = choose(options.mover, &comm, limit)?;
        let mut plan = plan;
        let (mut parts, mut readers) = (Vec::new(), None);
        let moving: Box<dyn MoverBackend> = match chosen {
            Mover::Shared | Mover::SharedSource => {
                plan = strides::of_all_ranks(&plan, &comm, limit)?;
                let hands = if chosen == Mover::Shared { shared } else { WorkSharing::Own };
                let mover = SharedMover::new(&plan, &comm, hands, limit)?;
                parts = mover.parts(plan.arrays().len());
                readers = Some(Arc::clone(mover.readers()));
                Box::new(mover)
            }
            Mover::Auto | Mover::Private => {
                Box::new(PrivateMover::new(&plan, &comm, chunk(&plan, comm.size()), memory, limit)?)
            }
            Mover::Messages | Mover::Mixed | Mover::Lockstep => {
                let room = MessageSizing::new(&plan, &comm, &options.messages, chosen == Mover::Mixed, limit);
                let mut room = agree_on_result("letters", room, &comm, limit)?;
                // Both sides of a message cut it alike.
                room.fragment_bytes = comm.reduce(room.fragment_bytes as u64, Reduce::Min, limit)? as usize;
                let lockstep = chosen == Mover::Lockstep;
                let groups = plan.arrays().len();
                let made = MessagesMover::new(&registration, room, groups, lockstep, limit);
                Box::new(agree_on_result("a mover", made, &comm, limit)?)
            }
            Mover::Alltoallv => {
                let own = comm.duplicate(limit).inspect_err(|error| comm.refuse(error))?;
                Box::new(agree_on_result("a mover", AllToAllV::new(&plan, own), &comm, limit)?)
            }
            Mover::Alltoallw => {
                let own = comm.duplicate(limit).inspect_err(|error| comm.refuse(error))?;
                Box::new(agree_on_result("a mover", AllToAllW::new(&plan, own), &comm, limit)?)
            }
        };
        if let Some(memory) = memory {
            let all = comm.reduce(moving.scratch_bytes(), Reduce::Sum, limit)?;
            if all > memory {
                return Err(too_little_memory(memory, all));
            }
        }
        let table = BufferTable::new(Arc::clone(&plan));
        let ways = MoverDriver::new(registration, moving, limit)?;
        Ok(Self { plan, chosen, why, ways, parts, readers, table })
    }

    /// With the mover `Shared`: how many units this rank copied in the last run, whoever they were for.
    #[doc(hidden)]
    pub fn tasks_copied(&self) -> u64 {
        self.ways.counters().tasks
    }

    /// The first tag of its messages.
    #[doc(hidden)]
    pub fn tag(&self) -> u32 {
        self.ways.tag()
    }

    /// How bytes travel.
    pub fn mover(&self) -> Mover {
        self.chosen
    }

    /// Why bytes travel so, in words.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The private communicator it talks on.
    pub fn comm(&self) -> &Arc<PrivateComm> {
        self.ways.comm()
    }

    /// Fails if a communicator has not all ranks of a plan, or a part is larger than a process can address. [`MpiEngine::new`]
    /// asks this first.
    pub fn check(plan: &Plan, comm: &Comm) -> Result<()> {
        reshard::rank::check_reach(plan)?;
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
    /// what can be moved. Other engines may be begun before this run has ended, in any order. The movers `alltoallv` and
    /// `alltoallw` move everything before they return, and all ranks must begin them in the same order.
    pub fn start<'r, T: Pod>(&'r mut self, from: &'r [T], to: &'r mut [T]) -> Result<Running<'r>> {
        self.start_all(&mut [&mut Own::new(from, to)])
    }

    /// The same for parts given as bytes.
    pub fn start_bytes<'r>(&'r mut self, from: &'r [u8], to: &'r mut [u8]) -> Result<Running<'r>> {
        self.start_all(&mut [&mut Own::new(from, to).as_bytes()])
    }

    /// Moves a plan's only array: the destination becomes `alpha * source + beta * destination`, the same on all ranks. The
    /// movers `alltoallv` and `alltoallw` do not do that.
    pub fn run_scaled<T: Number>(&mut self, from: &[T], to: &mut [T], alpha: T, beta: T) -> Result<Report> {
        self.run_all(&mut [&mut Own::new(from, to).scaled(alpha, beta)])
    }

    /// Moves all arrays of the plan, in its order: this rank's parts of each.
    pub fn run_all<'r>(&'r mut self, arrays: &mut [&mut dyn OwnParts<'r>]) -> Result<Report> {
        self.start_all(arrays)?.wait()
    }

    /// Begins to move all arrays of the plan, as [`MpiEngine::start`] does.
    ///
    /// A rank whose own parts are refused tells the others, who are in the run or come to it: all get an error that names it,
    /// and the engine is of no more use.
    pub fn start_all<'r>(&'r mut self, arrays: &mut [&mut dyn OwnParts<'r>]) -> Result<Running<'r>> {
        self.ways.check()?;
        let Self { plan, chosen, ways, parts, readers, table, .. } = self;
        let comm = Arc::clone(ways.comm());
        let mut data = table.fill();
        let mut entering = Entering {
            comm: &comm,
            plan,
            mover: *chosen,
            parts,
            readers: readers.as_ref(),
            arrays: DefaultHasher::new(),
        };
        let given = arrays.len();
        let counted = match given == plan.arrays().len() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{given} arrays were given for a plan of {}; a run moves all of them",
                    plan.arrays().len()
                ),
            )),
        };
        let entered = counted.and_then(|()| {
            let mut each = arrays.iter_mut().enumerate();
            each.try_for_each(|(array, parts)| parts.enter(array, &mut data, &mut entering))
        });
        if let Err(error) = entered {
            return Err(ways.refuse(error));
        }
        data.scaling_number().hash(&mut entering.arrays);
        let call = entering.arrays.finish();
        let running = ways.start(plan, data, call)?;
        arrays.iter().for_each(|parts| parts.add_readers(&entering));
        Ok(running)
    }
}

/// What `Auto` stands for here, and why. Movers within a node are refused where ranks are not on one.
fn choose(wanted: Mover, comm: &PrivateComm, limit: Option<Duration>) -> Result<(Mover, String)> {
    let node = comm.node(limit)?;
    match (wanted, node.apart()) {
        (Mover::Shared | Mover::SharedSource | Mover::Private, Some(apart)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the mover `{wanted}` needs all ranks on one node, but {apart}; use messages: the mover `messages`, or `mixed`"
            ),
        )),
        (Mover::Auto, None) => Ok((Mover::Private, "all ranks are on one node".into())),
        (Mover::Auto, Some(apart)) => {
            let chosen = if node.largest() == 1 { Mover::Messages } else { Mover::Mixed };
            Ok((chosen, apart.into()))
        }
        _ => Ok((wanted, "it was asked for".into())),
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
        self.ways.scratch_bytes()
    }

    /// Moves this rank's parts, entered with [`Buffers::enter_own`]. All ranks of the communicator must call it.
    fn run(&mut self, data: &mut Buffers<'_>) -> Result<Report> {
        self.ways.check()?;
        if let Mover::Shared | Mover::SharedSource = self.chosen {
            let error = Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the mover `{}` moves parts made with `Shared`, and other parts were given; use `run_all`, or choose another \
                     mover",
                    self.chosen
                ),
            );
            return Err(self.ways.refuse(error));
        }
        let rank = self.comm().rank() as u64;
        data.check_own(rank).map_err(|error| self.ways.refuse(error))?;
        let mut hasher = DefaultHasher::new();
        data.scaling_number().hash(&mut hasher);
        self.ways.run(&self.plan, data, hasher.finish())
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
