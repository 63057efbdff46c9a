//! Types of elements that ranks agree on: what each gave, as bytes from which it can be made again.

use crate::error::{OrRaise, wrong, wrong_type};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use reshard_mpi::communicator::Communicator;
use std::time::Duration;

/// A type of elements as bytes.
pub fn bytes_of(dtype: &Bound<'_, PyArrayDescr>) -> PyResult<Vec<u8>> {
    let pickled = dtype.py().import("pickle")?.call_method1("dumps", (dtype, 4))?;
    Ok(pickled.cast::<PyBytes>()?.as_bytes().to_vec())
}

fn made<'p>(py: Python<'p>, bytes: &[u8]) -> PyResult<Bound<'p, PyArrayDescr>> {
    let made = py.import("pickle")?.call_method1("loads", (PyBytes::new(py, bytes),))?;
    Ok(made.cast_into::<PyArrayDescr>()?)
}

/// What all ranks gave as types: empty of one that gave none. Collective.
pub fn gathered(
    py: Python<'_>,
    all: &Communicator,
    mine: &[u8],
    limit: Option<Duration>,
) -> PyResult<Vec<Vec<u8>>> {
    py.detach(|| all.gather_texts(mine, limit)).or_raise()
}

/// The type that ranks gave, if they gave one type.
pub fn common<'p>(py: Python<'p>, gathered: &[Vec<u8>]) -> PyResult<Bound<'p, PyArrayDescr>> {
    let mut known = gathered.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    let Some((first, bytes)) = known.next() else {
        return Err(wrong("no rank gave an array, so the type of elements is not known"));
    };
    let kind = made(py, bytes)?;
    for (rank, other) in known.filter(|(_, other)| *other != bytes) {
        let other = made(py, other)?;
        if !kind.is_equiv_to(&other) {
            return Err(wrong_type(format!(
                "rank {first} gave elements of type {kind} and rank {rank} of type {other}; give one type on all ranks"
            )));
        }
    }
    Ok(kind)
}
