//! Sources in memory that the system shows no other process: `memfd_secret`.

#![allow(unsafe_code)]

use crate::trust::{LONG, options, plan};
use crate::world::World;
use reshard_mpi::{Mover, MpiEngine, Own};

/// `memfd_secret`, since Linux 5.14.
const MEMFD_SECRET: libc::c_long = 447;

/// Bytes of an ordinary page.
const PAGE: usize = 4096;

/// Numbers, some of whose pages are secret from a time on.
struct Numbers {
    first: *mut u64,
    len: usize,
    /// Mapped bytes.
    bytes: usize,
}

impl Numbers {
    fn new(len: usize) -> Self {
        let bytes = (8 * len).next_multiple_of(PAGE).max(PAGE);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED);
        Self { first: first.cast(), len, bytes }
    }

    /// Makes the pages at the ends secret, or those between. False if the system has no such memory.
    fn hide(&mut self, part: &str) -> bool {
        let whole = self.bytes / PAGE * PAGE;
        let ranges = match part {
            "ends" => vec![(0, PAGE), (whole - PAGE, PAGE)],
            _ => vec![(whole / 2 / PAGE * PAGE, PAGE)],
        };
        ranges.into_iter().all(|(at, bytes)| {
            // SAFETY: pages of this mapping, in whose place others are mapped; nobody borrows from it now.
            unsafe {
                let file = libc::syscall(MEMFD_SECRET, 0) as i32;
                if file < 0 || libc::ftruncate(file, bytes as i64) != 0 {
                    return false;
                }
                let (access, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
                let place = self.first.cast::<libc::c_void>().wrapping_byte_add(at);
                let mapped = libc::mmap(place, bytes, access, flags, file, 0) == place;
                libc::close(file);
                mapped
            }
        })
    }

    fn as_mut(&mut self) -> &mut [u64] {
        // SAFETY: mapped, readable and writable, and borrowed like this value.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len) }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody borrows from it any more.
        unsafe { libc::munmap(self.first.cast(), self.bytes) };
    }
}

/// Rank 1 has its source in memory that no other process can read, from a run on: `unreadable-PART-RUN`. That run and all others move the
/// right elements, on all ranks.
pub fn unreadable(world: &dyn World, what: &str, mover: Mover) {
    let [_, part, from_run] = what.split('-').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let from_run: u64 = from_run.parse().unwrap();
    let ranks = world.size() as u64;
    let rows = 600_000 / ranks;
    let [from, to] = [100_000, 50_000].map(|block| format!("{ranks}/{block} of {}", ranks * rows));
    // Small tasks: all ways are tried from the first run on. Else the usual trial, whose fourth run is the first by the system.
    let made = match from_run {
        0 => MpiEngine::in_tasks(plan(&from, &to), world, options(mover, LONG), 64),
        _ => MpiEngine::new(plan(&from, &to), world, options(mover, LONG)),
    };
    let mut engine = made.unwrap();
    let layouts = [from, to].map(|text| crate::trust::layout(&text));
    let rank = world.rank() as u64;
    // Global indices of this rank's elements on both sides.
    let [mine, wanted] = layouts.each_ref().map(|layout| {
        let distribution = layout.distribution();
        let owned = (0..ranks * rows).filter(|&at| distribution.local_from_global(&[at]).unwrap().0 == rank);
        owned.collect::<Vec<u64>>()
    });
    let mut source = Numbers::new(engine.source_len(0));
    let mut target = vec![0; engine.target_len(0)];
    for run in 0..16 {
        if run == from_run && rank == 1 && !source.hide(part) {
            println!("  this system has no secret memory: nothing was tested");
        }
        for (place, at) in source.as_mut().iter_mut().zip(&mine) {
            *place = at << 20 | run;
        }
        target.fill(u64::MAX);
        engine.run(Own::new(source.as_mut(), &mut target)).unwrap();
        let wrong = target.iter().zip(&wanted).position(|(found, at)| *found != at << 20 | run);
        assert_eq!(wrong, None, "run {run}");
    }
}
