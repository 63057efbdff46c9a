//! The memory of a run: where every part of every array lies, borrowed from the caller while the run lasts.
//!
//! Callers hand in slices; engines need addresses they can share among threads. A [`BufferTable`] keeps those addresses (and its
//! own memory from run to run, so that entering them allocates nothing); [`Buffers`] is a table filled for one run, and keeps
//! the borrows alive.

use crate::store::Scaling;
use bytemuck::Pod;
use reshard_plan::{Array, Error, ErrorKind, Plan, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Room for the addresses of all parts of a plan's arrays.
pub struct BufferTable {
    plan: Arc<Plan>,
    sources: Vec<*const u8>,
    source_bytes: Vec<usize>,
    targets: Vec<*mut u8>,
    target_bytes: Vec<usize>,
    arrays: Vec<ArrayEntry>,
}

/// An array's parts in the table.
struct ArrayEntry {
    sources: Range<usize>,
    targets: Range<usize>,
    scaling: Option<Scaling>,
    entered: Option<Entered>,
}

/// Whose parts of an array were entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Those of all ranks: for engines in which all ranks are in one process.
    All,
    /// Those of one rank: for engines in which every rank is a process of its own.
    Rank(u64),
}

// SAFETY: between runs the addresses are not used; during a run `Buffers` keeps the borrows they came from.
unsafe impl Send for BufferTable {}
// SAFETY: a shared table gives out addresses only through `Buffers`, whose methods say what may be done with them.
unsafe impl Sync for BufferTable {}

impl BufferTable {
    /// Room for all parts of all arrays.
    pub fn new(plan: Arc<Plan>) -> Self {
        let (mut sources, mut targets) = (0, 0);
        let mut place = |array: &Array| {
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

    /// Begins to fill the table. Whatever was entered before is forgotten, as it may be gone.
    pub fn fill(&mut self) -> Buffers<'_> {
        let Self { arrays, sources, source_bytes, targets, target_bytes, .. } = self;
        arrays.iter_mut().for_each(|place| (place.entered, place.scaling) = (None, None));
        sources.fill(std::ptr::null());
        source_bytes.fill(0);
        targets.fill(std::ptr::null_mut());
        target_bytes.fill(0);
        Buffers { table: self, borrowed: PhantomData }
    }
}

/// All parts of all arrays of a plan, for one run.
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

    /// The same for parts given as bytes, at any address: elements of any size, moved bit for bit.
    pub fn enter_bytes<S: AsRef<[u8]>, D: AsMut<[u8]>>(
        &mut self,
        array: usize,
        from: &'a [S],
        to: &'a mut [D],
    ) -> Result<()> {
        self.enter_parts(array, from, to)
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
        self.check_type::<T>(array, scaling.as_ref())?;
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
        self.enter_own_part(array, rank, from, to)
    }

    /// The elements given must have the size that was planned, and a scaling must have been made for their type.
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
        let (planned, place) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        (place.entered, place.scaling) = (None, None);
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
        place.entered = Some(Entered::Rank(rank));
        Ok(())
    }

    /// Where a rank's parts of an array begin: source, destination, null if it has none or they were not entered. Valid over
    /// their whole spans as long as this data is borrowed.
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

    /// Whose parts of an array were entered; none if it was not, or not with success.
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
    /// something is copied from it.
    pub unsafe fn enter_foreign(&mut self, array: usize, source: usize, from: *const u8) {
        let place = &self.table.arrays[array];
        assert!(source < place.sources.len(), "source part {source} of array {array}");
        let at = place.sources.start + source;
        // Of length 0: such a part is not given out as a slice.
        (self.table.sources[at], self.table.source_bytes[at]) = (from, 0);
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
        let (planned, place) = (&plan.arrays()[array], &mut arrays[array]);
        let elem = planned.wanted().elem_bytes();
        (place.entered, place.scaling) = (None, None);
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
        place.entered = Some(Entered::All);
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
        match self.table.arrays.iter().position(|place| place.entered.is_none()) {
            Some(array) => Err(mismatch(format!(
                "array {array} of {} was not given; a run moves all arrays of its plan",
                self.table.arrays.len()
            ))),
            None => Ok(()),
        }
    }

    /// The same for engines of all ranks, which have nothing to do with the parts of one alone.
    pub fn check_all(&self, plan: &Arc<Plan>) -> Result<()> {
        self.check(plan)?;
        let of_one = |(array, place): (usize, &ArrayEntry)| match place.entered {
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

    /// Refuses data that was not entered as the parts of one rank alone, as engines need it in which that rank is a process.
    pub fn check_own(&self, rank: u64) -> Result<()> {
        let other = |place: &ArrayEntry| place.entered != Some(Entered::Rank(rank));
        match self.table.arrays.iter().position(other) {
            Some(array) => Err(mismatch(format!(
                "array {array} was not given as the parts of rank {rank} alone; in this engine every rank is a process, so give its \
                 own parts"
            ))),
            None => Ok(()),
        }
    }

    /// The beginnings of an array's source parts, valid for reading over the spans of the plan; null if one is not here.
    pub(crate) fn sources(&self, array: usize) -> &[*const u8] {
        &self.table.sources[self.table.arrays[array].sources.clone()]
    }

    /// The beginnings of an array's destination parts, valid for reading and writing over the spans of the plan, by
    /// whoever makes sure that no two threads touch the same element; null if one is not here.
    pub(crate) fn targets(&self, array: usize) -> &[*mut u8] {
        &self.table.targets[self.table.arrays[array].targets.clone()]
    }

    /// How an array is scaled, if it is.
    pub(crate) fn scaling(&self, array: usize) -> Option<&Scaling> {
        self.table.arrays[array].scaling.as_ref()
    }

    /// A number that stands for how all arrays are scaled: ranks that run a plan together must have the same.
    pub fn scaling_number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for place in &self.table.arrays {
            place.scaling.as_ref().map(Scaling::parts).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether an array is scaled.
    pub fn is_scaled(&self) -> bool {
        self.table.arrays.iter().any(|place| place.scaling.is_some())
    }

    /// The bytes of one source part, none if it is not in this process.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn source(&self, array: usize, index: usize) -> &[u8] {
        let place = &self.table.arrays[array];
        assert!(
            place.entered.is_some() && index < place.sources.len(),
            "source part {index} of array {array}"
        );
        let at = place.sources.start + index;
        if self.table.source_bytes[at] == 0 {
            return &[];
        }
        // SAFETY: the array was entered since the table began to be filled, so address and length came from a slice that is
        // borrowed for `'a`, of a type without padding.
        unsafe { std::slice::from_raw_parts(self.table.sources[at], self.table.source_bytes[at]) }
    }

    /// The bytes of one destination part, none if it is not in this process.
    ///
    /// # Panics
    /// If there is no such part, or its array was not entered.
    pub fn target(&mut self, array: usize, index: usize) -> &mut [u8] {
        let place = &self.table.arrays[array];
        assert!(
            place.entered.is_some() && index < place.targets.len(),
            "destination part {index} of array {array}"
        );
        let at = place.targets.start + index;
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

/// The most bytes of a part: a process maps no more on the 64-bit systems we know, as user space ends at address 2^47 (a few
/// can be told otherwise). So sums of a few sizes of parts fit into all integers here.
const MOST_BYTES: u128 = if usize::BITS < 64 { isize::MAX as u128 } else { 1 << 47 };

/// Refuses plans of which one rank's part cannot lie in memory. For all others the size of a part in bytes is a number to
/// reckon with.
///
/// ```
/// use reshard_kernel::memory::check_reach;
/// use reshard_plan::{ErrorKind, Layout, Move, Order, Plan};
/// let layout = Layout::new("2/1 of 4611686018427387904".parse()?, Order::RowMajor); // 2^62
/// let plan = Plan::new(vec![Move::new(layout.clone(), layout)?])?;
/// assert_eq!(check_reach(&plan).unwrap_err().kind(), ErrorKind::TooLarge);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn check_reach(plan: &Plan) -> Result<()> {
    for array in plan.arrays() {
        let sources = array.sources().iter().map(|source| ("source", source.rank, source.span));
        let targets = array.targets().iter().map(|target| ("destination", target.rank, target.span));
        for (side, rank, span) in sources.chain(targets) {
            let bytes = u128::from(span) * u128::from(array.wanted().elem_bytes());
            if bytes > MOST_BYTES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "the {side} part of rank {rank} takes {bytes} bytes, and a process can have {MOST_BYTES} at most; use \
                         more ranks or smaller strides"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// The same where all ranks are in one process: refuses plans of which a part, or all destinations together, have no addresses.
/// What no memory holds is left for whoever asks for that memory to find out.
pub fn check_reach_of_all(plan: &Plan) -> Result<()> {
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
