//! The BLACS of the host program: which processes a context has, and in which order.
//!
//! Three functions are all that is needed, and all that must be there: of ScaLAPACK itself nothing is called.

#![allow(unsafe_code)]

use crate::arguments::Integer;
use crate::symbols::find;
use reshard_mpi::RawComm;
use std::ffi::{CStr, c_int, c_void};

/// What `blacs_get` is asked for: the communicator of a context.
const COMMUNICATOR_OF_CONTEXT: i64 = 10;

type GridInfo<I> = unsafe extern "C" fn(I, *mut I, *mut I, *mut I, *mut I);
type Get<I> = unsafe extern "C" fn(I, I, *mut I);
type ToSystem<I, H> = unsafe extern "C" fn(I) -> H;

/// The functions of the BLACS, for integers of the caller's width.
pub struct Blacs<I> {
    grid_info: GridInfo<I>,
    get: Get<I>,
    /// Returns a pointer or an integer, as handles of the MPI are.
    to_system: *mut c_void,
}

// SAFETY: functions of a library that stays loaded.
unsafe impl<I> Send for Blacs<I> {}
// SAFETY: as for `Send`.
unsafe impl<I> Sync for Blacs<I> {}

/// A process grid, and the place of this process in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessGrid {
    pub rows: u64,
    pub columns: u64,
    pub row: u64,
    pub column: u64,
}

impl ProcessGrid {
    /// The place of this process, row by row.
    pub fn place(&self) -> u64 {
        self.row * self.columns + self.column
    }
}

impl<I: Integer> Blacs<I> {
    /// Finds the BLACS in the host program.
    pub fn find() -> Result<Self, String> {
        let symbol = |name: &CStr| {
            find(name).map(|(address, _)| address).ok_or_else(|| {
                format!("no library of this program has {}: the BLACS are not loaded", name.to_string_lossy())
            })
        };
        let (grid_info, get, to_system) =
            (symbol(c"Cblacs_gridinfo")?, symbol(c"Cblacs_get")?, symbol(c"Cblacs2sys_handle")?);
        // SAFETY: the BLACS' functions have these types, in integers of the width that this library was chosen for.
        unsafe {
            Ok(Self {
                grid_info: std::mem::transmute::<*mut c_void, GridInfo<I>>(grid_info),
                get: std::mem::transmute::<*mut c_void, Get<I>>(get),
                to_system,
            })
        }
    }

    /// The grid of a context, if this process belongs to it. Any number may be asked for, also that of a context that is gone.
    pub fn grid(&self, context: i64) -> Option<ProcessGrid> {
        let context = I::narrow(context)?;
        let mut numbers = [I::narrow(-1)?; 4];
        let [rows, columns, row, column] = &mut numbers;
        // SAFETY: places for four answers; of contexts that are none it says -1.
        unsafe { (self.grid_info)(context, rows, columns, row, column) };
        let number = |number: I| u64::try_from(number.wide()).ok();
        let [rows, columns, row, column] = numbers;
        let grid = ProcessGrid {
            rows: number(rows)?,
            columns: number(columns)?,
            row: number(row)?,
            column: number(column)?,
        };
        (grid.row < grid.rows && grid.column < grid.columns).then_some(grid)
    }

    /// The communicator of a context that this process belongs to: its processes row by row.
    ///
    /// # Safety
    /// The context is one of which [`Blacs::grid`] says that this process belongs to it.
    pub unsafe fn communicator(&self, context: i64, integer_handles: bool) -> Option<RawComm> {
        let (context, what) = (I::narrow(context)?, I::narrow(COMMUNICATOR_OF_CONTEXT)?);
        let mut handle = I::narrow(0)?;
        // SAFETY: a live context; a place for the answer. Handles of this MPI are integers or pointers, as the caller says.
        unsafe {
            (self.get)(context, what, &raw mut handle);
            Some(match integer_handles {
                true => {
                    let convert = std::mem::transmute::<*mut c_void, ToSystem<I, c_int>>(self.to_system);
                    RawComm::Integer(convert(handle))
                }
                false => {
                    let convert =
                        std::mem::transmute::<*mut c_void, ToSystem<I, *mut c_void>>(self.to_system);
                    RawComm::Pointer(convert(handle))
                }
            })
        }
    }
}
