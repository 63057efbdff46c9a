//! The longest file that a process may write (`ulimit -f`; some batch systems set it): a call beyond it fails, and its sentence says so, where
//! the signal that comes with it would end the program without a word.

#![allow(unsafe_code)]

/// Ignores the signal. Programs that are started inherit that.
pub fn ignore_signal() {
    // SAFETY: no handler is installed, and SIGXFSZ is a signal that may be ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
