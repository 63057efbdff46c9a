//! Whether two destinations have memory in common. Parts may interleave, as blocks of one matrix do: what counts is their elements.

use crate::arrays::RunArray;
use crate::border::{Failure, Outcome};
use reshard::{ErrorKind, Plan};

/// The most steps along axes that a comparison of two parts tries; parts that need more are refused as if they overlapped.
const MAX_LOOKS: u32 = 1 << 16;

/// A destination in memory.
#[derive(Clone, Copy)]
struct Placed {
    /// The address of its first byte, and of the one after its last.
    begin: u64,
    end: u64,
    array: usize,
    target: usize,
}

/// Fails if two destinations of a run have an element in common: the later copy would win. `only` is the rank of this process, if each is one.
pub fn check_apart(arrays: &[RunArray], plan: &Plan, only: Option<u64>) -> Outcome<()> {
    let mut all = Vec::new();
    for (number, (array, planned)) in arrays.iter().zip(plan.arrays()).enumerate() {
        let targets = planned.targets().iter().enumerate();
        let mine = targets.filter(|(_, target)| only.is_none_or(|rank| rank == target.rank));
        for ((index, target), &begin) in mine.zip(&array.to_addresses) {
            let bytes = target.span.saturating_mul(planned.wanted().elem_bytes());
            let end = begin.saturating_add(bytes);
            if begin != 0 && begin < end {
                all.push(Placed { begin, end, array: number, target: index });
            }
        }
    }
    all.sort_unstable_by_key(|placed| (placed.begin, placed.end));
    for (at, one) in all.iter().enumerate() {
        for other in all[at + 1..].iter().take_while(|other| other.begin < one.end) {
            if share(&Strided::of(one, plan)?, &Strided::of(other, plan)?) {
                let rank = |placed: &Placed| plan.arrays()[placed.array].targets()[placed.target].rank;
                let (one, other) = match (one.array, one.target) < (other.array, other.target) {
                    true => (one, other),
                    false => (other, one),
                };
                return Err(Failure::of(
                    ErrorKind::Mismatch,
                    format!(
                        "the destination part of rank {} of array {} and that of rank {} of array {} have memory in common; give each memory of \
                         its own",
                        rank(one),
                        one.array,
                        rank(other),
                        other.array
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Elements at regular distances.
struct Strided {
    first: u64,
    elem_bytes: u64,
    /// For each axis, how many there are, and the bytes from one to the next.
    axes: Vec<(u64, u64)>,
}

impl Strided {
    fn of(placed: &Placed, plan: &Plan) -> Outcome<Self> {
        let planned = &plan.arrays()[placed.array];
        let (layout, rank) = (planned.wanted().to(), planned.targets()[placed.target].rank);
        let elem_bytes = planned.wanted().elem_bytes();
        let bytes = layout.strides(rank)?.into_iter().map(|stride| stride.saturating_mul(elem_bytes));
        let axes = layout.distribution().local_shape(rank)?.into_iter().zip(bytes).collect();
        Ok(Self { first: placed.begin, elem_bytes, axes })
    }
}

/// The numbers of steps that two parts may be apart along one axis: all multiples of `stride` from `least` to `most` of them.
#[derive(Clone, Copy)]
struct Steps {
    stride: i128,
    least: i128,
    most: i128,
}

/// True if two parts have a byte in common, or that takes too long to find out.
fn share(one: &Strided, other: &Strided) -> bool {
    if one.axes.iter().chain(&other.axes).any(|axis| axis.0 == 0) {
        return false;
    }
    let mut steps: Vec<Steps> = Vec::new();
    for (axes, sign) in [(&one.axes, 1), (&other.axes, -1)] {
        for &(count, stride) in axes.iter().filter(|axis| axis.1 > 0) {
            let reach = sign * (i128::from(count) - 1);
            let (least, most, stride) = (reach.min(0), reach.max(0), i128::from(stride));
            // Steps of one length along both parts are steps from the one to the other.
            match steps.iter_mut().find(|steps| steps.stride == stride) {
                Some(steps) => (steps.least, steps.most) = (steps.least + least, steps.most + most),
                None => steps.push(Steps { stride, least, most }),
            }
        }
    }
    steps.sort_unstable_by_key(|steps| -steps.stride);
    let apart = i128::from(one.first) - i128::from(other.first);
    let near = (1 - i128::from(one.elem_bytes), i128::from(other.elem_bytes) - 1);
    let mut looks = MAX_LOOKS;
    reaches(&steps, apart, near, &mut looks)
}

/// True if some numbers of steps bring a distance into a range, or there are no looks left.
fn reaches(steps: &[Steps], apart: i128, near: (i128, i128), looks: &mut u32) -> bool {
    let Some((first, rest)) = steps.split_first() else { return near.0 <= apart && apart <= near.1 };
    let reach = |end: fn(&Steps) -> i128| rest.iter().map(|steps| steps.stride * end(steps)).sum::<i128>();
    let (back, forth) = (reach(|steps| steps.least), reach(|steps| steps.most));
    // The others cannot make up for more.
    let least = -(apart + forth - near.0).div_euclid(first.stride);
    let most = (near.1 - back - apart).div_euclid(first.stride);
    let mut number = least.max(first.least);
    while number <= most.min(first.most) {
        if *looks == 0 || reaches(rest, apart + number * first.stride, near, looks) {
            return true;
        }
        *looks = looks.saturating_sub(1);
        number += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(part: &Strided) -> Vec<u64> {
        let mut firsts = vec![part.first];
        for &(count, stride) in &part.axes {
            firsts = firsts.iter().flat_map(|first| (0..count).map(move |k| first + k * stride)).collect();
        }
        firsts.iter().flat_map(|first| (0..part.elem_bytes).map(move |byte| first + byte)).collect()
    }

    /// Small parts of any strides, against their bytes one by one.
    #[test]
    fn parts_share_memory_exactly_if_they_have_a_byte_in_common() {
        let mut state = 7_u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let mut found = [0; 2];
        for _ in 0..20_000 {
            let elem_bytes = [1, 4, 8][below(3) as usize];
            let dims = 1 + below(3);
            let strides: Vec<u64> = (0..dims).map(|_| elem_bytes * below(12)).collect();
            let mut part = |same: bool| {
                let axes = strides.iter().map(|&stride| {
                    (below(4) + u64::from(below(9) > 0), if same { stride } else { elem_bytes * below(9) })
                });
                let axes = axes.collect();
                Strided { first: 1000 + below(60), elem_bytes, axes }
            };
            let (one, other) = (part(true), part(true));
            let other = if elem_bytes == 4 { part(false) } else { other };
            let bytes = bytes_of(&one);
            let common = bytes_of(&other).iter().any(|byte| bytes.contains(byte));
            assert_eq!(
                share(&one, &other),
                common,
                "{:?} {:?} and {:?} {:?}",
                one.first,
                one.axes,
                other.first,
                other.axes
            );
            found[usize::from(common)] += 1;
        }
        assert!(found.iter().all(|&count| count > 1000), "{found:?}");
    }

    #[test]
    fn blocks_of_a_large_matrix_are_apart() {
        // Rows interleave; the second begins where the first column of the first ends, or one element before.
        let block = |first, rows| Strided { first, elem_bytes: 8, axes: vec![(rows, 8), (1 << 20, 8 << 20)] };
        assert!(!share(&block(0, 1 << 19), &block(8 << 19, 1 << 19)));
        assert!(share(&block(0, 1 << 19), &block((8 << 19) - 8, 1 << 19)));
        assert!(share(&block(0, 1 << 19), &block((8 << 19) - 4, 1)));
    }
}
