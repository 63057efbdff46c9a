//! The copy kernels: one for each kind of row, compiled for each instruction set level.

mod cursor;
mod elements;
mod pieces;
mod plain;
mod rows;
mod short;
mod turned;

pub use plain::plain_copy;
pub use turned::columns_of;

use crate::route::{CopyRange, Kernel, MAX_DESTINATIONS, Route};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Vector};
use crate::store::{PlainSink, ScaledSink, Scaling, Sink, StreamingSink};
use reshard_plan::Array;
use rows::RowMode;
use turned::{TurnScratch, TurnSizes};

/// Arrays of at least this many bytes do not stay in the caches: non-temporal stores and prefetching pay off.
const LARGE_ARRAY_BYTES: u64 = 8 << 20;

/// True if the array does not fit into the caches, so that kernels should use non-temporal stores and prefetch.
pub fn exceeds_caches(array: &Array) -> bool {
    array.elems().saturating_mul(array.wanted().elem_bytes()) >= LARGE_ARRAY_BYTES
}

/// Working memory of one worker, kept from run to run so that copying allocates nothing.
pub struct Scratch {
    level: Level,
    rows: rows::RowScratch,
    turn: TurnScratch,
}

// SAFETY: the addresses it holds are only used during a run, which borrows the memory they point to, by the thread that runs.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Allocates scratch for all these routes: [`Scratch::bytes`] bytes, at no moment more.
    pub fn new<'a>(level: Level, routes: impl Iterator<Item = &'a Route>) -> Self {
        let Needs { peers, origins, turn } = Needs::of(routes);
        Self { level, rows: rows::RowScratch::new(peers, origins), turn: TurnScratch::new(turn) }
    }

    /// Returns the bytes of scratch for all these routes.
    pub fn bytes<'a>(routes: impl Iterator<Item = &'a Route>) -> u64 {
        let Needs { peers, origins, turn } = Needs::of(routes);
        rows::RowScratch::bytes(peers, origins) + turn.bytes()
    }
}

/// The largest scratch any of some routes needs, of each kind.
struct Needs {
    peers: usize,
    /// Peers that a loop of short pieces takes from.
    origins: usize,
    turn: TurnSizes,
}

impl Needs {
    fn of<'a>(routes: impl Iterator<Item = &'a Route>) -> Self {
        let mut needs = Self { peers: 0, origins: 0, turn: TurnSizes::default() };
        for route in routes {
            needs.peers = needs.peers.max(route.peers);
            needs.origins = needs.origins.max(route.short_origins());
            needs.turn = needs.turn.with(route);
        }
        needs
    }
}

/// Cache policy and scaling of a copy.
#[derive(Clone, Copy, Default)]
pub struct CopyMode<'a> {
    /// Use non-temporal stores: for destinations that do not fit into the caches.
    pub non_temporal: bool,
    /// Prefetch sources: for those that are not in the caches.
    pub prefetch_reads: bool,
    /// Prefetch destinations for writing: for staging buffers and fragments, which another core read last.
    pub prefetch_writes: bool,
    /// Scale elements instead of copying them.
    pub scaling: Option<&'a Scaling>,
}

/// The arguments of one copy: a range of a route, its sources and destinations.
#[derive(Clone)]
pub struct CopyJob<'a> {
    /// The route.
    pub route: &'a Route,
    /// Cache policy and scaling.
    pub mode: CopyMode<'a>,
    /// The address of each source.
    pub from: &'a [*const u8],
    /// The address of each destination.
    pub to: &'a [*mut u8],
    /// The rows or positions to copy.
    pub range: CopyRange,
}

/// Runs a copy job.
///
/// # Safety
/// Counted from the addresses of sources and destinations, all elements of the range lie in memory that is valid for reading,
/// or for writing; of a transpose, all elements of the route for reading. The addresses themselves may lie outside of it, as
/// offsets are added with wrapping. No source overlaps a destination; nobody else accesses the destination's bytes of this range;
/// the scratch was made for this route; with a scaling, elements are of its type.
pub unsafe fn copy(job: CopyJob<'_>, scratch: &mut Scratch) {
    // SAFETY: by the caller's contract; the processor supports the level.
    unsafe {
        match scratch.level {
            Level::Portable => run::<Portable>(job, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(job, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vbmi => avx512(job, scratch),
            #[cfg(not(target_arch = "x86_64"))]
            _ => run::<Portable>(job, scratch),
        }
    }
}

macro_rules! compiled_for {
    ($name:ident, $level:ty, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name(job: CopyJob<'_>, scratch: &mut Scratch) {
            // SAFETY: by the caller's contract.
            unsafe { run::<$level>(job, scratch) }
        }
    };
}
compiled_for!(avx2, Avx2, "avx2");
compiled_for!(avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,bmi2,avx2");

#[inline(always)]
unsafe fn run<V: Vector>(job: CopyJob<'_>, scratch: &mut Scratch) {
    // SAFETY: by the caller's contract.
    unsafe {
        match (job.mode.scaling, job.mode.non_temporal) {
            (Some(scaling), _) => {
                let sink = ScaledSink { scaling, elem: job.route.elem, to: std::ptr::null_mut() };
                run_into::<V, _>(job, scratch, sink);
            }
            (None, true) => {
                run_into::<V, _>(job, scratch, StreamingSink::<V>::new());
                V::fence();
            }
            (None, false) => {
                let sink = PlainSink::new(job.mode.prefetch_writes);
                run_into::<V, _>(job, scratch, sink);
            }
        }
    }
}

#[inline(always)]
unsafe fn run_into<V: Vector, S: Sink<V>>(job: CopyJob<'_>, scratch: &mut Scratch, sink: S) {
    let CopyJob { route, mode, from, to, range } = job;
    let mut sinks = [sink; MAX_DESTINATIONS];
    let Scratch { rows: row_scratch, turn, .. } = scratch;
    let target = to[route.destinations[0].target];
    let elems = route.destinations[0].elems;
    if let CopyRange::Share { row, parts, of } = range {
        assert!(route.kernel() == Kernel::Rows && of > 0, "only rows are shared out");
        // SAFETY: by the caller's contract; only rows are shared out.
        unsafe {
            rows::copy_share::<V, S>(
                route,
                from,
                to,
                row,
                parts,
                of,
                mode.prefetch_reads,
                row_scratch,
                &mut sinks,
            );
            sinks.iter_mut().for_each(|sink| sink.close());
        }
        return;
    }
    // Other parts of rows are single rows, which are not worth a transpose.
    let tile = matches!(range, CopyRange::Tile { .. });
    assert!(!tile || route.kernel() != Kernel::Rows, "only transposes are cut into tiles");
    let row_mode = RowMode { exact: !matches!(range, CopyRange::Rows(_)), prefetches: mode.prefetch_reads };
    // Each kernel is called at one place only, so that it is inlined into this function and compiled for this level.
    for (rows, part) in range.stretches(elems) {
        if rows.is_empty() {
            continue;
        }
        // SAFETY: by the caller's contract.
        unsafe {
            match (route.kernel(), part) {
                (Kernel::Rows, None) => {
                    rows::copy::<V, S>(route, from, to, rows, row_mode, row_scratch, &mut sinks);
                }
                (Kernel::Rows, Some(part)) => {
                    rows::copy_part::<V, S>(
                        route,
                        from,
                        target,
                        rows.start,
                        part,
                        mode.prefetch_reads,
                        row_scratch,
                        &mut sinks[0],
                    );
                    sinks[0].close();
                }
                (Kernel::Tiles { .. }, part)
                    if route.turned.is_some() && (tile || part.is_none()) && !ignores_source(mode) =>
                {
                    let scratch = (&mut *turn, &mut row_scratch.short);
                    let columns = part.unwrap_or(0..elems);
                    turned::copy::<V, S>(route, from, target, rows, columns, scratch, &mut sinks[0]);
                }
                (_, part) => {
                    let part = part.unwrap_or(0..elems);
                    elements::copy(route, from, target, rows, &part, &mut row_scratch.here, mode.scaling);
                }
            }
        }
    }
    // SAFETY: by the caller's contract.
    sinks.iter_mut().for_each(|sink| unsafe { sink.close() });
}

/// True if nothing is read from the sources.
fn ignores_source(mode: CopyMode<'_>) -> bool {
    mode.scaling.is_some_and(|scaling| scaling.ignores_source)
}
