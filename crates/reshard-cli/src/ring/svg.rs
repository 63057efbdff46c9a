//! The drawing of `reshard ring --svg`: a row for each process, a bar for each run of items it sends, and a tick for each
//! item where there is room.

use super::{RingRequest, title, verdict};
use crate::failure::Failure;
use crate::svg::{Drawing, LABELS, MARGIN, ROW};
use reshard_ring::{Side, Solution, Transfer};

/// The most processes in a drawing: more cannot be seen.
const MAX_RANKS: usize = 1_000;
/// The most transfers in a drawing.
const MAX_TRANSFERS: usize = 100_000;

/// The least width of an item, in pixels, for a transfer that is drawn item by item.
const MIN_ITEM_WIDTH: f64 = 4.0;

pub fn draw(request: &RingRequest, solution: &Solution) -> Result<String, Failure> {
    let procs = request.problem.procs();
    let transfers = solution.program().transfers();
    if procs > MAX_RANKS || transfers.len() > MAX_TRANSFERS {
        return Err(Failure::usage(&format!(
            "--svg: {procs} processes with {} transfers are too many to draw; at most {MAX_RANKS} and {MAX_TRANSFERS} can be",
            transfers.len()
        )));
    }
    let mut drawing = Drawing::new(&title(request));
    drawing.text(MARGIN, 11.0, "start", &verdict(request, solution));
    drawing.y += 16.0;
    drawing.text(
        MARGIN,
        11.0,
        "start",
        "What each process sends in time: orange to the next, blue to the previous",
    );
    drawing.y += 10.0;
    let (left, top) = (MARGIN + LABELS, drawing.y);
    let scale = (drawing.width - left) / (solution.makespan().max(1) as f64);
    for rank in 0..procs {
        let y = top + rank as f64 * ROW;
        let label =
            format!("{rank}: {} to {}", request.problem.loads()[rank], request.problem.targets()[rank]);
        drawing.text_at(left - 6.0, y + ROW * 0.75, 9.0, "end", &label);
    }
    for transfer in transfers {
        let y = top + transfer.from as f64 * ROW + 1.0;
        let cost = request.problem.cost(transfer.from as usize, transfer.side);
        let fill = if transfer.side == Side::Right { "#e69f00" } else { "#56b4e9" };
        let words = words(request, transfer);
        let bar =
            |from: u64, to: u64| ((left + from as f64 * scale, y), ((to - from) as f64 * scale, ROW - 2.0));
        if cost as f64 * scale < MIN_ITEM_WIDTH {
            let (at, size) = bar(transfer.start, transfer.end);
            drawing.rect(at, size, fill, &words);
            continue;
        }
        let spread = u128::from(transfer.end - transfer.start - cost);
        for item in 0..transfer.items {
            let pause = u128::from(item) * spread / u128::from((transfer.items - 1).max(1));
            let start = transfer.start + pause as u64;
            let (at, size) = bar(start, start + cost);
            drawing.rect(at, size, fill, &words);
        }
    }
    drawing.y = top + procs as f64 * ROW;
    let makespan = solution.makespan();
    let unit = request.denominator as f64;
    drawing.time_axis(left, |quarter| {
        format!("{:.6}", makespan as f64 * quarter as f64 / 4.0 / unit)
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_string()
    });
    Ok(drawing.finish())
}

fn words(request: &RingRequest, transfer: &Transfer) -> String {
    let procs = request.problem.procs() as u64;
    format!(
        "{} to {}: {} items from {} to {}",
        transfer.from,
        transfer.to(procs),
        transfer.items,
        request.time(transfer.start),
        request.time(transfer.end)
    )
}
