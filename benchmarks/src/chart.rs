//! Small log-log charts as SVG, readable on light and dark pages.

use std::fmt::Write as _;

/// One named line.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// False for dots alone.
    pub joined: bool,
}

/// Panels side by side that share their axes.
pub struct Chart {
    pub title: String,
    pub panels: Vec<(String, Vec<Line>)>,
    pub x_label: String,
    pub y_label: String,
}

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 64.0;
const GAP: f64 = 28.0;
/// Okabe and Ito's colours, told apart by everyone.
const COLOURS: [&str; 8] =
    ["#999999", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#000000"];

impl Chart {
    pub fn svg(&self) -> String {
        let points = || self.panels.iter().flat_map(|panel| &panel.1).flat_map(|line| &line.points);
        let bounds = |value: fn(&(f64, f64)) -> f64| {
            points().map(value).fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)))
        };
        let (x_low, x_high) = bounds(|point| point.0);
        let (y_low, y_high) = bounds(|point| point.1);
        let is_wide = y_high > 100.0 * y_low;
        let (y_low, y_high) = match is_wide {
            true => (y_low.log10().floor(), y_high.log10().ceil()),
            // Few decades: from tick to tick.
            false => {
                let below = ticks((y_low / 10.0, y_low)).last().copied().unwrap_or(y_low);
                (below.log10(), ticks((y_high, 10.0 * y_high)).first().copied().unwrap_or(y_high).log10())
            }
        };
        let x_at = |x: f64| WIDTH * (x / x_low).ln() / (x_high / x_low).ln();
        let y_at = |y: f64| HEIGHT * (1.0 - (y.log10() - y_low) / (y_high - y_low));
        let names = self.panels.last().into_iter().flat_map(|panel| &panel.1).map(|line| line.name.len());
        let margin = 7.0 * names.max().unwrap_or(0) as f64;
        let total = LEFT + self.panels.len() as f64 * (WIDTH + GAP) + margin.max(80.0);
        let mut svg = String::new();
        let mut add = |line: String| {
            svg.push_str(&line);
            svg.push('\n');
        };
        add(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {}\" font-family=\"sans-serif\" font-size=\"12\">",
            TOP + HEIGHT + 56.0
        ));
        add(format!("<rect width=\"{total}\" height=\"{}\" fill=\"#ffffff\"/>", TOP + HEIGHT + 56.0));
        add(format!("<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>", self.title));
        let middle = TOP + HEIGHT / 2.0;
        add(format!(
            "<text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">{}</text>",
            self.y_label
        ));
        for (index, (name, lines)) in self.panels.iter().enumerate() {
            let left = LEFT + index as f64 * (WIDTH + GAP);
            add(format!("<g transform=\"translate({left} {TOP})\">"));
            add(format!("<text x=\"{}\" y=\"-10\" text-anchor=\"middle\">{name}</text>", WIDTH / 2.0));
            // A little room for what powers lose.
            let mut marks = ticks((0.999 * 10_f64.powf(y_low), 1.001 * 10_f64.powf(y_high)));
            if is_wide {
                marks.retain(|mark| mark.log10().fract().abs() < 1e-9);
            }
            for mark in marks {
                let y = y_at(mark);
                add(format!("<path d=\"M0 {y:.1}H{WIDTH}\" stroke=\"#dddddd\"/>"));
                if index == 0 {
                    add(format!("<text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>", y + 4.0));
                }
            }
            let mut ticks: Vec<f64> =
                lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
            ticks.sort_by(f64::total_cmp);
            ticks.dedup();
            for tick in ticks {
                let x = x_at(tick);
                add(format!(
                    "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    HEIGHT + 18.0,
                    short(tick)
                ));
            }
            add(format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                WIDTH / 2.0,
                HEIGHT + 40.0,
                self.x_label
            ));
            for (line, colour) in lines.iter().zip(COLOURS) {
                let mut path = String::new();
                for (at, &(x, y)) in line.points.iter().enumerate().filter(|_| line.joined) {
                    let _ = write!(path, "{}{:.1} {:.1}", if at == 0 { "M" } else { "L" }, x_at(x), y_at(y));
                }
                add(format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
                for &(x, y) in &line.points {
                    add(format!(
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                        x_at(x),
                        y_at(y)
                    ));
                }
            }
            if index + 1 == self.panels.len() {
                // Names at the lines' ends, from the bottom up, far enough apart to be read.
                let end = |line: &Line| line.points.last().map_or(0.0, |&(_, y)| y_at(y) + 4.0);
                let mut names: Vec<_> =
                    lines.iter().zip(COLOURS).map(|(line, colour)| (end(line), line, colour)).collect();
                names.sort_by(|a, b| b.0.total_cmp(&a.0));
                let mut below = f64::MAX;
                for (y, line, colour) in names {
                    below = y.min(below - 13.0);
                    let x = WIDTH + 8.0;
                    add(format!("<text x=\"{x}\" y=\"{below:.1}\" fill=\"{colour}\">{}</text>", line.name));
                }
            }
            add("</g>".to_string());
        }
        add("</svg>".to_string());
        svg
    }
}

/// A number in few characters.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{}M", n / 1e6),
        n if n >= 1e4 => format!("{}k", n / 1e3),
        n => n.to_string(),
    }
}

/// Dots of one name and colour.
pub struct Dots {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A scatter plot with logarithmic axes. All values are at least a small positive number.
pub struct Scatter {
    pub title: String,
    pub groups: Vec<Dots>,
    pub x_label: String,
    pub y_label: String,
}

/// Width of a scatter plot.
const SCATTER_WIDTH: f64 = 620.0;

/// Ticks of a logarithmic axis, multiplied by powers of ten.
const LOG_TICKS: [f64; 3] = [1.0, 2.0, 5.0];

impl Scatter {
    pub fn svg(&self) -> String {
        let points = || self.groups.iter().flat_map(|group| &group.points);
        let bounds = |value: fn(&(f64, f64)) -> f64| {
            let (low, high) = points()
                .map(value)
                .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
            // A little room at both ends, also for one value.
            if low <= high { (low / 1.1, high * 1.1) } else { (1.0, 10.0) }
        };
        let (x_bounds, y_bounds) = (bounds(|point| point.0), bounds(|point| point.1));
        let part = |(low, high): (f64, f64), value: f64| (value / low).ln() / (high / low).ln();
        let x_at = |x: f64| SCATTER_WIDTH * part(x_bounds, x);
        let y_at = |y: f64| HEIGHT * (1.0 - part(y_bounds, y));
        let longest = self.groups.iter().map(|group| group.name.len()).max().unwrap_or(0);
        let (total, bottom) = (LEFT + SCATTER_WIDTH + 20.0 + 7.0 * longest as f64, TOP + HEIGHT + 56.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {bottom}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{total}\" height=\"{bottom}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
            self.title
        );
        let mut add = |line: String| {
            svg.push_str(&line);
            svg.push('\n');
        };
        let middle = TOP + HEIGHT / 2.0;
        add(format!(
            "<text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">{}</text>",
            self.y_label
        ));
        add(format!("<g transform=\"translate({LEFT} {TOP})\">"));
        for tick in ticks(y_bounds) {
            let y = y_at(tick);
            add(format!("<path d=\"M0 {y:.1}H{SCATTER_WIDTH}\" stroke=\"#dddddd\"/>"));
            add(format!("<text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>", y + 4.0));
        }
        for tick in ticks(x_bounds) {
            let x = x_at(tick);
            add(format!("<path d=\"M{x:.1} 0V{HEIGHT}\" stroke=\"#eeeeee\"/>"));
            add(format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", HEIGHT + 18.0));
        }
        add(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            SCATTER_WIDTH / 2.0,
            HEIGHT + 40.0,
            self.x_label
        ));
        for (number, (group, colour)) in self.groups.iter().zip(COLOURS).enumerate() {
            for &(x, y) in &group.points {
                add(format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\" fill-opacity=\"0.7\"/>",
                    x_at(x),
                    y_at(y)
                ));
            }
            let (x, y) = (SCATTER_WIDTH + 12.0, 14.0 + 16.0 * number as f64);
            add(format!("<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", group.name));
        }
        add("</g>".to_string());
        add("</svg>".to_string());
        svg
    }
}

/// Ticks of a logarithmic axis between two bounds.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    // Negative powers by division, so that a tick prints as 0.2 and not as 0.200...01.
    let power = |decade: i32, tick: f64| match decade {
        0.. => tick * 10_f64.powi(decade),
        _ => tick / 10_f64.powi(-decade),
    };
    let all = decades.flat_map(|decade| LOG_TICKS.map(|tick| power(decade, tick)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}
