//! The values of every element before and after a move, so that all of them can be verified.
//!
//! An element's bytes are a function of its global index: an odd multiple of each coordinate, added and mixed. Along a row
//! the sum grows evenly, so an array is filled and checked about as fast as it is copied, without a table. The
//! destination begins with other bytes; elements outside the window must still have them at the end.

#[cfg(test)]
mod tests;

use super::bytes::ByteRun;
use crate::screen::index;
use reshard::{Layout, MemoryOrder, Result};
use reshard_plan::Problem;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes of a task for one thread, about.
const TASK_BYTES: u64 = 4 << 20;

/// The multiples of coordinates, one for each axis of the source: all odd and far apart.
const MULTIPLES: [u64; 8] = [
    0x9e37_79b9_7f4a_7c15,
    0xd1b5_4a32_d192_ed03,
    0xabc9_8388_fb8f_ac03,
    0x8cb9_2ba7_2f3d_8dd7,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0xff51_afd7_ed55_8ccd,
    0xa24b_aed4_963e_e407,
];

/// Added to the keys of the destination before a move, so that they differ from the keys of the source.
const BEFORE: u64 = 0x5851_f42d_4c95_7f2d;

/// From one step of a coupling to the next.
const STEP: u64 = 0x94d0_49bb_1331_11eb;

/// The key of an element is a sum over its coordinates; mixed, it is the element's value.
#[derive(Clone, Debug)]
struct Key {
    base: u64,
    steps: Vec<u64>,
}

impl Key {
    fn new(base: u64, dims: usize) -> Self {
        Self { base, steps: MULTIPLES[..dims].to_vec() }
    }
}

/// The values of all elements of one side.
pub struct Values<'a> {
    layout: &'a Layout,
    elem_bytes: usize,
    key: Key,
    /// Other values for the elements of a window of the array.
    window: Option<(Vec<Range<u64>>, Key)>,
    parts: Vec<Part>,
}

/// One rank's part of the array.
struct Part {
    rank: u64,
    coords: Vec<u64>,
    shape: Vec<u64>,
    /// Elements of a row, which are adjacent, and the number of rows.
    row: u64,
    rows: u64,
}

/// A task for one thread: some rows of a part.
struct RowTask {
    part: usize,
    rows: Range<u64>,
    bytes: usize,
}

/// An element with a wrong value.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    rank: u64,
    global: Vec<u64>,
    in_window: bool,
    found: Vec<u8>,
    expected: Vec<u8>,
}

impl<'a> Values<'a> {
    /// The values of the source.
    pub fn of_source(layout: &'a Layout, elem_bytes: usize) -> Result<Self> {
        Self::new(layout, elem_bytes, Key::new(0, layout.distribution().dims()), None)
    }

    /// The values of a step of a coupling, on either side.
    pub fn of_step(layout: &'a Layout, elem_bytes: usize, step: u64) -> Result<Self> {
        let base = (step + 1).wrapping_mul(STEP);
        Self::new(layout, elem_bytes, Key::new(base, layout.distribution().dims()), None)
    }

    /// The values of the destination before a move.
    pub fn before(layout: &'a Layout, elem_bytes: usize) -> Result<Self> {
        Self::new(layout, elem_bytes, Key::new(BEFORE, layout.distribution().dims()), None)
    }

    /// The values of the destination after a move.
    pub fn after(layout: &'a Layout, elem_bytes: usize, problem: &Problem) -> Result<Self> {
        let source = Key::new(0, problem.axes().len());
        let steps: Vec<u64> = problem.axes().iter().map(|&from| source.steps[from]).collect();
        let mut moved = Key { base: source.base, steps };
        let mut ranges = Vec::with_capacity(problem.axes().len());
        for (dim, &from) in problem.axes().iter().enumerate() {
            let (to_at, from_at) = (problem.to_offset()[dim], problem.from_offset()[from]);
            ranges.push(to_at..to_at + problem.shape()[from]);
            moved.base = moved.base.wrapping_add(from_at.wrapping_sub(to_at).wrapping_mul(moved.steps[dim]));
        }
        let key = Key::new(BEFORE, layout.distribution().dims());
        Self::new(layout, elem_bytes, key, Some((ranges, moved)))
    }

    fn new(
        layout: &'a Layout,
        elem_bytes: usize,
        key: Key,
        window: Option<(Vec<Range<u64>>, Key)>,
    ) -> Result<Self> {
        let distribution = layout.distribution();
        let part = |rank: u64| {
            let (coords, shape) = (distribution.coords(rank)?, distribution.local_shape(rank)?);
            let row = shape[fast_dim(layout)];
            let rows = distribution.local_elems(rank)?.checked_div(row).unwrap_or(0);
            Ok(Part { rank, coords, shape, row, rows })
        };
        let parts = distribution.grid().sorted_ranks().into_iter().map(part).collect::<Result<_>>()?;
        Ok(Self { layout, elem_bytes, key, window, parts })
    }

    /// The values of one rank's part only; `None` if it has none.
    pub fn of_rank(mut self, rank: u64) -> Option<Self> {
        self.parts.retain(|part| part.rank == rank);
        (!self.parts.is_empty()).then_some(self)
    }

    /// Bytes of each rank's part, by ascending rank: the parts are in memory in this order, one after the other.
    pub fn spans(&self) -> Vec<usize> {
        self.parts.iter().map(|part| (part.row * part.rows) as usize * self.elem_bytes).collect()
    }

    /// Writes all elements.
    pub fn fill(&self, memory: &mut [u8], threads: usize) {
        let mut rest = memory;
        let tasks = self.tasks().map(|task| {
            let (here, after) = std::mem::take(&mut rest).split_at_mut(task.bytes);
            rest = after;
            (task, here)
        });
        for_each_on_threads(tasks, threads, |(task, here): (RowTask, &mut [u8])| {
            self.walk(&task, |run| run.write(&mut here[run.bytes.clone()], self.elem_bytes));
            None::<()>
        });
    }

    /// Reads all elements. Returns the first that is wrong, by rank and address.
    pub fn check(&self, memory: &[u8], threads: usize) -> Result<Option<Wrong>> {
        let mut rest = memory;
        let tasks = self.tasks().map(|task| {
            let (here, after) = rest.split_at(task.bytes);
            rest = after;
            (task, here)
        });
        let wrong = for_each_on_threads(tasks, threads, |(task, here): (RowTask, &[u8])| {
            let mut first = None;
            self.walk(&task, |run| {
                if first.is_none() {
                    first = run.wrong(&here[run.bytes.clone()], self.elem_bytes).map(|(at, expected)| {
                        let at = run.bytes.start + at * self.elem_bytes;
                        (at, here[at..at + self.elem_bytes].to_vec(), expected)
                    });
                }
            });
            let (at, found, expected) = first?;
            let before = task.rows.start * self.parts[task.part].row;
            Some((task.part, before + (at / self.elem_bytes) as u64, found, expected))
        });
        // Tasks are taken in order, so the first wrong element is among those found.
        let first = wrong.into_iter().min_by_key(|&(part, at, ..)| (part, at));
        let Some((part, at, found, expected)) = first else { return Ok(None) };
        let rank = self.parts[part].rank;
        let global = self.layout.distribution().global_from_local(rank, &self.local(part, at))?;
        let in_window = self.window.as_ref().is_none_or(|(ranges, _)| {
            ranges.iter().zip(&global).all(|(range, coordinate)| range.contains(coordinate))
        });
        Ok(Some(Wrong { rank, global, in_window, found, expected }))
    }

    fn tasks(&self) -> impl Iterator<Item = RowTask> + '_ {
        self.parts.iter().enumerate().flat_map(move |(number, part)| {
            let row = part.row * self.elem_bytes as u64;
            let together = (TASK_BYTES / row.max(1)).max(1);
            (0..part.rows).step_by(together as usize).map(move |first| {
                let rows = first..(first + together).min(part.rows);
                RowTask { part: number, bytes: ((rows.end - rows.start) * row) as usize, rows }
            })
        })
    }

    /// The local index of a part's element.
    fn local(&self, part: usize, at: u64) -> Vec<u64> {
        let shape = &self.parts[part].shape;
        let (mut local, mut rest) = (vec![0; shape.len()], at);
        for dim in dims_from_fast(self.layout) {
            local[dim] = rest % shape[dim].max(1);
            rest /= shape[dim].max(1);
        }
        local
    }

    fn walk(&self, task: &RowTask, mut each: impl FnMut(&ByteRun)) {
        let part = &self.parts[task.part];
        let axes = self.layout.distribution().axes();
        let fast = fast_dim(self.layout);
        let mut at = 0;
        for row in task.rows.clone() {
            let (mut key, mut moved_key, mut inside) = (self.key.base, 0, self.window.is_some());
            let mut rest = row;
            for dim in dims_from_fast(self.layout).filter(|&dim| dim != fast) {
                // It is one of the part's elements.
                let global =
                    axes[dim].global_from_local(part.coords[dim], rest % part.shape[dim]).unwrap_or(0);
                rest /= part.shape[dim];
                key = key.wrapping_add(global.wrapping_mul(self.key.steps[dim]));
                if let Some((ranges, moved)) = &self.window {
                    moved_key = global.wrapping_mul(moved.steps[dim]).wrapping_add(moved_key);
                    inside &= ranges[dim].contains(&global);
                }
            }
            let mut run = |range: Range<u64>, key: u64, step: u64| {
                if range.start < range.end {
                    let end = at + (range.end - range.start) as usize * self.elem_bytes;
                    let key = key.wrapping_add(range.start.wrapping_mul(step));
                    each(&ByteRun { bytes: at..end, key, step });
                    at = end;
                }
            };
            for block in axes[fast].blocks(part.coords[fast], 0) {
                let step = self.key.steps[fast];
                match &self.window {
                    Some((ranges, moved)) if inside => {
                        let begin = ranges[fast].start.clamp(block.start, block.end);
                        let end = ranges[fast].end.clamp(begin, block.end);
                        run(block.start..begin, key, step);
                        run(begin..end, moved.base.wrapping_add(moved_key), moved.steps[fast]);
                        run(end..block.end, key, step);
                    }
                    _ => run(block, key, step),
                }
            }
        }
    }
}

/// Calls a function for each item, in order, on up to `threads` threads, the caller's included; fewer if the system starts
/// fewer. A thread whose call returns something stops; all that was returned is collected.
fn for_each_on_threads<T: Send, R: Send>(
    items: impl Iterator<Item = T> + Send,
    threads: usize,
    work: impl Fn(T) -> Option<R> + Sync,
) -> Vec<R> {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = &|| std::iter::from_fn(next).find_map(&work);
    std::thread::scope(|scope| {
        let helper = |_| std::thread::Builder::new().spawn_scoped(scope, worker).ok();
        let helpers: Vec<_> = (1..threads).map_while(helper).collect();
        let mine = worker();
        let theirs = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        theirs.chain([mine]).flatten().collect()
    })
}

fn fast_dim(layout: &Layout) -> usize {
    match layout.order() {
        MemoryOrder::ColMajor => 0,
        MemoryOrder::RowMajor => layout.distribution().dims() - 1,
    }
}

/// The dimensions from fastest to slowest: the elements of the first are adjacent.
fn dims_from_fast(layout: &Layout) -> impl Iterator<Item = usize> {
    let (dims, order) = (layout.distribution().dims(), layout.order());
    (0..dims).map(move |dim| if order == MemoryOrder::ColMajor { dim } else { dims - 1 - dim })
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |bytes: &[u8]| {
            let shown: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            if bytes.len() > 16 { shown + ".." } else { shown }
        };
        let problem = if self.in_window { "is wrong" } else { "lies outside the window and was changed" };
        write!(
            f,
            "element {} of the destination, on rank {}, {problem}: its bytes are {} and should be {}",
            index(&self.global),
            self.rank,
            hex(&self.found),
            hex(&self.expected)
        )
    }
}
