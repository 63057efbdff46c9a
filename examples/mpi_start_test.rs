//! Half of the ranks redistribute on a communicator of their own, and compute something else meanwhile.
//! `mpirun --oversubscribe -n 8 target/debug/mpi_start_test`

use reshard::{Layout, Move, Plan, Result};
use reshard_mpi::{Mpi, MpiEngine, MpiOptions, Own};

fn main() -> Result<()> {
    let session = Mpi::load(None)?.init()?;
    let world = session.world();
    let half = world.split(Some(world.rank() as u32 % 2), 0)?.filter(|half| half.size() >= 4);
    let Some(comm) = half else { return Ok(()) };
    let (from, to): (Layout, Layout) = ("2x2/64x64 of 1000x1000".parse()?, "1x4/32x32 of 1000x1000".parse()?);
    let plan = Plan::new(vec![Move::of::<f64>(from.clone(), to.clone())?])?;
    let mut engine = MpiEngine::new(plan.into(), &comm, MpiOptions::default())?;
    let mine = from.filled(comm.rank() as u64, |index| (index[0] * 1000 + index[1]) as f64)?;
    let mut moved = to.allocate(comm.rank() as u64)?;
    let mut running = engine.start(Own::new(&mine, &mut moved))?;
    let mut computed = 0;
    while !running.test()? {
        computed += 1; // something else: every call of test moves what can be moved
    }
    running.wait()?;
    let expected = to.filled(comm.rank() as u64, |index| (index[0] * 1000 + index[1]) as f64)?;
    assert_eq!(moved, expected, "{computed} tests");
    Ok(())
}
