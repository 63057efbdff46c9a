//! The buffers of a run: the address of every part of every array, borrowed from the caller while the run lasts.
//!
//! Callers pass slices; engines need addresses they can share among threads. A [`BufferTable`] stores those addresses (and
//! keeps its memory from run to run, so that entering slices allocates nothing); [`Buffers`] is a table filled for one run,
//! and keeps the borrows alive.

use super::checks::{check_count, check_length, mismatch};
use super::raw::RawEntries;
use crate::store::Scaling;
use bytemuck::Pod;
use reshard_plan::error::counted;
use reshard_plan::{Array, Plan, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A table of the addresses of all parts of a plan's arrays.
pub struct BufferTable {
    plan: Arc<Plan>,
    sources: Vec<*const u8>,
    source_bytes: Vec<usize>,
    targets: Vec<*mut u8>,
    target_bytes: Vec<usize>,
    arrays: Vec<ArrayEntry>,
    raw: RawEntries,
}

/// One array's entries in the table.
struct ArrayEntry {
    sources: Range<usize>,
    targets: Range<usize>,
    scaling: Option<Scaling>,
    entered: Option<Entered>,
}

/// Whose parts of an array were entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The parts of all ranks: for engines in which all ranks are in one process.
    All,
    /// The parts of one rank: for engines in which every rank is a process of its own.
    Rank(u64),
}

// SAFETY: between runs the addresses are not used; during a run `Buffers` keeps the borrows they came from.
unsafe impl Send for BufferTable {}
// SAFETY: a shared table gives out addresses only through `Buffers`, whose methods say what may be done with them.
unsafe impl Sync for BufferTable {}

impl BufferTable {
    /// Makes a table for all parts of all arrays of the plan.
    pub fn new(plan: Arc<Plan>) -> Self {
        let (mut sources, mut targets) = (0, 0);
        let mut entry = |array: &Array| {
            let (first_source, first_target) = (sources, targets);
            sources += array.sources().len();
            targets += array.targets().len();
            ArrayEntry {
                sources: first_source..sources,
                targets: first_target..targets,
                scaling: None,
                entered: None,
            }
        };
        let arrays = plan.arrays().iter().map(&mut entry).collect();
        Self {
            plan,
            sources: vec![std::ptr::null(); sources],
            source_bytes: vec![0; sources],
            targets: vec![std::ptr::null_mut(); targets],
            target_bytes: vec![0; targets],
            arrays,
            raw: RawEntries::default(),
        }
    }

    /// Begins to fill the table. All earlier entries are cleared, as their memory may have been freed.
    pub fn fill(&mut self) -> Buffers<'_> {
        let Self { arrays, sources, source_bytes, targets, target_bytes, raw, .. } = self;
        raw.clear();
        arrays.iter_mut().for_each(|entry| (entry.entered, entry.scaling) = (None, None));
        sources.fill(std::ptr::null());
        source_bytes.fill(0);
        targets.fill(std::ptr::null_mut());
        target_bytes.fill(0);
        Buffers { table: self, borrowed: PhantomData }
    }
}

/// The addresses of all parts of all arrays of a plan, for one run.
pub struct Buffers<'a> {
    table: &'a mut BufferTable,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// Enters the parts of one array: those of its source ranks and those of its destination ranks, both by ascending rank.
    /// Refuses parts that are too few, too many, too short, or of another element size, and a scaling of another type.
    pub fn enter<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
        scaling: Option<Scaling>,
    ) -> Result<()> {
        self.check_type::<T>(array, scaling.as_ref())?;
        self.enter_parts(array, from, to)?;
        self.table.arrays[array].scaling = scaling;
        Ok(())
    }

    /// Enters the parts of one array given as bytes, at any address: elements of any size, copied bit for bit.
    pub fn enter_bytes<S: AsRef<[u8]>, D: AsMut<[u8]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
    ) -> Result<()> {
        self.enter_parts(array, from, to)
    }

    /// Enters the parts of one rank, for engines in which every rank is a process of its own. A rank that is no source, or no
    /// destination, may give any slice there, for instance an empty one.
    pub fn enter_own<T: Pod>(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [T],
        to: &'a mut [T],
        scaling: Option<Scaling>,
    ) -> Result<()> {
        self.check_type::<T>(array, scaling.as_ref())?;
        self.enter_own_part(array, rank, from, to)?;
        self.table.arrays[array].scaling = scaling;
        Ok(())
    }

    /// Enters the parts of one rank given as bytes, at any address.
    pub fn enter_own_bytes(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [u8],
        to: &'a mut [u8],
    ) -> Result<()> {
        self.enter_own_part(array, rank, from, to)
    }

    /// Checks that elements have the planned size, and that a scaling was made for their type.
    pub fn check_type<T: Pod>(&self, array: usize, scaling: Option<&Scaling>) -> Result<()> {
        let elem = self.planned(array)?.wanted().elem_bytes();
        if size_of::<T>() as u64 != elem {
            return Err(mismatch(format!(
                "elements of {} were given for array {array}, which was planned for elements of {elem}",
                counted(size_of::<T>(), "byte")
            )));
        }
        match scaling {
            Some(scaling) if !scaling.is_of::<T>() => Err(mismatch(format!(
                "a scaling made for {} was given for array {array}, whose elements are {}; make it with factors of that type",
                scaling.type_name(),
                std::any::type_name::<T>()
            ))),
            _ => Ok(()),
        }
    }

    fn enter_own_part<T: Pod>(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [T],
        to: &'a mut [T],
    ) -> Result<()> {
        self.planned(array)?;
        self.forget(array);
        let BufferTable { plan, arrays, sources, source_bytes, targets, target_bytes, .. } = &mut *self.table;
        let (planned, entry) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        for (at, source) in entry.sources.clone().zip(planned.sources()) {
            if source.rank == rank {
                check_length("source", rank, size_of_val(from), source.span, elem)?;
                (sources[at], source_bytes[at]) = (from.as_ptr().cast(), size_of_val(from));
            }
        }
        for (at, target) in entry.targets.clone().zip(planned.targets()) {
            if target.rank == rank {
                check_length("destination", rank, size_of_val(to), target.span, elem)?;
                (targets[at], target_bytes[at]) = (to.as_mut_ptr().cast(), size_of_val(to));
            }
        }
        entry.entered = Some(Entered::Rank(rank));
        Ok(())
    }

    /// Returns the addresses of a rank's source and destination part of an array; null if it has none or they were not
    /// entered. Valid over their whole spans as long as this data is borrowed.
    ///
    /// # Panics
    /// If there is no such array.
    pub fn own_of(&mut self, array: usize, rank: u64) -> (*const u8, *mut u8) {
        let planned = &self.table.plan.arrays()[array];
        let target = planned.targets().binary_search_by_key(&rank, |target| target.rank).ok();
        let from = planned.source_of(rank).map(|source| self.sources(array)[source]);
        let to = target.map(|target| self.targets(array)[target]);
        (from.unwrap_or(std::ptr::null()), to.unwrap_or(std::ptr::null_mut()))
    }

    /// Returns whose parts of an array were entered; `None` if none were, or entering failed.
    ///
    /// # Panics
    /// If there is no such array.
    pub fn entered_for(&self, array: usize) -> Option<Entered> {
        self.table.arrays[array].entered
    }

    /// Enters the source part of another rank, in memory that this process can read.
    ///
    /// # Safety
    /// From `from` on, the part is readable over its whole span as long as this data is used, and nobody writes to it while
    /// a task copies from it.
    pub unsafe fn enter_foreign(&mut self, array: usize, source: usize, from: *const u8) {
        let entry = &self.table.arrays[array];
        assert!(source < entry.sources.len(), "source part {source} of array {array}");
        let at = entry.sources.start + source;
        // With length 0: such a part is never returned as a slice.
        (self.table.sources[at], self.table.source_bytes[at]) = (from, 0);
    }

    /// Enters the destination part of another rank, in memory that this process can write to.
    ///
    /// # Safety
    /// From `to` on, the part is writable over its whole span as long as this data is used, and nobody else accesses the
    /// bytes that a task copies to it meanwhile.
    pub unsafe fn enter_foreign_target(&mut self, array: usize, target: usize, to: *mut u8) {
        let entry = &self.table.arrays[array];
        assert!(target < entry.targets.len(), "destination part {target} of array {array}");
        let at = entry.targets.start + target;
        (self.table.targets[at], self.table.target_bytes[at]) = (to, 0);
    }

    /// Fails if a scaling is for elements of another size than the array's.
    pub(super) fn check_scaling(&self, array: usize, scaling: Option<&Scaling>) -> Result<()> {
        let elem = self.planned(array)?.wanted().elem_bytes();
        match scaling {
            Some(scaling) if scaling.elem_bytes() != elem => Err(mismatch(format!(
                "a scaling made for {} was given for array {array}, which was planned for elements of {}; make it with factors of \
                 that type",
                scaling.type_name(),
                counted(elem, "byte")
            ))),
            _ => Ok(()),
        }
    }

    /// The plan of the table.
    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.table.plan)
    }

    /// Forgets all parts of an array.
    pub(super) fn forget(&mut self, array: usize) {
        let BufferTable { arrays, sources, source_bytes, targets, target_bytes, raw, .. } = &mut *self.table;
        let entry = &mut arrays[array];
        (entry.entered, entry.scaling) = (None, None);
        raw.forget(&entry.sources, &entry.targets);
        sources[entry.sources.clone()].fill(std::ptr::null());
        source_bytes[entry.sources.clone()].fill(0);
        targets[entry.targets.clone()].fill(std::ptr::null_mut());
        target_bytes[entry.targets.clone()].fill(0);
    }

    /// Records that all parts of an array are entered.
    pub(super) fn set_entered(&mut self, array: usize, entered: Entered, scaling: Option<Scaling>) {
        let entry = &mut self.table.arrays[array];
        (entry.entered, entry.scaling) = (Some(entered), scaling);
    }

    /// Sets the address of a source part; returns its place among those of all arrays. It is never given out as a slice.
    pub(super) fn set_source(&mut self, array: usize, source: usize, address: *const u8) -> usize {
        let at = self.table.arrays[array].sources.start + source;
        (self.table.sources[at], self.table.source_bytes[at]) = (address, 0);
        at
    }

    /// Sets the address of a destination part; returns its place among those of all arrays. It is never given out as a slice.
    pub(super) fn set_target(&mut self, array: usize, target: usize, address: *mut u8) -> usize {
        let at = self.table.arrays[array].targets.start + target;
        (self.table.targets[at], self.table.target_bytes[at]) = (address, 0);
        at
    }

    pub(super) fn replace_source(&mut self, at: usize, address: *const u8) {
        self.table.sources[at] = address;
    }

    /// What was entered as addresses.
    pub(super) fn raw(&mut self) -> &mut RawEntries {
        &mut self.table.raw
    }

    /// True if a source is read from a copy, because a destination overlaps it: then a run that fails leaves the source changed.
    pub fn is_in_place(&self) -> bool {
        self.table.raw.has_copies()
    }

    /// Forgets all parts, and gives back the memory of copies: nothing can be run with this data any more.
    pub fn clear(&mut self) {
        (0..self.table.arrays.len()).for_each(|array| self.forget(array));
        self.table.raw.clear();
    }

    pub(super) fn planned(&self, array: usize) -> Result<&Array> {
        let arrays = self.table.plan.arrays();
        arrays.get(array).ok_or_else(|| {
            mismatch(format!(
                "array {array} was given for a plan of {}, counted from 0",
                counted(arrays.len(), "array")
            ))
        })
    }

    fn enter_parts<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
    ) -> Result<()> {
        self.planned(array)?;
        self.forget(array);
        let BufferTable { plan, arrays, sources, source_bytes, targets, target_bytes, .. } = &mut *self.table;
        let (planned, entry) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        check_count("source", from.len(), planned.sources().len())?;
        check_count("destination", to.len(), planned.targets().len())?;
        for (at, (part, source)) in entry.sources.clone().zip(from.iter().zip(planned.sources())) {
            let part = part.as_ref();
            check_length("source", source.rank, size_of_val(part), source.span, elem)?;
            sources[at] = part.as_ptr().cast();
            source_bytes[at] = size_of_val(part);
        }
        for (at, (part, target)) in entry.targets.clone().zip(to.iter_mut().zip(planned.targets())) {
            let part = part.as_mut();
            check_length("destination", target.rank, size_of_val(part), target.span, elem)?;
            targets[at] = part.as_mut_ptr().cast();
            target_bytes[at] = size_of_val(part);
        }
        entry.entered = Some(Entered::All);
        Ok(())
    }

    /// True if the table was made for this plan (the same allocation).
    pub(crate) fn belongs_to(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.table.plan, plan)
    }

    /// Fails if the data was entered for another plan, or an array is missing.
    pub fn check(&self, plan: &Arc<Plan>) -> Result<()> {
        if !self.belongs_to(plan) {
            return Err(mismatch(
                "the data was entered for another plan; make its table from the plan of the engine that runs it".into(),
            ));
        }
        match self.table.arrays.iter().position(|entry| entry.entered.is_none()) {
            Some(array) => Err(mismatch(format!(
                "array {array} of {} was not given; a run moves all arrays of its plan",
                self.table.arrays.len()
            ))),
            None => Ok(()),
        }
    }

    /// Fails if the data was entered for another plan, an array is missing, or was entered as the parts of one rank: for
    /// engines that move the parts of all ranks.
    pub fn check_all(&self, plan: &Arc<Plan>) -> Result<()> {
        self.check(plan)?;
        let of_one = |(array, entry): (usize, &ArrayEntry)| match entry.entered {
            Some(Entered::Rank(rank)) => Some((array, rank)),
            _ => None,
        };
        match self.table.arrays.iter().enumerate().find_map(of_one) {
            Some((array, rank)) => Err(mismatch(format!(
                "array {array} was given as the parts of rank {rank} alone; this engine moves the parts of all ranks, so give \
                 all of them"
            ))),
            None => Ok(()),
        }
    }

    /// Fails if an array was not entered as the parts of `rank`: for engines in which every rank is a process.
    pub fn check_own(&self, rank: u64) -> Result<()> {
        let other = |entry: &ArrayEntry| entry.entered != Some(Entered::Rank(rank));
        match self.table.arrays.iter().position(other) {
            Some(array) => Err(mismatch(format!(
                "array {array} was not given as the parts of rank {rank} alone; in this engine every rank is a process, so give its \
                 own parts"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the addresses of an array's source parts, valid for reading over the spans of the plan; null for a part that
    /// was not entered.
    pub(crate) fn sources(&self, array: usize) -> &[*const u8] {
        &self.table.sources[self.table.arrays[array].sources.clone()]
    }

    /// Returns the addresses of an array's destination parts, valid for reading and writing over the spans of the plan if the
    /// caller ensures that no two threads access the same element; null for a part that was not entered.
    pub(crate) fn targets(&self, array: usize) -> &[*mut u8] {
        &self.table.targets[self.table.arrays[array].targets.clone()]
    }

    /// Returns the scaling of an array, if it has one.
    pub(crate) fn scaling(&self, array: usize) -> Option<&Scaling> {
        self.table.arrays[array].scaling.as_ref()
    }

    /// Returns a hash of the scalings of all arrays: ranks that run a plan together must have equal ones.
    pub fn scaling_number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for entry in &self.table.arrays {
            entry.scaling.as_ref().map(Scaling::parts).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// True if any array is scaled.
    pub fn is_scaled(&self) -> bool {
        self.table.arrays.iter().any(|entry| entry.scaling.is_some())
    }

    /// Returns the bytes of one source part; an empty slice if it is not in this process.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn source(&self, array: usize, index: usize) -> &[u8] {
        let entry = &self.table.arrays[array];
        assert!(
            entry.entered.is_some() && index < entry.sources.len(),
            "source part {index} of array {array}"
        );
        let at = entry.sources.start + index;
        if self.table.source_bytes[at] == 0 {
            return &[];
        }
        // SAFETY: the array was entered since the table began to be filled, so address and length came from a slice that is
        // borrowed for `'a`, of a type without padding.
        unsafe { std::slice::from_raw_parts(self.table.sources[at], self.table.source_bytes[at]) }
    }

    /// Returns the bytes of one destination part; an empty slice if it is not in this process.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn target(&mut self, array: usize, index: usize) -> &mut [u8] {
        let entry = &self.table.arrays[array];
        assert!(
            entry.entered.is_some() && index < entry.targets.len(),
            "destination part {index} of array {array}"
        );
        let at = entry.targets.start + index;
        if self.table.target_bytes[at] == 0 {
            return &mut [];
        }
        // SAFETY: the array was entered since the table began to be filled, so address and length came from a slice that is
        // mutably borrowed for `'a`, of a type that any bytes are a value of; `&mut self` makes this the only use.
        unsafe { std::slice::from_raw_parts_mut(self.table.targets[at], self.table.target_bytes[at]) }
    }
}

// SAFETY: `Buffers` only hands out addresses (to unsafe code that promises disjoint use) and plain bytes.
unsafe impl Sync for Buffers<'_> {}
