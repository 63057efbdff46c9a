//! Predicts the time of a schedule in seconds, before anything is simulated or sent.
//!
//! Schedules count in steps and elements; a machine counts in seconds. A [`CostModel`] gives the time of a message on a
//! given machine, and [`predict`] adds these times up by the rule of the schedule's strategy. It models ports only: a
//! network whose links are shared can only be slower, and `simulate` computes by how much.

use crate::error::{Error, Result};
use crate::schedule::{Options, Schedule, Strategy};
use crate::traffic::Message;
use std::collections::BTreeMap;

/// The largest cost in seconds: thirty years.
const MAX_SECONDS: f64 = 1e9;

/// The cost of messages on a machine.
///
/// A message of m elements keeps the sender's and the receiver's port busy for `alpha + (beta + 2 pack) m` seconds:
/// start-up, transfer, packing at one end and unpacking at the other, none of which overlap. An element is whatever the
/// arrays hold; `beta` and `pack` are seconds for one of them.
///
/// The default is a cluster of today in round numbers: 2 microseconds to start a message, elements of 8 bytes at 10
/// gigabytes a second, one port for sending and one for receiving. Packing and barriers are free, as in the papers,
/// which time the exchange alone.
///
/// ```
/// use reshard_plan::cost::CostModel;
/// let slow = CostModel::new(1e-4, 1e-7)?.with_pack(1e-8)?;
/// assert_eq!(slow.message(0), 1e-4);
/// assert!((slow.message(1000) - 2.2e-4).abs() < 1e-12);
/// assert!(CostModel::new(-1.0, 0.0).is_err());
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    alpha: f64,
    beta: f64,
    pack: f64,
    barrier: f64,
    ports: u64,
    duplex: Duplex,
}

/// Says whether a process can send while it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Duplex {
    /// A process can send while it receives: it has separate ports for both.
    #[default]
    Full,
    /// A process cannot send while it receives: each port does one at a time.
    Half,
}

impl Default for CostModel {
    fn default() -> Self {
        Self { alpha: 2e-6, beta: 0.8e-9, pack: 0.0, barrier: 0.0, ports: 1, duplex: Duplex::Full }
    }
}

impl CostModel {
    /// A model from the seconds to start a message and the seconds for each element; everything else is the default.
    pub fn new(alpha: f64, beta: f64) -> Result<Self> {
        let (alpha, beta) =
            (seconds("the start-up time alpha", alpha)?, seconds("the time beta for an element", beta)?);
        Ok(Self { alpha, beta, ..Self::default() })
    }

    /// Sets the seconds to pack an element; unpacking takes as long.
    pub fn with_pack(self, pack: f64) -> Result<Self> {
        Ok(Self { pack: seconds("the time to pack an element", pack)?, ..self })
    }

    /// Sets the seconds for each barrier, for schedules that run with barriers.
    pub fn with_barrier(self, barrier: f64) -> Result<Self> {
        Ok(Self { barrier: seconds("the time for a barrier", barrier)?, ..self })
    }

    /// Sets the number of messages that a process can send at a time, each at full speed, and receive at a time. A schedule
    /// then runs as many of its steps together.
    pub fn with_ports(self, ports: u64) -> Result<Self> {
        match ports {
            0 => {
                Err(Error::out_of_range("a process was given 0 ports; it needs at least 1 to send anything"))
            }
            _ => Ok(Self { ports, ..self }),
        }
    }

    /// Sets whether a process can send while it receives.
    #[must_use]
    pub fn with_duplex(self, duplex: Duplex) -> Self {
        Self { duplex, ..self }
    }

    /// Seconds to start a message.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Seconds to transfer an element.
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Seconds to pack an element; unpacking takes as long.
    pub fn pack(&self) -> f64 {
        self.pack
    }

    /// Seconds for a barrier.
    pub fn barrier(&self) -> f64 {
        self.barrier
    }

    /// Messages that a process can send, or receive, at a time.
    pub fn ports(&self) -> u64 {
        self.ports
    }

    /// Says whether a process can send while it receives.
    pub fn duplex(&self) -> Duplex {
        self.duplex
    }

    /// The weights of this model for the strategy `min-cost`, which weighs in whole numbers: an element is 1, and the start-up time as many
    /// elements as are transferred meanwhile.
    #[must_use]
    pub fn weigh(&self, options: Options) -> Options {
        let of_element = self.beta + 2.0 * self.pack;
        if of_element > 0.0 {
            let alpha = (self.alpha / of_element).round().clamp(0.0, 1e12) as u64;
            return options.with_alpha(alpha).with_beta(1);
        }
        options.with_alpha(1).with_beta(0)
    }

    /// Seconds that a message of `elems` elements takes on its own.
    pub fn message(&self, elems: u64) -> f64 {
        self.port(1, elems)
    }

    /// Seconds that a port is busy with `messages` messages of `elems` elements together.
    pub(crate) fn port(&self, messages: u64, elems: u64) -> f64 {
        self.alpha * messages as f64 + (self.beta + 2.0 * self.pack) * elems as f64
    }

    /// Lower bound of the time of these messages: the time of the busiest process's ports, at least `beta` times its load W.
    ///
    /// ```
    /// use reshard_plan::{Message, cost::CostModel};
    /// let sent = [(0, 1, 10), (0, 2, 20), (3, 1, 5)].map(|(from, to, elems)| Message { from, to, elems });
    /// assert_eq!(CostModel::new(1.0, 2.0)?.bound(&sent), 2.0 * 1.0 + 30.0 * 2.0); // rank 0 sends 2 messages
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn bound<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> f64 {
        let mut ports = PortLoads::new(self);
        messages.into_iter().for_each(|message| ports.add(message));
        ports.busiest().map_or(0.0, |load| self.load_seconds(load))
    }

    /// Seconds that the ports of a process need for a load, used in parallel.
    fn load_seconds(&self, load: &Load) -> f64 {
        if load.messages <= self.ports {
            return self.message(load.longest);
        }
        (self.port(load.messages, load.elems) / self.ports as f64).max(self.message(load.longest))
    }
}

fn seconds(what: &str, value: f64) -> Result<f64> {
    if (0.0..=MAX_SECONDS).contains(&value) {
        return Ok(value);
    }
    Err(Error::out_of_range(format!("{what} was given as {value}; it must be from 0 to 1e9 seconds")))
}

/// The load of a process's ports.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    messages: u64,
    elems: u64,
    longest: u64,
}

/// The loads of all processes, with sending and receiving separate or together.
struct PortLoads<'a> {
    cost: &'a CostModel,
    loads: BTreeMap<(u64, bool), Load>,
}

impl<'a> PortLoads<'a> {
    fn new(cost: &'a CostModel) -> Self {
        Self { cost, loads: BTreeMap::new() }
    }

    fn add(&mut self, message: &Message) {
        for port in ports_of(message, self.cost.duplex) {
            let load = self.loads.entry(port).or_default();
            load.messages += 1;
            load.elems = load.elems.saturating_add(message.elems);
            load.longest = load.longest.max(message.elems);
        }
    }

    fn busiest(&self) -> Option<&Load> {
        self.loads.values().max_by(|a, b| self.cost.load_seconds(a).total_cmp(&self.cost.load_seconds(b)))
    }
}

/// The ports that a message uses, as (rank, is it receiving): only one if it stays on a rank whose ports do both.
fn ports_of(message: &Message, duplex: Duplex) -> impl Iterator<Item = (u64, bool)> {
    let receiving = duplex == Duplex::Full;
    let here_only = !receiving && message.from == message.to;
    std::iter::once((message.from, false)).chain((!here_only).then_some((message.to, receiving)))
}

/// The parts of a predicted time, along the critical path of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Seconds for starting messages.
    pub startup: f64,
    /// Seconds for moving elements.
    pub transfer: f64,
    /// Seconds for packing and unpacking elements.
    pub packing: f64,
    /// Seconds for barriers.
    pub barriers: f64,
}

impl Parts {
    fn of(cost: &CostModel, messages: u64, elems: u64) -> Self {
        let elems = elems as f64;
        Self {
            startup: cost.alpha * messages as f64,
            transfer: cost.beta * elems,
            packing: 2.0 * cost.pack * elems,
            barriers: 0.0,
        }
    }

    fn add(&mut self, other: &Self, share: f64) {
        self.startup += other.startup * share;
        self.transfer += other.transfer * share;
        self.packing += other.packing * share;
        self.barriers += other.barriers * share;
    }
}

/// The largest part of a schedule's time, see [`Parts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The schedule takes no time.
    Nothing,
    /// Starting messages: fewer steps would help.
    Startup,
    /// Moving elements: a lower total cost would help.
    Transfer,
    /// Packing and unpacking.
    Packing,
    /// Barriers: running without them would help.
    Barriers,
}

impl Limit {
    /// The name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Startup => "startup",
            Self::Transfer => "transfer",
            Self::Packing => "packing",
            Self::Barriers => "barriers",
        }
    }
}

/// The predicted time of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The time of the whole schedule, in seconds.
    pub seconds: f64,
    /// Seconds of each round. A round is a step, or as many steps as processes have ports; `eager` is one round.
    pub rounds: Vec<f64>,
    /// The parts of the time.
    pub parts: Parts,
}

impl Prediction {
    /// The largest part of the time.
    pub fn limit(&self) -> Limit {
        let Parts { startup, transfer, packing, barriers } = self.parts;
        let limits = [
            (transfer, Limit::Transfer),
            (startup, Limit::Startup),
            (packing, Limit::Packing),
            (barriers, Limit::Barriers),
        ];
        limits
            .into_iter()
            .fold((0.0, Limit::Nothing), |most, part| if part.0 > most.0 { part } else { most })
            .1
    }
}

/// Predicts the time of a schedule, by its strategy's own rule:
///
/// - in steps (all but the two below): the sum over the steps of their longest message, with a barrier after each;
/// - `async`: as [`predict_without_barriers`];
/// - `eager`: as long as the busiest process, since everything is on its way at once; no run is faster.
///
/// Exact on a flat switch where processes have one sending and one receiving port (`eager` aside). Ports that cannot
/// send and receive at once make more conflicts than a sum can see; then this is a lower estimate.
///
/// ```
/// use reshard_plan::{Pattern, Problem, one_period};
/// use reshard_plan::cost::{CostModel, Limit, predict};
/// use reshard_plan::schedule::{Schedule, Strategy};
/// // Example 1 of Desprez et al.: 7 steps that cost 15 elements.
/// let (from, to): (Pattern, Pattern) = ("16/3".parse()?, "16/5".parse()?);
/// let shape = one_period(&from, &to)?;
/// let problem = Problem::new(from.over(&shape)?, to.over(&shape)?)?;
/// let schedule = Schedule::new(&problem, Strategy::Optimal)?;
/// let prediction = predict(&schedule, &CostModel::new(100.0, 1.0)?);
/// assert_eq!(prediction.seconds, 7.0 * 100.0 + 15.0);
/// assert_eq!(prediction.limit(), Limit::Startup);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn predict(schedule: &Schedule, cost: &CostModel) -> Prediction {
    match schedule.options().strategy {
        Strategy::Async => predict_without_barriers(schedule, cost),
        Strategy::Eager => {
            let mut ports = PortLoads::new(cost);
            schedule.steps().iter().flat_map(|step| &step.messages).for_each(|message| ports.add(message));
            let mut prediction = Prediction { seconds: 0.0, rounds: Vec::new(), parts: Parts::default() };
            prediction.add_round(&ports);
            prediction
        }
        _ => in_rounds(schedule, cost),
    }
}

fn in_rounds(schedule: &Schedule, cost: &CostModel) -> Prediction {
    let mut prediction = Prediction { seconds: 0.0, rounds: Vec::new(), parts: Parts::default() };
    for steps in schedule.steps().chunks(ports_used(schedule, cost)) {
        let mut ports = PortLoads::new(cost);
        steps.iter().flat_map(|step| &step.messages).for_each(|message| ports.add(message));
        prediction.add_round(&ports);
        prediction.seconds += cost.barrier;
        prediction.parts.barriers += cost.barrier;
    }
    prediction
}

impl Prediction {
    fn add_round(&mut self, ports: &PortLoads<'_>) {
        let Some(load) = ports.busiest() else {
            self.rounds.push(0.0);
            return;
        };
        let cost = ports.cost;
        let round = cost.load_seconds(load);
        self.seconds += round;
        self.rounds.push(round);
        if load.messages <= cost.ports {
            self.parts.add(&Parts::of(cost, 1, load.longest), 1.0);
        } else {
            self.parts.add(&Parts::of(cost, load.messages, load.elems), 1.0 / cost.ports as f64);
        }
    }
}

/// Number of steps of a schedule that run together: the ports of a process; 1 for `eager`, which has no steps.
pub(crate) fn ports_used(schedule: &Schedule, cost: &CostModel) -> usize {
    match schedule.options().strategy {
        Strategy::Eager => 1,
        _ => usize::try_from(cost.ports).unwrap_or(usize::MAX),
    }
}

/// Predicts the time of a schedule without barriers: each process sends its messages in the order
/// of the steps and receives in the order of the steps, and a message starts when both of its ends are free.
///
/// ```
/// # use reshard_plan::{Pattern, Problem, one_period};
/// # use reshard_plan::schedule::{Schedule, Strategy};
/// use reshard_plan::cost::{CostModel, predict, predict_without_barriers};
/// # let (from, to): (Pattern, Pattern) = ("12/4".parse()?, "8/3".parse()?);
/// # let shape = one_period(&from, &to)?;
/// # let problem = Problem::new(from.over(&shape)?, to.over(&shape)?)?;
/// let schedule = Schedule::new(&problem, Strategy::Caterpillar)?;
/// let cost = CostModel::default();
/// assert!(predict_without_barriers(&schedule, &cost).seconds < predict(&schedule, &cost).seconds);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn predict_without_barriers(schedule: &Schedule, cost: &CostModel) -> Prediction {
    let mut prediction = Prediction { seconds: 0.0, rounds: Vec::new(), parts: Parts::default() };
    // The time at which each port is free, and the parts of that time.
    let mut free: BTreeMap<((u64, bool), usize), (f64, Parts)> = BTreeMap::new();
    let together = ports_used(schedule, cost);
    for (number, step) in schedule.steps().iter().enumerate() {
        let before = prediction.seconds;
        for message in &step.messages {
            let lane = number % together;
            let ports = || ports_of(message, cost.duplex).map(|port| (port, lane));
            let begin = ports().map(|port| free.get(&port).copied().unwrap_or_default());
            let (start, mut parts) =
                begin.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, Parts::default()));
            let end = start + cost.message(message.elems);
            parts.add(&Parts::of(cost, 1, message.elems), 1.0);
            for port in ports() {
                free.insert(port, (end, parts));
            }
            if end > prediction.seconds {
                (prediction.seconds, prediction.parts) = (end, parts);
            }
        }
        prediction.rounds.push(prediction.seconds - before);
    }
    prediction
}
