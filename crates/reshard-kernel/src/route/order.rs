//! The order in which a route loops over the axes.

use reshard_plan::{MemoryOrder, Target};

/// Returns the axes from the slowest to the fastest in the destination's memory.
pub fn by_stride(target: &Target) -> Vec<usize> {
    let mut order: Vec<usize> = (0..target.strides.len()).collect();
    // The strides of axes with one position do not matter; such axes go first.
    order.sort_by_key(|&dim| {
        let long = target.tracks[dim].elems() > 1;
        (long, std::cmp::Reverse(target.strides[dim]))
    });
    order
}

/// Returns the axes from the slowest to the fastest by the destination's storage order.
pub fn by_order(order: MemoryOrder, dims: usize) -> Vec<usize> {
    match order {
        MemoryOrder::RowMajor => (0..dims).collect(),
        MemoryOrder::ColMajor => (0..dims).rev().collect(),
    }
}
