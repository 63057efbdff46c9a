//! The arguments of a run on one rank: its own parts of each array, and how they are scaled on the way.

use crate::communicator::Communicator;
use crate::mover::shared::readers::Readers;
use crate::mover::{Mover, Shared};
use crate::shm::NodeMemory;
use bytemuck::Pod;
use reshard::Number;
use reshard::engine::{Buffers, RawPart, Scaling};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

/// This rank's parts of one array for one run: source and destination, in private memory or in memory that the node shares.
///
/// ```no_run
/// # fn f(engine: &mut reshard_mpi::MpiEngine, x: &[f64], y: &mut [f64], i: &[u8], j: &mut [u8]) -> reshard::Result<()> {
/// use reshard_mpi::Own;
/// // Two arrays in one run; the first becomes 2 * x - y.
/// engine.run((Own::new(x, y).scaled(2.0, -1.0), Own::new(i, j)))?;
/// # Ok(()) }
/// ```
pub struct Own<'a, T> {
    /// Taken when they are entered into a run.
    parts: Option<PartsOf<'a, T>>,
    /// The shared source, if there is one: others may read it after the run.
    shared: Option<&'a Shared<T>>,
    /// The parts are bytes of elements of any size.
    as_bytes: bool,
    /// Alpha, beta, and whether the source is conjugated.
    scales: Option<(T, T, bool)>,
    scaling: Option<Scaling>,
}

/// Source and destination: every combination that there is.
enum PartsOf<'a, T> {
    Private(&'a [T], &'a mut [T]),
    Shared(&'a Shared<T>, &'a mut Shared<T>),
    SharedSource(&'a Shared<T>, &'a mut [T]),
    Raw(RawPart, RawPart),
}

impl<'a, T: Pod> Own<'a, T> {
    fn of(parts: PartsOf<'a, T>) -> Self {
        let shared = match &parts {
            PartsOf::Shared(from, _) | PartsOf::SharedSource(from, _) => Some(*from),
            PartsOf::Private(..) | PartsOf::Raw(..) => None,
        };
        Self { parts: Some(parts), shared, as_bytes: false, scales: None, scaling: None }
    }

    /// Parts in private memory.
    pub fn new(from: &'a [T], to: &'a mut [T]) -> Self {
        Self::of(PartsOf::Private(from, to))
    }

    /// Parts in memory that the node shares, for the mover [`Mover::Shared`].
    pub fn shared(from: &'a Shared<T>, to: &'a mut Shared<T>) -> Self {
        Self::of(PartsOf::Shared(from, to))
    }

    /// A source in memory that the node shares and any destination, for the mover [`Mover::SharedSource`].
    pub fn shared_source(from: &'a Shared<T>, to: &'a mut [T]) -> Self {
        Self::of(PartsOf::SharedSource(from, to))
    }
}

impl<T: Pod> Own<'static, T> {
    /// Parts as addresses, in private memory, for callers without Rust's borrows; [`RawPart::NONE`] where this rank has none.
    /// Source and destination may overlap, or be the same memory: then the source is copied when the run begins, which takes as
    /// much memory again until it has ended; if it fails, the source may be overwritten.
    ///
    /// # Safety
    /// Until the run has ended, or was dropped: the source can be read over its bytes, the destination can be read and written, and
    /// nobody else writes to the one or accesses the other.
    #[allow(unsafe_code)]
    pub unsafe fn raw(from: RawPart, to: RawPart) -> Self {
        Self::of(PartsOf::Raw(from, to))
    }
}

impl Own<'_, u8> {
    /// Declares that the parts are bytes of elements of any size.
    #[must_use]
    pub fn as_bytes(self) -> Self {
        Self { as_bytes: true, ..self }
    }

    /// Declares that the parts are bytes of elements of any size, which are scaled as numbers of the scaling's type; `None` copies them as
    /// they are. For callers that learn the type at run time.
    #[must_use]
    pub fn as_bytes_scaled(self, scaling: Option<Scaling>) -> Self {
        Self { as_bytes: true, scaling, ..self }
    }
}

impl<T: Number> Own<'_, T> {
    /// The destination becomes `alpha * source + beta * destination`. All ranks must give the same alpha and beta. A beta of
    /// zero does not read the destination, an alpha of zero does not read the source.
    #[must_use]
    pub fn scaled(mut self, alpha: T, beta: T) -> Self {
        self.scales = Some((alpha, beta, self.scales.is_some_and(|(_, _, conjugated)| conjugated)));
        self.with_scaling()
    }

    /// Takes the conjugate of the source. Real numbers stay as they are.
    #[must_use]
    pub fn conjugated(mut self) -> Self {
        let (alpha, beta, _) = self.scales.unwrap_or((T::ONE, T::zeroed(), false));
        self.scales = Some((alpha, beta, true));
        self.with_scaling()
    }

    fn with_scaling(mut self) -> Self {
        self.scaling =
            self.scales.and_then(|(alpha, beta, conjugated)| Scaling::new(alpha, beta, conjugated));
        self
    }
}

/// What an engine knows while parts are entered into a run.
pub struct Entering<'e> {
    pub(super) comm: &'e Communicator,
    pub(super) plan: &'e Plan,
    pub(super) mover: Mover,
    /// For movers of shared arrays: for each array, the sources this rank reads and the destinations it writes.
    pub(super) parts: &'e [[Vec<usize>; 2]],
    pub(super) readers: Option<&'e Arc<Readers>>,
    /// Fingerprint of the call: of the shared arrays, then of the scaling.
    pub(super) call: DefaultHasher,
}

/// The parts of one array for one run, whatever the type of its elements.
pub trait OwnParts<'a> {
    /// Enters the parts as array number `array` of the plan.
    #[doc(hidden)]
    fn enter(&mut self, array: usize, data: &mut Buffers<'a>, entering: &mut Entering<'_>) -> Result<()>;

    /// Records, after the run has begun, that other ranks read the source, if it is shared.
    #[doc(hidden)]
    fn add_readers(&self, entering: &Entering<'_>);
}

impl<'a, T: Pod> OwnParts<'a> for Own<'a, T> {
    #[allow(unsafe_code)]
    fn enter(&mut self, array: usize, data: &mut Buffers<'a>, entering: &mut Entering<'_>) -> Result<()> {
        let parts = self.parts.take().ok_or_else(|| {
            let what = format!("the parts given as array {array} were used in a run before");
            Error::new(ErrorKind::Mismatch, what)
        })?;
        let fits = match &parts {
            PartsOf::Shared(..) => entering.mover == Mover::Shared,
            PartsOf::SharedSource(..) => entering.mover == Mover::SharedSource,
            PartsOf::Private(..) | PartsOf::Raw(..) => {
                !matches!(entering.mover, Mover::Shared | Mover::SharedSource)
            }
        };
        if !fits {
            return Err(unfit(entering.mover, self.shared.is_some()));
        }
        let rank = entering.comm.rank() as u64;
        match parts {
            PartsOf::Private(from, to) => self.enter_slices(array, rank, data, from, to),
            PartsOf::Raw(from, to) => {
                if !self.as_bytes {
                    data.check_type::<T>(array, self.scaling.as_ref())?;
                }
                // SAFETY: promised where these parts were made.
                unsafe { data.enter_own_raw(array, rank, from, to, self.scaling) }
            }
            PartsOf::SharedSource(from, to) => {
                from.check_not_poisoned()?;
                self.enter_slices(array, rank, data, from, to)?;
                enter_shared(array, data, entering, from.parts(), None)
            }
            PartsOf::Shared(from, to) => {
                from.check_not_poisoned()?;
                check_same_ranks(to.parts(), entering.comm)?;
                let readers = entering.readers.ok_or_else(|| unfit(entering.mover, true))?;
                let (own, to) = to.own_and_parts(readers)?;
                self.enter_slices(array, rank, data, from, own)?;
                enter_shared(array, data, entering, from.parts(), Some(to))
            }
        }
    }

    fn add_readers(&self, entering: &Entering<'_>) {
        if let (Some(from), Some(readers)) = (self.shared, entering.readers) {
            from.add_readers(readers);
        }
    }
}

impl<'a, T: Pod> Own<'a, T> {
    fn enter_slices(
        &self,
        array: usize,
        rank: u64,
        data: &mut Buffers<'a>,
        from: &'a [T],
        to: &'a mut [T],
    ) -> Result<()> {
        match self.as_bytes {
            true if self.scaling.is_none() => {
                data.enter_own_bytes(array, rank, bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to))
            }
            true => Err(Error::new(
                ErrorKind::Unsupported,
                "bytes in slices were to be scaled; give slices of numbers, or addresses with `Own::raw`",
            )),
            false => data.enter_own(array, rank, from, to, self.scaling),
        }
    }
}

/// Enters what this rank reads and writes of the other ranks' parts.
fn enter_shared(
    array: usize,
    data: &mut Buffers<'_>,
    entering: &mut Entering<'_>,
    from: &NodeMemory,
    to: Option<&NodeMemory>,
) -> Result<()> {
    check_same_ranks(from, entering.comm)?;
    enter_others(data, array, entering, from, to)?;
    NodeMemory::fingerprint(from, to).hash(&mut entering.call);
    Ok(())
}

/// The error for parts that the mover cannot move.
fn unfit(mover: Mover, shared: bool) -> Error {
    let message = match mover {
        Mover::Shared | Mover::SharedSource => format!(
            "the mover `{mover}` moves parts made with `Shared`, and other parts were given; give `Own::{}`, or choose another mover",
            mover.name().replace('-', "_")
        ),
        _ if shared => format!(
            "shared parts were given to the mover `{mover}`; choose the mover `shared`, or `shared-source` if only the source is"
        ),
        _ => format!("the mover `{mover}` cannot move these parts"),
    };
    Error::new(ErrorKind::Unsupported, message)
}

/// Refuses shared parts whose ranks are other processes than the engine's, or the same in another order.
fn check_same_ranks(parts: &NodeMemory, comm: &Communicator) -> Result<()> {
    if parts.belong_to(comm) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Mismatch,
        "a shared array was given that was made on another communicator: its ranks are other processes, or in another order; make it \
         on the engine's communicator",
    ))
}

/// Enters the other ranks' parts of an array that this rank reads or writes.
#[allow(unsafe_code)]
fn enter_others(
    data: &mut Buffers<'_>,
    array: usize,
    entering: &Entering<'_>,
    from: &NodeMemory,
    to: Option<&NodeMemory>,
) -> Result<()> {
    let planned = &entering.plan.arrays()[array];
    let elem = planned.wanted().elem_bytes();
    let rank = entering.comm.rank() as u64;
    let [reads, writes] = &entering.parts[array];
    for &source in reads {
        let part = &planned.sources()[source];
        let first = from.part(part.rank as usize, part.span, elem)?;
        // SAFETY: mapped over the whole span. Its owner's run borrows it, and after that it records its readers: it is not
        // written to until all of them are done.
        unsafe { data.enter_foreign(array, source, first) };
    }
    for &target in writes {
        let part = &planned.targets()[target];
        if let (Some(to), true) = (to, part.rank != rank) {
            let first = to.part(part.rank as usize, part.span, elem)?;
            // SAFETY: mapped over the whole span. Its owner's run borrows it mutably, and it stays poisoned until no rank
            // writes to it any more.
            unsafe { data.enter_foreign_target(array, target, first) };
        }
    }
    Ok(())
}

/// Soundness rests on how [`RunArrays`] goes through its arrays: nobody else may implement it.
mod sealed {
    pub trait Sealed {}
}

/// All arrays of one run: one [`Own`], several as a tuple, or any number as a slice of [`OwnParts`]. Every array is visited each
/// time, in order: shared sources are recorded as read on the second visit. Other crates cannot implement it.
pub trait RunArrays<'a>: sealed::Sealed {
    /// How many there are.
    #[doc(hidden)]
    fn count(&self) -> usize;

    /// Calls `each` with the number of each array and its parts, until one fails.
    #[doc(hidden)]
    fn each(&mut self, each: &mut EachArray<'_, 'a>) -> Result<()>;
}

/// What is done with each array of a run.
#[doc(hidden)]
pub type EachArray<'f, 'a> = dyn FnMut(usize, &mut dyn OwnParts<'a>) -> Result<()> + 'f;

impl<T> sealed::Sealed for Own<'_, T> {}

impl<'a, T: Pod> RunArrays<'a> for Own<'a, T> {
    fn count(&self) -> usize {
        1
    }

    fn each(&mut self, each: &mut EachArray<'_, 'a>) -> Result<()> {
        each(0, self)
    }
}

impl sealed::Sealed for &mut [&mut dyn OwnParts<'_>] {}

impl<'a> RunArrays<'a> for &mut [&mut dyn OwnParts<'a>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn each(&mut self, each: &mut EachArray<'_, 'a>) -> Result<()> {
        self.iter_mut().enumerate().try_for_each(|(array, parts)| each(array, *parts))
    }
}

macro_rules! several_arrays {
    ($(($count:literal: $($parts:ident $number:tt),+))+) => {
        $(impl<$($parts),+> sealed::Sealed for ($($parts,)+) {}

        impl<'a, $($parts: OwnParts<'a>),+> RunArrays<'a> for ($($parts,)+) {
            fn count(&self) -> usize {
                $count
            }

            fn each(&mut self, each: &mut EachArray<'_, 'a>) -> Result<()> {
                $(each($number, &mut self.$number)?;)+
                Ok(())
            }
        })+
    };
}

several_arrays! {
    (1: A 0)
    (2: A 0, B 1)
    (3: A 0, B 1, C 2)
    (4: A 0, B 1, C 2, D 3)
}
