//! A plan cut into units that any worker may take, none of which touches what another writes.
//!
//! Destinations that differ only along the fast axis share a route, so that each row of a source is fetched once for all
//! of them. Units are up to two megabytes: large enough to make their beginning cheap, small enough that the workers
//! end together. They are taken in the order in which they lie in the array, so that neighbours, which share lines of
//! the sources, run at about the same time.

mod groups;

pub use groups::GroupedTasks;

use crate::copy::{CopyJob, CopyMode, STREAMED, Scratch, copy};
use crate::memory::Buffers;
use crate::pool::{Panicked, ThreadPool};
use crate::route::{CopyRange, DestinationSpec, Kernel, MOST_ENDS, Route, RouteSpec, by_stride};
use crate::simd::Level;
use reshard_plan::{Array, Plan, Target};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A unit has at most about so many bytes.
const UNIT: u64 = 1 << 21;

/// And at least about so many.
const LEAST: u64 = 1 << 17;

/// What a unit of a transposition reads of each column, at least, if there are units enough.
const TILE_COLUMN: u64 = 8192;

/// A plan is cut into at most about so many units; the units of huge ones are longer.
const MOST_UNITS: u64 = 1 << 20;

/// All routes and units of a plan.
pub struct TaskList {
    plan: Arc<Plan>,
    routes: Vec<Route>,
    units: Vec<Task>,
    streamed: Vec<bool>,
    workers: Vec<Mutex<Scratch>>,
}

/// Units with the same sources and destinations.
pub struct TaskGroup {
    /// Of this array.
    pub array: usize,
    /// Numbers of its sources, ascending.
    pub sources: Vec<usize>,
    /// Numbers of its destinations.
    pub targets: Vec<usize>,
    /// In the order in which they lie in the array.
    pub(crate) units: Range<usize>,
}

impl TaskGroup {
    /// How many units it has.
    pub fn units(&self) -> usize {
        self.units.len()
    }
}

struct Task {
    array: usize,
    route: usize,
    share: CopyRange,
}

/// What is usually left to the plan and the processor, and what tests insist on.
#[derive(Clone, Copy)]
pub struct Tuning {
    /// Which instructions to use.
    pub level: Level,
    /// The size of a unit.
    pub unit_bytes: Option<u64>,
    /// Whether destinations are streamed past the caches.
    pub streams: Option<bool>,
}

impl TaskList {
    /// Cuts a plan for so many workers.
    pub fn new(plan: Arc<Plan>, workers: usize, tuning: Tuning) -> Self {
        Self::for_targets(plan, workers, tuning, |_| true)
    }

    /// Cuts only what some destinations receive.
    pub fn for_targets(
        plan: Arc<Plan>,
        workers: usize,
        tuning: Tuning,
        wanted: impl Fn(&Target) -> bool,
    ) -> Self {
        let mut routes = Vec::new();
        let mut units: Vec<(f64, Task)> = Vec::new();
        let level = tuning.level;
        assert!(level <= Level::best(), "{level:?} is more than this processor has");
        let unit_bytes = tuning.unit_bytes.unwrap_or_else(|| fair_unit(&plan, workers));
        for (number, array) in plan.arrays().iter().enumerate() {
            for route in routes_of(array, unit_bytes, level, &wanted) {
                cut(&route, unit_bytes, workers as u64, |fraction, share| {
                    units.push((fraction, Task { array: number, route: routes.len(), share }));
                });
                routes.push(route);
            }
        }
        units.sort_by(|a, b| a.0.total_cmp(&b.0));
        let units: Vec<Task> = units.into_iter().map(|(_, unit)| unit).collect();
        let streamed = plan.arrays().iter().map(|array| {
            let bytes = array.elems().saturating_mul(array.wanted().elem_bytes());
            tuning.streams.unwrap_or(bytes >= STREAMED)
        });
        let streamed = streamed.collect();
        // One worker is enough for one unit.
        let workers = workers.min(units.len()).max(1);
        let workers = (0..workers).map(|_| Mutex::new(Scratch::new(level, routes.iter()))).collect();
        Self { plan, routes, units, streamed, workers }
    }

    /// At most so many bytes the workers keep.
    pub fn scratch_bytes(&self) -> u64 {
        self.workers.len() as u64 * Scratch::bytes(self.routes.iter())
    }

    /// Workers that will find something to do.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Copies everything.
    ///
    /// # Panics
    /// If the data is another plan's, or the parts of a rank were not entered.
    pub fn run(&self, data: &mut Buffers<'_>, crew: &mut ThreadPool) -> Result<(), Panicked> {
        assert!(data.check_all(&self.plan).is_ok(), "all parts were entered, for this plan");
        let data = &*data;
        let next = AtomicUsize::new(0);
        crew.run(&|worker: usize| self.share(data, &next, worker))
    }

    /// Sorts the units by where they lead to, and says which belong together. The same in every process that cuts the same
    /// plan alike.
    pub fn lots(&mut self) -> Vec<TaskGroup> {
        let Self { routes, units, .. } = self;
        // Each destination of an array is an end of one route.
        let leads = |unit: &Task| (unit.array, routes[unit.route].ends()[0].target);
        units.sort_by_key(leads);
        let mut first = 0;
        let lot = |units: &[Task]| {
            let route = &routes[units[0].route];
            let targets = route.ends().iter().map(|end| end.target).collect();
            first += units.len();
            TaskGroup {
                array: units[0].array,
                sources: route.sources(),
                targets,
                units: first - units.len()..first,
            }
        };
        units.chunk_by(|a, b| leads(a) == leads(b)).map(lot).collect()
    }

    /// Copies one unit, in the caller's thread.
    ///
    /// # Safety
    /// The data holds every part that the unit's route leads from or to over its whole span, until the run ends, sources
    /// apart from destinations, and nobody else copies this unit meanwhile.
    pub unsafe fn run_unit(&self, unit: usize, data: &mut Buffers<'_>) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let mut worker = self.workers[0].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: by the caller's contract.
        unsafe { self.copy(&self.units[unit], data, &mut worker) };
    }

    /// Copies units until there are no more.
    fn share(&self, data: &Buffers<'_>, next: &AtomicUsize, worker: usize) {
        let Some(worker) = self.workers.get(worker) else { return };
        let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(unit) = self.units.get(next.fetch_add(1, Ordering::Relaxed)) {
            // SAFETY: the data holds every part that the work's routes lead from or to, and each unit is taken once.
            unsafe { self.copy(unit, data, &mut worker) };
        }
    }

    /// Copies one unit.
    ///
    /// # Safety
    /// The data holds every part that the unit's route leads from or to over its whole span, until the run ends, sources
    /// apart from destinations, and nobody else copies this unit.
    unsafe fn copy(&self, unit: &Task, data: &Buffers<'_>, worker: &mut Scratch) {
        let stream = self.streamed[unit.array];
        let manner =
            CopyMode { stream, fetch: stream, scaling: data.scaling(unit.array), ..CopyMode::default() };
        let (from, to) = (data.sources(unit.array), data.targets(unit.array));
        let route = &self.routes[unit.route];
        let share = route.on_lines(to, unit.share.clone());
        // SAFETY: no two units have an element in common: routes have different ends, and the units of a route cut its rows,
        // or positions, into disjoint ranges, whose ends `on_lines` moves for both neighbours alike. A scaling was made for
        // the array's type. The rest is passed on.
        unsafe { copy(CopyJob { route, manner, from, to, share }, worker) };
    }
}

/// Bytes of a unit, if a plan is cut for so many workers.
pub fn fair_unit(plan: &Plan, workers: usize) -> u64 {
    let fair = (plan.bytes() / 8 / workers.max(1) as u64).clamp(LEAST, UNIT);
    fair.max(plan.bytes() / MOST_UNITS)
}

fn wanted<'a>(array: &'a Array, order: &'a [usize], targets: &[usize]) -> RouteSpec<'a> {
    let end = |&target: &usize| {
        let planned @ Target { strides, tracks, rows, .. } = &array.targets()[target];
        let parts = array.parts(planned).map(|part| part as u32).collect();
        DestinationSpec { target, tracks, parts, strides, rows: rows.clone() }
    };
    RouteSpec {
        elem: array.wanted().elem_bytes(),
        order,
        from_strides: array.sources().iter().map(|source| source.strides.as_slice()).collect(),
        ends: targets.iter().map(end).collect(),
        own: None,
    }
}

/// One route for each target, or for several that share all but the fast axis.
fn routes_of(
    array: &Array,
    unit_bytes: u64,
    level: Level,
    wanted_target: &impl Fn(&Target) -> bool,
) -> Vec<Route> {
    let busy = |&target: &usize| {
        let target = &array.targets()[target];
        target.elems() > 0 && wanted_target(target)
    };
    let mut targets: Vec<(Vec<usize>, Vec<*const reshard_plan::Track>, usize)> = (0..array.targets().len())
        .filter(busy)
        .map(|target| {
            let order = by_stride(&array.targets()[target]);
            let tracks = &array.targets()[target].tracks;
            let slow = order[..order.len() - 1].iter().map(|&dim| Arc::as_ptr(&tracks[dim])).collect();
            (order, slow, target)
        })
        .collect();
    targets.sort();
    let mut routes = Vec::new();
    for alike in targets.chunk_by(|a, b| (&a.0, &a.1) == (&b.0, &b.1)) {
        for group in alike.chunks(MOST_ENDS) {
            let numbers: Vec<usize> = group.iter().map(|(_, _, target)| *target).collect();
            let together = Route::new(&wanted(array, &group[0].0, &numbers), level);
            let many_rows = together.row_bytes() <= unit_bytes;
            if numbers.len() == 1 || (together.kernel() == Kernel::Rows && many_rows) {
                routes.push(in_reach(together, array, &group[0].0, &numbers, level));
                continue;
            }
            for &number in &numbers {
                let alone = Route::new(&wanted(array, &group[0].0, &[number]), level);
                routes.push(in_reach(alone, array, &group[0].0, &[number], level));
            }
        }
    }
    routes
}

/// A transposition needs the axis along which its source is adjacent next to the fast one.
fn in_reach(route: Route, array: &Array, order: &[usize], targets: &[usize], level: Level) -> Route {
    let Kernel::Tiles { across } = route.kernel() else { return route };
    if across + 2 == order.len() {
        return route;
    }
    let mut order = order.to_vec();
    let moved = order.remove(across);
    order.insert(order.len() - 1, moved);
    Route::new(&wanted(array, &order, targets), level)
}

/// Calls `unit(how far in the array, share)` for pieces of about the given size.
fn cut(route: &Route, unit_bytes: u64, workers: u64, mut unit: impl FnMut(f64, CopyRange)) {
    let rows = route.rows();
    let row_bytes = route.row_bytes();
    // A row longer than a unit is cut itself.
    let (count, by_row) = match row_bytes > unit_bytes && route.ends().len() == 1 {
        true => (route.positions(), false),
        false => (rows, true),
    };
    let bytes = u128::from(rows) * u128::from(row_bytes);
    let mut units = (bytes.div_ceil(u128::from(unit_bytes)) as u64).clamp(1, count.max(1));
    if let Kernel::Tiles { .. } = route.kernel() {
        // Long columns: the streams of a transposition need a few pages to get going.
        units = units.min((rows * route.elem() / TILE_COLUMN).max(workers));
    }
    let at = |k: u64| (u128::from(count) * u128::from(k) / u128::from(units)) as u64;
    for k in 0..units {
        let range = at(k)..at(k + 1);
        let share = if by_row { CopyRange::Rows(range) } else { CopyRange::Positions(range) };
        unit(k as f64 / units as f64, share);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::BufferTable;
    use reshard_plan::{Distribution, Layout, Move, Order};

    fn run_without_parts(tuning: Tuning) {
        let layout =
            |text: &str| Layout::new(text.parse::<Distribution>().expect("a layout"), Order::ColMajor);
        let moving = Move::new(layout("2/3 of 20"), layout("2/5 of 20")).expect("one shape");
        let plan = Arc::new(Plan::new(vec![moving]).expect("a plan"));
        let work = TaskList::new(Arc::clone(&plan), 1, tuning);
        let mut table = BufferTable::new(plan);
        let outcome = work.run(&mut table.fill(), &mut ThreadPool::new(1).expect("the caller's thread"));
        assert!(outcome.is_ok());
    }

    #[test]
    #[should_panic(expected = "all parts were entered")]
    fn units_refuse_data_that_is_not_there() {
        run_without_parts(Tuning { level: Level::best(), unit_bytes: None, streams: None });
    }
}
