//! Every picture can be read: no label lies on another or leaves the picture, and every label has a contrast of at least 4.5 with what is
//! under it. The SVG text is parsed and measured, as a reader sees it.

use reshard_draw::{RingWords, comparison, contrast, layout, redistribution, ring, width_of};
use reshard_plan::cost::CostModel;
use reshard_plan::schedule::{Options, Schedule, Strategy};
use reshard_plan::simulate::{Machine, Network, simulate};
use reshard_plan::{Pattern, Problem, Window};
use reshard_ring::{RingProblem, solve};
use reshard_testkit::{Random, full_sweep};
use roxmltree::{Document, Node};

/// The least contrast of text, as the Web Content Accessibility Guidelines ask for.
const CONTRAST: f64 = 4.5;

#[derive(Debug, Clone, Copy)]
struct Place {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Place {
    fn overlaps(&self, other: &Self) -> bool {
        // Labels that touch by less than half a pixel do not lie on each other.
        const SLACK: f64 = 0.5;
        self.left + SLACK < other.right
            && other.left + SLACK < self.right
            && self.top + SLACK < other.bottom
            && other.top + SLACK < self.bottom
    }

    fn contains(&self, (x, y): (f64, f64)) -> bool {
        self.left <= x && x <= self.right && self.top <= y && y <= self.bottom
    }

    fn middle(&self) -> (f64, f64) {
        ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("{name} is missing: {node:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}"))
}

/// Where a text is: capitals and digits reach from the base line to 0.73 of the size, descenders 0.2 below.
fn place_of(text: Node<'_, '_>) -> Place {
    let size = number(text, "font-size");
    let width = width_of(text.text().unwrap_or_default(), size);
    let before = match text.attribute("text-anchor") {
        Some("middle") => width / 2.0,
        Some("end") => width,
        _ => 0.0,
    };
    if let Some(transform) = text.attribute("transform") {
        // The only texts that are turned run upwards.
        let numbers: Vec<f64> = transform
            .split(|c: char| c != '.' && c != '-' && !c.is_ascii_digit())
            .flat_map(str::parse)
            .collect();
        let [x, y, turn] = numbers[..] else { panic!("{transform}") };
        assert_eq!(turn, -90.0);
        let bottom = y + before;
        return Place { left: x - 0.73 * size, right: x + 0.2 * size, top: bottom - width, bottom };
    }
    let (x, y) = (number(text, "x") - before, number(text, "y"));
    Place { left: x, right: x + width, top: y - 0.73 * size, bottom: y + 0.2 * size }
}

/// Looks at a picture as a reader does. Returns how many labels it has.
fn look_at(what: &str, svg: &str) -> usize {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{what}: {error}"));
    let root = document.root_element();
    let (wide, high) = (number(root, "width"), number(root, "height"));
    assert!(wide < 1200.0, "{what} is {wide} wide");
    // What was painted so far: where, and its colour if it has one.
    let mut painted: Vec<(Place, Option<&str>)> = Vec::new();
    let mut labels: Vec<(Place, &str)> = Vec::new();
    for node in root.descendants() {
        let fill = node.attribute("fill");
        match node.tag_name().name() {
            "rect" if node.attribute("x").is_some() && fill != Some("none") => {
                let (left, top) = (number(node, "x"), number(node, "y"));
                let (right, bottom) = (left + number(node, "width"), top + number(node, "height"));
                assert!(right <= wide && bottom <= high, "{what}: a box leaves the picture");
                let place = Place { left, top, right, bottom };
                painted.push((place, fill.filter(|fill| fill.starts_with('#'))));
            }
            "text" => {
                let (place, text) = (place_of(node), node.text().unwrap_or_default());
                assert!(
                    place.left >= 0.0 && place.top >= 0.0 && place.right <= wide && place.bottom <= high,
                    "{what}: {text:?} leaves the picture: {place:?} of {wide} x {high}"
                );
                assert!(number(node, "font-size") >= 7.0, "{what}: {text:?} is too small to be read");
                let middle = place.middle();
                let under = painted.iter().rev().find(|(place, _)| place.contains(middle));
                let under = under.map_or(Some("#ffffff"), |(_, colour)| *colour);
                let Some(under) = under else { panic!("{what}: {text:?} lies on hatching") };
                let found = contrast(fill.unwrap_or("#000000"), under);
                assert!(found >= CONTRAST, "{what}: {text:?} on {under} has a contrast of {found:.2}");
                labels.push((place, text));
            }
            _ => {}
        }
    }
    labels.sort_by(|a, b| a.0.top.total_cmp(&b.0.top));
    for (at, (place, text)) in labels.iter().enumerate() {
        let below = labels[at + 1..].iter().take_while(|(other, _)| other.top < place.bottom);
        for (other, other_text) in below {
            assert!(
                !place.overlaps(other),
                "{what}: {text:?} at {place:?} and {other_text:?} at {other:?} lie on each other"
            );
        }
    }
    labels.len()
}

/// Keeps a picture where people can look at it, and looks at it.
fn judge(name: &str, svg: &str) -> usize {
    let file = format!("{}/{name}.svg", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, svg).unwrap_or_else(|error| panic!("{file}: {error}"));
    look_at(&file, svg)
}

fn problem(from: &str, to: &str, shape: &[u64]) -> Problem {
    let over = |text: &str| text.parse::<Pattern>().and_then(|pattern| pattern.over(shape));
    let both = over(from).and_then(|from| Ok((from, over(to)?)));
    let (from, to) = both.unwrap_or_else(|error| panic!("{from} to {to} of {shape:?}: {error}"));
    Problem::new(from, to).unwrap_or_else(|error| panic!("{error}"))
}

fn drawn(problem: &Problem, strategy: Strategy, network: Network) -> String {
    let options = Options::default().with_strategy(strategy);
    let schedule = Schedule::with(problem, &options).unwrap_or_else(|error| panic!("{error}"));
    let machine = Machine { cost: CostModel::default(), network };
    let timeline = simulate(&schedule, &machine, false).unwrap_or_else(|error| panic!("{error}"));
    redistribution("a to b", "of some array over some network", problem, &schedule, &timeline)
}

#[test]
fn redistributions_can_be_read() {
    let cases = [
        ("small", "16/3", "16/5", vec![240]),
        ("matrix", "4x4/64x64", "2x8/50x30", vec![8192, 8192]),
        ("three-digits", "4/600", "5/375", vec![30_000]),
        ("huge-numbers", "4/1000000007", "3/1500000001", vec![1 << 50]),
        ("ranks-200", "200/3", "200/7", vec![200 * 21]),
        ("ranks-512", "(cyclic) on 512", "(block) on 512", vec![1 << 18]),
        ("three-dims", "2x2x2/3x4x5", "1x3x2/5x4x3", vec![30, 24, 30]),
        ("replicated", "(cyclic(4), block) on 2x3", "(*, block) on 3x2", vec![24, 36]),
        ("one", "1/4", "1/5", vec![20]),
        ("high-ranks", "4/3 ranks=100000..100004", "3/5 ranks=1000000..1000003", vec![120]),
        ("empty", "2/3", "3/2", vec![0]),
        ("sliver", "2x3/4x4", "3x2/5x7", vec![1, 100_000]),
    ];
    for (name, from, to, shape) in &cases {
        let problem = problem(from, to, shape);
        let labels = judge(name, &drawn(&problem, Strategy::Optimal, Network::Flat));
        assert!(labels >= 3, "{name} has {labels} labels");
    }
}

#[test]
fn every_strategy_can_be_read() {
    let problem = problem("16/3", "15/5", &[480]);
    for strategy in
        [Strategy::Async, Strategy::Eager, Strategy::Caterpillar, Strategy::Split, Strategy::Greedy]
    {
        judge(strategy.name(), &drawn(&problem, strategy, Network::Ring));
    }
}

#[test]
fn windows_and_unequal_shapes_can_be_read() {
    let over = |text: &str, shape: &[u64]| {
        text.parse::<Pattern>().and_then(|one| one.over(shape)).unwrap_or_else(|error| panic!("{error}"))
    };
    let window = Window::of(&[100, 20]).from(&[3, 5]).to(&[1, 2]).permuted(&[1, 0]);
    let problem = Problem::windowed(over("2x3/7x4", &[200, 30]), over("3x2/5x9", &[60, 400]), window)
        .unwrap_or_else(|error| panic!("{error}"));
    judge("window", &drawn(&problem, Strategy::Optimal, Network::Flat));
}

#[test]
fn layouts_can_be_read() {
    let cases = [
        ("layout-small", "2x3/4x4", vec![18, 20]),
        ("layout-large", "16x16/64x64", vec![100_000, 100_000]),
        ("layout-512", "512/7", vec![1_000_000]),
        ("layout-flat", "(block, *) on 4x1", vec![1_000_000, 3]),
        ("layout-cuts", "(gen_block(10,200,30000), block) on 3x2", vec![30_210, 5000]),
        ("layout-empty", "3/2", vec![0]),
        ("layout-4d", "2x2x2x2/1x2x3x4", vec![8, 8, 12, 16]),
    ];
    for (name, text, shape) in &cases {
        let of = text
            .parse::<Pattern>()
            .and_then(|one| one.over(shape))
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        judge(name, &layout(text, &of));
    }
}

#[test]
fn comparisons_can_be_read() {
    let one = |name, makespan| reshard_draw::Strategy { name, steps: 7, makespan };
    let all = [one("caterpillar", 2e-5), one("optimal", 1.4e-5), one("walker-otto", 1.4e-7)];
    let labels = judge("comparison", &comparison("a to b", "of some array", &all, 1.3e-7, &["classes"]));
    assert!(labels >= 3 + 3 + 2, "{labels}");
    judge("comparison-of-nothing", &comparison("a to b", "of some array", &[one("optimal", 0.0)], 0.0, &[]));
}

fn ring_of(name: &str, loads: Vec<u64>, targets: Vec<u64>, right: Option<Vec<u64>>) {
    let problem = RingProblem::new(loads, targets).and_then(|problem| match right {
        Some(right) => problem.with_left(right.iter().rev().copied().collect())?.with_right(right),
        None => Ok(problem),
    });
    let problem = problem.unwrap_or_else(|error| panic!("{error}"));
    let solution = solve(&problem).unwrap_or_else(|error| panic!("{error}"));
    let words = RingWords { title: "a ring", about: "balanced", denominator: 3 };
    judge(name, &ring(&words, &problem, &solution));
}

#[test]
fn rings_can_be_read() {
    ring_of("ring", vec![8, 1, 7, 2, 9, 0, 3, 6], vec![4, 5, 4, 5, 4, 5, 4, 5], None);
    let links = vec![1, 3, 2, 7, 1, 4];
    ring_of("ring-unequal", vec![90_000, 0, 30_000, 0, 0, 0], vec![20_000; 6], Some(links));
    ring_of("ring-2", vec![10, 0], vec![5, 5], None);
    ring_of("ring-1", vec![3], vec![3], None);
    ring_of("ring-3", vec![123_456, 0, 0], vec![41_152; 3], None);
    let loads = |procs: u64| (0..procs).map(|rank| rank * 7 % 13).collect::<Vec<u64>>();
    for procs in [24, 25, 200, 512] {
        let mut targets = loads(procs);
        targets.rotate_left(5);
        ring_of(&format!("ring-{procs}"), loads(procs), targets, None);
    }
}

#[test]
fn whatever_is_drawn_can_be_read() {
    let cases = if full_sweep() { 2_000 } else { 60 };
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let dims = random.within(1, 3) as usize;
        let most = [40, 9, 4][dims - 1];
        let mut text = || {
            let mut list = |most: u64| {
                let extents: Vec<String> = (0..dims).map(|_| random.within(1, most).to_string()).collect();
                extents.join("x")
            };
            let grid = list(most);
            format!("{grid}/{}", list(50))
        };
        let (from, to) = (text(), text());
        let shape: Vec<u64> = (0..dims).map(|_| random.any_size(100_000)).collect();
        let problem = problem(&from, &to, &shape);
        let what = format!("seed {seed}: {from} to {to} of {shape:?}");
        look_at(&what, &drawn(&problem, Strategy::Optimal, Network::Flat));
        look_at(&what, &layout(&from, problem.from()));
    }
}

#[test]
fn what_cannot_be_read_is_found() {
    let picture = |body: &str| {
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50\">{body}</svg>")
    };
    let text = |x: u32, fill: &str| {
        format!("<text x=\"{x}\" y=\"20\" font-size=\"10\" text-anchor=\"start\" fill=\"{fill}\">1234</text>")
    };
    let plate = "<rect x=\"0\" y=\"0\" width=\"50\" height=\"50\" fill=\"#f0e442\"/>";
    let good = text(5, "#111111");
    assert_eq!(look_at("good", &picture(&good)), 1);
    let bad = [
        good.clone() + &text(20, "#111111"),
        text(90, "#111111"),
        plate.to_string() + &text(5, "#ffffff"),
        plate.replace("#f0e442", "url(#h1-1)") + &good,
        text(5, "#cccccc"),
    ];
    for body in bad {
        let found = std::panic::catch_unwind(|| look_at("bad", &picture(&body)));
        assert!(found.is_err(), "{body}");
    }
}
