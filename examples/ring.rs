//! Loads balanced along a ring: each process passes items to its neighbours, in the least time.

use reshard_ring::{RingProblem, even_out, solve};

fn main() -> reshard::Result<()> {
    let ring = RingProblem::between_gen_blocks(&[5, 0, 1], &[2, 2, 2])?; // slices stay in order
    println!("takes {} time units", solve(&ring)?.makespan());
    let mut columns = [vec![1, 2, 3, 4, 5], vec![], vec![6]]; // items of one number
    even_out(ring, 1, &mut columns)?;
    assert_eq!(columns, [[1, 2], [3, 4], [5, 6]]);
    Ok(())
}
