//! Strides of all ranks' parts. Each rank is given those of its own parts only; where ranks access each other's memory they
//! exchange them.

use crate::agree::agree_on_result;
use crate::communicator::Communicator;
use reshard_plan::{Layout, MAX_DIMS, Move, Plan, Result, Window};
use std::sync::Arc;
use std::time::Duration;

/// Strides exchanged for each side of each array: one for each dimension; zeros if the rank has no part there.
const STRIDES_PER_SIDE: usize = MAX_DIMS;

/// Returns the plan with the strides that each rank has given for its own parts; the same plan if no rank's differ from
/// what this one assumed. Collective.
pub fn of_all_ranks(plan: &Arc<Plan>, comm: &Communicator, limit: Option<Duration>) -> Result<Arc<Plan>> {
    let rank = comm.rank() as u64;
    let mut mine: Vec<u8> = Vec::new();
    for array in plan.arrays() {
        for layout in [array.wanted().from(), array.wanted().to()] {
            let mut numbers = [0_u64; STRIDES_PER_SIDE];
            let strides = own_strides(layout, rank);
            strides.iter().zip(&mut numbers).for_each(|(stride, number)| *number = *stride);
            mine.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        }
    }
    let all = comm.gather(&mine, limit)?;
    let strides_of = |rank: u64, side: usize, dims: usize| -> Vec<u64> {
        let at = rank as usize * mine.len() + side * STRIDES_PER_SIDE * 8;
        let numbers = all[at..at + dims * 8].chunks_exact(8);
        numbers.map(|eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default())).collect()
    };
    let mut changed = false;
    let mut with_strides = |layout: &Layout, side: usize| -> Result<Layout> {
        let grid = layout.distribution().grid();
        let dims = layout.distribution().dims();
        grid.sorted_ranks().into_iter().try_fold(layout.clone(), |layout, rank| {
            let strides = strides_of(rank, side, dims);
            if strides == own_strides(&layout, rank) {
                return Ok(layout);
            }
            changed = true;
            layout.with_strides_of(rank, &strides)
        })
    };
    let mut moved = |number: usize, wanted: &Move| -> Result<Move> {
        let (from, to) =
            (with_strides(wanted.from(), 2 * number)?, with_strides(wanted.to(), 2 * number + 1)?);
        let problem = wanted.problem();
        let window = Window::of(problem.shape()).from(problem.from_offset()).to(problem.to_offset());
        let moved = Move::windowed::<f64>(from, to, window.permuted(problem.axes()))?
            .of_bytes(wanted.elem_bytes())?;
        wanted.triangle().map_or(Ok(moved.clone()), |triangle| moved.only(triangle))
    };
    let moves: Result<Vec<Move>> =
        plan.arrays().iter().enumerate().map(|(number, array)| moved(number, array.wanted())).collect();
    let replanned = moves.and_then(|moves| match changed {
        true => Plan::new(moves).map(Arc::new),
        false => Ok(Arc::clone(plan)),
    });
    agree_on_result("strides", replanned, comm, limit)
}

/// The strides of a rank's part, as this rank knows them; empty if it has no part.
fn own_strides(layout: &Layout, rank: u64) -> Vec<u64> {
    layout.strides(rank).unwrap_or_default()
}
