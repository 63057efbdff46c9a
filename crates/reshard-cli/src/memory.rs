//! No memory left: one sentence on standard error and exit code 1, where the standard library would abort with a backtrace.
//!
//! Two kinds of requests must be told apart. The library asks for whatever grows with the problem and takes no for an answer:
//! it has to get its null, as its own error says what the memory was for. Everything else (a string, a node of a tree, a
//! buffer of the writer) ends in the standard library's handler, which prints, aborts, and can be replaced on nightly only.
//! The allocator is not told who asks, but it is told the alignment, and all who can be refused ask for lines of 64 bytes: the
//! engines for their data, the planner once before each long list (`reshard_plan::memory`). So those get null, and for all
//! others the sentence is written here, without allocating, and the process ends. Code from elsewhere that could have been
//! refused, such as reading a whole file, ends with that sentence, too.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From this alignment on whoever asks can be refused.
const LINE: usize = 64;

/// What the command does, for the sentence.
static DOING: OnceLock<&'static str> = OnceLock::new();

/// The system's allocator, with a last word.
pub struct LastWord;

/// From now on memory is wanted for this: `planning a redistribution`.
pub fn wanted_while(doing: &'static str) {
    // Said once, by the command; a second one would change nothing.
    let _ = DOING.set(doing);
}

// SAFETY: every call goes to the system's allocator as it came, and its answer comes back as it is, unless the process ends.
unsafe impl GlobalAlloc for LastWord {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system's.
        had(unsafe { System.alloc(layout) }, layout.size(), layout.align())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system's.
        had(unsafe { System.alloc_zeroed(layout) }, layout.size(), layout.align())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are the system's.
        had(unsafe { System.realloc(at, layout, size) }, size, layout.align())
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

fn had(at: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    if at.is_null() && align < LINE {
        end(bytes);
    }
    at
}

/// Says how much was wanted, and ends the process. Nothing here allocates.
#[cold]
fn end(bytes: usize) -> ! {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        // Another thread is saying it, and ends this one with it.
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let doing = DOING.get().copied().unwrap_or("reading the command line");
    let mut sentence = LastSentence { text: [0; 256], len: 0 };
    // Longer than there is room for it cannot be: the words are all in this program.
    let _ = writeln!(
        sentence,
        "error: out of memory: {bytes} bytes more were wanted while {doing}; take a smaller problem or allow more memory"
    );
    // SAFETY: the bytes are there, and whoever is to read them may be gone. Nothing that belongs to anybody else is run at the
    // end: it might allocate.
    unsafe {
        libc::write(libc::STDERR_FILENO, sentence.text.as_ptr().cast(), sentence.len);
        libc::_exit(1)
    }
}

/// Text in a place of its own.
struct LastSentence {
    text: [u8; 256],
    len: usize,
}

impl fmt::Write for LastSentence {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let end = self.len + more.len();
        self.text.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(more.as_bytes());
        self.len = end;
        Ok(())
    }
}
