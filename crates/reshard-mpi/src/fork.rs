//! Forks of this process, as Python's multiprocessing makes them: connections and shared memory are the parent's, and the
//! child must touch neither, not even when it drops an engine.
//!
//! A handler notices a `fork` of the C library; a page that the kernel wipes in every child (`MADV_WIPEONFORK`, since Linux 4.14) notices those
//! of `clone` itself, too.

#![allow(unsafe_code)]

use reshard_plan::{Error, ErrorKind};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// True in this process, and false in its children, where the kernel wipes the page it is on; null where it does not.
static OURS: AtomicPtr<AtomicBool> = AtomicPtr::new(null_mut());

/// Runs in a child after `fork`.
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Makes what notices forks of this process: from the first rank on that this process is.
pub fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler stores a number, which a child may do. If it cannot be registered, such forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if let Some(ours) = wiped_in_children() {
            ours.store(true, Ordering::Relaxed);
            OURS.store(std::ptr::from_ref(ours).cast_mut(), Ordering::Release);
        }
    });
}

/// A word on a page of its own, which stays mapped and is all zero in every child. None where the kernel knows no such pages.
fn wiped_in_children() -> Option<&'static AtomicBool> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, of a page or less, which the kernel rounds up; it is never unmapped, unless the advice is refused, and then
    // nobody has seen it. A zero is a value of the type.
    unsafe {
        let bytes = size_of::<AtomicBool>();
        let page = libc::mmap(null_mut(), bytes, access, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, bytes, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, bytes);
            return None;
        }
        page.cast::<AtomicBool>().as_ref()
    }
}

/// The error of a call in such a process.
pub fn forked_off() -> Error {
    Error::new(
        ErrorKind::External,
        "this process was forked off one that is a rank, and cannot be one itself; let the parent do it, or start the child anew",
    )
}

/// True if this process was forked off one that is a rank. It must not touch what its parent shares with other ranks.
pub fn is_forked() -> bool {
    // SAFETY: null, or a word that is never unmapped.
    let ours = unsafe { OURS.load(Ordering::Acquire).as_ref() };
    FORKED.load(Ordering::Relaxed) || ours.is_some_and(|ours| !ours.load(Ordering::Relaxed))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A child ends with whether it is forked, and does nothing else: locks of other threads may be held for ever.
    #[test]
    fn children_are_noticed_however_they_were_made() {
        watch_forks();
        assert!(!is_forked());
        type Way = (&'static str, fn() -> libc::c_long);
        let ways: [Way; 2] = [
            // SAFETY: the child ends at once.
            ("fork", || unsafe { libc::fork() }.into()),
            // SAFETY: likewise; no memory is shared, and the child goes on with a copy of this stack.
            ("clone", || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }),
        ];
        for (name, make) in ways {
            let child = make();
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(is_forked())) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(i64::from(unsafe { libc::waitpid(child as i32, &raw mut status, 0) }), child);
            assert_eq!(libc::WEXITSTATUS(status), 1, "{name} goes unnoticed");
            assert!(!is_forked());
        }
    }
}
