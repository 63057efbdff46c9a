//! The SVG text of a picture. Text is measured before it is drawn, and what has no room is left out, or shortened by who draws it.

use crate::palette::{COLOURS, FAINT_INK, Fill, INK, PAPER, ink_on};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The margin around a picture.
pub const MARGIN: f64 = 20.0;
/// Sizes of text.
pub const TITLE_SIZE: f64 = 16.0;
pub const TEXT_SIZE: f64 = 12.0;
pub const LABEL_SIZE: f64 = 10.0;
/// The least size that can be read.
const MIN_SIZE: f64 = 7.0;
/// From this number of boxes on they have no tooltips, and those of one fill are one path.
const MANY_BOXES: usize = 12_000;

/// A box: left, top, width, height.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// Where a text is in relation to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A box to be drawn: where, how filled, what the tooltip says.
pub struct FilledBox {
    pub area: Area,
    pub fill: Fill,
    pub tooltip: String,
}

/// The SVG text so far.
#[derive(Default)]
pub struct Canvas {
    body: String,
    width: f64,
    height: f64,
    hatched: BTreeSet<(usize, usize)>,
}

/// Advance widths of DejaVu Sans from the space to the tilde, in thousandths of its size: the widest of the usual fonts without serifs.
const ADVANCE: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636,
    636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295,
    295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838,
    500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521,
    392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];

/// An upper bound of the width of a text, whichever font without serifs draws it.
pub fn width_of(text: &str, size: f64) -> f64 {
    let of = |c: char| {
        let at = (c as usize).checked_sub(' ' as usize);
        at.and_then(|at| ADVANCE.get(at)).map_or(1.0, |advance| f64::from(*advance) / 1000.0)
    };
    text.chars().map(of).sum::<f64>() * size
}

impl Canvas {
    /// Makes room for what is drawn.
    fn reach(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x);
        self.height = self.height.max(y);
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// Text whose base line is at `y`.
    pub fn text(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, text: &str) {
        self.coloured_text((x, y), size, anchor, INK, text);
    }

    pub fn faint_text(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, text: &str) {
        self.coloured_text((x, y), size, anchor, FAINT_INK, text);
    }

    pub fn coloured_text(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, ink: &str, text: &str) {
        let width = width_of(text, size);
        let right = match anchor {
            Anchor::Start => x + width,
            Anchor::Middle => x + width / 2.0,
            Anchor::End => x,
        };
        self.reach(right, y + 0.3 * size);
        let (anchor, text) = (anchor.name(), escaped(text));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" text-anchor=\"{anchor}\" fill=\"{ink}\">{text}</text>"
        ));
    }

    /// Text over as many lines as a width needs. Returns the base line after it.
    pub fn paragraph(&mut self, x: f64, y: f64, size: f64, width: f64, text: &str) -> f64 {
        let (mut line, mut y) = (String::new(), y);
        for word in text.split(' ') {
            if !line.is_empty() && width_of(&line, size) + width_of(word, size) + size > width {
                self.faint_text(x, y, size, Anchor::Start, &line);
                (line, y) = (String::new(), y + 1.35 * size);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.faint_text(x, y, size, Anchor::Start, &line);
        y + 1.35 * size
    }

    /// A label in the middle of a box, in lines, if they have room in a size that can be read. Returns whether they had.
    pub fn label(&mut self, area: Area, fill: Fill, lines: &[&str]) -> bool {
        let widest = lines.iter().map(|line| width_of(line, 1.0)).fold(0.0, f64::max);
        let room = (area.width - 3.0).max(0.0) / widest.max(1e-9);
        let high = (area.height - 2.0).max(0.0) / (1.2 * lines.len() as f64);
        let size = LABEL_SIZE.min(room).min(high);
        if size < MIN_SIZE {
            return false;
        }
        let base = fill.base();
        let (x, middle) = (area.x + area.width / 2.0, area.y + area.height / 2.0);
        let top = middle - 0.6 * size * lines.len() as f64;
        for (number, line) in lines.iter().enumerate() {
            let y = top + (number as f64 * 1.2 + 0.96) * size;
            if fill.hatch > 0 {
                // A plate under the text, as nothing can be read on hatching.
                let wide = width_of(line, size) + 2.0;
                self.put(format_args!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" fill=\"{base}\"/>",
                    x - wide / 2.0,
                    y - 0.96 * size,
                    1.2 * size
                ));
            }
            self.coloured_text((x, y), size, Anchor::Middle, ink_on(base), line);
        }
        true
    }

    fn paint(&mut self, fill: Fill) -> String {
        if fill.hatch == 0 {
            return fill.base().to_string();
        }
        self.hatched.insert((fill.colour, fill.hatch));
        format!("url(#h{}-{})", fill.colour, fill.hatch)
    }

    /// Boxes with tooltips; very many become a path for each fill.
    pub fn boxes(&mut self, boxes: &[FilledBox]) {
        for FilledBox { area, .. } in boxes {
            self.reach(area.x + area.width, area.y + area.height);
        }
        if boxes.len() <= MANY_BOXES {
            for FilledBox { area, fill, tooltip } in boxes {
                self.filled_box(*area, *fill, tooltip);
            }
            return;
        }
        for index in 0..(COLOURS.len() * crate::palette::HATCHES) as u64 {
            let of_fill = boxes.iter().filter(|one| one.fill == Fill::of(index));
            let mut path = String::new();
            for FilledBox { area: Area { x, y, width, height }, .. } in of_fill {
                let _ = write!(path, "M{x:.1} {y:.1}h{width:.2}v{height:.2}h-{width:.2}z");
            }
            if !path.is_empty() {
                let paint = self.paint(Fill::of(index));
                self.put(format_args!("<path d=\"{path}\" fill=\"{paint}\"/>"));
            }
        }
    }

    pub fn filled_box(&mut self, area: Area, fill: Fill, tooltip: &str) {
        let paint = self.paint(fill);
        self.painted_box(area, &paint, tooltip);
    }

    pub fn painted_box(&mut self, area: Area, paint: &str, tooltip: &str) {
        let Area { x, y, width, height } = area;
        self.reach(x + width, y + height);
        // Lines between boxes that are narrow would hide them.
        let line = if width.min(height) >= 4.0 { 0.5 } else { 0.0 };
        let title =
            if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(tooltip)) };
        self.put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{paint}\" stroke=\"{PAPER}\" \
             stroke-width=\"{line}\">{title}</rect>"
        ));
    }

    /// The outline of a box.
    pub fn frame(&mut self, area: Area) {
        let Area { x, y, width, height } = area;
        self.reach(x + width, y + height);
        self.put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"0.8\"/>"
        ));
    }

    pub fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), width: f64, dashed: bool) {
        let dashes = if dashed { " stroke-dasharray=\"4 3\"" } else { "" };
        self.reach(x.max(to_x), y.max(to_y));
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"{FAINT_INK}\" stroke-width=\"{width:.1}\"{dashes}/>"
        ));
    }

    /// An element that is none of these; `(x, y)` is how far it reaches.
    pub fn element(&mut self, (x, y): (f64, f64), element: std::fmt::Arguments<'_>) {
        self.reach(x, y);
        self.put(element);
    }

    /// The whole SVG; `title` is what is read aloud.
    pub fn finish(self, title: &str) -> String {
        let (width, height) = ((self.width + MARGIN).ceil(), (self.height + MARGIN).ceil());
        let mut patterns = String::new();
        for (colour, hatch) in self.hatched {
            let _ = writeln!(patterns, "{}", pattern(colour, hatch));
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" role=\"img\">\n<title>{}</title>\n<defs>\n{patterns}</defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n{}</svg>\n",
            escaped(title),
            self.body
        )
    }
}

/// The definition of a hatching.
fn pattern(colour: usize, hatch: usize) -> String {
    let base = COLOURS[colour];
    let ink = ink_on(base);
    let lines = match hatch {
        1 => "M0 8L8 0M-2 2L2 -2M6 10L10 6",
        2 => "M0 0L8 8M-2 6L2 10M6 -2L10 2",
        3 => "M0 8L8 0M0 0L8 8",
        4 => "M0 4H8",
        5 => "M4 0V8",
        6 => "M0 4H8M4 0V8",
        _ => "M3 4h2M7 0h2M7 8h2M-1 0h2M-1 8h2",
    };
    let width = if hatch == 7 { 2.0 } else { 1.0 };
    format!(
        "<pattern id=\"h{colour}-{hatch}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
         <rect width=\"8\" height=\"8\" fill=\"{base}\"/>\
         <path d=\"{lines}\" stroke=\"{ink}\" stroke-opacity=\"0.55\" stroke-width=\"{width}\" fill=\"none\"/></pattern>"
    )
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
