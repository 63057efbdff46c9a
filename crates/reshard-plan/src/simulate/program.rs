//! The operations of each rank in order: made from schedules or by hand, and run by the engine.
//!
//! A rank may have several programs that run side by side and share its ports. A schedule gives every rank one that
//! sends and one that receives, since neither has to wait for the other; with more ports there are more of each.

use crate::cost::{CostModel, ports_used};
use crate::error::{Error, Result};
use crate::memory;
use crate::schedule::{Schedule, Strategy};
use std::collections::BTreeMap;

/// The most operations of all programs of a run, barriers included.
const MAX_OPS: u64 = 20_000_000;

/// The name of lists of operations in errors.
const OPS: &str = "the programs of all ranks";

/// One operation of a program. The next begins when this has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Sends `elems` elements, and waits until they have arrived: the send is synchronous.
    Send {
        /// The receiver.
        to: u64,
        /// Elements in the message.
        elems: u64,
    },
    /// Receives `elems` elements.
    Receive {
        /// The sender.
        from: u64,
        /// Elements in the message.
        elems: u64,
    },
    /// Waits until every program has come to its next barrier.
    Barrier,
}

/// Operations of one rank, one after the other. Sends from one rank to another meet its receives in the order in which
/// both are listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// The rank whose program this is.
    pub rank: u64,
    /// The operations in order.
    pub ops: Vec<Op>,
}

/// The program of a schedule that an operation belongs to: rank, sending before receiving, step of the round, and index among
/// the rank's messages of that step.
type Lane = (u64, bool, usize, usize);

/// The programs of a schedule: for each rank one that sends and one that receives, in the order of the steps, with a
/// barrier after each step or without. Where the machine has k ports, steps run k at a time, in k programs each way.
/// `eager` has as many sending programs as messages in flight, and without barriers it expects every message at once.
///
/// ```
/// use reshard_plan::{Pattern, Problem, one_period};
/// use reshard_plan::cost::CostModel;
/// use reshard_plan::schedule::{Schedule, Strategy};
/// use reshard_plan::simulate::{Op, programs};
/// let problem = Problem::new("2/1 of 4".parse()?, "2/2 of 4".parse()?)?;
/// let schedule = Schedule::new(&problem, Strategy::Optimal)?;
/// let programs = programs(&schedule, &CostModel::default(), false)?;
/// assert_eq!(programs.len(), 4); // two ranks send, two receive
/// assert_eq!((programs[0].rank, programs[0].ops.len()), (0, 2));
/// assert!(programs[0].ops.iter().all(|op| matches!(op, Op::Send { elems: 1, .. })));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn programs(schedule: &Schedule, cost: &CostModel, barriers: bool) -> Result<Vec<Program>> {
    let eager = schedule.options().strategy == Strategy::Eager;
    let together = ports_used(schedule, cost);
    let messages = schedule.steps().iter().map(|step| step.messages.len()).sum::<usize>();
    let mut placed: Vec<(Lane, usize, Op)> = memory::with_room(2 * messages, OPS)?;
    for (number, step) in schedule.steps().iter().enumerate() {
        let (round, lane) = (number / together, number % together);
        // Number of messages of this step that a rank has had already: several only with `eager`.
        let mut had: BTreeMap<(u64, bool), usize> = BTreeMap::new();
        if eager {
            memory::check_tree::<(u64, bool), usize>(2 * step.messages.len(), OPS)?;
        }
        let mut place = |rank, receiving, op| {
            let mut place = 0;
            if eager {
                let had = had.entry((rank, receiving)).or_insert(0);
                place = *had;
                *had += 1;
            }
            // Eager receivers without barriers accept messages in any order: every message is a program of its own.
            let lane = if eager && receiving && !barriers { number } else { lane };
            placed.push(((rank, receiving, lane, place), round, op));
        };
        for message in &step.messages {
            place(message.from, false, Op::Send { to: message.to, elems: message.elems });
            place(message.to, true, Op::Receive { from: message.from, elems: message.elems });
        }
    }
    let rounds = if barriers { schedule.steps().len().div_ceil(together) } else { 0 };
    // No lane has two operations in a round.
    placed.sort_unstable_by_key(|&(lane, round, _)| (lane, round));
    let lanes = || placed.chunk_by(|a, b| a.0 == b.0);
    let count = lanes().count();
    let ops = placed.len() as u64 + (count as u64).saturating_mul(rounds as u64);
    if ops > MAX_OPS {
        return Err(Error::too_large(format!(
            "the programs of all ranks have {ops} operations, and at most {MAX_OPS} are simulated one by one; \
             leave out the barriers or take fewer ranks"
        )));
    }
    let with_barriers = |ops: &[(Lane, usize, Op)]| -> Result<Vec<Op>> {
        let mut all = memory::with_room(ops.len() + rounds, OPS)?;
        let mut passed = 0;
        for &(_, round, op) in ops {
            if barriers {
                all.extend(std::iter::repeat_n(Op::Barrier, round - passed));
                passed = round;
            }
            all.push(op);
        }
        all.extend(std::iter::repeat_n(Op::Barrier, rounds - passed));
        Ok(all)
    };
    // Each program is a list of its own, with the allocator's overhead.
    memory::check(u128::from(ops) * size_of::<Op>() as u128 + count as u128 * 16, OPS)?;
    let mut programs = memory::with_room(count, OPS)?;
    for ops in lanes() {
        programs.push(Program { rank: ops[0].0.0, ops: with_barriers(ops)? });
    }
    Ok(programs)
}
