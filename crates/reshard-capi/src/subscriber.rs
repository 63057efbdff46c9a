//! The consumer's side of a coupling: arrays of another job, step after step.

use crate::arrays::reshard_target;
use crate::border::{Failure, Outcome, border, free, hand_out, list, object, place, text};
use crate::coupling::{Processes, of_ranks, refused, targets};
use crate::engine::words;
use crate::layout::{reshard_layout, same_dims};
use crate::options::{of_subscriber, of_subscription};
use crate::plan::{RESHARD_ALL, reshard_window};
use reshard_couple::{ArrayId, Subscriber, Subscription};
use std::ffi::{c_char, c_int};

/// A consumer: it asks for arrays of another job in layouts of its own, and gets every step. Free it with `reshard_subscriber_free`.
pub struct reshard_subscriber {
    processes: Processes,
    subscriber: Option<Subscriber>,
    arrays: Vec<ArrayId>,
    header: Vec<u8>,
}

impl reshard_subscriber {
    fn subscriber(&mut self) -> Outcome<&mut Subscriber> {
        self.subscriber.as_mut().ok_or_else(|| Failure::argument("`subscriber` has left; make a new one"))
    }

    fn array(&self, array: usize) -> Outcome<ArrayId> {
        let count = self.arrays.len();
        let wrong = || Failure::argument(format!("array {array} was given; {count} were subscribed to"));
        self.arrays.get(array).copied().ok_or_else(wrong)
    }
}

/// What is known of a step.
#[repr(C)]
pub struct reshard_step {
    /// The producer's number of it.
    pub number: u64,
    /// How many steps of the array were dropped since the last one.
    pub dropped: u64,
    /// What the producer says of it: so many bytes, which stay until the next call with this consumer.
    pub header: *const u8,
    /// How many bytes.
    pub header_bytes: usize,
}

fn made(processes: Processes, options: reshard_couple::Options) -> reshard_subscriber {
    let subscriber = Subscriber::new(processes.job.clone(), options);
    reshard_subscriber { processes, subscriber: Some(subscriber), arrays: Vec::new(), header: Vec::new() }
}

/// A consumer that is this process alone: it hosts all ranks of its layouts, and gets the parts of all. Options (null or "": none), words of
/// one text: `deadline=SECONDS` (of every wait for the other job; 30), `connections=N` (how many to hold at a time; any number), `tcp` (no
/// shared memory).
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscriber_new(
    options: *const c_char,
    subscriber: *mut *mut reshard_subscriber,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let subscriber = unsafe { place(subscriber, "subscriber")? };
        *subscriber = std::ptr::null_mut();
        // SAFETY: likewise.
        let options = of_subscriber(unsafe { words(options)? })?;
        hand_out(made(Processes::one(), options.options), subscriber);
        Ok(())
    })
}

/// A consumer whose ranks are those of a communicator, given as Fortran's handle; `reshard_subscriber_mpi` takes an MPI_Comm. Collective, as is
/// all that is done with it but `reshard_subscribe`. Options as for `reshard_subscriber_new`, and `program=NAME`, `partner=NAME` as for
/// `reshard_publisher_fortran`.
///
/// # Safety
/// Pointers as C promises them; the handle is that of a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscriber_fortran(
    comm: i32,
    options: *const c_char,
    subscriber: *mut *mut reshard_subscriber,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (place, options) = unsafe { (place(subscriber, "subscriber"), words(options)) };
        // SAFETY: likewise.
        unsafe { of_ranks(comm, place, options.and_then(of_subscriber), made) }
    })
}

/// Asks for an array, before `reshard_subscriber_connect`. The type is a name, as for `reshard_publish`. `window` is a part of the producer's array and
/// where it goes, its `from` in the producer's array; null for all of it. Options (null or "": none): `depth=N` (steps that the producer
/// keeps before it waits; 2), `drop-oldest` (it never waits, and drops the oldest), `whole` (nothing is written until all of a step is
/// there). `array` becomes its number for `reshard_get`.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscribe(
    subscriber: *mut reshard_subscriber,
    name: *const c_char,
    layout: *const reshard_layout,
    element: *const c_char,
    window: *const reshard_window,
    options: *const c_char,
    array: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (subscriber, array) = unsafe { (place(subscriber, "subscriber")?, place(array, "array")?) };
        // SAFETY: likewise.
        let (name, layout, element) =
            unsafe { (text(name, "name")?, object(layout, "layout")?, text(element, "element")?) };
        // SAFETY: likewise.
        let wanted = of_subscription(Subscription::new(name, &layout.0, element.parse()?), unsafe {
            words(options)?
        })?;
        // SAFETY: likewise.
        let wanted = match unsafe { window.as_ref() } {
            None => wanted,
            // SAFETY: likewise.
            Some(window) => unsafe { windowed(wanted, window, layout)? },
        };
        let id = subscriber.subscriber()?.subscribe_to(wanted)?;
        *array = subscriber.arrays.len();
        subscriber.arrays.push(id);
        Ok(())
    })
}

/// # Safety
/// The lists of the window are null, or have a number for each dimension of the layout.
unsafe fn windowed(
    wanted: Subscription,
    window: &reshard_window,
    layout: &reshard_layout,
) -> Outcome<Subscription> {
    if window.triangle != RESHARD_ALL {
        return Err(Failure::argument(
            "`window` is a triangle; couplings move whole windows: give RESHARD_ALL",
        ));
    }
    let shape = layout.0.distribution().shape();
    let dims = shape.len();
    let lists = [window.shape, window.from, window.to];
    if !window.axes.is_null() || lists.iter().any(|list| !list.is_null()) {
        same_dims(window.dims, dims, "window")?;
    }
    let zeros = vec![0; dims];
    let axes: Vec<usize> = (0..dims).collect();
    // SAFETY: promised by the caller.
    let numbers = |pointer: *const u64, none: &[u64], name: &str| -> Outcome<Vec<u64>> {
        Ok(if pointer.is_null() { none.to_vec() } else { unsafe { list(pointer, dims, name)? }.to_vec() })
    };
    let asked = numbers(window.shape, &shape, "window->shape")?;
    let (from, to) =
        (numbers(window.from, &zeros, "window->from")?, numbers(window.to, &zeros, "window->to")?);
    let axes = if window.axes.is_null() {
        axes
    } else {
        // SAFETY: likewise.
        unsafe { list(window.axes, dims, "window->axes")? }.to_vec()
    };
    Ok(wanted.of_window(&asked, &from, &to, &axes))
}

/// Finds the producer, agrees with it, and plans: steps that are put from now on will come. `meeting` as for `reshard_publisher_open`; a file is waited for.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscriber_connect(
    subscriber: *mut reshard_subscriber,
    meeting: *const c_char,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let subscriber = unsafe { place(subscriber, "subscriber")? };
        // SAFETY: likewise.
        let text = (!meeting.is_null()).then(|| unsafe { text(meeting, "meeting") }).transpose();
        let meeting = text.and_then(|text| subscriber.processes.meeting(text));
        let subscriber = subscriber.subscriber()?;
        let meeting = meeting.map_err(|why| refused(subscriber.refuse(why.to_error()), why))?;
        subscriber.connect(&meeting)?;
        Ok(())
    })
}

/// Gets the next step of an array into the parts of the ranks that this process hosts, by ascending rank. `there` becomes 1, or 0 if there are no
/// more; `step` (may be null) what is known of it. After an error parts may be written in places, unless `whole` steps were asked for.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_get(
    subscriber: *mut reshard_subscriber,
    array: usize,
    parts: *const reshard_target,
    parts_count: usize,
    step: *mut reshard_step,
    there: *mut c_int,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (one, there) = unsafe { (place(subscriber, "subscriber")?, place(there, "there")) };
        let there = there.map(|there| {
            *there = 0;
            there
        });
        // SAFETY: likewise.
        let given = there.and_then(|there| Ok((there, unsafe { targets(parts, parts_count)? })));
        let given = given.and_then(|(there, parts)| Ok((one.array(array)?, there, parts)));
        let subscriber = one.subscriber()?;
        let (array, there, mut parts) =
            given.map_err(|why| refused(subscriber.refuse(why.to_error()), why))?;
        let Some(info) = subscriber.get_bytes(array, &mut parts)? else { return Ok(()) };
        *there = 1;
        one.header = info.header;
        // SAFETY: likewise.
        if let Some(step) = unsafe { step.as_mut() } {
            let header = &one.header;
            let (header, header_bytes) = (header.as_ptr(), header.len());
            *step = reshard_step { number: info.number, dropped: info.dropped, header, header_bytes };
        }
        Ok(())
    })
}

/// Tells the producer that no more steps are wanted.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscriber_leave(subscriber: *mut reshard_subscriber) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let subscriber = unsafe { place(subscriber, "subscriber")? };
        subscriber.subscriber()?;
        subscriber.subscriber.take().into_iter().for_each(Subscriber::leave);
        Ok(())
    })
}

/// Frees a consumer; the producer of one that has not left is told that it is gone. Null is allowed.
///
/// # Safety
/// Null, or a consumer of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_subscriber_free(subscriber: *mut reshard_subscriber) {
    // SAFETY: as the function's.
    unsafe { free(subscriber) };
}
