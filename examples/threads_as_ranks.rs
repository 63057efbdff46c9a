//! The engine between processes without any: two groups of ranks that are threads, a producer's and a consumer's. Over a
//! `Transport` of your own the ranks may be anywhere.

use reshard::{Layout, Move, Plan, Result};
use reshard_mpi::communicator::Communicator;
use reshard_mpi::{MpiEngine, MpiOptions, Own, in_process};
use std::sync::Arc;

fn main() -> Result<()> {
    // Ranks 0 and 1 have a matrix, ranks 2, 3 and 4 want it.
    let from: Layout = "2x1/64x64 of 300x200".parse()?;
    let to: Layout = "1x3/10x10 ranks=2,3,4 of 300x200".parse()?;
    let run = |communicator: Arc<Communicator>| -> Result<()> {
        let rank = communicator.rank() as u64;
        let plan = Plan::for_rank(vec![Move::of::<f64>(from.clone(), to.clone())?], rank)?;
        let mut engine = MpiEngine::new(plan.into(), &communicator, MpiOptions::default())?;
        let value = |index: &[u64]| (index[0] * 1000 + index[1]) as f64;
        let mine = if rank < 2 { from.filled(rank, value)? } else { Vec::new() };
        let mut room = vec![0.0; engine.target_len(0)];
        engine.run(Own::new(&mine, &mut room))?;
        assert!(rank < 2 || room == to.filled(rank, value)?);
        Ok(())
    };
    std::thread::scope(|scope| {
        let ranks = in_process::two_groups([2, 3]).into_iter().map(|rank| scope.spawn(|| run(rank)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no rank panics"))
    })
}
