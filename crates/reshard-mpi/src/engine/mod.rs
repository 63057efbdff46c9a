//! The engine between processes: every rank is a process, and gives and gets its own parts.
//!
//! Making an engine is collective: all ranks of the communicator make the same plan, check that they do, and share the
//! memory they need. A run allocates nothing and communicates nothing but the data. A run can be begun with
//! [`MpiEngine::start`] and progressed while something else is computed.

mod made;
mod own;
mod owned;
mod running;

pub use own::{Own, OwnParts, RunArrays};
pub use owned::OwnedRun;
pub use running::Running;

use crate::agree::{Field, agree, agree_on_result, register};
use crate::communicator::{Communicator, DEADLINE, ToCommunicator};
use crate::mover::shared::WorkSharing;
use crate::mover::shared::readers::Readers;
use crate::mover::{Mover, rank_count, too_little_memory};
use made::Made;
use own::Entering;
use reshard::engine::{BufferTable, Level, MessagesOptions, Report};
use reshard::rank::check_reach;
use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Move, Plan, Result, Triangle};
use running::MoverDriver;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Options of an [`MpiEngine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MpiOptions {
    /// How bytes travel.
    pub mover: Mover,
    /// Strategy and barriers of movers that send messages; and, for all movers, the instruction set level of this rank, which
    /// need not be that of the others, and the limit of memory for all ranks together. A plan that needs more is refused
    /// before anything moves; memory of MPI itself is not counted.
    pub messages: MessagesOptions,
    /// The timeout of a rank that waits for another, in making an engine and in every run; `None` waits without one. Runs of
    /// `alltoallv` and `alltoallw`, which are one blocking call of MPI each, have no timeout.
    pub deadline: Option<Duration>,
    /// The timeout in making an engine, where it is another than that of runs: ranks often start further apart than they run.
    pub setup_deadline: Option<Duration>,
}

impl MpiOptions {
    /// Sets how bytes travel.
    #[must_use]
    pub fn with_mover(self, mover: Mover) -> Self {
        Self { mover, ..self }
    }

    /// Sets strategy, barriers, level and the memory limit.
    #[must_use]
    pub fn with_messages(self, messages: MessagesOptions) -> Self {
        Self { messages, ..self }
    }

    /// Sets the instruction set level of this rank, in `messages`; `None` for the best of this processor. Ranks may have
    /// different ones.
    #[must_use]
    pub fn with_level(self, level: impl Into<Option<Level>>) -> Self {
        Self { messages: self.messages.with_level(level), ..self }
    }

    /// Sets the timeout of a rank that waits for another; `None` waits without one.
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Option<Duration>>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }

    /// Sets the timeout in making an engine; without it, it is that of runs.
    #[must_use]
    pub fn with_setup_deadline(self, deadline: Duration) -> Self {
        Self { setup_deadline: Some(deadline), ..self }
    }
}

impl Default for MpiOptions {
    fn default() -> Self {
        let messages = MessagesOptions::default();
        Self { mover: Mover::Auto, messages, deadline: Some(DEADLINE), setup_deadline: None }
    }
}

/// Bytes of all staging buffers of a chunk together, at most; with more than [`LONG_CHUNK_MAX_RANKS`] ranks half of it, as
/// each has buffers for all others. Long buffers are read and written a few percent faster.
const LONG_CHUNK_BYTES: u64 = 1 << 20;
const LONG_CHUNK_MAX_RANKS: usize = 8;

/// With more ranks than this chunks become shorter in proportion, so that the memory of a rank's buffers does not grow.
const FULL_CHUNK_MAX_RANKS: usize = 64;

/// The chunks of a rank at least, if few ranks have no shorter ones than this for it: it takes time to make buffers.
const MIN_CHUNKS_PER_RANK: u64 = 32;
const SMALL_CHUNK_BYTES: u64 = 1 << 16;

/// The most chunks of all ranks: each rank lists those of all. Arrays of more than a hundred gigabytes have longer chunks.
const MAX_CHUNKS: u64 = 1 << 17;

/// Bytes of all staging buffers of a chunk together, for the mover `private`.
fn chunk_bytes(plan: &Plan, ranks: usize) -> u64 {
    let long = plan.bytes() / ranks as u64 / MIN_CHUNKS_PER_RANK;
    let long = long.clamp(SMALL_CHUNK_BYTES, LONG_CHUNK_BYTES);
    let bytes = match ranks {
        0..=LONG_CHUNK_MAX_RANKS => long,
        _ => long / 2 * FULL_CHUNK_MAX_RANKS as u64 / ranks.max(FULL_CHUNK_MAX_RANKS) as u64,
    };
    bytes.max(plan.bytes() / MAX_CHUNKS)
}

/// The engine between processes.
///
/// ```no_run
/// use reshard::{Layout, Move, MemoryOrder, Plan};
/// use reshard_plan::Distribution;
/// use reshard_mpi::{Mpi, MpiEngine, MpiOptions, Own};
/// use std::sync::Arc;
/// let session = Mpi::load(None)?.init()?;
/// let layout = |text: &str| Ok::<_, reshard::Error>(Layout::new(text.parse::<Distribution>()?, MemoryOrder::ColMajor));
/// let plan = Plan::new(vec![Move::of::<f64>(layout("2x2/64x64 of 1000x1000")?, layout("1x4/32x32 of 1000x1000")?)?])?;
/// let mut engine = MpiEngine::new(Arc::new(plan), session.world(), MpiOptions::default())?;
/// let from = vec![0.0; engine.source_len(0)];
/// let mut to = vec![0.0; engine.target_len(0)];
/// engine.run(Own::new(&from, &mut to))?;
/// # Ok::<(), reshard::Error>(())
/// ```
///
/// Each rank gives its own parts. A [`Redistribution`](reshard::Redistribution), which wants those of all ranks, does not take
/// this engine:
///
/// ```compile_fail
/// fn f(engine: reshard_mpi::MpiEngine) {
///     reshard::Redistribution::with(engine);
/// }
/// ```
pub struct MpiEngine {
    plan: Arc<Plan>,
    /// The mover in use; never `Auto`.
    chosen: Mover,
    /// Why it was chosen, in words.
    why: String,
    driver: MoverDriver,
    /// For the movers `Shared` and `SharedSource`: for each array, the sources this rank reads and the destinations it
    /// writes.
    parts: Vec<[Vec<usize>; 2]>,
    /// Ranks that may still read this rank's source (movers `Shared`, `SharedSource`).
    readers: Option<Arc<Readers>>,
    table: BufferTable,
}

impl MpiEngine {
    /// As [`MpiEngine::new`], for moves that this rank may have failed to make: then all ranks get that error, instead of
    /// waiting for this one. All ranks must call the same of the two. Collective.
    pub fn of_moves(
        moves: Result<Vec<Move>>,
        comm: &dyn ToCommunicator,
        options: MpiOptions,
    ) -> Result<Self> {
        let limit = options.setup_deadline.or(options.deadline);
        let communicator = comm.to_communicator(limit)?;
        let plan = moves.and_then(|moves| Plan::for_rank(moves, communicator.rank() as u64)).map(Arc::new);
        Self::new(agree_on_result("a plan", plan, &communicator, limit)?, &communicator, options)
    }

    /// Makes an engine for the plan: rank `r` of the plan is rank `r` of the communicator. The plan is for all ranks, or for this
    /// one ([`Plan::for_rank`]). Collective; returns the same outcome on all ranks. All ranks must make their engines in the same
    /// order, and may then run them in any.
    pub fn new(plan: Arc<Plan>, comm: &dyn ToCommunicator, options: MpiOptions) -> Result<Self> {
        Self::with_sharing(plan, comm, options, WorkSharing::All)
    }

    /// As [`MpiEngine::new`], but with the mover `Shared` all ranks copy everything, however little, in tasks of
    /// `task_bytes` bytes, and `Private` tries all its ways at once: for tests.
    #[doc(hidden)]
    pub fn in_tasks(
        plan: Arc<Plan>,
        comm: &dyn ToCommunicator,
        options: MpiOptions,
        task_bytes: u64,
    ) -> Result<Self> {
        Self::with_sharing(plan, comm, options, WorkSharing::AllInTasks(task_bytes))
    }

    fn with_sharing(
        plan: Arc<Plan>,
        comm: &dyn ToCommunicator,
        options: MpiOptions,
        sharing: WorkSharing,
    ) -> Result<Self> {
        let (memory, level) = (options.messages.memory, options.messages.level);
        let limit = options.setup_deadline.or(options.deadline);
        let comm = comm.to_communicator(limit)?;
        // One tag for each group of arrays, and one for barriers.
        let tags = plan.arrays().len() as u64 + 1;
        let proposal = comm.propose(0, tags);
        let local = check_hosts(&plan, comm.rank())
            .and(Self::check(&plan, comm.size()))
            .and(level.map_or(Ok(()), Level::check))
            .and(proposal.as_ref().map(|_| ()).map_err(Clone::clone));
        let proposed =
            agree(&comm, "an engine", &fields(&plan, &options), local, proposal.unwrap_or(0), limit)?;
        let registration = register(&comm, proposed, tags, limit)?;
        let (mut chosen, mut why) = choose(options.mover, &comm, limit)?;
        let make = |mover: Mover, plan: Arc<Plan>| {
            let plan = agree_on_result("a plan", plan_for(mover, plan), &comm, limit)?;
            Made::new(mover, plan, &registration, &options, sharing)
        };
        let mut made = make(chosen, Arc::clone(&plan));
        // A limit of files is one of shared memory: all ranks know that there is one, and have this error.
        if let (Mover::Auto, Err(error)) = (options.mover, &made)
            && comm.node(limit)?.limits_files()
            && comm.check_usable().is_ok()
        {
            (chosen, why) = (Mover::Messages, error.to_string());
            made = make(chosen, plan);
        }
        let Made { plan, backend, parts, readers } = made?;
        if let Some(memory) = memory {
            let all = comm.sum(backend.scratch_bytes(), limit)?;
            if all > memory {
                return Err(too_little_memory(memory, all));
            }
        }
        let table = BufferTable::new(Arc::clone(&plan));
        let driver = MoverDriver::new(registration, backend, options.deadline)?;
        Ok(Self { plan, chosen, why, driver, parts, readers, table })
    }

    /// Tasks this rank copied in the last run, whichever rank received them; 0 unless the mover is `Shared` or
    /// `SharedSource`.
    #[doc(hidden)]
    pub fn tasks_copied(&self) -> u64 {
        self.driver.counters().tasks
    }

    /// Nanoseconds that this rank packed in the last run: none if the system copied.
    #[doc(hidden)]
    pub fn packed_nanoseconds(&self) -> u64 {
        self.driver.counters().pack.as_nanos() as u64
    }

    /// The first tag of the engine's messages.
    #[doc(hidden)]
    pub fn tag(&self) -> u32 {
        self.driver.tag()
    }

    /// The mover in use.
    pub fn mover(&self) -> Mover {
        self.chosen
    }

    /// Why this mover was chosen, in words.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The communicator of the engine.
    pub fn comm(&self) -> &Arc<Communicator> {
        self.driver.comm()
    }

    /// Fails if the plan has a rank that is not among so many. [`MpiEngine::new`] checks this first.
    pub fn check(plan: &Plan, ranks: usize) -> Result<()> {
        match plan.max_rank() {
            Some(most) if most >= ranks as u64 => Err(Error::new(
                ErrorKind::OutOfRange,
                format!(
                    "the plan has a rank {most}, but the communicator has only {}; start {} processes or use smaller grids",
                    match ranks {
                        1 => "rank 0".into(),
                        ranks => format!("{}, 0 to {}", rank_count(ranks), ranks - 1),
                    },
                    most + 1
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The name of the engine on the command line.
    pub fn name(&self) -> &'static str {
        "mpi"
    }

    /// The plan that the engine runs.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Bytes of memory on this rank besides the plan and the arrays.
    pub fn scratch_bytes(&self) -> u64 {
        self.driver.scratch_bytes()
    }

    /// Elements that this rank's source part of an array spans in memory; 0 if it has none, or there is no such array.
    pub fn source_len(&self, array: usize) -> usize {
        let rank = self.comm().rank() as u64;
        let mine =
            self.plan.arrays().get(array).and_then(|array| Some(&array.sources()[array.source_of(rank)?]));
        mine.map_or(0, |source| source.span as usize)
    }

    /// Elements that this rank's destination part of an array spans in memory; 0 if it has none, or there is no such array.
    pub fn target_len(&self, array: usize) -> usize {
        let rank = self.comm().rank() as u64;
        let mine =
            self.plan.arrays().get(array).and_then(|array| Some(&array.targets()[array.target_of(rank)?]));
        mine.map_or(0, |target| target.span as usize)
    }

    /// Moves this rank's parts of all arrays of the plan, and waits until they are moved: one [`Own`] for a plan of one array,
    /// a tuple or a slice of them for several.
    ///
    /// ```no_run
    /// # fn f(engine: &mut reshard_mpi::MpiEngine, x: &[f64], y: &mut [f64]) -> reshard::Result<()> {
    /// use reshard_mpi::Own;
    /// engine.run(Own::new(x, y))?;
    /// engine.run(Own::new(x, y).scaled(2.0, -1.0))?; // y becomes 2 x - y
    /// # Ok(()) }
    /// ```
    pub fn run<'r>(&'r mut self, arrays: impl RunArrays<'r>) -> Result<Report> {
        self.start(arrays)?.wait()
    }

    /// Refuses the next run, for callers that find an argument of it wrong before they have any parts to give: the other ranks,
    /// which may be in that run, are sent the error instead of waiting. The engine cannot be used any more.
    pub fn refuse(&mut self, error: Error) -> Error {
        match self.driver.check() {
            Ok(()) => self.driver.refuse(error),
            Err(earlier) => earlier,
        }
    }

    /// Begins to move this rank's parts, so that it can compute something else meanwhile: [`Running::test`] progresses the run.
    /// Other engines may begin runs before this one has ended, in any order. The movers `alltoallv` and `alltoallw` move
    /// everything before this returns, and all ranks must begin their runs in the same order.
    ///
    /// If the parts of one rank are refused, all ranks get an error that names it, and the engine cannot be used any more.
    pub fn start<'r>(&'r mut self, mut arrays: impl RunArrays<'r>) -> Result<Running<'r>> {
        self.driver.check()?;
        let Self { plan, chosen, driver, parts, readers, table, .. } = self;
        let comm = Arc::clone(driver.comm());
        let mut data = table.fill();
        let mut entering = Entering {
            comm: &comm,
            plan,
            mover: *chosen,
            parts,
            readers: readers.as_ref(),
            call: DefaultHasher::new(),
        };
        let given = arrays.count();
        let counted = match given == plan.arrays().len() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} given for a plan of {}; a run moves all of them",
                    if given == 1 { "1 array was".to_string() } else { format!("{given} arrays were") },
                    plan.arrays().len()
                ),
            )),
        };
        let entered = counted
            .and_then(|()| arrays.each(&mut |array, parts| parts.enter(array, &mut data, &mut entering)));
        if let Err(error) = entered {
            data.clear();
            return Err(driver.refuse(error));
        }
        data.scaling_number().hash(&mut entering.call);
        let call = entering.call.finish();
        let running = driver.start(plan, data, call)?;
        arrays.each(&mut |_, parts| {
            parts.add_readers(&entering);
            Ok(())
        })?;
        Ok(running)
    }
}

/// Fails if the plan is for other ranks than this one, or a part is larger than a process can address.
fn check_hosts(plan: &Plan, rank: usize) -> Result<()> {
    match plan.hosted() {
        Some(hosted) if !hosted.contains(&(rank as u64)) => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "rank {rank} was given a plan for other ranks; make it with Plan::for_rank(moves, {rank}) or Plan::new"
            ),
        )),
        _ => check_reach(plan),
    }
}

/// The plan as a mover needs it: messages need that of this rank with its peers; where memory is shared, all ranks must cut that
/// of all alike.
fn plan_for(mover: Mover, plan: Arc<Plan>) -> Result<Arc<Plan>> {
    let plan = match mover {
        Mover::Messages | Mover::Mixed | Mover::Lockstep if plan.lists_peers() => return Ok(plan),
        Mover::Messages | Mover::Mixed | Mover::Lockstep => plan.as_ref().clone().with_peers()?,
        _ if plan.hosted().is_none() => return Ok(plan),
        _ => Plan::new(plan.arrays().iter().map(|array| array.wanted().clone()).collect())?,
    };
    check_reach(&plan).map(|()| Arc::new(plan))
}

/// Resolves `Auto`: the mover to use, and why. Movers within a node are refused if the ranks are not all on one.
fn choose(wanted: Mover, comm: &Communicator, limit: Option<Duration>) -> Result<(Mover, String)> {
    let node = comm.node(limit)?;
    match (wanted, node.apart()) {
        (Mover::Shared | Mover::SharedSource | Mover::Private | Mover::Cma, Some(apart)) => Err(Error::new(
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

/// A triangle in words.
fn triangle_words(triangle: Triangle) -> String {
    let side = if triangle.is_upper() { "above" } else { "below" };
    format!("all on and {side} diagonal {}", triangle.diagonal())
}

/// The arguments that must be equal on all ranks, in words. The instruction set level is not among them: fragments, chunks and
/// tasks are the same at every level.
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
        field("the size of an element", all(&|moving| counted(moving.elem_bytes(), "byte"))),
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
        field("the triangle", all(&|moving| moving.triangle().map_or("all of it".into(), triangle_words))),
        field("the order of the source in memory", all(&|moving| format!("{:?}", moving.from().order()))),
        field("the order of the destination in memory", all(&|moving| format!("{:?}", moving.to().order()))),
        field("the mover", options.mover.to_string()),
        field("the strategy", options.messages.strategy.to_string()),
        field("the parameters of the strategy", format!("{:?}", options.messages.schedule)),
        field(
            "the memory",
            options.messages.memory.map_or("no limit".into(), |bytes| counted(bytes, "byte")),
        ),
        field("barriers", if options.messages.barriers { "after each step" } else { "none" }.into()),
    ]
}
