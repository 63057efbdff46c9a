//! A call from its arguments to the data in place: checked, agreed, planned or found among earlier ones, run.

#![allow(unsafe_code)]

use crate::agreement::{AgreedCall, AgreedSide, Outcome, OwnState, disagreement, own_number, read, words};
use crate::arguments::{Arguments, Integer};
use crate::blacs::Blacs;
use crate::cache::Cache;
use crate::errors::CallError;
use crate::request::Request;
use crate::routine::Shape;
use crate::settings::Settings;
use reshard::engine::{MessagesOptions, RawPart};
use reshard_mpi::mpi::{PrivateComm, Reduce};
use reshard_mpi::{Comm, Mpi, MpiEngine, MpiOptions, OneCollective, Own, RawComm, Session};
use reshard_plan::{Deal, Error, Grid, Layout, MemoryOrder, Move, Pattern, Plan, Window};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Bytes that a plan takes on each process at least, as all count them.
const BYTES_OF_A_PLAN: u64 = 1 << 18;

/// Bytes of the text in which a process says what it was given, or why it refuses.
const TEXT_BYTES: usize = 512;

/// The most groups of processes that are kept: then the one used least recently is dropped.
const MAX_GROUPS: usize = 64;

/// Bytes up to which a call is one collective of MPI.
const MAX_SMALL_BYTES: u64 = 1 << 16;

/// What a call did.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub bytes: u64,
    pub mover: &'static str,
    /// The plan was made by an earlier call.
    pub cached: bool,
    /// This process is the first of those that call.
    pub first: bool,
}

/// MPI and the BLACS of the host program.
struct Host<I> {
    session: Session,
    integer_handles: bool,
    blacs: Blacs<I>,
}

/// The processes of a context, and the engines of their calls.
struct Group {
    comm: PrivateComm,
    cache: Cache<AgreedCall, Runner>,
}

/// Groups by the numbers of their processes, in the order of the communicator.
#[derive(Default)]
struct Groups {
    known: HashMap<Vec<u64>, (Arc<Mutex<Group>>, u64)>,
    /// Uses so far: each group has the number of its last one.
    uses: u64,
    /// A group was dropped, to keep others or because a call failed: its other processes may still know it.
    dropped: bool,
}

/// What runs a call, once or again.
enum Runner {
    /// One collective of MPI: nothing to be made together.
    Small(Box<OneCollective>),
    Engine(Box<MpiEngine>),
}

impl Runner {
    /// Prepares an agreed call. Collective, unless it is small.
    fn new(call: &AgreedCall, elem: u64, comm: &PrivateComm, settings: &Settings) -> Result<Self, Error> {
        let moves = moving(call, elem).map(|moving| vec![moving]);
        // A collective of MPI has no timeout.
        let whole = call.routine.shape == Shape::General;
        if settings.deadline.is_none() && whole && call.bytes(elem) <= MAX_SMALL_BYTES {
            let plan = Plan::for_rank(moves?, comm.rank() as u64)?.with_peers()?;
            return OneCollective::new(Arc::new(plan), comm).map(|small| Self::Small(Box::new(small)));
        }
        let messages = MessagesOptions::default().with_level(settings.level);
        let options = MpiOptions::default().with_messages(messages).with_deadline(settings.deadline);
        let engine = MpiEngine::of_moves(moves, comm.communicator(), options)?;
        Ok(Self::Engine(Box::new(engine)))
    }

    /// Elements that this process's parts span.
    fn lens(&self) -> [usize; 2] {
        match self {
            Self::Small(small) => small.lens(),
            Self::Engine(engine) => [engine.source_len(0), engine.target_len(0)],
        }
    }

    /// Moves the data.
    ///
    /// # Safety
    /// As for [`Own::raw`].
    unsafe fn run(&mut self, from: RawPart, to: RawPart) -> Result<(), Error> {
        match self {
            // SAFETY: promised by the caller.
            Self::Small(small) => unsafe { small.run(from, to) },
            // SAFETY: promised by the caller.
            Self::Engine(engine) => engine.run(unsafe { Own::<u8>::raw(from, to) }.as_bytes()).map(drop),
        }
    }

    fn mover(&self) -> &'static str {
        match self {
            Self::Small(_) => "alltoallv",
            Self::Engine(engine) => engine.mover().name(),
        }
    }
}

/// What this process keeps of earlier calls.
struct Kept {
    groups: Mutex<Groups>,
    /// A number of this process.
    process: u64,
}

/// Some number of 62 bits, not 0.
fn random() -> u64 {
    RandomState::new().hash_one(0) >> 2 | 1
}

impl Kept {
    fn get() -> &'static Self {
        static KEPT: OnceLock<Kept> = OnceLock::new();
        KEPT.get_or_init(|| Self { groups: Mutex::default(), process: random() })
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a group that all its processes forget.
    fn forget(&self, processes: &[u64]) {
        self.groups().known.remove(processes);
    }

    /// Drops a group that others may keep.
    fn drop_group(&self, processes: &[u64]) {
        let mut groups = self.groups();
        groups.known.remove(processes);
        groups.dropped = true;
    }

    /// What this process says of itself.
    fn state(&self) -> OwnState {
        OwnState { process: self.process, dropped: self.groups().dropped }
    }

    /// The group of these processes, made if there is none. Collective over `comm`.
    fn group(&self, processes: &[u64], comm: &Comm, settings: &Settings) -> Result<Arc<Mutex<Group>>, Error> {
        let mut groups = self.groups();
        groups.uses += 1;
        let now = groups.uses;
        if let Some((group, last_use)) = groups.known.get_mut(processes) {
            *last_use = now;
            return Ok(Arc::clone(group));
        }
        drop(groups);
        let own = comm.private_duplicate(settings.deadline)?;
        let group = Arc::new(Mutex::new(Group { comm: own, cache: Cache::new(processes.len()) }));
        let mut groups = self.groups();
        if groups.known.len() >= MAX_GROUPS {
            let oldest = groups.known.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(oldest) = oldest.map(|(processes, _)| processes.clone()) {
                groups.known.remove(&oldest);
                groups.dropped = true;
            }
        }
        groups.known.insert(processes.to_vec(), (Arc::clone(&group), now));
        Ok(group)
    }
}

impl<I: Integer + 'static> Host<I> {
    /// Finds MPI and the BLACS.
    fn find() -> Result<Self, String> {
        let blacs = Blacs::find()?;
        let mpi = Mpi::load(None).map_err(|error| error.to_string())?;
        let session = mpi.init().map_err(|error| error.to_string())?;
        Ok(Self { session, integer_handles: mpi.has_integer_handles(), blacs })
    }

    /// The communicator of all processes that call.
    fn communicator(&self, call: &Arguments<I>) -> Result<Comm, String> {
        let handle = match call.context {
            // SAFETY: the world is there until MPI ends.
            None => return unsafe { self.session.world().borrow() }.map_err(|error| error.to_string()),
            Some(context) if self.blacs.grid(context).is_some() => {
                // SAFETY: this process belongs to the context.
                unsafe { self.blacs.communicator(context, self.integer_handles) }
            }
            Some(_) => None,
        };
        let handle: RawComm = handle.ok_or_else(|| {
            format!(
                "{} is {}, which is no context that this process belongs to; give one of all processes of both matrices",
                call.routine.argument(crate::routine::Argument::Context),
                call.context.unwrap_or_default()
            )
        })?;
        // SAFETY: MPI has begun, and the BLACS keep the communicator as long as the context, which outlives the call.
        unsafe { Comm::from_raw(self.session.mpi(), handle) }.map_err(|error| error.to_string())
    }
}

/// An integer width, with the host program's functions for it.
pub trait Width: Integer + 'static {
    #[doc(hidden)]
    fn host() -> &'static OnceLock<HostOf<Self>>;
}

/// The host program, as calls of one width see it.
pub struct HostOf<I>(Host<I>);

macro_rules! widths {
    ($($integer:ty),*) => {
        $(impl Width for $integer {
            fn host() -> &'static OnceLock<HostOf<Self>> {
                static HOST: OnceLock<HostOf<$integer>> = OnceLock::new();
                &HOST
            }
        })*
    };
}
widths!(i32, i64);

fn host<I: Width>() -> Result<&'static Host<I>, String> {
    // What could not be found may be there at the next call.
    if I::host().get().is_none() {
        let found = Host::find().map(HostOf)?;
        I::host().get_or_init(|| found);
    }
    I::host().get().map(|host| &host.0).ok_or_else(|| "MPI is gone".into())
}

/// Drops all that was kept: a call ended where nobody knows.
pub fn drop_everything() {
    let mut groups = Kept::get().groups();
    groups.known.clear();
    groups.dropped = true;
}

/// Ends the job, after an error was said.
pub fn abort<I: Width>() -> ! {
    match host::<I>() {
        Ok(host) => host.session.abort(1),
        Err(_) => std::process::exit(1),
    }
}

/// Moves what a call asks for. None if there is nothing to move.
///
/// # Safety
/// As for the routine: descriptors have nine entries, parts are as large as they say, nobody else uses them meanwhile.
pub unsafe fn redistribute<I: Width>(
    call: &Arguments<I>,
    settings: &Settings,
) -> Result<Option<Moved>, CallError> {
    let own = |message: String| CallError { message: format!("{}: {message}", call.routine), says: true };
    if call.rows == 0 || call.columns == 0 {
        return Ok(None);
    }
    // Two at once could meet in another order on another process. The BLACS could not do it, either.
    static CALLING: Mutex<()> = Mutex::new(());
    let _calling = match CALLING.try_lock() {
        Err(TryLockError::WouldBlock) => {
            return Err(own("it was called by two threads at once; let one thread make all calls".into()));
        }
        calling => calling,
    };
    let host = host::<I>().map_err(own)?;
    // SAFETY: promised by the caller.
    let request = unsafe { Request::new(call, settings.strict, |context| host.blacs.grid(context)) };
    if let Ok(None) = request {
        return Ok(None);
    }
    let comm = host.communicator(call).map_err(own)?;
    let of_rank = |message: String| own(format!("rank {}: {message}", comm.rank()));
    let failed = |error: Error| of_rank(error.to_string());
    let request =
        request.map(|request| request.unwrap_or_else(|| unreachable!("there is something to move")));
    let kept = Kept::get();
    let mut reduced = words(request.as_ref().map_err(|_| ()), comm.rank(), comm.size(), &kept.state());
    // Without a deadline one blocking call, which is faster.
    match settings.deadline {
        None => comm.all_reduce(&mut reduced, Reduce::Min),
        deadline => comm.all_reduce_within(&mut reduced, Reduce::Min, deadline),
    }
    .map_err(failed)?;
    let agreed = |message: String| {
        let message = format!("{}: {message}; B is as it was", call.routine);
        CallError { message, says: comm.rank() == 0 }
    };
    let (agreed_call, dropped, processes) = match read(&reduced, call.routine, comm.size()) {
        Outcome::Agreed { call, dropped, processes } => (call, dropped, processes),
        Outcome::Refused { rank } => {
            let mut text = text_bytes(request.as_ref().err().map_or("", String::as_str));
            comm.broadcast(rank, &mut text).map_err(failed)?;
            return Err(agreed(format!("rank {rank}: {}", text_of(&text))));
        }
        Outcome::Differ { number } => {
            let own = request.as_ref().ok().and_then(|request| own_number(request, number));
            let mut all = vec![0; TEXT_BYTES * comm.size()];
            comm.all_gather(&text_bytes(own.as_deref().unwrap_or_default()), &mut all).map_err(failed)?;
            let said: Vec<Option<String>> = all
                .chunks_exact(TEXT_BYTES)
                .map(|text| Some(text_of(text)).filter(|text| !text.is_empty()))
                .collect();
            return Err(agreed(disagreement(&call.routine, number, &said)));
        }
        Outcome::Incomplete(why) => return Err(agreed(why)),
    };
    if dropped {
        let mut known = [u64::from(kept.groups().known.contains_key(&processes))];
        comm.all_reduce_within(&mut known, Reduce::Min, settings.deadline).map_err(failed)?;
        if known == [0] {
            kept.forget(&processes);
        }
    }
    let elem = call.routine.element.bytes(size_of::<I>());
    // SAFETY: promised by the caller.
    let moved = unsafe { run(kept, &agreed_call, &processes, &comm, call, elem, settings) };
    moved.map(Some).map_err(|error| {
        // Others may not have noticed, and keep what this process does not: it says so from now on.
        kept.drop_group(&processes);
        of_rank(error)
    })
}

/// Runs an agreed call, with the engine of an earlier one or a new one.
///
/// # Safety
/// As for [`redistribute`].
unsafe fn run<I: Width>(
    kept: &Kept,
    agreed: &AgreedCall,
    processes: &[u64],
    comm: &Comm,
    call: &Arguments<I>,
    elem: u64,
    settings: &Settings,
) -> Result<Moved, String> {
    let before = |error: Error| format!("{error}; B is as it was");
    let group = kept.group(processes, comm, settings).map_err(before)?;
    let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
    let Group { comm: own, cache } = &mut *group;
    let cached = cache.get(agreed).is_some();
    if !cached {
        let bytes = agreed.bytes(elem) / 8 / processes.len().max(1) as u64 + BYTES_OF_A_PLAN;
        cache.make_room(bytes);
        let runner = Runner::new(agreed, elem, own, settings).map_err(before)?;
        cache.insert(agreed.clone(), runner, bytes);
    }
    let Some(runner) = cache.get(agreed) else { return Err("a plan that was kept is gone".into()) };
    let part = |part: *mut u8, elems: usize| match elems {
        0 => RawPart::NONE,
        elems => RawPart::new(part, elems * elem as usize),
    };
    let [from, to] = runner.lens();
    // SAFETY: the caller promises parts as large as the descriptors say, which is what was prepared.
    let moved = unsafe { runner.run(part(call.a.part, from), part(call.b.part, to)) };
    moved.map_err(|error| error.to_string())?;
    Ok(Moved { bytes: agreed.bytes(elem), mover: runner.mover(), cached, first: comm.rank() == 0 })
}

/// The move of an agreed call.
fn moving(call: &AgreedCall, elem: u64) -> Result<Move, Error> {
    let layout = |side: &AgreedSide| {
        let grid = Grid::new(&side.grid)?.with_ranks(&side.ranks)?;
        let deals = side.block.map(Deal::Cyclic).to_vec();
        let matrix = Pattern::new(grid, deals, side.source.to_vec())?.over(&side.shape)?;
        let tight = Layout::new(matrix, MemoryOrder::ColMajor);
        let mut strides = side.ranks.iter().zip(&side.leading);
        strides.try_fold(tight, |layout, (&rank, &leading)| layout.with_strides_of(rank, &[1, leading]))
    };
    let [a, b] = &call.sides;
    let window = Window::of(&[call.rows, call.columns]).from(&a.first).to(&b.first);
    let moving = Move::windowed::<u8>(layout(a)?, layout(b)?, window)?.of_bytes(elem)?;
    match call.routine.shape.triangle(call.rows, call.columns) {
        Some(triangle) => moving.only(triangle),
        None => Ok(moving),
    }
}

fn text_bytes(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes()[..text.len().min(TEXT_BYTES)].to_vec();
    bytes.resize(TEXT_BYTES, 0);
    bytes
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
}
