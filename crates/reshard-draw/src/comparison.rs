//! Strategies beside each other: how long each takes, and what none can beat.

use crate::bars::{self, Bar};
use crate::canvas::{Anchor, Canvas, MARGIN, TEXT_SIZE};
use crate::palette::Fill;
use crate::pictures::{WIDTH, head};
use crate::scale::{time, time_ticks};
use std::collections::BTreeMap;

/// A strategy: how many seconds it takes in how many steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its steps.
    pub steps: u64,
    /// The seconds from the first start to the last end.
    pub makespan: f64,
}

/// Draws how long each strategy takes, the fastest first. `bound` is the time that no strategy can beat, `refused` names those that do not
/// apply.
pub fn comparison(
    title: &str,
    about: &str,
    strategies: &[Strategy<'_>],
    bound: f64,
    refused: &[&str],
) -> String {
    let mut canvas = Canvas::default();
    let mut y = head(&mut canvas, title, about);
    let mut order: Vec<&Strategy<'_>> = strategies.iter().collect();
    order.sort_by(|a, b| a.makespan.total_cmp(&b.makespan));
    let caption = format!("Time of each strategy; the busiest rank needs {} in any", time(bound));
    canvas.text(MARGIN, y, TEXT_SIZE, Anchor::Start, &caption);
    y += 8.0;
    let names: BTreeMap<u64, String> =
        (0..).zip(&order).map(|(row, one)| (row, one.name.to_string())).collect();
    let bars: Vec<Bar> = (0..)
        .zip(&order)
        .map(|(row, one)| Bar {
            row,
            start: 0.0,
            end: one.makespan,
            fill: Fill::of(0),
            label: time(one.makespan),
            tooltip: format!("{}: {} in {} steps", one.name, time(one.makespan), one.steps),
        })
        .collect();
    let most = order.last().map_or(0.0, |one| one.makespan);
    if most > 0.0 {
        y += bars::draw(&mut canvas, (MARGIN, y), WIDTH, &names, &bars, &time_ticks(most), most) + 10.0;
    }
    if !refused.is_empty() {
        let text = format!("Not applicable here: {}", refused.join(", "));
        canvas.paragraph(MARGIN, y + TEXT_SIZE, TEXT_SIZE, WIDTH, &text);
    }
    canvas.finish(title)
}
