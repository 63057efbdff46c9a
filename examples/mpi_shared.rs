//! Arrays in memory that the ranks of a node share: each byte is copied once, by whichever rank is idle.
//! `mpirun --oversubscribe -n 4 target/debug/mpi_shared`

use reshard::{Layout, Move, Plan, Result};
use reshard_mpi::{Mover, Mpi, MpiEngine, MpiOptions, Own, Shared};

fn main() -> Result<()> {
    let session = Mpi::load(None)?.init()?;
    let (world, rank) = (session.world(), session.world().rank() as u64);
    let (from, to): (Layout, Layout) = ("2x2/64x64 of 1000x1000".parse()?, "1x4/32x32 of 1000x1000".parse()?);
    let plan = Plan::new(vec![Move::of::<f64>(from.clone(), to.clone())?])?;
    let mut engine = MpiEngine::new(plan.into(), world, MpiOptions::default().with_mover(Mover::Shared))?;
    let mut mine: Shared<f64> = Shared::zeroed(world, engine.source_len(0))?;
    let mut moved: Shared<f64> = Shared::zeroed(world, engine.target_len(0))?;
    for step in 0..3 {
        // Waits for ranks that still read what the step before wrote here.
        from.fill(rank, &mut mine, |index| (step * 1_000_000 + index[0] * 1000 + index[1]) as f64)?;
        engine.run(Own::shared(&mine, &mut moved))?;
        let expected = to.filled(rank, |index| (step * 1_000_000 + index[0] * 1000 + index[1]) as f64)?;
        assert_eq!(moved[..], expected[..]);
    }
    Ok(())
}
