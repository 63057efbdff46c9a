//! The feature `ndarray`: a whole array into its parts and back, for tests, teaching and small programs.
//!
//! ```
//! use reshard::ndarray::{gather, scatter};
//! use reshard::{Layout, redistribute};
//! let whole = ndarray::Array2::from_shape_fn((6, 4), |(i, j)| 10 * i + j).into_dyn();
//! let (from, to): (Layout, Layout) = ("2x2/2x2 of 6x4".parse()?, "3x1/1x4 of 6x4 memory=row".parse()?);
//! let mut moved = to.parts(|_| 0)?;
//! redistribute(&from, &scatter(&whole, &from)?, &to, &mut moved)?;
//! assert_eq!(gather(&moved, &to)?, whole);
//! # Ok::<(), reshard::Error>(())
//! ```

use ::ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};
use reshard_plan::{Error, ErrorKind, Layout, Result};

/// The parts of an array, by ascending rank.
pub fn scatter<T: Clone + Default, S: Data<Elem = T>, D: Dimension>(
    array: &ArrayBase<S, D>,
    layout: &Layout,
) -> Result<Vec<Vec<T>>> {
    let array = array.view().into_dyn();
    let shape: Vec<u64> = array.shape().iter().map(|&extent| extent as u64).collect();
    if shape != layout.distribution().shape() {
        return Err(Error::new(
            ErrorKind::Mismatch,
            format!("an array of {shape:?} was given for the layout {layout}; they must have the same shape"),
        ));
    }
    let mut index = IxDyn::zeros(shape.len());
    layout.parts(|global| {
        (0..global.len()).for_each(|dim| index[dim] = global[dim] as usize);
        array[&index].clone()
    })
}

/// The whole array out of all ranks' parts, which are given by ascending rank.
pub fn gather<T: Clone>(parts: &[impl AsRef<[T]>], layout: &Layout) -> Result<ArrayD<T>> {
    let shape: Vec<usize> = layout.distribution().shape().iter().map(|&extent| extent as usize).collect();
    let mut elems = Vec::new();
    let count = usize::try_from(layout.distribution().elems()).unwrap_or(usize::MAX);
    reshard_plan::memory::reserve(&mut elems, count, "the whole array")?;
    for index in ::ndarray::indices(IxDyn(&shape)) {
        let global: Vec<u64> = index.slice().iter().map(|&index| index as u64).collect();
        elems.push(layout.get(parts, &global)?.clone());
    }
    ArrayD::from_shape_vec(IxDyn(&shape), elems)
        .map_err(|error| Error::new(ErrorKind::TooLarge, format!("an array of {shape:?}: {error}")))
}
