//! The parts that a run is given: those of all ranks as a list, or that of this rank, and whether they can be written at once.

use crate::error::{wrong, wrong_type};
use crate::memory::{Memory, Role, described};
use numpy::PyUntypedArray;
use pyo3::prelude::*;

/// The parts of all ranks: a sequence, or the only one.
pub fn listed<'p>(
    given: &Bound<'p, PyAny>,
    ranks: usize,
    name: &str,
    side: &str,
) -> PyResult<Vec<Bound<'p, PyAny>>> {
    let is_one = given.cast::<PyUntypedArray>().is_ok();
    if is_one && ranks == 1 {
        return Ok(vec![given.clone()]);
    }
    let wanted = format!(
        "without a communicator {name} is the list of the {side} parts of all {} ranks, in the order of the ranks",
        ranks
    );
    let parts: Vec<Bound<'p, PyAny>> = match given.extract() {
        Ok(parts) if !is_one => parts,
        _ => return Err(wrong_type(format!("{name} was given as {}; {wanted}", described(given)))),
    };
    match parts.len() == ranks {
        true => Ok(parts),
        false => Err(wrong(format!("{name} was given as a list of {}; {wanted}", parts.len()))),
    }
}

/// The part of this rank; none if it has none.
pub fn own_part(given: &Bound<'_, PyAny>, has: bool, role: Role) -> PyResult<Option<Memory>> {
    match (has, given.is_none()) {
        (true, true) => Err(wrong_type(format!(
            "{role} was given as None, and this rank has one under the layout; give its array"
        ))),
        (true, false) => Memory::of(given, role).map(Some),
        (false, true) => Ok(None),
        (false, false) if Memory::of(given, role)?.shape.contains(&0) => Ok(None),
        (false, false) => {
            Err(wrong(format!("{role} was given, and this rank has none under the layout; give None")))
        }
    }
}

/// Fails if two destinations have elements in common. Those whose memory interleaves are asked one by one.
pub fn check_apart(py: Python<'_>, targets: &[Memory]) -> PyResult<()> {
    let mut spans: Vec<(usize, usize, usize)> = targets
        .iter()
        .enumerate()
        .map(|(number, memory)| (memory.span(), number))
        .filter(|((begin, end), _)| begin < end)
        .map(|((begin, end), number)| (begin, end, number))
        .collect();
    spans.sort_unstable();
    for (place, &(_, end, one)) in spans.iter().enumerate() {
        for &(_, _, other) in spans[place + 1..].iter().take_while(|(begin, _, _)| *begin < end) {
            if targets[one].shares(py, &targets[other])? {
                let (one, other) = (one.min(other), one.max(other));
                return Err(wrong(format!(
                    "the destination parts {one} and {other}, counted from 0, have memory in common; give each memory of its own"
                )));
            }
        }
    }
    Ok(())
}
