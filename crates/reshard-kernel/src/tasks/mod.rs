//! A plan cut into tasks that any worker may take; no task accesses what another one writes.
//!
//! Destinations that differ only along the fast axis share a route, so that each row of a source is read once for all of
//! them. Tasks have up to two megabytes: large enough to make their start-up cost small, small enough that the workers end
//! together. They are taken in the order of the array, so that neighbouring tasks, which share cache lines of the sources,
//! run at about the same time.

mod groups;

pub use groups::GroupedTasks;

use crate::copy::{CopyJob, CopyMode, Scratch, columns_of, copy, exceeds_caches};
use crate::memory::Buffers;
use crate::pool::{Panicked, ThreadPool};
use crate::route::{
    CopyRange, DestinationSpec, Kernel, MAX_DESTINATIONS, Route, RouteSpec, SharedColumns, by_stride,
    source_at,
};
use crate::simd::Level;
use reshard_plan::{Array, Plan, Target};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a task at most, roughly: larger tasks balance the load worse.
const MAX_TASK_BYTES: u64 = 1 << 21;

/// Bytes of a task at least, roughly: smaller tasks cost more to start than they gain.
const MIN_TASK_BYTES: u64 = 1 << 17;

/// Bytes of each column that a task of a transpose reads at least, if there are enough tasks.
const MIN_TILE_COLUMN_BYTES: u64 = 8192;

/// The lines that a task of a transpose reads have the bytes of a task divided by this, if other destinations take from the
/// same lines: these stay in the second-level cache until all tasks have read them.
const TILES_PER_TASK: u64 = 4;

/// Bytes of such a task at least, if it may read so many.
const MIN_TILE_BYTES: u64 = 1 << 13;

/// Tasks of a plan at most, roughly; the tasks of huge plans are longer.
const MAX_TASKS: u64 = 1 << 20;

/// All routes and tasks of a plan.
pub struct TaskList {
    plan: Arc<Plan>,
    routes: Vec<Route>,
    tasks: Vec<Task>,
    large: Vec<bool>,
    scratch: Vec<Mutex<Scratch>>,
}

/// Tasks with the same sources and destinations.
pub struct TaskGroup {
    /// Index of their array.
    pub array: usize,
    /// Indices of their sources, ascending.
    pub sources: Vec<usize>,
    /// Indices of their destinations.
    pub targets: Vec<usize>,
    /// Indices of the tasks, in the order of the array.
    pub(crate) tasks: Range<usize>,
}

impl TaskGroup {
    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

struct Task {
    array: usize,
    route: usize,
    range: CopyRange,
}

/// Choices that usually depend on the plan and the processor, and that tests fix.
#[derive(Clone, Copy)]
pub struct Tuning {
    /// The instruction set level.
    pub level: Level,
    /// Bytes of a task.
    pub task_bytes: Option<u64>,
    /// Use non-temporal stores and prefetching for all arrays, or for none.
    pub non_temporal: Option<bool>,
    /// Copy rows that are longer than a task for all destinations together if they take from the same lines. Not between
    /// processes, where each would wait for all others; and processes must cut a plan alike whatever their levels, so then
    /// the tasks do not depend on the level.
    pub take_turns: bool,
}

impl TaskList {
    /// Cuts a plan for `workers` workers.
    pub fn new(plan: Arc<Plan>, workers: usize, tuning: Tuning) -> Self {
        Self::for_targets(plan, workers, tuning, |_| true)
    }

    /// Cuts only what the destinations receive for which `wanted` is true.
    pub fn for_targets(
        plan: Arc<Plan>,
        workers: usize,
        tuning: Tuning,
        wanted: impl Fn(&Target) -> bool,
    ) -> Self {
        let mut routes = Vec::new();
        let mut tasks: Vec<(f64, Task)> = Vec::new();
        let level = tuning.level;
        level.assert_supported();
        let task_bytes = tuning.task_bytes.unwrap_or_else(|| default_task_bytes(&plan, workers));
        for (number, array) in plan.arrays().iter().enumerate() {
            for route in routes_of(array, task_bytes, tuning, &wanted) {
                let mut task = |fraction, range| {
                    tasks.push((fraction, Task { array: number, route: routes.len(), range }));
                };
                match Tiles::new(&route, task_bytes / TILES_PER_TASK).filter(|_| tuning.take_turns) {
                    Some(tiles) => tiles.cut(task),
                    None => cut(&route, task_bytes, workers as u64, &mut task),
                }
                routes.push(route);
            }
        }
        tasks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let tasks: Vec<Task> = tasks.into_iter().map(|(_, task)| task).collect();
        let decide = |array: &Array| tuning.non_temporal.unwrap_or_else(|| exceeds_caches(array));
        let large = plan.arrays().iter().map(decide).collect();
        // There is no use for more workers than tasks.
        let workers = workers.min(tasks.len()).max(1);
        let scratch = (0..workers).map(|_| Mutex::new(Scratch::new(level, routes.iter()))).collect();
        Self { plan, routes, tasks, large, scratch }
    }

    /// Returns the bytes of scratch memory of all workers.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch.len() as u64 * Scratch::bytes(self.routes.iter())
    }

    /// Returns the number of workers that have something to do.
    pub fn workers(&self) -> usize {
        self.scratch.len()
    }

    /// Copies everything.
    ///
    /// # Panics
    /// If the data was entered for another plan, or the parts of a rank were not entered.
    pub fn run(&self, data: &mut Buffers<'_>, pool: &mut ThreadPool) -> Result<(), Panicked> {
        assert!(data.check_all(&self.plan).is_ok(), "all parts were entered, for this plan");
        let data = &*data;
        let next = AtomicUsize::new(0);
        pool.run(&|worker: usize| self.run_tasks(data, &next, worker))
    }

    /// Sorts the tasks by destination and returns their groups: the same in every process that cuts the same plan with the
    /// same arguments.
    pub fn groups(&mut self) -> Vec<TaskGroup> {
        let Self { routes, tasks, .. } = self;
        // Each destination of an array belongs to one route.
        let destination_of = |task: &Task| (task.array, routes[task.route].destinations()[0].target);
        tasks.sort_by_key(destination_of);
        let mut first = 0;
        let group = |tasks: &[Task]| {
            let route = &routes[tasks[0].route];
            let targets = route.destinations().iter().map(|destination| destination.target).collect();
            first += tasks.len();
            TaskGroup {
                array: tasks[0].array,
                sources: route.sources(),
                targets,
                tasks: first - tasks.len()..first,
            }
        };
        tasks.chunk_by(|a, b| destination_of(a) == destination_of(b)).map(group).collect()
    }

    /// Copies one task, on the caller's thread.
    ///
    /// # Safety
    /// The data holds every source and destination of the task's route over its whole span, until the run ends; no source
    /// overlaps a destination, and nobody else copies this task meanwhile.
    pub unsafe fn run_task(&self, task: usize, data: &mut Buffers<'_>) {
        assert!(data.belongs_to(&self.plan), "the data was entered for this plan");
        let mut scratch = self.scratch[0].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: by the caller's contract.
        unsafe { self.copy(&self.tasks[task], data, &mut scratch) };
    }

    /// Takes and copies tasks until none is left.
    fn run_tasks(&self, data: &Buffers<'_>, next: &AtomicUsize, worker: usize) {
        let Some(scratch) = self.scratch.get(worker) else { return };
        let mut scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(task) = self.tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            // SAFETY: the data holds every source and destination of the routes, and each task is taken once.
            unsafe { self.copy(task, data, &mut scratch) };
        }
    }

    /// Copies one task.
    ///
    /// # Safety
    /// The data holds every source and destination of the task's route over its whole span, until the run ends; no source
    /// overlaps a destination, and nobody else copies this task.
    unsafe fn copy(&self, task: &Task, data: &Buffers<'_>, scratch: &mut Scratch) {
        let large = self.large[task.array];
        let mode = CopyMode {
            non_temporal: large,
            prefetch_reads: large,
            scaling: data.scaling(task.array),
            ..CopyMode::default()
        };
        let (from, to) = (data.sources(task.array), data.targets(task.array));
        let route = &self.routes[task.route];
        let range = route.align_to_lines(to, task.range.clone());
        // SAFETY: no two tasks have an element in common: routes have different destinations, and the tasks of a route split
        // its rows, positions or tiles into disjoint ranges, whose bounds `align_to_lines` moves the same way for both
        // neighbours. A scaling was made for the array's type. The rest is the caller's contract.
        unsafe { copy(CopyJob { route, mode, from, to, range }, scratch) };
    }
}

/// Returns the default size of a task in bytes, for a plan cut for `workers` workers.
pub fn default_task_bytes(plan: &Plan, workers: usize) -> u64 {
    let fair = (plan.bytes() / 8 / workers.max(1) as u64).clamp(MIN_TASK_BYTES, MAX_TASK_BYTES);
    fair.max(plan.bytes() / MAX_TASKS)
}

fn route_spec<'a>(
    array: &'a Array,
    order: &'a [usize],
    targets: &[usize],
    counts_rows: bool,
) -> RouteSpec<'a> {
    let destination = |&target: &usize| {
        let planned @ Target { strides, tracks, rows, .. } = &array.targets()[target];
        let parts = (0..planned.places()).map(|place| source_at(array, planned, place) as u32).collect();
        DestinationSpec { target, tracks, parts, strides, rows: rows.clone() }
    };
    RouteSpec {
        elem: array.wanted().elem_bytes(),
        order,
        from_strides: array.sources().iter().map(|source| source.strides.as_slice()).collect(),
        destinations: targets.iter().map(destination).collect(),
        local: None,
        counts_rows,
    }
}

/// Returns one route for each destination, or for several that differ only along the fast axis.
fn routes_of(
    array: &Array,
    task_bytes: u64,
    Tuning { level, take_turns, .. }: Tuning,
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
        for group in alike.chunks(MAX_DESTINATIONS) {
            let numbers: Vec<usize> = group.iter().map(|(_, _, target)| *target).collect();
            // Between processes rows that are longer than a task are not copied together, so rows are not made longer.
            let counts_rows = !take_turns && numbers.len() > 1;
            let together = Route::new(&route_spec(array, &group[0].0, &numbers, counts_rows), level);
            let many_rows = together.row_bytes() <= task_bytes;
            let shares_lines = take_turns && together.has_short_pieces();
            if numbers.len() == 1 || (together.kernel() == Kernel::Rows && (many_rows || shares_lines)) {
                routes.push(with_adjacent_axis(together, array, &group[0].0, &numbers, level));
                continue;
            }
            for &number in &numbers {
                let alone = Route::new(&route_spec(array, &group[0].0, &[number], false), level);
                routes.push(with_adjacent_axis(alone, array, &group[0].0, &[number], level));
            }
        }
    }
    routes
}

/// Returns the route, or for a transpose one whose axes are reordered so that the axis along which the source is contiguous
/// is next to the fast one.
fn with_adjacent_axis(
    route: Route,
    array: &Array,
    order: &[usize],
    targets: &[usize],
    level: Level,
) -> Route {
    let Kernel::Tiles { across } = route.kernel() else { return route };
    if across + 2 == order.len() {
        return route;
    }
    let mut order = order.to_vec();
    let moved = order.remove(across);
    order.insert(order.len() - 1, moved);
    Route::new(&route_spec(array, &order, targets, false), level)
}

/// The tiles that a transpose is cut into, so that other destinations find the lines of the sources in the caches.
struct Tiles {
    /// Planes: positions of the slow axes but the last.
    planes: u64,
    /// Planes of a tile. More than one only if they are whole.
    together: u64,
    /// Positions of a plane along the axis that is fast in the sources, and in how many parts they are cut.
    positions: u64,
    parts: u64,
    /// Columns of a plane, and of a tile.
    columns: u64,
    width: u64,
}

impl Tiles {
    /// Returns the tiles of a route that read lines of about the given bytes; `None` if nobody else reads these lines, or there
    /// would be too many tiles.
    fn new(route: &Route, bytes: u64) -> Option<Self> {
        let SharedColumns { positions, peers, span_bytes } = route.shared_columns()?;
        let (planes, columns) = (route.rows() / positions, route.positions() / route.rows());
        let least = columns_of(route.elem() as usize) as u64;
        let fit = bytes / span_bytes.max(1);
        // No tile is so small that its start takes longer than its copy.
        let column_bytes = positions.saturating_mul(route.elem());
        let min_bytes = MIN_TILE_BYTES.min(bytes).max(1);
        let fit = fit.max(min_bytes / column_bytes.max(1)) / least * least;
        if fit >= columns {
            let together = fit / columns;
            return Some(Self { planes, together, positions, parts: 1, columns, width: columns });
        }
        let width = fit.max(least);
        let most = (column_bytes.saturating_mul(width) / min_bytes).min(positions / (4 * peers)).max(1);
        let parts = (width.saturating_mul(span_bytes) / bytes.max(1)).clamp(1, most);
        let tiles = Self { planes, together: 1, positions, parts, columns, width };
        let count = planes.saturating_mul(parts).saturating_mul(columns.div_ceil(width));
        (count <= MAX_TASKS).then_some(tiles)
    }

    /// Calls `task(fraction of the array before it, range)` for each tile. The fractions are alike for all destinations that
    /// take from the same lines, so that their tasks follow each other.
    fn cut(&self, mut task: impl FnMut(f64, CopyRange)) {
        let Self { planes, together, positions, parts, columns, width } = *self;
        let row = |part: u64| (u128::from(positions) * u128::from(part) / u128::from(parts)) as u64;
        for plane in (0..planes).step_by(together as usize) {
            let last = planes.min(plane + together) - 1;
            for part in 0..parts {
                let rows = plane * positions + row(part)..last * positions + row(part + 1);
                for first in (0..columns).step_by(width as usize) {
                    let fraction = (part as f64 + first as f64 / columns as f64) / parts as f64;
                    let columns = first..columns.min(first + width);
                    let range = CopyRange::Tile { rows: rows.clone(), columns };
                    task((plane as f64 + fraction) / planes as f64, range);
                }
            }
        }
    }
}

/// Calls `task(fraction of the array before it, range)` for ranges of about the given size.
fn cut(route: &Route, task_bytes: u64, workers: u64, mut task: impl FnMut(f64, CopyRange)) {
    let rows = route.rows();
    let row_bytes = route.row_bytes();
    if route.kernel() == Kernel::Rows && row_bytes > task_bytes {
        // A row longer than a task is cut itself.
        let of = row_bytes.div_ceil(task_bytes);
        for (row, part) in (0..rows).flat_map(|row| (0..of).map(move |part| (row, part))) {
            let fraction = (row as f64 + part as f64 / of as f64) / rows as f64;
            task(fraction, CopyRange::Share { row, parts: part..part + 1, of });
        }
        return;
    }
    let (count, by_row) = match row_bytes > task_bytes && route.destinations().len() == 1 {
        true => (route.positions(), false),
        false => (rows, true),
    };
    let bytes = u128::from(rows) * u128::from(row_bytes);
    let mut tasks = (bytes.div_ceil(u128::from(task_bytes)) as u64).clamp(1, count.max(1));
    if let Kernel::Tiles { .. } = route.kernel() {
        // Long columns: the read streams of a transpose need a few pages before the hardware prefetcher follows them.
        tasks = tasks.min((rows * route.elem() / MIN_TILE_COLUMN_BYTES).max(workers));
    }
    let at = |k: u64| (u128::from(count) * u128::from(k) / u128::from(tasks)) as u64;
    for k in 0..tasks {
        let range = at(k)..at(k + 1);
        let range = if by_row { CopyRange::Rows(range) } else { CopyRange::Positions(range) };
        task(k as f64 / tasks as f64, range);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::BufferTable;
    use reshard_plan::{Distribution, Layout, MemoryOrder, Move};
    use reshard_testkit::Random;
    use reshard_testkit::conformance::{Case, Kinds};

    /// Ranks that share tasks may have different levels, and must mean the same by the number of a task.
    #[test]
    fn tasks_of_processes_are_the_same_at_every_level() {
        let mut random = Random::new(15);
        for number in 0..600 {
            let case = Case::random(&mut random, &Kinds { elems: 20_000, ..Kinds::default() });
            let plan = Arc::new(Plan::new(vec![case.moving]).expect("a plan"));
            let tasks = |level: Level| {
                let task_bytes = [None, Some(300), Some(5_000)][number % 3];
                let tuning = Tuning { level, task_bytes, non_temporal: None, take_turns: false };
                let TaskList { routes, tasks, .. } = TaskList::new(Arc::clone(&plan), 1, tuning);
                let all = tasks.iter().map(|Task { array, route, range }| {
                    let targets: Vec<usize> =
                        routes[*route].destinations().iter().map(|to| to.target).collect();
                    let bounds = match range {
                        CopyRange::ExactRows(rows) | CopyRange::Rows(rows) => format!("rows {rows:?}"),
                        CopyRange::Positions(positions) => format!("{positions:?}"),
                        CopyRange::Tile { rows, columns } => format!("{rows:?} of {columns:?}"),
                        CopyRange::Share { row, parts, of } => format!("row {row}, {parts:?} of {of}"),
                    };
                    format!("{array} {targets:?} {bounds}")
                });
                all.collect::<Vec<_>>()
            };
            let expected = tasks(Level::Portable);
            Level::available().into_iter().for_each(|level| assert_eq!(tasks(level), expected));
        }
    }

    fn run_without_parts(tuning: Tuning) {
        let layout =
            |text: &str| Layout::new(text.parse::<Distribution>().expect("a layout"), MemoryOrder::ColMajor);
        let moving = Move::of::<f64>(layout("2/3 of 20"), layout("2/5 of 20")).expect("one shape");
        let plan = Arc::new(Plan::new(vec![moving]).expect("a plan"));
        let tasks = TaskList::new(Arc::clone(&plan), 1, tuning);
        let mut table = BufferTable::new(plan);
        let outcome = tasks.run(&mut table.fill(), &mut ThreadPool::new(1).expect("the caller's thread"));
        assert!(outcome.is_ok());
    }

    #[test]
    #[should_panic(expected = "all parts were entered")]
    fn tasks_refuse_data_that_is_not_there() {
        run_without_parts(Tuning {
            level: Level::best(),
            task_bytes: None,
            non_temporal: None,
            take_turns: true,
        });
    }
}
