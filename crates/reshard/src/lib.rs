//! Moves a distributed array from any layout to any other, at the speed of memory.
//!
//! Describe two layouts, plan once, run any number of times:
//!
//! ```
//! use reshard::{Layout, Move, Redistribution, redistribute};
//! let from: Layout = "2x2/2x2 of 6x4".parse()?; // a 2 x 2 grid of ranks, blocks of 2 x 2, a 6 x 4 matrix
//! let to: Layout = "3x1/1x4 of 6x4".parse()?;
//! let parts = from.parts(|index| (10 * index[0] + index[1]) as f64)?; // one part for each rank
//! let mut moved = to.parts(|_| 0.0)?;
//! redistribute(&from, &parts, &to, &mut moved)?; // once
//! assert_eq!(*to.get(&moved, &[5, 3])?, 53.0);
//! let mut again = Redistribution::new(Move::of::<f64>(from, to)?)?; // planned once,
//! again.run(&parts, &mut moved)?; // run often, without allocating
//! # Ok::<(), reshard::Error>(())
//! ```
//!
//! [`Layout`] says which rank owns which element, and where in its memory; [`Window`], [`Triangle`] and [`Move`] what goes where;
//! [`Redistribution`] keeps plan, threads and memory for the next run: a [`Plan`] and one of the engines in [`engine`]. The planner's
//! other types are in its modules: [`schedule`], [`simulate`], [`relabel`], ... Elements are plain data of any type ([`bytemuck::Pod`]);
//! for a type of your own, depend on bytemuck with its feature `derive` and
//! `#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]`. Features: `serde` (layouts, moves, plans and reports to and from any format,
//! schedules to it) and `ndarray` (whole arrays into their parts and back).

#![forbid(unsafe_code)]

mod element;
pub mod engine;
mod level;
#[cfg(feature = "ndarray")]
pub mod ndarray;
mod program;
#[doc(hidden)]
pub mod rank;
mod redistribution;

pub use element::ElementType;
pub use redistribution::{Pair, Parts, Redistribution, redistribute};
pub use reshard_kernel::Number;
pub use reshard_plan::{Error, ErrorKind, Layout, MemoryOrder, Move, Plan, Result, Triangle, Window};

// One level down: the planner, module by module.
pub use reshard_plan::{
    advise, axis, classes, cost, distribution, error, grid, layout, notation, overlap, plan, problem,
    quotient, relabel, schedule, simulate, track, traffic, triangle,
};

// Their types stand in signatures: to be named in the version that fits.
pub use {bytemuck, num_complex};

/// Parts of arrays on huge pages.
pub mod memory {
    pub use reshard_kernel::memory::{Memory, use_huge_pages};
}
