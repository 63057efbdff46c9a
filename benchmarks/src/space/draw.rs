//! Random layouts: one to four dimensions, any blocks, any orders of axes, equal for equal seeds.

use crate::machine::Failure;
use reshard_plan::notation::parse_pattern;
use reshard_plan::{Layout, MemoryOrder, Move, Window};
use reshard_testkit::Random;
use serde::Serialize;
use std::collections::BTreeSet;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Destination lines that are looked at to count the source lines of a layout.
const SAMPLED_LINES: u64 = 512;

/// A drawn redistribution.
#[derive(Clone, Serialize)]
pub struct Drawn {
    pub shape: Vec<u64>,
    pub from: String,
    pub to: String,
    /// The source axis that each destination axis takes.
    pub axes: Vec<usize>,
    /// The source is row-major and the destination column-major; else both are column-major.
    pub from_row_major: bool,
}

impl Drawn {
    /// Draws a redistribution of about so many elements between grids of at most so many ranks.
    pub fn new(random: &mut Random, elems: f64, ranks: u64) -> Self {
        let dims = [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4][random.within(0, 11) as usize];
        let side = elems.powf(1.0 / dims as f64);
        let mut length = || ((side * (0.7 + 0.7 * fraction(random))).round() as u64).max(2);
        let shape: Vec<u64> = (0..dims).map(|_| length()).collect();
        let mut axes: Vec<usize> = (0..dims).collect();
        if dims > 1 && fraction(random) < 0.35 {
            shuffle(random, &mut axes);
        }
        let from_grid = grid(random, ranks, dims);
        let from = words(random, &shape, &from_grid);
        let to_grid = grid(random, ranks, dims);
        let to_shape: Vec<u64> = axes.iter().map(|&axis| shape[axis]).collect();
        let to = words(random, &to_shape, &to_grid);
        let from_row_major = axes.is_sorted() && dims > 1 && fraction(random) < 0.2;
        Self { shape, from, to, axes, from_row_major }
    }

    /// True if elements are in the same order of axes in the memory of both sides.
    pub fn is_same_order(&self) -> bool {
        self.axes.is_sorted() && !self.from_row_major
    }

    /// The flags of `reshard run` and `reshard bench` that repeat it.
    pub fn flags(&self, kind: &str) -> Vec<String> {
        let joined = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let mut flags = vec!["--shape".into(), joined(&self.shape), "--from".into(), self.from.clone()];
        flags.extend(["--to".into(), self.to.clone(), "--type".into(), kind.into()]);
        if !self.axes.is_sorted() {
            let axes: Vec<String> = self.axes.iter().map(usize::to_string).collect();
            flags.extend(["--permute".into(), axes.join(",")]);
        }
        if self.from_row_major {
            flags.extend(["--order", "row", "--to-order", "col"].map(String::from));
        }
        flags
    }

    /// The number of different source cache lines that the bytes of a destination cache line come from, on average over a
    /// sample. Every part begins at a line.
    pub fn source_lines(&self, elem_bytes: u64) -> Result<f64, Failure> {
        let moving = self.moving(elem_bytes)?;
        let (from, to) = (moving.from(), moving.to());
        let ranks = to.distribution().grid().sorted_ranks();
        let spans = ranks.iter().map(|&rank| to.span(rank)).collect::<Result<Vec<u64>, _>>()?;
        let all: u64 = spans.iter().sum();
        let mut random = Random::new(all);
        let (mut lines, mut found) = (0, 0);
        for _ in 0..SAMPLED_LINES {
            // Parts in proportion to their length.
            let mut elem = random.within(0, all - 1);
            let part = spans.iter().position(|&span| {
                let here = elem < span;
                elem -= if here { 0 } else { span };
                here
            });
            let part = part.ok_or("an element of no part")?;
            let line = elem * elem_bytes / LINE;
            // Elements that begin in the line.
            let first = (line * LINE).div_ceil(elem_bytes);
            let end = ((line + 1) * LINE).div_ceil(elem_bytes).min(spans[part]);
            let shape = to.distribution().local_shape(ranks[part])?;
            let mut sources = BTreeSet::new();
            for at in first..end {
                // Destinations are column-major, without gaps.
                let mut rest = at;
                let next = |&len: &u64| {
                    let index = rest % len;
                    rest /= len;
                    index
                };
                let local: Vec<u64> = shape.iter().map(next).collect();
                let global = to.distribution().global_from_local(ranks[part], &local)?;
                let mut source = vec![0; global.len()];
                self.axes.iter().zip(&global).for_each(|(&axis, &index)| source[axis] = index);
                let (rank, address) = from.locate(&source)?;
                let bytes = address * elem_bytes;
                sources.extend((bytes / LINE..=(bytes + elem_bytes - 1) / LINE).map(|line| (rank, line)));
            }
            if first < end {
                (lines, found) = (lines + 1, found + sources.len());
            }
        }
        Ok(found as f64 / f64::from(lines))
    }

    fn moving(&self, elem_bytes: u64) -> Result<Move, Failure> {
        let layout = |text: &str, shape: &[u64], order: MemoryOrder| -> Result<Layout, Failure> {
            Ok(Layout::new(parse_pattern(text)?.0.over(shape)?, order))
        };
        let order = if self.from_row_major { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor };
        let to_shape: Vec<u64> = self.axes.iter().map(|&axis| self.shape[axis]).collect();
        let from = layout(&self.from, &self.shape, order)?;
        let to = layout(&self.to, &to_shape, MemoryOrder::ColMajor)?;
        let window = Window::of(&self.shape).permuted(&self.axes);
        Ok(Move::windowed::<f64>(from, to, window)?.of_bytes(elem_bytes)?)
    }
}

/// A number from 0 to 1.
fn fraction(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

fn shuffle<T>(random: &mut Random, list: &mut [T]) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.within(0, last as u64) as usize);
    }
}

/// The extents of a grid of all ranks, all but one, or half of them.
fn grid(random: &mut Random, ranks: u64, dims: usize) -> Vec<u64> {
    let mut left = [ranks, ranks, ranks - 1, ranks / 2][random.within(0, 3) as usize].max(1);
    let mut extents = Vec::new();
    for _ in 1..dims {
        let divisors: Vec<u64> = (1..=left).filter(|&extent| left.is_multiple_of(extent)).collect();
        let extent = divisors[random.within(0, divisors.len() as u64 - 1) as usize];
        extents.push(extent);
        left /= extent;
    }
    extents.push(left);
    shuffle(random, &mut extents);
    extents
}

/// A layout in words: an axis of one process is sometimes not distributed, most are cyclic with blocks of 1 to 511 whose
/// logarithm is uniform, others block or gen_block.
fn words(random: &mut Random, shape: &[u64], extents: &[u64]) -> String {
    let mut axes = Vec::new();
    for (&len, &extent) in shape.iter().zip(extents) {
        let kind = fraction(random);
        axes.push(match kind {
            kind if extent == 1 && kind < 0.3 => "*".to_string(),
            kind if kind < 0.7 => {
                let block = (9.0 * fraction(random)).exp2() as u64;
                format!("cyclic({})", block.min(len))
            }
            kind if kind < 0.9 => "block".to_string(),
            _ => {
                let mut cuts: Vec<u64> = (1..extent).map(|_| random.within(0, len)).chain([0, len]).collect();
                cuts.sort_unstable();
                let sizes: Vec<String> =
                    cuts.windows(2).map(|pair| (pair[1] - pair[0]).to_string()).collect();
                format!("gen_block({})", sizes.join(","))
            }
        });
    }
    let extents: Vec<String> = extents.iter().map(u64::to_string).collect();
    format!("({}) on {}", axes.join(", "), extents.join("x"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn drawn(shape: &[u64], from: &str, to: &str, axes: &[usize], from_row_major: bool) -> Drawn {
        let (from, to) = (from.to_string(), to.to_string());
        Drawn { shape: shape.to_vec(), from, to, axes: axes.to_vec(), from_row_major }
    }

    #[test]
    fn source_lines_are_counted() {
        // A copy; every second double; a transpose, whose lines take one element of each of eight columns.
        let copy = drawn(&[4096], "(block) on 1", "(block) on 1", &[0], false);
        assert_eq!(copy.source_lines(8).unwrap(), 1.0);
        let halves = drawn(&[4096], "(block) on 1", "(cyclic(1)) on 2", &[0], false);
        assert_eq!((halves.source_lines(8).unwrap(), halves.source_lines(1).unwrap()), (2.0, 2.0));
        let joined = drawn(&[4096], "(cyclic(1)) on 2", "(block) on 1", &[0], false);
        assert_eq!(joined.source_lines(4).unwrap(), 2.0);
        let turned = drawn(&[64, 64], "(*, *) on 1x1", "(*, *) on 1x1", &[1, 0], false);
        assert_eq!((turned.source_lines(8).unwrap(), turned.source_lines(16).unwrap()), (8.0, 4.0));
        let rows = drawn(&[64, 64], "(*, *) on 1x1", "(*, *) on 1x1", &[0, 1], true);
        assert_eq!((rows.source_lines(8).unwrap(), rows.is_same_order()), (8.0, false));
    }

    #[test]
    fn draws_are_layouts_and_equal_for_equal_seeds() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..200).map(|_| Drawn::new(&mut random, 30_000.0, 16)).collect::<Vec<_>>()
        };
        let flags = |drawn: &[Drawn]| drawn.iter().map(|drawn| drawn.flags("f32")).collect::<Vec<_>>();
        assert_eq!(flags(&draw(1)), flags(&draw(1)));
        assert_ne!(flags(&draw(1)), flags(&draw(2)));
        for one in draw(3) {
            let elems = one.shape.iter().product::<u64>() as f64;
            assert!((30_000.0 * 0.2..30_000.0 * 4.0).contains(&elems), "{:?}", one.shape);
            let lines = one.source_lines(4).unwrap();
            assert!((1.0..=17.0).contains(&lines), "{lines}: {:?}", one.flags("f32"));
        }
    }
}
