//! Makes a mover for an engine, once its name is known.

use super::{MpiOptions, chunk_bytes};
use crate::agree::agree_on_result;
use crate::baselines::alltoall::{AllToAllV, AllToAllW};
use crate::communicator::Registration;
use crate::mover::cma::CmaMover;
use crate::mover::messages::{MessageSizing, MessagesMover};
use crate::mover::private::PrivateMover;
use crate::mover::shared::readers::Readers;
use crate::mover::shared::{SharedMover, WorkSharing};
use crate::mover::{Mover, MoverBackend};
use crate::mpi_transport::mpi_of;
use crate::strides;
use reshard_plan::{Plan, Result};
use std::sync::Arc;

/// A mover, and what an engine needs of it.
pub struct Made {
    /// The plan, as the mover needs it.
    pub plan: Arc<Plan>,
    pub backend: Box<dyn MoverBackend>,
    /// The shared parts of each array.
    pub parts: Vec<[Vec<usize>; 2]>,
    pub readers: Option<Arc<Readers>>,
}

impl Made {
    /// Makes a mover. Collective; fails on all ranks if it fails on one.
    pub fn new(
        mover: Mover,
        mut plan: Arc<Plan>,
        registration: &Registration,
        options: &MpiOptions,
        sharing: WorkSharing,
    ) -> Result<Self> {
        let (memory, level) = (options.messages.memory, options.messages.level);
        let (comm, limit) = (registration.comm(), options.setup_deadline.or(options.deadline));
        let (mut parts, mut readers) = (Vec::new(), None);
        let backend: Box<dyn MoverBackend> = match mover {
            Mover::Shared | Mover::SharedSource => {
                plan = strides::of_all_ranks(&plan, comm, limit)?;
                let sharing = if mover == Mover::Shared { sharing } else { WorkSharing::Own };
                let shared = SharedMover::new(&plan, comm, sharing, level, limit, options.deadline)?;
                parts = shared.parts(plan.arrays().len());
                readers = Some(Arc::clone(shared.readers()));
                Box::new(shared)
            }
            Mover::Auto | Mover::Private => {
                let chunk = chunk_bytes(&plan, comm.size());
                let eager = matches!(sharing, WorkSharing::AllInTasks(_));
                Box::new(PrivateMover::new(&plan, comm, chunk, memory, level, eager, limit)?)
            }
            Mover::Cma => {
                plan = strides::of_all_ranks(&plan, comm, limit)?;
                Box::new(CmaMover::new(&plan, comm, limit)?)
            }
            Mover::Messages | Mover::Mixed | Mover::Lockstep => {
                let mixed = mover == Mover::Mixed;
                let sizing = MessageSizing::new(&plan, comm, &options.messages, mixed, limit);
                let mut sizing = agree_on_result("fragments", sizing, comm, limit)?;
                // Sender and receiver must cut a message into equal fragments.
                let all = comm.gather_numbers(sizing.fragment_bytes as u64, limit)?;
                sizing.fragment_bytes = all.into_iter().fold(u64::MAX, u64::min) as usize;
                let lockstep = mover == Mover::Lockstep;
                let groups = plan.arrays().len();
                let made = MessagesMover::new(registration, sizing, groups, lockstep, limit);
                Box::new(agree_on_result("a mover", made, comm, limit)?)
            }
            Mover::Alltoallv => {
                let own = mpi_of(comm)?.duplicate(limit).inspect_err(|error| comm.refuse(error))?;
                Box::new(agree_on_result("a mover", AllToAllV::new(&plan, own, level), comm, limit)?)
            }
            Mover::Alltoallw => {
                let own = mpi_of(comm)?.duplicate(limit).inspect_err(|error| comm.refuse(error))?;
                Box::new(agree_on_result("a mover", AllToAllW::new(&plan, own), comm, limit)?)
            }
        };
        Ok(Self { plan, backend, parts, readers })
    }
}
