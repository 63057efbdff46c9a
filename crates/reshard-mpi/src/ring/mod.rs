//! Rings between processes: every rank has its own items, sends to its two neighbours and receives from them.
//!
//! Items travel in fragments, as in `RingMessages` of `reshard-ring`, whose `RankProgress` says what a rank packs and unpacks. A
//! rank has two slots for fragments it sends (`sending.rs`) and two for each link it receives from (`receiving.rs`);
//! `rank.rs` drives both.
//!
//! Why there is no deadlock: as in the engine of threads that sends fragments. A sender without a free slot waits for a
//! neighbour that has not unpacked what it has, so is full, so has something to send.

mod rank;
mod receiving;
mod sending;

use crate::agree::{Field, agree, agree_on_result, register};
use crate::communicator::{Communicator, DEADLINE, Registration, ToCommunicator};
use crate::fork::is_forked;
use crate::mover::{Backoff, rank_count};
use crate::transport::{Envelope, MAX_MESSAGE_BYTES};
use bytemuck::Pod;
use rank::RingRank;
use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Result};
use reshard_ring::{Direction, FragmentSize, Report, RingPlan, RingProblem, Side};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tags of a ring: fragments to the left and to the right have one each, as both neighbours can be the same rank.
const TAGS: u64 = 2;

/// The ranks of the two neighbours, by [`Side::index`].
type Neighbours = [usize; 2];

/// Identifies the fragments of one run of one ring.
#[derive(Clone, Copy, Default)]
struct FragmentTag {
    /// The envelope of every fragment, but for its sequence number.
    envelope: Envelope,
    /// The first of the ring's tags.
    first_tag: u32,
}

impl FragmentTag {
    /// The tag of fragments sent to a side.
    fn of_side(self, side: Side) -> u32 {
        self.first_tag + side.index() as u32
    }
}

/// Options of an [`MpiRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MpiRingOptions {
    /// The limit in bytes for the slots of all ranks together. A plan that needs more is refused; memory of MPI itself is
    /// not counted.
    pub memory: Option<u64>,
    /// The timeout of a rank that waits for another; `None` waits without one.
    pub deadline: Option<Duration>,
}

impl MpiRingOptions {
    /// Sets the limit in bytes for the slots of all ranks together.
    #[must_use]
    pub fn with_memory(self, memory: impl Into<Option<u64>>) -> Self {
        Self { memory: memory.into(), ..self }
    }

    /// Sets the timeout of a rank that waits for another; `None` waits without one.
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Option<Duration>>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }
}

impl Default for MpiRingOptions {
    fn default() -> Self {
        Self { memory: None, deadline: Some(DEADLINE) }
    }
}

/// The engine for rings between processes.
///
/// Process `i` of the ring is rank `i` of the communicator; ranks beyond the ring must make and run one, too, with an empty
/// part.
///
/// ```no_run
/// use reshard_ring::RingProblem;
/// use reshard_mpi::{Mpi, MpiRing, MpiRingOptions};
/// let session = Mpi::load(None)?.init()?;
/// // Columns of 1000 doubles: 10, 20 and 30 of them become 20 each.
/// let problem = RingProblem::between_gen_blocks(&[10, 20, 30], &[20, 20, 20]);
/// let mut ring = MpiRing::of_problem(problem, 1000 * 8, session.world(), MpiRingOptions::default())?;
/// let mut columns = vec![0.0; ring.room() * 1000];
/// ring.run(&mut columns)?; // in place; as often as you like
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct MpiRing {
    plan: Arc<RingPlan>,
    registration: Registration,
    limit: Option<Duration>,
    /// The node has more ranks than processors.
    oversubscribed: bool,
    scratch_bytes: u64,
    /// None beyond the ring.
    rank: Option<RingRank>,
    /// Runs begun.
    runs: u64,
    /// Why nothing can be moved any more.
    broken: Option<Cow<'static, str>>,
    /// A run was begun and has not ended, and the other ranks do not know yet.
    open: bool,
}

impl MpiRing {
    /// As [`MpiRing::new`], for a problem that this rank may have failed to state: then all ranks get that error, instead of
    /// waiting for this one. Every rank solves the problem, with the same result. All ranks must call the same of the two.
    /// Collective.
    pub fn of_problem(
        problem: Result<RingProblem>,
        item_bytes: usize,
        comm: &dyn ToCommunicator,
        options: MpiRingOptions,
    ) -> Result<Self> {
        let plan = problem.and_then(|problem| RingPlan::solved(problem, item_bytes)).map(Arc::new);
        let communicator = comm.to_communicator(options.deadline)?;
        Self::new(agree_on_result("a plan", plan, &communicator, options.deadline)?, &communicator, options)
    }

    /// Makes an engine for the plan. Collective; returns the same outcome on all ranks.
    pub fn new(plan: Arc<RingPlan>, comm: &dyn ToCommunicator, options: MpiRingOptions) -> Result<Self> {
        let limit = options.deadline;
        let comm = comm.to_communicator(limit)?;
        let size = FragmentSize::within(options.memory, &plan, true, Envelope::BYTES);
        let proposal = comm.propose(0, TAGS);
        let local = check(&plan, &comm)
            .and(size.as_ref().map(|_| ()).map_err(Clone::clone))
            .and(proposal.as_ref().map(|_| ()).map_err(Clone::clone));
        let proposed = agree(&comm, "a ring", &fields(&plan, &options), local, proposal.unwrap_or(0), limit)?;
        let registration = register(&comm, proposed, TAGS, limit)?;
        let size = size?;
        let in_ring = comm.rank() < plan.procs();
        let rank = in_ring.then(|| RingRank::new(&plan, &comm, &size)).transpose();
        let rank = agree_on_result("fragments", rank, &comm, limit)?;
        let scratch_bytes = if in_ring { size.rank_bytes(&plan, comm.rank()) } else { 0 };
        let oversubscribed = comm.node(limit)?.is_oversubscribed();
        Ok(Self {
            plan,
            registration,
            limit,
            oversubscribed,
            scratch_bytes,
            rank,
            runs: 0,
            broken: None,
            open: false,
        })
    }

    /// The plan of the ring.
    pub fn plan(&self) -> &Arc<RingPlan> {
        &self.plan
    }

    /// Items for which this rank's part needs room; 0 beyond the ring.
    pub fn room(&self) -> usize {
        self.rank.as_ref().map_or(0, |_| self.plan.room(self.registration.comm().rank()))
    }

    /// Bytes this rank takes beside plan and items: its slots.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// The first tag of the ring's messages.
    #[doc(hidden)]
    pub fn tag(&self) -> u32 {
        self.registration.tag()
    }

    /// Moves the items in place: `part` is this rank's part, with [room](Self::room) for what it has and gets. All ranks
    /// of the ring must call this. Returns what this rank sent.
    pub fn run<T: Pod>(&mut self, part: &mut [T]) -> Result<Report> {
        let rank = self.registration.comm().rank();
        self.check()?;
        let begin = Instant::now();
        if self.rank.is_none() {
            return Ok(Report::of_rank(&self.plan, 0, 0, begin));
        }
        if let Err(error) = self.plan.check_part(rank, part) {
            return Err(self.refuse(error));
        }
        // Holds until the run has ended.
        (self.broken, self.open) = (Some("it was begun, and never ended".into()), true);
        self.runs += 1;
        let Self { registration, limit, oversubscribed, runs, .. } = self;
        let backoff = Backoff::in_place(*limit, *oversubscribed);
        let outcome = match &mut self.rank {
            Some(rank) => rank.run(registration, *runs, bytemuck::cast_slice_mut(part), backoff),
            None => Ok(()),
        };
        if let Err(error) = outcome {
            // If another rank has sent a failure notice, all ranks have it.
            match self.registration.check(self.runs, false) {
                Ok(()) => self.fail(&error),
                Err(_) => (self.broken, self.open) = (Some(error.to_string().into()), false),
            }
            return Err(error);
        }
        (self.broken, self.open) = (None, false);
        let sent = |rank: &RingRank| (rank.sender.fragments, rank.sender.bytes);
        let (fragments, bytes) = self.rank.as_ref().map_or((0, 0), sent);
        Ok(Report::of_rank(&self.plan, bytes / self.plan.item_bytes() as u64, fragments, begin))
    }

    /// Refuses the next run, because this rank was called wrongly: the others, which may be in it, are sent the error. Returns it. A rank beyond
    /// the ring keeps nobody waiting, and tells nobody.
    pub fn refuse(&mut self, error: Error) -> Error {
        if self.rank.is_some() && self.broken.is_none() {
            self.runs += 1;
            self.fail(&error);
        }
        error
    }

    /// Fails if the ring cannot be used any more: an earlier run failed, here or on another rank.
    fn check(&mut self) -> Result<()> {
        self.registration.comm().check_open()?;
        if let Err(error) = self.registration.check(self.runs + 1, false) {
            self.broken = Some(error.to_string().into());
            return Err(error);
        }
        let Some(why) = &self.broken else { return Ok(()) };
        let error = Error::new(
            ErrorKind::External,
            format!("an earlier run failed ({why}), and nothing more can be moved with it; make a new one"),
        );
        if self.open {
            self.fail(&error);
        }
        Err(error)
    }

    /// A run failed on this rank: sends the other ranks a failure notice.
    fn fail(&mut self, error: &Error) {
        (self.broken, self.open) = (Some(error.to_string().into()), false);
        self.registration.notify(self.runs, &error.to_string());
    }
}

impl Drop for MpiRing {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        if self.open {
            self.registration.notify(self.runs, "it panicked in the middle of the run");
        }
        // A fragment of a run that failed may still be in flight.
        if !self.rank.as_mut().is_none_or(RingRank::cancel_receives) || self.broken.is_some() {
            self.registration.keep_tags();
        }
    }
}

/// The arguments that must be equal on all ranks, in words.
fn fields(plan: &RingPlan, options: &MpiRingOptions) -> Vec<Field> {
    let problem = plan.problem();
    let mut hasher = DefaultHasher::new();
    plan.program().transfers().hash(&mut hasher);
    let program = format!("{} transfers ({:016x})", plan.program().transfers().len(), hasher.finish());
    let field = |name: &'static str, value: String| Field { name, value };
    vec![
        field("the version of reshard", env!("CARGO_PKG_VERSION").into()),
        field("the loads", format!("{:?}", problem.loads())),
        field("the targets", format!("{:?}", problem.targets())),
        field("the size of an item", counted(plan.item_bytes(), "byte")),
        field("the order of items", if problem.is_ordered() { "in order" } else { "without order" }.into()),
        field(
            "the direction",
            match problem.direction() {
                Direction::Uni => "to the right only".into(),
                Direction::Bi => "both ways".into(),
            },
        ),
        field("the costs to the right", format!("{:?}", problem.right())),
        field("the costs to the left", format!("{:?}", problem.left())),
        field("the program", program),
        field("the memory", options.memory.map_or("no limit".into(), |bytes| counted(bytes, "byte"))),
    ]
}

/// Fails if the communicator is too small for the ring, or an item too large for a message.
fn check(plan: &RingPlan, comm: &Communicator) -> Result<()> {
    let procs = plan.procs();
    if procs > comm.size() {
        return Err(Error::new(
            ErrorKind::OutOfRange,
            format!(
                "the ring has {procs} processes, but the communicator has {}; start {procs} processes",
                rank_count(comm.size())
            ),
        ));
    }
    let most = MAX_MESSAGE_BYTES - Envelope::BYTES;
    if plan.item_bytes() > most {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "items of {} were given; at most {most} bytes are sent at once",
                counted(plan.item_bytes(), "byte")
            ),
        ));
    }
    Ok(())
}
