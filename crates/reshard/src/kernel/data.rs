//! The memory of a run: where every part of every array lies, borrowed from the caller while the run lasts.
//!
//! Callers hand in slices; engines need addresses they can share among threads. A [`Table`] keeps those addresses (and its
//! own memory from run to run, so that entering them allocates nothing); [`Data`] is a table filled for one run, and keeps
//! the borrows alive.

use super::scale::Scaling;
use bytemuck::Pod;
use reshard_plan::{Array, Error, ErrorKind, Plan, Result};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Room for the addresses of all parts of a plan's arrays.
pub struct Table {
    plan: Arc<Plan>,
    sources: Vec<*const u8>,
    source_bytes: Vec<usize>,
    targets: Vec<*mut u8>,
    target_bytes: Vec<usize>,
    arrays: Vec<Place>,
}

/// An array's parts in the table.
struct Place {
    sources: Range<usize>,
    targets: Range<usize>,
    scaling: Option<Scaling>,
    entered: bool,
}

// SAFETY: between runs the addresses are not used; during a run `Data` keeps the borrows they came from.
unsafe impl Send for Table {}
// SAFETY: a shared table gives out addresses only through `Data`, whose methods say what may be done with them.
unsafe impl Sync for Table {}

impl Table {
    /// Room for all parts of all arrays.
    pub fn new(plan: Arc<Plan>) -> Self {
        let (mut sources, mut targets) = (0, 0);
        let mut place = |array: &Array| {
            let (first_source, first_target) = (sources, targets);
            sources += array.sources().len();
            targets += array.targets().len();
            Place {
                sources: first_source..sources,
                targets: first_target..targets,
                scaling: None,
                entered: false,
            }
        };
        let arrays = plan.arrays().iter().map(&mut place).collect();
        Self {
            plan,
            sources: vec![std::ptr::null(); sources],
            source_bytes: vec![0; sources],
            targets: vec![std::ptr::null_mut(); targets],
            target_bytes: vec![0; targets],
            arrays,
        }
    }

    /// Begins to fill the table.
    pub fn fill(&mut self) -> Data<'_> {
        self.arrays.iter_mut().for_each(|place| (place.entered, place.scaling) = (false, None));
        Data { table: self, borrowed: PhantomData }
    }
}

/// All parts of all arrays of a plan, for one run.
pub struct Data<'a> {
    table: &'a mut Table,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Data<'a> {
    /// Enters the parts of one array: those of its source ranks and those of its destination ranks, both by ascending rank.
    /// Refuses parts that are too few, too many, too short, or of another element size.
    pub fn enter<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
        scaling: Option<Scaling>,
    ) -> Result<()> {
        let elem = self.planned(array)?.wanted().elem_bytes();
        if size_of::<T>() as u64 != elem {
            return Err(wrong_size(array, size_of::<T>(), elem));
        }
        self.enter_parts(array, from, to)?;
        self.table.arrays[array].scaling = scaling;
        Ok(())
    }

    /// The same for parts given as bytes, at any address: elements of any size, moved bit for bit.
    pub fn enter_bytes<S: AsRef<[u8]>, D: AsMut<[u8]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
    ) -> Result<()> {
        self.enter_parts(array, from, to)?;
        self.table.arrays[array].scaling = None;
        Ok(())
    }

    /// Enters what one rank has of an array, where every rank is a process of its own. A rank that is no source, or no
    /// destination, may give anything there, for instance nothing.
    pub fn enter_own<T: Pod>(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [T],
        to: &'a mut [T],
        scaling: Option<Scaling>,
    ) -> Result<()> {
        let elem = self.planned(array)?.wanted().elem_bytes();
        if size_of::<T>() as u64 != elem {
            return Err(wrong_size(array, size_of::<T>(), elem));
        }
        self.enter_own_part(array, rank, from, to)?;
        self.table.arrays[array].scaling = scaling;
        Ok(())
    }

    /// The same for parts given as bytes, at any address.
    pub fn enter_own_bytes(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [u8],
        to: &'a mut [u8],
    ) -> Result<()> {
        self.enter_own_part(array, rank, from, to)?;
        self.table.arrays[array].scaling = None;
        Ok(())
    }

    fn enter_own_part<T: Pod>(
        &mut self,
        array: usize,
        rank: u64,
        from: &'a [T],
        to: &'a mut [T],
    ) -> Result<()> {
        self.planned(array)?;
        let Table { plan, arrays, sources, source_bytes, targets, target_bytes } = &mut *self.table;
        let (planned, place) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        for (at, source) in place.sources.clone().zip(planned.sources()) {
            (sources[at], source_bytes[at]) = (std::ptr::null(), 0);
            if source.rank == rank {
                check_length("source", rank, size_of_val(from), source.span, elem)?;
                (sources[at], source_bytes[at]) = (from.as_ptr().cast(), size_of_val(from));
            }
        }
        for (at, target) in place.targets.clone().zip(planned.targets()) {
            (targets[at], target_bytes[at]) = (std::ptr::null_mut(), 0);
            if target.rank == rank {
                check_length("destination", rank, size_of_val(to), target.span, elem)?;
                (targets[at], target_bytes[at]) = (to.as_mut_ptr().cast(), size_of_val(to));
            }
        }
        place.entered = true;
        Ok(())
    }

    /// Where the parts of an array begin that were entered with [`Data::enter_own`]: source, destination, null if this rank has
    /// none. Valid over their whole spans as long as this data is borrowed.
    pub fn own(&mut self, array: usize) -> (*const u8, *mut u8) {
        let from = self.sources(array).iter().copied().find(|from| !from.is_null());
        let to = self.targets(array).iter().copied().find(|to| !to.is_null());
        (from.unwrap_or(std::ptr::null()), to.unwrap_or(std::ptr::null_mut()))
    }

    /// Enters the source part of another rank, in memory that this process can read.
    ///
    /// # Safety
    /// From `from` on, the part is readable over its whole span as long as this data is used, and nobody writes to it while
    /// something is copied from it.
    pub unsafe fn enter_foreign(&mut self, array: usize, source: usize, from: *const u8) {
        let place = &self.table.arrays[array];
        assert!(source < place.sources.len(), "source part {source} of array {array}");
        let at = place.sources.start + source;
        // The length is left at 0: such a part is not given out as a slice.
        self.table.sources[at] = from;
    }

    /// Enters the destination part of another rank, in memory that this process can write to.
    ///
    /// # Safety
    /// From `to` on, the part can be written to over its whole span as long as this data is used, and nobody else touches what is
    /// copied to it meanwhile.
    pub unsafe fn enter_foreign_target(&mut self, array: usize, target: usize, to: *mut u8) {
        let place = &self.table.arrays[array];
        assert!(target < place.targets.len(), "destination part {target} of array {array}");
        let at = place.targets.start + target;
        self.table.targets[at] = to;
    }

    fn planned(&self, array: usize) -> Result<&Array> {
        let arrays = self.table.plan.arrays();
        arrays.get(array).ok_or_else(|| {
            mismatch(format!("array {array} was given for a plan of {} arrays, counted from 0", arrays.len()))
        })
    }

    fn enter_parts<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
    ) -> Result<()> {
        self.planned(array)?;
        let Table { plan, arrays, sources, source_bytes, targets, target_bytes } = &mut *self.table;
        let (planned, place) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        check_count("source", from.len(), planned.sources().len())?;
        check_count("destination", to.len(), planned.targets().len())?;
        for (at, (part, source)) in place.sources.clone().zip(from.iter().zip(planned.sources())) {
            let part = part.as_ref();
            check_length("source", source.rank, size_of_val(part), source.span, elem)?;
            sources[at] = part.as_ptr().cast();
            source_bytes[at] = size_of_val(part);
        }
        for (at, (part, target)) in place.targets.clone().zip(to.iter_mut().zip(planned.targets())) {
            let part = part.as_mut();
            check_length("destination", target.rank, size_of_val(part), target.span, elem)?;
            targets[at] = part.as_mut_ptr().cast();
            target_bytes[at] = size_of_val(part);
        }
        place.entered = true;
        Ok(())
    }

    /// Whether the table was made for this very plan.
    pub(crate) fn belongs_to(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.table.plan, plan)
    }

    /// Refuses to run another plan than the one the data was entered for, or while an array is missing.
    pub fn check(&self, plan: &Arc<Plan>) -> Result<()> {
        if !self.belongs_to(plan) {
            return Err(mismatch(
                "the data was entered for another plan; make its table from the plan of the engine that runs it".into(),
            ));
        }
        match self.table.arrays.iter().position(|place| !place.entered) {
            Some(array) => Err(mismatch(format!(
                "array {array} of {} was not given; a run moves all arrays of its plan",
                self.table.arrays.len()
            ))),
            None => Ok(()),
        }
    }

    /// The beginnings of an array's source parts, valid for reading over the spans of the plan.
    pub(crate) fn sources(&self, array: usize) -> &[*const u8] {
        &self.table.sources[self.table.arrays[array].sources.clone()]
    }

    /// The beginnings of an array's destination parts, valid for reading and writing over the spans of the plan, by
    /// whoever makes sure that no two threads touch the same element.
    pub(crate) fn targets(&self, array: usize) -> &[*mut u8] {
        &self.table.targets[self.table.arrays[array].targets.clone()]
    }

    /// How an array is scaled, if it is.
    pub(crate) fn scaling(&self, array: usize) -> Option<&Scaling> {
        self.table.arrays[array].scaling.as_ref()
    }

    /// The bytes of one source part.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn source(&self, array: usize, index: usize) -> &[u8] {
        let place = &self.table.arrays[array];
        assert!(place.entered && index < place.sources.len(), "source part {index} of array {array}");
        let at = place.sources.start + index;
        // SAFETY: the array was entered since the table began to be filled, so address and length came from a slice that is
        // borrowed for `'a`, of a type without padding.
        unsafe { std::slice::from_raw_parts(self.table.sources[at], self.table.source_bytes[at]) }
    }

    /// The bytes of one destination part.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn target(&mut self, array: usize, index: usize) -> &mut [u8] {
        let place = &self.table.arrays[array];
        assert!(place.entered && index < place.targets.len(), "destination part {index} of array {array}");
        let at = place.targets.start + index;
        // SAFETY: the array was entered since the table began to be filled, so address and length came from a slice that is
        // mutably borrowed for `'a`, of a type that any bytes are a value of; `&mut self` makes this the only use.
        unsafe { std::slice::from_raw_parts_mut(self.table.targets[at], self.table.target_bytes[at]) }
    }
}

// SAFETY: `Data` only hands out addresses (to unsafe code that promises disjoint use) and plain bytes.
unsafe impl Sync for Data<'_> {}

/// Refuses plans of which a part, or all destinations together, cannot lie in memory. For all others the size of a part in
/// bytes is a number that kernels can reckon with.
pub(crate) fn check_reach(plan: &Plan) -> Result<()> {
    let most = isize::MAX as u128;
    let mut written = 0;
    for array in plan.arrays() {
        let bytes = |span: u64| u128::from(span) * u128::from(array.wanted().elem_bytes());
        let read = array.sources().iter().map(|source| bytes(source.span)).max().unwrap_or(0);
        written += array.targets().iter().map(|target| bytes(target.span)).sum::<u128>();
        if read.max(written) > most {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the parts of the plan's arrays take {} bytes, more than this machine can address; move less at once",
                    read.max(written)
                ),
            ));
        }
    }
    Ok(())
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Mismatch, message)
}

fn wrong_size(array: usize, given: usize, elem: u64) -> Error {
    mismatch(format!(
        "elements of {given} bytes were given for array {array}, which was planned for elements of {elem}"
    ))
}

fn check_count(side: &str, given: usize, expected: usize) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(mismatch(format!(
        "{given} {side} parts were given for {expected} {side} ranks; give one for each rank, by ascending rank, empty ones \
         included"
    )))
}

fn check_length(side: &str, rank: u64, bytes: usize, span: u64, elem: u64) -> Result<()> {
    if u128::from(span) * u128::from(elem) <= bytes as u128 {
        return Ok(());
    }
    Err(mismatch(format!(
        "the {side} part of rank {rank} has {} elements, but its layout reaches over {span}; give at least as many",
        bytes as u64 / elem
    )))
}
