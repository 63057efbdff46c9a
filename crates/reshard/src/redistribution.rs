//! The three ways to use the library: one call, a reusable object, or a plan with an engine of one's choice.

use crate::engine::{BufferTable, Buffers, Engine, Report, Threads};
use bytemuck::Pod;
use reshard_kernel::{Number, Scaling};
use reshard_plan::{Error, ErrorKind, Layout, Move, Plan, Result};
use std::marker::PhantomData;
use std::sync::Arc;

/// Moves all of one array into another, once: plans, runs, and drops the plan. All ranks' parts are given, by ascending
/// rank. To move arrays of the same layouts again, make a [`Redistribution`] and run that.
///
/// ```
/// use reshard::{Layout, MemoryOrder, redistribute};
/// use reshard_plan::Distribution;
/// let from: Distribution = "2/3 of 10".parse()?; // 000111000 1
/// let to: Distribution = "3/2 of 10".parse()?; //   0011220011
/// let parts = [vec![0, 1, 2, 6, 7, 8], vec![3, 4, 5, 9]];
/// let mut moved = [vec![-1; 4], vec![-1; 4], vec![-1; 2]];
/// redistribute(&Layout::new(from, MemoryOrder::RowMajor), &parts, &Layout::new(to, MemoryOrder::RowMajor), &mut moved)?;
/// assert_eq!(moved, [vec![0, 1, 6, 7], vec![2, 3, 8, 9], vec![4, 5]]);
/// # Ok::<(), reshard::Error>(())
/// ```
pub fn redistribute<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(
    from: &Layout,
    from_parts: &[S],
    to: &Layout,
    to_parts: &mut [D],
) -> Result<Report> {
    let moving = Move::of::<T>(from.clone(), to.clone())?;
    Redistribution::new(moving)?.run(from_parts, to_parts)
}

/// A plan, an engine and all the memory they need: made once, run any number of times. Runs after the first allocate nothing.
///
/// ```
/// use reshard::{Move, Redistribution};
/// let moving = Move::of::<f32>("2x2/2x2 of 4x4".parse()?, "1x1/4x4 of 4x4".parse()?)?;
/// let mut redistribution = Redistribution::new(moving)?;
/// let parts: Vec<Vec<f32>> = vec![vec![0.0, 1.0, 4.0, 5.0], vec![8.0, 9.0, 12.0, 13.0], vec![2.0, 3.0, 6.0, 7.0], vec![10.0, 11.0, 14.0, 15.0]];
/// let mut whole = [vec![0.0_f32; 16]];
/// for _ in 0..3 {
///     redistribution.run(&parts, &mut whole)?;
/// }
/// assert_eq!(whole[0], (0..16).map(|k| k as f32).collect::<Vec<_>>());
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct Redistribution {
    engine: Box<dyn Engine>,
    table: BufferTable,
}

impl Redistribution {
    /// Makes a redistribution of one array, with the default engine: as many threads as there are cores.
    pub fn new(moving: Move) -> Result<Self> {
        Self::several(vec![moving])
    }

    /// Makes a redistribution of several arrays that are always moved together, with the default engine.
    pub fn several(moves: Vec<Move>) -> Result<Self> {
        Ok(Self::with(Threads::new(Arc::new(Plan::new(moves)?), None)?))
    }

    /// Makes a redistribution with any engine, for the engine's plan.
    pub fn with(engine: impl Engine + 'static) -> Self {
        Self::with_boxed(Box::new(engine))
    }

    /// Makes a redistribution with a boxed engine, for engines chosen at run time.
    pub fn with_boxed(engine: Box<dyn Engine>) -> Self {
        let table = BufferTable::new(Arc::clone(engine.plan()));
        Self { engine, table }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        self.engine.plan()
    }

    /// Moves the only array: its source ranks' parts into its destination ranks', both by ascending rank, bit for bit.
    pub fn run<T: Pod, S: AsRef<[T]>, D: AsMut<[T]>>(&mut self, from: &[S], to: &mut [D]) -> Result<Report> {
        self.run_all(&mut [&mut Pair::new(from, to)])
    }

    /// Moves the only array with parts given as bytes, at any address, for elements of any size.
    pub fn run_bytes<S: AsRef<[u8]>, D: AsMut<[u8]>>(&mut self, from: &[S], to: &mut [D]) -> Result<Report> {
        let Self { engine, table } = self;
        let mut data = table.fill();
        data.enter_bytes(0, from, to)?;
        engine.run(&mut data)
    }

    /// Moves all arrays of the plan, in its order.
    ///
    /// ```
    /// use reshard::{Layout, Move, Pair, Redistribution};
    /// let (from, to): (Layout, Layout) = ("2/1 of 4".parse()?, "1/4 of 4".parse()?);
    /// let numbers = Move::of::<f64>(from.clone(), to.clone())?;
    /// let letters = Move::of::<u8>(from, to)?;
    /// let mut redistribution = Redistribution::several(vec![numbers, letters])?;
    /// let mut sum = [vec![100.0, 100.0, 100.0, 100.0]];
    /// let mut word = [[0_u8; 4]];
    /// redistribution.run_all(&mut [
    ///     &mut Pair::new(&[[1.0, 3.0], [2.0, 4.0]], &mut sum).scaled(10.0, 1.0),
    ///     &mut Pair::new(&[*b"ml", *b"oe"], &mut word),
    /// ])?;
    /// assert_eq!((sum[0].as_slice(), &word[0]), ([110.0, 120.0, 130.0, 140.0].as_slice(), b"mole"));
    /// # Ok::<(), reshard::Error>(())
    /// ```
    pub fn run_all<'a>(&'a mut self, arrays: &mut [&mut dyn Parts<'a>]) -> Result<Report> {
        let Self { engine, table } = self;
        let expected = engine.plan().arrays().len();
        if arrays.len() != expected {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} given for a plan of {expected}; a run moves all of them",
                    if arrays.len() == 1 {
                        "1 array was".to_string()
                    } else {
                        format!("{} arrays were", arrays.len())
                    }
                ),
            ));
        }
        let mut data = table.fill();
        for (index, array) in arrays.iter_mut().enumerate() {
            array.enter(index, &mut data)?;
        }
        engine.run(&mut data)
    }
}

/// The parts of one array for one run, whatever the type of its elements.
pub trait Parts<'a> {
    /// Enters the parts as array number `index`.
    fn enter(&mut self, index: usize, data: &mut Buffers<'a>) -> Result<()>;
}

/// Source parts and destination parts of one array, both by ascending rank, and an optional scaling.
///
/// ```
/// use reshard::{Move, Pair, Redistribution};
/// let mut redistribution = Redistribution::several(vec![Move::of::<f64>("2/1 of 4".parse()?, "1/4 of 4".parse()?)?])?;
/// let (from, mut to) = ([[1.0, 3.0], [2.0, 4.0]], [[100.0; 4]]);
/// redistribution.run_all(&mut [&mut Pair::new(&from, &mut to).scaled(10.0, -1.0)])?; // 10 from - to
/// assert_eq!(to, [[-90.0, -80.0, -70.0, -60.0]]);
/// # Ok::<(), reshard::Error>(())
/// ```
pub struct Pair<'a, T, S, D> {
    from: &'a [S],
    to: Option<&'a mut [D]>,
    scaling: Option<Scaling>,
    scales: Option<Scales<T>>,
    elements: PhantomData<T>,
}

#[derive(Clone, Copy)]
struct Scales<T> {
    alpha: T,
    beta: T,
    conjugated: bool,
}

impl<'a, T: Pod, S: AsRef<[T]>, D: AsMut<[T]>> Pair<'a, T, S, D> {
    /// Makes a pair for a plain copy, bit for bit.
    pub fn new(from: &'a [S], to: &'a mut [D]) -> Self {
        Self { from, to: Some(to), scaling: None, scales: None, elements: PhantomData }
    }
}

impl<T: Number, S, D> Pair<'_, T, S, D> {
    /// Writes `alpha * A + beta * B` to B. A beta of zero does not read B, an alpha of zero does not read A.
    #[must_use]
    pub fn scaled(mut self, alpha: T, beta: T) -> Self {
        let conjugated = self.scales.is_some_and(|scales| scales.conjugated);
        self.set(Scales { alpha, beta, conjugated });
        self
    }

    /// Uses the conjugate of A in place of A. Real numbers stay as they are.
    #[must_use]
    pub fn conjugated(mut self) -> Self {
        let plain = Scales { alpha: T::ONE, beta: T::zeroed(), conjugated: true };
        self.set(Scales { conjugated: true, ..self.scales.unwrap_or(plain) });
        self
    }

    fn set(&mut self, scales: Scales<T>) {
        self.scales = Some(scales);
        self.scaling = Scaling::new(scales.alpha, scales.beta, scales.conjugated);
    }
}

impl<'a, T: Pod, S: AsRef<[T]>, D: AsMut<[T]>> Parts<'a> for Pair<'a, T, S, D> {
    fn enter(&mut self, index: usize, data: &mut Buffers<'a>) -> Result<()> {
        let to = self.to.take().ok_or_else(|| {
            Error::new(
                ErrorKind::Mismatch,
                format!("the pair given as array {index} was used in a run before"),
            )
        })?;
        data.enter(index, self.from, to, self.scaling)
    }
}
