//! Sets of files through the library, one program, which is linked once: converted, loaded, saved, imported, damaged, read and written by NumPy,
//! and by several ranks.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod access;
#[cfg(feature = "mpi")]
mod collective;
mod convert;
mod damage;
mod folder;
mod import;
mod kept;
mod load;
mod meanwhile;
mod python;
mod tensors;
