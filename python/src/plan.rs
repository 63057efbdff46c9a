//! Plans: what is moved, worked out once and run any number of times, with the parts of all ranks or, on a communicator, with those of this
//! rank. What is wrong on one rank alone is told to the others: they wait for it.

use crate::comm::{Between, communicator};
use crate::engine::EngineSlot;
use crate::error::{OrRaise, told, wrong, wrong_type};
use crate::kinds;
use crate::layout::{Layout, layout_of, ranks};
use crate::looks;
use crate::memory::{Memory, Place, Role, allocate, dtype_of};
use crate::numbers::optional;
use crate::parts::{check_apart, listed, own_part};
use crate::request::{Part, fills};
use crate::run::{Run, told_report};
use crate::scale::Scales;
use numpy::{PyArray1, PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use reshard::Move;
use reshard::engine::{RawPart, Report, Scaling};
use reshard::schedule::{Options, Strategy};
use reshard_mpi::communicator::ToCommunicator;
use reshard_mpi::{MpiEngine, MpiOptions};
use std::sync::{Arc, Mutex};

/// What is moved, worked out once and run any number of times: `Plan(src, dst, dtype, comm=None)`.
///
/// Without a communicator a run takes and returns the lists of all ranks' parts; with one of mpi4py each rank gives and gets its own.
#[pyclass(module = "reshard", frozen)]
pub struct Plan {
    pub moving: Move,
    dtype: Py<PyArrayDescr>,
    slot: Arc<EngineSlot>,
    /// Of the source and of the destination: what the layout says of the parts that a run takes.
    places: [Vec<Place>; 2],
    /// This rank, between processes.
    rank: Option<u64>,
    comm: Option<Py<PyAny>>,
    /// Every element of the destination is written.
    fills: bool,
    report: Mutex<Option<Report>>,
    /// With the parts of all ranks: how many threads there are, if that was said.
    threads: Option<u64>,
}

/// How a plan is to be made, as it was given.
struct Said<'a, 'p> {
    part: Part<'a, 'p>,
    threads: Option<&'a Bound<'p, PyAny>>,
    between: Between<'a, 'p>,
}

/// What is kept of a plan that is pickled: the move, the type of its elements, the number of threads.
type Kept = (String, Py<PyArrayDescr>, Option<u64>);

/// What one rank gives for a plan between processes.
struct Stated<'p> {
    from: reshard::Layout,
    to: reshard::Layout,
    /// None if this rank has no elements, and nobody said it.
    dtype: Option<Bound<'p, PyArrayDescr>>,
}

/// The arrays of one run.
struct Parts<'p> {
    sources: Vec<Memory>,
    targets: Vec<Memory>,
    from: Vec<RawPart>,
    to: Vec<RawPart>,
    scaling: Option<Scaling>,
    /// What the run returns.
    result: Bound<'p, PyAny>,
}

impl Plan {
    fn of_all_ranks<'p>(
        from: reshard::Layout,
        to: reshard::Layout,
        dtype: Bound<'p, PyArrayDescr>,
        said: &Said<'_, 'p>,
    ) -> PyResult<Self> {
        said.between.refuse()?;
        let moving = said.part.moving(from, to, dtype.itemsize() as u64)?;
        Self::of_move(moving, dtype, optional(said.threads, "threads")?)
    }

    fn of_move(moving: Move, dtype: Bound<'_, PyArrayDescr>, threads: Option<u64>) -> PyResult<Self> {
        let count = threads.map(|threads| usize::try_from(threads).unwrap_or(usize::MAX));
        let slot = dtype.py().detach(|| EngineSlot::threads(moving.clone(), count)).or_raise()?;
        let (fills, slot, report) = (fills(&moving), Arc::new(slot), Mutex::new(None));
        let places = |layout| ranks(layout)?.into_iter().map(|rank| Place::of(layout, rank)).collect();
        let places: [PyResult<Vec<Place>>; 2] = [places(moving.from()), places(moving.to())];
        let [senders, receivers] = places;
        let places = [senders?, receivers?];
        Ok(Self {
            moving,
            places,
            dtype: dtype.unbind(),
            slot,
            rank: None,
            comm: None,
            fills,
            report,
            threads,
        })
    }

    /// Between processes; collective. `stated` says what this rank gives, whose number it is given; what is wrong on it is an exception on
    /// all, and a rank that has no elements learns their type from the others.
    fn of_own_rank<'p>(
        comm: &Bound<'p, PyAny>,
        said: &Said<'_, 'p>,
        stated: impl FnOnce(u64) -> PyResult<Stated<'p>>,
    ) -> PyResult<Self> {
        let py = comm.py();
        let raw = communicator(comm)?;
        let (options, refused) = match check_only_here(said.threads).and_then(|()| said.between.options()) {
            Ok(options) => (options, None),
            Err(refused) => (MpiOptions::default(), Some(refused)),
        };
        let limit = options.setup_deadline.or(options.deadline);
        let stated = refused.map_or_else(|| stated(raw.rank() as u64), Err).and_then(|stated| {
            let mine = stated.dtype.as_ref().map_or(Ok(Vec::new()), kinds::bytes_of)?;
            Ok((stated, mine))
        });
        let (stated, mine) = match stated {
            Ok((stated, mine)) => (Ok(stated), mine),
            Err(refused) => (Err(refused), Vec::new()),
        };
        let all = py.detach(|| raw.to_communicator(limit)).or_raise()?;
        let gathered = kinds::gathered(py, &all, &mine, limit)?;
        let moving = stated.and_then(|Stated { from, to, dtype }| {
            let common = kinds::common(py, &gathered)?;
            let dtype = dtype.unwrap_or(common);
            Ok((said.part.moving(from, to, dtype.itemsize() as u64)?, dtype))
        });
        let moves = moving.as_ref().map(|(moving, _)| vec![moving.clone()]).map_err(told);
        let engine = py.detach(|| MpiEngine::of_moves(moves, &all, options));
        // This rank's own exception says more than what all were told.
        let (moving, dtype) = moving?;
        let slot = Arc::new(EngineSlot::mpi(engine.or_raise()?));
        let (fills, comm) = (fills(&moving), Some(comm.clone().unbind()));
        let (rank, report) = (raw.rank() as u64, Mutex::new(None));
        let place = |layout: &reshard::Layout| match layout.distribution().grid().contains(rank) {
            true => Place::of(layout, rank).map(|place| vec![place]),
            false => Ok(Vec::new()),
        };
        let (places, rank) = ([place(moving.from())?, place(moving.to())?], Some(rank));
        Ok(Self { moving, places, dtype: dtype.unbind(), slot, rank, comm, fills, report, threads: None })
    }

    /// The arrays of a run with the parts of all ranks.
    fn all_parts<'p>(
        &self,
        py: Python<'p>,
        given: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        scales: &Scales<'_, 'p>,
    ) -> PyResult<Parts<'p>> {
        let dtype = self.dtype.bind(py);
        let scaling = scales.of(dtype)?;
        let [senders, receivers] = &self.places;
        let given = listed(given, senders.len(), "a", "source")?;
        let sources =
            given.iter().zip(senders).map(|(part, place)| Memory::of(part, Role::Source(place.rank)));
        let sources = sources.collect::<PyResult<Vec<_>>>()?;
        let result = match out {
            Some(out) => out.clone(),
            None => {
                self.check_complete(scales)?;
                let parts =
                    receivers.iter().map(|place| allocate(self.moving.to(), place.rank, dtype, !self.fills));
                PyList::new(py, parts.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
        };
        let given = listed(&result, receivers.len(), "out", "destination")?;
        let targets =
            given.iter().zip(receivers).map(|(part, place)| Memory::of(part, Role::Target(place.rank)));
        let targets = targets.collect::<PyResult<Vec<_>>>()?;
        let parts = self.checked(py, sources, targets, scaling, result)?;
        if out.is_some() {
            check_apart(py, &parts.targets)?;
        }
        Ok(parts)
    }

    /// The arrays of a run with the parts of this rank.
    fn own_parts<'p>(
        &self,
        py: Python<'p>,
        rank: u64,
        given: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        scales: &Scales<'_, 'p>,
    ) -> PyResult<Parts<'p>> {
        let dtype = self.dtype.bind(py);
        let scaling = scales.of(dtype)?;
        let [sends, receives] = self.places.each_ref().map(|places| !places.is_empty());
        let source = own_part(given, sends, Role::Source(rank))?;
        let result = match out {
            Some(out) => out.clone(),
            None if receives => {
                self.check_complete(scales)?;
                allocate(self.moving.to(), rank, dtype, !self.fills)?
            }
            None => py.None().into_bound(py),
        };
        let target = own_part(&result, receives, Role::Target(rank))?;
        self.checked(py, source.into_iter().collect(), target.into_iter().collect(), scaling, result)
    }

    /// Fails if a destination that nobody gave would not be written as a whole.
    fn check_complete(&self, scales: &Scales<'_, '_>) -> PyResult<()> {
        match scales.keeps()? {
            true => Err(wrong(
                "beta was given without out; beta scales what the destination has before, so give that as out",
            )),
            false => Ok(()),
        }
    }

    fn checked<'p>(
        &self,
        py: Python<'p>,
        sources: Vec<Memory>,
        targets: Vec<Memory>,
        scaling: Option<Scaling>,
        result: Bound<'p, PyAny>,
    ) -> PyResult<Parts<'p>> {
        let dtype = self.dtype.bind(py);
        let [senders, receivers] = &self.places;
        let from = sources.iter().zip(senders).map(|(memory, place)| {
            memory.part(py, self.moving.from(), place, dtype, Role::Source(place.rank))
        });
        let to = targets.iter().zip(receivers).map(|(memory, place)| {
            let role = Role::Target(place.rank);
            memory.check_writable(role)?;
            memory.part(py, self.moving.to(), place, dtype, role)
        });
        let (from, to) = (from.collect::<PyResult<Vec<_>>>()?, to.collect::<PyResult<Vec<_>>>()?);
        Ok(Parts { sources, targets, from, to, scaling, result })
    }

    fn begin<'p>(
        &self,
        py: Python<'p>,
        given: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        scales: &Scales<'_, 'p>,
    ) -> PyResult<Begun<'p>> {
        let Some(rank) = self.rank else {
            let parts = self.all_parts(py, given, out, scales)?;
            let Parts { from, to, scaling, .. } = &parts;
            #[allow(unsafe_code)]
            // SAFETY: the memories are kept until it returns, are large enough, and destinations are apart; that no other thread of Python
            // uses them meanwhile is the caller's promise, as with every function of NumPy that works without the interpreter lock.
            let report = py.detach(|| unsafe { self.slot.run_all(from, to, *scaling) }).or_raise()?;
            return Ok(Begun::Over(report, parts.result));
        };
        // The other ranks may be in this run already.
        let parts = self
            .own_parts(py, rank, given, out, scales)
            .inspect_err(|refused| self.slot.refuse(told(refused)))?;
        let only = |parts: &[RawPart]| parts.first().copied().unwrap_or(RawPart::NONE);
        let (from, to, scaling) = (only(&parts.from), only(&parts.to), parts.scaling);
        #[allow(unsafe_code)]
        // SAFETY: as above; the run keeps the memories until it is over.
        let run = py.detach(|| unsafe { self.slot.start(from, to, scaling) }).or_raise()?;
        let Parts { mut sources, targets, result, .. } = parts;
        sources.extend(targets);
        Ok(Begun::InFlight(Run::in_flight(&self.slot, run, sources, result.clone().unbind()), result))
    }
}

impl Plan {
    fn run_scaled<'p>(
        &self,
        py: Python<'p>,
        a: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        scales: &Scales<'_, 'p>,
    ) -> PyResult<Bound<'p, PyAny>> {
        let (report, result) = match self.begin(py, a, out, scales)? {
            Begun::Over(report, result) => (report, result),
            Begun::InFlight(run, result) => (run.finish(py)?, result),
        };
        if let Ok(mut last) = self.report.lock() {
            *last = Some(report);
        }
        Ok(result)
    }
}

/// What became of a run that was begun.
enum Begun<'p> {
    Over(Report, Bound<'p, PyAny>),
    InFlight(Run, Bound<'p, PyAny>),
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (src, dst, dtype=None, comm=None, *, window=None, at=None, axes=None, threads=None, deadline=None, mover=None, memory=None))]
    #[allow(clippy::too_many_arguments)]
    fn new<'p>(
        py: Python<'p>,
        src: &Bound<'p, PyAny>,
        dst: &Bound<'p, PyAny>,
        dtype: Option<&Bound<'p, PyAny>>,
        comm: Option<&Bound<'p, PyAny>>,
        window: Option<&Bound<'p, PyAny>>,
        at: Option<&Bound<'p, PyAny>>,
        axes: Option<&Bound<'p, PyAny>>,
        threads: Option<&Bound<'p, PyAny>>,
        deadline: Option<&Bound<'p, PyAny>>,
        mover: Option<&Bound<'p, PyAny>>,
        memory: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Self> {
        let between = Between { deadline, mover, memory };
        let said = Said { part: Part { window, at, axes }, threads, between };
        let stated = || Ok((layout_of(src, "src")?, layout_of(dst, "dst")?, dtype_of(py, dtype)?));
        if let Some(comm) = comm {
            return Self::of_own_rank(comm, &said, |_| {
                stated().map(|(from, to, dtype)| Stated { from, to, dtype: Some(dtype) })
            });
        }
        let (from, to, dtype) = stated()?;
        Self::of_all_ranks(from, to, dtype, &said)
    }
    /// Moves, waits, and returns the destination: `out`, or new arrays.
    #[pyo3(signature = (a, out=None, *, alpha=None, beta=None, conjugate=None))]
    fn run<'p>(
        &self,
        py: Python<'p>,
        a: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        alpha: Option<&Bound<'p, PyAny>>,
        beta: Option<&Bound<'p, PyAny>>,
        conjugate: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        self.run_scaled(py, a, out, &Scales { alpha, beta, conjugate })
    }
    /// Begins to move, so that something else can be computed meanwhile. Without a communicator all is moved before it returns.
    #[pyo3(signature = (a, out=None, *, alpha=None, beta=None, conjugate=None))]
    fn start<'p>(
        &self,
        py: Python<'p>,
        a: &Bound<'p, PyAny>,
        out: Option<&Bound<'p, PyAny>>,
        alpha: Option<&Bound<'p, PyAny>>,
        beta: Option<&Bound<'p, PyAny>>,
        conjugate: Option<&Bound<'p, PyAny>>,
    ) -> PyResult<Run> {
        match self.begin(py, a, out, &Scales { alpha, beta, conjugate })? {
            Begun::Over(report, result) => Ok(Run::over(&self.slot, report, result.unbind())),
            Begun::InFlight(run, _) => Ok(run),
        }
    }

    #[getter]
    fn src(&self) -> Layout {
        Layout(self.moving.from().clone())
    }

    #[getter]
    fn dst(&self) -> Layout {
        Layout(self.moving.to().clone())
    }

    #[getter]
    fn dtype<'p>(&self, py: Python<'p>) -> Bound<'p, PyArrayDescr> {
        self.dtype.bind(py).clone()
    }

    #[getter]
    fn comm(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.comm.as_ref().map(|comm| comm.clone_ref(py))
    }
    /// How bytes travel.
    #[getter]
    fn mover(&self) -> PyResult<&'static str> {
        self.slot.mover().or_raise()
    }
    /// Bytes, messages, steps and seconds of the last `run`.
    #[getter]
    fn report<'p>(&self, py: Python<'p>) -> PyResult<Option<Bound<'p, PyDict>>> {
        let last = self.report.lock().map_or(None, |last| *last);
        last.map(|report| told_report(py, &report)).transpose()
    }
    /// How many elements are written, each copy counted.
    #[getter]
    fn elements(&self) -> u64 {
        self.moving.problem().elems()
    }

    /// Senders, receivers, elements: see `Traffic` in Python.
    fn _traffic<'p>(&self, py: Python<'p>) -> PyResult<[Bound<'p, PyArray1<u64>>; 3]> {
        looks::traffic(py, self.moving.problem())
    }

    /// Better ranks, and volumes: see `Relabelling` in Python.
    fn _relabelled(&self, py: Python<'_>) -> PyResult<(Vec<u64>, [u128; 4])> {
        looks::relabelled(py, self.moving.problem())
    }
    /// Who owes whom how many elements.
    fn traffic<'p>(slf: &Bound<'p, Self>) -> PyResult<Bound<'p, PyAny>> {
        slf.py().import("reshard._looks")?.call_method1("traffic", (slf,))
    }
    /// The ranks on which the destination would keep most elements where they are.
    fn relabel<'p>(slf: &Bound<'p, Self>) -> PyResult<Bound<'p, PyAny>> {
        slf.py().import("reshard._looks")?.call_method1("relabel", (slf,))
    }
    /// A picture of the array before and after, the communication grid, the steps and the times.
    #[pyo3(signature = (strategy="optimal", **machine))]
    fn explain<'p>(
        slf: &Bound<'p, Self>,
        strategy: &str,
        machine: Option<&Bound<'p, PyDict>>,
    ) -> PyResult<Bound<'p, PyAny>> {
        slf.py().import("reshard._looks")?.call_method("explain", (slf, strategy), machine)
    }
    /// In which step each message goes. `alpha`, `beta` and `max_steps` are for "min-cost", `in_flight` for "eager".
    #[pyo3(signature = (strategy="optimal", *, alpha=1, beta=1, max_steps=None, in_flight=8, shared_ranks=false))]
    #[allow(clippy::too_many_arguments)]
    fn schedule(
        &self,
        py: Python<'_>,
        strategy: &str,
        alpha: u64,
        beta: u64,
        max_steps: Option<u64>,
        in_flight: u64,
        shared_ranks: bool,
    ) -> PyResult<looks::Schedule> {
        let options = schedule_options(strategy, in_flight, shared_ranks)?;
        let options = options.with_alpha(alpha).with_beta(beta).with_most_steps(max_steps);
        looks::Schedule::new(py, self.moving.problem(), &options)
    }
    /// The redistribution in virtual time: `alpha` seconds to start a message, `beta` for each element, on a network.
    #[pyo3(signature = (strategy="optimal", *, network="flat", alpha=None, beta=None, pack=0.0, ports=1, barriers=false, half_duplex=false, in_flight=8, shared_ranks=false))]
    #[allow(clippy::too_many_arguments)]
    fn simulate(
        &self,
        py: Python<'_>,
        strategy: &str,
        network: &str,
        alpha: Option<f64>,
        beta: Option<f64>,
        pack: f64,
        ports: u64,
        barriers: bool,
        half_duplex: bool,
        in_flight: u64,
        shared_ranks: bool,
    ) -> PyResult<looks::Timeline> {
        let options = schedule_options(strategy, in_flight, shared_ranks)?;
        let machine = looks::MachineWords { network, alpha, beta, pack, ports, half_duplex };
        let (from, to) = (self.moving.from().distribution(), self.moving.to().distribution());
        let layouts = format!("{} to {}", from.pattern(), to.pattern());
        looks::Timeline::new(py, self.moving.problem(), layouts, options, &machine, barriers)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (from, to) = (self.moving.from(), self.moving.to());
        let elements = self.moving.problem().elems();
        format!("Plan({from} -> {to}, {}, {elements} elements)", self.dtype.bind(py))
    }

    fn __reduce__<'p>(&self, py: Python<'p>) -> PyResult<(Bound<'p, PyAny>, Kept)> {
        if self.comm.is_some() {
            return Err(wrong_type(
                "a plan on a communicator cannot be pickled, as no other process has that; make the plan there",
            ));
        }
        let state = serde_json::to_string(&self.moving).map_err(|error| wrong(error.to_string()))?;
        Ok((
            py.import("reshard._reshard")?.getattr("plan_from_state")?,
            (state, self.dtype.clone_ref(py), self.threads),
        ))
    }
}

fn schedule_options(strategy: &str, in_flight: u64, shared_ranks: bool) -> PyResult<Options> {
    let strategy: Strategy = strategy.parse().or_raise()?;
    Ok(Options::default().with_strategy(strategy).with_in_flight(in_flight).with_shared_ranks(shared_ranks))
}

/// A plan as it was pickled.
#[pyfunction]
pub fn plan_from_state(state: &str, dtype: Bound<'_, PyArrayDescr>, threads: Option<u64>) -> PyResult<Plan> {
    let moving: Move = serde_json::from_str(state)
        .map_err(|error| wrong(format!("the pickled plan cannot be read: {error}")))?;
    if moving.elem_bytes() != dtype.itemsize() as u64 {
        return Err(wrong("the pickled plan is damaged: its elements have another size than their type"));
    }
    Plan::of_move(moving, dtype, threads)
}

/// Moves an array once, or a window of it, and returns the destination: `redistribute(a, src, dst, comm=None, out=None)`.
///
/// Without a communicator `a` is the list of all ranks' parts; with one of mpi4py it is this rank's part. See `Plan`.
#[pyfunction]
#[pyo3(signature = (a, src, dst, comm=None, out=None, *, window=None, at=None, axes=None, alpha=None, beta=None, conjugate=None, threads=None, deadline=None, mover=None, memory=None))]
#[allow(clippy::too_many_arguments)]
pub fn redistribute<'p>(
    py: Python<'p>,
    a: &Bound<'p, PyAny>,
    src: &Bound<'p, PyAny>,
    dst: &Bound<'p, PyAny>,
    comm: Option<&Bound<'p, PyAny>>,
    out: Option<&Bound<'p, PyAny>>,
    window: Option<&Bound<'p, PyAny>>,
    at: Option<&Bound<'p, PyAny>>,
    axes: Option<&Bound<'p, PyAny>>,
    alpha: Option<&Bound<'p, PyAny>>,
    beta: Option<&Bound<'p, PyAny>>,
    conjugate: Option<&Bound<'p, PyAny>>,
    threads: Option<&Bound<'p, PyAny>>,
    deadline: Option<&Bound<'p, PyAny>>,
    mover: Option<&Bound<'p, PyAny>>,
    memory: Option<&Bound<'p, PyAny>>,
) -> PyResult<Bound<'p, PyAny>> {
    let said =
        Said { part: Part { window, at, axes }, threads, between: Between { deadline, mover, memory } };
    let scales = Scales { alpha, beta, conjugate };
    let Some(comm) = comm else {
        let (from, dtype) = laid_out(layout_of(src, "src")?, a, "a", "source", Role::Source)?;
        let mut to = layout_of(dst, "dst")?;
        if let Some(out) = out {
            to = laid_out(to, out, "out", "destination", Role::Target)?.0;
        }
        let dtype = dtype.ok_or_else(|| wrong("no part was given, so the type of elements is not known"))?;
        return Plan::of_all_ranks(from, to, dtype, &said)?.run_scaled(py, a, out, &scales);
    };
    let plan = Plan::of_own_rank(comm, &said, |rank| {
        let (mut from, mut to) = (layout_of(src, "src")?, layout_of(dst, "dst")?);
        let has = |layout: &reshard::Layout| layout.distribution().grid().contains(rank);
        let mut dtype = None;
        if let Some(memory) = own_part(a, has(&from), Role::Source(rank))? {
            from = memory.laid_out(from, rank, Role::Source(rank))?;
            dtype = Some(memory.dtype.bind(py).clone());
        }
        if let Some(out) = out
            && let Some(memory) = own_part(out, has(&to), Role::Target(rank))?
        {
            to = memory.laid_out(to, rank, Role::Target(rank))?;
            dtype = dtype.or_else(|| Some(memory.dtype.bind(py).clone()));
        }
        // Told to all here, where they wait.
        dtype.as_ref().map_or(Ok(None), |dtype| scales.of(dtype))?;
        Ok(Stated { from, to, dtype })
    })?;
    plan.run_scaled(py, a, out, &scales)
}

/// The layout with the strides of the parts that were given, and the type of their elements.
fn laid_out<'p>(
    mut layout: reshard::Layout,
    given: &Bound<'p, PyAny>,
    name: &str,
    side: &str,
    role: fn(u64) -> Role,
) -> PyResult<(reshard::Layout, Option<Bound<'p, PyArrayDescr>>)> {
    let mut dtype = None;
    for (part, rank) in listed(given, ranks(&layout)?.len(), name, side)?.iter().zip(ranks(&layout)?) {
        let memory = Memory::of(part, role(rank))?;
        layout = memory.laid_out(layout, rank, role(rank))?;
        dtype = dtype.or_else(|| Some(memory.dtype.into_bound(given.py())));
    }
    Ok((layout, dtype))
}

/// Fails if something was given that is for one process only.
fn check_only_here(threads: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match threads {
        Some(_) => Err(wrong(
            "threads is for plans with the parts of all ranks; between processes each rank is one, leave it out",
        )),
        None => Ok(()),
    }
}
