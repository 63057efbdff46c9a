//! What an engine shares with its run in flight, so that each may be freed before the other: the engine itself, unless the run has it.

use crate::apart::check_apart;
use crate::arrays::{RunArray, read, reshard_array};
use crate::border::{Failure, Outcome, RESHARD_ERROR_BUSY, RESHARD_ERROR_INTERNAL};
use reshard::engine::{BufferTable, Engine, Threads, ThreadsOptions};
use reshard::error::counted;
use reshard::{ErrorKind, Plan};
use reshard_mpi::{MpiEngine, OwnParts, OwnedRun};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// What an engine shares with its run in flight: each may be freed before the other.
pub struct EngineSlot(Mutex<EngineState>);

/// What there is of an engine.
pub enum EngineState {
    Threads(Box<ThreadsEngine>),
    Mpi(Box<MpiEngine>),
    /// The run has it.
    InFlight,
    /// A panic took it.
    Lost,
}

/// An engine with all ranks in this process, and the table for their parts.
pub struct ThreadsEngine {
    threads: Threads,
    table: BufferTable,
}

/// What became of a run that was begun.
pub enum Started {
    /// It is over already.
    Over,
    InFlight(OwnedRun),
}

impl EngineSlot {
    pub fn new(state: EngineState) -> Arc<Self> {
        Arc::new(Self(Mutex::new(state)))
    }

    /// The name of the way in which the engine moves data.
    pub fn mover(&self) -> Outcome<&'static str> {
        match &*self.lock()? {
            EngineState::Mpi(engine) => Ok(engine.mover().name()),
            EngineState::Threads(engine) => Ok(engine.threads.name()),
            EngineState::InFlight => Err(busy()),
            EngineState::Lost => Err(lost()),
        }
    }

    /// Refuses the run that was to begin, as an argument of it is wrong: the other ranks may be in it already.
    pub fn refuse(&self, failure: Failure) -> Failure {
        if let Ok(mut state) = self.lock()
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
        let mut state = self.lock()?;
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
                let rank = engine.comm().rank() as u64;
                // SAFETY: promised by the caller.
                let parts = arrays.and_then(|arrays| unsafe { own_parts(&arrays, engine.plan(), rank) });
                let mut parts = match parts {
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
    pub fn new(plan: Plan, options: ThreadsOptions) -> Outcome<Self> {
        let plan = Arc::new(plan);
        let threads = Threads::with_options(Arc::clone(&plan), options)?;
        Ok(Self { threads, table: BufferTable::new(plan) })
    }

    /// # Safety
    /// As for [`EngineSlot::start`].
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
        if let Err(failure) = check_apart(arrays, threads.plan(), None) {
            data.clear();
            return Err(failure);
        }
        let outcome = threads.run(&mut data);
        // Copies of what was moved in place take no memory beyond the run.
        data.clear();
        Ok(outcome.map(drop)?)
    }
}

/// # Safety
/// As for [`EngineSlot::start`].
unsafe fn own_parts(arrays: &[RunArray], plan: &Plan, rank: u64) -> Outcome<Vec<Box<dyn OwnParts<'static>>>> {
    check_count(arrays, plan)?;
    check_apart(arrays, plan, Some(rank))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What cannot be brought about from outside: another thread is in the engine; a panic took it.
    #[test]
    fn engines_in_use_and_engines_that_are_lost_are_refused() {
        let slot = EngineSlot::new(EngineState::Lost);
        // SAFETY: no arrays.
        let started = || unsafe { slot.start(std::ptr::null(), 0) }.map(drop).unwrap_err().code;
        let in_use = slot.lock().unwrap();
        assert_eq!((slot.mover().unwrap_err().code, started()), (RESHARD_ERROR_BUSY, RESHARD_ERROR_BUSY));
        drop(in_use);
        assert_eq!((slot.mover().unwrap_err(), started()), (lost(), RESHARD_ERROR_INTERNAL));
        *slot.lock().unwrap() = EngineState::InFlight;
        assert_eq!((slot.mover().unwrap_err(), started()), (busy(), RESHARD_ERROR_BUSY));
        assert_eq!(started(), RESHARD_ERROR_BUSY);
    }
}
