//! SVG drawings, written without a library. The drawing of `reshard explain` has the communication grid coloured by step, a
//! legend, and a row of bars for each sender's messages in time. Every cell and bar has a tooltip in words.

use crate::schedule::step_name;
use crate::simulate::time;
use reshard_plan::Problem;
use reshard_plan::schedule::Schedule;
use reshard_plan::simulate::Timeline;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// The most senders in the timeline.
const MAX_ROWS: usize = 128;

/// The most steps in the legend.
const MAX_LEGEND_STEPS: usize = 104;

pub const MARGIN: f64 = 24.0;
pub const LABELS: f64 = 56.0;
pub const ROW: f64 = 16.0;

/// The SVG text so far, and the vertical position of what comes next.
pub struct Drawing {
    body: String,
    pub width: f64,
    pub y: f64,
}

pub fn draw(title: &str, problem: &Problem, schedule: &Schedule, timeline: &Timeline) -> String {
    let mut drawing = Drawing::new(title);
    drawing.grid(problem, schedule);
    drawing.legend(schedule);
    drawing.timeline(schedule, timeline);
    drawing.finish()
}

impl Drawing {
    pub fn new(title: &str) -> Self {
        let mut drawing = Self { body: String::new(), width: 760.0, y: MARGIN };
        drawing.text(MARGIN, 16.0, "start", title);
        drawing.y += 32.0;
        drawing
    }

    pub fn finish(self) -> String {
        let Self { body, width, y } = self;
        let (width, height) = (width + MARGIN, y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }

    pub fn text(&mut self, x: f64, size: f64, anchor: &str, text: &str) {
        let y = self.y;
        self.text_at(x, y, size, anchor, text);
    }

    pub fn text_at(&mut self, x: f64, y: f64, size: f64, anchor: &str, text: &str) {
        let text = escaped(text);
        // Writing to a string does not fail.
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, title: &str) {
        let title = escaped(title);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\" \
             stroke=\"#ffffff\" stroke-width=\"0.5\"><title>{title}</title></rect>"
        );
    }

    /// Draws a row for each sender, a column for each receiver, and a cell for each message in the colour of its step.
    fn grid(&mut self, problem: &Problem, schedule: &Schedule) {
        let senders = problem.from().grid().sorted_ranks();
        let receivers = problem.to().grid().sorted_ranks();
        let most = senders.len().max(receivers.len()).max(1);
        let cell = (960.0 / most as f64).clamp(2.0, 30.0);
        let (left, named) = (MARGIN + LABELS, cell >= 12.0);
        self.text(MARGIN, 11.0, "start", "Senders down, receivers across; elements and step of each message");
        self.y += 18.0;
        let top = self.y;
        if named {
            for (at, rank) in receivers.iter().enumerate() {
                let x = left + (at as f64 + 0.5) * cell;
                self.text(x, 10.0, "middle", &rank.to_string());
            }
        }
        let top = top + 6.0;
        let mut cells: BTreeMap<(u64, u64), (u64, Vec<usize>)> = BTreeMap::new();
        for (number, step) in schedule.steps().iter().enumerate() {
            for message in &step.messages {
                let (elems, steps) = cells.entry((message.from, message.to)).or_default();
                *elems += message.elems;
                steps.push(number);
            }
        }
        for (row, &sender) in senders.iter().enumerate() {
            let y = top + row as f64 * cell;
            if named {
                self.text_at(left - 6.0, y + cell * 0.68, 10.0, "end", &sender.to_string());
            }
            for (column, &receiver) in receivers.iter().enumerate() {
                let x = left + column as f64 * cell;
                let Some((elems, steps)) = cells.get(&(sender, receiver)) else { continue };
                let names: Vec<String> = steps.iter().map(|&step| step_name(step)).collect();
                let title = format!("{sender} to {receiver}: {elems} elements in step {}", names.join(", "));
                self.rect((x, y), (cell, cell), &colour(steps[0]), &title);
                let label = format!("{elems}{}", names.concat());
                // Only if it fits, at about 0.6 of the font size for a character.
                let size = (cell * 0.42).min(cell / (0.6 * label.len() as f64));
                if size >= 6.0 {
                    self.text_at(x + cell / 2.0, y + cell * 0.65, size, "middle", &label);
                }
            }
        }
        self.width = self.width.max(left + receivers.len() as f64 * cell);
        self.y = top + senders.len() as f64 * cell + 28.0;
    }

    /// Draws the colour, name and cost of each step.
    fn legend(&mut self, schedule: &Schedule) {
        let (wide, mut x) = (64.0, MARGIN);
        let steps = schedule.steps();
        if steps.is_empty() {
            return;
        }
        let caption = format!("{} steps, total cost {}", steps.len(), schedule.total_cost());
        self.text(MARGIN, 11.0, "start", &caption);
        self.y += 12.0;
        for (number, step) in steps.iter().enumerate().take(MAX_LEGEND_STEPS) {
            if x + wide > self.width {
                (x, self.y) = (MARGIN, self.y + 18.0);
            }
            let title =
                format!("step {}: {} messages, cost {}", step_name(number), step.messages.len(), step.cost);
            let at = (x, self.y);
            self.rect(at, (12.0, 12.0), &colour(number), &title);
            self.text_at(
                x + 16.0,
                at.1 + 10.0,
                10.0,
                "start",
                &format!("{}: {}", step_name(number), step.cost),
            );
            x += wide;
        }
        self.y += 44.0;
    }

    /// Draws a row of bars for each sender.
    fn timeline(&mut self, schedule: &Schedule, timeline: &Timeline) {
        // A message that was cut travels in the order of its steps.
        let mut steps: BTreeMap<(u64, u64), VecDeque<usize>> = BTreeMap::new();
        let mut rows: BTreeMap<u64, usize> = BTreeMap::new();
        for (number, step) in schedule.steps().iter().enumerate() {
            for message in &step.messages {
                steps.entry((message.from, message.to)).or_default().push_back(number);
                rows.insert(message.from, 0);
            }
        }
        for (row, place) in rows.values_mut().enumerate() {
            *place = row;
        }
        let makespan = timeline.makespan();
        let caption = match rows.len() {
            0 => "Nothing is sent".to_string(),
            count if count > MAX_ROWS => {
                format!("The first {MAX_ROWS} of {count} senders in time, with their receivers")
            }
            _ => format!("Senders in time, with their receivers: {}", time(makespan)),
        };
        self.text(MARGIN, 11.0, "start", &caption);
        self.y += 8.0;
        if rows.is_empty() || makespan <= 0.0 {
            return;
        }
        let (left, top) = (MARGIN + LABELS, self.y);
        let scale = (self.width - left) / makespan;
        for (rank, row) in rows.iter().take(MAX_ROWS) {
            let y = top + *row as f64 * ROW;
            self.text_at(left - 6.0, y + ROW * 0.75, 10.0, "end", &rank.to_string());
        }
        for sent in timeline.messages() {
            let step = steps.get_mut(&(sent.from, sent.to)).and_then(VecDeque::pop_front).unwrap_or(0);
            let Some(&row) = rows.get(&sent.from).filter(|&&row| row < MAX_ROWS) else { continue };
            let (x, y) = (left + sent.start * scale, top + row as f64 * ROW);
            let width = (sent.end - sent.start) * scale;
            let title = format!(
                "{} to {}: {} elements in step {}, from {} to {}",
                sent.from,
                sent.to,
                sent.elems,
                step_name(step),
                time(sent.start),
                time(sent.end)
            );
            self.rect((x, y + 1.0), (width, ROW - 2.0), &colour(step), &title);
            let label = sent.to.to_string();
            if width > 7.0 * label.len() as f64 {
                self.text_at(x + width / 2.0, y + ROW * 0.72, 9.0, "middle", &label);
            }
        }
        self.y = top + rows.len().min(MAX_ROWS) as f64 * ROW;
        self.time_axis(left, |quarter| time(quarter as f64 / 4.0 * makespan));
    }

    /// Draws a time axis under rows of bars, with a label at each quarter.
    pub fn time_axis(&mut self, left: f64, time_at: impl Fn(u64) -> String) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{left:.1}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"#444444\"/>",
            self.y, self.width
        );
        self.y += 14.0;
        for quarter in 0..=4 {
            let anchor = if quarter == 4 { "end" } else { "start" };
            let x = left + quarter as f64 / 4.0 * (self.width - left);
            self.text(x, 10.0, anchor, &time_at(quarter));
        }
    }
}

/// Returns a light colour for each step; hues are a golden angle apart, so that neighbours differ.
fn colour(step: usize) -> String {
    let hue = (step as f64 * 137.508) % 360.0 / 60.0;
    let (light, chroma) = (0.78, 0.36);
    let second = chroma * (1.0 - (hue % 2.0 - 1.0).abs());
    let (red, green, blue) = match hue as u32 {
        0 => (chroma, second, 0.0),
        1 => (second, chroma, 0.0),
        2 => (0.0, chroma, second),
        3 => (0.0, second, chroma),
        4 => (second, 0.0, chroma),
        _ => (chroma, 0.0, second),
    };
    let byte = |part: f64| ((light - chroma / 2.0 + part) * 255.0).round() as u8;
    format!("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
