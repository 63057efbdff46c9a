//! Into which boxes an array is cut where memory does not hold it: as few as possible, and so that files are read and written in long runs.

use reshard::{Layout, MemoryOrder};
use std::ops::Range;

/// The boxes of an array, all of the same extents but for the last ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxes {
    shape: Vec<u64>,
    extents: Vec<u64>,
    /// Dimensions from the slowest to the fastest: boxes follow each other in this order.
    slow_first: Vec<usize>,
}

/// One of the files' sides, in the dimensions of the destination.
#[derive(Clone, Debug)]
pub struct Files {
    /// Dimensions from the slowest to the fastest.
    pub slow_first: Vec<usize>,
    /// Processes among which runs are divided along each dimension.
    pub processes: Vec<u64>,
    /// Boxes best begin at multiples of this, in each dimension.
    pub period: Vec<u64>,
}

impl Files {
    /// The files of a layout. Dimension `d` of the destination is dimension `axes[d]` of it, if they are given.
    pub fn of(layout: &Layout, axes: Option<&[usize]>) -> Self {
        let distribution = layout.distribution();
        let dims = distribution.dims();
        let lands =
            |dim: usize| axes.and_then(|axes| axes.iter().position(|&axis| axis == dim)).unwrap_or(dim);
        let slow_first = Self::slow_first(dims, layout.order()).into_iter().map(lands).collect();
        let mut files = Self { slow_first, processes: vec![1; dims], period: vec![1; dims] };
        for (dim, axis) in distribution.axes().iter().enumerate() {
            // Copies of a replicated dimension divide nothing.
            files.processes[lands(dim)] = axis.procs() / axis.copies();
            files.period[lands(dim)] = match axis.cyclic_parameters() {
                Some((block, _)) if axis.procs() > 1 => block.saturating_mul(axis.procs()),
                _ => 1,
            };
        }
        files
    }

    /// An array of this shape in one piece.
    pub fn of_one(shape: &[u64], order: MemoryOrder) -> Self {
        let dims = shape.len();
        Self { slow_first: Self::slow_first(dims, order), processes: vec![1; dims], period: vec![1; dims] }
    }

    /// The dimensions of parts in an order, from the slowest to the fastest.
    fn slow_first(dims: usize, order: MemoryOrder) -> Vec<usize> {
        match order {
            MemoryOrder::RowMajor => (0..dims).collect(),
            MemoryOrder::ColMajor => (0..dims).rev().collect(),
        }
    }

    /// How many runs all boxes have in these files, about.
    fn runs(&self, shape: &[u64], extents: &[u64]) -> u128 {
        let all: u128 = shape.iter().map(|&length| u128::from(length)).product();
        let mut run = 1_u128;
        for &dim in self.slow_first.iter().rev() {
            run *= u128::from((extents[dim] / self.processes[dim].max(1)).max(1));
            if extents[dim] < shape[dim] {
                break;
            }
        }
        all / run.max(1)
    }
}

impl Boxes {
    /// Boxes of at most `budget` bytes, if a single element has no more.
    pub fn new(shape: &[u64], elem: u64, budget: u64, from: &Files, to: &Files) -> Self {
        if shape.contains(&0) {
            // There are none: all lengths may be as large as they like.
            return Self {
                shape: shape.to_vec(),
                extents: shape.to_vec(),
                slow_first: to.slow_first.clone(),
            };
        }
        let most = (budget / elem.max(1)).max(1);
        let cut = |order: &[usize]| {
            let mut extents = shape.to_vec();
            for &dim in order {
                let rest: u128 = (0..shape.len())
                    .filter(|&other| other != dim)
                    .map(|other| u128::from(extents[other]))
                    .product();
                if rest * u128::from(extents[dim]) <= u128::from(most) {
                    break;
                }
                let fits = u64::try_from(u128::from(most) / rest.max(1)).unwrap_or(u64::MAX).max(1);
                extents[dim] = aligned(fits.min(extents[dim]), from.period[dim], to.period[dim]);
            }
            extents
        };
        let mut candidates = vec![cut(&to.slow_first), cut(&from.slow_first)];
        if let (Some(&slow), Some(&other)) = (to.slow_first.first(), from.slow_first.first())
            && slow != other
        {
            // Both sides have runs of about the same length.
            let rest: u128 = (0..shape.len())
                .filter(|dim| ![slow, other].contains(dim))
                .map(|dim| u128::from(shape[dim]))
                .product();
            let plane = u64::try_from(u128::from(most) / rest.max(1)).unwrap_or(u64::MAX);
            let side = plane.isqrt().max(1);
            let mut extents = shape.to_vec();
            extents[other] = aligned(side.min(shape[other]), from.period[other], to.period[other]);
            let fits = (plane / extents[other].max(1)).max(1);
            extents[slow] = aligned(fits.min(shape[slow]), from.period[slow], to.period[slow]);
            candidates.push(extents);
        }
        let runs = |extents: &Vec<u64>| from.runs(shape, extents) + to.runs(shape, extents);
        let fits = |extents: &Vec<u64>| {
            extents.iter().map(|&length| u128::from(length)).product::<u128>() <= u128::from(most)
        };
        let best = candidates.into_iter().filter(fits).min_by_key(runs);
        let extents = best.unwrap_or_else(|| vec![1; shape.len()]);
        Self { shape: shape.to_vec(), extents, slow_first: to.slow_first.clone() }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        if self.shape.contains(&0) { 0 } else { self.counts().iter().product() }
    }

    fn counts(&self) -> Vec<u64> {
        self.shape
            .iter()
            .zip(&self.extents)
            .map(|(length, extent)| length.div_ceil((*extent).max(1)))
            .collect()
    }

    /// True if boxes follow each other so that files with these dimensions, from the slowest on, are passed through from the first byte to the
    /// last.
    pub fn are_in_order(&self, slow_first: &[usize]) -> bool {
        slow_first.iter().skip(1).all(|&dim| self.extents[dim] >= self.shape[dim])
    }

    /// The extents of a whole box.
    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// The box of a number, a range for each dimension.
    pub fn region(&self, number: u64) -> Vec<Range<u64>> {
        let (counts, mut rest) = (self.counts(), number);
        let mut region = vec![0..0; self.shape.len()];
        for &dim in self.slow_first.iter().rev() {
            let start = rest % counts[dim].max(1) * self.extents[dim];
            rest /= counts[dim].max(1);
            region[dim] = start..(start + self.extents[dim]).min(self.shape[dim]);
        }
        region
    }
}

/// A little less, so that boxes begin where blocks do, if that is possible.
fn aligned(extent: u64, one: u64, other: u64) -> u64 {
    let both = (one.max(1) / gcd(one.max(1), other.max(1))).saturating_mul(other.max(1));
    let fitting =
        [both, one.max(other), one.min(other)].into_iter().find(|&period| (1..=extent).contains(&period));
    fitting.map_or(extent, |period| extent - extent % period)
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use reshard_testkit::Random;

    fn files(slow_first: &[usize], period: &[u64]) -> Files {
        Files {
            slow_first: slow_first.to_vec(),
            processes: vec![1; slow_first.len()],
            period: period.to_vec(),
        }
    }

    #[test]
    fn each_element_is_in_one_box_and_boxes_fit() {
        let mut random = Random::new(5);
        for _ in 0..2000 {
            let dims = random.within(0, 3) as usize;
            let shape: Vec<u64> = (0..dims).map(|_| random.within(0, 9)).collect();
            let order = |random: &mut Random| {
                let order = [MemoryOrder::RowMajor, MemoryOrder::ColMajor][random.within(0, 1) as usize];
                Files::slow_first(dims, order)
            };
            let side = |random: &mut Random| {
                let period: Vec<u64> = (0..dims).map(|_| random.within(1, 4)).collect();
                files(&order(random), &period)
            };
            let (from, to) = (side(&mut random), side(&mut random));
            let budget = random.within(8, 400);
            let boxes = Boxes::new(&shape, 8, budget, &from, &to);
            let mut seen = std::collections::HashMap::new();
            for number in 0..boxes.count() {
                let region = boxes.region(number);
                let elems: u64 = region.iter().map(|range| range.end - range.start).product();
                assert!(8 * elems <= budget, "{boxes:?} {budget}");
                for place in 0..elems {
                    let mut rest = place;
                    let index: Vec<u64> = region
                        .iter()
                        .map(|range| {
                            let length = range.end - range.start;
                            let at = range.start + rest % length;
                            rest /= length;
                            at
                        })
                        .collect();
                    *seen.entry(index).or_insert(0) += 1;
                }
            }
            assert_eq!(seen.len() as u64, shape.iter().product::<u64>(), "{boxes:?}");
            assert!(seen.values().all(|&count| count == 1));
        }
    }

    #[test]
    fn files_of_one_order_are_cut_along_their_slow_dimension() {
        let side = files(&[0, 1], &[100, 100]);
        let boxes = Boxes::new(&[10_000, 4000], 8, 128 << 20, &side, &side);
        assert_eq!(boxes.extents(), [4100, 4000]);
    }

    #[test]
    fn files_of_two_orders_are_cut_into_squares() {
        let (rows, columns) = (files(&[0, 1], &[1, 1]), files(&[1, 0], &[1, 1]));
        let boxes = Boxes::new(&[1 << 20, 1 << 20], 8, 128 << 20, &rows, &columns);
        assert_eq!(boxes.extents(), [4096, 4096]);
    }
}
