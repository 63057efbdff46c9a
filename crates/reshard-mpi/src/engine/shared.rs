//! Runs on arrays in memory that all ranks of a node reach.

use super::MpiEngine;
use crate::mover::Mover;
use crate::shared::{Neighbours, Shared};
use bytemuck::Pod;
use reshard::engine::{Data, Report};
use reshard_plan::{Error, ErrorKind, Plan, Result};

impl MpiEngine {
    /// Moves a plan's only array within shared memory: one copy, by whichever rank has time. Only for the mover
    /// [`Mover::Shared`].
    pub fn run_shared<T: Pod>(&mut self, from: &Shared<T>, to: &mut Shared<T>) -> Result<Report> {
        self.check_shared(Mover::Shared, &[from.parts(), to.parts()])?;
        let (own, others) = to.own_and_parts()?;
        let moved =
            self.move_shared(from, Some(others), |data, rank| data.enter_own(0, rank, from, own, None));
        self.keep_or_lose(moved, to)
    }

    /// The same for parts given as bytes.
    pub fn run_shared_bytes(&mut self, from: &Shared<u8>, to: &mut Shared<u8>) -> Result<Report> {
        self.check_shared(Mover::Shared, &[from.parts(), to.parts()])?;
        let (own, others) = to.own_and_parts()?;
        let moved =
            self.move_shared(from, Some(others), |data, rank| data.enter_own_bytes(0, rank, from, own));
        self.keep_or_lose(moved, to)
    }

    /// Moves a plan's only array out of shared memory: one copy, by who receives it. Only for the mover
    /// [`Mover::SharedSource`].
    pub fn run_shared_source<T: Pod>(&mut self, from: &Shared<T>, to: &mut [T]) -> Result<Report> {
        self.check_shared(Mover::SharedSource, &[from.parts()])?;
        self.move_shared(from, None, |data, rank| data.enter_own(0, rank, from, to, None))
    }

    /// The same for parts given as bytes.
    pub fn run_shared_source_bytes(&mut self, from: &Shared<u8>, to: &mut [u8]) -> Result<Report> {
        self.check_shared(Mover::SharedSource, &[from.parts()])?;
        self.move_shared(from, None, |data, rank| data.enter_own_bytes(0, rank, from, to))
    }

    /// `enter` enters this rank's own parts.
    fn move_shared<'a, T: Pod>(
        &'a mut self,
        from: &'a Shared<T>,
        to: Option<&'a Neighbours>,
        enter: impl FnOnce(&mut Data<'a>, u64) -> Result<()>,
    ) -> Result<Report> {
        let (rank, Self { plan, ways, parts, readers, table, .. }) = (self.comm().rank() as u64, self);
        let mut data = table.fill();
        enter(&mut data, rank)?;
        enter_others(&mut data, plan, rank, &parts[0], from.parts(), to)?;
        if let Some(readers) = readers {
            readers.set_arrays(Neighbours::number(from.parts(), to));
        }
        let running = ways.start(plan, data)?;
        readers.iter().for_each(|readers| from.lend(readers));
        running.wait()
    }

    /// A destination that a rank may still write to after the run has failed is not looked at any more.
    fn keep_or_lose<T: Pod>(&self, moved: Result<Report>, to: &mut Shared<T>) -> Result<Report> {
        if !self.readers.as_ref().is_some_and(|readers| readers.take_lost_destination()) {
            to.find();
        }
        moved
    }

    fn check_shared(&self, wanted: Mover, parts: &[&Neighbours]) -> Result<()> {
        if self.chosen != wanted {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "shared parts were given to the mover `{}`; choose the mover `{wanted}`",
                    self.chosen
                ),
            ));
        }
        match parts.iter().find(|parts| parts.ranks() != self.comm().size()) {
            Some(parts) => Err(Error::new(
                ErrorKind::Mismatch,
                format!("{} ranks share an array, and {} move it", parts.ranks(), self.comm().size()),
            )),
            None => Ok(()),
        }
    }
}

/// Enters the other ranks' parts that this rank reads or writes of a plan's only array.
#[allow(unsafe_code)]
fn enter_others(
    data: &mut Data<'_>,
    plan: &Plan,
    rank: u64,
    [reads, writes]: &[Vec<usize>; 2],
    from: &Neighbours,
    to: Option<&Neighbours>,
) -> Result<()> {
    let planned = &plan.arrays()[0];
    let elem = planned.wanted().elem_bytes();
    for &source in reads {
        let part = &planned.sources()[source];
        let first = from.part(part.rank as usize, part.span * elem)?;
        // SAFETY: mapped over the whole span. Its owner's run borrows it, and then it is lent: it is not written to until all
        // readers are through.
        unsafe { data.enter_foreign(0, source, first) };
    }
    for &target in writes {
        let part = &planned.targets()[target];
        if let (Some(to), true) = (to, part.rank != rank) {
            let first = to.part(part.rank as usize, part.span * elem)?;
            // SAFETY: mapped over the whole span.
            unsafe { data.enter_foreign_target(0, target, first) };
        }
    }
    Ok(())
}
