//! Layouts: which rank owns which element of an array, and where in its memory.

use crate::border::{
    Failure, Outcome, border, check_dims, free, hand_out, list, object, place, places, text,
};
use reshard::axis::Deal;
use reshard::distribution::Pattern;
use reshard::error::counted;
use reshard::grid::{Grid, RankOrder};
use reshard::notation::print_shape;
use reshard::{ErrorKind, Layout, MemoryOrder};
use std::ffi::{c_char, c_int};

/// The last index runs fastest, as in C; of a process grid: ranks are numbered row by row ('R' of the BLACS).
pub const RESHARD_ROW_MAJOR: c_int = 1;
/// The first index runs fastest, as in Fortran; of a process grid: ranks are numbered column by column ('C' of the BLACS).
pub const RESHARD_COL_MAJOR: c_int = 2;

/// A layout: which rank owns which element of an array of 1 to 8 dimensions, and where in its memory. Indices count from 0,
/// sizes and addresses are in elements, not bytes. Free it with `reshard_layout_free`; plans keep copies of their own.
pub struct reshard_layout(pub(crate) Layout, Option<OutsideRank>);

/// The leading dimension that a descriptor gave for a rank outside of its grid: `reshard_layout_set_ranks` may bring that rank in.
struct OutsideRank {
    rank: u64,
    leading: u64,
}

/// A layout from one line of notation, such as "2x2/64x64 of 1000x800": a grid of 2 x 2 ranks, blocks of 64 x 64. Parts are
/// column-major unless the text has `memory=row`.
///
/// # Safety
/// Pointers as C promises them: texts end with 0, answers have their places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_parse(
    notation: *const c_char,
    layout: *mut *mut reshard_layout,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { place(layout, "layout")? };
        *layout = std::ptr::null_mut();
        // SAFETY: likewise.
        let notation = unsafe { text(notation, "notation")? };
        hand_out(reshard_layout(notation.parse()?, None), layout);
        Ok(())
    })
}

/// As `reshard_layout_parse`, with the shape in numbers: the text is without "of", such as "(block, *) on 4 memory=row".
///
/// # Safety
/// As for `reshard_layout_parse`; `shape` has `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_parse_over(
    notation: *const c_char,
    dims: usize,
    shape: *const u64,
    layout: *mut *mut reshard_layout,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { place(layout, "layout")? };
        *layout = std::ptr::null_mut();
        // SAFETY: likewise.
        let notation = unsafe { text(notation, "notation")? };
        check_dims(dims)?;
        // SAFETY: as the function's.
        let shape = unsafe { list(shape, dims, "shape")? };
        hand_out(reshard_layout(format!("{notation} of {}", print_shape(shape)).parse()?, None), layout);
        Ok(())
    })
}

/// A block-cyclic layout from numbers, `dims` of each: the array's shape, the process grid, the blocks, and the process of the
/// grid that has the first block (null: process 0 everywhere). Ranks 0, 1, ... are numbered by `rank_order`, parts lie in
/// memory by `memory_order`: RESHARD_ROW_MAJOR or RESHARD_COL_MAJOR.
///
/// # Safety
/// Pointers as C promises them; each list has `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_block_cyclic(
    dims: usize,
    shape: *const u64,
    grid: *const u64,
    blocks: *const u64,
    first: *const u64,
    rank_order: c_int,
    memory_order: c_int,
    layout: *mut *mut reshard_layout,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { place(layout, "layout")? };
        *layout = std::ptr::null_mut();
        check_dims(dims)?;
        // SAFETY: as the function's.
        let (shape, grid, blocks, first) = unsafe {
            let first = if first.is_null() { &[0; 8][..dims] } else { list(first, dims, "first")? };
            (list(shape, dims, "shape")?, list(grid, dims, "grid")?, list(blocks, dims, "blocks")?, first)
        };
        let grid = Grid::new(grid)?.with_order(numbering(rank_order)?);
        let deals = blocks.iter().map(|&block| Deal::Cyclic(block)).collect();
        let dealt = Pattern::new(grid, deals, first.to_vec())?.over(shape)?;
        let order = match order(memory_order, "memory_order")? {
            RESHARD_ROW_MAJOR => MemoryOrder::RowMajor,
            _ => MemoryOrder::ColMajor,
        };
        hand_out(reshard_layout(Layout::new(dealt, order), None), layout);
        Ok(())
    })
}

/// The layout of a ScaLAPACK array descriptor, nine integers, on a grid of `rows` x `columns` ranks numbered by `rank_order`
/// (as `blacs_gridinit` was told: RESHARD_ROW_MAJOR for 'R', RESHARD_COL_MAJOR for 'C'). The leading dimension is that of `rank`, whose
/// descriptor it is; a rank outside of the grid has none, and gives the other numbers as all others do. For a grid on other ranks than
/// 0, 1, ..., `reshard_layout_set_ranks` comes next: `rank` may be the number that it has then.
///
/// # Safety
/// Pointers as C promises them; the descriptor has nine integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_from_descriptor(
    descriptor: *const i32,
    rows: u64,
    columns: u64,
    rank_order: c_int,
    rank: u64,
    layout: *mut *mut reshard_layout,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, numbers) = unsafe { (place(layout, "layout")?, list(descriptor, 9, "descriptor")) };
        *layout = std::ptr::null_mut();
        let mut nine = [0; 9];
        nine.copy_from_slice(numbers?);
        let grid = Grid::new(&[rows, columns])?.with_order(numbering(rank_order)?);
        let outside = !grid.contains(rank);
        let leading = u64::try_from(nine[8]).ok().filter(|_| outside);
        let made = Layout::from_descriptor(&nine, grid, rank)?;
        hand_out(reshard_layout(made, leading.map(|leading| OutsideRank { rank, leading })), layout);
        Ok(())
    })
}

/// Numbers the grid of a layout with these ranks, one for each process in the grid's order: for arrays on some ranks of a
/// communicator. Strides stay those of their process of the grid.
///
/// # Safety
/// Pointers as C promises them; nobody else uses the layout meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_set_ranks(
    layout: *mut reshard_layout,
    count: usize,
    ranks: *const u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, ranks) = unsafe { (place(layout, "layout")?, list(ranks, count, "ranks")?) };
        let mut renumbered = layout.0.clone().with_ranks(ranks)?;
        if let Some(OutsideRank { rank, leading }) = layout.1.take_if(|outside| ranks.contains(&outside.rank))
        {
            renumbered = renumbered.with_strides_of(rank, &[1, leading])?;
        }
        layout.0 = renumbered;
        Ok(())
    })
}

/// Sets how far apart neighbours lie in the part of every rank, in elements, one number for each dimension: {1, 520} is a
/// column-major matrix with a leading dimension of 520.
///
/// # Safety
/// As for `reshard_layout_set_ranks`; `strides` has `dims` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_set_strides(
    layout: *mut reshard_layout,
    dims: usize,
    strides: *const u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { place(layout, "layout")? };
        // SAFETY: likewise.
        let strides = unsafe { index_of(&layout.0, dims, strides, "strides")? };
        layout.0 = layout.0.clone().with_strides(strides)?;
        Ok(())
    })
}

/// As `reshard_layout_set_strides`, for the part of one rank: between processes each knows its own leading dimension only.
///
/// # Safety
/// As for `reshard_layout_set_strides`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_set_strides_of(
    layout: *mut reshard_layout,
    rank: u64,
    dims: usize,
    strides: *const u64,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let layout = unsafe { place(layout, "layout")? };
        // SAFETY: likewise.
        let strides = unsafe { index_of(&layout.0, dims, strides, "strides")? };
        layout.0 = layout.0.clone().with_strides_of(rank, strides)?;
        Ok(())
    })
}

/// Writes a layout as one line of notation, with the 0 at its end, into memory of so many bytes. Strides of single ranks are
/// not part of it.
///
/// # Safety
/// Pointers as C promises them; `notation` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_print(
    layout: *const reshard_layout,
    notation: *mut c_char,
    bytes: usize,
) -> c_int {
    border(|| {
        // SAFETY: as the function's.
        let (layout, room) =
            unsafe { (object(layout, "layout")?, places(notation.cast::<u8>(), bytes, "notation")?) };
        let text = layout.0.to_string();
        let needed = text.len() + 1;
        if bytes < needed {
            let message =
                format!("{bytes} bytes were given for a text of {needed}, the 0 at its end included");
            return Err(Failure::of(ErrorKind::Mismatch, message));
        }
        room[..text.len()].copy_from_slice(text.as_bytes());
        room[text.len()] = 0;
        Ok(())
    })
}

/// Frees a layout. Null is allowed.
///
/// # Safety
/// Null, or a layout of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reshard_layout_free(layout: *mut reshard_layout) {
    // SAFETY: as the function's.
    unsafe { free(layout) };
}

/// Elements that a rank's part spans; 0 if it has none.
pub fn span(layout: &Layout, rank: u64) -> Outcome<u64> {
    match layout.distribution().grid().contains(rank) {
        true => Ok(layout.span(rank)?),
        false => Ok(0),
    }
}

/// An index of an array of this layout.
///
/// # Safety
/// Null, or a list of so many.
pub unsafe fn index_of<'a>(
    layout: &Layout,
    dims: usize,
    index: *const u64,
    name: &str,
) -> Outcome<&'a [u64]> {
    same_dims(dims, layout.distribution().dims(), name)?;
    // SAFETY: promised by the caller.
    unsafe { list(index, dims, name) }
}

/// Fails before a list is read or written that has other dimensions than the array.
pub fn same_dims(given: usize, expected: usize, name: &str) -> Outcome<()> {
    if given == expected {
        return Ok(());
    }
    let (given, expected) = (counted(given, "number"), counted(expected, "dimension"));
    let message = format!("`{name}` was given with {given}, and the array has {expected}; give one for each");
    Err(Failure::of(ErrorKind::Mismatch, message))
}

fn order(number: c_int, name: &str) -> Outcome<c_int> {
    match number {
        RESHARD_ROW_MAJOR | RESHARD_COL_MAJOR => Ok(number),
        _ => Err(Failure::argument(format!(
            "`{name}` is {number}; give RESHARD_ROW_MAJOR ({RESHARD_ROW_MAJOR}) or RESHARD_COL_MAJOR ({RESHARD_COL_MAJOR})"
        ))),
    }
}

fn numbering(number: c_int) -> Outcome<RankOrder> {
    Ok(match order(number, "rank_order")? {
        RESHARD_ROW_MAJOR => RankOrder::RowMajor,
        _ => RankOrder::ColMajor,
    })
}
