//! The program's commands as a user calls them, in one program: the compiler links it once. Those that launch MPI or couple jobs have programs of
//! their own, so that they do not run beside others.

mod advise;
mod files;
mod json;
mod memory;
mod pictures;
mod relabel;
mod replicated;
mod ring;
mod run;
mod schedule;
mod simulate;
mod tables;
mod usage;
mod wrong;
