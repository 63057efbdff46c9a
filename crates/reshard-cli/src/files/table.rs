//! The table of `convert --dry-run`: for each tensor its whole shape, the rule that gives it a layout, its cut before and after. The same
//! tensor of several layers is one row.

use super::megabytes;
use crate::failure::Failure;
use crate::screen::Screen;
use reshard::Layout;
use reshard::distribution::Distribution;
use reshard::notation::print_shape;
use reshard_shards::{Layouts, ShardSet, name_in_layers};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;

/// One row: equal tensors, but for their layers.
#[derive(Serialize, PartialEq)]
pub struct TensorRow {
    tensor: String,
    count: u64,
    #[serde(rename = "type")]
    element: String,
    bytes: u64,
    from: Side,
    to: Side,
}

/// A tensor as source or as destination.
#[derive(Serialize, PartialEq)]
struct Side {
    shape: Vec<u64>,
    /// The pattern of names of the rule; `*` for a layout of all tensors, none where a manifest or a whole file gives the layout.
    rule: Option<String>,
    layout: String,
    copies: u64,
}

impl Side {
    fn of(distribution: &Distribution, name: &str, rules: &Layouts) -> Self {
        let shape = distribution.shape();
        let named = rules.name_pattern(name, shape.len()).ok();
        let rule = named.map(|pattern| pattern.unwrap_or("*").to_string());
        let given = rules.of(name, shape.len()).map(|(pattern, _)| pattern.to_string());
        let layout = given.unwrap_or_else(|_| distribution.pattern().to_string());
        let copies = distribution.copies();
        Self { shape, rule, layout, copies }
    }

    fn cut(&self) -> String {
        match self.copies {
            1 => self.layout.clone(),
            copies => format!("{}, {copies} copies", self.layout),
        }
    }
}

/// The rows of a conversion, `to` having a layout for each array of the source.
pub fn rows(source: &ShardSet, to: &[Layout], from_rules: &Layouts, to_rules: &Layouts) -> Vec<TensorRow> {
    let mut rows: Vec<TensorRow> = Vec::new();
    let mut of_name: HashMap<String, Vec<usize>> = HashMap::new();
    for (array, to) in source.arrays().iter().zip(to) {
        let row = TensorRow {
            tensor: array.name().to_string(),
            count: 1,
            element: array.element().to_string(),
            bytes: array.bytes(),
            from: Side::of(array.layout().distribution(), array.name(), from_rules),
            to: Side::of(to.distribution(), array.name(), to_rules),
        };
        let folded = name_in_layers(array.name());
        let numbers = of_name.entry(folded.clone()).or_default();
        let is_same = |other: &TensorRow| {
            (&other.element, &other.from, &other.to) == (&row.element, &row.from, &row.to)
        };
        match numbers.iter().find(|&&number| is_same(&rows[number])) {
            Some(&number) => {
                let first = &mut rows[number];
                (first.tensor, first.count, first.bytes) = (folded, first.count + 1, first.bytes + row.bytes);
            }
            None => {
                numbers.push(rows.len());
                rows.push(row);
            }
        }
    }
    rows
}

/// Draws the rows.
pub fn draw(screen: &mut Screen, rows: &[TensorRow]) -> Result<(), Failure> {
    let both = |before: &str, after: &str| match before == after {
        true => before.to_string(),
        false => format!("{before} to {after}"),
    };
    let rule = |side: &Side| side.rule.clone().unwrap_or_else(|| "-".into());
    let cells = |row: &TensorRow| {
        let count = if row.count > 1 { format!(" ({} layers)", row.count) } else { String::new() };
        let name: String = row.tensor.chars().flat_map(char::escape_debug).collect();
        let shape = both(&print_shape(&row.from.shape), &print_shape(&row.to.shape));
        [
            if name.is_empty() { "the array".into() } else { format!("{name}{count}") },
            format!("{} {shape}", row.element),
            both(&rule(&row.from), &rule(&row.to)),
            row.from.cut(),
            row.to.cut(),
            megabytes(row.bytes),
        ]
    };
    let head = ["tensor", "whole", "rule", "cut before", "cut after", "bytes"].map(String::from);
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for (number, line) in lines.iter().enumerate() {
        let padded = |(cell, &width): (&String, &usize)| format!("{cell:<width$}");
        let text = line.iter().zip(&widths).map(padded).collect::<Vec<_>>().join("  ");
        let text = if number == 0 { screen.faint(text.trim_end()) } else { text.trim_end().to_string() };
        writeln!(screen.out, "{text}")?;
    }
    Ok(())
}
