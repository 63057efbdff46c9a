//! Runs in flight: begun, tested now and then, waited for.

use crate::arrays::reshard_array;
use crate::border::{Failure, Outcome, RESHARD_ERROR_INTERNAL, border, free, hand_out, list, object, place};
use crate::engine::{one_array, part_of, reshard_engine, target_of};
use crate::slot::{EngineSlot, Started};
use reshard_mpi::OwnedRun;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// A run in flight. Its parts stay where they are, nobody writes to the sources, and nobody uses the destinations, until it is
/// over. Free it with `reshard_run_free`, before or after its engine.
pub struct reshard_run {
    slot: Arc<EngineSlot>,
    state: Mutex<RunState>,
}

enum RunState {
    InFlight(OwnedRun),
    Over(Outcome<()>),
}

/// Begins to move one array, so that something else can be computed meanwhile: see `reshard_engine_run` for the parts. There
/// is no thread behind it: `reshard_run_test` moves what can be moved. With an engine of threads
/// all is moved before this returns. An engine has one run in flight at a time; any number of engines may have one,
/// begun and tested in any order on each rank.
///
/// # Safety
/// As for `reshard_engine_run`, until the run is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_start(
    engine: *mut reshard_engine,
    from: *const c_void,
    from_bytes: usize,
    to: *mut c_void,
    to_bytes: usize,
    run: *mut *mut reshard_run,
) -> c_int {
    let (from, to) = (part_of(from, from_bytes), target_of(to, to_bytes));
    let array = one_array(from.as_ref(), to.as_ref());
    // SAFETY: as the function's.
    unsafe { reshard_engine_start_arrays(engine, &raw const array, 1, run) }
}

/// As `reshard_engine_start`, for all arrays of the plan. The list of arrays itself need not stay.
///
/// # Safety
/// As for `reshard_engine_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_engine_start_arrays(
    engine: *mut reshard_engine,
    arrays: *const reshard_array,
    count: usize,
    run: *mut *mut reshard_run,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (engine, mut place) = unsafe { (object(engine, "engine"), place(run, "run")) };
        if let Ok(run) = &mut place {
            **run = std::ptr::null_mut();
        }
        let engine = engine?;
        let run = place.map_err(|failure| engine.slot().refuse(failure))?;
        // SAFETY: likewise.
        let state = match unsafe { engine.slot().start(arrays, count)? } {
            Started::Over => RunState::Over(Ok(())),
            Started::InFlight(owned) => RunState::InFlight(owned),
        };
        hand_out(reshard_run { slot: Arc::clone(engine.slot()), state: Mutex::new(state) }, run);
        Ok(())
    })
}

/// Moves what can be moved without waiting. `done` becomes 1 if the run is over, also by an error, else 0; after that it may be called
/// again. A run that failed returns its error, now and whenever it is asked again. On a thread that may not call MPI this is an error,
/// and the run stays in flight, as it does in `reshard_run_wait`.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_run_test(run: *mut reshard_run, done: *mut c_int) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (run, done) = unsafe { (object(run, "run")?, place(done, "done")?) };
        let outcome = run.test();
        *done = c_int::from(run.is_over());
        outcome.map(drop)
    })
}

/// Waits until the run is over on this rank. Its engine can then be used again, and the run is to be freed.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_run_wait(run: *mut reshard_run) -> c_int {
    // SAFETY: as the function's.
    border(|| unsafe { object(run, "run")? }.wait())
}

/// Waits until all of the runs are over, whichever ends first: ranks that wait for the same runs one by one, each in another
/// order, wait for each other. Null entries are none. Returns the first error of the list; each run keeps its own.
///
/// # Safety
/// Pointers as C promises them; `runs` has `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_run_wait_all(runs: *const *mut reshard_run, count: usize) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let runs = unsafe { list(runs, count, "runs")? };
        // SAFETY: likewise.
        let mut all: Vec<&reshard_run> = runs.iter().filter_map(|run| unsafe { run.as_ref() }).collect();
        let listed = all.clone();
        while !all.is_empty() {
            let before = all.len();
            all.retain(|run| matches!(run.test(), Ok(false)));
            if all.len() == before {
                std::thread::yield_now();
            }
        }
        listed.into_iter().try_for_each(reshard_run::wait)
    })
}

/// Frees a run. Null is allowed. One that is still in flight is waited for first, as the other ranks rely on it, and its
/// outcome is not told; after an error its engine refuses the next run with it. On a thread that may not call MPI a run in flight fails
/// instead; the other ranks are told by the next call of the thread that may.
///
/// # Safety
/// Null, or a run of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_run_free(run: *mut reshard_run) {
    // SAFETY: as the function's.
    unsafe { free(run) };
}

fn lost() -> Failure {
    let message = "the run was lost in a mistake of the library, and its engine with it; make a new one";
    Failure { code: RESHARD_ERROR_INTERNAL, message: message.into() }
}

impl reshard_run {
    /// Whether it is over. A run that has just ended gives its engine back.
    fn test(&self) -> Outcome<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // What holds if testing panics: the engine is gone with the run.
        let mut run = match std::mem::replace(&mut *state, RunState::Over(Err(lost()))) {
            RunState::Over(outcome) => {
                *state = RunState::Over(outcome.clone());
                return outcome.map(|()| true);
            }
            RunState::InFlight(run) => run,
        };
        if let Err(error) = run.check_thread() {
            *state = RunState::InFlight(run);
            return Err(error.into());
        }
        let ended = match run.test() {
            Ok(false) => {
                *state = RunState::InFlight(run);
                return Ok(false);
            }
            ended => ended.map(drop),
        };
        let outcome = self.slot.finish(run);
        // The error itself, instead of one that says that there was one.
        let outcome = ended.map_err(Failure::from).and(outcome);
        *state = RunState::Over(outcome.clone());
        outcome.map(|()| true)
    }

    fn is_over(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), RunState::Over(_))
    }

    fn wait(&self) -> Outcome<()> {
        self.finish(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn finish(&self, state: &mut RunState) -> Outcome<()> {
        if let RunState::InFlight(run) = state {
            run.check_thread()?;
        }
        // What holds if waiting panics: the engine is gone with the run.
        let outcome = match std::mem::replace(state, RunState::Over(Err(lost()))) {
            RunState::Over(outcome) => outcome,
            RunState::InFlight(run) => self.slot.finish(run),
        };
        *state = RunState::Over(outcome.clone());
        outcome
    }
}

impl Drop for reshard_run {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let RunState::InFlight(run) = std::mem::replace(state, RunState::Over(Ok(()))) {
            // The engine keeps an error.
            let _ = self.slot.finish(run);
        }
    }
}
