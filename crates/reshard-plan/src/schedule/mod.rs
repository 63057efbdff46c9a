//! Schedules: the step of each message.
//!
//! A [`Schedule`] orders the messages of a redistribution into steps in which each process sends at most one message
//! and receives at most one. It has lower bounds for steps and cost, says whether it reaches them, and can check
//! itself. Strategies are a closed set, one in each file:
//!
//! | strategy | file | what it aims at |
//! |---|---|---|
//! | `optimal` | `closed_form.rs` (with `core.rs`), `colouring.rs` | fewest steps, always; by formula where there is one |
//! | `classes` | `closed_form.rs` | class by class: fewest steps, and least cost over whole periods, where the classes allow it |
//! | `stepwise`, `greedy` | `matching.rs` | heaviest matchings first, with the fewest steps or any number |
//! | `min-cost` | `min_cost.rs` (with `flow.rs`, `certificate.rs`) | least of alpha steps + beta cost, with a proof of how near |
//! | `split` | `split.rs` | least total cost of all, by cutting messages |
//! | `async` | `list.rs` | least time without barriers |
//! | `caterpillar`, `walker-otto`, `eager` | `classic.rs` | schedules of other libraries, for comparison |
//!
//! All are deterministic: every rank computes the same schedule. The cost of a step is the load of its busiest
//! port: the longest message, where each port has one.

mod certificate;
mod classic;
mod closed_form;
mod colouring;
mod core;
mod flow;
pub(crate) mod graph;
mod list;
mod matching;
mod min_cost;
mod split;

pub use closed_form::ClosedForm;

use crate::error::{Error, Result};
use crate::memory;
use crate::problem::Problem;
use crate::traffic::Message;
use graph::Graph;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The strategy by which messages are ordered.
///
/// ```
/// use reshard_plan::Problem;
/// use reshard_plan::schedule::{Options, Schedule, Strategy};
/// let problem = Problem::new("4/3 of 240".parse()?, "5/4 ranks=4..9 of 240".parse()?)?;
/// let steps = |strategy: &str| -> reshard_plan::Result<u64> {
///     let options = Options::default().with_strategy(strategy.parse::<Strategy>()?);
///     Ok(Schedule::with(&problem, &options)?.num_steps())
/// };
/// assert!(steps("optimal")? <= steps("caterpillar")?);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The fewest steps, for any layouts.
    #[default]
    Optimal,
    /// Class by class, where `gcd(r, Q) = gcd(s, P) = 1`: fewest steps, and least cost if the array is whole periods.
    Classes,
    /// Repeatedly the heaviest matching that keeps the number of steps least.
    Stepwise,
    /// Repeatedly the heaviest matching.
    Greedy,
    /// The least of `alpha * steps + beta * cost`, nearly always, with a proof of how near.
    MinCost,
    /// Messages may be cut: the total cost is the load of the busiest process.
    Split,
    /// No barriers: each message starts when both ends are free.
    Async,
    /// ScaLAPACK's rolling exchange: process i sends to process i - d in step d.
    Caterpillar,
    /// Walker and Otto's schedule for equal grids, one block a multiple of the other.
    WalkerOtto,
    /// All messages at once, with a limited number in flight from each sender.
    Eager,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 10] = [
        Self::Optimal,
        Self::Classes,
        Self::Stepwise,
        Self::Greedy,
        Self::MinCost,
        Self::Split,
        Self::Async,
        Self::Caterpillar,
        Self::WalkerOtto,
        Self::Eager,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimal => "optimal",
            Self::Classes => "classes",
            Self::Stepwise => "stepwise",
            Self::Greedy => "greedy",
            Self::MinCost => "min-cost",
            Self::Split => "split",
            Self::Async => "async",
            Self::Caterpillar => "caterpillar",
            Self::WalkerOtto => "walker-otto",
            Self::Eager => "eager",
        }
    }

    /// True if messages travel whole, in steps of at most one for each port: then the bounds of steps apply.
    fn keeps_steps(self) -> bool {
        !matches!(self, Self::Split | Self::Async | Self::Eager)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|strategy| strategy.name()).collect();
            Error::mismatch(format!("the strategy {text:?} is not known; choose one of {}", names.join(", ")))
        })
    }
}

/// The options of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The strategy by which messages are ordered.
    pub strategy: Strategy,
    /// True if rank k is one process on both sides: elements that stay on it are a copy, not a message.
    pub shared_ranks: bool,
    /// For `eager`: messages in flight from each sender.
    pub in_flight: u64,
    /// For `min-cost`: the fixed cost of a step.
    pub alpha: u64,
    /// For `min-cost`: the cost of each element of a step's longest message.
    pub beta: u64,
    /// For `min-cost`: the most steps.
    pub most_steps: Option<u64>,
}

impl Options {
    /// Sets the strategy by which messages are ordered.
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// Sets whether rank k is one process on both sides.
    #[must_use]
    pub fn with_shared_ranks(self, shared_ranks: bool) -> Self {
        Self { shared_ranks, ..self }
    }

    /// Sets the messages in flight from each sender, for `eager`.
    #[must_use]
    pub fn with_in_flight(self, in_flight: u64) -> Self {
        Self { in_flight, ..self }
    }

    /// Sets the cost of a step, for `min-cost`.
    #[must_use]
    pub fn with_alpha(self, alpha: u64) -> Self {
        Self { alpha, ..self }
    }

    /// Sets the cost of each element of a step's longest message, for `min-cost`.
    #[must_use]
    pub fn with_beta(self, beta: u64) -> Self {
        Self { beta, ..self }
    }

    /// Sets the most steps, for `min-cost`.
    #[must_use]
    pub fn with_most_steps(self, most_steps: impl Into<Option<u64>>) -> Self {
        Self { most_steps: most_steps.into(), ..self }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strategy: Strategy::Optimal,
            shared_ranks: false,
            in_flight: 8,
            alpha: 1,
            beta: 1,
            most_steps: None,
        }
    }
}

/// One step: messages that travel together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Elements the busiest port sends or receives: the longest message where each has one.
    pub cost: u64,
    /// The messages of the step, by sender.
    pub messages: Vec<Message>,
}

/// The messages of a redistribution in steps.
///
/// ```
/// use reshard_plan::{Pattern, Problem, one_period};
/// use reshard_plan::schedule::{Schedule, Strategy};
/// // Example 1 of Desprez et al.
/// let (from, to): (Pattern, Pattern) = ("16/3".parse()?, "16/5".parse()?);
/// let shape = one_period(&from, &to)?;
/// let problem = Problem::new(from.over(&shape)?, to.over(&shape)?)?;
/// let schedule = Schedule::new(&problem, Strategy::Optimal)?;
/// assert_eq!((schedule.num_steps(), schedule.total_cost()), (7, 15));
/// assert_eq!((schedule.optimal_steps(), schedule.optimal_cost()), (Some(true), Some(true)));
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    options: Options,
    steps: Vec<Step>,
    total_cost: u128,
    bound_steps: u64,
    bound_cost: u128,
    bound_price: u128,
    /// True if a cheaper schedule is known.
    beaten: bool,
}

/// The price `alpha * steps + beta * cost`; costs of the longest arrays do not fit into 64 bits, and prices saturate at 128.
fn price(options: &Options, steps: u64, cost: u128) -> u128 {
    let of_steps = u128::from(options.alpha) * u128::from(steps);
    of_steps.saturating_add(u128::from(options.beta).saturating_mul(cost))
}

/// The name of a list of steps, one for each message, in errors.
const STEPS: &str = "the steps of all messages";

fn total(steps: &[Step]) -> u128 {
    steps.iter().map(|step| u128::from(step.cost)).sum()
}

impl Schedule {
    /// Makes a schedule for a problem whose two grids count as distinct processes.
    pub fn new(problem: &Problem, strategy: Strategy) -> Result<Self> {
        Self::with(problem, &Options::default().with_strategy(strategy))
    }

    /// Makes a schedule with options.
    pub fn with(problem: &Problem, options: &Options) -> Result<Self> {
        let graph = Graph::new(problem, options.shared_ranks)?;
        let steps = match options.strategy {
            Strategy::Optimal => by_step(&graph, &optimal(problem, &graph, options)?)?,
            Strategy::Classes => by_step(&graph, &classes(problem, &graph, options)?)?,
            Strategy::Stepwise => by_step(&graph, &matching::stepwise(&graph)?)?,
            Strategy::Greedy => by_step(&graph, &matching::greedy(&graph)?)?,
            Strategy::Caterpillar => by_step(&graph, &classic::caterpillar(&graph)?)?,
            Strategy::WalkerOtto => by_step(&graph, &classic::walker_otto(problem, &graph)?)?,
            Strategy::Eager => by_step(&graph, &classic::eager(&graph, options.in_flight)?)?,
            Strategy::MinCost => {
                let found = min_cost::solve(problem, &graph, options)?;
                let steps = by_step(&graph, &found.steps)?;
                let cost = total(&steps);
                let mut schedule = Self::bounded(options, &graph, steps, cost)?;
                schedule.bound_cost = schedule.bound_cost.max(found.bound_cost);
                schedule.bound_price = schedule.bound_price.max(found.bound_price);
                return Ok(schedule);
            }
            Strategy::Split => split::steps(&graph)?,
            Strategy::Async => {
                let mut orders = vec![optimal(problem, &graph, options)?];
                // Matchings are used only where they take little time.
                if graph.senders.len().max(graph.receivers.len()) <= 64 {
                    orders.push(matching::stepwise(&graph)?);
                }
                let (steps, makespan) = list::steps(&graph, &orders)?;
                return Self::bounded(options, &graph, steps, makespan.into());
            }
        };
        let cost = total(&steps);
        let steps = if options.strategy == Strategy::Caterpillar { padded(steps, &graph)? } else { steps };
        Self::bounded(options, &graph, steps, cost)
    }

    fn bounded(options: &Options, graph: &Graph, steps: Vec<Step>, total_cost: u128) -> Result<Self> {
        let bound_steps = match options.strategy {
            Strategy::Eager => graph.max_sent()?.div_ceil(options.in_flight.max(1)),
            _ => graph.max_degree()?,
        };
        let bound_cost =
            if options.strategy.keeps_steps() { graph.cost_bound()? } else { graph.max_load()?.into() };
        let bound_price = price(options, bound_steps, bound_cost);
        Ok(Self { options: *options, steps, total_cost, bound_steps, bound_cost, bound_price, beaten: false })
    }

    /// Improves what is known about the cost of this schedule: with a bound that takes longer to find, and with a cheaper
    /// schedule if one is known. `by` must belong to this problem and this value of `shared_ranks`.
    #[must_use]
    pub fn judged(mut self, by: &Judgement) -> Self {
        if self.options.strategy.keeps_steps() {
            self.bound_cost = self.bound_cost.max(by.bound_cost);
            // A limit on the steps may forbid the cheaper schedule.
            self.beaten = by.known_cost < self.total_cost && self.options.most_steps.is_none();
        }
        self
    }

    /// The price `alpha * steps + beta * cost`, with the options' values.
    pub fn price(&self) -> u128 {
        price(&self.options, self.num_steps(), self.total_cost)
    }

    /// Lower bound of the price of any schedule of this kind.
    pub fn bound_price(&self) -> u128 {
        self.bound_price
    }

    /// The options by which the schedule was made.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The steps, in order. The steps of `async` are the times at which messages start.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// NS: the number of steps, empty ones included.
    pub fn num_steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// TC: the sum of the steps' costs, in elements; for `async` the time of the last arrival.
    pub fn total_cost(&self) -> u128 {
        self.total_cost
    }

    /// Lower bound of the number of steps of any schedule of this kind.
    pub fn bound_steps(&self) -> u64 {
        self.bound_steps
    }

    /// Lower bound of the cost of any schedule of this kind.
    pub fn bound_cost(&self) -> u128 {
        self.bound_cost
    }

    /// True if no schedule has fewer steps; `None` for strategies that do not count steps.
    pub fn optimal_steps(&self) -> Option<bool> {
        match self.options.strategy {
            Strategy::Async | Strategy::Split => None,
            _ => Some(self.num_steps() == self.bound_steps),
        }
    }

    /// Says whether no schedule costs less (for `min-cost` with a limit: none within it): true if the bound is reached, false
    /// if a cheaper one is known (see [`judged`](Self::judged)), `None` if neither is proven.
    pub fn optimal_cost(&self) -> Option<bool> {
        match self.total_cost == self.bound_cost {
            true => Some(true),
            false => self.beaten.then_some(false),
        }
    }

    /// Checks the schedule against the problem: every message there, whole, once (cut ones in parts that add up), and
    /// no port used twice in a step.
    pub fn check(&self, problem: &Problem) -> Result<()> {
        let graph = Graph::new(problem, self.options.shared_ranks)?;
        memory::check_tree::<(u64, u64), u64>(graph.edges.len(), "all messages by their ends")?;
        let mut owed: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for edge in &graph.edges {
            let message = graph.message(edge);
            owed.insert((message.from, message.to), message.elems);
        }
        let may_cut = self.options.strategy == Strategy::Split;
        let (most_sent, most_received) = match self.options.strategy {
            Strategy::Eager => (self.options.in_flight, u64::MAX),
            _ => (1, 1),
        };
        for (number, step) in self.steps.iter().enumerate() {
            let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
            for message in &step.messages {
                let fault = |what: &str| {
                    let Message { from, to, elems } = message;
                    Err(Error::mismatch(format!(
                        "step {number}, {elems} elements from {from} to {to}: {what}"
                    )))
                };
                let Some(left) = owed.get_mut(&(message.from, message.to)) else {
                    return fault("no such message is owed");
                };
                if message.elems == 0 || message.elems > *left || (!may_cut && message.elems < *left) {
                    return fault(&format!("{left} are owed"));
                }
                *left -= message.elems;
                for (ports, rank, most) in
                    [(&mut sent, message.from, most_sent), (&mut received, message.to, most_received)]
                {
                    let used = ports.entry(rank).or_insert(0_u64);
                    *used += 1;
                    if *used > most {
                        return fault(&format!("rank {rank} is busy in this step already"));
                    }
                }
            }
        }
        match owed.into_iter().find(|&(_, left)| left > 0) {
            Some(((from, to), left)) => {
                Err(Error::mismatch(format!("{left} elements from {from} to {to} are never sent")))
            }
            None => Ok(()),
        }
    }
}

/// Bounds of the total cost of any schedule of a problem: a lower bound, and the cost of the best known schedule. Finding them
/// takes longer than making most schedules, and serves for all schedules of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    bound_cost: u128,
    known_cost: u128,
}

impl Judgement {
    /// Finds the bounds of a problem; an error if it is too large for that.
    pub fn new(problem: &Problem, shared_ranks: bool) -> Result<Self> {
        let graph = Graph::new(problem, shared_ranks)?;
        let options = Options::default().with_alpha(0).with_beta(1).with_shared_ranks(shared_ranks);
        let found = min_cost::solve(problem, &graph, &options)?;
        Ok(Self { bound_cost: found.bound_cost, known_cost: total(&by_step(&graph, &found.steps)?) })
    }
}

/// The messages that one rank sends and receives, with the step of each, earliest first: the schedule `optimal` of grids of
/// any size, computed by the rank alone. `None` where there is no closed form with the fewest steps; use a [`Schedule`] of
/// all ranks there.
///
/// ```
/// use reshard_plan::{Problem, schedule};
/// let problem = Problem::new("1000000/8 of 200000000".parse()?, "1000000/25 of 200000000".parse()?)?;
/// let mine = schedule::of_rank(&problem, 123_456)?.unwrap();
/// assert_eq!(mine.len(), 50 + 32); // what it sends and what it receives
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn of_rank(problem: &Problem, rank: u64) -> Result<Option<Vec<(u64, Message)>>> {
    let form = ClosedForm::new(problem)?.filter(ClosedForm::is_optimal);
    form.map(|form| form.of_rank(problem, rank)).transpose()
}

/// The steps of all messages: by the closed form where it exists and is optimal, else by edge colouring.
fn optimal(problem: &Problem, graph: &Graph, options: &Options) -> Result<Vec<u64>> {
    if !options.shared_ranks
        && let Some(form) = ClosedForm::new(problem)?.filter(ClosedForm::is_optimal)
    {
        return by_formula(problem, graph, &form);
    }
    colouring::colour(graph)
}

fn classes(problem: &Problem, graph: &Graph, options: &Options) -> Result<Vec<u64>> {
    let form = ClosedForm::new(problem)?.filter(|form| form.is_by_classes() && !options.shared_ranks);
    let form = form.ok_or_else(|| {
        Error::unsupported(
            "classes can be sent one by one only between block-cyclic grids of distinct processes, of at least one \
             period, where r and Q, and s and P, have no common factor; use the strategy optimal",
        )
    })?;
    by_formula(problem, graph, &form)
}

fn by_formula(problem: &Problem, graph: &Graph, form: &ClosedForm) -> Result<Vec<u64>> {
    let coords = |grid: &crate::grid::Grid, ranks: &[u64]| -> Result<Vec<Vec<u64>>> {
        const WHAT: &str = "the coordinates of all ranks";
        // A list for each rank, with the allocator's overhead.
        memory::check(ranks.len() as u128 * (32 + 8 * grid.dims() as u128), WHAT)?;
        let of = |&rank: &u64| grid.coords(rank).expect("ranks of this grid");
        memory::listed(ranks.iter().map(of), WHAT)
    };
    let senders = coords(problem.from().grid(), &graph.senders)?;
    let receivers = coords(problem.to().grid(), &graph.receivers)?;
    let step = |edge: &graph::Edge| form.step(&senders[edge.sender], &receivers[edge.receiver]);
    let steps = graph.edges.iter().map(|edge| step(edge).expect("the form has a step for every message"));
    memory::listed(steps, STEPS)
}

/// Groups edges by their step.
fn by_step(graph: &Graph, steps: &[u64]) -> Result<Vec<Step>> {
    let count = steps.iter().max().map_or(0, |&last| last as usize + 1);
    let mut sizes = memory::filled(0_usize, count, STEPS)?;
    steps.iter().for_each(|&step| sizes[step as usize] += 1);
    let mut grouped = memory::filled(Step::default(), count, STEPS)?;
    memory::check(graph.edges.len() as u128 * size_of::<Message>() as u128, "the messages of all steps")?;
    for (step, size) in grouped.iter_mut().zip(sizes) {
        memory::reserve(&mut step.messages, size, "the messages of a step")?;
    }
    for (edge, &step) in graph.edges.iter().zip(steps) {
        grouped[step as usize].messages.push(graph.message(edge));
    }
    for step in &mut grouped {
        step.cost = busiest_port(&step.messages)?;
    }
    Ok(grouped)
}

/// Appends the empty steps of the caterpillar: it has all its steps, whether or not any process sends.
fn padded(mut steps: Vec<Step>, graph: &Graph) -> Result<Vec<Step>> {
    let count = graph.senders.len().max(graph.receivers.len());
    let more = count.saturating_sub(steps.len());
    memory::reserve(&mut steps, more, STEPS)?;
    steps.resize(count, Step::default());
    Ok(steps)
}

fn busiest_port(messages: &[Message]) -> Result<u64> {
    memory::check_tree::<[u64; 2], [u64; 2]>(messages.len(), "the loads of all ports")?;
    let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
    for message in messages {
        *sent.entry(message.from).or_insert(0) += message.elems;
        *received.entry(message.to).or_insert(0) += message.elems;
    }
    Ok(sent.into_values().chain(received.into_values()).max().unwrap_or(0))
}
