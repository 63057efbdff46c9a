//! The pictures of a layout and of a redistribution, put together.

use crate::bars::{self, Bar};
use crate::canvas::{Anchor, Canvas, LABEL_SIZE, MARGIN, TEXT_SIZE, TITLE_SIZE};
use crate::palette::Fill;
use crate::scale::{shortened, time, time_ticks};
use crate::words::step_name;
use crate::{array, message_grid, parts, words};
use reshard_plan::error::counted;
use reshard_plan::schedule::Schedule;
use reshard_plan::simulate::{Sent, Timeline};
use reshard_plan::{Distribution, Problem};
use std::collections::{BTreeMap, VecDeque};

/// The width of a picture without its margins.
pub const WIDTH: f64 = 1040.0;
/// The height of an array in it.
const ARRAY: f64 = 420.0;

/// Draws an array, coloured by the rank that owns each element, and what each rank holds.
pub fn layout(title: &str, of: &Distribution) -> String {
    let mut canvas = Canvas::default();
    let mut y = head(&mut canvas, title, &about_layout(of));
    let corner = array::corner(&[of]);
    y = under(&mut canvas, y, &array::caption(of, &corner));
    let (_, high) = array::draw(&mut canvas, (MARGIN, y), (WIDTH, ARRAY), of, &corner);
    y += high + 28.0;
    canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, "What each rank holds");
    parts::draw(&mut canvas, (MARGIN, y + 10.0), WIDTH, of);
    canvas.finish(title)
}

/// `6 ranks, 360 elements`.
fn about_layout(of: &Distribution) -> String {
    let elems = of.elems();
    format!("{}, {}", counted(of.grid().size(), "rank"), counted(elems, "element"))
}

/// Draws a redistribution: the array before and after, the communication grid by steps, and who sends and receives what when.
/// `about` says what the picture is of besides the layouts: the array, the network, its costs.
pub fn redistribution(
    title: &str,
    about: &str,
    problem: &Problem,
    schedule: &Schedule,
    timeline: &Timeline,
) -> String {
    let mut canvas = Canvas::default();
    let mut y = head(&mut canvas, title, about);
    y = before_and_after(&mut canvas, y, problem);
    let messages: usize = schedule.steps().iter().map(|step| step.messages.len()).sum();
    let caption = format!(
        "Who sends how many elements to whom, and in which step: {} in {}, total cost {}",
        counted(messages, "message"),
        counted(schedule.num_steps(), "step"),
        shortened(schedule.total_cost())
    );
    canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, &caption);
    y += 22.0;
    let (wide, high) = message_grid::draw(&mut canvas, (MARGIN, y), 0.8 * WIDTH, problem, schedule);
    let beside = (MARGIN + wide + 28.0, y);
    let room = WIDTH - wide - 28.0;
    let legend = match room >= 150.0 {
        true => message_grid::legend(&mut canvas, beside, (room, high), schedule).1,
        false => {
            let (under, room) = ((MARGIN, y + high + 20.0), (WIDTH, 100.0));
            high + 20.0 + message_grid::legend(&mut canvas, under, room, schedule).1
        }
    };
    y += high.max(legend) + 32.0;
    times(&mut canvas, y, schedule, timeline);
    canvas.finish(title)
}

/// Title and what is said besides. Returns where the rest begins.
pub fn head(canvas: &mut Canvas, title: &str, about: &str) -> f64 {
    canvas.text(MARGIN, MARGIN + TITLE_SIZE, TITLE_SIZE, Anchor::Start, title);
    canvas.paragraph(MARGIN, MARGIN + 2.3 * TITLE_SIZE, TEXT_SIZE, WIDTH, about) + 12.0
}

fn under(canvas: &mut Canvas, y: f64, caption: &str) -> f64 {
    if caption.is_empty() {
        return y;
    }
    canvas.paragraph(MARGIN, y, LABEL_SIZE, WIDTH, caption) + 4.0
}

fn before_and_after(canvas: &mut Canvas, y: f64, problem: &Problem) -> f64 {
    let (from, to) = (problem.from(), problem.to());
    let corners = array::corners(problem);
    let strip = from.dims() == 1;
    let (width, gap) = if strip { (WIDTH, 0.0) } else { ((WIDTH - 40.0) / 2.0, (WIDTH + 40.0) / 2.0) };
    let mut bottom = y;
    for (side, (of, word)) in [(from, "Before"), (to, "After")].into_iter().enumerate() {
        let (x, y) = if strip { (MARGIN, bottom) } else { (MARGIN + side as f64 * gap, y) };
        let said = format!("{word}: {}", words::layout(of));
        canvas.text(x, y, TEXT_SIZE, Anchor::Start, &fitted(&said, width, TEXT_SIZE));
        let caption = array::caption(of, &corners[side]);
        let top = match caption.is_empty() {
            true => y + 8.0,
            false => canvas.paragraph(x, y + 1.4 * TEXT_SIZE, LABEL_SIZE, width, &caption) + 2.0,
        };
        let (_, high) = array::draw(canvas, (x, top), (width, ARRAY), of, &corners[side]);
        bottom = bottom.max(top + high + 22.0);
    }
    bottom + 8.0
}

/// The text, cut where its width ends.
fn fitted(text: &str, width: f64, size: f64) -> String {
    if crate::canvas::width_of(text, size) <= width {
        return text.to_string();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if crate::canvas::width_of(&kept, size) + 2.0 * size > width {
            break;
        }
        kept.push(c);
    }
    kept + "..."
}

/// Draws two charts over one time axis: when each rank sends, and when each rank receives.
fn times(canvas: &mut Canvas, y: f64, schedule: &Schedule, timeline: &Timeline) {
    let makespan = timeline.makespan();
    if timeline.messages().is_empty() || makespan <= 0.0 {
        let said =
            if timeline.messages().is_empty() { "Nothing is sent" } else { "All messages take no time" };
        canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, said);
        return;
    }
    // A message that was cut travels in the order of its steps.
    let mut steps: BTreeMap<(u64, u64), VecDeque<usize>> = BTreeMap::new();
    for (number, step) in schedule.steps().iter().enumerate() {
        for message in &step.messages {
            steps.entry((message.from, message.to)).or_default().push_back(number);
        }
    }
    let sent: Vec<(usize, &Sent)> = timeline
        .messages()
        .iter()
        .map(|sent| (steps.get_mut(&(sent.from, sent.to)).and_then(VecDeque::pop_front).unwrap_or(0), sent))
        .collect();
    let ticks = time_ticks(makespan);
    let mut y = y;
    let all = format!("{} in all", time(makespan));
    for sending in [true, false] {
        let bar = |(step, sent): &(usize, &Sent)| {
            let (row, peer) = if sending { (sent.from, sent.to) } else { (sent.to, sent.from) };
            let elems = counted(sent.elems, "element");
            Bar {
                row,
                start: sent.start,
                end: sent.end,
                fill: Fill::of(*step as u64),
                label: peer.to_string(),
                tooltip: format!(
                    "rank {} to rank {}: {elems} in step {}, from {} to {}",
                    sent.from,
                    sent.to,
                    step_name(*step),
                    time(sent.start),
                    time(sent.end)
                ),
            }
        };
        let bars: Vec<Bar> = sent.iter().map(bar).collect();
        let names = bars.iter().map(|bar| (bar.row, bar.row.to_string())).collect();
        let caption = match sending {
            true => format!("When each rank sends, and to whom: {all}; grey is idle time"),
            false => "When each rank receives, and from whom".to_string(),
        };
        canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, &caption);
        y += 8.0;
        y += bars::draw(canvas, (MARGIN, y), WIDTH, &names, &bars, &ticks, makespan) + 26.0;
    }
}
