//! Communicators of other groups than the world: the process alone, and two groups side by side.

use super::handles::Host;
use super::rank::engine;
use reshard_mpi::{Comm, Mover, MpiRing, MpiRingOptions};
use reshard_plan::ErrorKind;
use reshard_ring::RingProblem;

/// The first engine of a process is on `MPI_COMM_SELF`, then come a ring there and an engine of all; some outlive MPI. The host's MPI
/// ends in order.
pub fn on_itself() {
    let host = Host::new();
    host.init();
    // SAFETY: it is there until the host ends MPI.
    let alone = unsafe { Comm::from_raw(host.mpi, host.raw(host.predefined(true))) }.unwrap();
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    let mut kept = vec![engine(&alone, Mover::Messages)];
    for mover in [Mover::Private, Mover::Auto, Mover::Messages] {
        drop(engine(&alone, mover));
    }
    let problem = RingProblem::between_gen_blocks(&[3], &[3]);
    let mut ring = MpiRing::of_problem(problem, 8, &alone, MpiRingOptions::default()).unwrap();
    ring.run(&mut [1_u64, 2, 3]).unwrap();
    let session = host.mpi.init().unwrap();
    kept.push(engine(session.world(), Mover::Messages));
    kept.push(engine(&alone, Mover::Private));
    let line = format!("[{}/{} done]", session.world().rank(), session.world().size());
    drop((session, alone));
    host.finalize();
    drop((kept, ring));
    println!("{line}");
}

/// A communicator between two groups is refused at the door, on all ranks, and MPI goes on.
pub fn between_groups() {
    let host = Host::new();
    host.init();
    let session = host.mpi.init().unwrap();
    let world = host.predefined(false);
    let (rank, size) = (session.world().rank(), session.world().size());
    let side = u32::from(2 * rank >= size);
    let own = host.split(world, Some(side), 0).unwrap();
    let between = host.between(own, world, if side == 0 { size.div_ceil(2) } else { 0 });
    // SAFETY: both are freed below.
    let (error, alone) = unsafe {
        let error = Comm::from_raw(host.mpi, host.raw(between)).unwrap_err();
        (error, Comm::from_raw(host.mpi, host.raw(own)).unwrap())
    };
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert!(
        error.to_string().contains("between two groups") && error.to_string().contains("merge"),
        "{error}"
    );
    // Either group alone will do.
    drop(engine(&alone, Mover::Messages));
    host.free(between);
    host.free(own);
    drop(engine(session.world(), Mover::Messages));
    let line = format!("[{rank}/{size} done]");
    drop(session);
    host.finalize();
    println!("{line}");
}
