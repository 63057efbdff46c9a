//! Simulates the programs of all ranks in virtual time: which ranks wait for which, when each message leaves and arrives, and
//! whether all do.
//!
//! A [`Program`] has the operations of one thread of a rank: sends, receives and barriers in order. [`programs`] derives them
//! from a schedule; tests and users may write their own. [`run`] executes all of them on a [`Machine`] and returns a
//! [`Timeline`], or the [`Fault`] that kept them from ending: a deadlock, a message without its other end.
//!
//! | file | what it is |
//! |---|---|
//! | `program.rs` | the operations of each rank, and how they follow from a schedule |
//! | `network.rs` | which links a message crosses: flat switch, ring, torus, fat tree |
//! | `matched.rs` | matches sends with their receives |
//! | `engine.rs` | virtual time: messages that start, share links and end |
//! | `timeline.rs`, `fault.rs` | the result: times, or the reason why a run did not end |
//! | `stream.rs` | a million ranks, without a list of messages |
//!
//! The model. A message starts when its sender and its receiver have both come to it in their programs and both have a
//! port free; those that wait for a port take it in the order in which they became ready. Its start-up and packing take
//! the time of the [`CostModel`]. Then its elements flow: at full speed, unless it shares a
//! link. Each link divides its bandwidth equally among the messages that cross it, and a message moves at the least of
//! its shares. Both ports are busy until it is unpacked. Nothing is random; events at equal times are handled in the order of the
//! messages in the programs.

mod engine;
mod fault;
mod matched;
mod network;
mod program;
mod stream;
mod timeline;

pub use engine::run;
pub use fault::Fault;
pub use network::{Link, Network};
pub use program::{Op, Program, programs};
pub use stream::{Stream, Streamed};
pub use timeline::{Busy, Sent, Timeline};

use crate::cost::CostModel;
use crate::error::{Error, Result};
use crate::memory;
use crate::schedule::Schedule;
use std::collections::BTreeMap;

/// The machine that programs run on: the cost of messages, and the network.
///
/// ```
/// use reshard_plan::Problem;
/// use reshard_plan::schedule::{Schedule, Strategy};
/// use reshard_plan::simulate::{Machine, Network, simulate};
/// let problem = Problem::new("4/3 of 240".parse()?, "4/5 ranks=4..8 of 240".parse()?)?;
/// let schedule = Schedule::new(&problem, Strategy::Optimal)?;
/// let seconds = |network: Network| -> reshard_plan::Result<f64> {
///     let machine = Machine { network, ..Machine::default() };
///     Ok(simulate(&schedule, &machine, false)?.makespan())
/// };
/// // Eight ranks on a ring share its links.
/// assert!(seconds(Network::default())? <= seconds("ring".parse()?)?);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The cost of messages.
    pub cost: CostModel,
    /// The network. Rank k is node k: its senders and receivers share the node.
    pub network: Network,
}

/// Runs a schedule: all ranks' programs in virtual time, with a barrier after each step or without.
///
/// ```
/// use reshard_plan::{Pattern, Problem, one_period};
/// use reshard_plan::schedule::{Schedule, Strategy};
/// use reshard_plan::simulate::{Machine, simulate};
/// let (from, to): (Pattern, Pattern) = ("16/3".parse()?, "16/5".parse()?);
/// let shape = one_period(&from, &to)?;
/// let problem = Problem::new(from.over(&shape)?, to.over(&shape)?)?;
/// let schedule = Schedule::new(&problem, Strategy::Optimal)?;
/// let ring = Machine { network: "ring".parse()?, ..Machine::default() };
/// let (flat, ring) = (simulate(&schedule, &Machine::default(), false)?, simulate(&schedule, &ring, false)?);
/// assert_eq!(flat.messages().len(), 112);
/// assert!(ring.makespan() > flat.makespan());
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn simulate(schedule: &Schedule, machine: &Machine, barriers: bool) -> Result<Timeline> {
    check_waiting(schedule)?;
    Ok(run(&programs(schedule, &machine.cost, barriers)?, machine)?)
}

/// The most pairs of messages that wait at one port in one step: seconds of work.
const MAX_WAITING_PAIRS: u64 = 50_000_000;

/// Fails if in some step so many messages wait at one port that their simulation takes minutes.
fn check_waiting(schedule: &Schedule) -> Result<()> {
    for step in schedule.steps() {
        memory::check_tree::<u64, u64>(step.messages.len(), "the messages of a step by receiver")?;
        let mut arrivals: BTreeMap<u64, u64> = BTreeMap::new();
        step.messages.iter().for_each(|message| *arrivals.entry(message.to).or_default() += 1);
        if let Some((rank, waiting)) =
            arrivals.into_iter().find(|&(_, waiting)| waiting * waiting > MAX_WAITING_PAIRS)
        {
            return Err(Error::too_large(format!(
                "{waiting} messages arrive at rank {rank} in one step, which takes too long to simulate one by one; use a \
                 strategy of steps, such as optimal"
            )));
        }
    }
    Ok(())
}
