//! Balances loads between neighbours of a ring of processes, in the least time.
//!
//! Each process of a ring holds some items and should hold others; items travel only between neighbours, over links that
//! may differ in speed. A [`RingProblem`] describes that, [`solve`] finds a [`Program`] (who sends how many items to which
//! neighbour, and when) with a lower bound on its time, and [`check`] replays any program. A [`RingPlan`] is a program and
//! the size of an item; engines run it on one slice for each process, with room for [`RingPlan::room`] items.
//!
//! | engine | how items travel | memory besides the items |
//! |---|---|---|
//! | [`RingThreads`] | copied straight from one process's memory into its neighbour's | none |
//! | [`RingMessages`] | in messages, a thread for each process | two message buffers for each process that sends |
//! | `MpiRing`, in `reshard-mpi` | in messages, each process a rank of MPI | two message buffers for each process that sends, two for each link it receives from |
//!
//! [`even_out`] plans and moves in one call:
//!
//! ```
//! use reshard_ring::{RingProblem, even_out};
//! let mut parts = [vec![1, 2, 3, 4, 5], vec![], vec![6]];
//! even_out(RingProblem::new(vec![5, 0, 1], vec![2, 2, 2])?.in_order()?, 1, &mut parts)?;
//! assert_eq!(parts, [[1, 2], [3, 4], [5, 6]]);
//! # Ok::<(), reshard_plan::Error>(())
//! ```
//!
//! [`Advisor`] says when the time of balancing is won back. `docs/rings.md` has the mathematics.

#![forbid(unsafe_code)]

mod engine;
mod solve;

pub use engine::{FragmentSize, RankProgress, Report, RingMessages, RingPlan, RingThreads, even_out};
pub use solve::{
    Advisor, Application, Direction, Method, Outcome, Policy, Program, RankProgram, RingProblem, Side,
    Solution, Step, Transfer, Verdict, balanced, check, paper_algorithm_3, solve, step_time, system_6,
    system_8,
};
