//! Elements that are known without any file: each is a function of its index, so that every element of a set can be checked, also of
//! one that was converted from another.

use crate::manifest::Made;
use reshard::{ElementType, Layout, MemoryOrder, Result};
use std::ops::Range;

/// What the elements of an array are.
pub struct Elements {
    kind: Kind,
    elem: usize,
    seed: u64,
    /// How far the number of an element moves along each dimension of this array.
    strides: Vec<u64>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Numbers of this many bytes from 0 up to 1, one after the other.
    Unit(usize),
    Bool,
    /// Any bits.
    Bits,
}

impl Elements {
    /// Of an array of this shape.
    pub fn new(made: &Made, shape: &[u64], element: ElementType) -> Self {
        let kind = match &element.to_string()[..] {
            "f64" | "c128" => Kind::Unit(8),
            "f32" | "c64" => Kind::Unit(4),
            "bool" => Kind::Bool,
            _ => Kind::Bits,
        };
        // Numbers count along the last dimension of the array that was made first.
        let mut strides = vec![0; shape.len()];
        let mut stride = 1_u64;
        for axis in (0..shape.len()).rev() {
            if let Some(dim) = made.axes.iter().position(|&made| made == axis) {
                strides[dim] = stride;
                stride = stride.wrapping_mul(shape[dim]);
            }
        }
        Self { kind, elem: element.bytes() as usize, seed: made.seed, strides }
    }

    /// Writes the element of a number.
    fn write(&self, number: u64, into: &mut [u8]) {
        let mut state = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match self.kind {
            Kind::Unit(8) => into.chunks_exact_mut(8).for_each(|place| {
                let value = (mixed(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
                place.copy_from_slice(&value.to_le_bytes());
            }),
            Kind::Unit(_) => into.chunks_exact_mut(4).for_each(|place| {
                let value = (mixed(&mut state) >> 40) as f32 / (1_u32 << 24) as f32;
                place.copy_from_slice(&value.to_le_bytes());
            }),
            Kind::Bool => into[0] = (mixed(&mut state) & 1) as u8,
            Kind::Bits => into.chunks_mut(8).for_each(|place| {
                place.copy_from_slice(&mixed(&mut state).to_le_bytes()[..place.len()]);
            }),
        }
    }

    /// Writes a box of a rank's part, in local indices.
    pub fn fill(&self, layout: &Layout, rank: u64, local: &[Range<u64>], part: &mut [u8]) -> Result<()> {
        let distribution = layout.distribution();
        let coords = distribution.coords(rank)?;
        let mut dims: Vec<usize> = (0..local.len()).collect();
        if layout.order() == MemoryOrder::RowMajor {
            dims.reverse();
        }
        // How far the number moves from the start of the array to each element, along each dimension.
        let offsets: Vec<Vec<u64>> = dims
            .iter()
            .map(|&dim| {
                let global = local[dim]
                    .clone()
                    .filter_map(|index| distribution.axes()[dim].global_from_local(coords[dim], index));
                global.map(|global| global.wrapping_mul(self.strides[dim])).collect()
            })
            .collect();
        let (fast, slow) = match offsets.split_first() {
            Some((fast, slow)) => (&fast[..], slow),
            None => (&[0][..], &[][..]),
        };
        let rows = part.chunks_exact_mut((fast.len() * self.elem).max(1));
        for (number, row) in rows.enumerate() {
            let mut rest = number;
            let base = slow.iter().fold(0_u64, |sum, offsets| {
                let index = rest % offsets.len();
                rest /= offsets.len();
                sum.wrapping_add(offsets[index])
            });
            for (place, offset) in row.chunks_exact_mut(self.elem).zip(fast) {
                self.write(base.wrapping_add(*offset), place);
            }
        }
        Ok(())
    }
}

/// The next of a sequence (splitmix64).
fn mixed(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_has_the_same_elements() {
        let made = Made { seed: 7, axes: vec![0, 1, 2] };
        let shape = [5, 6, 7];
        for element in ["f64", "f32", "c64", "u16", "bool", "bytes(11)"] {
            let element: ElementType = element.parse().unwrap();
            let elem = element.bytes() as usize;
            let elements = Elements::new(&made, &shape, element);
            let whole: Layout = "1x1x1/5x6x7 of 5x6x7 memory=row".parse().unwrap();
            let mut all = vec![0; 210 * elem];
            elements.fill(&whole, 0, &[0..5, 0..6, 0..7], &mut all).unwrap();
            for text in ["2x1x3/2x3x1 of 5x6x7", "2x2x2/1x4x3 of 5x6x7 memory=row"] {
                let layout: Layout = text.parse().unwrap();
                for rank in 0..layout.distribution().grid().size() {
                    let shape = layout.distribution().local_shape(rank).unwrap();
                    let local: Vec<Range<u64>> = shape.iter().map(|&length| 0..length).collect();
                    let mut part = vec![0; layout.span(rank).unwrap() as usize * elem];
                    elements.fill(&layout, rank, &local, &mut part).unwrap();
                    for number in 0..shape.iter().product::<u64>() {
                        let index =
                            [number / (shape[1] * shape[2]), number / shape[2] % shape[1], number % shape[2]];
                        let global = layout.distribution().global_from_local(rank, &index).unwrap();
                        let here = layout.address(rank, &index).unwrap() as usize;
                        let there = ((global[0] * 6 + global[1]) * 7 + global[2]) as usize;
                        assert_eq!(
                            part[here * elem..][..elem],
                            all[there * elem..][..elem],
                            "{text} {global:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_transpose_has_them_at_their_new_places() {
        let element: ElementType = "u32".parse().unwrap();
        let (one, other) = (Made { seed: 1, axes: vec![0, 1] }, Made { seed: 1, axes: vec![1, 0] });
        let (rows, columns): (Layout, Layout) =
            ("1x1/9x9 of 3x4 memory=row".parse().unwrap(), "1x1/9x9 of 4x3 memory=row".parse().unwrap());
        let (mut here, mut there) = (vec![0; 48], vec![0; 48]);
        Elements::new(&one, &[3, 4], element).fill(&rows, 0, &[0..3, 0..4], &mut here).unwrap();
        Elements::new(&other, &[4, 3], element).fill(&columns, 0, &[0..4, 0..3], &mut there).unwrap();
        for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
            assert_eq!(here[4 * (4 * row + column)..][..4], there[4 * (3 * column + row)..][..4]);
        }
    }
}
