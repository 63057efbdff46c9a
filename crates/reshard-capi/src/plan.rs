//! Plans: what is to be moved. One array or several, which then always move together.

use crate::border::{Failure, Outcome, border, free, hand_out, list, object, place};
use crate::layout::{reshard_layout, same_dims, span};
use reshard::{ErrorKind, Move, Triangle, Window};
use std::ffi::c_int;

/// All of a window is moved.
pub const RESHARD_ALL: c_int = 0;
/// Of a matrix, what lies on and above a diagonal is moved.
pub const RESHARD_UPPER: c_int = 1;
/// Of a matrix, what lies on and below a diagonal is moved.
pub const RESHARD_LOWER: c_int = 2;

/// A plan: the arrays that a run moves, in the order in which they were added. Free it with `reshard_plan_free`; engines
/// keep what they need.
pub struct reshard_plan(Vec<Move>);

/// Which part of the source moves, and where to in the destination. All null and 0 means: all of it, in the same place.
#[repr(C)]
pub struct reshard_window {
    /// How many numbers each list below has: the dimensions of the arrays. 0 if all are null.
    pub dims: usize,
    /// The shape of the window in the source's order of axes; null: the shape of the source.
    pub shape: *const u64,
    /// Where it begins in the source; null: at the beginning.
    pub from: *const u64,
    /// Where it begins in the destination, in the destination's order of axes; null: at the beginning.
    pub to: *const u64,
    /// Destination axis j takes source axis axes[j]: {1, 0} transposes a matrix. Null: axes stay as they are.
    pub axes: *const usize,
    /// RESHARD_ALL, RESHARD_UPPER or RESHARD_LOWER: of a matrix, only a triangle of the window.
    pub triangle: c_int,
    /// The diagonal that ends the triangle: 0 is the main one, 1 the one above it, -1 the one below.
    pub diagonal: i64,
}

/// An empty plan.
///
/// # Safety
/// Null, or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_new(plan: *mut *mut reshard_plan) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let plan = unsafe { place(plan, "plan")? };
        hand_out(reshard_plan(Vec::new()), plan);
        Ok(())
    })
}

/// Adds an array to a plan: all of it moves, from one layout to another of equal shape, elements of `element_bytes` bytes. If it
/// fails, the plan is as it was.
///
/// # Safety
/// Pointers as C promises them; nobody else uses the plan meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_add(
    plan: *mut reshard_plan,
    from: *const reshard_layout,
    to: *const reshard_layout,
    element_bytes: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (plan, from, to) = unsafe { (place(plan, "plan")?, object(from, "from")?, object(to, "to")?) };
        plan.0.push(Move::of::<u8>(from.0.clone(), to.0.clone())?.of_bytes(element_bytes as u64)?);
        Ok(())
    })
}

/// As `reshard_plan_add`, for a window of the source that moves into a window of the destination, axes perhaps permuted, or for
/// a triangle of it.
///
/// # Safety
/// As for `reshard_plan_add`; the lists of the window have a number for each dimension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_add_window(
    plan: *mut reshard_plan,
    from: *const reshard_layout,
    to: *const reshard_layout,
    element_bytes: usize,
    window: *const reshard_window,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (plan, from, to) = unsafe { (place(plan, "plan")?, object(from, "from")?, object(to, "to")?) };
        // SAFETY: likewise.
        let window = unsafe { object(window, "window")? };
        let shape = from.0.distribution().shape();
        let dims = shape.len();
        let lists = [window.shape, window.from, window.to];
        if !window.axes.is_null() || lists.iter().any(|list| !list.is_null()) {
            same_dims(window.dims, dims, "window")?;
        }
        // SAFETY: likewise.
        let asked = unsafe {
            let shape =
                if window.shape.is_null() { &shape } else { list(window.shape, dims, "window->shape")? };
            let mut asked = Window::of(shape);
            if !window.from.is_null() {
                asked = asked.from(list(window.from, dims, "window->from")?);
            }
            if !window.to.is_null() {
                asked = asked.to(list(window.to, dims, "window->to")?);
            }
            if !window.axes.is_null() {
                asked = asked.permuted(list(window.axes, dims, "window->axes")?);
            }
            asked
        };
        let all =
            Move::windowed::<u8>(from.0.clone(), to.0.clone(), asked)?.of_bytes(element_bytes as u64)?;
        plan.0.push(match window.triangle {
            RESHARD_ALL => all,
            RESHARD_UPPER => all.only(Triangle::upper(window.diagonal))?,
            RESHARD_LOWER => all.only(Triangle::lower(window.diagonal))?,
            other => {
                return Err(Failure::argument(format!(
                    "`triangle` is {other}; give RESHARD_ALL ({RESHARD_ALL}), RESHARD_UPPER ({RESHARD_UPPER}) or RESHARD_LOWER \
                     ({RESHARD_LOWER})"
                )));
            }
        });
        Ok(())
    })
}

/// Bytes of memory that a rank's source part of an array spans, padding included: what to allocate; 0 if it has none.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_source_bytes(
    plan: *const reshard_plan,
    array: usize,
    rank: u64,
    bytes: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (plan, bytes) = unsafe { (object(plan, "plan")?, place(bytes, "bytes")?) };
        let moving = plan.array(array)?;
        *bytes = in_bytes(span(moving.from(), rank)?, moving)?;
        Ok(())
    })
}

/// Bytes of memory that a rank's destination part of an array spans, padding included: what to allocate; 0 if it has none.
///
/// # Safety
/// Pointers as C promises them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_target_bytes(
    plan: *const reshard_plan,
    array: usize,
    rank: u64,
    bytes: *mut usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (plan, bytes) = unsafe { (object(plan, "plan")?, place(bytes, "bytes")?) };
        let moving = plan.array(array)?;
        *bytes = in_bytes(span(moving.to(), rank)?, moving)?;
        Ok(())
    })
}

/// Frees a plan. Null is allowed.
///
/// # Safety
/// Null, or a plan of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_plan_free(plan: *mut reshard_plan) {
    // SAFETY: as the function's.
    unsafe { free(plan) };
}

impl reshard_plan {
    /// What is to be moved; a plan without an array is a mistake.
    pub fn moves(&self) -> Outcome<Vec<Move>> {
        match self.0.is_empty() {
            true => Err(Failure::of(
                ErrorKind::Mismatch,
                "the plan has no array; add one with reshard_plan_add before an engine is made",
            )),
            false => Ok(self.0.clone()),
        }
    }

    fn array(&self, array: usize) -> Outcome<&Move> {
        self.0.get(array).ok_or_else(|| {
            let arrays = reshard::error::counted(self.0.len(), "array");
            let message = format!("array {array} was asked for, counted from 0; the plan has {arrays}");
            Failure::of(ErrorKind::OutOfRange, message)
        })
    }
}

fn in_bytes(elems: u64, moving: &Move) -> Outcome<usize> {
    let bytes = elems.checked_mul(moving.elem_bytes()).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        let message = format!("{elems} elements of {} bytes are more than memory has", moving.elem_bytes());
        Failure::of(ErrorKind::TooLarge, message)
    })
}
