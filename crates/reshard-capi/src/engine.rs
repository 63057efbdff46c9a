//! Engines: what moves data, as often as one likes. All ranks as threads of this process, or one rank in each process over MPI.

use crate::arrays::{RESHARD_BITS, reshard_array, reshard_source, reshard_target};
use crate::border::{Failure, Outcome, border, free, hand_out, object, place, text};
use crate::comm::of_fortran;
use crate::options::{of_mpi, of_threads};
use crate::plan::reshard_plan;
use crate::slot::{EngineSlot, EngineState, Started, ThreadsEngine};
use reshard::Plan;
use reshard_mpi::{MpiEngine, MpiOptions};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// An engine: a plan, and all that it needs to be run any number of times. Free it with `reshard_engine_free`.
pub struct reshard_engine(Arc<EngineSlot>);

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
        let threads = ThreadsEngine::new(Plan::new(plan.moves()?)?, of_threads(options)?)?;
        hand_out(reshard_engine(EngineSlot::new(EngineState::Threads(Box::new(threads)))), engine);
        Ok(())
    })
}

/// An engine between processes: rank r of the layouts is rank r of the communicator, given as Fortran's handle. In C,
/// `reshard_engine_mpi` takes an MPI_Comm; it is there if mpi.h was included before this header. MPI must have begun.
///
/// Collective: all ranks of the communicator call it, with the same plan and options, and all get the same outcome: what is
/// wrong on one rank alone is RESHARD_ERROR_MISMATCH on all, with a sentence that names the rank. So a rank that could not make its plan
/// passes null. The communicator may be freed before the engine; the engine may be freed after the end of MPI, but not used.
///
/// Options (null or "": none), words of one text: `mover=NAME` (private, cma, messages, mixed, lockstep; cma moves no triangles and scales nothing), `strategy=NAME`,
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
        let made = MpiEngine::of_moves(moves, &comm, options)?;
        let (_, _, engine) = given?;
        hand_out(reshard_engine(EngineSlot::new(EngineState::Mpi(Box::new(made)))), engine);
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
        match unsafe { engine.0.start(arrays, count)? } {
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
        let mover = engine.0.mover()?;
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

/// Refuses the next run of an engine, for callers that find an argument of it wrong themselves: the other ranks, which may be in that run, are
/// sent `why` instead of waiting, and an engine between processes cannot be used any more. Returns RESHARD_ERROR_ARGUMENT, with `why` as the message.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_refuse(engine: *mut reshard_engine, why: *const c_char) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (engine, why) = unsafe { (object(engine, "engine")?, text(why, "why")?) };
        Err(engine.slot().refuse(Failure::argument(why)))
    })
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
    /// What the engine shares with its runs.
    pub fn slot(&self) -> &Arc<EngineSlot> {
        &self.0
    }
}
