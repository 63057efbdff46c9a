//! Counts allocations in tests, each thread its own, so that tests which run at the same time do not disturb the count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Without a destructor and with a constant to begin with: reading it allocates nothing at any time in a thread's life.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often the calling thread has asked for memory.
pub(crate) fn of_this_thread() -> u64 {
    COUNT.get()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    COUNT.set(COUNT.get() + 1);
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what that returns; counting
// touches a plain number of the thread's own and cannot unwind or allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and all our memory is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, and all our memory is the system's.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
