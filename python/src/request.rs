//! What is to be moved, as Python says it: two layouts, a window as slices, a permutation of axes.

use crate::error::{OrRaise, wrong, wrong_type};
use crate::layout::extents;
use crate::memory::described;
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PySlice, PyTuple};
use reshard::{Layout, Move, Window};

/// The part of the arrays that moves; all of them if nothing is said.
#[derive(Default)]
pub struct Part<'a, 'p> {
    /// Slices of the source.
    pub window: Option<&'a Bound<'p, PyAny>>,
    /// Where the window begins in the destination.
    pub at: Option<&'a Bound<'p, PyAny>>,
    /// Axis `d` of the destination is axis `axes[d]` of the source.
    pub axes: Option<&'a Bound<'p, PyAny>>,
}

impl Part<'_, '_> {
    /// What is moved, of elements of so many bytes.
    pub fn moving(&self, from: Layout, to: Layout, item: u64) -> PyResult<Move> {
        if self.window.is_none() && self.at.is_none() && self.axes.is_none() {
            return Move::of::<u8>(from, to).and_then(|moving| moving.of_bytes(item)).or_raise();
        }
        let shape = from.distribution().shape();
        let (first, extent) = match self.window {
            None => (vec![0; shape.len()], shape.clone()),
            Some(window) => sliced(window, &shape)?,
        };
        let mut window = Window::of(&extent).from(&first);
        if let Some(at) = self.at {
            window = window.to(&extents(at, "at")?);
        }
        if let Some(axes) = self.axes {
            window = window.permuted(&permutation(axes, shape.len())?);
        }
        Move::windowed::<u8>(from, to, window).and_then(|moving| moving.of_bytes(item)).or_raise()
    }
}

/// A permutation, in which negative axes count from the end, as in NumPy.
pub fn permutation(given: &Bound<'_, PyAny>, dims: usize) -> PyResult<Vec<usize>> {
    let axes: Vec<i64> = given.extract().map_err(|_| {
        wrong_type(format!(
            "axes was given as {}; give one number for each dimension, such as (1, 0)",
            described(given)
        ))
    })?;
    let counted = |&axis: &i64| {
        let from_start = if axis < 0 { axis + dims as i64 } else { axis };
        usize::try_from(from_start).ok().filter(|&axis| axis < dims).ok_or_else(|| {
            wrong(format!(
                "axes was given with {axis} in it; the array has {dims} dimensions, counted from 0"
            ))
        })
    };
    axes.iter().map(counted).collect()
}

/// Where slices begin, and how long they are.
fn sliced(window: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<(Vec<u64>, Vec<u64>)> {
    let slices: Vec<Bound<'_, PyAny>> = match window.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![window.clone()],
    };
    let dots = slices.iter().filter(|one| one.cast::<PyEllipsis>().is_ok()).count();
    let given = slices.len() - dots;
    if dots > 1 || given > shape.len() {
        return Err(wrong(format!(
            "window was given with {given} slices, and the array has {} dimensions; give at most one for each, as in numpy.s_[10:40, 5:25]",
            shape.len()
        )));
    }
    let (mut first, mut extent) = (Vec::new(), Vec::new());
    let whole = |first: &mut Vec<u64>, extent: &mut Vec<u64>, count: usize| {
        for _ in 0..count {
            extent.push(shape[first.len()]);
            first.push(0);
        }
    };
    for one in &slices {
        if one.cast::<PyEllipsis>().is_ok() {
            whole(&mut first, &mut extent, shape.len() - given);
            continue;
        }
        let Ok(slice) = one.cast::<PySlice>() else {
            return Err(wrong_type(format!(
                "window was given with {} in it; give slices, as in numpy.s_[10:40, 5:25] (one row is 3:4)",
                described(one)
            )));
        };
        let len = isize::try_from(shape[first.len()])
            .map_err(|_| wrong("the dimension is too long for a slice"))?;
        let slice = slice.indices(len)?;
        if slice.step != 1 {
            return Err(wrong(format!(
                "window was given with a step of {}; only steps of 1 are moved",
                slice.step
            )));
        }
        first.push(slice.start as u64);
        extent.push(slice.slicelength as u64);
    }
    let rest = shape.len() - first.len();
    whole(&mut first, &mut extent, rest);
    Ok((first, extent))
}

/// True if every element of the destination is written.
pub fn fills(moving: &Move) -> bool {
    let window: u128 = moving.problem().shape().iter().map(|&extent| u128::from(extent)).product();
    window == u128::from(moving.to().distribution().elems())
}
