//! The producer's side of a coupling: arrays that another job gets, step after step.

use crate::arrays::reshard_source;
use crate::border::{Failure, Outcome, border, free, hand_out, list, object, place, text};
use crate::coupling::{Processes, of_ranks, refused, sources};
use crate::engine::words;
use crate::layout::reshard_layout;
use crate::options::of_publisher;
use reshard_couple::{ArrayId, Publisher};
use std::ffi::{c_char, c_int, c_void};

/// A producer: it publishes arrays under names, and puts a step of one whenever it has one; a `reshard_subscriber` of another job gets
/// them, in a layout of its own. docs/coupling.md says how jobs meet, and what happens when one fails. Free it with `reshard_publisher_free`.
pub struct reshard_publisher {
    processes: Processes,
    publisher: Option<Publisher>,
    arrays: Vec<ArrayId>,
}

impl reshard_publisher {
    fn publisher(&mut self) -> Outcome<&mut Publisher> {
        self.publisher
            .as_mut()
            .ok_or_else(|| Failure::argument("`publisher` has been finished; make a new one"))
    }

    fn array(&self, array: usize) -> Outcome<ArrayId> {
        let wrong =
            || Failure::argument(format!("array {array} was given; {} are published", self.arrays.len()));
        self.arrays.get(array).copied().ok_or_else(wrong)
    }
}

fn made(processes: Processes, options: reshard_couple::Options) -> reshard_publisher {
    let publisher = Publisher::new(processes.job.clone(), options);
    reshard_publisher { processes, publisher: Some(publisher), arrays: Vec::new() }
}

/// A producer that is this process alone: it hosts all ranks of its layouts, and gives the parts of all. Options (null or "": none), words of
/// one text: `deadline=SECONDS` (of every wait for the other job; 30), `consumers=N` (how many may come at a time; 1), `bind=ADDRESS:PORT` (where
/// it listens; the loopback), `host=NAME` (by which other machines reach it), `tcp` (no shared memory).
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_new(
    options: *const c_char,
    publisher: *mut *mut reshard_publisher,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let publisher = unsafe { place(publisher, "publisher")? };
        *publisher = std::ptr::null_mut();
        // SAFETY: likewise.
        let options = of_publisher(unsafe { words(options)? })?;
        hand_out(made(Processes::one(), options.options), publisher);
        Ok(())
    })
}

/// A producer whose ranks are those of a communicator, given as Fortran's handle; `reshard_publisher_mpi` takes an MPI_Comm. Collective, as is all
/// that is done with it but `reshard_publish`. Options as for `reshard_publisher_new`; and, where one launch began both jobs and this communicator has
/// the ranks of both, `program=NAME` (of this one) and `partner=NAME` (of the other): MPI then carries the data.
///
/// # Safety
/// Pointers as C promises them; the handle is that of a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_fortran(
    comm: i32,
    options: *const c_char,
    publisher: *mut *mut reshard_publisher,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (place, options) = unsafe { (place(publisher, "publisher"), words(options)) };
        // SAFETY: likewise.
        unsafe { of_ranks(comm, place, options.and_then(of_publisher), made) }
    })
}

/// Publishes an array under a name, before `reshard_publisher_open`. The type is a name: f32, f64, c64, c128, i8 to i64, u8 to u64, or
/// bytes(N) for elements of N bytes of which nothing else is known; both jobs must say the same. `array` becomes its number for `reshard_put`.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publish(
    publisher: *mut reshard_publisher,
    name: *const c_char,
    layout: *const reshard_layout,
    element: *const c_char,
    array: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (publisher, array) = unsafe { (place(publisher, "publisher")?, place(array, "array")?) };
        // SAFETY: likewise.
        let (name, layout, element) =
            unsafe { (text(name, "name")?, object(layout, "layout")?, text(element, "element")?) };
        let id = publisher.publisher()?.publish(name, &layout.0, element.parse()?)?;
        *array = publisher.arrays.len();
        publisher.arrays.push(id);
        Ok(())
    })
}

/// Lets consumers come. `meeting` is the path of a file that is written for them, or "at HOST:PORT" with a secret in the environment variable
/// RESHARD_SECRET, or null for programs of one launch.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_open(
    publisher: *mut reshard_publisher,
    meeting: *const c_char,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let publisher = unsafe { place(publisher, "publisher")? };
        // SAFETY: likewise.
        let text = (!meeting.is_null()).then(|| unsafe { text(meeting, "meeting") }).transpose();
        let meeting = text.and_then(|text| publisher.processes.meeting(text));
        let publisher = publisher.publisher()?;
        let meeting = meeting.map_err(|why| refused(publisher.refuse(why.to_error()), why))?;
        Ok(publisher.open(&meeting)?)
    })
}

/// Waits until so many consumers are there. Without it, who comes later gets the steps from then on.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_wait_for(
    publisher: *mut reshard_publisher,
    consumers: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let publisher = unsafe { place(publisher, "publisher")? };
        Ok(publisher.publisher()?.wait_for(consumers)?)
    })
}

/// Gives a step of an array to all consumers, with a number and a few bytes of the program's own (at most 4096; null with 0: none). The parts are those
/// of the ranks that this process hosts, by ascending rank, and may be changed when this returns. RESHARD_ERROR_PARTNER says that a consumer is gone; the
/// step went to all others, and the program may go on.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_put(
    publisher: *mut reshard_publisher,
    array: usize,
    number: u64,
    header: *const c_void,
    header_bytes: usize,
    parts: *const reshard_source,
    parts_count: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let publisher = unsafe { place(publisher, "publisher")? };
        // SAFETY: likewise.
        let given = unsafe {
            list(header.cast::<u8>(), header_bytes, "header")
                .and_then(|header| Ok((header, sources(parts, parts_count)?)))
        };
        let given = given.and_then(|(header, parts)| Ok((publisher.array(array)?, header, parts)));
        let publisher = publisher.publisher()?;
        let (array, header, parts) = given.map_err(|why| refused(publisher.refuse(why.to_error()), why))?;
        Ok(publisher.put_bytes(array, number, header, &parts)?)
    })
}

/// Says that there are no more steps, and waits until consumers have taken those that wait, and left. `complete` (may be null) becomes the number of
/// consumers that took the last step of each of their arrays.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_finish(
    publisher: *mut reshard_publisher,
    complete: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let publisher = unsafe { place(publisher, "publisher")? };
        publisher.publisher()?;
        let taken = publisher.publisher.take().map_or(Ok(0), Publisher::finish)?;
        // SAFETY: likewise.
        if let Some(complete) = unsafe { complete.as_mut() } {
            *complete = taken;
        }
        Ok(())
    })
}

/// Frees a producer; consumers of one that was not finished are told that it is gone. Null is allowed.
///
/// # Safety
/// Null, or a producer of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_publisher_free(publisher: *mut reshard_publisher) {
    // SAFETY: as the function's.
    unsafe { free(publisher) };
}
