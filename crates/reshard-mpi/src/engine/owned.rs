//! A run that owns its engine, for callers that cannot keep a borrow: a handle in C, an object in Python.

#![allow(unsafe_code)]

use super::{MpiEngine, RunArrays, Running};
use reshard::engine::Report;
use reshard_plan::{Error, Result};
use std::ptr::NonNull;
use std::time::Duration;

/// A run in flight together with its engine, from [`MpiEngine::start_owned`]. Otherwise as [`Running`]; forgotten, it leaks the
/// engine.
#[must_use = "a run must be waited for"]
pub struct OwnedRun {
    /// In a box of its own: a function that is given this value must not be given the borrow of the engine with it.
    running: Option<Box<Running<'static>>>,
    /// On the heap, where it stays when this value moves. Used by `running` alone as long as there is one.
    engine: NonNull<MpiEngine>,
}

// SAFETY: it owns the engine, and both the engine and a run of it may go to another thread.
unsafe impl Send for OwnedRun
where
    MpiEngine: Send,
    Running<'static>: Send,
{
}

impl MpiEngine {
    /// As [`MpiEngine::start`], but the run keeps the engine, and [`OwnedRun::wait`] gives it back. Parts live as long as the
    /// program, or are addresses: see [`Own::raw`](super::Own::raw). If the run cannot begin, the engine comes with the error.
    pub fn start_owned(
        self,
        arrays: impl RunArrays<'static>,
    ) -> std::result::Result<OwnedRun, (Box<MpiEngine>, Error)> {
        // Should starting panic, this drops the engine.
        let mut run = OwnedRun { running: None, engine: NonNull::from(Box::leak(Box::new(self))) };
        // SAFETY: just leaked; nobody else has it until the run is gone.
        match unsafe { run.engine.as_mut() }.start(arrays) {
            Ok(running) => {
                run.running = Some(Box::new(running));
                Ok(run)
            }
            Err(error) => {
                let engine = run.engine;
                std::mem::forget(run);
                // SAFETY: leaked above, and there is no run that uses it.
                Err((unsafe { Box::from_raw(engine.as_ptr()) }, error))
            }
        }
    }
}

impl OwnedRun {
    /// As [`Running::check_thread`].
    pub fn check_thread(&self) -> Result<()> {
        self.running.as_ref().map_or(Ok(()), |running| running.check_thread())
    }

    /// As [`Running::test`].
    pub fn test(&mut self) -> Result<bool> {
        self.running.as_mut().map_or(Ok(true), |running| running.test())
    }

    /// As [`Running::wait_for`].
    pub fn wait_for(&mut self, time: Duration) -> Result<bool> {
        self.running.as_mut().map_or(Ok(true), |running| running.wait_for(time))
    }

    /// As [`Running::abandon`]. Returns the engine, too, which says again why it cannot be used any more.
    pub fn abandon(mut self, why: &str) -> (MpiEngine, Result<()>) {
        let outcome = self.running.take().map_or(Ok(()), |running| running.abandon(why));
        (self.into_engine(), outcome)
    }

    /// Waits until the run is over on this rank. Returns the engine, and what this rank did; an engine whose run failed cannot be
    /// used any more.
    pub fn wait(mut self) -> (MpiEngine, Result<Report>) {
        let outcome = self.running.take().map_or_else(|| Ok(Report::default()), |running| running.wait());
        (self.into_engine(), outcome)
    }

    /// The engine of a run that is gone.
    fn into_engine(mut self) -> MpiEngine {
        self.running = None;
        let engine = self.engine;
        std::mem::forget(self);
        // SAFETY: leaked in `start_owned`, and the run that used it is gone.
        *unsafe { Box::from_raw(engine.as_ptr()) }
    }
}

impl Drop for OwnedRun {
    fn drop(&mut self) {
        // Waits for the end of the run.
        self.running = None;
        // SAFETY: leaked in `start_owned`, and the run that used it is gone.
        drop(unsafe { Box::from_raw(self.engine.as_ptr()) });
    }
}
