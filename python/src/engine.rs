//! What moves data: threads with the parts of all ranks, or one rank between processes. An engine between processes goes into its run and
//! comes back from it.

use reshard::engine::{BufferTable, Engine, RawPart, Report, Scaling, Threads, ThreadsOptions};
use reshard::{Error, ErrorKind, Move, Plan, Result};
use reshard_mpi::{MpiEngine, Own, OwnedRun};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// An engine, or where it is.
pub struct EngineSlot {
    state: Mutex<State>,
    /// The process that made it: a fork of that has none of its threads.
    process: u32,
}

enum State {
    Threads(Box<AllRanks>),
    Mpi(Box<MpiEngine>),
    /// The run has it.
    InFlight,
    /// It did not come back.
    Lost,
}

/// An engine with all ranks in this process, and the table for their parts.
struct AllRanks {
    threads: Threads,
    table: BufferTable,
    /// As it was asked for.
    options: ThreadsOptions,
    /// The process whose threads it has.
    process: u32,
}

impl AllRanks {
    fn new(plan: Arc<Plan>, options: ThreadsOptions) -> Result<Self> {
        let threads = Threads::with_options(Arc::clone(&plan), options)?;
        Ok(Self { threads, table: BufferTable::new(plan), options, process: std::process::id() })
    }
}

impl EngineSlot {
    /// With all ranks in this process.
    pub fn threads(moving: Move, threads: Option<usize>) -> Result<Self> {
        let options = ThreadsOptions::default().with_threads(threads);
        let engine = AllRanks::new(Arc::new(Plan::new(vec![moving])?), options)?;
        Ok(Self::of(State::Threads(Box::new(engine))))
    }

    fn of(state: State) -> Self {
        Self { state: Mutex::new(state), process: std::process::id() }
    }

    /// True in a fork of the process that made it.
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// With this rank.
    pub fn mpi(engine: MpiEngine) -> Self {
        Self::of(State::Mpi(Box::new(engine)))
    }

    /// How the bytes travel.
    pub fn mover(&self) -> Result<&'static str> {
        match &*self.lock()? {
            State::Threads(_) => Ok("threads"),
            State::Mpi(engine) => Ok(engine.mover().name()),
            State::InFlight => Err(busy()),
            State::Lost => Err(lost()),
        }
    }

    /// Moves the parts of all ranks. A thread that comes while another one moves waits for it.
    ///
    /// # Safety
    /// Sources can be read and destinations written over their bytes; until this returns nobody else writes to the ones or uses the others;
    /// no two destinations have an element in common.
    pub unsafe fn run_all(
        &self,
        from: &[RawPart],
        to: &[RawPart],
        scaling: Option<Scaling>,
    ) -> Result<Report> {
        let mut state = match self.is_forked() {
            // Whoever had it when the process forked will not give it back.
            true => self.lock()?,
            false => self.state.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let State::Threads(engine) = &mut *state else {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "the parts of all ranks were given to an engine between processes",
            ));
        };
        if engine.process != std::process::id() {
            let fresh = AllRanks::new(Arc::clone(engine.threads.plan()), engine.options)?;
            // It would wait for threads that only the parent has.
            std::mem::forget(std::mem::replace(&mut **engine, fresh));
        }
        let AllRanks { threads, table, .. } = &mut **engine;
        let mut data = table.fill();
        // SAFETY: promised by the caller; the data is cleared before this returns.
        let entered = unsafe { data.enter_raw(0, from, to, scaling) };
        let outcome = entered.and_then(|()| threads.run(&mut data));
        // Copies of what was moved in place take no memory beyond the run.
        data.clear();
        outcome
    }

    /// Begins to move the parts of this rank.
    ///
    /// # Safety
    /// As for [`EngineSlot::run_all`], until the run is over.
    pub unsafe fn start(&self, from: RawPart, to: RawPart, scaling: Option<Scaling>) -> Result<OwnedRun> {
        let mut state = self.lock()?;
        match std::mem::replace(&mut *state, State::Lost) {
            State::Mpi(engine) => {
                // SAFETY: promised by the caller.
                let own = unsafe { Own::<u8>::raw(from, to) }.as_bytes_scaled(scaling);
                match engine.start_owned(own) {
                    Ok(run) => {
                        *state = State::InFlight;
                        Ok(run)
                    }
                    Err((engine, error)) => {
                        *state = State::Mpi(engine);
                        Err(error)
                    }
                }
            }
            other => {
                let error = if matches!(other, State::Lost) { lost() } else { busy() };
                *state = other;
                Err(error)
            }
        }
    }

    /// Refuses the run that was to begin, as this rank was called wrongly: the others, which may be in it, are told.
    pub fn refuse(&self, error: Error) {
        if let Ok(mut state) = self.lock()
            && let State::Mpi(engine) = &mut *state
        {
            let _ = engine.refuse(error);
        }
    }

    /// Takes back the engine of a run that is over.
    pub fn give_back(&self, engine: MpiEngine) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Mpi(Box::new(engine));
    }

    /// Says that the engine of a run will not come back.
    pub fn lose(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Lost;
    }

    /// The engine, if no other thread is using it: one that waited here might wait for a run of its own.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(busy()),
        }
    }
}

impl Drop for EngineSlot {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Threads(engine) = state
            && engine.process != std::process::id()
        {
            // It would wait for threads that only the parent has.
            std::mem::forget(std::mem::replace(state, State::Lost));
        }
    }
}

fn busy() -> Error {
    Error::new(
        ErrorKind::Mismatch,
        "the plan has a run in flight, or another thread is using it; wait for that first",
    )
}

fn lost() -> Error {
    Error::new(ErrorKind::Failed, "the plan's engine was lost in an earlier failure; make a new plan")
}
