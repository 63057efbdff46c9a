//! Rings: items that processes hand to their neighbours until each has as many as it should.

use crate::comm::{Between, communicator, time};
use crate::error::{OrRaise, raised, told, wrong, wrong_type};
use crate::kinds;
use crate::layout::extents;
use crate::memory::{Memory, Role, described, dtype_of, new_array};
use crate::numbers::optional;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use reshard_mpi::communicator::ToCommunicator;
use reshard_mpi::{MpiRing, MpiRingOptions};
use reshard_ring::{Direction, RingPlan, RingProblem, RingThreads, Solution, solve};
use std::sync::{Arc, Mutex, TryLockError};

/// A ring of processes whose loads are balanced: see `reshard.ring`.
#[pyclass(module = "reshard", frozen)]
pub struct Ring {
    problem: RingProblem,
    solution: Solution,
    /// The user's time in a unit of the solution's.
    unit: f64,
    /// Between processes: this rank, the engine, and what its items are.
    own: Option<Own>,
}

struct Own {
    rank: usize,
    engine: Mutex<MpiRing>,
    dtype: Py<PyArrayDescr>,
    item: Vec<u64>,
}

#[pymethods]
impl Ring {
    #[new]
    #[pyo3(signature = (loads, targets, right, left, unit, one_way, ordered, comm=None, dtype=None, item=None, deadline=None, memory=None, refused=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        loads: Vec<u64>,
        targets: Vec<u64>,
        right: Option<Vec<u64>>,
        left: Option<Vec<u64>>,
        unit: f64,
        one_way: bool,
        ordered: bool,
        comm: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        item: Option<&Bound<'_, PyAny>>,
        deadline: Option<&Bound<'_, PyAny>>,
        memory: Option<&Bound<'_, PyAny>>,
        refused: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let refused = refused.map_or(Ok(()), |refused| Err(PyErr::from_value(refused)));
        let stated = || {
            let mut problem = RingProblem::new(loads, targets)?;
            if let Some(right) = right {
                problem = problem.with_right(right)?;
            }
            if let Some(left) = left {
                problem = problem.with_left(left)?;
            }
            if one_way {
                problem = problem.with_direction(Direction::Uni)?;
            }
            if ordered { problem.in_order() } else { Ok(problem) }
        };
        let Some(comm) = comm else {
            refused?;
            Between { deadline, mover: None, memory }.refuse()?;
            let problem = stated().or_raise()?;
            let solution = py.detach(|| solve(&problem)).or_raise()?;
            return Ok(Self { problem, solution, unit, own: None });
        };
        let raw = communicator(comm)?;
        // What is wrong on this rank alone is told to all: they are waiting.
        let mine = refused.and_then(|()| {
            let dtype = dtype_of(py, dtype)?;
            let item = item.map_or(Ok(Vec::new()), |item| extents(item, "item"))?;
            let mut options = MpiRingOptions::default().with_memory(optional(memory, "memory")?);
            if let Some(deadline) = deadline {
                options = options.with_deadline(time(deadline)?);
            }
            let bytes = item_bytes(&item, dtype.itemsize())?;
            // As a type of NumPy: of as many elements as an item has, in this shape.
            let kind = PyArrayDescr::new(py, (dtype.clone(), PyTuple::new(py, &item)?))?;
            Ok((stated().or_raise()?, dtype, item, bytes, options, kinds::bytes_of(&kind)?))
        });
        let (bytes, options) = mine.as_ref().map_or((1, MpiRingOptions::default()), |mine| (mine.3, mine.4));
        let all = py.detach(|| raw.to_communicator(options.deadline)).or_raise()?;
        let kind: &[u8] = mine.as_ref().map_or(&[], |mine| &mine.5);
        let gathered = kinds::gathered(py, &all, kind, options.deadline)?;
        let mine = mine.and_then(|mine| kinds::common(py, &gathered).map(|_| mine));
        let problem = mine.as_ref().map(|mine| mine.0.clone()).map_err(told);
        let made = py.detach(|| {
            let engine = MpiRing::of_problem(problem.clone(), bytes, &all, options)?;
            Ok((solve(&problem?)?, engine))
        });
        let (problem, dtype, item, ..) = mine?;
        let (solution, engine) = made.or_raise()?;
        let own = Some(Own { rank: raw.rank(), engine: Mutex::new(engine), dtype: dtype.unbind(), item });
        Ok(Self { problem, solution, unit, own })
    }

    #[getter]
    fn loads(&self) -> Vec<u64> {
        self.problem.loads().to_vec()
    }

    #[getter]
    fn targets(&self) -> Vec<u64> {
        self.problem.targets().to_vec()
    }
    /// The time that it takes.
    #[getter]
    fn makespan(&self) -> f64 {
        self.solution.makespan() as f64 * self.unit
    }
    /// Nothing is faster.
    #[getter]
    fn lower_bound(&self) -> f64 {
        self.solution.lower_bound() as f64 * self.unit
    }

    #[getter]
    fn optimal(&self) -> Option<bool> {
        self.solution.optimal()
    }

    #[getter]
    fn method(&self) -> &'static str {
        self.solution.method().name()
    }

    /// From, to, items, start and end.
    #[getter]
    fn transfers(&self) -> Vec<(u64, u64, u64, f64, f64)> {
        let procs = self.problem.procs() as u64;
        let time = |units: u64| units as f64 * self.unit;
        let all = self.solution.program().transfers().iter();
        all.map(|one| (one.from, one.to(procs), one.items, time(one.start), time(one.end))).collect()
    }

    /// Items from process i to i + 1; negative: the other way.
    #[getter]
    fn net_flow(&self) -> Vec<i64> {
        self.solution.net_flow()
    }
    /// Moves the items: takes and returns the arrays of all processes, whose first dimension counts items; on a communicator its own.
    fn run<'p>(&self, py: Python<'p>, parts: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        match &self.own {
            None => self.run_all(py, parts),
            Some(own) => self.run_own(py, own, parts),
        }
    }

    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<String> {
        let (procs, transfers) = (self.problem.procs(), self.solution.program().transfers().len());
        if procs > 1_000 || transfers > 100_000 {
            return Err(wrong(format!(
                "{procs} processes with {transfers} transfers are too many to draw; at most 1000 and 100000 can be"
            )));
        }
        let title = format!("Ring of {procs} processes, {} items", self.problem.loads().iter().sum::<u64>());
        let about = match self.solution.optimal() {
            Some(true) => format!("makespan {}, optimal", self.makespan()),
            _ => format!("makespan {}; nothing is faster than {}", self.makespan(), self.lower_bound()),
        };
        let denominator = (1.0 / self.unit).round().max(1.0) as u64;
        let words = reshard_draw::RingWords { title: &title, about: &about, denominator };
        Ok(py.detach(|| reshard_draw::ring(&words, &self.problem, &self.solution)))
    }

    fn __repr__(&self) -> String {
        let known = if self.solution.optimal() == Some(true) { ", optimal" } else { "" };
        format!("Ring({} processes, makespan {}{known})", self.problem.procs(), self.makespan())
    }
}

impl Ring {
    fn run_all<'p>(&self, py: Python<'p>, parts: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        let parts: Vec<Bound<'p, PyAny>> = parts.extract().map_err(|_| {
            wrong_type(format!(
                "the parts were given as {}; without a communicator they are a list of the arrays of all processes",
                described(parts)
            ))
        })?;
        if parts.len() != self.problem.procs() {
            return Err(wrong(format!(
                "{} parts were given for a ring of {} processes; give one for each",
                parts.len(),
                self.problem.procs()
            )));
        }
        let memories = parts.iter().enumerate().map(|(rank, part)| Memory::of(part, Role::Part(rank as u64)));
        let memories = memories.collect::<PyResult<Vec<_>>>()?;
        let first = memories.first().ok_or_else(|| wrong("a ring has at least one process"))?;
        let dtype = first.dtype.bind(py).clone();
        let item: Vec<u64> = first.shape.get(1..).unwrap_or_default().to_vec();
        let bytes = item_bytes(&item, dtype.itemsize())?;
        for (rank, memory) in memories.iter().enumerate() {
            self.check(py, rank, memory, &dtype, &item)?;
        }
        let plan = RingPlan::new(self.problem.clone(), self.solution.program().clone(), bytes).or_raise()?;
        let mut engine = RingThreads::new(Arc::new(plan));
        let mut rooms = Vec::new();
        for (rank, part) in memories.iter().enumerate() {
            let room = engine.plan().room(rank);
            rooms.push(filled(&part.array(py)?, room, self.problem.loads()[rank], &item, &dtype)?);
        }
        let memories =
            rooms.iter().map(|room| Memory::of(room, Role::Part(0))).collect::<PyResult<Vec<_>>>()?;
        // SAFETY: new arrays that nobody else knows.
        let mut slices: Vec<&mut [u8]> =
            memories.iter().map(|memory| unsafe { memory.bytes_mut() }).collect();
        py.detach(|| engine.run(&mut slices)).or_raise()?;
        let shares = rooms.iter().zip(self.problem.targets()).map(|(room, &target)| first_of(room, target));
        Ok(pyo3::types::PyList::new(py, shares.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }

    fn run_own<'p>(&self, py: Python<'p>, own: &Own, part: &Bound<'p, PyAny>) -> PyResult<Bound<'p, PyAny>> {
        // Not waited for: who has it may need the interpreter, which this thread has.
        let mut engine = match own.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(wrong("the ring is being run by another thread; wait for that first"));
            }
        };
        let engine = &mut *engine;
        let within = own.rank < self.problem.procs();
        let dtype = own.dtype.bind(py);
        let prepared = || {
            if !within {
                return Ok(None);
            }
            let memory = Memory::of(part, Role::Part(own.rank as u64))?;
            self.check(py, own.rank, &memory, dtype, &own.item)?;
            let load = self.problem.loads()[own.rank];
            filled(&memory.array(py)?, engine.room(), load, &own.item, dtype).map(Some)
        };
        let room = match prepared() {
            Ok(room) => room,
            Err(refused) => {
                engine.refuse(told(&refused));
                return Err(refused);
            }
        };
        let Some(room) = room else {
            py.detach(|| engine.run::<u8>(&mut [])).map_err(raised)?;
            return Ok(py.None().into_bound(py));
        };
        let memory = Memory::of(&room, Role::Part(0))?;
        // SAFETY: a new array that nobody else knows.
        let bytes = unsafe { memory.bytes_mut() };
        py.detach(|| engine.run(bytes)).map_err(raised)?;
        first_of(&room, self.problem.targets()[own.rank])
    }

    fn check(
        &self,
        py: Python<'_>,
        rank: usize,
        memory: &Memory,
        dtype: &Bound<'_, PyArrayDescr>,
        item: &[u64],
    ) -> PyResult<()> {
        memory.check_elements(py, dtype, Role::Part(rank as u64))?;
        let load = self.problem.loads()[rank];
        if memory.shape.first() == Some(&load) && memory.shape[1..] == *item {
            return Ok(());
        }
        Err(wrong(format!(
            "the part of process {rank} has the shape {:?}; it holds {load} items, each of shape {item:?}",
            memory.shape
        )))
    }
}

fn item_bytes(item: &[u64], element: usize) -> PyResult<usize> {
    let bytes = item.iter().try_fold(element as u64, |all, &extent| all.checked_mul(extent));
    match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(wrong(format!(
            "items of shape {item:?} were given, which have no bytes or too many; give at least one element"
        ))),
    }
}

/// A new array with room for some items, the first of which are copied from a part.
fn filled<'p>(
    part: &Bound<'p, PyAny>,
    room: usize,
    load: u64,
    item: &[u64],
    dtype: &Bound<'p, PyArrayDescr>,
) -> PyResult<Bound<'p, PyAny>> {
    let shape: Vec<u64> = std::iter::once(room as u64).chain(item.iter().copied()).collect();
    let array = new_array(&shape, dtype, "C", false)?;
    array.set_item(PySlice::new(part.py(), 0, load as isize, 1), part)?;
    Ok(array)
}

fn first_of<'p>(room: &Bound<'p, PyAny>, count: u64) -> PyResult<Bound<'p, PyAny>> {
    room.get_item(PySlice::new(room.py(), 0, count as isize, 1))
}
