//! The BLACS of the host program: which processes a context has, and in which order.
//!
//! Two functions are all that is needed, and all that must be there: of ScaLAPACK itself nothing is called, unless for what is forwarded.

#![allow(unsafe_code)]

use crate::arguments::Integer;
use crate::symbols::find;
use reshard_mpi::RawComm;
use std::ffi::{CStr, c_void};

/// What `blacs_get` is asked for: the communicator of a context.
const COMMUNICATOR_OF_CONTEXT: i64 = 10;

type GridInfo<I> = unsafe extern "C" fn(I, *mut I, *mut I, *mut I, *mut I);
/// Fortran's: C's leaves an entry in a table of the BLACS for every communicator that it is asked for.
type Get<I> = unsafe extern "C" fn(*const I, *const I, *mut I);

/// The functions of the BLACS, for integers of the caller's width.
pub struct Blacs<I> {
    grid_info: GridInfo<I>,
    get: Get<I>,
}

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
        let (grid_info, get) = (symbol(c"Cblacs_gridinfo")?, symbol(c"blacs_get_")?);
        // SAFETY: the BLACS' functions have these types, in integers of the width that this library was chosen for.
        unsafe {
            Ok(Self {
                grid_info: std::mem::transmute::<*mut c_void, GridInfo<I>>(grid_info),
                get: std::mem::transmute::<*mut c_void, Get<I>>(get),
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
    pub unsafe fn communicator(&self, context: i64) -> Option<RawComm> {
        let (context, what) = (I::narrow(context)?, I::narrow(COMMUNICATOR_OF_CONTEXT)?);
        let mut handle = I::narrow(0)?;
        // SAFETY: a live context; a place for the answer.
        unsafe { (self.get)(&raw const context, &raw const what, &raw mut handle) };
        i32::try_from(handle.wide()).ok().map(RawComm::Fortran)
    }
}
