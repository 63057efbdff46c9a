//! An array, or its first corner, coloured by the rank that owns each element.

use crate::canvas::{Anchor, Area, Canvas, FilledBox, LABEL_SIZE, width_of};
use crate::palette::Fill;
use crate::scale::count_ticks;
use crate::words;
use reshard_plan::{Axis, Distribution, Problem};
use std::ops::Range;

/// The most blocks of a dimension in a picture.
const MAX_BLOCKS: usize = 40;
/// The least side of a picture.
const MIN_SIDE: f64 = 36.0;
/// How high an array of one dimension is.
const STRIP: f64 = 30.0;

/// The corner of arrays that is drawn: everything if there is room for its blocks, otherwise a round of each distribution, or as many blocks as
/// have room.
pub fn corner(of: &[&Distribution]) -> Vec<u64> {
    let shape = of.first().map(|distribution| distribution.shape()).unwrap_or_default();
    let dims = shape.len();
    let extent = |dim: usize| {
        let fits = |len: u64| of.iter().all(|one| blocks(&one.axes()[dim], len).len() <= MAX_BLOCKS);
        if fits(shape[dim]) {
            return shape[dim];
        }
        let rounds = of.iter().filter_map(|one| one.pattern().round(dim)).max().unwrap_or(0);
        let round = u64::try_from(rounds).unwrap_or(u64::MAX).min(shape[dim]);
        if round > 0 && fits(round) {
            return round;
        }
        let end = |one: &&Distribution| {
            let blocks = blocks(&one.axes()[dim], shape[dim]);
            blocks.get(MAX_BLOCKS - 1).or(blocks.last()).map_or(shape[dim], |block| block.1.end)
        };
        of.iter().map(end).min().unwrap_or(shape[dim]).min(shape[dim])
    };
    // Of further dimensions one slice is drawn.
    (0..dims).map(|dim| if dim < 2 { extent(dim) } else { 1 }).collect()
}

/// The corners of source and destination that are drawn: one for both, if the arrays are of one shape.
pub fn corners(problem: &Problem) -> [Vec<u64>; 2] {
    let (from, to) = (problem.from(), problem.to());
    match from.shape() == to.shape() {
        true => [corner(&[from, to]), corner(&[from, to])],
        false => [corner(&[from]), corner(&[to])],
    }
}

/// The blocks of an axis up to `len`, one more than have room at most: (owner, range).
fn blocks(axis: &Axis, len: u64) -> Vec<(u64, Range<u64>)> {
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < len.min(axis.len()) && blocks.len() <= MAX_BLOCKS {
        let Some((owner, end)) = axis.block_at(start) else { break };
        blocks.push((owner, start..end.min(len)));
        start = end;
    }
    blocks
}

/// Draws the corner of an array into a width and a height. Returns how much of both it took.
pub fn draw(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    of: &Distribution,
    corner: &[u64],
) -> (f64, f64) {
    let dims = of.dims();
    // Rows are the first dimension, columns the second; an array of one dimension is one row.
    let (rows, columns) = match dims {
        1 => (vec![(0, 0..1)], blocks(&of.axes()[0], corner[0])),
        _ => (blocks(&of.axes()[0], corner[0]), blocks(&of.axes()[1], corner[1])),
    };
    let (high, wide) = if dims == 1 { (1, corner[0]) } else { (corner[0], corner[1]) };
    let row_labels = if dims == 1 { 0.0 } else { width_of(&high.to_string(), LABEL_SIZE) + 8.0 };
    let room = (width - row_labels, height - 16.0);
    let scale =
        (room.0 / wide.max(1) as f64).min(if dims == 1 { f64::MAX } else { room.1 / high.max(1) as f64 });
    let side = |len: u64, room: f64| (len as f64 * scale).clamp(MIN_SIDE.min(room), room);
    let across = side(wide, room.0);
    let down = if dims == 1 { STRIP } else { side(high, room.1) };
    let (left, top) = (x + row_labels, y + 16.0);
    if rows.is_empty() || columns.is_empty() {
        canvas.faint_text(x, top, LABEL_SIZE, Anchor::Start, "the array has no elements");
        return (width, 24.0);
    }
    let at = |index: u64, len: u64, size: f64| size * index as f64 / len.max(1) as f64;
    let mut boxes = Vec::new();
    let mut labels = Vec::new();
    for (_, row) in &rows {
        for (_, column) in &columns {
            let mut index = if dims == 1 { vec![column.start] } else { vec![row.start, column.start] };
            index.resize(dims, 0);
            let Ok(owners) = of.owners(&index) else { continue };
            let Some(&first) = owners.first() else { continue };
            let area = Area {
                x: left + at(column.start, wide, across),
                y: top + at(row.start, high, down),
                width: at(column.end - column.start, wide, across),
                height: at(row.end - row.start, high, down),
            };
            let region = if dims == 1 { vec![column.clone()] } else { vec![row.clone(), column.clone()] };
            let coords = of.coords(first).unwrap_or_default();
            let tooltip =
                format!("{} at {coords:?}: elements {}", words::ranks(&owners), words::region(&region));
            let fill = Fill::of(first);
            labels.push((area, fill, first, owners.len()));
            boxes.push(FilledBox { area, fill, tooltip });
        }
    }
    canvas.boxes(&boxes);
    for (area, fill, first, copies) in labels {
        let more = if copies > 1 { format!("{first}+{}", copies - 1) } else { first.to_string() };
        let _ = canvas.label(area, fill, &[&more]) || canvas.label(area, fill, &[&first.to_string()]);
    }
    canvas.frame(Area { x: left, y: top, width: across, height: down });
    let shape = of.shape();
    let cut = |dim: usize| corner[dim] < shape[dim];
    // What goes on is open.
    if cut(dims.min(2) - 1) {
        let x = left + across;
        canvas.line((x, top), (x + 12.0, top), 0.8, true);
        canvas.line((x, top + down), (x + 12.0, top + down), 0.8, true);
    }
    if dims > 1 && cut(0) {
        let y = top + down;
        canvas.line((left, y), (left, y + 12.0), 0.8, true);
        canvas.line((left + across, y), (left + across, y + 12.0), 0.8, true);
    }
    let mut free = f64::MIN;
    for tick in count_ticks(wide, 4.0) {
        let (x, text) = (left + at(tick, wide, across), tick.to_string());
        let half = width_of(&text, LABEL_SIZE) / 2.0 + 2.0;
        if x - half >= free {
            canvas.faint_text(x, top - 5.0, LABEL_SIZE, Anchor::Middle, &text);
            canvas.line((x, top - 3.0), (x, top), 0.8, false);
            free = x + half;
        }
    }
    let mut free = f64::MIN;
    for tick in count_ticks(if dims == 1 { 0 } else { high }, 4.0) {
        let y = top + at(tick, high, down);
        if dims > 1 && y >= free {
            canvas.faint_text(left - 5.0, y + 3.5, LABEL_SIZE, Anchor::End, &tick.to_string());
            canvas.line((left - 3.0, y), (left, y), 0.8, false);
            free = y + 1.2 * LABEL_SIZE;
        }
    }
    (row_labels + across + 12.0, 16.0 + down + 12.0)
}

/// What is drawn, in words: how much of it, and when it repeats.
pub fn caption(of: &Distribution, corner: &[u64]) -> String {
    let shape = of.shape();
    let mut said = Vec::new();
    let drawn: Vec<u64> = corner.iter().take(2).copied().collect();
    if corner.iter().zip(&shape).take(2).any(|(drawn, len)| drawn < len) {
        said.push(format!("the first {} elements", words::shape(&drawn)));
        let pattern = of.pattern();
        let rounds: Vec<Option<u128>> = (0..of.dims().min(2)).map(|dim| pattern.round(dim)).collect();
        if rounds.iter().all(Option::is_some) {
            let rounds: Vec<String> = rounds.into_iter().flatten().map(|round| round.to_string()).collect();
            said.push(format!("the pattern repeats every {}", rounds.join(" x ")));
        }
    }
    if shape.len() > 2 {
        said.push(match shape.len() {
            3 => "index 0 of dimension 2".to_string(),
            dims => format!("index 0 of dimensions 2 to {}", dims - 1),
        });
    }
    if of.is_replicated() {
        said.push(format!("each element is on {} ranks: the first, and how many more", of.copies()));
    }
    said.join("; ")
}
