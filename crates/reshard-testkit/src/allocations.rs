//! Counts how often memory is asked for, and how much: engines announce what they take, and take nothing when they run again.
//!
//! A test makes [`Counting`] its global allocator. It counts for each thread, so that tests which run at the same time do not
//! disturb each other, and for all threads together, for programs of their own.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, with a count.
pub struct Counting;

thread_local! {
    // Without a destructor and with a constant to begin with: reading it allocates nothing at any time in a thread's life.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// How often the calling thread has asked for memory.
pub fn of_this_thread() -> u64 {
    COUNT.get()
}

/// What `run` gave, how often any thread asked for memory while it ran, and how much more there was at most than before. Where
/// two threads count at a time, the last number is that of neither.
pub fn counted<R>(run: impl FnOnce() -> R) -> (R, u64, u64) {
    let (calls, before) = (CALLS.load(Ordering::SeqCst), BYTES.load(Ordering::SeqCst));
    PEAK.store(before, Ordering::SeqCst);
    let outcome = run();
    (outcome, CALLS.load(Ordering::SeqCst) - calls, PEAK.load(Ordering::SeqCst).saturating_sub(before))
}

fn took(bytes: usize) {
    COUNT.set(COUNT.get() + 1);
    CALLS.fetch_add(1, Ordering::Relaxed);
    let now = BYTES.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what that returns; counting touches
// numbers only, and cannot unwind or allocate. `realloc` is left to the trait: a new piece, then the old one given back.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and all our memory is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}
