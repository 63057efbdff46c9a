//! The order in which a route loops over the axes.

use reshard_plan::{Array, MemoryOrder, Target};

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

/// Returns the axes from the slowest to the fastest of a message: by the destination's storage order, but the axis that is fast in
/// the source comes right before the last. Packed in this order, a transpose reads whole lines of the source, and what it writes is
/// contiguous; unpacking moves rows. Depends only on what all ranks agree on.
pub fn by_message(array: &Array) -> Vec<usize> {
    let mut order = by_storage(array, array.order());
    let across = order.iter().position(|&dim| Some(dim) == fast_in_source(array));
    if let Some(across) = across.filter(|across| across + 2 < order.len()) {
        let moved = order.remove(across);
        order.insert(order.len() - 1, moved);
    }
    order
}

/// Returns the axis of the destination that is fast in the source.
pub fn fast_in_source(array: &Array) -> Option<usize> {
    let problem = array.wanted().problem();
    let order = by_storage(array, array.wanted().from().order());
    let fast = order.into_iter().rev().find(|&axis| problem.shape()[axis] > 1)?;
    problem.axes().iter().position(|&axis| axis == fast)
}

fn by_storage(array: &Array, order: MemoryOrder) -> Vec<usize> {
    let dims = 0..array.wanted().problem().shape().len();
    if order == MemoryOrder::RowMajor { dims.collect() } else { dims.rev().collect() }
}
