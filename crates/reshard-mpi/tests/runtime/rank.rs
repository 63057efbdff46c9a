//! What a launched process does: the part it was given, from the beginning of MPI to its end.

use super::faults::{errors, from_nowhere};
use super::values::{collectives, datatypes, messages, splits};
use libloading::os::unix::Library;
use reshard_mpi::{Comm, Mover, Mpi, MpiEngine, MpiOptions, RawComm, Request, launched};
use reshard_plan::{Distribution, ErrorKind, Layout, Move, Order, Plan, Result};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything takes that works.
pub const SOON: Option<Duration> = Some(Duration::from_secs(20));

pub fn play(part: &str) {
    if part == "host" {
        return host();
    }
    let mpi = match Mpi::load(None) {
        Ok(mpi) => mpi,
        Err(error) => refuse(&error),
    };
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
    assert!(mpi.init().unwrap_err().to_string().contains("has ended"));
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

/// A program that begins and ends MPI by itself, as C programs do; we find the library in the process.
fn host() {
    let asked = std::env::var("RESHARD_MPI").unwrap();
    let names = match asked.as_str() {
        "openmpi" => vec!["libmpi.so.40"],
        "mpich" => vec!["libmpi.so.12", "libmpich.so.12"],
        "" if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() => vec!["libmpi.so.40"],
        "" => vec!["libmpi.so.12", "libmpich.so.12"],
        path => vec![path],
    };
    // SAFETY: the test runs alone in its process.
    unsafe { std::env::remove_var("RESHARD_MPI") };
    let (now, global) = (libc::RTLD_NOW, libc::RTLD_GLOBAL);
    // SAFETY: an MPI library; its functions have these types.
    let (library, finalize) = unsafe {
        let library = names.iter().find_map(|&name| Library::open(Some(name), now | global).ok()).unwrap();
        let init =
            *library.get::<unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>(b"MPI_Init").unwrap();
        let finalize = *library.get::<unsafe extern "C" fn() -> c_int>(b"MPI_Finalize").unwrap();
        assert_eq!(init(std::ptr::null_mut(), std::ptr::null_mut()), 0);
        (library, finalize)
    };
    let mpi = Mpi::load(None).unwrap();
    let session = mpi.init().unwrap();
    let world = session.world();
    messages(&world.private().unwrap()).unwrap();
    let mut engines = [Mover::Messages, Mover::Private].map(|mover| engine(world, mover));
    // An error would end the host on its own communicator; on the private one it is returned.
    from_nowhere(&world.private().unwrap());
    let line = format!("[{}/{} done]", world.rank(), world.size());
    let private = Arc::downgrade(&world.private().unwrap());
    drop(session);
    assert!(private.upgrade().is_some(), "MPI is the host's: it goes on, and the duplicate is kept");
    let again = mpi.init().unwrap();
    assert!(again.world().private().unwrap().is(&private.upgrade().unwrap()));
    drop(again);
    // SAFETY: begun above.
    assert_eq!(unsafe { finalize() }, 0);
    // Nothing is called any more: MPI would end the process.
    for engine in &mut engines {
        let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![0.0; engine.target_len(0)]);
        let said = engine.run_own(&from, &mut to).unwrap_err().to_string();
        assert!(said.contains("MPI has ended"), "{said}");
    }
    drop(engines);
    assert!(private.upgrade().is_none(), "the end of MPI takes the duplicate with it");
    assert!(mpi.init().unwrap_err().to_string().contains("has ended"));
    drop(library);
    println!("{line}");
}

/// An engine that has run once.
fn engine(world: &Comm, mover: Mover) -> MpiEngine {
    let layout = |text: &str| Layout::new(text.parse::<Distribution>().unwrap(), Order::ColMajor);
    let size = world.size();
    let [from, to] = [3, 5].map(|block| layout(&format!("{size}/{block} of 400")));
    let plan = Plan::new(vec![Move::new(from, to).unwrap()]).unwrap();
    let options = MpiOptions { mover, ..MpiOptions::default() };
    let mut engine = MpiEngine::new(Arc::new(plan), world, options).unwrap();
    let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![0.0; engine.target_len(0)]);
    engine.run_own(&from, &mut to).unwrap();
    assert!(to.iter().all(|&value| value == 1.0));
    engine
}

/// Requests and communicators may wander between threads.
const _: fn() = || {
    fn wanders<T: Send>() {}
    wanders::<Request>();
    wanders::<Comm>();
};
