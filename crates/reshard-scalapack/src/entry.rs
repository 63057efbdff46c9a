//! The border: every exported routine ends here. Nothing unwinds across it.

#![allow(unsafe_code)]

use crate::arguments::Arguments;
use crate::errors::{CallError, clear, keep, say};
use crate::groups::Kept;
use crate::host::{Width, abort};
use crate::moving::{Done, redistribute};
use crate::report;
use crate::settings::Settings;
use crate::symbols::find;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long a process that has nothing to say waits for the one that has, before it ends the job, too.
const SAYING_TIME: Duration = Duration::from_secs(3);

/// Reports totals when the process ends, if that is wished for. Called when the library is loaded.
pub extern "C" fn start() {
    if std::env::var("RESHARD_SCALAPACK").is_ok_and(|words| words.contains("report")) {
        // SAFETY: a function without arguments that does not unwind.
        unsafe { libc::atexit(report::at_exit) };
    }
}

/// Does a call. With the setting `off`, or if it is left to the PBLAS, `forward` calls the routine `name` of the library that this one stands in front of, at the
/// address it is given.
///
/// # Safety
/// As for the routine.
pub unsafe fn call<I: Width>(call: &Arguments<I>, name: &CStr, forward: impl FnOnce(*mut c_void)) {
    let settings = Settings::get();
    clear();
    if settings.off {
        return forward_to::<I>(call, name, forward, settings, "RESHARD_SCALAPACK says off");
    }
    let began = Instant::now();
    // SAFETY: promised by the caller.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { redistribute(call, settings) }));
    match outcome {
        Ok(Ok(Done::Nothing)) => {}
        Ok(Ok(Done::Forwards)) => forward_to::<I>(call, name, forward, settings, "it is left to the PBLAS"),
        Ok(Ok(Done::Moved(moved))) => {
            report::moved(&call.routine, call.rows, call.columns, &moved, began.elapsed());
        }
        Ok(Err(error)) => fail::<I>(&error, settings),
        Err(_) => {
            Kept::get().drop_everything();
            let message = format!("{}: it panicked, which is a mistake of this library", call.routine);
            fail::<I>(&CallError { message, says: true, agreed: false }, settings);
        }
    }
}

/// Calls the routine `name` of the library that this one stands in front of.
fn forward_to<I: Width>(
    call: &Arguments<I>,
    name: &CStr,
    forward: impl FnOnce(*mut c_void),
    settings: &Settings,
    why: &str,
) {
    match find(name) {
        Some((address, _)) => {
            report::forwarded(&call.routine);
            forward(address);
        }
        None => {
            let message = format!("{}: {why}, but no other library has it", name.to_string_lossy());
            fail::<I>(&CallError { message, says: true, agreed: false }, settings);
        }
    }
}

/// Keeps an error or ends the job with it.
fn fail<I: Width>(error: &CallError, settings: &Settings) {
    keep(&error.message);
    if settings.errors_return {
        return;
    }
    if error.says {
        say(&error.message);
    } else {
        std::thread::sleep(SAYING_TIME);
    }
    abort::<I>();
}
