//! What one process is asked for, checked as far as it can be without the others. Pure.
//!
//! The messages say what the reference prints a line for and exits, and what it takes a signal or wrong data for.

#![allow(unsafe_code)]

use crate::arguments::{Arguments, Integer, MatrixArgument, Scales};
use crate::blacs::ProcessGrid;
use crate::routine::{Argument, Routine, Shape};

/// Entries of a descriptor, counted from 0: the type, the context, rows, columns, rows and columns of a block, the row and column of
/// the process with the first block, and the leading dimension.
pub mod entry {
    pub const TYPE: usize = 0;
    pub const CONTEXT: usize = 1;
    pub const ROWS: usize = 2;
    pub const COLUMNS: usize = 3;
    pub const BLOCK_ROWS: usize = 4;
    pub const BLOCK_COLUMNS: usize = 5;
    pub const SOURCE_ROW: usize = 6;
    pub const SOURCE_COLUMN: usize = 7;
    pub const LEADING: usize = 8;
}

/// The names of a descriptor's entries.
const ENTRY_NAMES: [&str; 9] = ["DTYPE", "CTXT", "M", "N", "MB", "NB", "RSRC", "CSRC", "LLD"];

/// What a call asks a process for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub routine: Routine,
    pub rows: u64,
    pub columns: u64,
    /// Source and destination, where this process is one of the grid.
    pub sides: [Option<SideRequest>; 2],
    /// The factors of p?tran.
    pub scales: Option<Scales>,
    /// It is more than is done here: the real routine is wanted.
    pub forwards: bool,
}

/// One matrix, as a process of its grid describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideRequest {
    pub grid: ProcessGrid,
    pub shape: [u64; 2],
    pub block: [u64; 2],
    /// The process with the first block.
    pub source: [u64; 2],
    /// The first element of the window, from 0.
    pub first: [u64; 2],
    /// The leading dimension of this process's part.
    pub leading: u64,
}

/// The arguments of one matrix.
#[derive(Clone, Copy)]
struct SideArguments {
    part: Argument,
    row: Argument,
    column: Argument,
    descriptor: Argument,
}

const SIDES: [SideArguments; 2] = [
    SideArguments { part: Argument::A, row: Argument::Ia, column: Argument::Ja, descriptor: Argument::DescA },
    SideArguments { part: Argument::B, row: Argument::Ib, column: Argument::Jb, descriptor: Argument::DescB },
];

impl Request {
    /// Checks a call. `grid_of` finds the grid of a context, if this process belongs to it. Nothing to move is none. With `strict`, what
    /// the reference accepts silently is an error.
    ///
    /// # Safety
    /// Descriptors that are not null have nine entries.
    pub unsafe fn new<I: Integer>(
        call: &Arguments<I>,
        strict: bool,
        grid_of: impl Fn(i64) -> Option<ProcessGrid>,
    ) -> Result<Option<Self>, String> {
        let routine = call.routine;
        let transposes = matches!(routine.shape, Shape::Transposed { .. });
        if call.rows == 0 || call.columns == 0 {
            return Ok(None);
        }
        for (argument, number) in [(Argument::M, call.rows), (Argument::N, call.columns)] {
            if number < 0 && (strict || transposes) {
                return Err(format!("{} is {number}; it cannot be negative", routine.argument(argument)));
            }
        }
        let (Ok(rows), Ok(columns)) = (u64::try_from(call.rows), u64::try_from(call.columns)) else {
            return Ok(None);
        };
        let scales = call.scales;
        if transposes {
            // SAFETY: promised by the caller.
            match unsafe { is_beyond(call) } {
                Ok(false) => {}
                Ok(true) => {
                    let sides = [None, None];
                    return Ok(Some(Self { routine, rows, columns, sides, scales, forwards: true }));
                }
                Err(why) => return Err(why),
            }
        }
        let side = |number: usize, matrix: &MatrixArgument<I>| {
            let window = if transposes && number == 0 { [columns, rows] } else { [rows, columns] };
            // SAFETY: promised by the caller.
            unsafe { side(&routine, SIDES[number], matrix, window, strict, &grid_of) }
        };
        let sides = [side(0, &call.a)?, side(1, &call.b)?];
        Ok(Some(Self { routine, rows, columns, sides, scales, forwards: false }))
    }
}

/// True if a call of p?tran is left to the PBLAS: descriptors of another type, matrices of which every process row or column has a copy.
///
/// # Safety
/// A descriptor that is not null has nine entries.
unsafe fn is_beyond<I: Integer>(call: &Arguments<I>) -> Result<bool, String> {
    let mut beyond = false;
    for (matrix, of) in [&call.a, &call.b].into_iter().zip(SIDES) {
        let descriptor = call.routine.argument(of.descriptor);
        if matrix.descriptor.is_null() {
            return Err(format!(
                "{descriptor} is a null pointer; a descriptor has nine entries on every process"
            ));
        }
        // SAFETY: promised by the caller.
        let entry = |number: usize| unsafe { matrix.entry(number) };
        let context = entry(entry::CONTEXT);
        if Some(context) != call.context {
            return Err(format!(
                "entry 2 (CTXT) of {descriptor} is {context}, and that of A is {}; both matrices must have one context",
                call.context.unwrap_or(-1)
            ));
        }
        beyond |=
            entry(entry::TYPE) != 1 || entry(entry::SOURCE_ROW) == -1 || entry(entry::SOURCE_COLUMN) == -1;
    }
    Ok(beyond)
}

/// Checks one matrix; none if this process is not of its grid.
///
/// # Safety
/// A descriptor that is not null has nine entries.
unsafe fn side<I: Integer>(
    routine: &Routine,
    of: SideArguments,
    matrix: &MatrixArgument<I>,
    window: [u64; 2],
    strict: bool,
    grid_of: impl Fn(i64) -> Option<ProcessGrid>,
) -> Result<Option<SideRequest>, String> {
    let descriptor = routine.argument(of.descriptor);
    if matrix.descriptor.is_null() {
        return Err(format!(
            "{descriptor} is a null pointer; a descriptor has nine entries on every process"
        ));
    }
    // SAFETY: promised by the caller.
    let entry = |number: usize| unsafe { matrix.entry(number) };
    let Some(grid) = grid_of(entry(entry::CONTEXT)) else { return Ok(None) };
    let named = |number: usize| format!("entry {} ({}) of {descriptor}", number + 1, ENTRY_NAMES[number]);
    let at_least = |number: usize, least: i64| {
        let value = entry(number);
        u64::try_from(value)
            .ok()
            .filter(|_| value >= least)
            .ok_or_else(|| format!("{} is {value}; it must be at least {least}", named(number)))
    };
    let shape = [at_least(entry::ROWS, 0)?, at_least(entry::COLUMNS, 0)?];
    let block = [at_least(entry::BLOCK_ROWS, 1)?, at_least(entry::BLOCK_COLUMNS, 1)?];
    let source = [at_least(entry::SOURCE_ROW, 0)?, at_least(entry::SOURCE_COLUMN, 0)?];
    let processes = [grid.rows, grid.columns];
    for (dim, number) in [entry::SOURCE_ROW, entry::SOURCE_COLUMN].into_iter().enumerate() {
        if source[dim] >= processes[dim] {
            return Err(format!(
                "{} is {}; the process grid is {} x {}, so it must be less than {}",
                named(number),
                source[dim],
                grid.rows,
                grid.columns,
                processes[dim]
            ));
        }
    }
    let mut first = [0; 2];
    for (dim, (argument, value)) in [(of.row, matrix.row), (of.column, matrix.column)].into_iter().enumerate()
    {
        let index = u64::try_from(value).ok().and_then(|value| value.checked_sub(1));
        let fits = |&first: &u64| first.checked_add(window[dim]).is_some_and(|end| end <= shape[dim]);
        first[dim] = index.filter(fits).ok_or_else(|| {
            format!(
                "{} is {value}: {} {} from there on are not within the {} of the matrix",
                routine.argument(argument),
                window[dim],
                ["rows", "columns"][dim],
                shape[dim]
            )
        })?;
    }
    let place = [grid.row, grid.column];
    let local = [0, 1].map(|dim| {
        // The process's turn: how many processes after the one with the first block.
        let turn = (place[dim] + processes[dim] - source[dim]) % processes[dim];
        local_len(shape[dim], block[dim], turn, processes[dim])
    });
    let leading = entry(entry::LEADING);
    let least = if strict { local[0].max(1) } else { local[0] };
    let leading = u64::try_from(leading).ok().filter(|&leading| leading >= least).ok_or_else(|| {
        format!(
            "{} is {leading}; this process has {} rows of the matrix, so it must be at least {}",
            named(entry::LEADING),
            local[0],
            local[0].max(1)
        )
    })?;
    if matrix.part.is_null() && local[0] > 0 && local[1] > 0 {
        return Err(format!(
            "{} is a null pointer; this process has {} x {} elements of the matrix",
            routine.argument(of.part),
            local[0],
            local[1]
        ));
    }
    Ok(Some(SideRequest { grid, shape, block, source, first, leading: leading.max(1) }))
}

/// Elements along an axis of the process whose turn is the `turn`th of `processes`.
fn local_len(len: u64, block: u64, turn: u64, processes: u64) -> u64 {
    let blocks = len / block;
    let (rounds, last) = (blocks / processes, blocks % processes);
    let more = match turn.cmp(&last) {
        std::cmp::Ordering::Less => block,
        std::cmp::Ordering::Equal => len % block,
        std::cmp::Ordering::Greater => 0,
    };
    rounds * block + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routine::{Element, Shape};

    const GRID: ProcessGrid = ProcessGrid { rows: 2, columns: 3, row: 1, column: 2 };
    const ROUTINE: Routine = Routine { element: Element::Double, shape: Shape::General, of_all: false };

    /// A call with matrices of 10 x 9 in blocks of 2 x 4 on a grid of 2 x 3, of whose process (1, 2) this is, changed by `change`.
    fn request<I: Integer>(
        strict: bool,
        change: impl Fn(&mut [i64; 4], &mut [i64; 9]),
    ) -> Result<Option<Request>, String> {
        // Rows and columns of the window, its first row and column; then the descriptor.
        let (mut window, mut descriptor) = ([3, 4, 2, 1], [1, 7, 10, 9, 2, 4, 0, 1, 4]);
        change(&mut window, &mut descriptor);
        let narrow = descriptor.map(|number| I::narrow(number).unwrap());
        let mut element = 0_u8;
        let matrix = MatrixArgument {
            part: &raw mut element,
            row: window[2],
            column: window[3],
            descriptor: narrow.as_ptr(),
        };
        let call = Arguments {
            routine: ROUTINE,
            rows: window[0],
            columns: window[1],
            a: matrix,
            b: matrix,
            context: Some(0),
            scales: None,
        };
        // SAFETY: nine entries.
        unsafe { Request::new(&call, strict, |context| (context == 7).then_some(GRID)) }
    }

    fn both(
        strict: bool,
        change: impl Fn(&mut [i64; 4], &mut [i64; 9]) + Copy,
    ) -> Result<Option<Request>, String> {
        let narrow = request::<i32>(strict, change);
        assert_eq!(narrow, request::<i64>(strict, change), "the same in both widths");
        narrow
    }

    #[test]
    fn a_call_is_read_in_both_widths() {
        let read = both(false, |_, _| {}).unwrap().unwrap();
        assert_eq!((read.rows, read.columns), (3, 4));
        let side = SideRequest {
            grid: GRID,
            shape: [10, 9],
            block: [2, 4],
            source: [0, 1],
            first: [1, 0],
            leading: 4,
        };
        assert_eq!(read.sides, [Some(side), Some(side)]);
        // Far beyond 32 bits.
        let far = |window: &mut [i64; 4], descriptor: &mut [i64; 9]| {
            (window[2], descriptor[2], descriptor[4], descriptor[8]) = (5 << 32, 6 << 32, 1 << 40, 1 << 40);
        };
        let read = request::<i64>(false, far).unwrap().unwrap();
        assert_eq!(read.sides[0].unwrap().first[0], (5 << 32) - 1);
    }

    #[test]
    fn nothing_to_move_is_not_looked_at() {
        let bad = |window: &mut [i64; 4], descriptor: &mut [i64; 9]| {
            (window[0], descriptor[4]) = (0, 0);
        };
        assert_eq!(both(true, bad), Ok(None));
        assert_eq!(both(false, |window, _| window[1] = -3), Ok(None));
        assert_eq!(
            both(true, |window, _| window[1] = -3).unwrap_err(),
            "argument 2 (N) is -3; it cannot be negative"
        );
    }

    #[test]
    fn nothing_is_read_of_a_grid_this_process_is_not_of() {
        let outside =
            |_: &mut [i64; 4], descriptor: &mut [i64; 9]| *descriptor = [-1, -1, -1, -1, 0, -5, 99, 99, -1];
        assert_eq!(both(true, outside).unwrap().unwrap().sides, [None, None]);
    }

    #[test]
    fn every_wrong_argument_is_named() {
        let said = |strict: bool, at: usize, value: i64| {
            both(strict, move |_, descriptor| descriptor[at] = value).unwrap_err()
        };
        assert_eq!(said(false, 4, 0), "entry 5 (MB) of argument 6 (DESCA) is 0; it must be at least 1");
        assert_eq!(said(false, 5, -4), "entry 6 (NB) of argument 6 (DESCA) is -4; it must be at least 1");
        assert_eq!(
            said(false, 6, 2),
            "entry 7 (RSRC) of argument 6 (DESCA) is 2; the process grid is 2 x 3, so it must be less than 2"
        );
        let sentence = said(false, 7, -1);
        assert!(sentence.starts_with("entry 8 (CSRC)"), "{sentence}");
        assert_eq!(
            said(false, 8, 3),
            "entry 9 (LLD) of argument 6 (DESCA) is 3; this process has 4 rows of the matrix, so it must be at least 4"
        );
        let said = said(false, 2, 3);
        assert!(
            said.starts_with("argument 4 (IA) is 2: 3 rows from there on are not within the 3 of"),
            "{said}"
        );
        for (at, value) in [(2, 0), (2, 9), (3, -1), (3, 7)] {
            let said = both(false, move |window, _| window[at] = value).unwrap_err();
            assert!(said.contains(&format!("is {value}:")), "{said}");
        }
        assert!(both(false, |window, _| window[2] = i64::from(i32::MAX)).is_err());
    }

    #[test]
    fn a_leading_dimension_of_0_is_one_of_no_rows() {
        // The matrix has rows for the first process of a column alone.
        let no_rows = |window: &mut [i64; 4], descriptor: &mut [i64; 9]| {
            (*window, descriptor[2], descriptor[8]) = ([2, 1, 1, 1], 2, 0);
        };
        assert_eq!(both(false, no_rows).unwrap().unwrap().sides[0].unwrap().leading, 1);
        let said = both(true, no_rows).unwrap_err();
        assert!(said.contains("at least 1"), "{said}");
    }

    #[test]
    fn local_lengths_are_counted_block_by_block() {
        for (len, block, processes) in [(0, 3, 2), (1, 1, 1), (10, 3, 2), (17, 4, 3), (12, 4, 3), (7, 9, 2)] {
            for turn in 0..processes {
                let counted = (0..len).filter(|element| element / block % processes == turn).count() as u64;
                assert_eq!(
                    local_len(len, block, turn, processes),
                    counted,
                    "{len} {block} {turn} {processes}"
                );
            }
        }
    }
}
