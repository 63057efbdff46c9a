//! What a launched process does: the part it was given, from the beginning of MPI to its end.

use super::faults::errors;
use super::values::{collectives, datatypes, joins, messages, splits, unjoined};
use super::{groups, host};
use reshard_mpi::mpi::{Request, launched};
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, Own, RawComm};
use reshard_plan::{Distribution, ErrorKind, Layout, MemoryOrder, Move, Plan, Result};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything takes that works.
pub const SOON: Option<Duration> = Some(Duration::from_secs(300));

pub fn play(part: &str) {
    match part {
        "host" => return host::goes_on(),
        "host-serialized" => return host::takes_turns(),
        "host-funneled" => return host::has_one_thread(),
        "host-second-thread" => return host::is_called_by_a_second_thread(),
        "two-begin" => return host::two_threads_begin(),
        "on-itself" => return groups::on_itself(),
        "between-groups" => return groups::between_groups(),
        _ => {}
    }
    let mpi = match Mpi::load(None) {
        Ok(mpi) => mpi,
        Err(error) => refuse(&error),
    };
    // SAFETY: refused before it is used.
    let early = unsafe { Comm::from_raw(mpi, RawComm::Fortran(0)) }.unwrap_err();
    assert!(early.to_string().contains("MPI has not begun"), "{early}");
    let session = match mpi.init() {
        Ok(session) => session,
        Err(error) => refuse(&error),
    };
    let world = session.world();
    let launcher = launched().unwrap();
    assert_eq!((launcher.rank as usize, launcher.size as usize), (world.rank(), world.size()));
    match part {
        "values" => {
            println!("  {}", mpi.version());
            messages(&world.private().unwrap()).unwrap();
            collectives(world).unwrap();
            splits(world).unwrap();
            datatypes(world).unwrap();
            handles(world).unwrap();
        }
        "joined" => joins(world).unwrap(),
        "unjoined" => {
            unjoined(world).unwrap();
            println!("[given up]");
            // As a program ends that may not call MPI any more.
            std::process::exit(1);
        }
        "many" => many(world).unwrap(),
        "errors" => errors(world).unwrap(),
        "panic" if world.rank() + 1 == world.size() => panic!("on purpose"),
        "abort" if world.rank() == 0 => session.abort(3),
        "panic" | "abort" => world.barrier().unwrap(),
        other => panic!("no part {other}"),
    }
    let line = format!("[{}/{} done]", world.rank(), world.size());
    let second = mpi.init().unwrap();
    drop(session);
    second.world().barrier().unwrap();
    let private = Arc::downgrade(&second.world().private().unwrap());
    drop(second);
    assert!(private.upgrade().is_none(), "the private duplicate is freed when MPI ends");
    let said = mpi.init().unwrap_err().to_string();
    assert!(said.contains("has ended"), "{said}");
    // SAFETY: refused before it is used.
    let late = unsafe { Comm::from_raw(mpi, RawComm::Fortran(0)) }.unwrap_err();
    assert!(late.to_string().contains("has ended"), "{late}");
    println!("{line}");
}

fn refuse(error: &reshard_plan::Error) -> ! {
    eprintln!("{error}");
    std::process::exit(2);
}

/// The world as C and Fortran hand it over, and its private duplicate, which is always the same one.
fn handles(world: &Comm) -> Result<()> {
    let mpi = world.mpi();
    let name = mpi.version();
    let debug = format!("{mpi:?}");
    // As the headers have them.
    let (c, fortran) = match () {
        () if debug.contains("OpenMpi") => (None, 0),
        () if debug.contains("Standard") => (Some(RawComm::Pointer(0x101 as *mut c_void)), 0x101),
        () => (Some(RawComm::Integer(0x4400_0000)), 0x4400_0000),
    };
    let private = world.private()?;
    assert!(!private.is(world), "{name}");
    assert!(world.private()?.is(&private));
    for handle in c.into_iter().chain([RawComm::Fortran(fortran)]) {
        // SAFETY: the world is there to the end.
        let same = unsafe { Comm::from_raw(mpi, handle)? };
        assert!(same.is(world) && same.size() == world.size() && same.rank() == world.rank());
        assert!(same.private()?.is(&private), "the duplicate is kept on the communicator, not on the value");
    }
    // A duplicate of the parent has a private duplicate of its own.
    assert!(!private.private()?.is(&private));
    let wrong = match c {
        Some(RawComm::Integer(_)) => RawComm::Pointer(0x101 as *mut c_void),
        _ => RawComm::Integer(0x4400_0000),
    };
    // SAFETY: refused before it is used.
    let error = unsafe { Comm::from_raw(mpi, wrong) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains(name), "{error}");
    if debug.contains("OpenMpi") {
        // SAFETY: it looks numbers up, and knows of none for this one.
        let error = unsafe { Comm::from_raw(mpi, RawComm::Fortran(123_456)) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("no communicator"), "{error}");
    }
    Mpi::load(Some("/another/libmpi.so")).unwrap_err();
    Ok(())
}

/// More communicators than there are numbers for, in one library or another: none is leaked.
fn many(world: &Comm) -> Result<()> {
    for _ in 0..2500 {
        let part = world.split(Some(0), 0)?.unwrap();
        part.private()?;
    }
    Ok(())
}

/// All ranks get something of each other.
pub fn plan(world: &Comm) -> Arc<Plan> {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), MemoryOrder::ColMajor);
    let size = world.size();
    let [from, to] = [3, 5].map(|block| layout(&format!("{size}/{block} of 400")));
    Arc::new(Plan::new(vec![Move::of::<f64>(from, to).unwrap()]).unwrap())
}

/// An engine that has run once.
pub fn engine(world: &Comm, mover: Mover) -> MpiEngine {
    let options = MpiOptions::default().with_mover(mover);
    let mut engine = MpiEngine::new(plan(world), world, options).unwrap();
    let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![0.0; engine.target_len(0)]);
    engine.run(Own::new(&from, &mut to)).unwrap();
    assert!(to.iter().all(|&value| value == 1.0));
    engine
}

/// Requests and communicators may wander between threads.
const _: fn() = || {
    fn wanders<T: Send>() {}
    wanders::<Request>();
    wanders::<Comm>();
};
