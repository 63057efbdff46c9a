//! A run in flight: tested now and then, waited for, or left by an exception. It keeps the arrays it uses.

use crate::engine::EngineSlot;
use crate::error::{raised, told, wrong};
use crate::memory::Memory;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use reshard::engine::Report;
use reshard::{Error, ErrorKind};
use reshard_mpi::{MpiEngine, OwnedRun};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long a wait lasts before Python may handle signals.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// A run in flight: `test` it, `wait` for it, or use it as a context manager.
///
/// Its arrays stay in use until it is over: write to neither.
#[pyclass(module = "reshard", frozen)]
pub struct Run {
    state: Mutex<RunState>,
    slot: Arc<EngineSlot>,
    /// What `wait` returns.
    result: Py<PyAny>,
    /// The arrays that it reads and writes, until it is over.
    kept: Mutex<Vec<Memory>>,
    /// The thread that had the state last.
    waiting: Mutex<Option<ThreadId>>,
}

enum RunState {
    InFlight(Box<OwnedRun>),
    Over(reshard::Result<Report>),
    /// A thread has it, or a panic took it.
    Taken,
}

impl Run {
    pub fn in_flight(slot: &Arc<EngineSlot>, run: OwnedRun, kept: Vec<Memory>, result: Py<PyAny>) -> Self {
        let state = Mutex::new(RunState::InFlight(Box::new(run)));
        Self { state, slot: Arc::clone(slot), result, kept: Mutex::new(kept), waiting: Mutex::default() }
    }

    /// One that was over when it began.
    pub fn over(slot: &Arc<EngineSlot>, report: Report, result: Py<PyAny>) -> Self {
        let state = Mutex::new(RunState::Over(Ok(report)));
        Self { state, slot: Arc::clone(slot), result, kept: Mutex::default(), waiting: Mutex::default() }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, RunState>> {
        let locked = |state| {
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
            Ok(state)
        };
        match self.state.try_lock() {
            Ok(state) => locked(state),
            Err(TryLockError::Poisoned(state)) => locked(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let waiting = *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                Err(wrong(match waiting == Some(thread::current().id()) {
                    true => {
                        "this thread is waiting for the run already, and a signal handler called it; return from the handler first"
                    }
                    false => "another thread is waiting for this run; wait for it there",
                }))
            }
        }
    }

    /// Waits until it is over. Ctrl-C ends it at once, as a failure of this rank.
    pub fn finish(&self, py: Python<'_>) -> PyResult<Report> {
        let mut state = self.lock()?;
        loop {
            let run = match &mut *state {
                RunState::Over(outcome) => return outcome.clone().map_err(raised),
                RunState::Taken => return Err(raised(lost())),
                RunState::InFlight(run) => run,
            };
            // Another thread can go on with it.
            run.check_thread().map_err(raised)?;
            match py.detach(|| run.wait_for(BETWEEN_SIGNALS)) {
                Ok(false) => {
                    if let Err(interrupt) = py.check_signals() {
                        let why = match interrupt.is_instance_of::<PyKeyboardInterrupt>(py) {
                            true => "it was interrupted (Ctrl-C)".into(),
                            false => format!("it was interrupted: {}", told(&interrupt)),
                        };
                        self.leave(py, &mut state, &why);
                        return Err(interrupt);
                    }
                }
                Ok(true) => self.end(py, &mut state, Ok(())),
                Err(error) => self.end(py, &mut state, Err(error)),
            }
        }
    }

    /// Takes the outcome of a run that is over, and gives its engine back. `found` says more than the run does when it is asked again.
    fn end(&self, py: Python<'_>, state: &mut RunState, found: reshard::Result<()>) {
        if let RunState::InFlight(run) = std::mem::replace(state, RunState::Taken) {
            match py.detach(|| catch_unwind(AssertUnwindSafe(|| run.wait()))) {
                Ok((engine, outcome)) => self.over_with(engine, state, found.and(outcome)),
                Err(panic) => {
                    self.slot.lose();
                    resume_unwind(panic);
                }
            }
        }
    }

    /// Ends a run that is not over as a failure; the other ranks are told why.
    fn leave(&self, py: Python<'_>, state: &mut RunState, why: &str) {
        if let RunState::InFlight(run) = std::mem::replace(state, RunState::Taken) {
            let (engine, outcome) = py.detach(|| run.abandon(why));
            self.over_with(engine, state, outcome.map(|()| Report::default()));
        }
    }

    fn over_with(&self, engine: MpiEngine, state: &mut RunState, outcome: reshard::Result<Report>) {
        self.slot.give_back(engine);
        *state = RunState::Over(outcome);
        if let Ok(mut kept) = self.kept.lock() {
            kept.clear();
        }
    }
}

#[pymethods]
impl Run {
    /// Moves what can be moved without waiting. Whether it is over.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.lock()?;
        let tested = match &mut *state {
            RunState::InFlight(run) => {
                // Another thread can go on with it.
                run.check_thread().map_err(raised)?;
                py.detach(|| run.test())
            }
            RunState::Over(outcome) => return outcome.clone().map(|_| true).map_err(raised),
            RunState::Taken => return Err(raised(lost())),
        };
        match tested {
            Ok(false) => Ok(false),
            ended => {
                self.end(py, &mut state, ended.map(drop));
                match &*state {
                    RunState::Over(Err(error)) => Err(raised(error.clone())),
                    _ => Ok(true),
                }
            }
        }
    }
    /// Waits until it is over, and returns the destination. Ctrl-C ends it on all ranks.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.finish(py)?;
        Ok(self.result.clone_ref(py))
    }
    /// Bytes, messages, steps and seconds, once it is over.
    #[getter]
    fn report<'p>(&self, py: Python<'p>) -> PyResult<Option<Bound<'p, PyDict>>> {
        match &*self.lock()? {
            RunState::Over(Ok(report)) => Ok(Some(told_report(py, report)?)),
            _ => Ok(None),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind=None, value=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (kind, traceback);
        match value {
            None => self.finish(py).map(|_| false),
            Some(value) => {
                let why = format!(
                    "it raised an exception during the run: {}",
                    told(&PyErr::from_value(value.clone()))
                );
                self.leave(py, &mut *self.lock()?, &why);
                Ok(false)
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The other ranks rely on a run: one that nobody waited for is waited for here, without keeping other threads from running.
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let RunState::InFlight(run) = std::mem::replace(state, RunState::Taken) else { return };
        let (mut run, slot) = (Some(run), &self.slot);
        let mut end = || {
            if let Some(run) = run.take() {
                slot.give_back(run.wait().0);
            }
        };
        // Python may be ending.
        Python::try_attach(|py| py.detach(&mut end));
        end();
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Failed, "the run was lost in an earlier failure")
}

/// What a run did, by name.
pub fn told_report<'p>(py: Python<'p>, report: &Report) -> PyResult<Bound<'p, PyDict>> {
    let told = PyDict::new(py);
    for (name, count) in [("bytes", report.bytes), ("messages", report.messages), ("steps", report.steps)] {
        told.set_item(name, count)?;
    }
    for (name, seconds) in [
        ("seconds", report.seconds),
        ("pack_seconds", report.pack_seconds),
        ("unpack_seconds", report.unpack_seconds),
        ("wait_seconds", report.wait_seconds),
    ] {
        told.set_item(name, seconds)?;
    }
    Ok(told)
}
