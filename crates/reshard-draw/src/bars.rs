//! Rows of bars over a time axis: what each rank sends, or receives, and when.

use crate::canvas::{Anchor, Area, Canvas, FilledBox, LABEL_SIZE, width_of};
use crate::palette::{Fill, IDLE};
use crate::scale::stride;
use std::collections::BTreeMap;

/// The least and the most height of a row.
const ROW: (f64, f64) = (2.0, 16.0);
/// Where there are many rows, how high all of them are.
const HEIGHT: f64 = 640.0;

/// A bar of a row.
pub struct Bar {
    pub row: u64,
    pub start: f64,
    pub end: f64,
    pub fill: Fill,
    pub label: String,
    pub tooltip: String,
}

/// Draws the rows of `ranks`; `names` are what is said of each before it. Returns the height.
pub fn draw(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    width: f64,
    names: &BTreeMap<u64, String>,
    bars: &[Bar],
    ticks: &[(f64, String)],
    makespan: f64,
) -> f64 {
    let labels = names.values().map(|name| width_of(name, LABEL_SIZE)).fold(0.0, f64::max) + 6.0;
    let row = (HEIGHT / names.len().max(1) as f64).clamp(ROW.0, ROW.1);
    let (left, wide) = (x + labels, width - labels);
    let high = row * names.len() as f64;
    let place: BTreeMap<u64, usize> = names.keys().enumerate().map(|(place, &rank)| (rank, place)).collect();
    let down = stride(row, 1.25 * LABEL_SIZE);
    for name in names.values().enumerate().step_by(down) {
        let y = y + (name.0 as f64 + 0.5) * row + 3.5;
        canvas.text(left - 5.0, y, LABEL_SIZE, Anchor::End, name.1);
    }
    canvas.painted_box(Area { x: left, y, width: wide, height: high }, IDLE, "");
    let scale = wide / makespan.max(f64::MIN_POSITIVE);
    for (at, _) in ticks {
        let x = left + at * scale;
        canvas.line((x, y), (x, y + high + 4.0), 0.4, false);
    }
    let lanes = lanes(bars);
    let mut most: BTreeMap<u64, usize> = BTreeMap::new();
    for (lane, bar) in lanes.iter().zip(bars) {
        let most = most.entry(bar.row).or_insert(1);
        *most = (*most).max(lane + 1);
    }
    let boxes: Vec<FilledBox> = bars
        .iter()
        .zip(&lanes)
        .map(|(bar, lane)| {
            let count = most.get(&bar.row).copied().unwrap_or(1) as f64;
            let gap = if row >= 8.0 { 1.0 } else { 0.0 };
            let height = (row - 2.0 * gap) / count;
            let top = y + place.get(&bar.row).copied().unwrap_or(0) as f64 * row + gap;
            let area = Area {
                x: left + bar.start * scale,
                y: top + *lane as f64 * height,
                width: (bar.end - bar.start) * scale,
                height,
            };
            FilledBox { area, fill: bar.fill, tooltip: bar.tooltip.clone() }
        })
        .collect();
    canvas.boxes(&boxes);
    for (one, bar) in boxes.iter().zip(bars) {
        canvas.label(one.area, one.fill, &[&bar.label]);
    }
    let mut free = f64::MIN;
    for (at, text) in ticks {
        let x = left + at * scale;
        let half = width_of(text, LABEL_SIZE) / 2.0 + 3.0;
        if x - half >= free {
            canvas.text(x, y + high + 15.0, LABEL_SIZE, Anchor::Middle, text);
            free = x + half;
        }
    }
    high + 22.0
}

/// For each bar, in which lane of its row it has room: bars of one time lie above each other.
fn lanes(bars: &[Bar]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bars.len()).collect();
    order.sort_by(|&a, &b| bars[a].start.total_cmp(&bars[b].start).then(a.cmp(&b)));
    let mut ends: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut lanes = vec![0; bars.len()];
    for at in order {
        let bar = &bars[at];
        let ends = ends.entry(bar.row).or_default();
        // What ends when another begins is before it, but for rounding.
        let slack = 1e-9 * bar.start.abs();
        lanes[at] = ends.iter().position(|end| *end <= bar.start + slack).unwrap_or(ends.len());
        match ends.get_mut(lanes[at]) {
            Some(end) => *end = bar.end,
            None => ends.push(bar.end),
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_one_time_lie_in_lanes() {
        let bar = |row, start: f64, end: f64| Bar {
            row,
            start,
            end,
            fill: Fill::of(0),
            label: String::new(),
            tooltip: String::new(),
        };
        let bars = [bar(0, 0.0, 2.0), bar(0, 1.0, 3.0), bar(0, 2.0, 4.0), bar(1, 0.5, 1.0), bar(0, 3.0, 3.5)];
        assert_eq!(lanes(&bars), [0, 1, 0, 0, 1]);
    }
}
