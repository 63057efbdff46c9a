//! The functions as C calls them, without MPI: what they do, by value, and what they refuse, by code and sentence.
//!
//! Between processes they are tested by programs of C and Fortran: `xtask/tests/installed.rs`.

mod couplings;
mod layouts;
mod refused;
mod rings;
mod runs;

use crate::arrays::*;
use crate::border::*;
use crate::engine::*;
use crate::index::*;
use crate::layout::*;
use crate::plan::*;
use crate::publisher::*;
use crate::ring::*;
use crate::run::*;
use crate::subscriber::*;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

fn message() -> String {
    // SAFETY: a text that stays until the next failure.
    unsafe { CStr::from_ptr(reshard_error_message()) }.to_string_lossy().into_owned()
}

#[track_caller]
fn done(code: c_int) {
    assert_eq!(code, RESHARD_OK, "{}", message());
}

#[track_caller]
fn refused(code: c_int, expected: c_int, says: &str) {
    assert_eq!(code, expected, "{}", message());
    assert!(message().contains(says), "{:?} does not say {says:?}", message());
}

/// What is owned in a test, and freed when it ends.
struct Owned<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once.
        unsafe { (self.1)(self.0) }
    }
}

fn layout(notation: &str) -> Owned<reshard_layout> {
    let (text, mut made) = (CString::new(notation).unwrap(), null_mut());
    // SAFETY: a text and a place.
    done(unsafe { reshard_layout_parse(text.as_ptr(), &raw mut made) });
    Owned(made, reshard_layout_free)
}

fn plan(arrays: &[(&str, &str, usize)]) -> Owned<reshard_plan> {
    let mut made = null_mut();
    // SAFETY: objects that live, and places. Layouts are freed at once: plans keep copies.
    unsafe {
        done(reshard_plan_new(&raw mut made));
        for (from, to, bytes) in arrays {
            done(reshard_plan_add(made, layout(from).0, layout(to).0, *bytes));
        }
    }
    Owned(made, reshard_plan_free)
}

fn engine(arrays: &[(&str, &str, usize)]) -> Owned<reshard_engine> {
    let mut made = null_mut();
    // SAFETY: objects that live, and places. The plan is freed at once: engines keep what they need.
    done(unsafe { reshard_engine_threads(plan(arrays).0, c"threads=2".as_ptr(), &raw mut made) });
    Owned(made, reshard_engine_free)
}

fn sources<T>(parts: &[Vec<T>]) -> Vec<reshard_source> {
    let source =
        |part: &Vec<T>| reshard_source { address: part.as_ptr().cast(), bytes: size_of_val(&part[..]) };
    parts.iter().map(source).collect()
}

fn targets<T>(parts: &mut [Vec<T>]) -> Vec<reshard_target> {
    let target = |part: &mut Vec<T>| reshard_target {
        address: part.as_mut_ptr().cast(),
        bytes: size_of_val(&part[..]),
    };
    parts.iter_mut().map(target).collect()
}

fn array(from: &[reshard_source], to: &[reshard_target]) -> reshard_array {
    reshard_array {
        from: from.as_ptr(),
        from_count: from.len(),
        to: to.as_ptr(),
        to_count: to.len(),
        ..one_array(None, None)
    }
}

const DEALT: (&str, &str, usize) = ("2/1 of 4", "1/4 of 4", 8);
