//! What each rank holds: a box for each local part, all on one scale, divided where blocks of the array meet.

use crate::canvas::{Anchor, Area, Canvas, LABEL_SIZE, width_of};
use crate::palette::Fill;
use crate::scale::shortened;
use crate::words;
use reshard_plan::Distribution;

/// The most parts in a picture.
const MAX_PARTS: usize = 64;
/// The most lines between the blocks of a part, of either direction.
const MAX_LINES: usize = 40;
/// The least distance of such lines.
const CLOSEST: f64 = 3.0;
/// The largest side of a part.
const SIDE: f64 = 110.0;
const GAP: f64 = 14.0;

/// Draws the parts in rows. Returns how high they are.
pub fn draw(canvas: &mut Canvas, (x, y): (f64, f64), width: f64, of: &Distribution) -> f64 {
    let ranks = of.grid().sorted_ranks();
    let shapes: Vec<(u64, Vec<u64>)> =
        ranks.iter().take(MAX_PARTS).filter_map(|&rank| Some((rank, of.local_shape(rank).ok()?))).collect();
    let extent = |shape: &[u64]| match shape {
        [one] => (1, *one),
        [rows, columns, ..] => (*rows, *columns),
        [] => (0, 0),
    };
    let most =
        shapes.iter().map(|(_, shape)| extent(shape)).fold((1, 1), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let scale = SIDE / most.0.max(most.1) as f64;
    let side = |len: u64| (len as f64 * scale).max(if len == 0 { 0.0 } else { 8.0 });
    let words_of = |rank: u64, shape: &[u64]| {
        let elems: u128 = shape.iter().map(|&len| u128::from(len)).product();
        let plural = if elems == 1 { "element" } else { "elements" };
        [format!("rank {rank}"), words::shape(shape), format!("{} {plural}", shortened(elems))]
    };
    let wide = shapes
        .iter()
        .flat_map(|(rank, shape)| words_of(*rank, shape))
        .map(|line| width_of(&line, LABEL_SIZE));
    let column = wide.fold(side(most.1), f64::max) + GAP;
    let in_row = ((width / column) as usize).max(1);
    let row_height = side(most.0) + 3.6 * LABEL_SIZE + GAP;
    for (number, (rank, shape)) in shapes.iter().enumerate() {
        let (left, top) = (x + (number % in_row) as f64 * column, y + (number / in_row) as f64 * row_height);
        for (line, text) in words_of(*rank, shape).iter().enumerate() {
            canvas.text(left, top + (line as f64 + 0.9) * 1.2 * LABEL_SIZE, LABEL_SIZE, Anchor::Start, text);
        }
        let (rows, columns) = extent(shape);
        let top = top + 3.8 * LABEL_SIZE;
        let area = Area { x: left, y: top, width: side(columns), height: side(rows) };
        let coords = of.coords(*rank).unwrap_or_default();
        canvas.filled_box(
            area,
            Fill::of(*rank),
            &format!("rank {rank} at {coords:?} holds {}", words::shape(shape)),
        );
        let dims = of.dims();
        let cuts = |dim: usize, coord: u64| -> Vec<u64> {
            let axis = &of.axes()[dim];
            let cuts = axis.blocks(coord, 0).scan(0, |local, block| {
                *local += block.end - block.start;
                Some(*local)
            });
            cuts.take(MAX_LINES).collect()
        };
        let last = dims.min(2) - 1;
        // Lines that are too close to be told apart say nothing.
        let seen = |cuts: &[u64], len: u64, size: f64| {
            cuts.len() as f64 * CLOSEST <= size * cuts.last().copied().unwrap_or(0) as f64 / len.max(1) as f64
        };
        let across = cuts(last, coords[last]);
        if seen(&across, columns, side(columns)) {
            for cut in across.into_iter().filter(|cut| *cut < columns) {
                let x = left + side(columns) * cut as f64 / columns as f64;
                canvas.line((x, top), (x, top + side(rows)), 0.5, false);
            }
        }
        let down = if dims > 1 { cuts(0, coords[0]) } else { Vec::new() };
        if seen(&down, rows, side(rows)) {
            for cut in down.into_iter().filter(|cut| *cut < rows) {
                let y = top + side(rows) * cut as f64 / rows as f64;
                canvas.line((left, y), (left + side(columns), y), 0.5, false);
            }
        }
    }
    let mut height = shapes.len().div_ceil(in_row) as f64 * row_height;
    if ranks.len() > shapes.len() {
        let more = format!("... and {} more", ranks.len() - shapes.len());
        canvas.faint_text(x, y + height + LABEL_SIZE, LABEL_SIZE, Anchor::Start, &more);
        height += 2.0 * LABEL_SIZE;
    }
    height
}
