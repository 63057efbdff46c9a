//! The way in and out: every function of the header is one call of [`border`]. Codes, the last message, and pointers of the caller.

use reshard::error::counted;
use reshard::grid::MAX_DIMS;
use reshard::{Error, ErrorKind};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// No error.
pub const RESHARD_OK: c_int = 0;
/// A text is no layout, the message says at which character; or a word of it is no option.
pub const RESHARD_ERROR_NOTATION: c_int = 1;
/// Two things that must fit together do not: dimensions, sizes, counts, orders; or what ranks were given differs.
pub const RESHARD_ERROR_MISMATCH: c_int = 2;
/// An index, rank or process lies outside its range.
pub const RESHARD_ERROR_OUT_OF_RANGE: c_int = 3;
/// A length, count or amount of work is larger than the library accepts (lengths: 2^62).
pub const RESHARD_ERROR_TOO_LARGE: c_int = 4;
/// The request makes sense, but is not supported.
pub const RESHARD_ERROR_UNSUPPORTED: c_int = 5;
/// More memory would be needed than is allowed or available.
pub const RESHARD_ERROR_MEMORY: c_int = 6;
/// Something failed while data was moving; the destination is only partly written.
pub const RESHARD_ERROR_FAILED: c_int = 7;
/// Something outside of the library failed or is missing: MPI, another rank.
pub const RESHARD_ERROR_EXTERNAL: c_int = 8;
/// The other job of a coupling is absent, gone or late, or wants something else.
pub const RESHARD_ERROR_PARTNER: c_int = 9;
/// An argument is a null pointer, or a number that stands for nothing.
pub const RESHARD_ERROR_ARGUMENT: c_int = 100;
/// The engine has a run in flight, or another thread is using it; wait for the run first.
pub const RESHARD_ERROR_BUSY: c_int = 101;
/// A mistake of the library itself. What it was asked for is not done, or partly; free its objects, or end the program.
pub const RESHARD_ERROR_INTERNAL: c_int = 102;

/// What a call of the caller's came to, if not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: c_int,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.kind().code(), message: error.to_string() }
    }
}

impl Failure {
    /// An argument that is wrong whatever the others are.
    pub fn argument(message: impl Into<String>) -> Self {
        Self { code: RESHARD_ERROR_ARGUMENT, message: message.into() }
    }

    pub fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// This error as Rust's, which the other ranks are told. What only C can get wrong has no kind there, so it is a mismatch.
    pub fn to_error(&self) -> Error {
        Error::new(ErrorKind::from_code(self.code).unwrap_or(ErrorKind::Mismatch), self.message.clone())
    }
}

thread_local! {
    /// The message of the last call that failed on this thread.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function of the header: a failure becomes its code and the thread's message, a panic a failure.
pub fn border(body: impl FnOnce() -> Outcome<()>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let why = panic_text(panic.as_ref());
        let message =
            format!("the library panicked, which is a mistake of its own ({why}); please report it");
        Err(Failure { code: RESHARD_ERROR_INTERNAL, message })
    });
    let Err(failure) = outcome else { return RESHARD_OK };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // On a thread that is ending there is nobody left to read it.
    let _ = MESSAGE.try_with(|message| message.replace(text));
    failure.code
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// The sentence that belongs to the last call that failed on this thread; an empty string if none has. It stays until
/// another call fails on this thread: calls that succeed, and all that free something, leave it alone.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_error_message() -> *const c_char {
    // The text stays where it is until another one takes its place.
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of a code, as in the JSON of the program `reshard`: "ok", "notation", "mismatch", ...; "unknown" if there is no
/// such code. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_error_name(code: c_int) -> *const c_char {
    let name = match code {
        RESHARD_OK => c"ok",
        RESHARD_ERROR_NOTATION => c"notation",
        RESHARD_ERROR_MISMATCH => c"mismatch",
        RESHARD_ERROR_OUT_OF_RANGE => c"out-of-range",
        RESHARD_ERROR_TOO_LARGE => c"too-large",
        RESHARD_ERROR_UNSUPPORTED => c"unsupported",
        RESHARD_ERROR_MEMORY => c"memory",
        RESHARD_ERROR_FAILED => c"failed",
        RESHARD_ERROR_EXTERNAL => c"external",
        RESHARD_ERROR_PARTNER => c"partner",
        RESHARD_ERROR_ARGUMENT => c"argument",
        RESHARD_ERROR_BUSY => c"busy",
        RESHARD_ERROR_INTERNAL => c"internal",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// The version of the library that is loaded, such as "0.1.0". `RESHARD_VERSION` is that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn reshard_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

/// An object of the caller's, made by this library.
///
/// # Safety
/// Null, or an object of this type that lives and that nobody changes meanwhile.
pub unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// An object of the caller's that is to be changed, or a place for an answer.
///
/// # Safety
/// Null, or a value of this type that lives and that nobody else uses meanwhile.
pub unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Outcome<&'a mut T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(name))
}

/// A list of the caller's.
///
/// # Safety
/// Null, or so many values that live and that nobody changes meanwhile.
pub unsafe fn list<'a, T>(pointer: *const T, count: usize, name: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!(
            "`{name}` was given with {count} entries, which no memory holds"
        )));
    }
    if pointer.is_null() {
        return Err(Failure::argument(format!(
            "`{name}` was given as a null pointer, and must have {}",
            counted(count, "value")
        )));
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A place for a list of answers.
///
/// # Safety
/// Null, or room for so many values that nobody else uses meanwhile.
pub unsafe fn places<'a, T>(pointer: *mut T, count: usize, name: &str) -> Outcome<&'a mut [T]> {
    // SAFETY: promised by the caller.
    unsafe { list(pointer, count, name)? };
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null, and not too long for any memory; the rest is promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// A text of the caller's.
///
/// # Safety
/// Null, or a text that ends with 0.
pub unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| {
        let at = error.valid_up_to();
        Failure::argument(format!("`{name}` is no text: byte {at} of it is not UTF-8; give plain letters"))
    })
}

/// Frees an object of the caller's; null is none.
///
/// # Safety
/// Null, or an object that this library made and that nobody uses any more.
pub unsafe fn free<T>(object: *mut T) {
    border(|| {
        if !object.is_null() {
            // SAFETY: promised by the caller; all objects are made as boxes.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    });
}

/// Hands an object to the caller, who frees it.
pub fn hand_out<T>(object: T, to: &mut *mut T) {
    *to = Box::into_raw(Box::new(object));
}

/// Fails before a list with one number for each dimension is read.
pub fn check_dims(dims: usize) -> Outcome<()> {
    match dims {
        1..=MAX_DIMS => Ok(()),
        _ => Err(Failure::of(
            ErrorKind::Mismatch,
            format!("{} were given; arrays have 1 to {MAX_DIMS}", counted(dims, "dimension")),
        )),
    }
}

fn null(name: &str) -> Failure {
    Failure::argument(format!("`{name}` was given as a null pointer, and is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: a text that stays until the next failure.
        unsafe { CStr::from_ptr(reshard_error_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn failures_leave_their_sentence_and_successes_leave_it_alone() {
        assert_eq!((border(|| Ok(())), message().as_str()), (RESHARD_OK, ""));
        let failing = |text: &str| border(|| Err(Failure::of(ErrorKind::TooLarge, text)));
        assert_eq!((failing("to\0o large"), message().as_str()), (RESHARD_ERROR_TOO_LARGE, "to o large"));
        assert_eq!((border(|| Ok(())), message().as_str()), (RESHARD_OK, "to o large"));
        let elsewhere = std::thread::spawn(message).join().unwrap();
        assert_eq!(elsewhere, "");
        assert_eq!((failing("again"), message().as_str()), (RESHARD_ERROR_TOO_LARGE, "again"));
    }

    #[test]
    fn panics_become_a_code() {
        let panicking = || border(|| panic!("out of {}", "order"));
        assert_eq!(panicking(), RESHARD_ERROR_INTERNAL);
        assert!(message().contains("(out of order)"), "{}", message());
        assert_eq!(border(|| std::panic::panic_any(7)), RESHARD_ERROR_INTERNAL);
        assert!(message().contains("without a message"), "{}", message());
    }

    /// Codes are promised: those of the library's kinds are its numbers, and each has the name of its kind.
    #[test]
    fn codes_are_those_of_the_library() {
        let codes = [
            RESHARD_ERROR_NOTATION,
            RESHARD_ERROR_MISMATCH,
            RESHARD_ERROR_OUT_OF_RANGE,
            RESHARD_ERROR_TOO_LARGE,
            RESHARD_ERROR_UNSUPPORTED,
            RESHARD_ERROR_MEMORY,
            RESHARD_ERROR_FAILED,
            RESHARD_ERROR_EXTERNAL,
            RESHARD_ERROR_PARTNER,
        ];
        // SAFETY: names are texts that are never freed.
        let name = |code| unsafe { CStr::from_ptr(reshard_error_name(code)) }.to_str().unwrap();
        for (kind, code) in ErrorKind::ALL.into_iter().zip(codes) {
            assert_eq!((kind.code(), kind.name()), (code, name(code)));
            assert_eq!(Failure::of(kind, "so").to_error(), Error::new(kind, "so"));
        }
        assert_eq!(Failure::argument("so").to_error().kind(), ErrorKind::Mismatch);
        let rest = [0, 100, 101, 102, 10, -1].map(name);
        assert_eq!(rest, ["ok", "argument", "busy", "internal", "unknown", "unknown"]);
    }

    #[test]
    fn pointers_are_checked_before_they_are_followed() {
        // SAFETY: null, or too long to be read.
        unsafe {
            let refused = |failure: Failure| (failure.code, failure.message);
            let (code, said) = refused(object::<u8>(std::ptr::null(), "layout").unwrap_err());
            assert_eq!((code, said.as_str()), (100, "`layout` was given as a null pointer, and is needed"));
            assert!(place::<u8>(std::ptr::null_mut(), "run").is_err());
            assert_eq!(list::<u64>(std::ptr::null(), 0, "shape").unwrap(), &[] as &[u64]);
            let (_, said) = refused(list::<u64>(std::ptr::null(), 2, "shape").unwrap_err());
            assert_eq!(said, "`shape` was given as a null pointer, and must have 2 values");
            let (_, said) = refused(list::<u64>(std::ptr::null(), 1, "shape").unwrap_err());
            assert_eq!(said, "`shape` was given as a null pointer, and must have 1 value");
            let (_, said) = refused(list(&raw const code, usize::MAX, "shape").unwrap_err());
            assert!(said.contains("no memory holds"), "{said}");
            assert!(places::<u64>(std::ptr::null_mut(), 1, "strides").is_err());
            let (_, said) = refused(text(c"ab\xff".as_ptr(), "notation").unwrap_err());
            assert_eq!(said, "`notation` is no text: byte 2 of it is not UTF-8; give plain letters");
            assert!(text(std::ptr::null(), "notation").is_err());
            free::<u64>(std::ptr::null_mut());
        }
        assert_eq!([0, 1, 8, 9].map(|dims| check_dims(dims).is_ok()), [false, true, true, false]);
    }
}
