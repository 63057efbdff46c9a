//! Engines: what moves data, as often as one likes. All ranks as threads of this process, or one rank in each process over MPI.

use crate::arrays::{RESHARD_BITS, RunArray, read, reshard_array, reshard_source, reshard_target};
use crate::border::{
    Failure, Outcome, RESHARD_ERROR_BUSY, RESHARD_ERROR_INTERNAL, border, free, hand_out, object, place, text,
};
use crate::comm::of_fortran;
use crate::options::{of_mpi, of_threads};
use crate::plan::reshard_plan;
use reshard::engine::{BufferTable, Engine, Threads};
use reshard::error::counted;
use reshard::{ErrorKind, Plan};
use reshard_mpi::{MpiEngine, MpiOptions, OwnParts, OwnedRun};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// An engine: a plan, and all that it needs to be run any number of times. Free it with `reshard_engine_free`.
pub struct reshard_engine(Arc<EngineSlot>);

/// What an engine shares with its run in flight: each may be freed before the other.
pub struct EngineSlot(Mutex<EngineState>);

enum EngineState {
    Threads(Box<ThreadsEngine>),
    Mpi(Box<MpiEngine>),
    /// The run has it.
    InFlight,
    /// A panic took it.
    Lost,
}

struct ThreadsEngine {
    threads: Threads,
    table: BufferTable,
}

/// What became of a run that was begun.
pub enum Started {
    /// It is over already.
    Over,
    InFlight(OwnedRun),
}

/// An engine in which all ranks of the plan are in this process: each byte is copied once, by a few threads. Options (null or
/// "": none): `threads=N` (one on each core), `level=NAME` (portable, avx2, avx512, avx512vbmi: the best of the processor).
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_threads(
    plan: *const reshard_plan,
    options: *const c_char,
    engine: *mut *mut reshard_engine,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let engine = unsafe { place(engine, "engine")? };
        *engine = std::ptr::null_mut();
        // SAFETY: likewise.
        let (plan, options) = unsafe { (object(plan, "plan")?, words(options)?) };
        let plan = Arc::new(Plan::new(plan.moves()?)?);
        let threads = Threads::with_options(Arc::clone(&plan), of_threads(options)?)?;
        let state = ThreadsEngine { threads, table: BufferTable::new(plan) };
        hand_out(reshard_engine::new(EngineState::Threads(Box::new(state))), engine);
        Ok(())
    })
}

/// An engine between processes: rank r of the layouts is rank r of the communicator, given as Fortran's handle. In C,
/// `reshard_engine_mpi` takes an MPI_Comm; it is there if mpi.h was included before this header. MPI must have begun.
///
/// Collective: all ranks of the communicator call it, with the same plan and options, and all get the same outcome. A rank
/// that could not make its plan passes null, and then all ranks get an error instead of waiting for it. The communicator may be
/// freed when the engine is; the engine may outlive MPI, but cannot be used then.
///
/// Options (null or "": none), words of one text: `mover=NAME` (private, cma, messages, mixed, lockstep, alltoallv, alltoallw), `strategy=NAME`,
/// `memory=BYTES`, `level=NAME`, `deadline=SECONDS` (of a rank that waits for another; 120 if nothing is said; `none`).
///
/// # Safety
/// Pointers as C promises them; the handle is that of a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_fortran(
    plan: *const reshard_plan,
    comm: i32,
    options: *const c_char,
    engine: *mut *mut reshard_engine,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        if let Some(engine) = unsafe { engine.as_mut() } {
            *engine = std::ptr::null_mut();
        }
        // SAFETY: likewise.
        let comm = unsafe { of_fortran(comm)? };
        // What is wrong on this rank alone is told to all: they are waiting.
        // SAFETY: likewise.
        let given = unsafe { given(plan, options, engine) };
        let (moves, options) = match &given {
            Ok((moves, options, _)) => (Ok(moves.clone()), *options),
            Err(failure) => (Err(failure.to_error()), MpiOptions::default()),
        };
        let made = MpiEngine::of_moves(moves, &comm, options);
        let (_, _, engine) = given?;
        hand_out(reshard_engine::new(EngineState::Mpi(Box::new(made?))), engine);
        Ok(())
    })
}

/// Moves one array whose parts here are one source and one destination, and waits until it is moved: between processes those
/// of this rank. A part that is not there is null, with 0 bytes.
///
/// # Safety
/// The parts have so many bytes, and nobody else writes to the source or uses the destination meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_run(
    engine: *mut reshard_engine,
    from: *const c_void,
    from_bytes: usize,
    to: *mut c_void,
    to_bytes: usize,
) -> c_int {
    let (from, to) = (part_of(from, from_bytes), target_of(to, to_bytes));
    let array = one_array(from.as_ref(), to.as_ref());
    // SAFETY: as the function's.
    unsafe { reshard_engine_run_arrays(engine, &raw const array, 1) }
}

/// As `reshard_engine_run`, scaled: the destination becomes alpha * source + beta * destination. Both point to one number
/// of the element type (RESHARD_F32, RESHARD_F64, RESHARD_COMPLEX_F32, RESHARD_COMPLEX_F64); all ranks give the same.
///
/// # Safety
/// As for `reshard_engine_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_run_scaled(
    engine: *mut reshard_engine,
    element_type: c_int,
    alpha: *const c_void,
    from: *const c_void,
    from_bytes: usize,
    beta: *const c_void,
    to: *mut c_void,
    to_bytes: usize,
) -> c_int {
    let (from, to) = (part_of(from, from_bytes), target_of(to, to_bytes));
    let array = reshard_array { element_type, alpha, beta, ..one_array(from.as_ref(), to.as_ref()) };
    // SAFETY: as the function's.
    unsafe { reshard_engine_run_arrays(engine, &raw const array, 1) }
}

/// Moves all arrays of the plan, in its order, and waits until they are moved.
///
/// If it fails the destinations may be partly written. An engine of threads can be used again; one between processes
/// cannot any more, on any rank: free it and make a new one.
///
/// # Safety
/// As for `reshard_engine_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_run_arrays(
    engine: *mut reshard_engine,
    arrays: *const reshard_array,
    count: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let engine = unsafe { object(engine, "engine")? };
        // SAFETY: likewise; the run has ended when this returns.
        match unsafe { engine.start(arrays, count)? } {
            Started::Over => Ok(()),
            Started::InFlight(run) => engine.0.finish(run),
        }
    })
}

/// The name of the engine's way to move data: "threads", or a mover of the engine between processes. Never freed.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_mover(
    engine: *const reshard_engine,
    name: *mut *const c_char,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (engine, name) = unsafe { (object(engine, "engine")?, place(name, "name")?) };
        let state = engine.0.lock()?;
        let mover = match &*state {
            EngineState::Mpi(engine) => engine.mover().name(),
            EngineState::Threads(engine) => engine.threads.name(),
            EngineState::InFlight => return Err(busy()),
            EngineState::Lost => return Err(lost()),
        };
        *name =
            NAMES.iter().find(|known| known.to_str() == Ok(mover)).map_or(c"unknown", |known| known).as_ptr();
        Ok(())
    })
}

/// The names of all movers, as C wants them.
const NAMES: [&std::ffi::CStr; 8] =
    [c"threads", c"private", c"cma", c"messages", c"mixed", c"lockstep", c"alltoallv", c"alltoallw"];

/// Frees an engine. Null is allowed. A run that it has in flight goes on, and keeps what it needs. Not collective.
///
/// # Safety
/// Null, or an engine of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_free(engine: *mut reshard_engine) {
    // SAFETY: as the function's.
    unsafe { free(engine) };
}

/// Options as text; null for none.
///
/// # Safety
/// Null, or a text that ends with 0.
pub unsafe fn words<'a>(options: *const c_char) -> Outcome<&'a str> {
    // SAFETY: promised by the caller.
    if options.is_null() { Ok("") } else { unsafe { text(options, "options") } }
}

type Given<'a> = (Vec<reshard::Move>, MpiOptions, &'a mut *mut reshard_engine);

/// What one rank gives for an engine between processes.
///
/// # Safety
/// As for `reshard_engine_fortran`.
unsafe fn given<'a>(
    plan: *const reshard_plan,
    options: *const c_char,
    engine: *mut *mut reshard_engine,
) -> Outcome<Given<'a>> {
    // SAFETY: promised by the caller.
    let (plan, options) = unsafe { (object(plan, "plan")?, words(options)?) };
    // SAFETY: likewise.
    let engine = unsafe { place(engine, "engine")? };
    Ok((plan.moves()?, of_mpi(options)?, engine))
}

/// A source part; none if it is null and without bytes.
pub fn part_of(address: *const c_void, bytes: usize) -> Option<reshard_source> {
    (!address.is_null() || bytes > 0).then_some(reshard_source { address, bytes })
}

/// A destination part; none if it is null and without bytes.
pub fn target_of(address: *mut c_void, bytes: usize) -> Option<reshard_target> {
    (!address.is_null() || bytes > 0).then_some(reshard_target { address, bytes })
}

/// An array of at most one part on each side, copied as it is. Valid as long as the parts.
pub fn one_array(from: Option<&reshard_source>, to: Option<&reshard_target>) -> reshard_array {
    reshard_array {
        from: from.map_or(std::ptr::null(), std::ptr::from_ref),
        from_count: usize::from(from.is_some()),
        to: to.map_or(std::ptr::null(), std::ptr::from_ref),
        to_count: usize::from(to.is_some()),
        element_type: RESHARD_BITS,
        conjugate: 0,
        alpha: std::ptr::null(),
        beta: std::ptr::null(),
    }
}

impl reshard_engine {
    fn new(state: EngineState) -> Self {
        Self(Arc::new(EngineSlot(Mutex::new(state))))
    }

    /// What the engine shares with its runs.
    pub fn slot(&self) -> &Arc<EngineSlot> {
        &self.0
    }

    /// Refuses the run that was to begin, as an argument of it is wrong: the other ranks may be in it already.
    pub fn refuse(&self, failure: Failure) -> Failure {
        if let Ok(mut state) = self.0.lock()
            && let EngineState::Mpi(engine) = &mut *state
        {
            let _ = engine.refuse(failure.to_error());
        }
        failure
    }

    /// Begins a run; one of threads is over when this returns.
    ///
    /// # Safety
    /// The arrays are as C promises them; until the run has ended nobody else writes to their sources or uses their destinations.
    pub unsafe fn start(&self, arrays: *const reshard_array, count: usize) -> Outcome<Started> {
        let mut state = self.0.lock()?;
        // SAFETY: promised by the caller.
        let arrays = unsafe { read(arrays, count) };
        match std::mem::replace(&mut *state, EngineState::Lost) {
            EngineState::Threads(mut engine) => {
                // SAFETY: promised by the caller.
                let outcome = arrays.and_then(|arrays| unsafe { engine.run(&arrays) });
                *state = EngineState::Threads(engine);
                outcome.map(|()| Started::Over)
            }
            EngineState::Mpi(mut engine) => {
                // SAFETY: promised by the caller.
                let mut parts = match arrays.and_then(|arrays| unsafe { own_parts(&arrays, engine.plan()) }) {
                    Ok(parts) => parts,
                    Err(failure) => {
                        // The other ranks may be in this run already.
                        let _ = engine.refuse(failure.to_error());
                        *state = EngineState::Mpi(engine);
                        return Err(failure);
                    }
                };
                let mut parts: Vec<&mut dyn OwnParts<'static>> =
                    parts.iter_mut().map(|parts| &mut **parts as &mut dyn OwnParts<'static>).collect();
                match engine.start_owned(&mut parts[..]) {
                    Ok(run) => {
                        *state = EngineState::InFlight;
                        Ok(Started::InFlight(run))
                    }
                    Err((engine, error)) => {
                        *state = EngineState::Mpi(engine);
                        Err(error.into())
                    }
                }
            }
            EngineState::InFlight => {
                *state = EngineState::InFlight;
                Err(busy())
            }
            EngineState::Lost => Err(lost()),
        }
    }
}

impl EngineSlot {
    /// The engine, if no other thread is using it: a thread that waited here might wait for a run of its own.
    fn lock(&self) -> Outcome<MutexGuard<'_, EngineState>> {
        match self.0.try_lock() {
            Ok(state) => Ok(state),
            // What a panic left is `Lost`.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(busy()),
        }
    }

    /// Waits for the end of a run of this engine, and takes the engine back.
    pub fn finish(&self, run: OwnedRun) -> Outcome<()> {
        let waited = catch_unwind(AssertUnwindSafe(|| run.wait()));
        // Nobody holds it for long while a run is in flight.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (engine, outcome) = match waited {
            Ok(waited) => waited,
            Err(panic) => {
                *state = EngineState::Lost;
                drop(state);
                resume_unwind(panic);
            }
        };
        *state = EngineState::Mpi(Box::new(engine));
        Ok(outcome.map(drop)?)
    }
}

impl ThreadsEngine {
    /// # Safety
    /// As for [`reshard_engine::start`].
    unsafe fn run(&mut self, arrays: &[RunArray]) -> Outcome<()> {
        let Self { threads, table } = self;
        check_count(arrays, threads.plan())?;
        let mut data = table.fill();
        for (index, array) in arrays.iter().enumerate() {
            // SAFETY: promised by the caller; the data is cleared before this returns.
            let entered = unsafe { data.enter_raw(index, &array.from, &array.to, array.scaling()) };
            if let Err(error) = entered {
                data.clear();
                return Err(error.into());
            }
        }
        let outcome = threads.run(&mut data);
        // Copies of what was moved in place take no memory beyond the run.
        data.clear();
        Ok(outcome.map(drop)?)
    }
}

/// # Safety
/// As for [`reshard_engine::start`].
unsafe fn own_parts(arrays: &[RunArray], plan: &Plan) -> Outcome<Vec<Box<dyn OwnParts<'static>>>> {
    check_count(arrays, plan)?;
    // SAFETY: promised by the caller.
    arrays.iter().enumerate().map(|(index, array)| unsafe { array.own(index) }).collect()
}

/// Fails if there are fewer or more arrays than planned, or one has elements of another size.
fn check_count(arrays: &[RunArray], plan: &Plan) -> Outcome<()> {
    let (given, planned) = (arrays.len(), plan.arrays());
    if given != planned.len() {
        return Err(Failure::of(
            ErrorKind::Mismatch,
            format!(
                "{} given for a plan of {}; a run moves all of them",
                if given == 1 { "1 array was".to_string() } else { format!("{given} arrays were") },
                counted(planned.len(), "array")
            ),
        ));
    }
    let mut both = arrays.iter().zip(planned).enumerate();
    both.try_for_each(|(index, (array, planned))| array.check(index, planned.wanted().elem_bytes()))
}

fn busy() -> Failure {
    let message = "the engine has a run in flight, or another thread is using it; wait for that first";
    Failure { code: RESHARD_ERROR_BUSY, message: message.into() }
}

fn lost() -> Failure {
    let message = "the engine was lost in an earlier mistake of the library; make a new one";
    Failure { code: RESHARD_ERROR_INTERNAL, message: message.into() }
}
