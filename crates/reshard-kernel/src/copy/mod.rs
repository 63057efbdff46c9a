//! How routes are copied: one kernel for each kind of row, compiled for each level of instructions.

mod cursor;
mod elements;
mod lines;
mod pieces;
mod plain;
mod rows;
mod transpose;

pub use plain::plain_copy;

use crate::route::{CopyRange, Kernel, MOST_ENDS, Route};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Vector};
use crate::store::{PlainSink, ScaledSink, Scaling, Sink, StreamingSink};
use rows::RowMode;
use transpose::Tile;

/// Arrays from this size on are streamed past the caches.
pub const STREAMED: u64 = 8 << 20;

/// What one worker keeps from run to run, so that copying allocates nothing.
pub struct Scratch {
    level: Level,
    scratch: rows::RowScratch,
    tile: Tile,
}

// SAFETY: the addresses in its scratch are only used while a run borrows what they point to, by the thread that runs.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Ready for all these routes: takes `bytes` of them, at no moment more.
    pub fn new<'a>(level: Level, routes: impl Iterator<Item = &'a Route>) -> Self {
        let Needs { peers, lanes, tile } = Needs::of(routes);
        Self { level, scratch: rows::RowScratch::new(peers, lanes), tile: Tile::new(tile) }
    }

    /// So many bytes it takes to be ready for all these routes.
    pub fn bytes<'a>(routes: impl Iterator<Item = &'a Route>) -> u64 {
        let Needs { peers, lanes, tile } = Needs::of(routes);
        rows::RowScratch::bytes(peers, lanes) + tile as u64
    }
}

/// The most that any of some routes needs, of each kind.
struct Needs {
    peers: usize,
    lanes: usize,
    /// Bytes of a tile.
    tile: usize,
}

impl Needs {
    fn of<'a>(routes: impl Iterator<Item = &'a Route>) -> Self {
        let mut needs = Self { peers: 0, lanes: 0, tile: 0 };
        for route in routes {
            needs.peers = needs.peers.max(route.peers);
            needs.lanes = needs.lanes.max(route.lanes());
            if matches!(route.kernel(), Kernel::Tiles { .. }) {
                needs.tile = needs.tile.max(Tile::bytes(route));
            }
        }
        needs
    }
}

/// How a route is run.
#[derive(Clone, Copy, Default)]
pub struct CopyMode<'a> {
    /// Past the caches: for destinations that do not fit into them.
    pub stream: bool,
    /// Ahead of the reading, sources are asked for: for those that do not lie in the caches.
    pub fetch: bool,
    /// Ahead of the writing, so are destinations: for boxes and letters, which were another processor's before.
    pub claim: bool,
    /// Scaled on the way.
    pub scaling: Option<&'a Scaling>,
}

/// Something to be copied: a share of a route, between two sets of parts.
#[derive(Clone)]
pub struct CopyJob<'a> {
    /// The route.
    pub route: &'a Route,
    /// How.
    pub manner: CopyMode<'a>,
    /// The beginning of each source.
    pub from: &'a [*const u8],
    /// The beginning of each destination.
    pub to: &'a [*mut u8],
    /// What of it.
    pub share: CopyRange,
}

/// Runs an errand.
///
/// # Safety
/// From the beginnings of sources and destinations, all elements of this share lie in
/// memory that is valid for reading, or for writing; the beginning itself may lie outside of it, as addresses are reckoned
/// by wrapping. No source overlaps a destination; nobody else touches the destination's bytes of this share; the worker was
/// made for this route; with a scaling, elements are of its type.
pub unsafe fn copy(errand: CopyJob<'_>, worker: &mut Scratch) {
    // SAFETY: by the caller's contract; the level is one the processor has.
    unsafe {
        match worker.level {
            Level::Portable => run::<Portable>(errand, worker),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2(errand, worker),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512(errand, worker),
            #[cfg(not(target_arch = "x86_64"))]
            _ => run::<Portable>(errand, worker),
        }
    }
}

macro_rules! compiled_for {
    ($name:ident, $level:ty, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name(errand: CopyJob<'_>, worker: &mut Scratch) {
            // SAFETY: by the caller's contract.
            unsafe { run::<$level>(errand, worker) }
        }
    };
}
compiled_for!(avx2, Avx2, "avx2");
compiled_for!(avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,bmi2,avx2");

#[inline(always)]
unsafe fn run<V: Vector>(errand: CopyJob<'_>, worker: &mut Scratch) {
    // SAFETY: by the caller's contract.
    unsafe {
        match (errand.manner.scaling, errand.manner.stream) {
            (Some(scaling), _) => {
                let sink = ScaledSink { scaling, elem: errand.route.elem, to: std::ptr::null_mut() };
                run_into::<V, _>(errand, worker, sink);
            }
            (None, true) => {
                run_into::<V, _>(errand, worker, StreamingSink::<V>::new());
                V::fence();
            }
            (None, false) => {
                let sink = PlainSink::new(errand.manner.claim);
                run_into::<V, _>(errand, worker, sink);
            }
        }
    }
}

#[inline(always)]
unsafe fn run_into<V: Vector, S: Sink<V>>(errand: CopyJob<'_>, worker: &mut Scratch, sink: S) {
    let CopyJob { route, manner, from, to, share } = errand;
    let mut sinks = [sink; MOST_ENDS];
    let Scratch { scratch, tile, .. } = worker;
    let target = to[route.ends[0].target];
    let elems = route.ends[0].elems;
    let way = RowMode { exact: !matches!(share, CopyRange::Rows(_)), fetch: manner.fetch };
    // One place for each kernel, so that it is compiled into this function, for this level.
    for (rows, part) in share.stretches(elems) {
        if rows.is_empty() {
            continue;
        }
        // SAFETY: by the caller's contract.
        unsafe {
            match (route.kernel(), part) {
                (Kernel::Rows, None) => rows::copy::<V, S>(route, from, to, rows, way, scratch, &mut sinks),
                (Kernel::Rows, Some(part)) => {
                    rows::copy_part::<V, S>(route, from, target, rows.start, part, scratch, &mut sinks[0]);
                    sinks[0].close();
                }
                (Kernel::Tiles { across }, None) if across + 1 == route.outer.len() && !ignores(manner) => {
                    transpose::copy::<V, S>(
                        route,
                        from,
                        target,
                        rows,
                        &mut scratch.here,
                        tile,
                        &mut sinks[0],
                    );
                }
                (_, part) => {
                    let part = part.unwrap_or(0..elems);
                    elements::copy(route, from, target, rows, &part, &mut scratch.here, manner.scaling);
                }
            }
        }
    }
    // SAFETY: by the caller's contract.
    sinks.iter_mut().for_each(|sink| unsafe { sink.close() });
}

/// Nothing is read from the sources.
fn ignores(manner: CopyMode<'_>) -> bool {
    manner.scaling.is_some_and(|scaling| scaling.ignores_source)
}
