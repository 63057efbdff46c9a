//! Parts next to guard pages: a byte read or written outside of a part ends the program.
//!
//! Vectors are longer than elements and are loaded under masks, or by two loads that overlap. A mistake there reads bytes that
//! nobody uses, which no comparison of values can show.

#![allow(unsafe_code)] // guard pages

use super::arrays::{Places, every_engine, for_each_moved, plan_of};
use super::sizes::pairs;
use reshard::{Layout, Move};
use reshard_testkit::full_sweep;

/// Bytes between two guard pages, adjacent to one of them.
struct Guarded {
    first: *mut u8,
    mapped: usize,
    at: usize,
    len: usize,
}

impl Guarded {
    fn new(bytes: &[u8], at_end: bool) -> Self {
        // SAFETY: a query of the page size accesses no memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let room = bytes.len().next_multiple_of(page);
        let mapped = room + 2 * page;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANON;
        // SAFETY: new pages anywhere, of which those between the first and the last are made accessible.
        let first = unsafe {
            let first = libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, kind, -1, 0);
            assert_ne!(first, libc::MAP_FAILED);
            let first = first.cast::<u8>();
            assert_eq!(libc::mprotect(first.add(page).cast(), room, libc::PROT_READ | libc::PROT_WRITE), 0);
            first
        };
        let at = if at_end { page + room - bytes.len() } else { page };
        let mut guarded = Self { first, mapped, at, len: bytes.len() };
        guarded.as_mut().copy_from_slice(bytes);
        guarded
    }
}

impl AsRef<[u8]> for Guarded {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these bytes lie in the accessible pages, and belong to this value.
        unsafe { std::slice::from_raw_parts(self.first.add(self.at), self.len) }
    }
}

impl AsMut<[u8]> for Guarded {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(self.at), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a borrow of it.
        unsafe { libc::munmap(self.first.cast(), self.mapped) };
    }
}

fn judge(moving: &Move) {
    let elem = moving.elem_bytes() as usize;
    let bytes = |layout: &Layout, salt: usize| -> Vec<Vec<u8>> {
        let parts = Places::of(layout).parts(|| 0_u8).into_iter();
        parts
            .map(|part| (0..part.len() * elem).map(|at| (at * 89 + salt) as u8 ^ (at >> 8) as u8).collect())
            .collect()
    };
    let (from, to) = (bytes(moving.from(), 1), bytes(moving.to(), 2));
    let mut wanted = to.clone();
    for_each_moved(moving, |(part, at), (to_part, to_at)| {
        let (source, place) = (at * elem..(at + 1) * elem, to_at * elem..(to_at + 1) * elem);
        wanted[to_part][place].copy_from_slice(&from[part][source]);
    });
    for mut engine in every_engine(&plan_of(moving)) {
        for at_end in [false, true] {
            let guarded = |parts: &[Vec<u8>]| -> Vec<_> {
                parts.iter().map(|part| Guarded::new(part, at_end)).collect()
            };
            let (from, mut to) = (guarded(&from), guarded(&to));
            engine.run_bytes(&from, &mut to).unwrap();
            assert!(to.iter().map(AsRef::as_ref).eq(wanted.iter().map(Vec::as_slice)), "{moving:?}");
        }
    }
}

#[test]
fn nothing_is_touched_outside_of_a_part() {
    for (number, pair) in pairs().into_iter().enumerate() {
        let sizes =
            (1..=32).filter(|size| full_sweep() || [4, 8, 16, 1 + 3 * number as u64 % 31].contains(size));
        for size in sizes {
            judge(&pair.clone().of_bytes(size).unwrap());
        }
    }
}
