//! Enters parts given as addresses.

use super::checks::check_count;
use super::parts::{Buffers, Entered};
use super::raw::RawPart;
use crate::store::Scaling;
use reshard_plan::Result;

impl Buffers<'_> {
    /// Enters the parts of one array as addresses: those of its source ranks and those of its destination ranks, both by
    /// ascending rank. Elements may be at any address. If a source overlaps a destination, also of an array that was entered
    /// before, it is copied now and read from the copy, so the result is as if they were apart; the copy is kept until the table
    /// is filled again. Such parts are never given out as slices.
    ///
    /// # Safety
    /// As long as this data is used, or any run that was begun with it: every source part can be read over its bytes and nobody
    /// writes to it, but this run if it overlaps a destination; every destination part can be read and written over its bytes, and
    /// nobody else accesses it. Destination parts may interleave, as long as no two have an element in common.
    pub unsafe fn enter_raw(
        &mut self,
        array: usize,
        from: &[RawPart],
        to: &[RawPart],
        scaling: Option<Scaling>,
    ) -> Result<()> {
        self.check_scaling(array, scaling.as_ref())?;
        // SAFETY: promised by the caller.
        unsafe { self.enter_addresses(array, None, from, to)? };
        self.set_entered(array, Entered::All, scaling);
        Ok(())
    }

    /// Enters the parts of one rank as addresses, for engines in which every rank is a process of its own:
    /// [`RawPart::NONE`] where it has none.
    ///
    /// # Safety
    /// As for [`Buffers::enter_raw`].
    pub unsafe fn enter_own_raw(
        &mut self,
        array: usize,
        rank: u64,
        from: RawPart,
        to: RawPart,
        scaling: Option<Scaling>,
    ) -> Result<()> {
        self.check_scaling(array, scaling.as_ref())?;
        // SAFETY: promised by the caller.
        unsafe { self.enter_addresses(array, Some(rank), &[from], &[to])? };
        self.set_entered(array, Entered::Rank(rank), scaling);
        Ok(())
    }

    /// # Safety
    /// As for [`Buffers::enter_raw`].
    unsafe fn enter_addresses(
        &mut self,
        array: usize,
        only: Option<u64>,
        from: &[RawPart],
        to: &[RawPart],
    ) -> Result<()> {
        let (plan, elem) = (self.plan(), self.planned(array)?.wanted().elem_bytes());
        let planned = &plan.arrays()[array];
        let mine = |rank: u64| only.is_none_or(|only| only == rank);
        let sources =
            || planned.sources().iter().enumerate().filter(|(_, source)| mine(source.rank)).zip(from);
        let targets = || planned.targets().iter().enumerate().filter(|(_, target)| mine(target.rank)).zip(to);
        if only.is_none() {
            check_count("source", from.len(), planned.sources().len())?;
            check_count("destination", to.len(), planned.targets().len())?;
        }
        self.forget(array);
        for ((_, source), part) in sources() {
            part.check("source", source.rank, source.span, elem, planned.wanted().from())?;
        }
        for ((_, target), part) in targets() {
            part.check("destination", target.rank, target.span, elem, planned.wanted().to())?;
        }
        for ((at, _), part) in targets() {
            let at = self.set_target(array, at, part.address());
            self.raw().add_target(at, part);
        }
        for ((at, _), part) in sources() {
            let at = self.set_source(array, at, part.address());
            self.raw().add_source(at, part);
        }
        // SAFETY: promised by the caller; nothing has been written yet.
        let copied = unsafe { self.raw().copy_overlapped_sources()? };
        copied.into_iter().for_each(|(at, address)| self.replace_source(at, address));
        Ok(())
    }
}
