//! Out of memory: one sentence on standard error and exit code 1, where the standard library would abort with a backtrace.
//!
//! Two kinds of allocations must be distinguished. The library handles failed allocations of everything that grows with the
//! problem: it has to get null, as its own error says what the memory was for. Everything else (a string, a node of a tree, a
//! buffer of the writer) ends in the standard library's handler, which prints, aborts, and can be replaced on nightly only.
//! The allocator does not know its caller, but it knows the alignment, and all callers that handle a failure allocate cache
//! lines of 64 bytes: the engines for their data, the planner once before each long list (`reshard_plan::memory`). So those
//! get null, and for all others the sentence is written here, without allocating, and the process ends. Other code that would
//! handle a failure, such as reading a whole file, ends with that sentence, too.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Alignment in bytes from which on the caller handles a failed allocation.
const LINE: usize = 64;

/// The activity of the command, for the sentence.
static ACTIVITY: OnceLock<&'static str> = OnceLock::new();

/// The system's allocator; it ends the process with a sentence when memory runs out.
pub struct ExitOnOom;

/// Sets the activity that the sentence names, such as `planning a redistribution`.
pub fn set_activity(activity: &'static str) {
    // Set once, by the command; a second call would change nothing.
    let _ = ACTIVITY.set(activity);
}

// SAFETY: every call is forwarded unchanged to the system's allocator, and its result returned unchanged, unless the process
// ends.
unsafe impl GlobalAlloc for ExitOnOom {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        checked(unsafe { System.alloc(layout) }, layout.size(), layout.align())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size(), layout.align())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        checked(unsafe { System.realloc(at, layout, size) }, size, layout.align())
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract, which is the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Ends the process if an allocation failed that the caller does not handle.
fn checked(at: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    if at.is_null() && align < LINE {
        end(bytes);
    }
    at
}

/// Writes how many bytes could not be allocated, and ends the process. Nothing here allocates.
#[cold]
fn end(bytes: usize) -> ! {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if REPORTED.swap(true, Ordering::Relaxed) {
        // Another thread is reporting, and ends the process.
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let activity = ACTIVITY.get().copied().unwrap_or("reading the command line");
    let mut sentence = FixedBuffer { text: [0; 256], len: 0 };
    // The sentence fits: all activities are short texts of this program.
    let _ = writeln!(
        sentence,
        "error: out of memory: {bytes} bytes more were wanted while {activity}; take a smaller problem or allow more memory"
    );
    // SAFETY: the bytes are initialised, and a failed write is ignored. `_exit` runs no exit handlers: they might allocate.
    unsafe {
        libc::write(libc::STDERR_FILENO, sentence.text.as_ptr().cast(), sentence.len);
        libc::_exit(1)
    }
}

/// Text in a buffer of fixed size.
struct FixedBuffer {
    text: [u8; 256],
    len: usize,
}

impl fmt::Write for FixedBuffer {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let end = self.len + more.len();
        self.text.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(more.as_bytes());
        self.len = end;
        Ok(())
    }
}
