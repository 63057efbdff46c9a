//! Rings: items that processes hand to their neighbours until each has as many as it should.

use crate::arrays::reshard_target;
use crate::border::{Failure, Outcome, border, free, hand_out, list, object, place};
use crate::comm::of_fortran;
use crate::engine::words;
use crate::options::{RingOptions, of_ring};
use ::reshard_ring::{Direction, RingPlan, RingProblem, RingThreads};
use reshard::ErrorKind;
use reshard::error::counted;
use reshard_mpi::{MpiRing, MpiRingOptions};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// A ring: process i has loads[i] items and should have targets[i], and only neighbours exchange items. Made once, run any
/// number of times. Free it with `reshard_ring_free`.
pub struct reshard_ring(RingEngine);

enum RingEngine {
    Threads(RingThreads),
    Mpi(Box<MpiRing>),
}

/// The loads of a ring.
#[repr(C)]
pub struct reshard_loads {
    /// How many processes the ring has.
    pub processes: usize,
    /// How many items each has.
    pub loads: *const u64,
    /// How many items each should have; as many in all.
    pub targets: *const u64,
    /// What an item takes from process i to i + 1, in any unit; null: 1.
    pub right: *const u64,
    /// What an item takes from process i to i - 1; null: 1.
    pub left: *const u64,
    /// Bytes of an item.
    pub item_bytes: usize,
}

/// A ring whose processes are all in this one. Options (null or "": none): `ordered` (items are in order, process 0 has the first: a
/// GEN_BLOCK redistribution), `one-way` (items go from i to i + 1 only).
///
/// # Safety
/// Pointers as C promises them; each list has a number for each process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_ring_threads(
    loads: *const reshard_loads,
    options: *const c_char,
    ring: *mut *mut reshard_ring,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let ring = unsafe { place(ring, "ring")? };
        *ring = std::ptr::null_mut();
        // SAFETY: likewise.
        let (problem, _, item_bytes) = unsafe { stated(loads, options, false)? };
        let plan = RingPlan::solved(problem, item_bytes)?;
        hand_out(reshard_ring(RingEngine::Threads(RingThreads::new(Arc::new(plan)))), ring);
        Ok(())
    })
}

/// A ring between processes: process i is rank i of the communicator, given as Fortran's handle; `reshard_ring_mpi` takes an
/// MPI_Comm. Collective: what is wrong on one rank alone is RESHARD_ERROR_MISMATCH on all, so a rank that cannot say its loads passes null. Ranks
/// beyond the ring make and run it, too, without a part. Options as for `reshard_ring_threads`, and `memory=BYTES`, `deadline=SECONDS` or `none`.
///
/// # Safety
/// As for `reshard_ring_threads`; the handle is that of a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_ring_fortran(
    loads: *const reshard_loads,
    comm: i32,
    options: *const c_char,
    ring: *mut *mut reshard_ring,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        if let Some(ring) = unsafe { ring.as_mut() } {
            *ring = std::ptr::null_mut();
        }
        // SAFETY: likewise.
        let comm = unsafe { of_fortran(comm)? };
        // What is wrong on this rank alone is told to all: they are waiting.
        // SAFETY: likewise.
        let given = unsafe { place(ring, "ring").and_then(|ring| Ok((stated(loads, options, true)?, ring))) };
        let made = match &given {
            Ok(((problem, options, item_bytes), _)) => {
                MpiRing::of_problem(Ok(problem.clone()), *item_bytes, &comm, options.mpi)
            }
            Err(failure) => MpiRing::of_problem(Err(failure.to_error()), 1, &comm, MpiRingOptions::default()),
        };
        let (made, (_, ring)) = (made?, given?);
        hand_out(reshard_ring(RingEngine::Mpi(Box::new(made))), ring);
        Ok(())
    })
}

/// How many items a process needs room for: a few more than it has or gets, where items pass through it. 0 beyond the ring.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_ring_room(
    ring: *const reshard_ring,
    process: u64,
    items: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (ring, items) = unsafe { (object(ring, "ring")?, place(items, "items")?) };
        let plan = ring.plan();
        let process = usize::try_from(process).unwrap_or(usize::MAX);
        *items = if process < plan.procs() { plan.room(process) } else { 0 };
        Ok(())
    })
}

/// Moves the items in place. A ring in one process takes the parts of all processes, one between processes that of this rank
/// alone, none beyond the ring. The first loads[i] items of a part are there before, the first targets[i] after; it has the room that
/// `reshard_ring_room` says. A ring between processes that failed cannot be used any more.
///
/// # Safety
/// Pointers as C promises them; the parts have so many bytes, and nobody else uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_ring_run(
    ring: *mut reshard_ring,
    parts: *const reshard_target,
    count: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (ring, parts) = unsafe { (place(ring, "ring")?, slices(parts, count)) };
        match &mut ring.0 {
            RingEngine::Threads(ring) => {
                ring.run(&mut parts?)?;
            }
            RingEngine::Mpi(ring) => match own(parts) {
                Ok(part) => {
                    ring.run(part)?;
                }
                Err(failure) => {
                    ring.refuse(failure.to_error());
                    return Err(failure);
                }
            },
        }
        Ok(())
    })
}

/// Frees a ring. Null is allowed. Not collective.
///
/// # Safety
/// Null, or a ring of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_ring_free(ring: *mut reshard_ring) {
    // SAFETY: as the function's.
    unsafe { free(ring) };
}

impl reshard_ring {
    fn plan(&self) -> &RingPlan {
        match &self.0 {
            RingEngine::Threads(ring) => ring.plan(),
            RingEngine::Mpi(ring) => ring.plan(),
        }
    }
}

/// The problem, the options and the bytes of an item.
///
/// # Safety
/// As for `reshard_ring_threads`.
unsafe fn stated(
    loads: *const reshard_loads,
    options: *const c_char,
    between_processes: bool,
) -> Outcome<(RingProblem, RingOptions, usize)> {
    // SAFETY: promised by the caller.
    let (stated, options) = unsafe { (object(loads, "loads")?, words(options)?) };
    let options = of_ring(options, between_processes)?;
    let count = stated.processes;
    // SAFETY: likewise.
    let numbers =
        |list_of: *const u64, name: &str| unsafe { list(list_of, count, name) }.map(<[u64]>::to_vec);
    let (loads, targets) =
        (numbers(stated.loads, "loads->loads")?, numbers(stated.targets, "loads->targets")?);
    let mut problem = RingProblem::new(loads, targets)?;
    if !stated.right.is_null() {
        problem = problem.with_right(numbers(stated.right, "loads->right")?)?;
    }
    if !stated.left.is_null() {
        problem = problem.with_left(numbers(stated.left, "loads->left")?)?;
    }
    if options.ordered {
        problem = problem.in_order()?;
    }
    if options.one_way {
        problem = problem.with_direction(Direction::Uni)?;
    }
    Ok((problem, options, stated.item_bytes))
}

/// The parts as slices, if they are apart.
///
/// # Safety
/// The parts have so many bytes, and nobody else uses them as long as the slices.
unsafe fn slices<'a>(parts: *const reshard_target, count: usize) -> Outcome<Vec<&'a mut [u8]>> {
    // SAFETY: promised by the caller.
    let parts = unsafe { list(parts, count, "parts")? };
    let mut spans = Vec::new();
    for (process, part) in parts.iter().enumerate().filter(|(_, part)| part.bytes > 0) {
        if part.address.is_null() {
            let bytes = counted(part.bytes, "byte");
            return Err(Failure::argument(format!("part {process} was given as a null pointer of {bytes}")));
        }
        let end = part.address.addr().checked_add(part.bytes).filter(|_| isize::try_from(part.bytes).is_ok());
        let end = end.ok_or_else(|| {
            Failure::argument(format!(
                "part {process} was given with {} bytes, which no memory has",
                part.bytes
            ))
        })?;
        spans.push((part.address.addr(), end, process));
    }
    spans.sort_unstable();
    if let Some(two) = spans.windows(2).find(|two| two[1].0 < two[0].1) {
        return Err(Failure::of(
            ErrorKind::Mismatch,
            format!("parts {} and {} overlap; each process needs memory of its own", two[0].2, two[1].2),
        ));
    }
    // SAFETY: not null, and apart; the rest is promised by the caller.
    let slice = |part: &reshard_target| match part.bytes {
        0 => &mut [],
        bytes => unsafe { std::slice::from_raw_parts_mut(part.address.cast::<u8>(), bytes) },
    };
    Ok(parts.iter().map(slice).collect())
}

/// The part of this rank.
fn own(parts: Outcome<Vec<&mut [u8]>>) -> Outcome<&mut [u8]> {
    let mut parts = parts?;
    if parts.len() > 1 {
        let message = format!(
            "{} parts were given; between processes each rank gives its own, which is one",
            parts.len()
        );
        return Err(Failure::of(ErrorKind::Mismatch, message));
    }
    Ok(parts.pop().unwrap_or_default())
}
