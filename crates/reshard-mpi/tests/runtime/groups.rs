//! Communicators of other groups than the world: the process alone, and two groups side by side.

use super::host::Host;
use super::rank::engine;
use libloading::os::unix::Symbol;
use reshard_mpi::{Comm, Mover, MpiRing, MpiRingOptions, RawComm};
use reshard_plan::ErrorKind;
use reshard_ring::RingProblem;
use std::ffi::c_int;

/// A handle of either kind: libraries whose handles are C integers read and write its first half.
type AnyHandle = usize;

type Split = unsafe extern "C" fn(AnyHandle, c_int, c_int, *mut AnyHandle) -> c_int;
type Create = unsafe extern "C" fn(AnyHandle, c_int, AnyHandle, c_int, c_int, *mut AnyHandle) -> c_int;
type Free = unsafe extern "C" fn(*mut AnyHandle) -> c_int;

impl Host {
    /// The handle of the world or of `MPI_COMM_SELF`, as the headers have it.
    fn predefined(&self, own: bool) -> AnyHandle {
        let debug = format!("{:?}", self.mpi);
        match () {
            () if debug.contains("OpenMpi") => {
                let name: &[u8] = if own { b"ompi_mpi_comm_self" } else { b"ompi_mpi_comm_world" };
                // SAFETY: a variable, of which only the address is used.
                let variable: Symbol<*mut u8> = unsafe { self.library.get(name) }.unwrap();
                variable.into_raw().addr()
            }
            () if debug.contains("Standard") => 0x101 + usize::from(own),
            () => 0x4400_0000 + usize::from(own),
        }
    }

    fn raw(&self, handle: AnyHandle) -> RawComm {
        match self.mpi.has_integer_handles() {
            true => RawComm::Integer(handle as c_int),
            false => RawComm::Pointer(std::ptr::with_exposed_provenance_mut(handle)),
        }
    }

    fn call<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the callers name functions of these types.
        unsafe { *self.library.get::<T>(name.as_bytes()).unwrap() }
    }
}

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
    let (mut own, mut between) = (0, 0);
    let side = c_int::from(2 * rank >= size);
    let other = if side == 0 { size.div_ceil(2) } else { 0 };
    // SAFETY: the functions have these types, the handles are valid, and results have places of their own.
    unsafe {
        assert_eq!(host.call::<Split>("MPI_Comm_split")(world, side, 0, &raw mut own), 0);
        let create = host.call::<Create>("MPI_Intercomm_create");
        assert_eq!(create(own, 0, world, other as c_int, 1, &raw mut between), 0);
        let error = Comm::from_raw(host.mpi, host.raw(between)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(
            error.to_string().contains("between two groups") && error.to_string().contains("merge"),
            "{error}"
        );
        // Either group alone will do.
        drop(engine(&Comm::from_raw(host.mpi, host.raw(own)).unwrap(), Mover::Messages));
        let free = host.call::<Free>("MPI_Comm_free");
        assert_eq!((free(&raw mut between), free(&raw mut own)), (0, 0));
    }
    drop(engine(session.world(), Mover::Messages));
    let line = format!("[{rank}/{size} done]");
    drop(session);
    host.finalize();
    println!("{line}");
}
