//! The planner of rings: how to balance loads between neighbours in the least time, after Renard, Robert and Vivien, *Data
//! redistribution algorithms for heterogeneous processor rings*. Pure: no I/O, no threads, no clock.
//!
//! A [`RingProblem`] says what each process of a ring holds and should hold, and what its links cost. [`solve`] finds a
//! [`Program`]: who sends how many items to which neighbour, in which order. [`check`] replays any program and says what it
//! is worth.
//!
//! | file | what it is |
//! |---|---|
//! | `problem.rs` | what is asked, checked at the door |
//! | `program.rs` | what all processes do, in runs of items |
//! | `check.rs` | whether a program does what it says, knowing nothing of how it was found |
//! | `flow.rs` | how many items cross each link, and the time nobody can beat |
//! | `chains.rs` | flows as rows of links, which meet only at their ends |
//! | `closed.rs` | optimal programs by formula |
//! | `stream.rs` | as soon as possible, in runs: optimal in one direction, for any size |
//! | `events.rs` | item by item in virtual time, by priorities, where nobody knows the optimum |
//! | `reverse.rs` | the same with time running backwards |
//! | `exact.rs` | the optimum of tiny rings, by search; `record.rs` gathers items into runs for both |
//! | `paper.rs` | Algorithm 3 as printed, to show where it fails |
//! | `solution.rs` | which of these to ask, and what is known of the answer |
//! | `advisor.rs` | when redistributing is worth it |
//!
//! `docs/rings.md` has the mathematics, and where the paper had to be repaired.

mod advisor;
mod chains;
mod check;
mod closed;
mod events;
mod exact;
mod flow;
mod paper;
mod problem;
mod program;
mod record;
mod reverse;
mod solution;
mod stream;

pub use advisor::{Advisor, Application, Outcome, Policy, balanced, step_time};
pub use check::{Verdict, check};
pub use flow::{system_6, system_8};
pub use paper::paper_algorithm_3;
pub use problem::{Direction, RingProblem, Side};
pub use program::{Program, RankProgram, Step, Transfer};
pub use solution::{Method, Solution, solve};
