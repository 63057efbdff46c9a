//! The planner of rings: how to balance loads between neighbours in the least time, after Renard, Robert and Vivien, *Data
//! redistribution algorithms for heterogeneous processor rings*. Pure: no I/O, no threads, no clock.
//!
//! A [`RingProblem`] says what each process of a ring holds and should hold, and what its links cost. [`solve`] finds a
//! [`Program`]: who sends how many items to which neighbour, in which order. [`check`] replays any program and compares its
//! time with the lower bound.
//!
//! | file | what it is |
//! |---|---|
//! | `problem.rs` | loads, targets and links of a ring, checked on construction |
//! | `program.rs` | the sends of all processes, as runs of items |
//! | `check.rs` | replays a program, independently of the solvers |
//! | `flow.rs` | the number of items over each link, and the lower bound of the time |
//! | `chains.rs` | flows as chains of links, which meet only at their ends |
//! | `closed.rs` | optimal programs by formula |
//! | `stream.rs` | every item as soon as possible, in runs: optimal in one direction, for any size |
//! | `events.rs` | discrete-event simulation with priorities, where the optimum is not known |
//! | `reverse.rs` | a ring with time running backwards, for the simulation |
//! | `exact.rs` | the optimum of tiny rings, by search |
//! | `record.rs` | gathers the items of `events.rs`, `exact.rs` and `paper.rs` into runs |
//! | `paper.rs` | Algorithm 3 as printed, to show where it fails |
//! | `solution.rs` | chooses the solver, and keeps what is known about its program |
//! | `advisor.rs` | when redistributing wins time |
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
