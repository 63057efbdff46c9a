//! The communication grid: a row for each sender, a column for each receiver, a cell for each message in the colour of its step.

use crate::canvas::{Anchor, Area, Canvas, FilledBox, LABEL_SIZE, width_of};
use crate::palette::Fill;
use crate::scale::{shortened, stride};
use crate::words::step_name;
use reshard_plan::Problem;
use reshard_plan::schedule::Schedule;
use std::collections::BTreeMap;

/// The least and the most height of a cell.
const CELL: (f64, f64) = (1.5, 26.0);

/// A message: its elements, and the steps in which it goes.
type Cell = (u64, Vec<usize>);

/// Draws the grid, no wider than `width` if that can be. Returns its width and height.
pub fn draw(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    width: f64,
    problem: &Problem,
    schedule: &Schedule,
) -> (f64, f64) {
    let senders = problem.from().grid().sorted_ranks();
    let receivers = problem.to().grid().sorted_ranks();
    let mut cells: BTreeMap<(u64, u64), Cell> = BTreeMap::new();
    for (number, step) in schedule.steps().iter().enumerate() {
        for message in &step.messages {
            let (elems, steps) = cells.entry((message.from, message.to)).or_default();
            *elems += message.elems;
            steps.push(number);
        }
    }
    let label = |cell: &Cell| [shortened(u128::from(cell.0)), steps_of(&cell.1)];
    let widest = cells.values().flat_map(label).map(|line| width_of(&line, LABEL_SIZE)).fold(0.0, f64::max);
    let header = |ranks: &[u64]| ranks.last().map_or(0.0, |rank| width_of(&rank.to_string(), LABEL_SIZE));
    let left = x + 18.0 + header(&senders) + 6.0;
    let room = width - (left - x);
    // Labels in all cells, or smaller cells without.
    let cell_width = (widest + 4.0).max(18.0);
    let labelled = cell_width * receivers.len() as f64 <= room;
    let cell_width = match labelled {
        true => cell_width,
        false => (room / receivers.len().max(1) as f64).clamp(CELL.0, CELL.1),
    };
    let cell_height = if labelled { CELL.1 } else { cell_width };
    const RECEIVERS: &str = "receiving rank";
    canvas.text(left, y, LABEL_SIZE, Anchor::Start, RECEIVERS);
    let top = y + 20.0;
    let across = stride(cell_width, header(&receivers) + 6.0);
    for (column, rank) in receivers.iter().enumerate().step_by(across) {
        let x = left + (column as f64 + 0.5) * cell_width;
        canvas.text(x, top - 5.0, LABEL_SIZE, Anchor::Middle, &rank.to_string());
    }
    let down = stride(cell_height, 1.3 * LABEL_SIZE);
    for (row, rank) in senders.iter().enumerate().step_by(down) {
        let y = top + (row as f64 + 0.5) * cell_height + 3.5;
        canvas.text(left - 5.0, y, LABEL_SIZE, Anchor::End, &rank.to_string());
    }
    let (wide, high) = (cell_width * receivers.len() as f64, cell_height * senders.len() as f64);
    const SENDERS: &str = "sending rank";
    let upright = width_of(SENDERS, LABEL_SIZE);
    let (anchor, middle) = if high < upright { ("end", top) } else { ("middle", top + high / 2.0) };
    let at = (x + LABEL_SIZE, top + upright.max(high) + 4.0);
    canvas.element(
        at,
        format_args!(
            "<text transform=\"translate({:.1} {middle:.1}) rotate(-90)\" font-size=\"{LABEL_SIZE}\" text-anchor=\"{anchor}\" \
             fill=\"{}\">{SENDERS}</text>",
            at.0,
            crate::palette::INK
        ),
    );
    let place = |ranks: &[u64], rank: u64| ranks.binary_search(&rank).unwrap_or(0) as f64;
    let area = |(from, to): (u64, u64)| Area {
        x: left + place(&receivers, to) * cell_width,
        y: top + place(&senders, from) * cell_height,
        width: cell_width,
        height: cell_height,
    };
    let boxes: Vec<FilledBox> = cells
        .iter()
        .map(|(&(from, to), (elems, steps))| {
            let names: Vec<String> = steps.iter().map(|&step| step_name(step)).collect();
            let plural = if names.len() > 1 { "steps" } else { "step" };
            let elems = reshard_plan::error::counted(*elems, "element");
            FilledBox {
                area: area((from, to)),
                fill: Fill::of(steps.first().map_or(0, |&step| step as u64)),
                tooltip: format!("rank {from} to rank {to}: {elems} in {plural} {}", names.join(", ")),
            }
        })
        .collect();
    canvas.boxes(&boxes);
    for (one, cell) in boxes.iter().zip(cells.values()) {
        let [elems, steps] = label(cell);
        let _ = canvas.label(one.area, one.fill, &[&elems, &steps])
            || canvas.label(one.area, one.fill, &[&steps]);
    }
    canvas.frame(Area { x: left, y: top, width: wide, height: high });
    (left - x + wide.max(width_of(RECEIVERS, LABEL_SIZE)), 20.0 + high.max(upright + 4.0))
}

/// `a`, `a b`, or `a +3` for a message that is cut.
fn steps_of(steps: &[usize]) -> String {
    match steps {
        [] => String::new(),
        [one] => step_name(*one),
        [one, two] => format!("{} {}", step_name(*one), step_name(*two)),
        [one, rest @ ..] => format!("{} +{}", step_name(*one), rest.len()),
    }
}

/// Draws colour, name, messages and cost of each step, in columns of a height. Returns the width and height taken.
pub fn legend(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    schedule: &Schedule,
) -> (f64, f64) {
    const LINE: f64 = 17.0;
    let entries: Vec<(String, String)> = schedule
        .steps()
        .iter()
        .enumerate()
        .map(|(number, step)| {
            let messages = reshard_plan::error::counted(step.messages.len(), "message");
            let text = format!("{}: {}", step_name(number), shortened(u128::from(step.cost)));
            (text, format!("step {}: {messages}, the longest of {}", step_name(number), step.cost))
        })
        .collect();
    canvas.text(x, y, LABEL_SIZE, Anchor::Start, "step: its longest message");
    let column = 20.0 + entries.iter().map(|(text, _)| width_of(text, LABEL_SIZE)).fold(0.0, f64::max) + 14.0;
    let columns = ((width / column) as usize).max(1);
    let rows = ((height / LINE) as usize).max(8);
    let shown = entries.len().min(rows * columns);
    let rows = rows.min(shown.max(1));
    for (number, (text, tooltip)) in entries.iter().take(shown).enumerate() {
        let (left, top) = (x + (number / rows) as f64 * column, y + 10.0 + (number % rows) as f64 * LINE);
        canvas.filled_box(
            Area { x: left, y: top, width: 14.0, height: 14.0 },
            Fill::of(number as u64),
            tooltip,
        );
        canvas.text(left + 19.0, top + 10.5, LABEL_SIZE, Anchor::Start, text);
    }
    let mut high = 10.0 + rows as f64 * LINE;
    if shown < entries.len() {
        let more = format!("... and {} more steps", entries.len() - shown);
        canvas.faint_text(x, y + high + LABEL_SIZE, LABEL_SIZE, Anchor::Start, &more);
        high += 2.0 * LABEL_SIZE;
    }
    (shown.div_ceil(rows).max(1) as f64 * column, high)
}
