//! The buffers of a run: the address of every part of every array, borrowed from the caller while the run lasts.
//!
//! Callers pass slices; engines need addresses they can share among threads. A [`BufferTable`] stores those addresses (and
//! keeps its memory from run to run, so that entering them allocates nothing); [`Buffers`] is a table filled for one run,
//! and keeps the borrows alive.

use crate::store::Scaling;
use bytemuck::Pod;
use reshard_plan::error::counted;
use reshard_plan::{Array, Error, ErrorKind, Plan, Result};
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
        }
    }

    /// Begins to fill the table. All earlier entries are cleared, as their memory may have been freed.
    pub fn fill(&mut self) -> Buffers<'_> {
        let Self { arrays, sources, source_bytes, targets, target_bytes, .. } = self;
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
    fn check_type<T: Pod>(&self, array: usize, scaling: Option<&Scaling>) -> Result<()> {
        let elem = self.planned(array)?.wanted().elem_bytes();
        if size_of::<T>() as u64 != elem {
            return Err(mismatch(format!(
                "elements of {} bytes were given for array {array}, which was planned for elements of {elem}",
                size_of::<T>()
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
        let BufferTable { plan, arrays, sources, source_bytes, targets, target_bytes } = &mut *self.table;
        let (planned, entry) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        (entry.entered, entry.scaling) = (None, None);
        for (at, source) in entry.sources.clone().zip(planned.sources()) {
            (sources[at], source_bytes[at]) = (std::ptr::null(), 0);
            if source.rank == rank {
                check_length("source", rank, size_of_val(from), source.span, elem)?;
                (sources[at], source_bytes[at]) = (from.as_ptr().cast(), size_of_val(from));
            }
        }
        for (at, target) in entry.targets.clone().zip(planned.targets()) {
            (targets[at], target_bytes[at]) = (std::ptr::null_mut(), 0);
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
        let BufferTable { plan, arrays, sources, source_bytes, targets, target_bytes } = &mut *self.table;
        let (planned, entry) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        (entry.entered, entry.scaling) = (None, None);
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

/// Bytes of a part at most: a process maps no more on the 64-bit systems we know, as user space ends at address 2^47 (a few
/// can be configured otherwise). So sums of a few part sizes do not overflow.
const MAX_PART_BYTES: u128 = if usize::BITS < 64 { isize::MAX as u128 } else { 1 << 47 };

/// Fails if one rank's part does not fit into the address space of a process. For all other plans, sizes of parts in bytes
/// do not overflow.
///
/// ```
/// use reshard_kernel::memory::check_reach;
/// use reshard_plan::{ErrorKind, Layout, Move, MemoryOrder, Plan};
/// let layout = Layout::new("2/1 of 4611686018427387904".parse()?, MemoryOrder::RowMajor); // 2^62
/// let plan = Plan::new(vec![Move::of::<f64>(layout.clone(), layout)?])?;
/// assert_eq!(check_reach(&plan).unwrap_err().kind(), ErrorKind::TooLarge);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn check_reach(plan: &Plan) -> Result<()> {
    check_hosts_all(plan)?;
    for array in plan.arrays() {
        let sources = array.sources().iter().map(|source| ("source", source.rank, source.span));
        let targets = array.targets().iter().map(|target| ("destination", target.rank, target.span));
        for (side, rank, span) in sources.chain(targets) {
            let bytes = u128::from(span) * u128::from(array.wanted().elem_bytes());
            if bytes > MAX_PART_BYTES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "the {side} part of rank {rank} takes {bytes} bytes, and a process can have {MAX_PART_BYTES} at most; use \
                         more ranks or smaller strides"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Fails if a plan was worked out for some of its ranks only.
fn check_hosts_all(plan: &Plan) -> Result<()> {
    match plan.hosted() {
        None => Ok(()),
        Some(ranks) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "a plan for {} was given, and this engine runs plans for all ranks; make it with Plan::new",
                counted(ranks.len(), "hosted rank")
            ),
        )),
    }
}

/// Fails if a source part, or all destinations together, do not fit into the address space of one process: for engines in
/// which all ranks are in one process. Whether there is enough memory is left to the allocation.
pub fn check_reach_of_all(plan: &Plan) -> Result<()> {
    check_hosts_all(plan)?;
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
