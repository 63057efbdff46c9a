//! The environment variable `RESHARD_LEVEL`: the instruction set level of `reshard run` and `reshard bench`.

use crate::failure::Failure;
use reshard::engine::Level;

const VARIABLE: &str = "RESHARD_LEVEL";

/// The level that was asked for; `None` if the variable is not set, or empty. Whether the processor has it is checked where the
/// engine is made: under MPI by all ranks together, because their processors may differ.
pub fn from_environment() -> Result<Option<Level>, Failure> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let level = text.to_string_lossy().parse();
    level.map(Some).map_err(Failure::of_flag(VARIABLE))
}

/// Fails if the processor of this rank does not have the level.
pub fn check(level: Option<Level>) -> Result<(), Failure> {
    level.map_or(Ok(()), Level::check).map_err(Failure::of_flag(VARIABLE))
}

/// The name of the level in use.
pub fn name(level: Option<Level>) -> &'static str {
    level.unwrap_or_else(Level::best).name()
}
