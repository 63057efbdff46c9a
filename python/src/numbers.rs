//! Numbers given from Python: whole ones from 0 on, with an error that says what was given.

use crate::error::{wrong, wrong_type};
use crate::memory::described;
use pyo3::prelude::*;

/// A whole number from 0 on.
#[derive(Clone, Copy)]
pub struct Whole(pub u64);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        whole(&given.to_owned(), "a number").map(Self)
    }
}

/// A whole number from 0 on, called `what` in the error.
pub fn whole(given: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    if let Ok(number) = given.extract::<u64>() {
        return Ok(number);
    }
    let sentence = format!("{what} was given as {}; give a whole number from 0 on", shown(given));
    // A number all the same, but out of range.
    Err(if given.extract::<i128>().is_ok() { wrong(sentence) } else { wrong_type(sentence) })
}

pub fn optional(given: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<u64>> {
    given.map(|given| whole(given, what)).transpose()
}

/// As Python prints it, shortened.
pub fn shown(given: &Bound<'_, PyAny>) -> String {
    match given.repr() {
        Ok(text) if text.to_string().chars().count() <= 60 => text.to_string(),
        _ => described(given),
    }
}

pub fn numbers(all: &[Whole]) -> Vec<u64> {
    all.iter().map(|one| one.0).collect()
}
