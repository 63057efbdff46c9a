//! The only room with unsafe code: raw memory, vector instructions, and threads that outlive a borrow.
//!
//! | file | what it does |
//! |---|---|
//! | `vector.rs` | bytes copied, streamed, gathered, transposed: portable, AVX2, AVX-512 behind one trait |
//! | `sink.rs` | where rows end up: straight in memory, streamed past the caches, or scaled |
//! | `scale.rs` | `alpha * op(A) + beta * B` |
//! | `route.rs` | a part of a plan made ready: bytes, order of axes, kernel |
//! | `clock.rs` | from row to row along the slow axes |
//! | `rows.rs`, `tiles.rs`, `elements.rs` | the three kernels; `lines.rs` rows of short pieces, `sweep.rs` rows that several ends share |
//! | `data.rs` | the caller's memory |
//! | `pages.rs` | memory on huge pages |
//! | `work.rs` | a plan cut into units for many workers |
//! | `direct.rs` | units for ranks that can read each other's parts |
//! | `crew.rs` | threads that wait for work |
//! | `cargo.rs` | a plan as messages between ranks, each with its way in and out |
//! | `relay.rs` | a plan as chunks that all sources pack and a destination assembles |
//! | `hands.rs` | what a rank does with messages: packs letters, unpacks them, copies what it keeps |
//! | `freight.rs`, `station.rs` | messages between threads: slots to travel in, and the place where a rank fills and empties them |
//! | `porter.rs` | messages between processes: one rank's side |

pub mod cargo;
mod clock;
pub mod crew;
pub mod data;
pub mod direct;
mod elements;
pub mod freight;
pub mod hands;
mod lines;
mod loops;
pub mod pages;
pub mod porter;
pub mod relay;
pub mod route;
mod rows;
pub mod scale;
mod sink;
pub mod station;
mod sweep;
mod tiles;
pub mod vector;
pub mod work;

use route::{Kernel, MOST_ENDS, Route};
use rows::Way;
use scale::Scaling;
use sink::{Direct, Scaled, Sink, Stage};
use std::ops::Range;
use tiles::Tile;
#[cfg(target_arch = "x86_64")]
use vector::{Avx2, Avx512};
use vector::{Level, Portable, Vector};

/// What one worker keeps from run to run, so that copying allocates nothing.
pub struct Worker {
    level: Level,
    scratch: rows::Scratch,
    tile: Tile,
}

// SAFETY: the addresses in its scratch are only used while a run borrows what they point to, by the thread that runs.
unsafe impl Send for Worker {}

impl Worker {
    /// Ready for all these routes: takes `bytes` of them, at no moment more.
    pub fn new<'a>(level: Level, routes: impl Iterator<Item = &'a Route>) -> Self {
        let Needs { peers, lanes, tile } = Needs::of(routes);
        Self { level, scratch: rows::Scratch::new(peers, lanes), tile: Tile::new(tile) }
    }

    /// So many bytes it takes to be ready for all these routes.
    pub fn bytes<'a>(routes: impl Iterator<Item = &'a Route>) -> u64 {
        let Needs { peers, lanes, tile } = Needs::of(routes);
        rows::Scratch::bytes(peers, lanes) + tile as u64
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
pub struct Manner<'a> {
    /// Past the caches: for destinations that do not fit into them.
    pub stream: bool,
    /// Ahead of the reading, sources are asked for: for those that do not lie in the caches.
    pub fetch: bool,
    /// Ahead of the writing, so are destinations: for boxes and letters, which were another processor's before.
    pub claim: bool,
    /// Scaled on the way.
    pub scaling: Option<&'a Scaling>,
}

/// What of a route is copied.
#[derive(Clone)]
pub enum Share {
    /// Whole rows, of all ends, and nothing of any other.
    ExactRows(Range<u64>),
    /// Whole rows, of all ends; the first positions of a row may go with the row before: see [`Route`].
    Rows(Range<u64>),
    /// Some positions of the route's only end, counted row after row.
    Positions(Range<u64>),
}

/// Something to be copied: a share of a route, between two sets of parts.
#[derive(Clone)]
pub struct Errand<'a> {
    /// The route.
    pub route: &'a Route,
    /// How.
    pub manner: Manner<'a>,
    /// The beginning of each source.
    pub from: &'a [*const u8],
    /// The beginning of each destination.
    pub to: &'a [*mut u8],
    /// What of it.
    pub share: Share,
}

/// Runs an errand.
///
/// # Safety
/// From the beginnings of sources and destinations, all elements of this share lie in
/// memory that is valid for reading, or for writing; the beginning itself may lie outside of it, as addresses are reckoned
/// by wrapping. No source overlaps a destination; nobody else touches the destination's bytes of this share; the worker was
/// made for this route; with a scaling, elements are of its type.
pub unsafe fn copy(errand: Errand<'_>, worker: &mut Worker) {
    // SAFETY: passed on; the level is one the processor has.
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
        unsafe fn $name(errand: Errand<'_>, worker: &mut Worker) {
            // SAFETY: passed on.
            unsafe { run::<$level>(errand, worker) }
        }
    };
}
compiled_for!(avx2, Avx2, "avx2");
compiled_for!(avx512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,bmi2,avx2");

#[inline(always)]
unsafe fn run<V: Vector>(errand: Errand<'_>, worker: &mut Worker) {
    // SAFETY: passed on.
    unsafe {
        match (errand.manner.scaling, errand.manner.stream) {
            (Some(scaling), _) => {
                let sink = Scaled { scaling, elem: errand.route.elem, to: std::ptr::null_mut() };
                run_into::<V, _>(errand, worker, sink);
            }
            (None, true) => {
                run_into::<V, _>(errand, worker, Stage::<V>::new());
                V::fence();
            }
            (None, false) => {
                let sink = Direct::new(errand.manner.claim);
                run_into::<V, _>(errand, worker, sink);
            }
        }
    }
}

#[inline(always)]
unsafe fn run_into<V: Vector, S: Sink<V>>(errand: Errand<'_>, worker: &mut Worker, sink: S) {
    let Errand { route, manner, from, to, share } = errand;
    let mut sinks = [sink; MOST_ENDS];
    let Worker { scratch, tile, .. } = worker;
    let target = to[route.ends[0].target];
    let elems = route.ends[0].elems;
    let way = Way { exact: !matches!(share, Share::Rows(_)), fetch: manner.fetch };
    // One place for each kernel, so that it is compiled into this function, for this level.
    for (rows, part) in share.stretches(elems) {
        if rows.is_empty() {
            continue;
        }
        // SAFETY: passed on.
        unsafe {
            match (route.kernel(), part) {
                (Kernel::Rows, None) => rows::copy::<V, S>(route, from, to, rows, way, scratch, &mut sinks),
                (Kernel::Rows, Some(part)) => {
                    rows::copy_part::<V, S>(route, from, target, rows.start, part, scratch, &mut sinks[0]);
                    sinks[0].close();
                }
                (Kernel::Tiles { across }, None) if across + 1 == route.outer.len() && !ignores(manner) => {
                    tiles::copy::<V, S>(route, from, target, rows, &mut scratch.here, tile, &mut sinks[0]);
                }
                (_, part) => {
                    let part = part.unwrap_or(0..elems);
                    elements::copy(route, from, target, rows, &part, &mut scratch.here, manner.scaling);
                }
            }
        }
    }
    // SAFETY: passed on.
    sinks.iter_mut().for_each(|sink| unsafe { sink.close() });
}

impl Share {
    /// Whole rows, before and after them parts of a row, of rows of `elems` positions.
    fn stretches(self, elems: u64) -> [(Range<u64>, Option<Range<u64>>); 3] {
        let nothing = (0..0, None);
        match self {
            Self::Rows(rows) | Self::ExactRows(rows) => [(rows, None), nothing.clone(), nothing],
            Self::Positions(range) if range.is_empty() => [nothing.clone(), nothing.clone(), nothing],
            Self::Positions(range) => {
                let (first, last) = (range.start.div_ceil(elems), range.end / elems);
                if first > last {
                    let part = range.start - last * elems..range.end - last * elems;
                    return [(last..last + 1, Some(part)), nothing.clone(), nothing];
                }
                let head = (range.start / elems..first, Some(range.start % elems..elems));
                let tail = (last..range.end.div_ceil(elems), Some(0..range.end % elems));
                [head, (first..last, None), tail]
            }
        }
    }
}

/// Nothing is read from the sources.
fn ignores(manner: Manner<'_>) -> bool {
    manner.scaling.is_some_and(|scaling| scaling.ignores_source)
}

/// Copies bytes the way the best plain copy does: what every ratio is measured against.
pub fn plain_copy(to: &mut [u8], from: &[u8], stream: bool) {
    assert_eq!(to.len(), from.len(), "a plain copy has as many bytes on both sides");
    if !stream {
        return to.copy_from_slice(from);
    }
    let head = to.as_ptr().align_offset(vector::LINE).min(to.len());
    let lines = (to.len() - head) / vector::LINE;
    let tail = head + lines * vector::LINE;
    to[..head].copy_from_slice(&from[..head]);
    to[tail..].copy_from_slice(&from[tail..]);
    let (middle, source) = (&mut to[head..tail], &from[head..tail]);
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,bmi2,avx2")]
        unsafe fn widest(to: *mut u8, from: *const u8, lines: usize) {
            // SAFETY: passed on.
            unsafe {
                Avx512::stream(to, from, lines);
                Avx512::fence();
            }
        }
        #[target_feature(enable = "avx2")]
        unsafe fn wide(to: *mut u8, from: *const u8, lines: usize) {
            // SAFETY: passed on.
            unsafe {
                Avx2::stream(to, from, lines);
                Avx2::fence();
            }
        }
        // SAFETY: both slices have `lines` lines, and the destination begins at a multiple of a line; the level is there.
        match Level::best() {
            Level::Avx512 => return unsafe { widest(middle.as_mut_ptr(), source.as_ptr(), lines) },
            Level::Avx2 => return unsafe { wide(middle.as_mut_ptr(), source.as_ptr(), lines) },
            Level::Portable => {}
        }
    }
    middle.copy_from_slice(source);
}
