//! What becomes of an error: a message from one process, and the end of the job; or, if the program wants it, the last error of this
//! process, and a return. The routines have no argument for an outcome.

use std::ffi::{CString, c_char};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    pub message: String,
    /// This process says so; of an error that all have, one does.
    pub says: bool,
    /// All processes have it, and nothing has changed.
    pub agreed: bool,
}

/// The error of the last call. Texts are never freed: a program may keep the address.
static LAST: Mutex<Option<&'static CString>> = Mutex::new(None);

/// Writes a line to standard error, at once: in pieces it would mix with what other processes of the job say there. If that cannot be
/// written to there is no other way to say anything.
pub fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("reshard: {text}\n").as_bytes());
}

/// Forgets the error of the call before.
pub fn clear() {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Keeps an error as that of the last call.
pub fn keep(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::leak(Box::new(text)));
}

/// The error of the last call of this process as a C string; null if it had none.
pub fn last() -> *const c_char {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.map_or(std::ptr::null(), |text| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    #[allow(unsafe_code)]
    fn the_last_error_is_kept() {
        assert!(last().is_null());
        keep("first");
        let first = last();
        keep("sec\0ond");
        // SAFETY: texts that are never freed.
        let texts = unsafe { [CStr::from_ptr(first), CStr::from_ptr(last())] };
        assert_eq!(texts, [c"first", c"sec ond"]);
        clear();
        assert!(last().is_null());
    }
}
