//! `reshard ring --run`: makes items, moves them along the ring in place, and verifies every one.
//!
//! Under `mpirun` every rank makes and verifies its own items; rank 0 reports. Errors that all ranks have together are reported
//! once; an error of one rank alone is reported by that rank, which ends the job.

use super::items::Items;
use crate::args;
use crate::failure::Failure;
use crate::run::request::{amount, available, human};
use crate::run::{array, failed};
use reshard::memory::Memory;
use reshard::{Error, ErrorKind};
use reshard_mpi::baselines::makespan;
use reshard_mpi::mpi::{Reduce, launched};
use reshard_mpi::{Mpi, MpiRing, MpiRingOptions, Session};
use reshard_ring::{Program, RingMessages, RingPlan, RingProblem, RingThreads};
use serde::Serialize;
use std::sync::Arc;

/// The keys that a run adds to the result.
#[derive(Serialize)]
pub struct RingRun {
    pub engine: &'static str,
    pub bytes: u64,
    pub run_seconds: f64,
    pub scratch_bytes: u64,
    pub verified: bool,
    /// With MPI: the version of the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<String>,
}

/// The arguments of `--run`.
pub struct RingRunRequest {
    engine: Engine,
    item_bytes: usize,
    memory: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Threads,
    Messages,
    Mpi,
}

impl RingRunRequest {
    /// Reads the arguments; `None` without `--run`.
    pub fn read(args: &args::Ring) -> Result<Option<Self>, Failure> {
        let given = [
            ("--engine", args.engine.is_some()),
            ("--item-bytes", args.item_bytes.is_some()),
            ("--memory", args.memory.is_some()),
            ("--mpi", args.mpi.is_some()),
        ];
        if !args.run {
            return match given.iter().find(|(_, given)| *given) {
                Some((flag, _)) => {
                    Err(Failure::usage(&format!("{flag} says how items are moved; add --run")))
                }
                None => Ok(None),
            };
        }
        let under_mpi = launched().is_some_and(|launcher| launcher.size > 1);
        let engine = match args.engine.as_deref() {
            None if under_mpi => Engine::Mpi,
            None | Some("threads") => Engine::Threads,
            Some("messages") => Engine::Messages,
            Some("mpi") => Engine::Mpi,
            Some(other) => {
                return Err(Failure::usage(&format!(
                    "--engine: the engine {other:?} is not known; choose threads, messages or mpi"
                )));
            }
        };
        if engine != Engine::Mpi && args.mpi.is_some() {
            return Err(Failure::usage(
                "--mpi is for the engine mpi; start the program under mpirun, or add --engine mpi",
            ));
        }
        let memory = args.memory.as_deref().map(amount).transpose()?;
        let item_bytes = args.item_bytes.unwrap_or(8);
        if item_bytes == 0 {
            return Err(Failure::usage("--item-bytes: 0 was given; an item has at least 1 byte"));
        }
        let item_bytes = usize::try_from(item_bytes).map_err(|_| {
            Failure::usage(&format!("--item-bytes: {item_bytes} bytes do not fit in any memory"))
        })?;
        Ok(Some(Self { engine, item_bytes, memory }))
    }

    /// Moves the items; returns `None` on ranks that do not report.
    pub fn run(
        &self,
        args: &args::Ring,
        problem: &RingProblem,
        program: &Program,
    ) -> Result<Option<RingRun>, Failure> {
        let plan = RingPlan::new(problem.clone(), program.clone(), self.item_bytes)?;
        let items = Items::new(&plan)?;
        let rooms = (0..plan.procs()).map(|rank| plan.room_bytes(rank) as u128);
        let needed = rooms.sum::<u128>() + plan.problem().loads().iter().sum::<u64>() as u128 / 8;
        if let Some(available) = available().filter(|&available| needed > u128::from(available)) {
            return Err(Failure::usage(&format!(
                "the items take {} of memory, and {} are available; take fewer items or shorter ones (--item-bytes)",
                human(needed),
                human(u128::from(available))
            )));
        }
        let shared = Arc::new(plan.clone());
        match self.engine {
            Engine::Threads => {
                let mut engine = RingThreads::new(shared);
                run_locally(&items, &plan, "threads", engine.scratch_bytes(), |parts| {
                    Ok(engine.run(parts)?.seconds)
                })
            }
            Engine::Messages => {
                let mut engine =
                    RingMessages::new(shared, self.memory).map_err(|error| self.refused(error))?;
                let scratch = engine.scratch_bytes();
                run_locally(&items, &plan, "messages", scratch, |parts| Ok(engine.run(parts)?.seconds))
            }
            Engine::Mpi => self.run_under_mpi(args, &items, shared),
        }
    }

    /// Too little memory is wrong usage if `--memory` was given.
    fn refused(&self, error: Error) -> Failure {
        match self.memory {
            Some(_) if error.kind() == ErrorKind::Memory => {
                Failure::usage_of(&error, format!("--memory: {error}"))
            }
            _ => failed(error),
        }
    }

    fn run_under_mpi(
        &self,
        args: &args::Ring,
        items: &Items<'_>,
        plan: Arc<RingPlan>,
    ) -> Result<Option<RingRun>, Failure> {
        let session = Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?;
        let options = MpiRingOptions::default().with_memory(self.memory);
        // Has the same outcome on all ranks.
        let engine = MpiRing::new(plan, session.world(), options).map_err(|error| {
            let failure = self.refused(error);
            if session.world().rank() == 0 { failure.reported() } else { failure.silent() }
        })?;
        match verified(&session, items, engine, options) {
            Ok(ran) => Ok((session.world().rank() == 0).then_some(ran)),
            // The others may be waiting for this rank.
            Err(failure) => {
                failure.report();
                session.abort(1)
            }
        }
    }
}

/// Runs all processes of the ring in this process.
fn run_locally(
    items: &Items<'_>,
    plan: &RingPlan,
    engine: &'static str,
    scratch_bytes: u64,
    run: impl FnOnce(&mut [Memory<u8>]) -> Result<f64, Error>,
) -> Result<Option<RingRun>, Failure> {
    let part = |rank: usize| {
        let mut part = array(plan.room_bytes(rank))?;
        items.fill(rank, &mut part);
        Ok(part)
    };
    let mut parts = (0..plan.procs()).map(part).collect::<Result<Vec<_>, Failure>>()?;
    let run_seconds = run(&mut parts).map_err(failed)?;
    let mut seen = items.none_seen();
    for (rank, part) in parts.iter().enumerate() {
        items.check(rank, part, &mut seen)?;
    }
    items.all_seen(&seen)?;
    Ok(Some(RingRun { engine, bytes: plan.bytes(), run_seconds, scratch_bytes, verified: true, mpi: None }))
}

/// Moves and verifies this rank's items; the result is the same on all ranks.
fn verified(
    session: &Session,
    items: &Items<'_>,
    mut engine: MpiRing,
    options: MpiRingOptions,
) -> Result<RingRun, Failure> {
    let (world, limit) = (session.world(), options.deadline);
    let (rank, plan) = (world.rank(), Arc::clone(engine.plan()));
    let in_ring = rank < plan.procs();
    let mut part = array(engine.room() * plan.item_bytes())?;
    if in_ring {
        items.fill(rank, &mut part);
    }
    let comm = world.private_within(limit).map_err(failed)?;
    let one_node = comm.communicator().is_one_node(limit).map_err(failed)?;
    let moved = makespan(&comm, limit, one_node, || engine.run(&mut part[..]));
    let (_, run_seconds) = moved.map_err(failed)?;
    let mut seen = items.none_seen();
    if in_ring {
        items.check(rank, &part, &mut seen)?;
    }
    comm.all_reduce_within(&mut seen.0, Reduce::Sum, limit).map_err(failed)?;
    items.all_seen(&seen)?;
    let mut scratch = [engine.scratch_bytes()];
    comm.all_reduce_within(&mut scratch, Reduce::Sum, limit).map_err(failed)?;
    let mpi = Some(session.mpi().version().to_string());
    Ok(RingRun {
        engine: "mpi",
        bytes: plan.bytes(),
        run_seconds,
        scratch_bytes: scratch[0],
        verified: true,
        mpi,
    })
}
