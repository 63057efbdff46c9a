//! What is refused of the parts of a run, in one sentence.

use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Result};

pub fn mismatch(message: String) -> Error {
    Error::new(ErrorKind::Mismatch, message)
}

pub fn check_count(side: &str, given: usize, expected: usize) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(mismatch(format!(
        "{} given for {}; give one for each rank, by ascending rank, empty ones \
         included",
        if given == 1 { format!("1 {side} part was") } else { format!("{given} {side} parts were") },
        counted(expected, &format!("{side} rank"))
    )))
}

pub fn check_length(side: &str, rank: u64, bytes: usize, span: u64, elem: u64) -> Result<()> {
    if u128::from(span) * u128::from(elem) <= bytes as u128 {
        return Ok(());
    }
    Err(mismatch(format!(
        "the {side} part of rank {rank} has {}, but its layout reaches over {span}; give at least as many",
        counted(bytes as u64 / elem, "element")
    )))
}
