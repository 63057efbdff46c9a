//! What happens to sets of files when something goes wrong: the program is killed, or the system says no, at any of its calls; two write
//! at once; what is read comes from a stranger.
//!
//! Calls go wrong by `faults.c`, a tracer that is compiled here. Where there is no C compiler, or no process may trace another, its tests are
//! left out with a sentence, unless RESHARD_NEEDS_COMPILERS says that compilers must be here.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod arguments;
mod crashes;
mod errors;
mod flips;
mod folder;
mod hostile;
mod limits;
mod ranks;
mod recipe;
mod tensors;
mod two;
