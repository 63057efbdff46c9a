//! In which order axes are gone through.

use reshard_plan::{Order, Target};

/// The axes from the slowest to the fastest in the destination's memory.
pub fn by_stride(target: &Target) -> Vec<usize> {
    let mut order: Vec<usize> = (0..target.strides.len()).collect();
    // Axes of one position have no say; they go first.
    order.sort_by_key(|&dim| {
        let long = target.tracks[dim].elems() > 1;
        (long, std::cmp::Reverse(target.strides[dim]))
    });
    order
}

/// The axes from the slowest to the fastest as the destination's order says.
pub fn by_order(order: Order, dims: usize) -> Vec<usize> {
    match order {
        Order::RowMajor => (0..dims).collect(),
        Order::ColMajor => (0..dims).rev().collect(),
    }
}
