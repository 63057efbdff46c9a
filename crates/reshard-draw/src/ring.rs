//! Loads that are balanced along a ring: the ring with an arrow for what goes over each link, as wide as it is much, and when each process
//! sends.

use crate::bars::{self, Bar};
use crate::canvas::{Anchor, Canvas, LABEL_SIZE, MARGIN, TEXT_SIZE, escaped, width_of};
use crate::palette::{FAINT_INK, Fill, INK, PAPER};
use crate::pictures::{WIDTH, head};
use crate::scale::{shortened, stride};
use reshard_plan::error::counted;
use reshard_ring::{RingProblem, Side, Solution, Transfer};
use std::collections::BTreeMap;
use std::f64::consts::TAU;

/// What a process needs of the ring for its labels.
const ARC: f64 = 78.0;
/// The largest ring that has labels everywhere.
const MAX_LABELLED: usize = 24;
const RADIUS: (f64, f64) = (96.0, 300.0);
const NODE: f64 = 15.0;
/// The widest arrow.
const THICK: f64 = 9.0;
/// The most bars that are cut into items.
const MAX_ITEMS: u64 = 20_000;

/// What a picture of a ring says that the ring does not know.
pub struct RingWords<'w> {
    /// What the picture is of.
    pub title: &'w str,
    /// What is said besides: how long it takes, and whether that is the least.
    pub about: &'w str,
    /// Units of the solution's time in a unit of the user's.
    pub denominator: u64,
}

/// Draws a ring and its program.
pub fn ring(words: &RingWords<'_>, problem: &RingProblem, solution: &Solution) -> String {
    let mut canvas = Canvas::default();
    let y = head(&mut canvas, words.title, words.about);
    canvas.text(
        MARGIN,
        y,
        TEXT_SIZE,
        Anchor::Start,
        "Items over each link: to the next process orange, outside; to the previous blue, inside",
    );
    let y = circle(&mut canvas, y + 16.0, problem, solution);
    chart(&mut canvas, y, words, problem, solution);
    canvas.finish(words.title)
}

fn fill_of(side: Side) -> Fill {
    Fill::of(if side == Side::Right { 1 } else { 0 })
}

/// Items that go from each process to each side.
fn flows(problem: &RingProblem, solution: &Solution) -> Vec<[u64; 2]> {
    let mut flows = vec![[0; 2]; problem.procs()];
    for transfer in solution.program().transfers() {
        flows[transfer.from as usize][transfer.side.index()] += transfer.items;
    }
    flows
}

fn circle(canvas: &mut Canvas, y: f64, problem: &RingProblem, solution: &Solution) -> f64 {
    let procs = problem.procs();
    let labelled = procs <= MAX_LABELLED;
    let radius = (procs as f64 * ARC / TAU).clamp(RADIUS.0, RADIUS.1);
    let node = if labelled { NODE } else { (0.3 * TAU * radius / procs as f64).clamp(1.0, NODE) };
    let (x, middle) = (MARGIN + WIDTH / 2.0, y + radius + 44.0);
    let at = |rank: f64, radius: f64| {
        let angle = TAU * rank / procs as f64 - TAU / 4.0;
        (x + radius * angle.cos(), middle + radius * angle.sin())
    };
    let flows = flows(problem, solution);
    let most = flows.iter().flatten().copied().max().unwrap_or(0).max(1);
    // Two processes have two links, which lie beside each other.
    let base = if procs == 2 { 22.0 } else { 0.0 };
    for rank in (0..procs).filter(|_| procs > 2) {
        canvas.line(at(rank as f64, radius), at(rank as f64 + 1.0, radius), 0.4, false);
    }
    for (rank, both) in flows.iter().enumerate() {
        for side in [Side::Right, Side::Left] {
            let items = both[side.index()];
            if items == 0 || procs < 2 {
                continue;
            }
            let (from, to) = match side {
                Side::Right => (rank as f64, rank as f64 + 1.0),
                Side::Left => (rank as f64, rank as f64 - 1.0),
            };
            let thick = (THICK * items as f64 / most as f64).clamp(1.2, THICK).min(node);
            let outwards = if side == Side::Right { base + 0.4 * node } else { base - 0.4 * node };
            let (one, other) = (at(from, radius), at(to, radius));
            // Away from the middle of the ring.
            let away = at((from + to) / 2.0, 1.0);
            let away = (away.0 - x, away.1 - middle);
            let (dx, dy) = (other.0 - one.0, other.1 - one.1);
            let length = dx.hypot(dy).max(1e-9);
            let (ux, uy) = (dx / length, dy / length);
            let begin = (
                one.0 + ux * (node + 1.0) + away.0 * outwards,
                one.1 + uy * (node + 1.0) + away.1 * outwards,
            );
            let end = (
                other.0 - ux * (node + 1.0) + away.0 * outwards,
                other.1 - uy * (node + 1.0) + away.1 * outwards,
            );
            let colour = fill_of(side).base();
            let tip = (1.2 * thick + 3.0).min(0.5 * length);
            let neck = (end.0 - ux * tip, end.1 - uy * tip);
            let (px, py) = (-uy * (0.9 * thick + 1.5), ux * (0.9 * thick + 1.5));
            let next = if side == Side::Right { (rank + 1) % procs } else { (rank + procs - 1) % procs };
            let tooltip = format!("process {rank} to process {next}: {}", counted(items, "item"));
            canvas.element(
                (end.0.max(begin.0), end.1.max(begin.1)),
                format_args!(
                    "<g><title>{}</title><line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{thick:.1}\"/>\
                     <polygon points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\" fill=\"{colour}\"/></g>",
                    escaped(&tooltip),
                    begin.0,
                    begin.1,
                    neck.0,
                    neck.1,
                    end.0,
                    end.1,
                    neck.0 + px,
                    neck.1 + py,
                    neck.0 - px,
                    neck.1 - py
                ),
            );
            if labelled {
                let text = shortened(u128::from(items));
                // Beside the arrow, whichever way it runs.
                let half = away.0.abs() * width_of(&text, LABEL_SIZE) / 2.0 + away.1.abs() * LABEL_SIZE / 2.0;
                let beside = (0.9 * thick + 1.5).max(4.0) + half + 2.0;
                let off = outwards + if side == Side::Right { beside } else { -beside };
                let (lx, ly) =
                    ((one.0 + other.0) / 2.0 + away.0 * off, (one.1 + other.1) / 2.0 + away.1 * off);
                canvas.text(lx, ly + 3.5, LABEL_SIZE, Anchor::Middle, &text);
            }
        }
    }
    let every = if labelled { 1 } else { stride(TAU * radius / procs as f64, 46.0) };
    for rank in 0..procs {
        let (load, target) = (problem.loads()[rank], problem.targets()[rank]);
        let (cx, cy) = at(rank as f64, radius);
        let tooltip = format!("process {rank}: {} now, {target} wanted", counted(load, "item"));
        canvas.element(
            (cx + node, cy + node),
            format_args!(
                "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{node:.1}\" fill=\"{PAPER}\" stroke=\"{}\"><title>{}</title></circle>",
                if labelled { INK } else { FAINT_INK },
                escaped(&tooltip)
            ),
        );
        let number = rank.to_string();
        if labelled {
            canvas.text(cx, cy + 3.5, LABEL_SIZE, Anchor::Middle, &number);
            let text = format!("{} \u{2192} {}", shortened(u128::from(load)), shortened(u128::from(target)));
            outside(canvas, at(rank as f64, radius + NODE + 22.0), x, &text);
        } else if rank % every == 0 && rank + every <= procs {
            outside(canvas, at(rank as f64, radius + node + 12.0), x, &number);
        }
    }
    let said = if labelled {
        "in the circle: the process; outside: its items now and then"
    } else {
        "process numbers outside; everything else in tooltips"
    };
    canvas.faint_text(x, middle + 3.5, LABEL_SIZE, Anchor::Middle, &fitting(said, radius));
    middle + radius + 74.0
}

/// What fits into the ring.
fn fitting(text: &str, radius: f64) -> String {
    let wide = width_of(text, LABEL_SIZE);
    if wide < 2.0 * radius - 3.0 * NODE - 40.0 { text.to_string() } else { String::new() }
}

/// A label outside of the ring: it grows away from it.
fn outside(canvas: &mut Canvas, (x, y): (f64, f64), middle: f64, text: &str) {
    let anchor = match x - middle {
        off if off > 30.0 => Anchor::Start,
        off if off < -30.0 => Anchor::End,
        _ => Anchor::Middle,
    };
    let x = match anchor {
        Anchor::Start => x - 10.0,
        Anchor::End => x + 10.0,
        Anchor::Middle => x,
    };
    canvas.faint_text(x, y + 3.5, LABEL_SIZE, anchor, text);
}

fn chart(canvas: &mut Canvas, y: f64, words: &RingWords<'_>, problem: &RingProblem, solution: &Solution) {
    let procs = problem.procs() as u64;
    let transfers = solution.program().transfers();
    let unit = words.denominator.max(1) as f64;
    let makespan = solution.makespan() as f64 / unit;
    if transfers.is_empty() {
        canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, "Nothing has to move");
        return;
    }
    canvas.text(
        MARGIN,
        y,
        TEXT_SIZE,
        Anchor::Start,
        "When each process sends, and to whom; grey is idle time",
    );
    let in_all: u64 = transfers.iter().map(|transfer| transfer.items).sum();
    let item_by_item = in_all <= MAX_ITEMS;
    let mut rows = Vec::new();
    for transfer in transfers {
        bars_of(&mut rows, transfer, problem, procs, unit, item_by_item);
    }
    let names: BTreeMap<u64, String> = (0..procs).map(|rank| (rank, rank.to_string())).collect();
    let step = crate::scale::round_step(makespan, 4.0);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let ticks: Vec<(f64, String)> = (0..=(makespan / step * (1.0 + 1e-12)) as u64)
        .map(|number| (number as f64 * step, format!("{:.decimals$}", number as f64 * step)))
        .collect();
    bars::draw(canvas, (MARGIN, y + 8.0), WIDTH, &names, &rows, &ticks, makespan);
}

/// The bars of a transfer: one for each item, with a pause between them if the process has time, or one for all.
fn bars_of(
    bars: &mut Vec<Bar>,
    transfer: &Transfer,
    problem: &RingProblem,
    procs: u64,
    unit: f64,
    item_by_item: bool,
) {
    let cost = problem.cost(transfer.from as usize, transfer.side);
    let to = transfer.to(procs);
    let tooltip = format!(
        "process {} to process {to}: {} from {} to {}",
        transfer.from,
        counted(transfer.items, "item"),
        transfer.start as f64 / unit,
        transfer.end as f64 / unit
    );
    let mut bar = |start: u64, end: u64| {
        bars.push(Bar {
            row: transfer.from,
            start: start as f64 / unit,
            end: end as f64 / unit,
            fill: fill_of(transfer.side),
            label: to.to_string(),
            tooltip: tooltip.clone(),
        });
    };
    if !item_by_item {
        return bar(transfer.start, transfer.end);
    }
    let spread = u128::from((transfer.end - transfer.start).saturating_sub(cost));
    for item in 0..transfer.items {
        let pause = u128::from(item) * spread / u128::from((transfer.items - 1).max(1));
        let start = transfer.start + pause as u64;
        bar(start, start + cost);
    }
}
