//! A plan looked at: who sends whom how much, in which step, and what it takes on a machine.

use crate::error::{OrRaise, wrong};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use reshard::cost::{CostModel, Duplex};
use reshard::distribution::Distribution;
use reshard::problem::Problem;
use reshard::relabel::Relabel;
use reshard::schedule::{self, Options};
use reshard::simulate::{Machine, Network, simulate};
use reshard::traffic::Traffic;
use reshard_plan::memory;
use std::sync::Arc;

/// The most ranks of a side in a picture: more cannot be seen.
const MAX_DRAWN_RANKS: u64 = 512;
/// The most messages in a picture.
const MAX_DRAWN_MESSAGES: usize = 300_000;

/// Fails if a picture would have too many ranks.
pub fn check_drawn(of: &[&Distribution]) -> PyResult<()> {
    match of.iter().map(|one| one.grid().size()).max() {
        Some(most) if most > MAX_DRAWN_RANKS => Err(wrong(format!(
            "a grid with {most} ranks is too large to draw, at most {MAX_DRAWN_RANKS} can be; take smaller grids"
        ))),
        _ => Ok(()),
    }
}

type Column<'p> = Bound<'p, PyArray1<u64>>;

/// All messages: senders, receivers, elements.
pub fn traffic<'p>(py: Python<'p>, problem: &Problem) -> PyResult<[Column<'p>; 3]> {
    let columns = py.detach(|| {
        let table = Traffic::new(problem).table()?;
        let count = usize::try_from(table.message_count()).unwrap_or(usize::MAX);
        let room = || memory::with_room(count, "the messages");
        let mut columns: [Vec<u64>; 3] = [room()?, room()?, room()?];
        for message in table.messages() {
            let values = [message.from, message.to, message.elems];
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        }
        Ok(columns)
    });
    Ok(columns.or_raise()?.map(|column| PyArray1::from_vec(py, column)))
}

/// Better ranks for a destination: them, and the elements kept and moved before and after.
pub fn relabelled(py: Python<'_>, problem: &Problem) -> PyResult<(Vec<u64>, [u128; 4])> {
    let found = py.detach(|| Relabel::new(problem).find()).or_raise()?;
    let (before, after) = (found.before(), found.after());
    let volumes = [before.kept_elems, before.moved_elems, after.kept_elems, after.moved_elems];
    Ok((found.grid().ranks().collect(), volumes))
}

/// In which step each message goes.
#[pyclass(module = "reshard", frozen)]
pub struct Schedule(Arc<schedule::Schedule>);

impl Schedule {
    pub fn new(py: Python<'_>, problem: &Problem, options: &Options) -> PyResult<Self> {
        let made = py.detach(|| schedule::Schedule::with(problem, options));
        made.map(|schedule| Self(Arc::new(schedule))).or_raise()
    }
}

#[pymethods]
impl Schedule {
    #[getter]
    fn strategy(&self) -> &'static str {
        self.0.options().strategy.name()
    }
    /// For each step its messages: sender, receiver, elements.
    #[getter]
    fn steps(&self) -> Vec<Vec<(u64, u64, u64)>> {
        let of_step = |step: &schedule::Step| {
            step.messages.iter().map(|message| (message.from, message.to, message.elems)).collect()
        };
        self.0.steps().iter().map(of_step).collect()
    }
    /// For each step the elements of its longest message.
    #[getter]
    fn costs(&self) -> Vec<u64> {
        self.0.steps().iter().map(|step| step.cost).collect()
    }

    #[getter]
    fn total_cost(&self) -> u128 {
        self.0.total_cost()
    }
    /// Fewer steps no schedule has.
    #[getter]
    fn bound_steps(&self) -> u64 {
        self.0.bound_steps()
    }
    /// Less no schedule costs.
    #[getter]
    fn bound_cost(&self) -> u128 {
        self.0.bound_cost()
    }
    /// Whether it has the fewest steps; None if that is not known.
    #[getter]
    fn optimal_steps(&self) -> Option<bool> {
        self.0.optimal_steps()
    }

    #[getter]
    fn optimal_cost(&self) -> Option<bool> {
        self.0.optimal_cost()
    }

    fn __len__(&self) -> usize {
        self.0.steps().len()
    }

    fn __repr__(&self) -> String {
        format!(
            "Schedule({}: {} steps of at least {}, cost {} of at least {})",
            self.strategy(),
            self.0.num_steps(),
            self.0.bound_steps(),
            self.0.total_cost(),
            self.0.bound_cost()
        )
    }
}

/// A redistribution in virtual time.
#[pyclass(module = "reshard", frozen)]
pub struct Timeline {
    timeline: reshard::simulate::Timeline,
    schedule: Arc<schedule::Schedule>,
    problem: Problem,
    layouts: String,
    about: String,
}

/// What machine is simulated, in Python's words.
pub struct MachineWords<'a> {
    pub network: &'a str,
    pub alpha: Option<f64>,
    pub beta: Option<f64>,
    pub pack: f64,
    pub ports: u64,
    pub half_duplex: bool,
}

impl MachineWords<'_> {
    fn machine(&self) -> PyResult<Machine> {
        let network: Network = self.network.parse().or_raise()?;
        let default = CostModel::default();
        let cost = CostModel::new(self.alpha.unwrap_or(default.alpha()), self.beta.unwrap_or(default.beta()))
            .and_then(|cost| cost.with_pack(self.pack)?.with_ports(self.ports))
            .or_raise()?
            .with_duplex(if self.half_duplex { Duplex::Half } else { Duplex::Full });
        Ok(Machine { cost, network })
    }
}

impl Timeline {
    pub fn new(
        py: Python<'_>,
        problem: &Problem,
        layouts: String,
        options: Options,
        machine: &MachineWords<'_>,
        barriers: bool,
    ) -> PyResult<Self> {
        let machine = machine.machine()?;
        let options = machine.cost.weigh(options);
        let run = || {
            let schedule = schedule::Schedule::with(problem, &options)?;
            let timeline = simulate(&schedule, &machine, barriers)?;
            Ok((schedule, timeline))
        };
        let (schedule, timeline) = py.detach(run).or_raise()?;
        let about = format!(
            "{} elements over the network {}: {} to start a message, {} for each element, {} barriers, by the strategy {}",
            problem.elems(),
            machine.network,
            reshard_draw::time(machine.cost.alpha()),
            reshard_draw::time(machine.cost.beta()),
            if barriers { "with" } else { "without" },
            options.strategy
        );
        Ok(Self { timeline, schedule: Arc::new(schedule), problem: problem.clone(), layouts, about })
    }
}

#[pymethods]
impl Timeline {
    /// Seconds from the first start to the last end.
    #[getter]
    fn makespan(&self) -> f64 {
        self.timeline.makespan()
    }
    /// Sender, receiver, elements, start and end.
    #[getter]
    fn messages(&self) -> Vec<(u64, u64, u64, f64, f64)> {
        self.timeline
            .messages()
            .iter()
            .map(|sent| (sent.from, sent.to, sent.elems, sent.start, sent.end))
            .collect()
    }
    /// The shares of the time in which ports send, and receive.
    #[getter]
    fn busy<'p>(&self, py: Python<'p>) -> PyResult<Bound<'p, PyTuple>> {
        let busy = self.timeline.busy();
        PyTuple::new(py, [busy.sending, busy.receiving])
    }

    #[getter]
    fn schedule(&self) -> Schedule {
        Schedule(Arc::clone(&self.schedule))
    }

    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<String> {
        check_drawn(&[self.problem.from(), self.problem.to()])?;
        let count = self.timeline.messages().len();
        if count > MAX_DRAWN_MESSAGES {
            return Err(wrong(format!(
                "{count} messages are too many to draw, at most {MAX_DRAWN_MESSAGES} can be; take smaller grids"
            )));
        }
        let Self { timeline, schedule, problem, layouts, about } = self;
        Ok(py.detach(|| reshard_draw::redistribution(layouts, about, problem, schedule, timeline)))
    }

    fn __repr__(&self) -> String {
        format!(
            "Timeline({}: {}, {} messages)",
            self.layouts,
            reshard_draw::time(self.makespan()),
            self.timeline.messages().len()
        )
    }
}
